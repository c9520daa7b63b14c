//! A remote namespace and a fork of its host: the child is refused, and the parent's connections go on.
#![allow(unsafe_code)]

mod common;

use common::{memory, open, serve};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Device, Port};

fn lba(byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(512);
    buf.fill(byte);
    buf
}

#[test]
fn forked_child_is_refused_and_the_connection_goes_on() {
    let target = serve(memory(1));
    let initiator = open(&target);
    let mut held = Some((Port::open(&initiator, 4).unwrap(), initiator));
    let write = |held: &mut Option<(Port, _)>, byte| {
        held.as_mut().unwrap().0.write(Lba(0), lba(byte), None).map(drop)
    };
    write(&mut held, 1).unwrap();
    // SAFETY: the child takes no lock that a thread of the parent may hold, and ends at once.
    match unsafe { libc::fork() } {
        0 => {
            let refused =
                [write(&mut held, 2).is_err(), held.as_ref().unwrap().1.queue_pair(1).is_err()];
            drop(held.take());
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(refused != [true; 2])) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: `status` is writable.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(status, 0);
        }
    }
    let (mut port, initiator) = held.unwrap();
    assert_eq!(port.read(Lba(0), lba(0)).unwrap()[..], lba(1)[..]);
    port.write(Lba(0), lba(3), None).unwrap();
    assert_eq!(port.read(Lba(0), lba(0)).unwrap()[..], lba(3)[..]);
    assert_eq!(initiator.paths(), 1);
}
