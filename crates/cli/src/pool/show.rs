//! Answers of a pool as tables for people.

use std::fmt::Write as _;
use std::time::Duration;

use esker_base::latency::Latency;
use esker_base::units::{counted, human_bytes};

use crate::figures::{align, bound, grouped, micros, row, short, wrapped};
use esker_serve::pool::HostView;
use esker_serve::pool::answer::{
    DriveLossView, ExplainView, FreedView, OperationState, OperationView, ProgressView, StatsList,
    StatsView,
};
use esker_serve::pool::view::{DuView, LabelView, PoolView, SpaceView, VolumeView};

/// How wide the bar of used space is.
const BAR: u64 = 30;

fn percent(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

/// `[######------]`
fn bar(part: u64, whole: u64) -> String {
    let full = (percent(part, whole) * BAR / 100).min(BAR);
    (0..BAR).map(|at| if at < full { '#' } else { '-' }).collect()
}

/// The sizes of all volumes beside what the pool can hold.
fn overcommit(space: &SpaceView) -> String {
    let (sizes, usable) = (human_bytes(space.provisioned), human_bytes(space.usable));
    if space.provisioned <= space.usable {
        return format!("volumes have {sizes} together, of {usable} usable\n");
    }
    let times = space.provisioned as f64 / space.usable.max(1) as f64;
    format!(
        "volumes have {sizes} together, {times:.1} times the {usable} usable: overcommitted, and writes fail when that is \
         full\n"
    )
}

/// How a pool is.
pub(crate) fn pool(view: &PoolView) -> String {
    let space = &view.space;
    let mut text = format!(
        "{}: {}; {}, so that as many drives may be lost; {} chunks a segment\n\
         space   [{}] {} % of {} used, {} available\n\
         buffer  [{}] {} % of {} used, {} not in segments yet\n\
         raw {} = free {} + waiting {} + parity {} + garbage {} + live {} + metadata {}\n{}\n",
        view.name,
        view.state.name(),
        counted(view.parity.into(), "parity"),
        view.width,
        bar(space.live, space.usable),
        percent(space.live, space.usable),
        human_bytes(space.usable),
        human_bytes(space.available),
        bar(view.log.used, view.log.bytes),
        percent(view.log.used, view.log.bytes),
        human_bytes(view.log.bytes),
        human_bytes(view.log.pending),
        human_bytes(space.raw),
        human_bytes(space.free),
        human_bytes(space.waiting),
        human_bytes(space.parity),
        human_bytes(space.garbage),
        human_bytes(space.live),
        human_bytes(space.metadata),
        overcommit(space),
    );
    let mut rows = vec![row([
        "drive",
        "device",
        "role",
        "state",
        "size",
        "free",
        "read errs",
        "write errs",
        "checksums",
    ])];
    for member in view.members.iter().filter(|one| one.state != "retired") {
        let holds_log = view.log.members.contains(&member.index);
        rows.push(vec![
            member.index.to_string(),
            member.device.clone().unwrap_or_else(|| format!("(last seen as {})", member.last_name)),
            format!("{}{}", member.role, if holds_log { "+log" } else { "" }),
            member.state.clone(),
            human_bytes(member.bytes),
            format!("{} %", percent(member.free_slots, member.slots)),
            member.read_errors.to_string(),
            member.write_errors.to_string(),
            member.checksum_errors.to_string(),
        ]);
    }
    text.push_str(&align(&rows, 4));
    let retired = view.members.iter().filter(|one| one.state == "retired").count();
    if retired > 0 {
        let _ = writeln!(text, "({retired} retired)");
    }
    if let Some(rebuild) = &view.rebuild {
        let eta = rebuild.eta_secs.map(|secs| format!(", {secs} s to go")).unwrap_or_default();
        let left = human_bytes(rebuild.bytes_left);
        let _ = writeln!(text, "rebuild: {} left, {left}{eta}", counted(rebuild.chunks, "chunk"));
    }
    if let Some(scrub) = &view.scrub {
        let state = if scrub.is_running { "running" } else { "done" };
        let errors = counted(scrub.errors, "error");
        let _ = writeln!(text, "scrub {state}: {}, {errors}", human_bytes(scrub.bytes));
    }
    if view.sweeping > 0 {
        text.push_str("what nobody shows any more is being swept\n");
    }
    for alarm in &view.alarms {
        let _ = writeln!(text, "\n{}: {}", alarm.code, alarm.text);
        text.push_str(&wrapped("  to do: ", 9, &alarm.action));
        let _ = writeln!(text, "  run:   {}", alarm.command);
    }
    if view.alarms.is_empty() {
        text.push_str("\nnothing is wrong\n");
    }
    for remark in &view.remarks {
        let _ = writeln!(text, "when it was opened: {remark}");
    }
    text
}

/// Volumes, a line each.
pub(crate) fn volumes(views: &[VolumeView], space: &SpaceView) -> String {
    let mut rows = vec![row(["volume", "state", "size", "snapshots", "hosts", "IOPS", "bytes/s"])];
    let limit = |count: u64, text: String| if count == 0 { "-".to_owned() } else { text };
    for view in views {
        rows.push(vec![
            view.name.clone(),
            if view.trashed_until.is_some() { "trash" } else { "online" }.to_owned(),
            human_bytes(view.bytes),
            view.snapshots.len().to_string(),
            view.hosts.len().to_string(),
            limit(view.iops_limit, view.iops_limit.to_string()),
            limit(view.bytes_limit, human_bytes(view.bytes_limit)),
        ]);
    }
    format!("{}\n{}", align(&rows, 2), overcommit(space))
}

fn host(view: &HostView) -> String {
    let mut text = view.nqn.clone();
    if let Some(snapshot) = &view.snapshot {
        let _ = write!(text, " (@{snapshot})");
    }
    if view.key_file.is_some() {
        text.push_str(" (with a key)");
    }
    if view.tls_key_file.is_some() {
        text.push_str(" (over TLS)");
    }
    text
}

/// A volume and its snapshots.
pub(crate) fn volume(view: &VolumeView) -> String {
    let limits = [
        (view.iops_limit > 0).then(|| counted(view.iops_limit, "operation")),
        (view.bytes_limit > 0).then(|| human_bytes(view.bytes_limit)),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let hosts: Vec<String> = view.hosts.iter().map(host).collect();
    let mut text = format!(
        "{}: {}, {}\nlimits: {}\nhosts: {}\n",
        view.name,
        human_bytes(view.bytes),
        if view.compression { "compressed" } else { "not compressed" },
        match limits.is_empty() {
            true => "none".to_owned(),
            false => format!("{} a second", limits.join(", ")),
        },
        if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") },
    );
    for snapshot in &view.snapshots {
        let _ = writeln!(
            text,
            "snapshot {}@{}: {}",
            view.name,
            snapshot.name,
            human_bytes(snapshot.bytes)
        );
    }
    text
}

/// The space of a volume.
pub(crate) fn space(view: &DuView) -> String {
    let ratio = view.used as f64 / view.stored.max(1) as f64;
    let bytes =
        |name: &str, bytes: u64| vec![name.to_owned(), bytes.to_string(), human_bytes(bytes)];
    let rows = [
        bytes("provisioned", view.provisioned),
        bytes("used", view.used),
        bytes("stored", view.stored),
        bytes("unique", view.unique),
        bytes("shared", view.shared),
        bytes("inherited", view.inherited),
        bytes("unswept", view.unswept),
    ];
    format!("{}ratio {ratio:.2}\n", align(&rows, 1))
}

/// How far an operation is.
pub(crate) fn progress(view: &ProgressView) -> String {
    let (amount, unit): (fn(u64) -> String, _) = match view.unit.as_str() {
        "bytes" => (human_bytes, String::new()),
        unit => (grouped, format!(" {unit}")),
    };
    let of = view.total.map_or(String::new(), |total| format!(" of {}", amount(total)));
    format!("{}{of}{unit}", amount(view.done))
}

/// Operations, a line each.
pub(crate) fn operations(views: &[OperationView]) -> String {
    if views.is_empty() {
        return "nothing was changed since the pool was opened\n".to_owned();
    }
    let mut rows = vec![row(["operation", "request", "state", "progress", "seconds"])];
    for view in views {
        let progress = view.progress.as_ref().map(progress);
        rows.push(vec![
            view.id.clone(),
            view.request.clone(),
            match view.state {
                OperationState::Running => "running",
                OperationState::Done => "done",
                OperationState::Cancelled => "cancelled",
            }
            .to_owned(),
            progress.unwrap_or_else(|| "-".to_owned()),
            view.ended.map_or("-".to_owned(), |at| at.saturating_sub(view.began).to_string()),
        ]);
    }
    align(&rows, 4)
}

/// The consequences if a drive failed.
pub(crate) fn drive_loss(view: &DriveLossView) -> String {
    let [_, one, two, more] = view.segments;
    let lost = one + two + more;
    let mut text = format!("if drive {} failed now:\n", view.drive);
    let mut say = |label: &str, what: String| text.push_str(&wrapped(label, 10, &what));
    let verdict = match (view.beyond_repair, view.opens) {
        (0, true) => "nothing would be lost, and volumes would go on".to_owned(),
        (0, false) => {
            "nothing would be lost, and too few drives would be left to open it again".into()
        }
        (count, _) => format!("the content of {} would be lost", counted(count, "segment")),
    };
    say("  data", verdict);
    let moved = human_bytes(view.to_move);
    say(
        "  rebuild",
        format!("{} would lack chunks, and {moved} would be moved", counted(lost, "segment")),
    );
    let (live, usable) = (human_bytes(view.live), human_bytes(view.usable));
    let fits = if view.live <= view.usable { "fit" } else { "do not fit" };
    say("  space", format!("{live} live {fits} into the {usable} that would be usable"));
    say("  buffer", format!("{} copies of the write buffer would be left", view.log_copies));
    text
}

/// The space that deleting would free.
pub(crate) fn freed(view: &FreedView) -> String {
    let with = match view.snapshots {
        0 => String::new(),
        count => format!(" with its {}", counted(count, "snapshot")),
    };
    let freed = human_bytes(view.freed);
    format!(
        "deleting {}{with} would free {freed} ({}), as it is stored\n",
        view.name,
        counted(view.freed, "byte")
    )
}

fn share(ns: u64, all: u64) -> String {
    format!("{} %", percent(ns, all))
}

/// The end of a bucket of a volume's latencies.
fn end(end_ns: u64) -> String {
    bound(Duration::from_nanos(end_ns), Latency::open_from())
}

/// The waits of a volume.
pub(crate) fn explain(view: &ExplainView) -> String {
    let stats = &view.stats;
    let mut text = format!("{}, since the pool was opened:\n", stats.volume);
    let mut rows = vec![row(["", "count", "share", "mean µs", "p50", "p99", "p99.9"])];
    let all: u64 = stats.stages.iter().map(|stage| stage.latency.sum_ns).sum();
    let commands = [("reads", &stats.read_latency), ("writes", &stats.write_latency)];
    let stages = stats.stages.iter().map(|stage| (stage.stage.as_str(), &stage.latency));
    for (index, (name, latency)) in commands.into_iter().chain(stages).enumerate() {
        let is_stage = index >= 2;
        rows.push(vec![
            if is_stage { format!("  {name}") } else { name.to_owned() },
            latency.count.to_string(),
            if is_stage { share(latency.sum_ns, all) } else { String::new() },
            micros(latency.mean_ns()),
            end(latency.p50_ns),
            end(latency.p99_ns),
            end(latency.p999_ns),
        ]);
    }
    text.push_str(&align(&rows, 1));
    for finding in &view.findings {
        text.push_str(&wrapped("- ", 2, finding));
    }
    if view.slowest.is_none() {
        text.push_str("nobody has used it yet\n");
    }
    text
}

/// Where the time of each volume goes.
pub(crate) fn stages(list: &StatsList) -> String {
    let mut rows = vec![row([
        "volume", "reads", "p99", "writes", "p99", "limit", "buffer", "log", "map", "drive",
    ])];
    for view in &list.volumes {
        let all: u64 = view.stages.iter().map(|stage| stage.latency.sum_ns).sum();
        let mut cells = vec![
            view.volume.clone(),
            view.reads.to_string(),
            end(view.read_latency.p99_ns),
            view.writes.to_string(),
            end(view.write_latency.p99_ns),
        ];
        cells.extend(view.stages.iter().map(|stage| share(stage.latency.sum_ns, all)));
        rows.push(cells);
    }
    let note = "(of the time in stages; --volume NAME tells more of one)\n";
    format!("{}{note}", align(&rows, 1))
}

/// The rates of requests to volumes in an interval.
pub(crate) fn rates(pool: &str, seconds: f64, views: &[StatsView]) -> String {
    let mut rows = vec![row([
        "volume",
        "reads/s",
        "read/s",
        "p50",
        "p99",
        "writes/s",
        "written/s",
        "p50",
        "p99",
        "errors",
    ])];
    let rate = |count: u64| count as f64 / seconds.max(1e-9);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate of bytes
    let bytes = |count: u64| human_bytes(rate(count) as u64);
    for view in views {
        let mut cells = vec![view.volume.clone()];
        for (count, moved, latency) in [
            (view.reads, view.read_bytes, &view.read_latency),
            (view.writes, view.written_bytes, &view.write_latency),
        ] {
            cells.push(short(rate(count).round()));
            cells.push(bytes(moved));
            cells.push(end(latency.p50_ns));
            cells.push(end(latency.p99_ns));
        }
        cells.push(view.errors.to_string());
        rows.push(cells);
    }
    format!("{pool}: {seconds:.1} s\n{}", align(&rows, 1))
}

/// Labels, a line each.
pub(crate) fn labels(views: &[LabelView]) -> String {
    let mut rows = vec![row([
        "device",
        "pool",
        "role",
        "state",
        "closed",
        "no",
        "of",
        "parity",
        "opened",
        "checkpoint",
    ])];
    for view in views {
        rows.push(vec![
            view.device.clone(),
            view.pool.clone(),
            view.role.clone(),
            view.state.clone(),
            if view.is_clean { "yes" } else { "no" }.to_owned(),
            view.index.to_string(),
            view.members.to_string(),
            view.parity.to_string(),
            view.incarnation.to_string(),
            view.checkpoint.to_string(),
        ]);
    }
    align(&rows, 5)
}
