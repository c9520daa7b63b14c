//! Hosts that use a volume or a snapshot now, and changes that are refused because of them.

use esker_base::ErrorKind;
use esker_stack::served::OPENER;
use esker_volume::VolumeInfo;

use crate::error::{Result, ServeError};
use crate::pool::export::User;
use crate::pool::hosts::{ANY_HOST, HostView};
use crate::pool::served::Served;

/// The consequence of a change for the hosts that use what is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// They may not use it any more.
    Loss,
    /// They read something else than they wrote, without being told.
    Change,
}

/// Hosts that a change would disturb.
pub(super) struct Users {
    list: Vec<User>,
    effect: Effect,
}

impl Users {
    /// Users of a volume and of its snapshots. None of a volume that is not there, or is in the trash.
    pub(super) fn of(served: &Served, volume: &str) -> Users {
        let info = served.pool.show(volume).ok();
        let found = served.exports.as_ref().zip(info);
        let list = found.map(|(exports, info)| exports.users(&info)).unwrap_or_default();
        Users { list, effect: Effect::Loss }
    }

    /// Users of this snapshot alone.
    pub(super) fn of_snapshot(served: &Served, volume: &str, snapshot: &str) -> Users {
        let mut users = Users::of(served, volume);
        users.list.retain(|user| user.snapshot.as_deref() == Some(snapshot));
        users
    }

    /// Users of the volume itself, whose content or end changes.
    pub(super) fn of_content(served: &Served, volume: &VolumeInfo) -> Users {
        let mut users = Users::of(served, &volume.name);
        users.list.retain(|user| user.snapshot.is_none());
        Users { effect: Effect::Change, ..users }
    }

    /// Users that these hosts do not include.
    pub(super) fn beyond(served: &Served, volume: &VolumeInfo, hosts: &[HostView]) -> Users {
        let mut users = Users::of(served, &volume.name);
        users.list.retain(|user| {
            !hosts.iter().any(|host| {
                (host.nqn == user.host || host.nqn == ANY_HOST) && host.snapshot == user.snapshot
            })
        });
        users
    }

    /// Refuses a change under its users, unless it is forced.
    pub(super) fn check(&self, name: &str, force: bool) -> Result {
        if force || self.list.is_empty() {
            return Ok(());
        }
        let (here, hosts): (Vec<_>, Vec<_>) =
            self.list.iter().partition(|user| user.host.starts_with(OPENER));
        let mut whys: Vec<String> = hosts
            .iter()
            .map(|User { host, subsystem, .. }| {
                format!(
                    "host {host} is connected (there: nvme disconnect -n {subsystem}, or esker detach DIRECTORY)"
                )
            })
            .collect();
        if !here.is_empty() {
            let by = here.iter().map(|user| user.host.as_str()).collect::<Vec<_>>().join(", ");
            whys.push(format!(
                "it is attached, or open in a process, as {by} (esker detach DIRECTORY, or end that process)"
            ));
        }
        let outcome = match self.effect {
            Effect::Loss => "they lose it",
            Effect::Change => "it changes under them, which damages a file system on it",
        };
        let why = format!(
            "{name} is in use: {}; detach it first, or say force (--force), and {outcome}",
            whys.join("; ")
        );
        Err(ServeError::new(ErrorKind::Conflict, why))
    }

    /// The hosts that would be disturbed, as the end of a sentence.
    pub(super) fn warning(&self) -> String {
        if self.list.is_empty() {
            return String::new();
        }
        let hosts: Vec<&str> = self.list.iter().map(|user| user.host.as_str()).collect();
        let hosts = hosts.join(", ");
        match self.effect {
            Effect::Loss => format!("; it is in use, and {hosts} would lose it"),
            Effect::Change => format!("; it is in use, and would change under {hosts}"),
        }
    }
}
