//! The figures of a pager, for people.

use std::time::Duration;

use esker_base::units::{counted, human_bytes};
use esker_pager::{PAGE, Stats};

/// Less memory outside of what is paged is code, stacks and small mappings.
const WORTH_SAYING: u64 = 32 << 20;

fn bytes_of(pages: u64) -> String {
    human_bytes(pages * PAGE as u64)
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// One line about the time between two moments.
pub(super) fn line(before: &Stats, now: &Stats, span: Duration) -> String {
    let faults = now.faults - before.faults;
    let reads = now.read_faults - before.read_faults;
    format!(
        "resident {}, paged {}, {:.0} faults/s, {} without a read, ahead {} used, {} wasted",
        bytes_of(now.resident_pages),
        bytes_of(now.paged_pages),
        faults as f64 / span.as_secs_f64().max(1e-9),
        share(faults - reads.min(faults), faults),
        bytes_of(now.ahead_used - before.ahead_used),
        bytes_of(now.ahead_wasted - before.ahead_wasted),
    )
}

/// All of it, at the end.
pub(super) fn summary(stats: &Stats) -> String {
    let hits = stats.faults - stats.read_faults.min(stats.faults);
    let mut text = format!(
        "esker: {} faults, {} without a read ({} new pages, {} just evicted or read ahead, {} compressed)\n\
         esker: {} evicted, {} written, {} all zeroes; {} read ahead, {} from compressed copies, {} used, {} wasted\n",
        stats.faults,
        share(hits, stats.faults),
        stats.zero_faults,
        stats.staged_hits,
        stats.restored_pages,
        bytes_of(stats.evicted_pages),
        bytes_of(stats.written_pages),
        bytes_of(stats.zero_pages),
        bytes_of(stats.ahead_pages),
        bytes_of(stats.ahead_restored),
        bytes_of(stats.ahead_used),
        bytes_of(stats.ahead_wasted),
    );
    if stats.most_outside_bytes >= WORTH_SAYING {
        text.push_str(&format!(
            "esker: up to {} of the program's memory were not paged: it took them in a way that is not followed\n",
            human_bytes(stats.most_outside_bytes)
        ));
    }
    if stats.failed_writes + stats.poisoned_pages + stats.vanished_pages > 0 {
        text.push_str(&format!(
            "esker: failed and tried again: {}; lost: {}; dropped unseen: {}\n",
            counted(stats.failed_writes, "write"),
            counted(stats.poisoned_pages, "page"),
            counted(stats.vanished_pages, "page")
        ));
    }
    text
}
