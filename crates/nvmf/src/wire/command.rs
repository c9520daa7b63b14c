//! Opcodes of admin and I/O commands, and the arguments of the I/O commands
//! (NVM Command Set 1.1, 3.3; Base 2.1, 7).

use esker_base::codec::Truncated;
use esker_device::PlacementId;

use super::capsule::Sqe;
use super::structure;

/// Opcodes of admin commands that have no module of their own.
pub mod admin {
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of I/O commands.
pub mod io {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DSM: u8 = 0x09;
    /// Verify.
    pub const VERIFY: u8 = 0x0c;
    /// Reservation Register.
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    /// Reservation Report.
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// Reservation Acquire.
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    /// I/O Management Receive.
    pub const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
    /// Reservation Release.
    pub const RESERVATION_RELEASE: u8 = 0x15;
    /// Copy.
    pub const COPY: u8 = 0x19;
    /// I/O Management Send.
    pub const IO_MANAGEMENT_SEND: u8 = 0x1d;
}

/// FUA, bit 30 of dword 12.
const FUA: u32 = 1 << 30;
/// Directive type 2, data placement, in bits 23:20 of dword 12.
const DTYPE_PLACEMENT: u32 = 2 << 20;
const DTYPE_MASK: u32 = 0xf << 20;
/// Write Zeroes: deallocate, bit 25 of dword 12.
pub const DEALLOCATE: u32 = 1 << 25;
/// Dataset Management: deallocate, bit 2 of dword 11.
pub const DSM_DEALLOCATE: u32 = 1 << 2;

/// The arguments of commands on a range of LBAs: Read, Write, Compare, Verify, Write Zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRange {
    /// First LBA.
    pub slba: u64,
    /// How many LBAs (NLB + 1).
    pub count: u32,
    /// Force unit access.
    pub fua: bool,
    /// The placement id of a write, if it has one.
    pub placement: Option<PlacementId>,
}

impl LbaRange {
    /// The arguments in a command.
    #[must_use]
    pub fn of(sqe: &Sqe) -> LbaRange {
        let cdw12 = sqe.dword(12);
        let is_placed = cdw12 & DTYPE_MASK == DTYPE_PLACEMENT;
        LbaRange {
            slba: sqe.slba(),
            count: u32::from(sqe.low(12)) + 1,
            fua: cdw12 & FUA != 0,
            placement: is_placed.then(|| PlacementId(sqe.high(13))),
        }
    }

    /// Puts the arguments into a command.
    ///
    /// # Panics
    /// If the count is not 1 to 65,536.
    #[must_use]
    pub fn put(&self, sqe: Sqe) -> Sqe {
        let nlb = u16::try_from(self.count.wrapping_sub(1)).expect("1 to 65,536 LBAs");
        let mut cdw12 = u32::from(nlb);
        let mut cdw13 = 0;
        if self.fua {
            cdw12 |= FUA;
        }
        if let Some(PlacementId(id)) = self.placement {
            cdw12 |= DTYPE_PLACEMENT;
            cdw13 = u32::from(id) << 16;
        }
        sqe.with_slba(self.slba).with_dword(12, cdw12).with_dword(13, cdw13)
    }
}

structure! {
    /// One range of Dataset Management (NVM Command Set 1.1, Figure 45).
    DsmRange [16] {
        /// Context attributes.
        0 attributes: u32,
        /// How many LBAs.
        4 count: u32,
        /// First LBA.
        8 slba: u64,
    }
}

/// The ranges of a Dataset Management command.
///
/// # Errors
/// When the data has not as many as the command says.
pub fn dsm_ranges(sqe: &Sqe, data: &[u8]) -> Result<Vec<DsmRange>, Truncated> {
    let count = usize::from(sqe.byte(10, 0)) + 1;
    (0..count).map(|n| DsmRange::decode(data.get(n * DsmRange::SIZE..).unwrap_or(&[]))).collect()
}

/// The arguments of Copy (NVM Command Set 1.1, 3.3.2); the source ranges are its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyArguments {
    /// First LBA of the destination (SDLBA).
    pub sdlba: u64,
    /// How many source ranges (NR + 1): 1 to 256.
    pub ranges: u16,
    /// Format of the source ranges; 0 is [`SourceRange`].
    pub format: u8,
    /// Force unit access for the data written.
    pub fua: bool,
    /// The placement id of the data written, if it has one.
    pub placement: Option<PlacementId>,
}

impl CopyArguments {
    /// The arguments in a command.
    #[must_use]
    pub fn of(sqe: &Sqe) -> CopyArguments {
        let LbaRange { slba: sdlba, fua, placement, .. } = LbaRange::of(sqe);
        let (ranges, format) = (u16::from(sqe.byte(12, 0)) + 1, sqe.byte(12, 1) & 0x0f);
        CopyArguments { sdlba, ranges, format, fua, placement }
    }

    /// Puts the arguments into a command.
    ///
    /// # Panics
    /// If there are not 1 to 256 ranges.
    #[must_use]
    pub fn put(&self, sqe: Sqe) -> Sqe {
        let nr = u8::try_from(self.ranges.wrapping_sub(1)).expect("1 to 256 ranges");
        let count = u32::from(nr) + 1 + (u32::from(self.format & 0x0f) << 8);
        let (slba, fua, placement) = (self.sdlba, self.fua, self.placement);
        LbaRange { slba, count, fua, placement }.put(sqe)
    }
}

structure! {
    /// A source range of Copy, format 0 (NVM Command Set 1.1, Figure 40).
    SourceRange [32] {
        /// First LBA.
        8 slba: u64,
        /// How many LBAs, 0's based.
        16 nlb: u16,
    }
}

/// The source ranges of a Copy command.
///
/// # Errors
/// When the data has not as many as the command says.
pub fn source_ranges(count: u16, data: &[u8]) -> Result<Vec<SourceRange>, Truncated> {
    let at = |n: usize| data.get(n * SourceRange::SIZE..).unwrap_or(&[]);
    (0..usize::from(count)).map(|n| SourceRange::decode(at(n))).collect()
}

structure! {
    /// The data of Reservation Register (Base 2.1, 7.6) and of Reservation Acquire (7.5).
    ReservationKeys [16] {
        /// Current reservation key.
        0 crkey: u64,
        /// New key, or the key to preempt.
        8 other: u64,
    }
}

structure! {
    /// The header of Reservation Report (Base 2.1, Figure 584). With the extended data structure
    /// it is 64 bytes; the rest of these is reserved.
    ReservationStatus [24] {
        /// Generation: counts changes of registrations.
        0 gen_: u32,
        /// Type of the reservation; 0 without.
        4 rtype: u8,
        /// Number of registrants.
        5 regctl: u16,
        /// Persist through power loss.
        9 ptpls: u8,
    }
}

structure! {
    /// A registrant, extended data structure (Base 2.1, Figure 586).
    Registrant [64] {
        /// Controller.
        0 cntlid: u16,
        /// Bit 0: it holds the reservation.
        2 rcsts: u8,
        /// Its key.
        8 rkey: u64,
        /// Host identifier.
        16 hostid: [u8; 16],
    }
}
