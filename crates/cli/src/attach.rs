//! `esker attach` and `esker detach`: a device as a file and as a block device of this machine.

mod control;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_attach::{AttachError, Attached, Attachment, Options, State, holders};
use esker_base::units::{counted, human_bytes};
use esker_base::{Clock, ErrorKind, Nanos};
use esker_device::{Create, Device, DeviceStats};
use esker_serve::metrics::of_device;
use esker_stack::{Spec, Stack};

use crate::args::{AttachArgs, AttachTo, DetachArgs};
use crate::failure::{Failure, Result};
use crate::host;
use crate::metrics;
use crate::output;
use crate::pool::link::{closed, stack};
use crate::signals::{self, StopSignals};
use crate::stderr::tell;
use control::{Control, News, Said, ServingProcess, Wish};

/// How often to look whether somebody else has unmounted it, or nobody uses it any more.
const STEP: Duration = Duration::from_millis(200);
/// How long a process may take to end that has unmounted its device: it may have much to write back.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a process that is told to detach by force may take before its connection is ended for it.
const GRACE: Duration = Duration::from_secs(5);
/// The time after which the reason of a wait is printed.
const NOTICE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// Attaches a device until it is told to end.
pub(crate) fn attach(args: &AttachArgs) -> Result {
    attach_to(&args.device.parse()?, &args.to)
}

/// Attaches the device that a specification names.
pub(crate) fn attach_to(spec: &Spec, args: &AttachTo) -> Result {
    let signals = StopSignals::catch()?;
    host::allow_descriptors();
    if let Ok(found) = esker_attach::find(&args.mount_point)
        && found.state() == State::Dead
    {
        tell!("esker: note: {}", cleared(&found)?.trim_end());
    }
    let stack = Arc::new(stack());
    let opened = stack.open(spec, Create::Never)?;
    let remarks = opened.remarks();
    for remark in &remarks {
        tell!("esker: note: {remark}");
    }
    host::note_threads(args.threads);
    let device = opened.device.clone();
    let options = Options {
        read_only: args.read_only,
        loop_device: args.loop_device,
        threads: args.threads,
        spin: args.spin,
        keep_awake: args.keep_awake,
        nonempty: args.nonempty,
    };
    let mut attachment = Attachment::start(device.clone(), &args.mount_point, &options)?;
    let mut wishes = Wishes { signals, control: listen(&attachment) };
    let exporter = metrics::if_asked(args.telling.metrics, || of_device(device.clone(), &stack))?;
    output::print(&made(&attachment, &*device, args.read_only))?;
    let served = serve(&mut attachment, &mut wishes);
    let mut clients = wishes.control.map(Control::unmounted).unwrap_or_default();
    drop(exporter);
    drop(attachment);
    // Remarks that have come up since, such as a trace that is not complete.
    let mut notes = device.remarks();
    notes.retain(|remark| !remarks.contains(remark));
    notes.extend(left_dirty(&stack));
    for note in &notes {
        tell!("esker: note: {note}");
    }
    let carried = carried(&device.stats());
    // Nobody else has them: this closes what is below.
    drop((device, opened));
    let ended = Failure::of_both(served, closed());
    let failure = ended.as_ref().err().map(|it| (it.code(), it.message().to_owned()));
    clients.say(&Said::Closed { notes, failure });
    // Its users when it was detached by force.
    ended?.map_or(Ok(()), Err)?;
    output::print(&format!("detached: {carried}\n"))
}

/// Listens for `esker detach`; where that is not possible, it says so and goes on.
fn listen(attachment: &Attachment) -> Option<Control> {
    Control::open(attachment.connection()?)
        .inspect_err(|failure| tell!("esker: note: {}", failure.message()))
        .ok()
}

/// Blocks that write-back caches hold and their origins do not have.
fn left_dirty(stack: &Stack) -> Vec<String> {
    let dirty = stack.caches().into_iter().filter_map(|cache| {
        let bytes = cache.figures().dirty_blocks * 4096;
        (bytes > 0).then(|| {
            format!(
                "{}: {} are on its flash device alone, and go to the origin later; `esker cache detach` writes them \
                 back now",
                cache.name(),
                human_bytes(bytes)
            )
        })
    });
    dirty.collect()
}

/// Requests to end the process: signals, and clients of its socket.
struct Wishes {
    signals: StopSignals,
    control: Option<Control>,
}

impl Wishes {
    /// Waits for a wish, for at most [`STEP`].
    fn wait(&mut self, at_signal: Wish) -> Option<Wish> {
        let clock = Clock::real();
        let end = clock.now() + STEP;
        loop {
            let signal = self.signals.take().then_some(at_signal);
            let asked = self.control.as_mut().and_then(Control::wish);
            let left = end.since(clock.now());
            if signal.max(asked).is_some() || left.is_zero() {
                return signal.max(asked);
            }
            clock.sleep(left.min(signals::STEP));
        }
    }
}

