//! Changes of the membership while the pool is open, and scrubs.

use std::sync::Arc;

use esker_base::Rng;
use esker_device::Device;

use crate::config::{is_voter, write_all_copies};
use crate::drive::{Drive, Io};
use crate::engine::{Keeper, Shared};
use crate::keep::checkpoint::{self, Options};
use crate::keep::{output, retire, verify};
use crate::omf::label::{Member, MemberState, Role};
use crate::pool::Pool;
use crate::pool::create::{bytes_of, check_buffer, check_drive, check_free};
use crate::space::Class;
use crate::types::MEMBERS_MAX;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, DriveUuid};

impl Pool {
    /// Whether a device can be added: what [`Pool::add`] refuses before it changes anything.
    ///
    /// # Errors
    /// The device is someone's, too small, or cannot be read.
    pub fn check_add(
        &self,
        device: &Arc<dyn Device>,
        role: Role,
        overwrite: bool,
    ) -> Result<(), VolumeError> {
        check_free(&**device, overwrite)?;
        let layout = &self.shared.fleet.layout;
        match role {
            Role::Drive => check_drive(&**device, layout),
            Role::Buffer => check_buffer(&**device, layout),
        }
    }

    /// Adds a drive, or a buffer device, to the pool.
    ///
    /// # Errors
    /// The device is someone's, too small, or fails; or the pool's.
    pub fn add(
        &self,
        device: &Arc<dyn Device>,
        role: Role,
        overwrite: bool,
    ) -> Result<DriveIndex, VolumeError> {
        self.check_add(device, role, overwrite)?;
        let mut keeper = self.shared.keep()?;
        add(&self.shared, &mut keeper, &mut self.shared.ios.take(), device, role)
    }

    /// Puts a device in the place of a drive, failed or not. What the old one had is rebuilt or moved in the
    /// background; the old one is retired then, and refused when it returns.
    ///
    /// # Errors
    /// There is no such drive, the device is someone's, too small, or fails; or the pool's.
    pub fn replace(
        &self,
        old: DriveIndex,
        device: &Arc<dyn Device>,
        overwrite: bool,
    ) -> Result<DriveIndex, VolumeError> {
        let role = self.check_replace(old, device, overwrite)?;
        let new = self.add(device, role, overwrite)?;
        self.empty(old, false)?;
        Ok(new)
    }

    /// Whether a device can take the place of a drive: what [`Pool::replace`] refuses before it changes anything. Its role.
    ///
    /// # Errors
    /// Those of [`Pool::check_add`]; there is no such drive; or what is stored does not fit without it.
    pub fn check_replace(
        &self,
        old: DriveIndex,
        device: &Arc<dyn Device>,
        overwrite: bool,
    ) -> Result<Role, VolumeError> {
        let role = self.role(old)?;
        self.check_add(device, role, overwrite)?;
        self.check_room(old, Some(bytes_of(&**device)))?;
        Ok(role)
    }

    /// Refuses to empty a drive that serves when what is stored does not fit the others, and one of so many bytes.
    fn check_room(&self, drive: DriveIndex, coming: Option<u64>) -> Result<(), VolumeError> {
        if !self.is_to_empty(drive) {
            return Ok(());
        }
        let check = || retire::check(&self.shared, &self.shared.core.lock(), drive, coming);
        if check().is_ok() {
            return Ok(());
        }
        // Pending blocks may replace what is there, or compress.
        match self.drain() {
            Ok(()) | Err(VolumeError::NoSpace { .. }) => check(),
            Err(error) => Err(error),
        }
    }

    /// Whether a drive serves, holds segments and is not being emptied.
    fn is_to_empty(&self, drive: DriveIndex) -> bool {
        let config = self.shared.config.lock();
        let member = config.members.get(drive.index()).filter(|one| one.role == Role::Drive);
        member.is_some_and(|one| one.state.is_active() && one.state != MemberState::Draining)
    }

    /// The role of a drive.
    ///
    /// # Errors
    /// There is no such drive, or it is retired.
    pub fn role(&self, drive: DriveIndex) -> Result<Role, VolumeError> {
        let config = self.shared.config.lock();
        let member = config.members.get(drive.index());
        let member = member.filter(|member| member.state != MemberState::Retired);
        let missing =
            || VolumeError::NotFound { what: "drive", name: drive.0.to_string(), hint: "" };
        Ok(member.ok_or_else(missing)?.role)
    }

    /// Whether a drive can be retired: what [`Pool::retire`] refuses before it changes anything.
    ///
    /// # Errors
    /// There is no such drive, too few would be left, or what is stored does not fit them.
    pub fn check_retire(&self, drive: DriveIndex) -> Result<(), VolumeError> {
        if self.role(drive)? == Role::Buffer || !self.is_to_empty(drive) {
            return Ok(()); // it holds no segments, does not serve, or is being emptied already
        }
        {
            let config = self.shared.config.lock();
            // Those that are being emptied will not be there.
            let stays =
                |member: &&Member| is_voter(member) && member.state != MemberState::Draining;
            let staying = config.members.iter().filter(stays).count();
            if staying <= usize::from(config.shape.parity) + 1 {
                let why = format!(
                    "with {staying} drives and {} parities none can be retired; add one first",
                    config.shape.parity
                );
                return Err(VolumeError::Conflict(why));
            }
        }
        self.check_room(drive, None)
    }

    /// Moves all that a drive has to others, and retires it then. Where room for it runs out meanwhile, the drive is used
    /// until there is some again.
    ///
    /// # Errors
    /// There is no such drive, too few would be left, what is stored does not fit them, or the pool's.
    pub fn retire(&self, drive: DriveIndex) -> Result<(), VolumeError> {
        self.check_retire(drive)?;
        self.empty(drive, true)
    }

