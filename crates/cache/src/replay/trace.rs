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
}

/// Gathers requests for a [`Trace`].
#[derive(Clone, Debug, Default)]
pub struct TraceBuilder {
    requests: Vec<Request>,
    references: u64,
    /// One more than the highest block of each device.
    ends: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    device: u32,
    block: u64,
    count: u32,
    access: Access,
}

/// A device begins at a multiple of this many blocks, where a run may begin of any size.
const DEVICE_BLOCKS: u64 = 1 << 16;

impl TraceBuilder {
    /// An empty one.
    #[must_use]
    pub fn new() -> TraceBuilder {
        TraceBuilder::default()
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
        self.requests.push(Request { device, block, count, access });
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
        let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(self.requests.len());
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
        let mut blocks = Vec::with_capacity(usize::try_from(unique).unwrap_or(0));
        let mut first_ids = Vec::with_capacity(ranges.len());
        for range in &ranges {
            first_ids.push(to_u64(blocks.len()));
            blocks.extend(range.0..range.1);
        }
        let mut references = Vec::with_capacity(usize::try_from(self.references).unwrap_or(0));
        for &Request { block, count, access, .. } in &self.requests {
            let at = ranges.partition_point(|range| range.0 <= block) - 1;
            let id = first_ids[at] + (block - ranges[at].0);
            let id = u32::try_from(id).unwrap_or(0);
            let write = if access == Access::Write { WRITE } else { 0 };
            for step in 0..count {
                let first = if step == 0 { FIRST } else { 0 };
                references.push(Reference((id + step) << BITS | first | write));
            }
        }
        Ok(Trace { references, blocks })
    }
}

impl Trace {
    /// All references.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
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
        for reference in part {
            let block = self.block(reference.id());
            match &mut open {
                Some((_, count, _)) if !reference.is_first() => *count += 1,
                _ => {
                    if let Some((block, count, access)) = open {
                        builder.push(block, count, access);
                    }
                    open = Some((block, 1, reference.access()));
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
