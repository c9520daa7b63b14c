//! The system calls that have no safe wrapper: requests to `/dev/fuse` and to loop devices.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Ioctl, IoctlOutput, NoArg, Opcode, Setter};

use crate::wire::LOOP_CONFIG_SIZE;

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const FUSE_CLONE: Opcode = ioctl::opcode::read::<u32>(229, 0);
/// `LOOP_CONFIGURE`, `LOOP_CLR_FD`, `LOOP_SET_CAPACITY`, `LOOP_CTL_GET_FREE` of `linux/loop.h`.
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CLEAR: Opcode = 0x4C01;
const LOOP_SET_CAPACITY: Opcode = 0x4C07;
const LOOP_GET_FREE: Opcode = 0x4C82;

/// Makes a newly opened `/dev/fuse` a further channel of the connection of `session`.
pub(crate) fn clone_channel(new: &OwnedFd, session: &OwnedFd) -> Result<()> {
    let fd = u32::try_from(session.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: the request reads a pointer to 32 bits, as this setter passes it.
    unsafe { ioctl::ioctl(new, Setter::<FUSE_CLONE, u32>::new(fd)) }
}

/// Sets up a loop device that is free.
pub(crate) fn loop_configure(device: impl AsFd, config: [u8; LOOP_CONFIG_SIZE]) -> Result<()> {
    // SAFETY: the request reads `struct loop_config`, whose size these bytes have.
    unsafe { ioctl::ioctl(device, Setter::<LOOP_CONFIGURE, [u8; LOOP_CONFIG_SIZE]>::new(config)) }
}

/// Frees a loop device: now, or when its last user closes it.
pub(crate) fn loop_clear(device: impl AsFd) -> Result<()> {
    // SAFETY: the request has no argument.
    unsafe { ioctl::ioctl(device, NoArg::<LOOP_CLEAR>::new()) }
}

/// Gives a loop device the size that its file has.
pub(crate) fn loop_set_capacity(device: impl AsFd) -> Result<()> {
    // SAFETY: the request has no argument.
    unsafe { ioctl::ioctl(device, NoArg::<LOOP_SET_CAPACITY>::new()) }
}

/// The number of a loop device that is free; `control` is `/dev/loop-control`.
pub(crate) fn loop_get_free(control: impl AsFd) -> Result<u32> {
    // SAFETY: the request has no argument and answers with its result.
    let number = unsafe { ioctl::ioctl(control, GetFree) }?;
    u32::try_from(number).map_err(|_| Errno::NODEV)
}

struct GetFree;

// SAFETY: no memory is passed, and the result is a number.
unsafe impl Ioctl for GetFree {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<i32> {
        Ok(output)
    }
}
