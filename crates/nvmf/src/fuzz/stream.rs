//! Both ends of a connection, of which the other end sends any bytes.

use std::io::{IoSlice, IoSliceMut};

use esker_base::{AlignedBuf, BufPool};

use crate::conn::{
    ControllerConnection, ControllerEvent, ControllerSettings, HostConnection, HostEvent,
    HostSettings, Payload,
};
use crate::wire::capsule::Sqe;
use crate::wire::command::io;
use crate::wire::status::Status;

/// A host asks for no more at a time.
const MOST: usize = 16 << 10;

pub(super) fn controller() -> ControllerConnection {
    ControllerConnection::new(ControllerSettings {
        slots: 8,
        in_capsule_bytes: 8192,
        max_h2c_bytes: 4096,
        digests: true,
        staging_bytes: 4096,
    })
}

pub(super) fn host(digests: bool) -> HostConnection {
    HostConnection::new(HostSettings {
        slots: 4,
        in_capsule_bytes: 4096,
        header_digest: digests,
        data_digest: digests,
        staging_bytes: 4096,
    })
}

/// Bytes of a host, to a controller that takes and gives data. The first one says how many come at a time.
pub fn nvmf_controller(data: &[u8]) -> bool {
    let Some((&piece, bytes)) = data.split_first() else { return false };
    let (mut controller, mut pool) = (controller(), BufPool::new(0));
    let mut pieces = bytes.chunks(usize::from(piece).max(1) * 16);
    pieces.all(|piece| to_controller(&mut controller, &mut pool, piece).is_ok())
}

/// Bytes of a controller, to a host that reads and writes. The first one says how many come at a time, and whether
/// there are digests.
pub fn nvmf_host(data: &[u8]) -> bool {
    let Some((&piece, bytes)) = data.split_first() else { return false };
    let mut host = host(piece >= 0x80);
    let mut pieces = bytes.chunks(usize::from(piece & 0x7f).max(1) * 16);
    pieces.all(|piece| to_host(&mut host, piece).is_ok())
}

/// Hands bytes to a controller, and returns its output. Fails where the connection is to end.
pub(super) fn to_controller(
    controller: &mut ControllerConnection,
    pool: &mut BufPool,
    mut bytes: &[u8],
) -> Result<Vec<u8>, ()> {
    let mut said = Vec::new();
    while !bytes.is_empty() {
        let count = put(controller.spaces(), bytes);
        assert!(count > 0, "one of the spaces is never empty");
        controller.received(count);
        bytes = &bytes[count..];
        while let Some(event) = controller.poll(pool).map_err(drop)? {
            match event {
                ControllerEvent::Command { slot, fault: Some(status), .. } => {
                    controller.respond(slot, 0, status);
                }
                ControllerEvent::Command { slot, sqe, data, .. } => {
                    let length = usize::try_from(sqe.sgl.length).unwrap_or(usize::MAX).min(MOST);
                    if sqe.is_from_host() && data.is_none() && length > 0 {
                        controller.request_data(slot, pool.take(length));
                    } else if !sqe.is_from_host() {
                        controller.respond_with_data(slot, pool.take(length), 1);
                    } else {
                        controller.respond(slot, 0, Status::SUCCESS);
                    }
                }
                ControllerEvent::Data { slot, .. } => controller.respond(slot, 0, Status::SUCCESS),
            }
            // At once: which slot is the next one does not depend on the pieces then.
            send_controller(&mut said, controller, pool);
        }
    }
    send_controller(&mut said, controller, pool);
    Ok(said)
}

/// Hands bytes to a host, and returns its output. Fails where the connection is to end.
pub(super) fn to_host(host: &mut HostConnection, mut bytes: &[u8]) -> Result<Vec<u8>, ()> {
    let mut said = Vec::new();
    while !bytes.is_empty() {
        let count = put(host.spaces(), bytes);
        assert!(count > 0, "one of the spaces is never empty");
        host.received(count);
        bytes = &bytes[count..];
        while let Some(event) = host.poll().map_err(drop)? {
            if matches!(event, HostEvent::Ready) {
                for size in [512, 6000] {
                    host.submit(Sqe::new(io::READ, 1), Payload::In(AlignedBuf::zeroed(size)));
                    host.submit(Sqe::new(io::WRITE, 1), Payload::Out(AlignedBuf::zeroed(size)));
                }
            }
        }
        send(&mut said, host, |end, slices| end.slices(slices), HostConnection::sent);
    }
    send(&mut said, host, |end, slices| end.slices(slices), HostConnection::sent);
    Ok(said)
}

fn send_controller(said: &mut Vec<u8>, end: &mut ControllerConnection, pool: &mut BufPool) {
    let sent = |end: &mut ControllerConnection, count| {
        end.sent(count, pool);
    };
    send(said, end, |end, slices| end.slices(slices), sent);
}

/// Appends all the output of an end.
fn send<E>(
    said: &mut Vec<u8>,
    end: &mut E,
    slices: impl for<'a> Fn(&'a E, &mut [IoSlice<'a>]) -> usize,
    mut sent: impl FnMut(&mut E, usize),
) {
    loop {
        let mut output = [IoSlice::new(&[]); 8];
        let count = slices(end, &mut output);
        let before = said.len();
        output[..count].iter().for_each(|slice| said.extend_from_slice(slice));
        let size = said.len() - before;
        if size == 0 {
            return;
        }
        sent(end, size);
    }
}

fn put(spaces: [IoSliceMut<'_>; 2], bytes: &[u8]) -> usize {
    let mut at = 0;
    for mut space in spaces {
        let size = space.len().min(bytes.len() - at);
        space[..size].copy_from_slice(&bytes[at..at + size]);
        at += size;
    }
    at
}
