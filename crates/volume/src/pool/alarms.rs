//! Alarms of a pool: a stable code, one sentence, the cure, and the command to run.

use std::time::Duration;

use crate::drive::Unanswering;
use crate::keep::retire::Waiting;
use crate::omf::label::MemberState;
use crate::pool::status::{DriveLatency, Status};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// A stable code.
    pub code: &'static str,
    /// One sentence.
    pub text: String,
    /// The cure.
    pub action: String,
    /// The command to run; words in capitals stand for what the operator has to choose.
    pub command: String,
}

/// Facts that the status does not have.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Why nothing is written any more.
    pub(crate) stopped: Option<String>,
    /// The panic after which nothing is done any more.
    pub(crate) failed: Option<String>,
    /// The error with which maintenance failed last.
    pub(crate) failure: Option<String>,
    /// The write buffer has fewer copies than it should.
    pub(crate) log_is_degraded: bool,
    /// How long a missing drive is waited for.
    pub(crate) missing_grace: Duration,
    /// The names of volumes in the trash.
    pub(crate) trashed: Vec<String>,
    /// Why drives are not emptied for now.
    pub(crate) waiting: Option<Waiting>,
    /// In how much time everything is to be verified.
    pub(crate) scrub_within: Option<Duration>,
    /// The time, in seconds since 1970.
    pub(crate) now_secs: u64,
}

