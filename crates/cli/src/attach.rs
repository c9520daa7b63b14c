//! `esker attach` and `esker detach`: a device as a file and as a block device of this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_attach::{AttachError, Attached, Attachment, Options, holders};
use esker_base::units::human_bytes;
use esker_base::{Clock, ErrorKind};
use esker_device::{Create, Device, DeviceStats};
use esker_stack::Spec;

use crate::args::{AttachArgs, AttachTo, DetachArgs};
use crate::failure::{Failure, Result};
use crate::host;
use crate::metrics::{self, Exporter};
use crate::output;
use crate::pool::link::stack;
use crate::signals::StopSignals;

/// How often to look whether somebody else has unmounted it.
const STEP: Duration = Duration::from_millis(200);
/// How long a process may take to end that has unmounted its device: it may have much to write back.
const PATIENCE: Duration = Duration::from_secs(600);
/// The time after which the reason of a wait is printed.
const NOTICE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// Attaches a device until it is told to end.
pub(crate) fn attach(args: &AttachArgs) -> Result {
    attach_to(&args.device.parse()?, &args.to)
}

/// Attaches the device that a specification names.
pub(crate) fn attach_to(spec: &Spec, args: &AttachTo) -> Result {
    let mut signals = StopSignals::catch()?;
    host::allow_descriptors();
    let stack = Arc::new(stack());
    let opened = stack.open(spec, Create::Never)?;
    let remarks = opened.remarks();
    for remark in &remarks {
        eprintln!("esker: note: {remark}");
    }
    let device = opened.device;
    let options = Options {
        read_only: args.read_only,
        loop_device: args.loop_device,
        threads: args.threads,
        spin: args.spin,
        keep_awake: args.keep_awake,
        nonempty: args.nonempty,
    };
    let mut attachment = Attachment::start(device.clone(), &args.mount_point, &options)?;
    let exporter =
        Exporter::if_asked(args.telling.metrics, || metrics::of_device(device.clone(), &stack))?;
    output::print(&made(&attachment, &*device, args.read_only))?;
    serve(&mut attachment, &mut signals)?;
    drop(exporter);
    drop(attachment);
    // Remarks that have come up since, such as a trace that is not complete.
    for remark in device.remarks().iter().filter(|remark| !remarks.contains(remark)) {
        eprintln!("esker: note: {remark}");
    }
    output::print(&format!("detached: {}\n", carried(&device.stats())))
}

/// Goes on until it is told to end and nobody uses the device, or is told twice.
fn serve(attachment: &mut Attachment, signals: &mut StopSignals) -> Result {
    while attachment.is_running() && !signals.wait(STEP) {}
    let mut is_told = false;
    loop {
        match attachment.stop() {
            Ok(()) => return Ok(()),
            Err(error @ AttachError::Busy { .. }) => {
                if !is_told {
                    eprintln!("esker: {error}; it is detached when nobody uses it any more");
                    is_told = true;
                }
                if signals.wait(STEP) {
                    attachment.abandon();
                    return Err(Failure::from(error).and("abandoned, as it was told a second time"));
                }
            }
            Err(error) => return Err(error.into()),
        }
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
        "{} reads ({}), {} writes ({}), {} flushes, {} discards ({}), {} errors",
        stats.reads,
        human_bytes(stats.read_bytes),
        stats.writes,
        human_bytes(stats.written_bytes),
        stats.flushes,
        stats.discards,
        human_bytes(stats.discarded_bytes),
        stats.errors
    )
}

/// Asks the process that has attached a device to detach it, or clears away its remains.
pub(crate) fn detach(args: &DetachArgs) -> Result {
    let found = esker_attach::find(&args.mount_point)?;
    if found.is_dead {
        return clear(&found);
    }
    if !args.force {
        found.check_unused()?;
    }
    found.ask_to_end()?;
    until_unmounted(&found, args)?;
    until_ended(&found)?;
    output::print(&format!("detached {}\n", found.mount_point.display()))
}

/// Waits while somebody uses it. Its process unmounts it as soon as nobody does.
fn until_unmounted(found: &Attached, args: &DetachArgs) -> Result {
    let at = found.mount_point.display();
    let clock = Clock::real();
    let begun = clock.now();
    let (mut told, mut forced) = (None, begun);
    while found.is_mounted() {
        let now = clock.now();
        if now.since(begun) > NOTICE && told.is_none() {
            let who = holders::said(&found.holders(), &found.mount_point);
            eprintln!("esker: {at} is in use: {who}; waiting for them, for up to {:?}", args.wait);
            told = Some(who);
        }
        if args.force && now.since(forced) > NOTICE {
            // Told a second time, it ends all the same.
            found.ask_to_end()?;
            forced = now;
        }
        if now.since(begun) > args.wait.max(if args.force { PATIENCE } else { NOTICE }) {
            let who = holders::said(&found.holders(), &found.mount_point);
            let message = format!(
                "{at}: it is in use: {who}; process {} goes on serving it, and detaches it when nobody uses it any \
                 more. Close what uses it, or run `esker detach --force`: they get errors then",
                found.pid
            );
            return Err(Failure::new(ErrorKind::Conflict, message));
        }
        clock.sleep(POLL);
    }
    Ok(())
}

/// Waits until the process has ended: it may have much to write back.
fn until_ended(found: &Attached) -> Result {
    let clock = Clock::real();
    let begun = clock.now();
    let mut is_told = false;
    while is_alive(found.pid) {
        let waited = clock.now().since(begun);
        if waited > NOTICE && !is_told {
            let at = found.mount_point.display();
            eprintln!(
                "esker: {at}: unmounted; process {} makes durable what was written",
                found.pid
            );
            is_told = true;
        }
        if waited > PATIENCE {
            let message = format!(
                "{}: process {} has unmounted it and has not ended after {PATIENCE:?}; look at what it says",
                found.mount_point.display(),
                found.pid
            );
            return Err(Failure::new(ErrorKind::Retry, message));
        }
        clock.sleep(POLL);
    }
    Ok(())
}

/// Whether a process runs, or has not been waited for yet but runs no more.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state stands behind the name, which may contain anything (proc(5)).
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

fn clear(found: &Attached) -> Result {
    let left = found.clear()?;
    let at: &Path = &found.mount_point;
    let mut text = format!("cleared {}: process {} had crashed\n", at.display(), found.pid);
    for path in left {
        text.push_str(&format!(
            "{} is in use still; it goes when it is unmounted or closed\n",
            path.display()
        ));
    }
    output::print(&text)
}
