//! Making a pool on devices, and telling what a bare device is.

use std::sync::Arc;
use std::time::Duration;

use esker_base::Rng;
use esker_base::checksum::crc32c;
use esker_base::units::{to_nanos, to_u64};
use esker_device::{Device, occupant};

use crate::config::{read_label, write_all_copies};
use crate::drive::layout::LOG_BYTES_MIN;
use crate::drive::{Drive, Fleet, IoPool, Layout, Write};
use crate::keep::checkpoint::root_bytes;
use crate::omf::label::{
    Config, LABEL_BYTES, LogPlace, Member, MemberState, Role, RootPointer, Shape,
};
use crate::omf::mark::LogEnd;
use crate::omf::root::{LogTail, Root};
use crate::pool::Pool;
use crate::types::error::VolumeError;
use crate::types::id::{
    DriveIndex, DriveUuid, Epoch, FrameSeq, Generation, Incarnation, PoolUuid, Seqno,
};
use crate::types::options::CreateOptions;
use crate::types::{MEMBERS_MAX, NAME_MAX, PARITY_MAX, WIDTH_MAX};

/// The first frame of the write buffer of a pool.
const FIRST_FRAME: FrameSeq = FrameSeq(1);

/// The content of a device's label.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The pool's name.
    pub pool: String,
    /// The pool.
    pub uuid: PoolUuid,
    /// The drive.
    pub drive: DriveUuid,
    /// Its index in the pool.
    pub index: DriveIndex,
    /// Its role.
    pub role: Role,
    /// How it stood in the pool when the label was written.
    pub state: MemberState,
    /// Number of the label.
    pub sequence: u64,
    /// Configuration epoch.
    pub epoch: Epoch,
    /// How often the pool had been opened.
    pub incarnation: Incarnation,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Whether the pool was closed.
    pub is_clean: bool,
    /// Drives of the pool, those included that were retired.
    pub members: usize,
    /// Parities.
    pub parity: u8,
}

impl Pool {
    /// Whether a pool can be made so: what [`Pool::create`] refuses before it changes anything.
    ///
    /// # Errors
    /// Parameters out of range, devices that are too small or someone's, or that cannot be read.
    pub fn check_create(
        drives: &[Arc<dyn Device>],
        buffers: &[Arc<dyn Device>],
        options: &CreateOptions,
    ) -> Result<(), VolumeError> {
        checked(drives, buffers, options).map(|_| ())
    }

    /// The options that make a pool like this one.
    #[must_use]
    pub fn create_options(&self) -> CreateOptions {
        let shape = self.shared.config.lock().shape;
        CreateOptions {
            name: self.shared.name.clone(),
            parity: shape.parity,
            width: Some(shape.width),
            chunk_bytes: shape.chunk_bytes,
            unit_bytes: shape.unit_bytes,
            log_bytes: shape.log_bytes,
            root_bytes: Some(shape.root_bytes),
            spare_percent: shape.spare_percent,
            ..CreateOptions::default()
        }
    }

