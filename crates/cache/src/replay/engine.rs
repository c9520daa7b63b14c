//! One simulated cache: the policy and the mapping of the device, over numbered blocks.
//!
//! Called by [`super::run`]. Where the device finds a block through the table of its set, the
//! simulation looks the block's number up in one array; everything else is the device's own code.
//!
//! Invariants:
//! 1. `places[id]` is zero, or names the slot of which `ids` says `id`.
//! 2. Sets are `1 << shift` slots apart in `ids`, so a slot says which set it is in.

use esker_base::policy::{Access, Kind, Policy, Slots};

use super::outcome::busier_half;
use super::trace::Trace;
use super::{Config, Mode, Outcome};
use crate::CacheError;
use crate::admit::{Door, Flow, Streams};
use crate::omf::BLOCK;
use crate::sets::Geometry;
use crate::writeback::{Content, Filling};

const DIRTY: u32 = 1 << 31;

struct One<P> {
    policy: P,
    slots: u32,
    /// Slots from here on were never used.
    fresh: u32,
    freed: Vec<u32>,
    dirty: u32,
    /// More dirty slots than these are too many.
    most_dirty: u32,
    /// Since which second something in it is dirty.
    dirty_since: Option<u32>,
    /// Evictions until the cold end is looked at again.
    until_look: u32,
    references: u64,
    operations: u64,
}

pub(super) struct Engine<'a, P> {
    config: &'a Config,
    trace: &'a Trace,
    run_blocks: u32,
    shift: u32,
    places: Vec<u32>,
    ids: Vec<u32>,
    /// The set of a block by its number; empty when there is one set.
    set_of: Vec<u32>,
    sets: Vec<One<P>>,
    door: Door,
    streams: Streams,
    outcome: Outcome,
    request: Request,
    second: u32,
}

/// State of the request that is replayed.
#[derive(Default)]
struct Request {
    /// Treatment that its stream asks for.
    flow: Flow,
    /// Whether the block before was missed, so that the next one needs no operation of its own.
    is_missing: bool,
    /// Whether the block before was written past the cache.
    is_past: bool,
}

struct Keys<'a>(&'a [u32]);

impl Slots for Keys<'_> {
    #[inline]
    fn key(&self, slot: u32) -> u64 {
        u64::from(self.0[slot as usize])
    }
}

impl<'a, P: Policy> Engine<'a, P> {
    pub(super) fn new(
        trace: &'a Trace,
        config: &'a Config,
        build: impl Fn(u32) -> P,
    ) -> Result<Self, CacheError> {
        let geometry = Geometry { origin_blocks: trace.origin_blocks(), ..config.geometry };
        let count = geometry.sets()?;
        let size = |set| geometry.first_slot(set + 1, count) - geometry.first_slot(set, count);
        let shift = size(0).next_power_of_two().trailing_zeros();
        let room = u64::from(count) << shift;
        if room >= 1 << 31 {
            let message = "a simulated cache has at most 2^30 slots: simulate a smaller one";
            return Err(CacheError::Invalid(message.into()));
        }
        let sets = (0..count).map(|set| {
            let slots = u32::try_from(size(set)).unwrap_or(u32::MAX);
            let policy = build(slots);
            One {
                policy,
                slots,
                fresh: 0,
                freed: Vec::new(),
                dirty: 0,
                most_dirty: config.write_back.most_dirty(slots),
                dirty_since: None,
                until_look: 0,
                references: 0,
                operations: 0,
            }
        });
        let set_of = if count == 1 {
            Vec::new()
        } else {
            let mapping = geometry.mapping_without_tags()?;
            trace.blocks().iter().map(|&block| mapping.set_of(block)).collect()
        };
        let read_ahead_bytes = match config.policy {
            Kind::Belady => 0,
            _ => config.read_ahead_bytes,
        };
        let run_blocks = if count == 1 { u32::MAX } else { geometry.run_blocks };
        Ok(Engine {
            config,
            trace,
            run_blocks,
            shift,
            places: vec![0; trace.blocks().len()],
            ids: vec![0; usize::try_from(room).unwrap_or(0)],
            sets: sets.collect(),
            set_of,
            door: Door::new(config.admission, geometry.slots, config.policy),
            streams: Streams::new(config.sequential_bytes, read_ahead_bytes),
            outcome: Outcome::default(),
            request: Request::default(),
            second: 0,
        })
    }