    /// Whether a drive can stay that is being emptied: what [`Pool::cancel_retire`] refuses before it changes anything.
    ///
    /// # Errors
    /// There is no such drive, it is retired already, or it is away.
    pub fn check_cancel_retire(&self, drive: DriveIndex) -> Result<(), VolumeError> {
        let config = self.shared.config.lock();
        let missing =
            || VolumeError::NotFound { what: "drive", name: drive.0.to_string(), hint: "" };
        let member = config.members.get(drive.index()).ok_or_else(missing)?;
        let why = match member.state {
            MemberState::Retired => {
                "is retired already, and others have what it had; give it a new place with `add`"
            }
            MemberState::Faulted | MemberState::Missing => {
                "is away; take it in again with `rejoin`"
            }
            MemberState::Online | MemberState::Rejoining | MemberState::Draining => return Ok(()),
        };
        Err(VolumeError::Conflict(format!("{drive} {why}")))
    }

    /// Lets a drive stay that is being emptied. Data that was moved stays where it is. All that the drive has is verified,
    /// as it may not have been when it was to leave. A drive that is not being emptied is left as it is.
    ///
    /// # Errors
    /// There is no such drive, it is retired already, or it is away; or the pool's.
    pub fn cancel_retire(&self, drive: DriveIndex) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let mut keeper = shared.keep()?;
        let mut io = shared.ios.take();
        self.check_cancel_retire(drive)?;
        let member = shared.config.lock().members[drive.index()].clone();
        if member.state == MemberState::Draining {
            let next = match member.role {
                Role::Drive => MemberState::Rejoining,
                Role::Buffer => MemberState::Online,
            };
            keeper.returned = None;
            shared.set_states(&mut io, &[(drive, next)])?;
            shared.core.lock().space.end_emptying(drive);
            shared.ring();
        }
        Ok(())
    }

    /// Starts to read everything and to verify it.
    pub fn scrub(&self) {
        let Ok(mut keeper) = self.shared.keep() else { return };
        verify::start_scrub(&self.shared, &mut keeper);
        self.shared.ring();
    }

    /// Has what a drive has moved away, or rebuilt where it is not there; with `has_to_fit` only if the others have room.
    fn empty(&self, index: DriveIndex, has_to_fit: bool) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let mut keeper = shared.keep()?;
        let mut io = shared.ios.take();
        let state = {
            let config = shared.config.lock();
            let member = config.members.get(index.index());
            let member = member.filter(|member| member.state != MemberState::Retired);
            let missing =
                || VolumeError::NotFound { what: "drive", name: index.0.to_string(), hint: "" };
            member.ok_or_else(missing)?.state
        };
        let next = match state.is_active() {
            true => MemberState::Draining,
            false => MemberState::Retired,
        };
        if next == state {
            return Ok(());
        }
        {
            // From here on nothing is admitted that the others have no room for.
            let mut core = shared.core.lock();
            if has_to_fit && self.is_to_empty(index) {
                retire::check(shared, &core, index, None)?;
            }
            core.space.begin_emptying(index);
        }
        if let Err(error) = shared.set_states(&mut io, &[(index, next)]) {
            shared.core.lock().space.end_emptying(index);
            return Err(error);
        }
        for class in Class::ALL {
            output::close(shared, &mut keeper, &mut io, class)?; // which may have a chunk there
        }
        shared.ring();
        Ok(())
    }
}

fn add(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    device: &Arc<dyn Device>,
    role: Role,
) -> Result<DriveIndex, VolumeError> {
    let index;
    let mut failed = Vec::new();
    {
        let mut config = shared.config.lock();
        let count = config.members.len();
        if count >= MEMBERS_MAX {
            let why = format!("a pool has at most {MEMBERS_MAX} members, those retired included");
            return Err(VolumeError::Conflict(why));
        }
        index = DriveIndex(u16::try_from(count).expect("few members"));
        let mut rng = Rng::new(config.sequence ^ count as u64);
        let seed = config.members.iter().fold(config.pool.0, |sum, member| sum ^ member.uuid.0);
        let uuid = seed ^ (u128::from(rng.u64()) << 64 | u128::from(rng.u64()));
        let uuid = DriveUuid(uuid);
        let drive = Drive::new(index, uuid, role, device.clone());
        let mut next = config.clone();
        next.epoch.0 += 1;
        next.sequence += 1;
        let bytes = bytes_of(&**device);
        next.members.push(Member::online(uuid, role, next.epoch, bytes, device.name()));
        shared.fleet.put(Arc::new(drive));
        if let Some((_, error)) = write_all_copies(io, &next, &[index]).into_iter().next() {
            if let Some(drive) = shared.fleet.any(index) {
                drive.take_out();
            }
            return Err(error.into());
        }
        // The others take the same label; the new drive has it on all copies.
        next.sequence -= 1;
        *config = next;
        shared.write_config(io, &mut config, &mut failed);
    }
    shared.take_out(io, &failed)?;
    if role == Role::Drive && shared.fleet.get(index).is_some() {
        shared.core.lock().space.add_drive(index, bytes_of(&**device));
    }
    // The new drive gets a checkpoint; and a log that is short, or should be on a buffer device, begins anew.
    let new_log =
        role == Role::Buffer || shared.log_is_degraded.load(std::sync::atomic::Ordering::Acquire);
    if new_log {
        crate::keep::drain_all(shared, keeper, io)?;
    }
    checkpoint::run(shared, keeper, io, &Options { new_log, is_clean: false })?;
    Ok(index)
}
