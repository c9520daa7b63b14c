//! Log pages (Base 2.1, 5.1.12) and asynchronous events (5.1.2).

use super::structure;

/// Get Log Page: opcode.
pub const OPCODE: u8 = 0x02;

/// Log page identifiers.
pub mod lid {
    /// Supported log pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error information.
    pub const ERROR: u8 = 0x01;
    /// SMART and health information.
    pub const SMART: u8 = 0x02;
    /// Firmware slots.
    pub const FIRMWARE: u8 = 0x03;
    /// Namespaces that changed.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands supported and their effects.
    pub const EFFECTS: u8 = 0x05;
    /// Endurance group information.
    pub const ENDURANCE: u8 = 0x09;
    /// Asymmetric namespace access.
    pub const ANA: u8 = 0x0c;
    /// FDP configurations.
    pub const FDP_CONFIGURATIONS: u8 = 0x20;
    /// Reclaim unit handle usage.
    pub const FDP_USAGE: u8 = 0x21;
    /// FDP statistics.
    pub const FDP_STATISTICS: u8 = 0x22;
    /// FDP events.
    pub const FDP_EVENTS: u8 = 0x23;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation notifications.
    pub const RESERVATION: u8 = 0x80;
}

structure! {
    /// SMART and health information (Figure 207). The counters are 128 bits wide.
    SmartLog [512] {
        /// The conditions that are critical.
        0 critical_warning: u8,
        /// Composite temperature in kelvin.
        1 temperature: u16,
        /// Spare left in percent.
        3 avail_spare: u8,
        /// Spare threshold in percent.
        4 spare_threshold: u8,
        /// Rated life used in percent.
        5 percent_used: u8,
        /// Thousands of 512 bytes read.
        32 data_units_read: u128,
        /// Thousands of 512 bytes written.
        48 data_units_written: u128,
        /// Read commands.
        64 host_reads: u128,
        /// Write commands.
        80 host_writes: u128,
        /// Minutes busy.
        96 busy_minutes: u128,
        /// Power cycles.
        112 power_cycles: u128,
        /// Hours of operation.
        128 power_on_hours: u128,
        /// Unsafe shutdowns.
        144 unsafe_shutdowns: u128,
        /// Media errors.
        160 media_errors: u128,
        /// Error log entries.
        176 error_entries: u128,
    }
}

structure! {
    /// One entry of the error log (Figure 206).
    ErrorEntry [64] {
        /// How many errors there were so far.
        0 error_count: u64,
        /// Submission queue.
        8 sqid: u16,
        /// Command.
        10 cid: u16,
        /// Status field with the phase bit.
        12 status: u16,
        /// Where in the command the error is.
        14 parameter: u16,
        /// First LBA.
        16 lba: u64,
        /// Namespace.
        24 nsid: u32,
    }
}

structure! {
    /// The header of the ANA log page (Figure 223); descriptors follow.
    AnaHeader [16] {
        /// Change count.
        0 chgcnt: u64,
        /// Number of groups.
        8 ngrps: u16,
    }
}

structure! {
    /// One group of the ANA log page (Figure 224); namespace ids of 4 bytes follow.
    AnaGroup [32] {
        /// Group id.
        0 grpid: u32,
        /// Number of namespaces.
        4 nnsids: u32,
        /// Change count.
        8 chgcnt: u64,
        /// State.
        16 state: u8,
    }
}

/// How well a port reaches a namespace (Base 2.1, 8.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum AnaState {
    /// The best way.
    #[default]
    Optimized = 0x1,
    /// A way that works, when there is no better one.
    NonOptimized = 0x2,
    /// No way, for now.
    Inaccessible = 0x3,
    /// No way, ever.
    PersistentLoss = 0x4,
    /// About to become another state.
    Change = 0xf,
}

impl AnaState {
    /// The state with this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<AnaState> {
        Some(match number & 0xf {
            0x1 => AnaState::Optimized,
            0x2 => AnaState::NonOptimized,
            0x3 => AnaState::Inaccessible,
            0x4 => AnaState::PersistentLoss,
            0xf => AnaState::Change,
            _ => return None,
        })
    }
}

structure! {
    /// The header of the discovery log page (Figure 293); entries follow.
    DiscoveryHeader [1024] {
        /// Generation: changes when an entry does.
        0 genctr: u64,
        /// Number of entries.
        8 numrec: u64,
        /// Record format: 0.
        16 recfmt: u16,
    }
}

structure! {
    /// One entry of the discovery log page (Figure 294).
    DiscoveryEntry [1024] {
        /// Transport: 3 is TCP.
        0 trtype: u8,
        /// Address family: 1 is IPv4, 2 is IPv6.
        1 adrfam: u8,
        /// The service that is there: see the constants.
        2 subtype: u8,
        /// Transport requirements.
        3 treq: u8,
        /// Port.
        4 portid: u16,
        /// Controller; FFFFh: a new one for every host.
        6 cntlid: u16,
        /// Largest admin submission queue.
        8 asqsz: u16,
        /// Flags.
        10 eflags: u16,
        /// TCP port, as text.
        32 trsvcid: [u8; 32],
        /// NQN of the subsystem.
        256 subnqn: [u8; 256],
        /// Address, as text.
        512 traddr: [u8; 256],
        /// Transport specific: for TCP, byte 0 is the security type, 0 without TLS.
        768 tsas: [u8; 256],
    }
}

/// Subtype of a discovery entry: another discovery service.
pub const SUBTYPE_REFERRAL: u8 = 1;
/// Subtype of a discovery entry: a subsystem with namespaces.
pub const SUBTYPE_NVM: u8 = 2;
/// Subtype of a discovery entry: this discovery service.
pub const SUBTYPE_CURRENT: u8 = 3;
/// TREQ: a secure channel is required (bits 1:0).
pub const TREQ_SECURE: u8 = 0x01;
/// TREQ: disabling flow control of submission queues is possible.
pub const TREQ_NO_FLOW_CONTROL: u8 = 0x04;
/// SECTYPE, the first byte of TSAS for TCP: TLS 1.3.
pub const SECTYPE_TLS13: u8 = 2;
/// TRTYPE of TCP.
pub const TRTYPE_TCP: u8 = 3;

/// The asynchronous events that are sent, as dword 0 of the completion (5.1.2): type, information
/// and the log page to read.
pub mod event {
    /// A namespace was attached, detached or changed: log page 04h.
    pub const NAMESPACE: u32 = 0x0004_0002;
    /// An ANA state changed: log page 0Ch.
    pub const ANA: u32 = 0x000c_0302;
    /// The discovery log page changed: log page 70h.
    pub const DISCOVERY: u32 = 0x0070_f002;
    /// A reservation log page is available: log page 80h.
    pub const RESERVATION: u32 = 0x0080_0006;
}

/// The commands supported and effects log page (Figure 210) from opcodes and effects. Effects:
/// bit 0 supported, bit 1 changes content, bit 3 changes namespace inventory.
#[must_use]
pub fn effects(admin: &[(u8, u32)], io: &[(u8, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    for (table, commands) in [(0, admin), (1024, io)] {
        for (opcode, effect) in commands {
            let at = table + usize::from(*opcode) * 4;
            bytes[at..at + 4].copy_from_slice(&effect.to_le_bytes());
        }
    }
    bytes
}