    /// Replays the trace, and counts from reference number `from` on; `next` has the next uses when the policy wants
    /// them.
    pub(super) fn run(mut self, from: usize, next: Option<&[u32]>) -> Outcome {
        let references = self.trace.references();
        let mut hits = [0u64; 2];
        let mut total = [0u64; 2];
        let (mut request_misses, mut requests) = ([0u64; 2], [0u64; 2]);
        let mut whole = true;
        for (at, &reference) in references.iter().enumerate() {
            if at == from {
                (hits, total, requests, request_misses) = Default::default();
                self.outcome = Outcome::default();
                self.sets.iter_mut().for_each(|one| one.operations = 0);
            }
            self.pass(at);
            let (id, access) = (reference.id(), reference.access());
            let kind = usize::from(access == Access::Write);
            if reference.is_first() {
                requests[kind] += 1;
                whole = true;
                self.request = Request { flow: self.flow(at), ..Request::default() };
                if access == Access::Write && self.config.mode != Mode::WriteBack {
                    self.outcome.disk.operations.writes += 1;
                }
            }
            total[kind] += 1;
            self.door.see(self.trace.block(id), access);
            let place = self.places[id as usize];
            if let Some(next) = next {
                let next = next[at];
                let next = if next == u32::MAX { u64::MAX } else { u64::from(next) };
                let set = self.set_of_id(id);
                self.sets[set].policy.foresee(next);
            }
            if place != 0 {
                hits[kind] += 1;
                self.request.is_past = false;
                self.request.is_missing = false;
                self.hit(id, place, access);
            } else {
                if whole {
                    whole = false;
                    request_misses[kind] += 1;
                }
                self.miss(id, access);
                let is_last = references.get(at + 1).is_none_or(|next| next.is_first());
                if is_last && access == Access::Read && self.request.flow.ahead_blocks > 0 {
                    self.read_ahead(id);
                }
            }
        }
        let outcome = &mut self.outcome;
        let split = |counts: [u64; 2]| super::Split { reads: counts[0], writes: counts[1] };
        outcome.references = split(total);
        outcome.hits = split(hits);
        outcome.requests = split(requests);
        let whole = [requests[0] - request_misses[0], requests[1] - request_misses[1]];
        outcome.request_hits = split(whole);
        self.finish(from)
    }

    /// Treatment of the request that begins with reference `at`, as its stream asks for.
    #[inline]
    fn flow(&mut self, at: usize) -> Flow {
        if self.config.sequential_bytes == 0 && self.config.read_ahead_bytes == 0 {
            return Flow::default();
        }
        let references = &self.trace.references()[at..];
        let count = 1 + references[1..].iter().take_while(|next| !next.is_first()).count();
        let block = self.trace.block(references[0].id());
        self.streams.follow(references[0].access(), block * BLOCK, count as u64 * BLOCK)
    }

    #[inline]
    fn set_of_id(&self, id: u32) -> usize {
        self.set_of.get(id as usize).map_or(0, |&set| set as usize)
    }

    #[inline]
    fn hit(&mut self, id: u32, place: u32, access: Access) {
        let slot = (place & !DIRTY) - 1;
        let (set, local) = (slot >> self.shift, slot & ((1 << self.shift) - 1));
        let one = &mut self.sets[set as usize];
        if access == Access::Write {
            match self.config.mode {
                Mode::WriteBack => {
                    self.places[id as usize] = place | DIRTY;
                    self.outcome.flash_blocks_written += 1;
                    if place & DIRTY == 0 {
                        one.dirty += 1;
                        one.dirty_since.get_or_insert(self.second);
                        if one.dirty > one.most_dirty {
                            one.policy.hit(local, u64::from(id), access);
                            return self.clean(set as usize);
                        }
                    }
                }
                Mode::WriteThrough => {
                    self.outcome.disk.blocks.writes += 1;
                    self.outcome.flash_blocks_written += 1;
                }
                Mode::WriteAround => {
                    self.outcome.disk.blocks.writes += 1;
                    self.places[id as usize] = 0;
                    one.policy.remove(local);
                    one.freed.push(local);
                    return;
                }
            }
        }
        one.policy.hit(local, u64::from(id), access);
    }

