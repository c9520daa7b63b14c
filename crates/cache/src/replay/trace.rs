//! A trace in the form that is replayed: references to numbered blocks.
//!
//! Called by readers of trace files ([`TraceBuilder`]), and by the simulation. The blocks that
//! occur are numbered once, in the order of their addresses, and every reference is four bytes:
//! so many caches can be simulated on one trace, and neighbours have neighbouring numbers.
//!
//! Invariants:
//! 1. Numbers are dense, and ascend with the blocks they stand for.
//! 2. The references of a request follow each other, the first one is marked.

use esker_base::policy::Access;
use esker_base::units::to_u64;

use crate::CacheError;

/// The bits of a reference below its block's number.
const WRITE: u32 = 1;
const FIRST: u32 = 2;
const BITS: u32 = 2;

/// A reference to one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference(u32);

impl Reference {
    /// The number of the block.
    #[inline]
    #[must_use]
    pub fn id(self) -> u32 {
        self.0 >> BITS
    }

    /// Whether it is written.
    #[inline]
    #[must_use]
    pub fn access(self) -> Access {
        if self.0 & WRITE == 0 { Access::Read } else { Access::Write }
    }

    /// Whether a request begins here.
    #[inline]
    #[must_use]
    pub fn is_first(self) -> bool {
        self.0 & FIRST != 0
    }
}

/// References to blocks, in the order of time.
#[derive(Clone, Debug)]
pub struct Trace {
    references: Vec<Reference>,
    blocks: Vec<u64>,
    /// For each second of the trace the first reference that is not before it. Empty where no time is told.
    seconds: Vec<u32>,
}

/// Gathers requests for a [`Trace`].
#[derive(Clone, Debug, Default)]
pub struct TraceBuilder {
    requests: Vec<Request>,
    references: u64,
    /// One more than the highest block of each device.
    ends: Vec<u64>,
    /// The time of the first request, and of the one to come.
    times_ns: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    device: u32,
    block: u64,
    count: u32,
    access: Access,
    second: u32,
}

/// Makes room for `more` elements.
fn room_for<T>(list: &mut Vec<T>, more: usize) -> Result<(), CacheError> {
    list.try_reserve(more).map_err(|_| {
        let why = "the trace does not fit in memory: take a sample of it (--sample), or a part";
        CacheError::Invalid(why.into())
    })
}

/// The longest time of a trace, in seconds; what is later counts as then.
const MOST_SECONDS: u64 = 1 << 26;

/// A device begins at a multiple of this many blocks, where a run may begin of any size.
const DEVICE_BLOCKS: u64 = 1 << 16;

impl TraceBuilder {
    /// An empty one.
    #[must_use]
    pub fn new() -> TraceBuilder {
        TraceBuilder::default()
    }

