//! The commands by which a host uses data placement: opcodes and command dwords (Base 2.1, 5.1.11 to
//! 5.1.13 and 5.1.25; NVM Command Set 1.1, 3.3.5 and 3.3.6). Their data is in the parent.
//!
//! | command | queue, opcode | dword 10 | dword 11 | dword 12 |
//! | --- | --- | --- | --- | --- |
//! | Get Log Page | admin 02h | log, parameter (15:8), dwords lower (31:16) | dwords upper, group (31:16) | |
//! | Identify | admin 06h | CNS | | |
//! | Set Features, Get Features 1Dh | admin 09h, 0Ah | feature | group | set: FDPE, index |
//! | Set Features, Get Features 1Eh | admin 09h, 0Ah | feature | placement id, count (23:16) | set: 1 reports |
//! | I/O Management Receive | I/O 12h | 1: handle status | dwords, 0's based | |
//! | I/O Management Send | I/O 1Dh | 1: handle update, count (31:16), 0's based | | |

use esker_base::codec::{Decoder, Truncated};

use super::encode_enabled;
use crate::PlacementId;

/// Bytes of an Identify data structure.
pub const IDENTIFY_SIZE: usize = 4096;
/// Bytes of the data of Get Features 1Eh: 255 kinds of event at most.
pub const REPORTED_SIZE: usize = 512;

/// The log pages of data placement.
pub mod log {
    /// Endurance group information.
    pub const ENDURANCE: u8 = 0x09;
    /// Configurations.
    pub const CONFIGURATIONS: u8 = 0x20;
    /// Usage of handles.
    pub const USAGE: u8 = 0x21;
    /// Statistics.
    pub const STATISTICS: u8 = 0x22;
    /// Events.
    pub const EVENTS: u8 = 0x23;
}

const GET_LOG: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
const IO_MANAGEMENT_SEND: u8 = 0x1d;
/// Features: data placement, and its events.
const FDP: u32 = 0x1d;
const FDP_EVENTS: u32 = 0x1e;
/// All namespaces.
const NSID_ALL: u32 = 0xffff_ffff;
const CNS_NAMESPACE: u32 = 0;
const CNS_CONTROLLER: u32 = 1;
/// CTRATT of Identify Controller: flexible data placement.
const FDPS: u32 = 1 << 19;

/// Which queue takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The admin queue.
    Admin,
    /// An I/O queue.
    Io,
}

/// A command, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeCommand {
    /// For messages.
    pub name: &'static str,
    /// Where it goes.
    pub queue: Queue,
    /// Its opcode.
    pub opcode: u8,
    /// The namespace.
    pub nsid: u32,
    /// Command dwords 10 to 12; the others are zero.
    pub dwords: [u32; 3],
}

impl NvmeCommand {
    fn admin(name: &'static str, opcode: u8, nsid: u32, dwords: [u32; 3]) -> NvmeCommand {
        NvmeCommand { name, queue: Queue::Admin, opcode, nsid, dwords }
    }

    /// Identify Controller.
    #[must_use]
    pub fn identify_controller() -> NvmeCommand {
        NvmeCommand::admin("Identify Controller", IDENTIFY, 0, [CNS_CONTROLLER, 0, 0])
    }

    /// Identify Namespace, NVM command set.
    #[must_use]
    pub fn identify_namespace(nsid: u32) -> NvmeCommand {
        NvmeCommand::admin("Identify Namespace", IDENTIFY, nsid, [CNS_NAMESPACE, 0, 0])
    }

    /// The first `size` bytes, a multiple of 4, of a log page of an endurance group.
    ///
    /// # Panics
    /// If the size is 0, or 16 GiB and more.
    #[must_use]
    pub fn get_log(which: u8, parameter: u8, group: u16, size: usize) -> NvmeCommand {
        let dwords = u32::try_from(size / 4 - 1).expect("a log page below 16 GiB");
        let [a, b, c, d] = dwords.to_le_bytes();
        let dword_10 = u32::from_le_bytes([which, parameter, a, b]);
        let dword_11 = u32::from(u16::from_le_bytes([c, d])) | u32::from(group) << 16;
        NvmeCommand::admin("Get Log Page", GET_LOG, NSID_ALL, [dword_10, dword_11, 0])
    }