    /// Makes a pool of these drives, with up to two buffer devices for the write buffer.
    ///
    /// # Errors
    /// Parameters out of range, devices that are too small or someone's, or that fail.
    pub fn create(
        drives: &[Arc<dyn Device>],
        buffers: &[Arc<dyn Device>],
        options: &CreateOptions,
    ) -> Result<(), VolumeError> {
        let layout = checked(drives, buffers, options)?;
        let shape = layout.shape;
        let now = to_nanos(esker_base::clock::unix_time());
        let mut rng = Rng::new(options.seed.unwrap_or(now));
        let mut uuid = || u128::from(rng.u64()) << 64 | u128::from(rng.u64());
        let pool = PoolUuid(uuid());
        let roles = drives.iter().map(|_| Role::Drive).chain(buffers.iter().map(|_| Role::Buffer));
        let members: Vec<Member> = roles
            .zip(drives.iter().chain(buffers))
            .map(|(role, device)| {
                let uuid = DriveUuid(uuid());
                Member::online(uuid, role, Epoch(1), bytes_of(&**device), device.name())
            })
            .collect();
        let members_of = members.iter().zip(drives.iter().chain(buffers));
        let fleet = (0..).map(DriveIndex).zip(members_of).map(|(index, (member, device))| {
            Some(Arc::new(Drive::new(index, member.uuid, member.role, device.clone())))
        });
        let fleet = Arc::new(Fleet::new(
            pool,
            layout,
            Duration::from_secs(60),
            esker_base::Clock::real(),
            fleet.collect(),
        ));
        let log = first_log(&layout, &members);
        let root = Root {
            number: 1,
            next_generation: Generation(1),
            tail: LogTail { frame: FIRST_FRAME, offset: 0, previous_crc: 0 },
            ..Root::default()
        };
        let mut bytes = root.encode(pool, 0);
        let pointer = RootPointer {
            area: 0,
            number: 1,
            bytes: u32::try_from(bytes.len()).expect("an empty checkpoint is small"),
            crc: crc32c(&bytes),
        };
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        let config = Config {
            pool,
            name: options.name.clone(),
            sequence: 1,
            epoch: Epoch(1),
            incarnation: Incarnation(0),
            is_clean: true,
            shape,
            root: pointer,
            log,
            members,
        };
        let ios = IoPool::new(fleet.clone());
        let mut io = ios.take();
        let count = u16::try_from(config.members.len()).expect("few members");
        let all: Vec<DriveIndex> = (0..count).map(DriveIndex).collect();
        let writes = fleet.serving(Role::Drive);
        let writes = writes.iter().map(|drive| Write {
            drive: drive.index,
            offset: layout.root_offset(0),
            bytes: &bytes,
            class: None,
            fua: false,
        });
        for result in io.write(&writes.collect::<Vec<_>>()) {
            result?;
        }
        for result in io.flush(&all) {
            result?;
        }
        match write_all_copies(&mut io, &config, &all).into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The content of a device's label.
    ///
    /// # Errors
    /// The device's, or it has no label of a pool.
    pub fn examine(device: &dyn Device) -> Result<Examined, VolumeError> {
        let label = read_label(device)?.map_err(|why| VolumeError::NoLabel {
            device: device.name().to_owned(),
            why: why.to_string(),
        })?;
        let config = label.config;
        let member = &config.members[label.index.index()];
        Ok(Examined {
            pool: config.name,
            uuid: config.pool,
            drive: label.drive,
            index: label.index,
            role: member.role,
            state: member.state,
            sequence: config.sequence,
            epoch: config.epoch,
            incarnation: config.incarnation,
            checkpoint: config.root.number,
            is_clean: config.is_clean,
            members: config.members.len(),
            parity: config.shape.parity,
        })
    }
}

/// Where things lie on the drives of a pool that can be made so.
fn checked(
    drives: &[Arc<dyn Device>],
    buffers: &[Arc<dyn Device>],
    options: &CreateOptions,
) -> Result<Layout, VolumeError> {
    check_name("pool", &options.name)?;
    for device in drives.iter().chain(buffers) {
        check_free(&**device, options.overwrite)?;
    }
    let layout = Layout::new(shape(drives, options)?);
    check_sizes(drives, buffers, &layout)?;
    Ok(layout)
}

pub(crate) fn bytes_of(device: &dyn Device) -> u64 {
    let geometry = device.geometry();
    geometry.capacity.bytes(geometry.lba_size)
}

/// Refuses names that would be hard to say.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), VolumeError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let is_good = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.chars().all(is_plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if is_good {
        return Ok(());
    }
    Err(VolumeError::Invalid(format!(
        "'{name}' is no name for a {what}: up to {NAME_MAX} ASCII letters, digits and - _ . : are, beginning with a \
         letter or a digit"
    )))
}

/// Refuses a device that is someone's.
pub(crate) fn check_free(device: &dyn Device, overwrite: bool) -> Result<(), VolumeError> {
    if overwrite {
        return Ok(());
    }
    if let Ok(label) = read_label(device)? {
        let (name, pool) = (label.config.name, label.config.pool);
        return Err(VolumeError::Member { device: device.name().to_owned(), name, pool });
    }
    match occupant(device)? {
        Some(found) => Err(VolumeError::Occupied { device: device.name().to_owned(), found }),
        None => Ok(()),
    }
}

