//! `esker kv compact` and `esker kv remove-staging`: long work that is watched, and called off by the
//! signals that end a command.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use esker_base::units::human_bytes;
use esker_base::{Clock, ErrorKind};
use esker_kv::{CompactRequest, CompactStatus, KvError, Kvdb};

use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::{Bar, Watch};

/// How often is looked for a signal and for the end.
const STEP: Duration = Duration::from_millis(20);

/// Compacts, all or down to a goal.
pub(crate) fn compact(db: &Kvdb, request: CompactRequest) -> Result {
    let before = db.compact_status().space_amplification;
    let status = watched(db, || db.compact(request))??;
    let mut text = format!(
        "space amplification {before:.2} before, {:.2} now; {} written\n",
        status.space_amplification,
        human_bytes(status.written_bytes)
    );
    if status.cancelled {
        text.push_str("cancelled; what was done stays\n");
    } else if matches!(request, CompactRequest::SpaceAmplification(goal) if status.space_amplification > goal)
    {
        text.push_str("nothing that is left to do would bring it closer to the goal\n");
    }
    if request == CompactRequest::Scrub && !status.cancelled {
        text.push_str("nothing of what was deleted or overwritten is left on the media\n");
    }
    let damaged = db.stats().damaged;
    for damage in &damaged {
        let _ = writeln!(text, "left out: {damage}");
    }
    let printed = output::print(&text);
    if damaged.is_empty() {
        return printed;
    }
    // Whether anybody reads the text or not.
    let message = "not all of it was compacted: what is damaged was left out, and is named above";
    Err(Failure::new(ErrorKind::Corrupt, message))
}

/// Takes the staging class away.
pub(crate) fn remove_staging(db: &Kvdb) -> Result {
    match watched(db, || db.remove_staging())? {
        Ok(()) => output::print("the staging class is gone; everything is on capacity\n"),
        Err(error @ KvError::Cancelled) => {
            Err(Failure::from(error).and("the staging class stays; begin again at any time"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs `work` on a thread of its own, shows how it gets on, and calls it off at a signal.
fn watched<T: Send>(db: &Kvdb, work: impl FnOnce() -> T + Send) -> Result<T> {
    let watch = Watch::start()?;
    let clock = Clock::real();
    Ok(thread::scope(|scope| {
        let work = scope.spawn(work);
        while !work.is_finished() {
            if watch.interrupt.has_come() {
                watch.bar.end();
                db.cancel_compact();
            }
            show(&watch.bar, &db.compact_status());
            clock.sleep(STEP);
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }))
}

fn show(bar: &Bar, status: &CompactStatus) {
    if status.leaves == 0 {
        return bar.say("", || told(status));
    }
    let share = status.leaves_done as f64 / status.leaves as f64;
    bar.share("leaves", share, || told(status));
}

fn told(status: &CompactStatus) -> String {
    let mut text = format!("space amplification {:.2}", status.space_amplification);
    if let Some(goal) = status.goal {
        let _ = write!(text, ", goal {goal:.2}");
    }
    if status.leaves > 0 {
        let _ = write!(text, ", leaf {} of {}", status.leaves_done, status.leaves);
    }
    let _ = write!(text, ", {} written", human_bytes(status.written_bytes));
    text
}
