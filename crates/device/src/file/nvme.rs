//! Commands for the controller of an NVMe drive, as the kernel passes them through
//! (`linux/nvme_ioctl.h`).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::mem::size_of;

use esker_base::{AlignedBuf, ErrorKind};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode, opcode};

use crate::fdp::controller::{Passthrough, PassthroughError, Transfer};
use crate::fdp::wire::command::{NvmeCommand, Queue};

/// `NVME_IOCTL_ID`, `NVME_IOCTL_ADMIN_CMD`, `NVME_IOCTL_IO_CMD`.
const ID: Opcode = opcode::none(b'N', 0x40);
const ADMIN_CMD: Opcode = opcode::read_write::<PassthruCmd>(b'N', 0x41);
const IO_CMD: Opcode = opcode::read_write::<PassthruCmd>(b'N', 0x43);
/// Status code and code type, without "do not retry" and the bits above.
const STATUS: u32 = 0x7ff;
/// How long a command may take.
const TIMEOUT_MS: u32 = 10_000;

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PassthruCmd {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<PassthruCmd>() == 72);

/// The block device of a namespace, by which its controller is reached.
pub(super) struct Drive {
    file: File,
    name: String,
}

impl Drive {
    /// Commands through `file`, the block device called `name`.
    pub(super) fn new(file: File, name: &str) -> Drive {
        Drive { file, name: name.to_owned() }
    }

    /// The namespace that the block device is, if it is of an NVMe drive.
    pub(super) fn namespace(&self) -> Option<u32> {
        let call = Call { opcode: ID, argument: std::ptr::null_mut() };
        // SAFETY: NVME_IOCTL_ID takes no argument, and only returns a number. To a device that is
        // not of NVMe the request is unknown.
        let id = unsafe { ioctl::ioctl(&self.file, call) }.ok()?;
        u32::try_from(id).ok().filter(|&id| id > 0)
    }
}

impl Passthrough for Drive {
    fn execute(
        &self,
        command: &NvmeCommand,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), PassthroughError> {
        let mut buf = match data {
            Transfer::None => AlignedBuf::zeroed(0),
            Transfer::Out(bytes) => AlignedBuf::padded(bytes, 4), // whole dwords
            Transfer::In(size) => AlignedBuf::zeroed(size),
        };
        let mut passed = request(command, &mut buf);
        let opcode = match command.queue {
            Queue::Admin => ADMIN_CMD,
            Queue::Io => IO_CMD,
        };
        let call = Call { opcode, argument: (&raw mut passed).cast() };
        // SAFETY: both requests take a pointer to a `struct nvme_passthru_cmd`, which `passed` is for
        // the duration of the call. It names `buf`, which is as long as it says, stays where it is
        // and is not looked at meanwhile; the call returns when the command is finished.
        let status = unsafe { ioctl::ioctl(&self.file, call) };
        let what = format!("{}: {}", self.name, command.name);
        match status.map(u32::try_from) {
            Ok(Ok(0)) => Ok((passed.result.into(), buf)),
            Ok(status) => {
                let status = status.unwrap_or(u32::MAX) & STATUS;
                let message = format!("{what} failed with status {status:03x}h");
                let status = u16::try_from(status).expect("eleven bits");
                Err(PassthroughError::Refused { status, message })
            }
            Err(errno) => {
                let advice = match errno {
                    Errno::ACCESS | Errno::PERM => "; it needs the right to administer the system",
                    _ => "",
                };
                let error = std::io::Error::from(errno);
                let message = format!("{what} could not be passed to the drive: {error}{advice}");
                Err(PassthroughError::Failed { kind: ErrorKind::from(&error), message })
            }
        }
    }
}

/// The command as the kernel takes it, with this buffer.
fn request(command: &NvmeCommand, buf: &mut AlignedBuf) -> PassthruCmd {
    let [cdw10, cdw11, cdw12] = command.dwords;
    let addr = if buf.is_empty() { 0 } else { buf.as_mut_ptr().expose_provenance() };
    PassthruCmd {
        opcode: command.opcode,
        nsid: command.nsid,
        addr: esker_base::units::to_u64(addr),
        data_len: u32::try_from(buf.len()).expect("at most a megabyte"),
        cdw10,
        cdw11,
        cdw12,
        timeout_ms: TIMEOUT_MS,
        ..PassthruCmd::default()
    }
}

/// A request whose return value matters, and its argument.
struct Call {
    opcode: Opcode,
    argument: *mut c_void,
}

// SAFETY: the opcode and the pointer are handed on as they are; whoever makes a call says why they
// belong together. The output is the return value alone.
unsafe impl Ioctl for Call {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<IoctlOutput> {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdp::wire::command::log;

    #[test]
    fn a_command_is_laid_out_as_the_kernel_takes_it() {
        let mut buf = AlignedBuf::zeroed(64);
        let command = NvmeCommand::get_log(log::STATISTICS, 1, 3, 64);
        let got = request(&command, &mut buf);
        let expected = PassthruCmd {
            opcode: 2,
            nsid: 0xffff_ffff,
            addr: esker_base::units::to_u64(buf.as_ptr().addr()),
            data_len: 64,
            cdw10: 15 << 16 | 1 << 8 | 0x22,
            cdw11: 3 << 16,
            timeout_ms: TIMEOUT_MS,
            ..PassthruCmd::default()
        };
        assert_eq!(got, expected);
        let offsets = [
            std::mem::offset_of!(PassthruCmd, nsid),
            std::mem::offset_of!(PassthruCmd, addr),
            std::mem::offset_of!(PassthruCmd, data_len),
            std::mem::offset_of!(PassthruCmd, cdw10),
            std::mem::offset_of!(PassthruCmd, timeout_ms),
        ];
        assert_eq!(offsets, [4, 24, 36, 40, 64]);
        assert_eq!((ADMIN_CMD, IO_CMD), (0xc048_4e41, 0xc048_4e43));
        assert_eq!(request(&command, &mut AlignedBuf::zeroed(0)).addr, 0);
    }

    #[test]
    fn file_that_is_no_drive_has_no_namespace_and_takes_no_command() {
        let drive = Drive::new(File::open("/dev/null").unwrap(), "/dev/null");
        assert_eq!(drive.namespace(), None);
        let error =
            drive.execute(&NvmeCommand::identify_controller(), Transfer::In(4096)).unwrap_err();
        assert!(error.to_string().contains("could not be passed"), "{error}");
    }
}
