//! Submission and completion queue entries, and SGL descriptors (Base 2.1, 4.1 to 4.3).

use esker_base::codec::{Decoder, Truncated};

use super::status::Status;

/// Bytes of a submission queue entry.
pub const SQE_SIZE: usize = 64;
/// Bytes of a completion queue entry.
pub const CQE_SIZE: usize = 16;

/// PSDT of CDW0: SGLs are used, as always in fabrics, and the metadata pointer is an address.
pub const FLAG_SGL: u8 = 0x40;
/// The bits of PSDT.
pub const FLAG_PSDT: u8 = 0xc0;
/// FUSE of CDW0.
pub const FLAG_FUSE: u8 = 0x03;

/// The namespace id that stands for all of them.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// An SGL descriptor (4.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sgl {
    /// Address, or offset within the capsule.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Type (7:4) and subtype (3:0).
    pub kind: u8,
}

impl Sgl {
    /// Data Block with an offset into the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport Data Block: the transport moves the data.
    pub const TRANSPORT: u8 = 0x5a;
}

/// A submission queue entry (4.1). Fabrics commands have FCTYPE in the place of NSID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqe {
    /// Opcode; bits 1:0 say which way data goes.
    pub opcode: u8,
    /// FUSE and PSDT.
    pub flags: u8,
    /// Command identifier.
    pub cid: u16,
    /// Namespace identifier.
    pub nsid: u32,
    /// Command dwords 2 and 3, and the metadata pointer.
    pub cdw2_5: [u32; 4],
    /// SGL 1.
    pub sgl: Sgl,
    /// Command dwords 10 to 15.
    pub cdw: [u32; 6],
}

impl Sqe {
    /// A command for a namespace.
    #[must_use]
    pub fn new(opcode: u8, nsid: u32) -> Sqe {
        Sqe { opcode, flags: FLAG_SGL, nsid, ..Sqe::default() }
    }

    /// Command dword `n`, from 10 to 15.
    ///
    /// # Panics
    /// For other dwords.
    #[must_use]
    pub fn dword(&self, n: usize) -> u32 {
        self.cdw[n - 10]
    }

    /// Sets command dword `n`, from 10 to 15.
    ///
    /// # Panics
    /// For other dwords.
    #[must_use]
    pub fn with_dword(mut self, n: usize, value: u32) -> Sqe {
        self.cdw[n - 10] = value;
        self
    }

    /// Sets dwords 10 and 11 to the starting LBA.
    #[must_use]
    pub fn with_slba(mut self, slba: u64) -> Sqe {
        let bytes = slba.to_le_bytes();
        self.cdw[0] = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.cdw[1] = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        self
    }

    /// Dwords 10 and 11: the starting LBA of I/O commands.
    #[must_use]
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw[0]) | u64::from(self.cdw[1]) << 32
    }

    /// The low half of command dword `n`.
    #[must_use]
    pub fn low(&self, n: usize) -> u16 {
        let [a, b, ..] = self.dword(n).to_le_bytes();
        u16::from_le_bytes([a, b])
    }

    /// The high half of command dword `n`.
    #[must_use]
    pub fn high(&self, n: usize) -> u16 {
        let [.., a, b] = self.dword(n).to_le_bytes();
        u16::from_le_bytes([a, b])
    }

    /// Byte `index` (0 to 3) of command dword `n`.
    #[must_use]
    pub fn byte(&self, n: usize, index: usize) -> u8 {
        self.dword(n).to_le_bytes()[index]
    }

    /// FCTYPE of a fabrics command.
    #[must_use]
    pub fn fctype(&self) -> u8 {
        self.nsid.to_le_bytes()[0]
    }

    /// Whether the command moves data from the host to the controller.
    #[must_use]
    pub fn is_from_host(&self) -> bool {
        let selector =
            if self.opcode == super::fabrics::OPCODE { self.fctype() } else { self.opcode };
        selector & 3 == 1
    }

    /// Bytes 40 to 63, where fabrics commands have their arguments.
    #[must_use]
    pub fn arguments(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (chunk, dword) in bytes.chunks_exact_mut(4).zip(self.cdw) {
            chunk.copy_from_slice(&dword.to_le_bytes());
        }
        bytes
    }

    /// Sets bytes 40 to 63.
    #[must_use]
    pub fn with_arguments(mut self, bytes: &[u8; 24]) -> Sqe {
        for (dword, chunk) in self.cdw.iter_mut().zip(bytes.chunks_exact(4)) {
            *dword = u32::from_le_bytes(chunk.try_into().expect("four bytes"));
        }
        self
    }

    /// The bytes of the entry.
    #[must_use]
    pub fn encode(&self) -> [u8; SQE_SIZE] {
        let mut bytes = [0; SQE_SIZE];
        bytes[0] = self.opcode;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.cid.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        for (chunk, dword) in bytes[8..24].chunks_exact_mut(4).zip(self.cdw2_5) {
            chunk.copy_from_slice(&dword.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.sgl.address.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sgl.length.to_le_bytes());
        bytes[39] = self.sgl.kind;
        bytes[40..].copy_from_slice(&self.arguments());
        bytes
    }

    /// The entry at the start of `bytes`.
    ///
    /// # Errors
    /// When there are fewer than 64 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Sqe, Truncated> {
        let mut d = Decoder::new(bytes);
        let (opcode, flags) = (d.u8("opcode")?, d.u8("flags")?);
        let (cid, nsid) = (d.u16("cid")?, d.u32("nsid")?);
        let mut cdw2_5 = [0; 4];
        for dword in &mut cdw2_5 {
            *dword = d.u32("cdw2 to cdw5")?;
        }
        let (address, length) = (d.u64("sgl address")?, d.u32("sgl length")?);
        d.bytes(3, "reserved")?;
        let kind = d.u8("sgl type")?;
        let mut cdw = [0; 6];
        for dword in &mut cdw {
            *dword = d.u32("cdw10 to cdw15")?;
        }
        Ok(Sqe { opcode, flags, cid, nsid, cdw2_5, sgl: Sgl { address, length, kind }, cdw })
    }
}

/// A completion queue entry (4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// Dwords 0 and 1: the result of the command.
    pub result: u64,
    /// Submission queue head pointer.
    pub sqhd: u16,
    /// Command identifier.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
}

impl Cqe {
    /// The bytes of the entry.
    #[must_use]
    pub fn encode(&self) -> [u8; CQE_SIZE] {
        let mut bytes = [0; CQE_SIZE];
        bytes[..8].copy_from_slice(&self.result.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.sqhd.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.cid.to_le_bytes());
        bytes[14..].copy_from_slice(&(self.status.0 << 1).to_le_bytes());
        bytes
    }

    /// The entry at the start of `bytes`. The phase bit, which fabrics do not use, is dropped.
    ///
    /// # Errors
    /// When there are fewer than 16 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Cqe, Truncated> {
        let mut d = Decoder::new(bytes);
        let (result, sqhd) = (d.u64("result")?, d.u16("sqhd")?);
        d.u16("reserved")?;
        let (cid, status) = (d.u16("cid")?, d.u16("status")?);
        Ok(Cqe { result, sqhd, cid, status: Status(status >> 1) })
    }
}
