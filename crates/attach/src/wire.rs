//! The bytes of FUSE (`linux/fuse.h`, protocol 7.31, on a little-endian machine) and of the loop
//! driver (`linux/loop.h`).
//!
//! | module | content |
//! | --- | --- |
//! | `request` | the kernel's requests: a header of 40 bytes, then the operation's arguments |
//! | `reply` | the replies to them: a header of 16 bytes, then the operation's results |
//! | `loop_config` | the argument of `LOOP_CONFIGURE` |
//!
//! Crates for FUSE own the threads and the buffers: a request is copied, and each has a thread or a task of its own.
//! Here one thread reads requests in batches into the buffers that the device is given, so the bytes are decoded here.
//!
//! Requests come from the kernel, but are decoded as if they came from anywhere: any bytes are
//! either a request or an error.

mod loop_config;
mod reply;
mod request;

pub(crate) use loop_config::{LOOP_CONFIG_SIZE, LoopConfig};
pub(crate) use reply::{
    Attributes, DirectoryEntry, FileKind, InitReply, StatFs, attributes_reply, directory,
    entry_reply, header, open_reply, write_reply,
};
#[cfg(test)]
pub(crate) use request::tests as requests;
pub(crate) use request::{AttributeChange, HEAD_SIZE, Header, InitRequest, Request, decode};

// The protocol has the byte order of the machine.
const _: () = assert!(cfg!(target_endian = "little"), "FUSE is spoken on little-endian machines");
