//! Fuzz targets: any bytes in place of a request of the kernel, or of its table of mounts. Each says whether they were
//! accepted. Run by `fuzz/`, and on their corpora by the test below.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use crate::mount_table::parse;
use crate::wire::{HEAD_SIZE, Request, decode};

/// A request of FUSE.
pub fn attach_request(data: &[u8]) -> bool {
    let (head, rest) = data.split_at(data.len().min(HEAD_SIZE));
    decode(head, rest.len()).is_ok_and(|(_, request)| {
        match request {
            Request::Write { size, .. } => assert_eq!(usize::try_from(size), Ok(rest.len())),
            Request::Lookup { name } => assert!(!name.contains(&0)),
            _ => {}
        }
        true
    })
}

/// A line of the table of mounts.
pub fn attach_mount(data: &[u8]) -> bool {
    parse(data).is_some_and(|mount| mount.ours().is_some())
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    /// A request with this body.
    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(40 + body.len()).unwrap();
        let mut bytes = [len.to_le_bytes(), opcode.to_le_bytes()].concat();
        bytes.extend([5u64.to_le_bytes(), 2u64.to_le_bytes()].concat());
        bytes.extend([0; 16]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        let mut write = [7u64.to_le_bytes(), 4096u64.to_le_bytes()].concat();
        write.extend([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x10, 0, 0, 0, 0, 0, 0]);
        write.extend(b"abc");
        let zeroes = [&7u64.to_le_bytes()[..], &[8; 16], &[3, 0, 0, 0, 0, 0, 0, 0]].concat();
        replay(&[
            Target::new(
                "attach_request",
                attach_request,
                vec![
                    ("lookup", request(1, b"disk\0")),
                    ("attributes", request(4, &[8; 88])),
                    ("read", request(15, &write[..40])),
                    ("write", request(16, &write)),
                    ("init", request(26, &[7, 0, 0, 0, 38, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0])),
                    ("zeroes", request(43, &zeroes)),
                ],
            ),
            Target::of_texts(
                "attach_mount",
                attach_mount,
                &[(
                    "ours",
                    "36 35 0:98 / /mnt/a\\040b rw,noatime master:1 - fuse.esker esker:417 rw,user_id=7",
                )],
            ),
        ]);
    }
}
