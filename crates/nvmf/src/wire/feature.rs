//! Feature identifiers (Base 2.1, 5.1.25).

/// Set Features: opcode.
pub const SET: u8 = 0x09;
/// Get Features: opcode.
pub const GET: u8 = 0x0a;

/// Arbitration.
pub const ARBITRATION: u8 = 0x01;
/// Power management.
pub const POWER: u8 = 0x02;
/// Temperature threshold.
pub const TEMPERATURE: u8 = 0x04;
/// Error recovery.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Volatile write cache.
pub const WRITE_CACHE: u8 = 0x06;
/// Number of queues.
pub const QUEUES: u8 = 0x07;
/// Write atomicity normal.
pub const ATOMICITY: u8 = 0x0a;
/// Asynchronous event configuration.
pub const EVENTS: u8 = 0x0b;
/// Keep alive timer.
pub const KEEP_ALIVE: u8 = 0x0f;
/// Flexible data placement of an endurance group.
pub const FDP: u8 = 0x1d;
/// Events of a reclaim unit handle.
pub const FDP_EVENTS: u8 = 0x1e;
/// Host identifier.
pub const HOST_ID: u8 = 0x81;
/// Reservation notification mask.
pub const RESERVATION_MASK: u8 = 0x82;
/// Reservation persistence.
pub const RESERVATION_PERSISTENCE: u8 = 0x83;