    fn miss(&mut self, id: u32, access: Access) {
        let set = self.set_of_id(id);
        let one = &mut self.sets[set];
        let is_full = one.fresh == one.slots && one.freed.is_empty();
        let is_back = access == Access::Write && self.config.mode == Mode::WriteBack;
        let is_admitted = !self.request.flow.bypasses
            && (!is_full
                || is_back
                || self
                    .door
                    .admits(self.trace.block(id), || one.policy.comes_again(u64::from(id))));
        let is_past = access == Access::Write && (!is_back || !is_admitted);
        if access == Access::Read {
            self.read_missed(set);
        } else if is_past {
            self.outcome.disk.blocks.writes += 1;
            if is_back && !self.request.is_past {
                self.outcome.disk.operations.writes += 1;
                self.sets[set].operations += 1;
            }
        }
        self.request.is_past = is_past;
        if access == Access::Write && self.config.mode == Mode::WriteAround {
            return;
        }
        if !is_admitted {
            self.outcome.bypassed += 1;
            return;
        }
        self.outcome.flash_blocks_written += 1;
        self.let_in(id, set, access);
    }

    /// The disk reads a block, with the one before if that was missed, too.
    fn read_missed(&mut self, set: usize) {
        self.outcome.disk.blocks.reads += 1;
        if !std::mem::replace(&mut self.request.is_missing, true) {
            self.outcome.disk.operations.reads += 1;
            self.sets[set].operations += 1;
        }
    }

    /// The command that read block number `id` reads on, to a block that is cached or not to be
    /// let in. Blocks that the trace never refers to are read and written, but take no slot.
    fn read_ahead(&mut self, id: u32) {
        let block = self.trace.block(id);
        let end = (block + 1 + self.request.flow.ahead_blocks).min(self.trace.origin_blocks());
        let mut next = id + 1;
        for block in block + 1..end {
            let is_known = self.trace.blocks().get(next as usize) == Some(&block);
            if is_known {
                let set = self.set_of_id(next);
                let one = &self.sets[set];
                let has_room = one.fresh < one.slots || !one.freed.is_empty();
                if self.places[next as usize] != 0 || !(has_room || self.door.admits_unasked()) {
                    break;
                }
                self.let_in(next, set, Access::Read);
                next += 1;
            }
            self.outcome.disk.blocks.reads += 1;
            self.outcome.flash_blocks_written += 1;
            self.outcome.read_ahead += 1;
        }
    }

    fn let_in(&mut self, id: u32, set: usize, access: Access) {
        let one = &mut self.sets[set];
        let base = set << self.shift;
        let local = if one.fresh < one.slots {
            one.fresh += 1;
            one.fresh - 1
        } else if let Some(slot) = one.freed.pop() {
            slot
        } else {
            if one.dirty > 0 {
                if one.until_look == 0 {
                    let cold = self.config.write_back.cold_slots(one.slots);
                    one.until_look = (cold / 2).max(1);
                    self.clean(set);
                }
                self.sets[set].until_look -= 1;
            }
            let keys = Keys(&self.ids[base..]);
            let Some(victim) = self.sets[set].policy.evict(u64::from(id), &keys) else { return };
            self.outcome.evictions += 1;
            let gone = self.ids[base + victim as usize];
            if self.places[gone as usize] & DIRTY != 0 {
                self.write_back(gone, set);
            }
            self.places[gone as usize] = 0;
            victim
        };
        let slot = base + local as usize;
        self.ids[slot] = id;
        let dirty = access == Access::Write && self.config.mode == Mode::WriteBack;
        let place = u32::try_from(slot).unwrap_or(0) + 1;
        self.places[id as usize] = if dirty { place | DIRTY } else { place };
        let one = &mut self.sets[set];
        one.policy.insert(local, u64::from(id), access);
        if dirty {
            one.dirty += 1;
            one.dirty_since.get_or_insert(self.second);
            if one.dirty > one.most_dirty {
                self.clean(set);
            }
        }
    }

