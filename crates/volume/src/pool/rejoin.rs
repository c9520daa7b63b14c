//! A drive that was missing, or that failed, is taken in again while the pool is open.
//!
//! It is known by its label, which has to be the one that it was left with. Nothing that it has is trusted: data
//! read from it is verified like anything else, and it is *rejoining* until all of its chunks were compared with their
//! seals. Chunks that it missed are rebuilt from the others.
//!
//! The order, and the purpose of each step:
//!
//! 1. Nobody writes frames or segments, and commands begun with the drive end: an error that comes late is not the
//!    returned drive's.
//! 2. Segments that were open when it failed are closed: nothing is appended to rows that it missed.
//! 3. It gets the label of a drive that is away; a crash finds it as before.
//! 4. All drives get the label with which it serves.
//! 5. Only then its slots can be used, those excepted that segments have.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_device::Device;

use crate::commit;
use crate::config::{bring_up, check_returning, read_label, voters};
use crate::drive::{Drive, Io};
use crate::engine::{Keeper, Shared};
use crate::keep::{output, rebuild};
use crate::omf::label::{Config, Label, MemberState, Role, kept_name};
use crate::pool::Pool;
use crate::pool::create::bytes_of;
use crate::space::Class;
use crate::types::error::VolumeError;
use crate::types::id::DriveIndex;

impl Pool {
    /// The device that a drive had when it failed, or has.
    #[must_use]
    pub fn device_of(&self, drive: DriveIndex) -> Option<Arc<dyn Device>> {
        self.shared.fleet.any(drive).map(|drive| drive.device.clone())
    }

    /// Whether a device can be taken in again as this drive: the checks of [`Pool::rejoin`] before it changes anything.
    ///
    /// # Errors
    /// There is no such drive, it serves or is retired; the device is another one, stale, or cannot be read.
    pub fn check_rejoin(
        &self,
        drive: DriveIndex,
        device: &Arc<dyn Device>,
    ) -> Result<(), VolumeError> {
        let label = label_of(&**device)?;
        check(&self.shared.config.lock(), drive, &**device, &label)
    }

    /// Takes a drive in again that was missing, or that failed. It serves at once; its chunks are verified in the
    /// background, and those that it missed are rebuilt.
    ///
    /// # Errors
    /// Those of [`Pool::check_rejoin`]; the device fails; or the pool's.
    pub fn rejoin(&self, drive: DriveIndex, device: &Arc<dyn Device>) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let label = label_of(&**device)?;
        let mut keeper = shared.keep()?;
        let mut io = shared.ios.take();
        shared.check_writable(&shared.core.lock())?;
        let out = shared.fleet.out();
        shared.take_out(&mut io, &out)?; // it may be out, and the labels do not say so
        check(&shared.config.lock(), drive, &**device, &label)?;
        rejoin(shared, &mut keeper, &mut io, &label, device)?;
        shared.ring();
        Ok(())
    }
}

fn label_of(device: &dyn Device) -> Result<Label, VolumeError> {
    read_label(device)?.map_err(|why| VolumeError::NoLabel {
        device: device.name().to_owned(),
        why: why.to_string(),
    })
}

/// Whether a device with this label is that drive, as it was left.
fn check(
    config: &Config,
    drive: DriveIndex,
    device: &dyn Device,
    label: &Label,
) -> Result<(), VolumeError> {
    let missing = || VolumeError::NotFound { what: "drive", name: drive.0.to_string(), hint: "" };
    let member = config.members.get(drive.index()).ok_or_else(missing)?;
    let (name, conflict) = (device.name(), |why| Err(VolumeError::Conflict(why)));
    if label.config.pool != config.pool {
        let (other, uuid) = (&label.config.name, label.config.pool);
        return conflict(format!(
            "{name}: it is of pool '{other}' ({uuid}), and not {drive} of this one; put it in its place with `replace`"
        ));
    }
    if label.index != drive || label.drive != member.uuid {
        return conflict(format!(
            "{name}: it is {} ({}), and not {drive} ({}); name the number that it has",
            label.index, label.drive, member.uuid
        ));
    }
    match member.state {
        MemberState::Missing | MemberState::Faulted => {}
        MemberState::Retired => {
            return conflict(format!(
                "{drive} was retired or replaced, and others have what it had; give it a new place with `add`"
            ));
        }
        _ => return conflict(format!("{drive} is there already; nothing is to be done")),
    }
    if bytes_of(device) < member.bytes {
        let (is, was) = (bytes_of(device), member.bytes);
        return conflict(format!(
            "{name}: it has {is} bytes, and {drive} had {was}; use `replace`"
        ));
    }
    check_returning(config, label).or_else(|why| conflict(format!("{name}: {why}")))
}

fn rejoin(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    label: &Label,
    device: &Arc<dyn Device>,
) -> Result<(), VolumeError> {
    let index = label.index;
    for class in Class::ALL {
        let chunks = keeper.writers.get(&class).map(|writer| &writer.row.chunks);
        if chunks.is_some_and(|chunks| chunks.iter().any(|(drive, _)| *drive == index)) {
            output::close(shared, keeper, io, class)?;
        }
    }
    rebuild::start_over(shared, keeper);
    let front = commit::hold(shared);
    let copies = shared.log.lock().members.len();
    let (written, before, role);
    let mut failed = Vec::new();
    {
        let mut config = shared.config.lock();
        let member = &config.members[index.index()];
        role = member.role;
        let drive = Arc::new(Drive::new(index, member.uuid, role, device.clone()));
        drive.is_returning.store(role == Role::Drive, Ordering::Relaxed);
        shared.fleet.put(drive.clone());
        let broken = bring_up(io, &config, index, label.config.sequence);
        if let Some((_, error)) = broken.into_iter().next() {
            drive.take_out();
            return Err(error.into());
        }
        before = voters(&config);
        config.epoch.0 += 1;
        let since = config.epoch;
        let member = &mut config.members[index.index()];
        member.state = match role {
            Role::Drive => MemberState::Rejoining,
            Role::Buffer => MemberState::Online,
        };
        (member.since, member.name) = (since, kept_name(device.name()));
        written = shared.write_config(io, &mut config, &mut failed);
        if role == Role::Buffer || copies < shared.log_wanted(&config) {
            shared.log_is_degraded.store(true, Ordering::Release);
        }
    }
    drop(front);
    shared.check_written(&before, &written, "the label of a drive that returned")?;
    if role == Role::Drive {
        let bytes = shared.config.lock().members[index.index()].bytes;
        let mut core = shared.core.lock();
        if shared.fleet.get(index).is_some() {
            core.space.return_drive(index, bytes);
        }
    }
    // Segments that were beyond repair may be repairable now, and all that the drive has is to be verified.
    keeper.given_up.clear();
    keeper.returned = None;
    let error = failed.contains(&index).then(|| {
        let why = format!("{index} failed again when it was taken in; look at its device");
        VolumeError::Conflict(why)
    });
    shared.take_out(io, &failed)?;
    error.map_or(Ok(()), Err)
}