/// Goes on until it is told to end and nobody uses the device, or to end all the same: a second signal says that,
/// too. Returns who used it then.
fn serve(attachment: &mut Attachment, wishes: &mut Wishes) -> Result<Option<Failure>> {
    let mut wish = None;
    while attachment.is_running() && wish.is_none() {
        wish = wishes.wait(Wish::Detach);
        match attachment.follow_size() {
            Ok(None) => {}
            Ok(Some(size)) => {
                tell!(
                    "esker: {} has {} from now on",
                    attachment.file().display(),
                    human_bytes(size)
                );
            }
            Err(error) => tell!("esker: {error}"),
        }
    }
    let mut is_told = false;
    loop {
        let in_use = match attachment.stop() {
            Err(error @ AttachError::Busy { .. }) => error,
            outcome => return Ok(outcome.map(|()| None)?),
        };
        if wish == Some(Wish::Force) {
            attachment.abandon();
            let told = Failure::from(in_use).and("it was detached all the same, as it was told");
            return Ok(Some(told));
        }
        if !is_told {
            tell!("esker: {in_use}; it is detached when nobody uses it any more");
            is_told = true;
        }
        wish = wishes.wait(Wish::Force);
    }
}

fn made(attachment: &Attachment, device: &dyn Device, read_only: bool) -> String {
    let geometry = device.geometry();
    let mut text = format!(
        "attached {}: {} in LBAs of {} bytes{}\nfile: {}\n",
        device.name(),
        human_bytes(geometry.capacity.bytes(geometry.lba_size)),
        geometry.lba_size,
        if read_only { ", read-only" } else { "" },
        attachment.file().display()
    );
    if let Some(path) = attachment.loop_path() {
        text.push_str(&format!("block device: {}\n", path.display()));
    }
    for path in attachment.partitions() {
        text.push_str(&format!("partition: {}\n", path.display()));
    }
    text
}

fn carried(stats: &DeviceStats) -> String {
    format!(
        "{} ({}), {} ({}), {}, {} ({}), {}",
        counted(stats.reads, "read"),
        human_bytes(stats.read_bytes),
        counted(stats.writes, "write"),
        human_bytes(stats.written_bytes),
        counted(stats.flushes, "flush"),
        counted(stats.discards, "discard"),
        human_bytes(stats.discarded_bytes),
        counted(stats.errors, "error")
    )
}

/// Has the process that serves a device detach it, or clears away its remains.
pub(crate) fn detach(args: &DetachArgs) -> Result {
    let found = esker_attach::find(&args.mount_point)?;
    let Some(mut server) = ServingProcess::find(found.connection, found.owner) else {
        return match found.state() {
            State::Dead => output::print(&cleared(&found)?),
            _ if args.force => Err(abort(&found)),
            state => Err(unanswered(&found, state)),
        };
    };
    if !is_ready(&found, &mut server, args)? {
        return Err(abort(&found));
    }
    if !args.force {
        found.check_unused()?;
    }
    server.ask(if args.force { Wish::Force } else { Wish::Detach });
    if !until_unmounted(&found, &mut server, args)? {
        return Err(abort(&found));
    }
    until_closed(&found, &mut server)?;
    output::print(&format!("detached {}\n", found.mount_point.display()))
}

/// Waits until the server answers; false when it does not, and is not to be waited for.
fn is_ready(found: &Attached, server: &mut ServingProcess, args: &DetachArgs) -> Result<bool> {
    let limit = if args.force { GRACE } else { args.wait.max(GRACE) };
    let mut wait = Wait::new(limit);
    loop {
        match server.news(POLL) {
            News::Said(_) => return Ok(true),
            News::Ended => return Err(ended(found)),
            News::Nothing if args.force && wait.is_over() && !wait.is_at_work(found) => {
                return Ok(false);
            }
            News::Nothing if !args.force && wait.is_over() => {
                return Err(unanswered(found, State::Silent));
            }
            News::Nothing => wait.tell(|| {
                format!("{} does not answer; waiting for it, for up to {limit:?}", who(found))
            }),
        }
    }
}

/// Waits while somebody uses it: the server unmounts it as soon as nobody does. False when the server does not
/// unmount what is to be detached by force.
fn until_unmounted(
    found: &Attached,
    server: &mut ServingProcess,
    args: &DetachArgs,
) -> Result<bool> {
    let at = found.mount_point.display();
    let limit = if args.force { GRACE } else { args.wait.max(NOTICE) };
    let users = || holders::said(&found.holders(), &found.mount_point);
    let mut wait = Wait::new(limit);
    loop {
        match server.news(POLL) {
            News::Said(Said::Unmounted) => return Ok(true),
            News::Said(_) => {}
            News::Ended => return Err(ended(found)),
            // It flushes the device, and says so then.
            News::Nothing if !found.is_mounted() => return Ok(true),
            News::Nothing if args.force && wait.is_over() && !wait.is_at_work(found) => {
                return Ok(false);
            }
            News::Nothing if args.force => {
                wait.tell(|| {
                    format!("{at}: {} has not unmounted it yet; waiting for it", who(found))
                });
            }
            News::Nothing if wait.is_over() => {
                let message = format!(
                    "{at}: it is in use: {}; {} goes on serving it, and detaches it when nobody uses it any more. \
                     Close what uses it, or run `esker detach --force`: they get errors then",
                    users(),
                    who(found)
                );
                return Err(Failure::new(ErrorKind::Conflict, message));
            }
            News::Nothing => wait.tell(|| {
                format!("{at} is in use: {}; waiting for them, for up to {:?}", users(), args.wait)
            }),
        }
    }
}

