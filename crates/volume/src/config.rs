//! Labels and membership: which drives make a pool, whether enough of them are there, and changes of the
//! configuration. Sees `types`, `omf` and `drive`.
//!
//! Invariants
//! 1. A configuration is opened with more than half of the active drives of the newest label found, of which at most
//!    as many as there are parities are missing. So two halves are never both open.
//! 2. A new configuration counts when its label is durable on at least half of the old active drives: any later
//!    majority of the old ones has one of those among it.
//! 3. An active drive whose label is more than one step behind the newest is stale: a step is taken on all active
//!    drives, or takes the drives that failed out of the configuration, before the next one.
//! 4. A label is written to the copies that do not have the last one.
//! 5. A drive that is missing, or failed, returns only with the label that it was left with, or with one that says the same of its absence.
//!    An earlier one is an earlier content; a later one was written by another half of the pool.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;
use esker_device::occupant::ours;
use esker_device::{Device, DeviceError, Port};

use crate::drive::{Io, Layout, Write};
use crate::omf::FormatError;
use crate::omf::label::{COPIES, Config, LABEL_BYTES, Label, Member, MemberState, Role};
use crate::types::error::VolumeError;
use crate::types::id::DriveIndex;
use crate::types::options::OpenOptions;

/// The newest label on a device. Its head says whose drive it is: at the end of a drive that grew there may be labels of a
/// pool that had it before.
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
            Ok(buf) => Label::decode(&buf, copy).map_err(|why| match (why, ours(&buf)) {
                (FormatError::Magic(_), Some(other)) if copy == 0 => FormatError::Foreign(other),
                (why, _) => why,
            }),
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        newest = match (newest, label) {
            (Ok(old), Ok(new)) if new.is_same_drive(&old) && is_newer(&new.config, &old.config) => {
                Ok(new)
            }
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
    /// The configuration of the newest label.
    pub(crate) config: Config,
    /// The devices that may be used, by index.
    pub(crate) current: Vec<Option<Arc<dyn Device>>>,
    /// Those of them that have the label before the newest one.
    pub(crate) lagging: Vec<DriveIndex>,
    /// Those of them that were missing, and the number of the label that they have.
    pub(crate) returning: Vec<(DriveIndex, u64)>,
    /// Devices that were left aside, and why.
    pub(crate) remarks: Vec<String>,
}

/// Finds out which pool the devices make, and whether enough are there.
pub(crate) fn assemble(
    devices: &[Arc<dyn Device>],
    options: &OpenOptions,
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
        returning: Vec::new(),
        remarks,
    };
    for (device, label) in labels {
        assembly.judge(device, &label);
    }
    assembly.check_quorum(options)?;
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
        match own.state {
            MemberState::Missing => return self.judge_returning(device, label),
            MemberState::Faulted | MemberState::Retired => {
                let state = format!("{:?}", own.state).to_lowercase();
                let with = if own.state == MemberState::Faulted { "rejoin" } else { "replace" };
                return self.remarks.push(format!(
                    "{name}: {} is {state} since {}, and is not used; bring it back with `{with}`",
                    label.index, own.since
                ));
            }
            MemberState::Online | MemberState::Draining | MemberState::Rejoining => {}
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

    /// Takes a drive in that was missing, or says why not.
    fn judge_returning(&mut self, device: Arc<dyn Device>, label: &Label) {
        match check_returning(&self.config, label) {
            Ok(()) => {
                self.returning.push((label.index, label.config.sequence));
                self.current[label.index.index()] = Some(device);
            }
            Err(why) => self.remarks.push(format!("{}: {why}", device.name())),
        }
    }

    /// How a member is named in messages.
    fn describe(&self, index: usize) -> String {
        let Member { uuid, name, .. } = &self.config.members[index];
        match name.is_empty() {
            true => format!("drive {index} ({uuid})"),
            false => format!("drive {index} ({uuid}, last seen as {name})"),
        }
    }

    fn check_quorum(&self, options: &OpenOptions) -> Result<(), VolumeError> {
        let config = &self.config;
        let members = || config.members.iter().enumerate();
        let is_there = |at: usize| self.current[at].is_some();
        let voters = members().filter(|(_, member)| is_voter(member)).count();
        let absent: Vec<usize> = members()
            .filter(|(at, m)| m.state.is_active() && !is_there(*at))
            .map(|(at, _)| at)
            .collect();
        let drives = absent.iter().filter(|&&at| config.members[at].role == Role::Drive).count();
        // Those that were missing before and still are: what they have counts as lost, too, until it is rebuilt.
        let away: Vec<usize> = members()
            .filter(|(at, m)| {
                m.role == Role::Drive && m.state == MemberState::Missing && !is_there(*at)
            })
            .map(|(at, _)| at)
            .collect();
        let present = voters - drives;
        let (has_majority, has_half) = (2 * present > voters, 2 * present == voters);
        let parity = config.shape.parity;
        let why = if drives > 0 && drives + away.len() > usize::from(parity) {
            format!("{parity} may be missing; bring back more")
        } else if !(has_majority || options.accept_half && has_half) {
            "more than half are needed, so that two halves are never both open; bring back another, or open with \
             `accept_half` (--accept-half) if exactly half are there and the others are opened nowhere"
                .to_owned()
        } else {
            return self.check_absent(options, &absent, has_half);
        };
        let missing = absent.iter().chain(&away).map(|&at| self.describe(at));
        let missing = missing.chain(self.remarks.iter().cloned());
        Err(VolumeError::NoQuorum {
            pool: config.name.clone(),
            present,
            voters,
            why,
            missing: missing.collect::<Vec<_>>().join("; "),
        })
    }

    /// Refuses to go on without members that should be there, unless that was said.
    fn check_absent(
        &self,
        options: &OpenOptions,
        absent: &[usize],
        has_half: bool,
    ) -> Result<(), VolumeError> {
        let is_told = |at: usize| match self.config.members[at].role {
            Role::Drive => options.degraded || options.accept_half && has_half,
            Role::Buffer => options.degraded || options.lose_buffer,
        };
        if absent.iter().all(|&at| is_told(at)) {
            return Ok(());
        }
        let missing = absent.iter().map(|&at| self.describe(at));
        let missing = missing.chain(self.remarks.iter().cloned()).collect::<Vec<_>>().join("; ");
        Err(VolumeError::DrivesMissing { pool: self.config.name.clone(), missing })
    }
}

