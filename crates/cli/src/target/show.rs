//! Answers of a target as tables for people.

use std::fmt::Write as _;

use esker_base::clock;
use esker_base::units::{grouped, human_bytes};
use esker_serve::target::file::Ana;
use esker_serve::target::view::{
    ChangedView, ConnectedView, NamespaceView, PortalView, RefusedHostView, SubsystemView,
    TargetView,
};

use crate::figures::{align, row};

/// How long ago a moment was, in seconds since 1970.
fn ago(then: u64) -> String {
    let secs = clock::unix_time().as_secs().saturating_sub(then);
    match secs {
        0..120 => format!("{secs} s ago"),
        120..7_200 => format!("{} min ago", secs / 60),
        7_200..172_800 => format!("{} h ago", secs / 3_600),
        _ => format!("{} d ago", secs / 86_400),
    }
}

fn or_dash<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// How a target is.
pub(super) fn target(view: &TargetView) -> String {
    let mut text = portals(&view.portals);
    for one in &view.subsystems {
        text.push('\n');
        text.push_str(&subsystem(one));
    }
    let _ = write!(text, "\n{}", connected(&view.connected));
    if !view.refused.is_empty() {
        let _ = write!(text, "\n{}", refused(&view.refused));
    }
    if view.is_changed {
        text.push_str(
            "\nrequests have changed it: esker target export prints what keeps the changes\n",
        );
    }
    text
}

/// Portals, a line each.
pub(super) fn portals(views: &[PortalView]) -> String {
    let mut rows = vec![row(["portal", "address", "announced", "TLS", "ANA state"])];
    for view in views {
        rows.push(vec![
            view.portal.to_string(),
            view.listen.to_string(),
            or_dash(view.announce.as_ref()),
            if view.tls { "yes" } else { "no" }.to_owned(),
            ana(view.ana).to_owned(),
        ]);
    }
    align(&rows, 5)
}

fn ana(state: Ana) -> &'static str {
    match state {
        Ana::Optimized => "optimized",
        Ana::NonOptimized => "non-optimized",
        Ana::Inaccessible => "inaccessible",
        Ana::PersistentLoss => "persistent loss",
        Ana::Change => "change",
    }
}

fn subsystem(view: &SubsystemView) -> String {
    let mut text = format!("{}\n", view.nqn);
    let hosts = view.hosts.iter().map(|host| {
        let keys = [("key", &host.key_file), ("key for TLS", &host.tls_key_file)];
        let keys = keys.iter().filter_map(|(name, file)| file.as_ref().map(|_| *name));
        let keys = keys.collect::<Vec<_>>().join(", ");
        if keys.is_empty() { host.nqn.clone() } else { format!("{} ({keys})", host.nqn) }
    });
    let hosts: Vec<_> = hosts.collect();
    for host in &hosts {
        let _ = writeln!(text, "  may be used by {host}");
    }
    let portals: Vec<String> = view.portals.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "  is reached through portal {}", portals.join(", "));
    if view.allow_any {
        text.push_str("  may be used by any host\n");
    } else if hosts.is_empty() {
        text.push_str("  may be used by nobody\n");
    }
    if view.namespaces.is_empty() {
        text.push_str("  has no namespace\n");
        return text;
    }
    let mut rows = vec![row(["  nsid", "device", "size", "LBA", "write cache", "limit"])];
    for one in &view.namespaces {
        let write_cache = format!("{:?}", one.write_cache).to_ascii_lowercase();
        rows.push(vec![
            format!("  {}", one.nsid),
            one.device.clone(),
            human_bytes(one.bytes),
            one.lba_size.to_string(),
            write_cache,
            limit(one),
        ]);
    }
    text + &align(&rows, 2)
}

/// The most that its hosts may have a second.
fn limit(view: &NamespaceView) -> String {
    let operations = (view.iops_limit > 0).then(|| format!("{}/s", grouped(view.iops_limit)));
    let bytes = (view.bytes_limit > 0).then(|| format!("{}/s", human_bytes(view.bytes_limit)));
    let limits: Vec<String> = operations.into_iter().chain(bytes).collect();
    if limits.is_empty() { "-".to_owned() } else { limits.join(", ") }
}

/// Hosts that are connected, a line each.
pub(super) fn connected(views: &[ConnectedView]) -> String {
    if views.is_empty() {
        return "no host is connected\n".to_owned();
    }
    let mut rows =
        vec![row(["host", "subsystem", "address", "controller", "portal", "queues", "connected"])];
    for view in views {
        rows.push(vec![
            view.host.clone(),
            view.subsystem.clone().unwrap_or_else(|| "discovery".to_owned()),
            or_dash(view.address.as_ref()),
            view.controller.to_string(),
            view.portal.to_string(),
            view.io_queues.to_string(),
            ago(view.since),
        ]);
    }
    align(&rows, 3)
}

/// Hosts that were not let in, a line each.
pub(super) fn refused(views: &[RefusedHostView]) -> String {
    if views.is_empty() {
        return "no host was refused\n".to_owned();
    }
    let mut rows = vec![row(["refused host", "address", "reason", "count", "last"])];
    for view in views {
        rows.push(vec![
            if view.host.is_empty() { "-".to_owned() } else { view.host.clone() },
            or_dash(view.address.as_ref()),
            format!("it {}", view.text),
            grouped(view.count),
            ago(view.last),
        ]);
    }
    align(&rows, 3)
}

/// A change that was made.
pub(super) fn changed(view: &ChangedView) -> String {
    let mut text = format!("done: {}\n", view.did);
    for remark in &view.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    text.push_str("it lasts until the target ends or gets SIGHUP; esker target export keeps it\n");
    text
}