/// Waits until the server has closed the device: it may have much to write back.
fn until_closed(found: &Attached, server: &mut ServingProcess) -> Result {
    let at = found.mount_point.display();
    let mut wait = Wait::new(PATIENCE);
    loop {
        match server.news(NOTICE) {
            News::Said(Said::Closed { notes, failure }) => {
                notes.iter().for_each(|note| tell!("esker: note: {note}"));
                let Some((code, message)) = failure else { return Ok(()) };
                return Err(Failure::coded(code, message).at(format!("{at}: unmounted")));
            }
            News::Said(_) => {}
            News::Ended => return Err(ended(found)),
            News::Nothing if wait.is_over() || wait.waited() > GRACE && is_stopped(found) => {
                let message = format!(
                    "{at}: it is unmounted, and {} has not closed its device after {:.0?}; look at what it says, and \
                     use the device otherwise only when it has ended",
                    who(found),
                    wait.waited()
                );
                return Err(Failure::new(ErrorKind::Retry, message));
            }
            News::Nothing => wait
                .tell(|| format!("{at}: unmounted; {} makes durable what was written", who(found))),
        }
    }
}

/// A wait whose reason is printed once.
struct Wait {
    clock: Clock,
    begun: Nanos,
    limit: Duration,
    is_told: bool,
}

impl Wait {
    fn new(limit: Duration) -> Wait {
        let clock = Clock::real();
        Wait { begun: clock.now(), clock, limit, is_told: false }
    }

    fn waited(&self) -> Duration {
        self.clock.now().since(self.begun)
    }

    fn is_over(&self) -> bool {
        self.waited() > self.limit
    }

    /// Whether a server that is slow still serves: it may have to write what the kernel has of the device.
    fn is_at_work(&self, found: &Attached) -> bool {
        self.waited() < PATIENCE && found.state() == State::Served
    }

    fn tell(&mut self, why: impl FnOnce() -> String) {
        if !self.is_told && self.waited() > NOTICE {
            tell!("esker: {}", why());
            self.is_told = true;
        }
    }
}

/// The process that serves a device, for people.
fn who(found: &Attached) -> String {
    let Some(pid) = found.server() else {
        return "the process that serves it".to_owned();
    };
    match is_stopped(found) {
        true => format!("process {pid}, which is stopped (`kill -CONT {pid}` lets it go on),"),
        false => format!("process {pid}"),
    }
}

/// Whether the process that serves a device is seen to be stopped.
fn is_stopped(found: &Attached) -> bool {
    let Some(pid) = found.server() else { return false };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state stands behind the name, which may contain anything (proc(5)).
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}

/// The server ended before it had said that its device is closed.
fn ended(found: &Attached) -> Failure {
    let message = format!(
        "{}: the process that served it has ended without closing its device; what was written and not flushed may be \
         lost. `esker detach` clears away a mount that is left",
        found.mount_point.display()
    );
    Failure::new(ErrorKind::Io, message)
}

/// Nobody listens at the socket, or does not answer.
fn unanswered(found: &Attached, state: State) -> Failure {
    let why = match state {
        State::Silent => "does not answer",
        _ => "listens at no socket that can be reached from here",
    };
    let message = format!(
        "{}: {} {why}; nothing was changed. End it with SIGTERM where it runs, or run `esker detach --force`: its \
         users get errors then, and it is not waited for",
        found.mount_point.display(),
        who(found)
    );
    Failure::new(ErrorKind::Retry, message)
}

/// Ends the connection to a server that does not answer, and clears away the mount. That is no success: the device
/// is not closed.
fn abort(found: &Attached) -> Failure {
    let server = who(found);
    if let Err(error) = found.abort() {
        return error.into();
    }
    let at = found.mount_point.display();
    match found.clear() {
        Ok(left) => {
            let message = format!(
                "{at}: detached by force, and its device is not closed: {server} does not answer. What was written and \
                 not flushed may be lost, and blocks that a write-back cache holds are on its flash device alone. It \
                 closes the device when it goes on; only then use the device otherwise{}",
                said(&left)
            );
            Failure::new(ErrorKind::Io, message)
        }
        Err(error) => error.into(),
    }
}

/// Clears away the remains of a process that has ended without detaching, and says so.
fn cleared(found: &Attached) -> Result<String> {
    let left = found.clear()?;
    let at: &Path = &found.mount_point;
    Ok(format!("cleared {}: its process had crashed{}\n", at.display(), said(&left)))
}

/// Loop devices that are left.
fn said(left: &[std::path::PathBuf]) -> String {
    let text = |path: &std::path::PathBuf| {
        format!("\n{} is in use still; it goes when it is unmounted or closed", path.display())
    };
    left.iter().map(text).collect()
}