/// Whether a drive that was missing, or failed, has the label that it was left with; why it is refused, if not.
pub(crate) fn check_returning(config: &Config, label: &Label) -> Result<(), String> {
    let (theirs, own) = (&label.config, &config.members[label.index.index()]);
    let (number, last) = (theirs.sequence, own.last_label);
    let was_left_so = theirs.epoch < own.since && (number == last || number + 1 == last);
    let knows_of_it = theirs.members.get(label.index.index()) == Some(own);
    if was_left_so || knows_of_it {
        return Ok(());
    }
    let why = match theirs.epoch < own.since && number < last {
        true => "it has an earlier content than it had when it went missing",
        false => "it was written to by another half of the pool since it went missing",
    };
    Err(format!(
        "{} is stale: its label is number {number} of {}, and was number {last} when it went missing at {}: {why}; \
         bring it back with `replace`",
        label.index, theirs.incarnation, own.since
    ))
}

/// Whether a member counts for the majority.
pub(crate) fn is_voter(member: &Member) -> bool {
    member.role == Role::Drive && member.state.is_active()
}

/// The drives that count for the majority.
pub(crate) fn voters(config: &Config) -> Vec<DriveIndex> {
    let members = (0..).map(DriveIndex).zip(&config.members);
    members.filter(|(_, member)| is_voter(member)).map(|(index, _)| index).collect()
}

/// The members in this state.
pub(crate) fn in_state(config: &Config, state: MemberState) -> Vec<DriveIndex> {
    let members = (0..).map(DriveIndex).zip(&config.members);
    members.filter(|(_, member)| member.state == state).map(|(index, _)| index).collect()
}

/// Writes the label of this configuration to these members, and makes it durable. Says which failed.
pub(crate) fn write_labels(
    io: &mut Io,
    config: &Config,
    members: &[DriveIndex],
) -> Vec<(DriveIndex, DeviceError)> {
    write_copies(io, config, members, &pair_of(config.sequence))
}

/// The copies that label number `sequence` is written to.
fn pair_of(sequence: u64) -> [u8; 2] {
    let first = u8::from(sequence % 2 == 1);
    [first, first + 2]
}

/// Writes the label of this configuration to a member that has number `old`, which stays until the new one is durable.
pub(crate) fn bring_up(
    io: &mut Io,
    config: &Config,
    member: DriveIndex,
    old: u64,
) -> Vec<(DriveIndex, DeviceError)> {
    let mut failed = write_copies(io, config, &[member], &pair_of(old + 1));
    if failed.is_empty() {
        failed = write_copies(io, config, &[member], &pair_of(old));
    }
    failed
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