fn shape(drives: &[Arc<dyn Device>], options: &CreateOptions) -> Result<Shape, VolumeError> {
    let invalid = |why: String| Err(VolumeError::Invalid(why));
    let count = drives.len();
    if options.parity > PARITY_MAX {
        return invalid(format!("a pool has 0, 1 or 2 parities, not {}", options.parity));
    }
    let least = usize::from(options.parity) + 1;
    if count < least || count > MEMBERS_MAX / 2 {
        let most = MEMBERS_MAX / 2;
        return invalid(format!(
            "a pool with {} parities is made of {least} to {most} drives, not {count}",
            options.parity
        ));
    }
    let wide = if count >= 6 { count - 1 } else { count };
    let wide = u16::try_from(wide).unwrap_or(WIDTH_MAX).min(WIDTH_MAX);
    let width = options.width.unwrap_or(wide);
    if usize::from(width) > count {
        return invalid(format!("segments of {width} chunks need as many drives, not {count}"));
    }
    let bytes = || drives.iter().map(|drive| bytes_of(&**drive));
    let (slots, smallest) = (bytes().sum::<u64>() / options.chunk_bytes.max(1), bytes().min());
    let shape = Shape {
        parity: options.parity,
        width,
        spare_percent: options.spare_percent.min(80),
        unit_bytes: options.unit_bytes,
        chunk_bytes: options.chunk_bytes,
        log_bytes: options.log_bytes,
        root_bytes: options
            .root_bytes
            .unwrap_or_else(|| root_bytes(slots, width, smallest.unwrap_or(0))),
    };
    match shape.check() {
        Ok(()) => Ok(shape),
        Err(why) => {
            invalid(format!("a pool cannot be made so: {why}; sizes are multiples of 4 KiB"))
        }
    }
}

fn check_sizes(
    drives: &[Arc<dyn Device>],
    buffers: &[Arc<dyn Device>],
    layout: &Layout,
) -> Result<(), VolumeError> {
    if layout.rows == 0 {
        let why = "a chunk must hold its seals and at least one unit; make chunks larger or units smaller";
        return Err(VolumeError::Invalid(why.to_owned()));
    }
    for drive in drives {
        check_drive(&**drive, layout)?;
    }
    for buffer in buffers {
        check_buffer(&**buffer, layout)?;
    }
    if buffers.len() > 2 {
        let why = format!("a pool has one or two buffer devices, or none, not {}", buffers.len());
        return Err(VolumeError::Invalid(why));
    }
    if buffers.is_empty() && layout.shape.log_bytes < LOG_BYTES_MIN {
        let why = format!("the write buffer of a drive has {LOG_BYTES_MIN} bytes or more");
        return Err(VolumeError::Invalid(why));
    }
    Ok(())
}

/// Refuses a drive with too few slots.
pub(crate) fn check_drive(drive: &dyn Device, layout: &Layout) -> Result<(), VolumeError> {
    const SLOTS: u32 = 8;
    let bytes = bytes_of(drive);
    let slots = layout.slots(bytes);
    if slots >= SLOTS {
        return Ok(());
    }
    Err(VolumeError::Invalid(format!(
        "{}: of {bytes} bytes there is room for {slots} chunks of {}, and {SLOTS} are needed; take a larger drive, or \
         smaller chunks or a smaller write buffer",
        drive.name(),
        layout.shape.chunk_bytes
    )))
}

/// Refuses a buffer device that is too small.
pub(crate) fn check_buffer(buffer: &dyn Device, layout: &Layout) -> Result<(), VolumeError> {
    let bytes = bytes_of(buffer);
    if layout.log_bytes(Role::Buffer, bytes) >= LOG_BYTES_MIN {
        return Ok(());
    }
    let least = LOG_BYTES_MIN + 4 * LABEL_BYTES;
    let name = buffer.name();
    Err(VolumeError::Invalid(format!(
        "{name}: a buffer device has {least} bytes or more, and it has {bytes}"
    )))
}

/// Which members have the log at first: the buffer devices, or as many drives as there are parities and one more.
fn first_log(layout: &Layout, members: &[Member]) -> LogPlace {
    let indexed = || (0..).map(DriveIndex).zip(members);
    let buffers = indexed().filter(|(_, member)| member.role == Role::Buffer);
    let mut chosen: Vec<_> = buffers.collect();
    if chosen.is_empty() {
        chosen = indexed().take(usize::from(layout.shape.parity) + 1).collect();
    }
    let bytes = chosen.iter().map(|(_, member)| layout.log_bytes(member.role, member.bytes));
    let ring_bytes = Layout::ring_bytes(bytes.min().unwrap_or(0));
    let members = chosen.iter().map(|(index, _)| *index).collect();
    debug_assert!(to_u64(chosen.len()) > 0);
    let durable = Some(LogEnd { frame: FIRST_FRAME, seqno: Seqno(1) });
    LogPlace { epoch: 1, ring_bytes, members, durable }
}
