//! Fabrics commands (Base 2.1, 6) and the properties they reach (3.1.4).

use super::structure;

/// The opcode of all fabrics commands; FCTYPE says which.
pub const OPCODE: u8 = 0x7f;
/// FCTYPE: Property Set.
pub const PROPERTY_SET: u8 = 0x00;
/// FCTYPE: Connect.
pub const CONNECT: u8 = 0x01;
/// FCTYPE: Property Get.
pub const PROPERTY_GET: u8 = 0x04;
/// FCTYPE: Authentication Send.
pub const AUTH_SEND: u8 = 0x05;
/// FCTYPE: Authentication Receive.
pub const AUTH_RECEIVE: u8 = 0x06;
/// FCTYPE: Disconnect.
pub const DISCONNECT: u8 = 0x08;

/// The NQN of the discovery service.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The longest NQN in bytes (Base 2.1, 4.7).
pub const NQN_MAX: usize = 223;
/// CNTLID of a Connect that asks for a new controller.
pub const CNTLID_ANY: u16 = 0xffff;

/// CATTR: the submission queue has no flow control.
pub const CATTR_NO_FLOW_CONTROL: u8 = 0x04;
/// Connect response: the host has to authenticate the queue (ATR).
pub const AUTHREQ_ATR: u32 = 1 << 17;

structure! {
    /// Connect: bytes 40 to 63 of the command (6.3).
    Connect [24] {
        /// Record format: 0.
        0 recfmt: u16,
        /// Queue: 0 is the admin queue.
        2 qid: u16,
        /// Entries of the submission queue, 0's based.
        4 sqsize: u16,
        /// Attributes.
        6 cattr: u8,
        /// Keep alive timeout in milliseconds.
        8 kato: u32,
    }
}

structure! {
    /// The data of Connect (6.3, Figure 546).
    ConnectData [1024] {
        /// Host identifier.
        0 hostid: [u8; 16],
        /// The controller; [`CNTLID_ANY`] for a new one.
        16 cntlid: u16,
        /// NQN of the subsystem.
        256 subnqn: [u8; 256],
        /// NQN of the host.
        512 hostnqn: [u8; 256],
    }
}

structure! {
    /// Property Get and Property Set: bytes 40 to 63 (6.5, 6.6).
    Property [24] {
        /// Size of the property: 0 is 4 bytes, 1 is 8 bytes.
        0 attrib: u8,
        /// Offset of the property.
        4 ofst: u32,
        /// Property Set: the value.
        8 value: u64,
    }
}

structure! {
    /// Authentication Send and Receive: bytes 40 to 63 (6.1, 6.2).
    AuthTransfer [24] {
        /// SPSP0: 1.
        1 spsp0: u8,
        /// SPSP1: 1.
        2 spsp1: u8,
        /// Security protocol: E9h.
        3 secp: u8,
        /// Transfer or allocation length in bytes.
        4 length: u32,
    }
}

/// Property: controller capabilities, 8 bytes.
pub const CAP: u32 = 0x00;
/// Property: version.
pub const VS: u32 = 0x08;
/// Property: controller configuration.
pub const CC: u32 = 0x14;
/// Property: controller status.
pub const CSTS: u32 = 0x1c;
/// Property: subsystem reset.
pub const NSSR: u32 = 0x20;
/// Property: controller ready timeouts.
pub const CRTO: u32 = 0x68;

/// CC: enable.
pub const CC_EN: u32 = 1;
/// CC: shutdown notification.
pub const CC_SHN: u32 = 3 << 14;
/// CC as a host sets it to enable a controller: 64-byte submission and 16-byte completion entries,
/// all I/O command sets that are supported.
pub const CC_ENABLE: u32 = 0x0046_0061;
/// CC to shut down normally.
pub const CC_SHUTDOWN: u32 = 0x0046_4061;
/// CSTS: ready.
pub const CSTS_RDY: u32 = 1;
/// CSTS: controller fatal status.
pub const CSTS_CFS: u32 = 2;
/// CSTS: shutdown is complete.
pub const CSTS_SHUTDOWN_COMPLETE: u32 = 2 << 2;

/// Version 2.1.
pub const VERSION: u32 = 0x0002_0100;

/// CAP for queues of `entries` entries: contiguous queues, 7.5 s to become ready, the NVM command
/// set and the I/O command set selection.
#[must_use]
pub fn capabilities(entries: u16) -> u64 {
    u64::from(entries.saturating_sub(1)) | 1 << 16 | 15 << 24 | 1 << 37 | 1 << 43
}