/// All that is wrong.
pub(crate) fn of(status: &Status, facts: &Facts) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let mut add = |code, text: String, action: &str, command: String| {
        alarms.push(Alarm { code, text, action: action.to_owned(), command });
    };
    let pool = &status.name;
    let show = format!("esker pool status {pool}");
    let command = format!("esker pool serve {pool} --drives DRIVES");
    if let Some(why) = &facts.failed {
        let text = format!("The pool serves nothing any more: {why}.");
        let action = "serve the pool anew, by which nothing is lost that was acknowledged, and report the panic";
        add("POOL_STOPPED", text, action, command);
    } else if let Some(why) = &facts.stopped {
        let text = format!("The pool accepts no writes: {why}.");
        add("POOL_STOPPED", text, "mend the cause, then serve the pool anew", command);
    }
    if let Some(why) = &facts.failure {
        let text = format!("Maintenance failed and is tried again: {why}.");
        add("MAINTENANCE_FAILED", text, "mend the cause, then look again", show.clone());
    }
    for member in &status.members {
        let name = match &member.device {
            Some(device) => device.clone(),
            None => format!("(last seen as {})", member.last_name),
        };
        let (index, errors) =
            (member.index, member.checksum_errors.saturating_sub(member.missed_writes));
        if member.state == MemberState::Faulted {
            let text = format!("{index} {name} is out of the pool since {}.", member.since);
            let command = format!("esker pool replace {pool} {} NEW-DEVICE --wait", index.0);
            let again = format!("esker pool rejoin {pool} {}", index.0);
            let action =
                format!("put another drive in its place, or, if its device is well again: {again}");
            add("DRIVE_FAULTED", text, &action, command);
        } else if member.state == MemberState::Missing {
            let (uuid, last, grace) = (member.uuid, &member.last_name, facts.missing_grace);
            let text = format!(
                "{index} ({uuid}, last seen as {last}) is missing since {}, and what it has is computed from parities.",
                member.since
            );
            let action = format!("bring it back, or replace it; it is waited for {grace:?}");
            let command = format!("esker pool rejoin {pool} {} DEVICE --wait", index.0);
            add("DRIVE_MISSING", text, &action, command);
        } else if member.state == MemberState::Rejoining {
            let text = format!("{index} {name} was missing, and what it has is being verified.");
            add("DRIVE_REJOINING", text, "wait until it is online", show.clone());
        } else if errors > 0 {
            let text =
                format!("{index} {name} returned {errors} times other bytes than were written.");
            let command = format!("esker pool scrub {pool} --wait");
            add("DRIVE_SUSPECT", text, "scrub, then replace it if more appear", command);
        }
        if member.is_slow {
            let DriveLatency { read_p50, write_p50, .. } = member.latency;
            let text = format!(
                "{index} {name} is many times slower than the others: half of its reads take {read_p50:?} or more, \
                 of its writes {write_p50:?}."
            );
            let command = format!("esker pool replace {pool} {} NEW-DEVICE --wait", index.0);
            let action = "replace the drive unless it becomes faster; it is avoided until then";
            add("DRIVE_SLOW", text, action, command);
        }
    }
    if let (Some(scrub), Some(within)) = (&status.scrub, facts.scrub_within)
        && facts.now_secs > scrub.finished.unwrap_or(scrub.began) + within.as_secs()
    {
        let text = format!("No scrub has ended within {within:?}.");
        let command = format!("esker pool scrub {pool} --wait");
        add("SCRUB_OVERDUE", text, "scrub, when there is little else to do", command);
    }
    let [_, one, two, more] = status.segments;
    let degraded = one + two + more;
    let lost = status.beyond_repair;
    if lost > 0 {
        let text = format!("{lost} segments have lost more chunks than they have parities.");
        let command = format!("esker pool scrub {pool} --wait");
        let action = "restore the volumes that report lost blocks, then scrub";
        add("DATA_LOST", text, action, command);
    } else if degraded > 0 {
        let (text, action) = match &status.rebuild {
            Some(rebuild) => {
                let left = rebuild.chunks;
                let text =
                    format!("{degraded} segments lack chunks, and {left} are to be rebuilt.");
                (text, "wait until none is left")
            }
            None => {
                let text = format!("{degraded} segments lack chunks that missing drives have.");
                (text, "bring the drives back, or replace them")
            }
        };
        add("DEGRADED", text, action, show);
    }
    if facts.log_is_degraded {
        let text = "The write buffer has fewer copies than it should.".to_owned();
        let command = format!("esker pool add {pool} NEW-DEVICE");
        add("BUFFER_DEGRADED", text, "add a drive or a buffer device", command);
    }
    if let Some(Waiting { drives, excess }) = &facts.waiting {
        let why = match excess {
            0 => "cleaning makes no room on the others".to_owned(),
            _ => format!("the others lack room for {excess} bytes of what is stored"),
        };
        let first = drives.first().map_or(0, |drive| drive.0);
        let names = drives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let text = format!("{names}: emptying waits, and it is used meanwhile: {why}.");
        let action = format!(
            "add a drive, or delete or discard as much, or let the drive stay: esker pool retire {pool} {first} --cancel"
        );
        let command = match facts.trashed.first() {
            Some(name) => format!("esker volume delete {pool}/{name} --keep 0"),
            None => format!("esker pool add {pool} NEW-DEVICE"),
        };
        add("RETIRE_WAITING", text, &action, command);
    }
    let percent = status.space.live.saturating_mul(100) / status.space.usable.max(1);
    let code = match percent {
        95.. => "POOL_FULL",
        85.. => "POOL_NEARLY_FULL",
        75.. => "POOL_FILLING",
        _ => return alarms,
    };
    let text = format!("{percent} % of the space is used.");
    match facts.trashed.first() {
        // A volume in the trash is gone already for its users: the cheapest space there is.
        Some(name) => {
            let count = facts.trashed.len();
            let action = format!(
                "empty the trash, which keeps {count} deleted volumes, or add a drive, or discard and delete what \
                 nobody needs"
            );
            add(code, text, &action, format!("esker volume delete {pool}/{name} --keep 0"));
        }
        None => {
            let action = "add a drive, or discard and delete what nobody needs";
            add(code, text, action, format!("esker pool add {pool} NEW-DEVICE"));
        }
    }
    alarms
}

/// Drives that do not answer and are waited for.
pub(crate) fn unanswering(status: &Status) -> Option<Alarm> {
    let named = status.members.iter().filter_map(|member| {
        let Unanswering { span, words } = member.unanswering.as_ref()?;
        let name = member.device.as_ref().unwrap_or(&member.last_name);
        let secs = span.as_secs_f64();
        let how = words.as_ref().map_or(String::new(), |words| format!(" ({words})"));
        Some(format!("{} {name} has not answered for {secs:.1} s{how}", member.index))
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| Alarm {
        code: "DRIVES_SILENT",
        text: format!("{}.", named.join("; ")),
        action: "look at the drives and their connections; a drive that can be spared is taken out, and what is asked of \
                 the others waits until they answer"
            .to_owned(),
        command: format!("esker pool status {}", status.name),
    })
}