    /// Makes room for `more` requests.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn reserve(&mut self, more: usize) -> Result<(), CacheError> {
        room_for(&mut self.requests, more)
    }

    /// The memory that [`TraceBuilder::finish`] takes at most, in bytes, with that of the requests so far.
    #[must_use]
    pub fn bytes_to_finish(&self) -> u64 {
        // Ranges and their first numbers; a number a reference, and an address a block.
        let requests = to_u64(self.requests.len()) * (to_u64(size_of::<Request>()) + 24);
        requests.saturating_add(self.references.saturating_mul(12))
    }

    /// Says when the requests to come are, in nanoseconds. They are never before those that were pushed.
    pub fn at(&mut self, time_ns: u64) {
        let (first, last) = self.times_ns.unwrap_or((time_ns, time_ns));
        self.times_ns = Some((first, last.max(time_ns)));
    }

    /// A request for `count` blocks from `block` on. Requests for nothing are left out.
    pub fn push(&mut self, block: u64, count: u32, access: Access) {
        self.push_to(0, block, count, access);
    }

    /// The same of one of several devices, which lie one behind the other in the trace.
    pub fn push_to(&mut self, device: u32, block: u64, count: u32, access: Access) {
        if count == 0 {
            return;
        }
        let index = device as usize;
        if self.ends.len() <= index {
            self.ends.resize(index + 1, 0);
        }
        self.ends[index] = self.ends[index].max(block.saturating_add(u64::from(count)));
        let second = self.times_ns.map_or(0, |(first, now)| (now - first) / 1_000_000_000);
        let second = u32::try_from(second.min(MOST_SECONDS)).unwrap_or(u32::MAX);
        self.requests.push(Request { device, block, count, access, second });
        self.references += u64::from(count);
    }

    /// Numbers the blocks.
    ///
    /// # Errors
    /// When there is no request, or there are more than 2^30 different blocks or an address
    /// beyond 2^63.
    pub fn finish(mut self) -> Result<Trace, CacheError> {
        let invalid = |message: &str| Err(CacheError::Invalid(message.into()));
        if self.requests.is_empty() {
            return invalid("the trace has no request that reads or writes");
        }
        let too_far = || CacheError::Invalid("the trace has an address beyond 2^63 blocks".into());
        let mut begins = Vec::with_capacity(self.ends.len());
        let mut begin = 0u64;
        for &end in &self.ends {
            begins.push(begin);
            let after = end.checked_next_multiple_of(DEVICE_BLOCKS);
            let after = after.and_then(|end| begin.checked_add(end));
            begin = after.filter(|&after| after <= u64::MAX / 2).ok_or_else(too_far)?;
        }
        for request in &mut self.requests {
            request.block += begins[request.device as usize];
        }
        // Ranges of blocks that occur, merged: from, end.
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        room_for(&mut ranges, self.requests.len())?;
        for &Request { block, count, .. } in &self.requests {
            ranges.push((block, block + u64::from(count)));
        }
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1;
            kept.1 = if joins { kept.1.max(next.1) } else { kept.1 };
            joins
        });
        let unique: u64 = ranges.iter().map(|range| range.1 - range.0).sum();
        if unique >= 1 << (32 - BITS) {
            return invalid("the trace has more than 2^30 different blocks: replay a part of it");
        }
        let (mut blocks, mut first_ids) = (Vec::new(), Vec::new());
        room_for(&mut blocks, usize::try_from(unique).unwrap_or(usize::MAX))?;
        room_for(&mut first_ids, ranges.len())?;
        for range in &ranges {
            first_ids.push(to_u64(blocks.len()));
            blocks.extend(range.0..range.1);
        }
        let mut references = Vec::new();
        room_for(&mut references, usize::try_from(self.references).unwrap_or(usize::MAX))?;
        let mut seconds = Vec::new();
        for &Request { block, count, access, second, .. } in &self.requests {
            if self.times_ns.is_some() {
                let first = u32::try_from(references.len()).unwrap_or(u32::MAX);
                seconds.resize(seconds.len().max(second as usize + 1), first);
            }
            let at = ranges.partition_point(|range| range.0 <= block) - 1;
            let id = first_ids[at] + (block - ranges[at].0);
            let id = u32::try_from(id).unwrap_or(0);
            let write = if access == Access::Write { WRITE } else { 0 };
            for step in 0..count {
                let first = if step == 0 { FIRST } else { 0 };
                references.push(Reference((id + step) << BITS | first | write));
            }
        }
        Ok(Trace { references, blocks, seconds })
    }
}

impl Trace {
    /// All references.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// For each second the index of the first reference that is not before it. Empty where no time is told.
    pub(super) fn seconds(&self) -> &[u32] {
        &self.seconds
    }