    /// Writes back the due blocks of a set.
    fn clean(&mut self, set: usize) {
        let base = set << self.shift;
        let one = &self.sets[set];
        let held = one.fresh - u32::try_from(one.freed.len()).unwrap_or(one.fresh);
        let filling = Filling { slots: one.slots, held, dirty: one.dirty };
        let place = |local: u32| self.places[self.ids[base + local as usize] as usize];
        let due = self.config.write_back.due_of(
            filling,
            |visit| one.policy.coldest(visit),
            |local| place(local) & DIRTY != 0,
        );
        for local in due {
            let id = self.ids[base + local as usize];
            // A neighbour may have taken it along.
            if self.places[id as usize] & DIRTY != 0 {
                self.write_back(id, set);
            }
        }
    }

    /// Time passes until the reference `at`: sets of half the age are written back, as the device does.
    #[inline]
    fn pass(&mut self, at: usize) {
        let seconds = self.trace.seconds();
        let is_new = |second: u32| {
            seconds.get(second as usize + 1).is_some_and(|first| *first as usize <= at)
        };
        while is_new(self.second) {
            self.second += 1;
            let Some(age) = self.config.dirty_age else { continue };
            for set in 0..self.sets.len() {
                let second = self.second;
                let is_due = |since: u32| 2 * u64::from(second - since) >= age.as_secs();
                if self.sets[set].dirty_since.is_some_and(is_due) {
                    self.sweep(set);
                }
            }
        }
    }

    /// Writes back all that is dirty in a set, in the order of blocks.
    fn sweep(&mut self, set: usize) {
        let base = set << self.shift;
        let slots = base..base + self.sets[set].fresh as usize;
        let is_there = |slot: &usize| {
            let place = self.places[self.ids[*slot] as usize];
            place & DIRTY != 0 && (place & !DIRTY) as usize == *slot + 1
        };
        let mut dirty: Vec<u32> = slots.filter(is_there).map(|slot| self.ids[slot]).collect();
        dirty.sort_unstable();
        for id in dirty {
            if self.places[id as usize] & DIRTY != 0 {
                self.write_back(id, set);
            }
        }
        self.sets[set].dirty_since = None;
    }

    /// Writes back the extent around block number `id`, which is dirty.
    fn write_back(&mut self, id: u32, set: usize) {
        let block = self.trace.block(id);
        let (blocks, places) = (self.trace.blocks(), &self.places);
        let id_of = |near: u64| {
            let id = u64::from(id).checked_add_signed(near.cast_signed() - block.cast_signed())?;
            let id = usize::try_from(id).ok()?;
            (blocks.get(id) == Some(&near)).then_some(id)
        };
        let extent = self.config.write_back.extent(block, self.run_blocks, |near| {
            match id_of(near).map(|id| places[id]) {
                Some(place) if place & DIRTY != 0 => Content::Dirty,
                Some(place) if place != 0 => Content::Clean,
                _ => Content::Absent,
            }
        });
        self.outcome.disk.operations.writes += 1;
        self.outcome.disk.blocks.writes += extent.end - extent.start;
        self.sets[set].operations += 1;
        let first = id - u32::try_from(block - extent.start).unwrap_or(0);
        for step in 0..u32::try_from(extent.end - extent.start).unwrap_or(0) {
            let place = &mut self.places[(first + step) as usize];
            self.sets[set].dirty -= u32::from(*place & DIRTY != 0);
            *place &= !DIRTY;
        }
        if self.sets[set].dirty == 0 {
            self.sets[set].dirty_since = None;
        }
    }

    fn finish(mut self, from: usize) -> Outcome {
        for id in 0..self.places.len() {
            if self.places[id] & DIRTY != 0 {
                let id = u32::try_from(id).unwrap_or(0);
                let set = self.set_of_id(id);
                self.write_back(id, set);
            }
        }
        for reference in self.trace.references().iter().skip(from) {
            let set = self.set_of_id(reference.id());
            self.sets[set].references += 1;
        }
        let counts = |of: fn(&One<P>) -> u64| self.sets.iter().map(of).collect::<Vec<_>>();
        self.outcome.busier_half_of_references = busier_half(&counts(|one| one.references));
        self.outcome.busier_half_of_operations = busier_half(&counts(|one| one.operations));
        self.outcome
    }
}