    /// Get Features 1Dh: the configuration in force.
    #[must_use]
    pub fn get_enabled(nsid: u32, group: u16) -> NvmeCommand {
        let dwords = [FDP, group.into(), 0];
        NvmeCommand::admin("Get Features (FDP)", GET_FEATURES, nsid, dwords)
    }

    /// Set Features 1Dh: enables a configuration, or disables placement.
    #[must_use]
    pub fn set_enabled(group: u16, configuration: Option<usize>) -> NvmeCommand {
        let dwords = [FDP, group.into(), encode_enabled(configuration)];
        NvmeCommand::admin("Set Features (FDP)", SET_FEATURES, 0, dwords)
    }

    /// Get Features 1Eh: which events a handle reports; transfers [`REPORTED_SIZE`] bytes.
    #[must_use]
    pub fn get_reported(nsid: u32, id: PlacementId) -> NvmeCommand {
        let dwords = [FDP_EVENTS, u32::from(id.0) | 255 << 16, 0];
        NvmeCommand::admin("Get Features (FDP events)", GET_FEATURES, nsid, dwords)
    }

    /// Set Features 1Eh: makes a handle report events of so many kinds, or no longer.
    #[must_use]
    pub fn set_reported(nsid: u32, id: PlacementId, count: u8, enable: bool) -> NvmeCommand {
        let dwords = [FDP_EVENTS, u32::from(id.0) | u32::from(count) << 16, u32::from(enable)];
        NvmeCommand::admin("Set Features (FDP events)", SET_FEATURES, nsid, dwords)
    }

    /// I/O Management Receive: the first `size` bytes, a multiple of 4, of the handle status.
    ///
    /// # Panics
    /// If the size is 0, or 16 GiB and more.
    #[must_use]
    pub fn handle_status(nsid: u32, size: usize) -> NvmeCommand {
        let dwords = [1, u32::try_from(size / 4 - 1).expect("some KiB"), 0];
        let (name, queue, opcode) = ("I/O Management Receive", Queue::Io, IO_MANAGEMENT_RECEIVE);
        NvmeCommand { name, queue, opcode, nsid, dwords }
    }

    /// I/O Management Send: updates the handles of `last + 1` placement ids, which it transfers.
    #[must_use]
    pub fn handle_update(nsid: u32, last: u16) -> NvmeCommand {
        let (name, queue, opcode) = ("I/O Management Send", Queue::Io, IO_MANAGEMENT_SEND);
        NvmeCommand { name, queue, opcode, nsid, dwords: [1 | u32::from(last) << 16, 0, 0] }
    }
}

/// Identify Controller, as far as data placement needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// CTRATT: whether it has data placement.
    pub has_placement: bool,
    /// NQN of the subsystem (SUBNQN).
    pub subsystem: String,
    /// Serial number (SN).
    pub serial: String,
}

/// Decodes Identify Controller: CTRATT at 96, SN at 4, SUBNQN at 768.
///
/// # Errors
/// Fewer than 1,024 bytes.
pub fn decode_controller(bytes: &[u8]) -> Result<ControllerIdentity, Truncated> {
    let mut d = Decoder::new(bytes);
    d.bytes(4, "vendor")?;
    let serial = text(d.bytes(20, "serial number")?);
    d.bytes(72, "model and others")?;
    let attributes = d.u32("controller attributes")?;
    d.bytes(668, "others")?;
    let subsystem = text(d.bytes(256, "subsystem NQN")?);
    Ok(ControllerIdentity { has_placement: attributes & FDPS != 0, subsystem, serial })
}

/// The endurance group of a namespace, ENDGID at 102 of Identify Namespace; zero without one.
///
/// # Errors
/// Fewer than 104 bytes.
pub fn decode_group(bytes: &[u8]) -> Result<u16, Truncated> {
    let mut d = Decoder::new(bytes);
    d.bytes(102, "sizes and capabilities")?;
    d.u16("endurance group")
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}