    /// How many different blocks occur: the footprint.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        to_u64(self.blocks.len())
    }

    /// The block with number `id`.
    #[inline]
    #[must_use]
    pub fn block(&self, id: u32) -> u64 {
        self.blocks[id as usize]
    }

    /// The blocks by number.
    #[must_use]
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// One more than the highest block.
    #[must_use]
    pub fn origin_blocks(&self) -> u64 {
        self.blocks.last().map_or(1, |last| last + 1)
    }

    /// A part of the trace, by references from `from` to `end`; it numbers its own blocks.
    ///
    /// # Errors
    /// When there is nothing in it.
    pub fn part(&self, from: usize, end: usize) -> Result<Trace, CacheError> {
        let end = end.min(self.references.len());
        let mut builder = TraceBuilder::new();
        let part = self.references.get(from.min(end)..end).unwrap_or_default();
        let mut open: Option<(u64, u32, Access)> = None;
        let mut second = 0;
        for (at, reference) in (from..).zip(part) {
            let block = self.block(reference.id());
            while self.seconds.get(second).is_some_and(|first| *first as usize <= at) {
                second += 1;
            }
            match &mut open {
                Some((_, count, _)) if !reference.is_first() => *count += 1,
                _ => {
                    if let Some((block, count, access)) = open {
                        builder.push(block, count, access);
                    }
                    open = Some((block, 1, reference.access()));
                    if second > 0 {
                        builder.at(to_u64(second) * 1_000_000_000);
                    }
                }
            }
        }
        if let Some((block, count, access)) = open {
            builder.push(block, count, access);
        }
        builder.finish()
    }

    /// For every reference the index of the next one to the same block, `u32::MAX` for none.
    #[must_use]
    pub fn next_uses(&self) -> Vec<u32> {
        let mut last = vec![u32::MAX; self.blocks.len()];
        let mut next = vec![u32::MAX; self.references.len()];
        for (at, reference) in self.references.iter().enumerate().rev() {
            let last = &mut last[reference.id() as usize];
            next[at] = *last;
            *last = u32::try_from(at).unwrap_or(u32::MAX);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_numbered_in_the_order_of_their_addresses() {
        let mut builder = TraceBuilder::new();
        builder.push(100, 3, Access::Read);
        builder.push(7, 1, Access::Write);
        builder.push(101, 4, Access::Write);
        builder.push(50, 0, Access::Read);
        let trace = builder.finish().unwrap();
        assert_eq!(trace.blocks(), [7, 100, 101, 102, 103, 104]);
        let ids: Vec<u32> = trace.references().iter().map(|r| r.id()).collect();
        assert_eq!(ids, [1, 2, 3, 0, 2, 3, 4, 5]);
        let first: Vec<bool> = trace.references().iter().map(|r| r.is_first()).collect();
        assert_eq!(first, [true, false, false, true, true, false, false, false]);
        assert_eq!(trace.references()[3].access(), Access::Write);
        let never = u32::MAX;
        assert_eq!(trace.next_uses(), [never, 4, 5, never, never, never, never, never]);
        let part = trace.part(1, 6).unwrap();
        assert_eq!(part.blocks(), [7, 101, 102]);
        assert_eq!(part.references().len(), 5);
    }

    #[test]
    fn seconds_begin_with_their_first_reference_also_in_a_part() {
        let mut builder = TraceBuilder::new();
        for (ms, count) in [(500, 2), (1_400, 1), (1_499, 3), (1_500, 1), (1_200, 1), (4_600, 1)] {
            builder.at(ms * 1_000_000);
            builder.push(ms, count, Access::Read);
        }
        let trace = builder.finish().unwrap();
        assert_eq!(trace.seconds(), [0, 6, 8, 8, 8]);
        assert_eq!(trace.part(3, 9).unwrap().seconds(), [0, 3, 5, 5, 5]);
        assert_eq!(trace.part(6, 9).unwrap().seconds(), [0, 2, 2, 2]);
    }

    #[test]
    fn a_trace_that_does_not_fit_in_memory_is_refused() {
        let mut builder = TraceBuilder::new();
        assert!(builder.reserve(usize::MAX / 64).unwrap_err().to_string().contains("--sample"));
        for at in 0..1 << 15 {
            builder.push(at % 7, u32::MAX / 4, Access::Read);
        }
        assert!(builder.bytes_to_finish() > 1 << 45);
        assert!(builder.finish().unwrap_err().to_string().contains("more than 2^30"));
        // Few blocks, each of which is referred to without end.
        let mut builder = TraceBuilder::new();
        builder.push(0, 1 << 16, Access::Read);
        builder.references = 1 << 60;
        assert!(builder.finish().unwrap_err().to_string().contains("--sample"));
    }

    #[test]
    fn devices_lie_one_behind_the_other() {
        let mut builder = TraceBuilder::new();
        builder.push_to(1, 5, 2, Access::Read);
        builder.push_to(0, 70_000, 1, Access::Read);
        builder.push_to(2, 0, 1, Access::Read);
        let trace = builder.finish().unwrap();
        assert_eq!(trace.blocks(), [70_000, 131_077, 131_078, 196_608]);
    }

    #[test]
    fn a_trace_of_nothing_is_refused() {
        assert!(TraceBuilder::new().finish().is_err());
        let mut builder = TraceBuilder::new();
        builder.push(u64::MAX - 2, 9, Access::Read);
        assert!(builder.finish().is_err());
    }
}
