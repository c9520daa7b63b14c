//! A workload's requests as the disk takes them: whole blocks, at addresses that it has, no longer than a command.
//!
//! Several devices of a trace lie one behind the other, as in the simulator. An address beyond the disk wraps around;
//! a request that would reach over its end moves back by so much. So a block is the same block whatever asks for it.

use esker_device::Device;
use esker_trace::{Op, Request};

use crate::LabError;
use crate::device_load::pieces;
use crate::flash_cache::disk::BLOCK_BYTES;
use crate::flash_cache::workload::Requests;

/// A device of a trace begins at a multiple of so many blocks.
const DEVICE_BLOCKS: u64 = 1 << 16;
/// The cache takes no longer command, whatever its disk does.
const MOST_BYTES: u64 = 16 << 20;

/// Requests in two halves.
pub(super) struct Load {
    /// Those that are not measured.
    pub(super) warming: Vec<Request>,
    /// Those that are.
    pub(super) measured: Vec<Request>,
    /// Requests of the trace that lay beyond the disk.
    pub(super) beyond: u64,
    /// Discards between the requests, which are left out: the simulator has none.
    pub(super) discards: u64,
}

impl Load {
    /// The first `most` requests that read, write or flush.
    pub(super) fn on(disk: &dyn Device, requests: Requests, most: usize) -> Result<Load, LabError> {
        let geometry = disk.geometry();
        let blocks = geometry.capacity.bytes(geometry.lba_size) / BLOCK_BYTES;
        let longest = u64::from(geometry.max_transfer_size).min(MOST_BYTES);
        let longest = longest.max(BLOCK_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        let (mut all, mut discards) = (Vec::new(), 0);
        for request in requests {
            if all.len() == most {
                break;
            }
            match request? {
                Request { op: Op::Discard, .. } => discards += 1,
                request if request.op == Op::Flush || request.length > 0 => all.push(request),
                _ => {}
            }
        }
        let begins = begins(&all);
        let mut beyond = 0;
        let mut parts = Vec::with_capacity(all.len());
        for request in &all {
            let begin = begins.get(request.device as usize).copied().unwrap_or(0);
            let placed = placed(request, begin, blocks, &mut beyond);
            parts.extend(pieces(&placed, longest));
        }
        let measured = parts.split_off(parts.len() / 2);
        Ok(Load { warming: parts, measured, beyond, discards })
    }
}

/// The first block of each device of a trace.
fn begins(requests: &[Request]) -> Vec<u64> {
    let mut ends: Vec<u64> = Vec::new();
    for request in requests {
        let index = request.device as usize;
        if ends.len() <= index {
            ends.resize(index + 1, 0);
        }
        ends[index] = ends[index].max(request.blocks().end);
    }
    let mut begin = 0;
    let next = |end: u64| {
        let here = begin;
        begin += end.next_multiple_of(DEVICE_BLOCKS);
        here
    };
    ends.into_iter().map(next).collect()
}

/// A request on whole blocks of a disk that has `blocks` of them.
fn placed(request: &Request, begin: u64, blocks: u64, beyond: &mut u64) -> Request {
    if request.op == Op::Flush {
        return Request { offset: 0, length: 0, device: 0, ..*request };
    }
    let touched = request.blocks();
    let count = (touched.end - touched.start).min(blocks);
    let first = begin + touched.start;
    *beyond += u64::from(begin + touched.end > blocks);
    let first = (first % blocks).min(blocks - count);
    Request { offset: first * BLOCK_BYTES, length: count * BLOCK_BYTES, device: 0, ..*request }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_device::MemoryDevice;

    fn request(device: u32, offset: u64, length: u64, op: Op) -> Request {
        Request { time_ns: 0, offset, length, device, op }
    }

    fn load(disk_bytes: u64, requests: &[Request]) -> Load {
        let disk = MemoryDevice::new("disk", disk_bytes, 4096);
        let requests: Vec<_> = requests.iter().copied().map(Ok).collect();
        Load::on(&disk, Box::new(requests.into_iter()), 1_000).unwrap()
    }

    #[test]
    fn requests_keep_their_blocks_and_wrap_around_the_disk() {
        let load = load(
            1 << 20,
            &[
                request(0, 512, 4096, Op::Read),
                request(0, 0, 0, Op::Discard),
                request(0, (1 << 20) + 8192, 4096, Op::Write),
                request(0, 0, 0, Op::Flush),
                request(0, (1 << 20) - 4096, 8192, Op::Read),
            ],
        );
        let places = |part: &[Request]| -> Vec<(u64, u64)> {
            part.iter().map(|one| (one.offset, one.length)).collect()
        };
        // A request over the middle of blocks touches both; one over the end moves back.
        assert_eq!(places(&load.warming), [(0, 8192), (8192, 4096)]);
        assert_eq!(places(&load.measured), [(0, 0), ((1 << 20) - 8192, 8192)]);
        assert_eq!((load.beyond, load.discards), (2, 1));
    }

    #[test]
    fn devices_of_a_trace_lie_apart_and_long_requests_are_cut() {
        let load =
            load(1 << 30, &[request(1, 4096, 4096, Op::Read), request(0, 0, 32 << 20, Op::Read)]);
        let behind = u64::from(u16::MAX) + 1;
        assert_eq!(load.warming[0].offset, (behind + 1) * 4096);
        let whole: u64 = load.measured.iter().map(|one| one.length).sum();
        assert_eq!((load.measured.len(), whole), (2, 32 << 20));
        assert!(load.measured.iter().all(|one| one.length <= 16 << 20 && one.device == 0));
        assert_eq!(load.beyond, 0);
    }
}
