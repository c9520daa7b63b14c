//! Answers of a pool as tables for people.

use std::fmt::Write as _;

use esker_base::units::human_bytes;

use super::view::{DuView, LabelView, PoolView, VolumeView};
use crate::figures::align;

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// How a pool is.
pub(crate) fn pool(view: &PoolView) -> String {
    let space = &view.space;
    let used = space.live.saturating_mul(100) / space.usable.max(1);
    let mut text = format!(
        "{}: {}; {} parities, {} chunks a segment, opened {} times\n\
         space: {used} % of {} used; raw {} = free {} + waiting {} + parity {} + garbage {} + live {} + metadata {}\n\
         write buffer: {} of {} used, {} not in segments yet\n\n",
        view.name,
        view.state,
        view.parity,
        view.width,
        view.incarnation,
        human_bytes(space.usable),
        human_bytes(space.raw),
        human_bytes(space.free),
        human_bytes(space.waiting),
        human_bytes(space.parity),
        human_bytes(space.garbage),
        human_bytes(space.live),
        human_bytes(space.metadata),
        human_bytes(view.log.used),
        human_bytes(view.log.bytes),
        human_bytes(view.log.pending),
    );
    let mut rows =
        vec![row(["device", "role", "state", "no", "size", "free", "reads", "writes", "sums"])];
    for member in &view.members {
        rows.push(vec![
            member.device.clone().unwrap_or_else(|| "(missing)".to_owned()),
            member.role.clone(),
            member.state.clone(),
            member.index.to_string(),
            human_bytes(member.bytes),
            format!("{}/{}", member.free_slots, member.slots),
            member.read_errors.to_string(),
            member.write_errors.to_string(),
            member.checksum_errors.to_string(),
        ]);
    }
    text.push_str(&align(&rows, 3));
    text.push_str("(free: slots; reads, writes, sums: errors since the pool was opened)\n");
    if let Some(rebuild) = &view.rebuild {
        let eta = rebuild.eta_secs.map(|secs| format!(", {secs} s to go")).unwrap_or_default();
        let left = human_bytes(rebuild.bytes_left);
        let _ = writeln!(text, "rebuild: {} chunks left, {left}{eta}", rebuild.chunks);
    }
    if let Some(scrub) = &view.scrub {
        let state = if scrub.is_running { "running" } else { "done" };
        let _ =
            writeln!(text, "scrub {state}: {}, {} errors", human_bytes(scrub.bytes), scrub.errors);
    }
    for alarm in &view.alarms {
        let _ = writeln!(text, "\n{}: {}\n  to do: {}", alarm.code, alarm.text, alarm.action);
    }
    if view.alarms.is_empty() {
        text.push_str("nothing is wrong\n");
    }
    for remark in &view.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    text
}

/// Volumes, a line each.
pub(crate) fn volumes(views: &[VolumeView]) -> String {
    let mut rows = vec![row(["volume", "state", "size", "snapshots", "hosts"])];
    for view in views {
        rows.push(vec![
            view.name.clone(),
            if view.trashed_until.is_some() { "trash" } else { "online" }.to_owned(),
            human_bytes(view.bytes),
            view.snapshots.len().to_string(),
            view.hosts.len().to_string(),
        ]);
    }
    align(&rows, 2)
}

/// A volume and its snapshots.
pub(crate) fn volume(view: &VolumeView) -> String {
    let limit = |count: u64, text: String| if count == 0 { "no limit".to_owned() } else { text };
    let mut text = format!(
        "{}: {}, {}\nlimits: {} operations, {} a second\nhosts: {}\n",
        view.name,
        human_bytes(view.bytes),
        if view.compression { "compressed" } else { "not compressed" },
        limit(view.iops_limit, view.iops_limit.to_string()),
        limit(view.bytes_limit, human_bytes(view.bytes_limit)),
        if view.hosts.is_empty() { "none".to_owned() } else { view.hosts.join(", ") },
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
    ];
    format!("{}ratio {ratio:.2}\n", align(&rows, 1))
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
