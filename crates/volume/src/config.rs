//! Labels and membership: which drives make a pool, whether enough of them are there, and changes of the
//! configuration. Sees `types`, `omf` and `drive`.
//!
//! Invariants
//! 1. A configuration is opened with more than half of the active drives of the newest label found, of which at most
//!    as many as there are parities are missing. So two halves are never both open.
//! 2. A new configuration counts when its label is durable on at least half of the old active drives: any later
//!    majority of the old ones has one of those among it.
//! 3. A drive whose label is more than one step behind the newest is stale: a step is taken on all active drives, or
//!    takes the drives that failed out of the configuration, before the next one.
//! 4. A label is written to the copies that do not have the last one.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;
use esker_device::{Device, DeviceError, Port};

use crate::drive::{Io, Layout, Write};
use crate::omf::FormatError;
use crate::omf::label::{COPIES, Config, LABEL_BYTES, Label, Member, Role};
use crate::types::error::VolumeError;
use crate::types::id::DriveIndex;

/// The newest label on a device.
pub(crate) fn read_label(device: &dyn Device) -> Result<Result<Label, FormatError>, DeviceError> {
    let geometry = device.geometry();
    let bytes = geometry.capacity.bytes(geometry.lba_size);
    let mut newest: Result<Label, FormatError> = Err(FormatError::Empty);
    if bytes < 4 * LABEL_BYTES {
        return Ok(newest);
    }
    let mut port = Port::open(device, 1)?;
    let mut failure = None;
    for copy in 0..COPIES {
        let lba = Layout::label_offset(bytes, copy) / u64::from(geometry.lba_size);
        let buf = AlignedBuf::zeroed(to_usize(LABEL_BYTES));
        let label = match port.read(esker_base::Lba(lba), buf) {
            Ok(buf) => Label::decode(&buf, copy),
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        newest = match (newest, label) {
            (Ok(old), Ok(new)) if is_newer(&new.config, &old.config) => Ok(new),
            (Ok(old), _) => Ok(old),
            (Err(_), Ok(new)) => Ok(new),
            (Err(FormatError::Empty), Err(why)) | (Err(why), Err(_)) => Err(why),
        };
    }
    match (newest, failure) {
        (Err(_), Some(failure)) => Err(failure),
        (newest, _) => Ok(newest),
    }
}

fn is_newer(one: &Config, other: &Config) -> bool {
    (one.incarnation, one.sequence) > (other.incarnation, other.sequence)
}

/// The devices of a pool, sorted out.
pub(crate) struct Assembly {
    /// What the newest label says.
    pub(crate) config: Config,
    /// The devices that may be used, by index.
    pub(crate) current: Vec<Option<Arc<dyn Device>>>,
    /// Those of them that have the label before the newest one.
    pub(crate) lagging: Vec<DriveIndex>,
    /// What was left aside, and why.
    pub(crate) remarks: Vec<String>,
}

/// Finds out which pool the devices make, and whether enough are there.
pub(crate) fn assemble(
    devices: &[Arc<dyn Device>],
    accept_half: bool,
) -> Result<Assembly, VolumeError> {
    let mut labels: Vec<(Arc<dyn Device>, Label)> = Vec::new();
    let mut remarks = Vec::new();
    for device in devices {
        match read_label(&**device) {
            Ok(Ok(label)) => labels.push((device.clone(), label)),
            // One that lost its label is missing; one that was named by mistake is not needed.
            Ok(Err(why)) => remarks.push(format!("{}: no label of a pool ({why})", device.name())),
            // A drive that cannot be read is a drive that is missing.
            Err(error) => remarks.push(format!("a label cannot be read: {error}")),
        }
    }
    let Some((_, first)) = labels.first() else {
        let why =
            if remarks.is_empty() { "no device was named".to_owned() } else { remarks.join("; ") };
        return Err(VolumeError::Invalid(format!("a pool is opened with its drives: {why}")));
    };
    let (pool, name) = (first.config.pool, first.config.name.clone());
    for (at, (device, label)) in labels.iter().enumerate() {
        if label.config.pool != pool {
            let (device, other) = (device.name().to_owned(), label.config.name.clone());
            return Err(VolumeError::Foreign { device, other, name });
        }
        if let Some((twin, _)) = labels[..at].iter().find(|(_, l)| l.drive == label.drive) {
            let (first, second) = (twin.name().to_owned(), device.name().to_owned());
            return Err(VolumeError::Duplicate { first, second, drive: label.drive });
        }
    }
    let newest = labels.iter().map(|(_, label)| &label.config);
    let newest = newest.reduce(|a, b| if is_newer(b, a) { b } else { a });
    let config = newest.expect("there is one").clone();
    let mut assembly = Assembly {
        current: vec![None; config.members.len()],
        config,
        lagging: Vec::new(),
        remarks,
    };
    for (device, label) in labels {
        assembly.judge(device, &label);
    }
    assembly.check_quorum(accept_half)?;
    Ok(assembly)
}

impl Assembly {
    /// Takes a device in, or says why not.
    fn judge(&mut self, device: Arc<dyn Device>, label: &Label) {
        let name = device.name().to_owned();
        let newest = &self.config;
        let own = newest.members.get(label.index.index()).filter(|own| own.uuid == label.drive);
        let Some(own) = own else {
            return self.remarks.push(format!("{name}: it is no member of the pool any more"));
        };
        if !own.state.is_active() {
            let state = format!("{:?}", own.state).to_lowercase();
            return self.remarks.push(format!(
                "{name}: {} is {state} since {}, and is not used; bring it back with `replace`",
                label.index, own.since
            ));
        }
        let (theirs, ours) = (&label.config, newest);
        let is_same = theirs.sequence == ours.sequence && theirs.incarnation == ours.incarnation;
        let is_behind = theirs.sequence + 1 == ours.sequence;
        if !is_same && !is_behind {
            return self.remarks.push(format!(
                "{name}: {} is stale: its label is number {} of {}, the newest is {} of {}; it missed what was written \
                 since",
                label.index, theirs.sequence, theirs.incarnation, ours.sequence, ours.incarnation
            ));
        }
        if is_behind {
            self.lagging.push(label.index);
        }
        self.current[label.index.index()] = Some(device);
    }

    fn check_quorum(&self, accept_half: bool) -> Result<(), VolumeError> {
        let config = &self.config;
        let voters = config.members.iter().enumerate();
        let voters: Vec<usize> =
            voters.filter(|(_, member)| is_voter(member)).map(|(at, _)| at).collect();
        let missing: Vec<usize> =
            voters.iter().copied().filter(|&at| self.current[at].is_none()).collect();
        let present = voters.len() - missing.len();
        let has_majority = 2 * present > voters.len();
        let why = if missing.len() > usize::from(config.shape.parity) {
            format!("{} may be missing; bring back more", config.shape.parity)
        } else if !(has_majority || accept_half && 2 * present == voters.len()) {
            "more than half are needed, so that two halves are never both open; bring back another, or open with \
             `accept_half` if exactly half are there and the others are opened nowhere"
                .to_owned()
        } else {
            return Ok(());
        };
        let describe = |at: &usize| format!("drive {at} ({})", config.members[*at].uuid);
        let missing = missing.iter().map(describe).chain(self.remarks.iter().cloned());
        Err(VolumeError::NoQuorum {
            pool: config.name.clone(),
            present,
            voters: voters.len(),
            why,
            missing: missing.collect::<Vec<_>>().join("; "),
        })
    }
}

/// Whether a member counts for the majority.
pub(crate) fn is_voter(member: &Member) -> bool {
    member.role == Role::Drive && member.state.is_active()
}

/// Writes the label of this configuration to these members, and makes it durable. Says which failed.
pub(crate) fn write_labels(
    io: &mut Io,
    config: &Config,
    members: &[DriveIndex],
) -> Vec<(DriveIndex, DeviceError)> {
    let first = u8::from(config.sequence % 2 == 1);
    write_copies(io, config, members, &[first, first + 2])
}

/// Writes all copies of the label of a new member.
pub(crate) fn write_all_copies(
    io: &mut Io,
    config: &Config,
    members: &[DriveIndex],
) -> Vec<(DriveIndex, DeviceError)> {
    write_copies(io, config, members, &[0, 1, 2, 3])
}

fn write_copies(
    io: &mut Io,
    config: &Config,
    members: &[DriveIndex],
    copies: &[u8],
) -> Vec<(DriveIndex, DeviceError)> {
    let mut encoded = Vec::new();
    for &index in members {
        let Some(drive) = io.fleet().get(index) else { continue };
        let label = Label { index, drive: drive.uuid, config: config.clone() };
        for &copy in copies {
            let mut bytes = label.encode(copy);
            bytes.resize(to_usize(LABEL_BYTES), 0);
            encoded.push((index, Layout::label_offset(drive.bytes, copy), bytes));
        }
    }
    let writes = encoded.iter().map(|(drive, offset, bytes)| Write {
        drive: *drive,
        offset: *offset,
        bytes,
        class: None,
        fua: false,
    });
    let writes: Vec<_> = writes.collect();
    let mut failed = Vec::new();
    for (write, result) in writes.iter().zip(io.write(&writes)) {
        failed.extend(result.err().map(|error| (write.drive, error)));
    }
    for (index, result) in members.iter().zip(io.flush(members)) {
        failed.extend(result.err().map(|error| (*index, error)));
    }
    failed.dedup_by_key(|(index, _)| *index);
    failed
}
