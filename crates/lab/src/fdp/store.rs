//! A store that writes records in large blocks and never in place, the way of Aerospike's storage
//! engine up to release 7.0 (its source, `drv_ssd.c`, was read for the rules).
//!
//! A record goes to the *client buffer*, which is written when it is a full block. The record's older version is dead
//! from then on. A block of which less than the threshold is alive waits, first come first served, to be defragmented.
//! Its live records go to a second buffer, and the block is free once that is written. Nothing is discarded.
//!
//! The choice of the next block decides which writes the drive sees. The store takes the block that has been free the
//! longest; it takes one that was never written only when none is free. So a store keeps to a part of its namespace
//! that is as large as its blocks need at their fullest.
//!
//! Invariants
//! 1. `places[r]` is the slot that holds the latest version of record `r`; `records` of that slot is
//!    `r`.
//! 2. `alive` of a block is how many of its slots hold a latest version.
//! 3. A block is in the queue of free blocks, in that for defragmentation, under a buffer, waiting
//!    for a buffer to be written, or none of these: then it is written and full enough.

use std::collections::VecDeque;

use esker_base::Rng;
use esker_base::units::to_usize;

use super::keys::Keys;
use super::sink::Sink;
use super::writer::Writer;
use crate::LabError;

/// The stream of clients' writes.
const CLIENT: u16 = 0;
/// The stream of records that defragmentation moves.
const DEFRAGMENTATION: u16 = 1;
/// The place of a record that was never written.
const NOWHERE: u32 = u32::MAX;

/// Parameters of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreOptions {
    /// Bytes of its namespace.
    pub bytes: u64,
    /// Bytes per block.
    pub block_bytes: u64,
    /// Bytes per record, its header included.
    pub record_bytes: u64,
    /// Records, all of which are loaded before any is updated.
    pub records: u32,
    /// A block is defragmented when less than this share of it is alive.
    pub threshold: f64,
}

/// Where a block is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Free, or never written.
    Free,
    /// Being filled, or written and full enough.
    Used { is_written: bool },
    /// Waiting to be defragmented.
    Queued,
    /// Moved, or being so; free when the buffer with the last of it is written.
    Vacated,
}

/// A block in memory.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    block: u32,
    filled: u32,
}

/// A store.
pub struct Store {
    options: StoreOptions,
    /// Records per block.
    slots: u32,
    /// Slots are numbered `block << shift | index`, so that finding a slot's block is cheap.
    shift: u32,
    /// Fewer records alive than this make a block worth defragmenting.
    enough: u32,
    places: Vec<u32>,
    records: Vec<u32>,
    alive: Vec<u32>,
    states: Vec<State>,
    free: VecDeque<u32>,
    /// The first block that was never written.
    pristine: u32,
    queue: VecDeque<u32>,
    moved: Option<Buffer>,
    /// Free once the buffer of moved records is written.
    vacated: Vec<u32>,
    /// Records of the block at hand, kept for its memory.
    batch: Vec<u32>,
    loaded: u32,
    keys: Keys,
    rng: Rng,
}

impl Store {
    /// An empty store. Its first turns load the records in the order of their numbers, the
    /// others update those that `keys` chooses.
    ///
    /// # Errors
    /// When sizes do not fit each other.
    pub fn new(options: StoreOptions, keys: Keys, seed: u64) -> Result<Store, LabError> {
        let narrow = |value: u64| {
            u32::try_from(value).map_err(|_| {
                LabError::Invalid(format!("a store of {} bytes is too large", options.bytes))
            })
        };
        if options.block_bytes == 0 || options.record_bytes == 0 || options.records == 0 {
            return Err(LabError::Invalid("a store has blocks and records of some size".into()));
        }
        let slots = narrow(options.block_bytes / options.record_bytes)?;
        let blocks = narrow(options.bytes / options.block_bytes)?;
        let shift = slots.max(1).next_power_of_two().trailing_zeros();
        let (room, numbers) = (u64::from(slots) * u64::from(blocks), u64::from(blocks) << shift);
        if numbers >= u64::from(NOWHERE) {
            return Err(LabError::Invalid(format!(
                "a store of {} bytes has more records of {} bytes than it can number: use larger ones",
                options.bytes, options.record_bytes
            )));
        }
        if u64::from(options.records) > room {
            return Err(LabError::Invalid(format!(
                "{} records of {} bytes do not fit {blocks} blocks of {} bytes",
                options.records, options.record_bytes, options.block_bytes
            )));
        }
        // Alive bytes below the threshold's: so many records at most.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        #[allow(clippy::cast_sign_loss)] // a count of records of a block
        let enough = (options.threshold * options.block_bytes as f64 / options.record_bytes as f64)
            .ceil() as u32;
        Ok(Store {
            options,
            slots,
            shift,
            enough,
            places: vec![NOWHERE; options.records as usize],
            records: vec![0; to_usize(numbers)],
            alive: vec![0; blocks as usize],
            states: vec![State::Free; blocks as usize],
            free: VecDeque::with_capacity(blocks as usize),
            pristine: 0,
            queue: VecDeque::new(),
            moved: None,
            vacated: Vec::new(),
            batch: Vec::new(),
            loaded: 0,
            keys,
            rng: Rng::new(seed),
        })
    }

    /// The record that the client writes next.
    fn next_record(&mut self) -> u32 {
        if !self.is_loading() {
            return self.keys.choose(&mut self.rng);
        }
        self.loaded += 1;
        self.loaded - 1
    }

    /// A block to fill.
    fn take_block(&mut self) -> Result<Buffer, LabError> {
        let block = match self.free.pop_front() {
            Some(block) => block,
            None if (self.pristine as usize) < self.states.len() => {
                self.pristine += 1;
                self.pristine - 1
            }
            None => {
                let live = u64::from(self.options.records) * self.options.record_bytes;
                return Err(LabError::Full {
                    block_bytes: self.options.block_bytes,
                    live_percent: 100 * live / self.options.bytes.max(1),
                });
            }
        };
        self.states[block as usize] = State::Used { is_written: false };
        Ok(Buffer { block, filled: 0 })
    }

    /// Puts a record's latest version into a buffer.
    #[inline]
    fn append(&mut self, record: u32, buffer: &mut Buffer) {
        let slot = buffer.block << self.shift | buffer.filled;
        buffer.filled += 1;
        self.records[slot as usize] = record;
        self.alive[buffer.block as usize] += 1;
        let old = std::mem::replace(&mut self.places[record as usize], slot);
        if old != NOWHERE {
            self.bury(old >> self.shift);
        }
    }

    /// A record of the block is dead.
    #[inline]
    fn bury(&mut self, block: u32) {
        let alive = &mut self.alive[block as usize];
        *alive -= 1;
        if *alive < self.enough {
            self.judge(block);
        }
    }

    /// Frees or queues a written block that is not full enough.
    fn judge(&mut self, block: u32) {
        let alive = self.alive[block as usize];
        if self.states[block as usize] != (State::Used { is_written: true }) || alive >= self.enough
        {
            return;
        }
        if alive == 0 {
            self.release(block);
        } else {
            self.states[block as usize] = State::Queued;
            self.queue.push_back(block);
        }
    }

    fn release(&mut self, block: u32) {
        self.states[block as usize] = State::Free;
        self.free.push_back(block);
    }

    /// Writes a full buffer.
    fn flush(&mut self, buffer: Buffer, stream: u16, sink: &mut dyn Sink) -> Result<(), LabError> {
        let block_bytes = self.options.block_bytes;
        sink.write(u64::from(buffer.block) * block_bytes, block_bytes, stream)?;
        self.states[buffer.block as usize] = State::Used { is_written: true };
        self.judge(buffer.block);
        Ok(())
    }

    /// Moves the live records out of every block that waits for it.
    fn defragment(&mut self, sink: &mut dyn Sink) -> Result<(), LabError> {
        while let Some(block) = self.queue.pop_front() {
            if self.alive[block as usize] == 0 {
                self.release(block);
                continue;
            }
            self.states[block as usize] = State::Vacated;
            let first = block << self.shift;
            let slots = first..first + self.slots;
            let (records, places) = (&self.records, &self.places);
            let of_block = &records[slots.start as usize..slots.end as usize];
            let living = of_block.iter().zip(slots);
            let living = living.filter(|&(&record, slot)| places[record as usize] == slot);
            self.batch.clear();
            self.batch.extend(living.map(|(&record, _)| record));
            for index in 0..self.batch.len() {
                let record = self.batch[index];
                let mut buffer = match self.moved.take() {
                    Some(buffer) => buffer,
                    None => self.take_block()?,
                };
                self.append(record, &mut buffer);
                if buffer.filled < self.slots {
                    self.moved = Some(buffer);
                    continue;
                }
                self.flush(buffer, DEFRAGMENTATION, sink)?;
                for block in std::mem::take(&mut self.vacated) {
                    self.release(block);
                }
            }
            self.vacated.push(block);
        }
        Ok(())
    }
}

impl Writer for Store {
    fn turn(&mut self, sink: &mut dyn Sink) -> Result<u64, LabError> {
        let mut buffer = self.take_block()?;
        self.batch.clear();
        let mut places = 0;
        for _ in 0..self.slots {
            let record = self.next_record();
            places ^= self.places[record as usize];
            self.batch.push(record);
        }
        // All places have been asked for by now, so that the loop below waits for memory once and not for each record.
        std::hint::black_box(places);
        for index in 0..self.batch.len() {
            let record = self.batch[index];
            self.append(record, &mut buffer);
        }
        self.flush(buffer, CLIENT, sink)?;
        self.defragment(sink)?;
        Ok(self.options.block_bytes)
    }

    fn is_loading(&self) -> bool {
        self.loaded < self.options.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdp::keys::KeyLaw;

    /// Which blocks were written, how often, and by which stream.
    struct Log {
        bytes: u64,
        block_bytes: u64,
        written: Vec<(u64, u16)>,
    }

    impl Sink for Log {
        fn write(&mut self, offset: u64, bytes: u64, stream: u16) -> Result<(), LabError> {
            assert!(bytes == self.block_bytes && offset.is_multiple_of(bytes));
            self.written.push((offset / bytes, stream));
            Ok(())
        }

        fn discard(&mut self, _: u64, _: u64) -> Result<(), LabError> {
            unreachable!("a store discards nothing")
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }
    }

    /// Every invariant, by looking at everything.
    fn check(store: &Store) {
        let block_of = |slot: u32| (slot >> store.shift) as usize;
        let mut alive = vec![0; store.alive.len()];
        for (record, &slot) in (0..).zip(&store.places).filter(|(_, slot)| **slot != NOWHERE) {
            assert_eq!(store.records[slot as usize], record);
            alive[block_of(slot)] += 1;
        }
        assert_eq!(alive, store.alive);
        let mut found = vec![0; store.states.len()];
        let mut count = |blocks: &mut dyn Iterator<Item = u32>, state: State| {
            for block in blocks {
                found[block as usize] += 1;
                assert_eq!(store.states[block as usize], state, "block {block}");
            }
        };
        count(&mut store.free.iter().copied(), State::Free);
        let blocks = u32::try_from(store.states.len()).unwrap();
        count(&mut (store.pristine..blocks), State::Free);
        count(&mut store.queue.iter().copied(), State::Queued);
        count(&mut store.vacated.iter().copied(), State::Vacated);
        count(&mut store.moved.iter().map(|one| one.block), State::Used { is_written: false });
        for (block, &times) in found.iter().enumerate() {
            let is_resting = store.states[block] == State::Used { is_written: true };
            assert_eq!(times, u32::from(!is_resting), "block {block}");
            assert!(!is_resting || store.alive[block] >= store.enough, "block {block}");
        }
    }

    fn run(law: KeyLaw, fill: f64, turns: u32) -> (Store, Log) {
        let (bytes, block_bytes, record_bytes) = (1 << 20, 8 << 10, 1000);
        let records = u32::try_from(1 << 20).unwrap() / 1000;
        let records = (f64::from(records) * fill).round();
        #[allow(clippy::cast_possible_truncation)]
        let records = records as u32;
        let options = StoreOptions { bytes, block_bytes, record_bytes, records, threshold: 0.5 };
        let mut store = Store::new(options, Keys::new(law, records), 3).unwrap();
        let mut log = Log { bytes, block_bytes, written: Vec::new() };
        for _ in 0..turns {
            let free = (store.free.len(), store.pristine);
            store.turn(&mut log).unwrap();
            // A turn takes a block for the client, and few for moved records.
            assert!(free.0 < 5 || store.pristine == free.1, "{free:?}");
            check(&store);
        }
        (store, log)
    }

    #[test]
    fn invariants_hold_whatever_is_updated() {
        for law in [KeyLaw::Uniform, KeyLaw::Zipfian { table_records: None }] {
            for fill in [0.1, 0.4, 0.6] {
                let (store, log) = run(law, fill, 1_500);
                assert!(!store.is_loading() && log.written.len() >= 1_500);
            }
        }
    }

    #[test]
    fn a_store_keeps_to_the_part_of_its_namespace_that_it_needs() {
        let (store, log) = run(KeyLaw::Uniform, 0.4, 3_000);
        let most = log.written.iter().map(|&(block, _)| block).max().unwrap();
        assert!(most < 128 * 7 / 10, "{most} of 128 blocks");
        assert_eq!(u64::from(store.pristine), most + 1);
    }

    #[test]
    fn blocks_are_written_again_in_the_order_in_which_they_were_freed() {
        let (_, log) = run(KeyLaw::Uniform, 0.5, 3_000);
        let mut last = [None; 128];
        let mut ages = Vec::new();
        for (at, &(block, _)) in (0usize..).zip(&log.written) {
            let block = usize::try_from(block).unwrap();
            ages.extend(last[block].replace(at).map(|earlier: usize| at - earlier));
        }
        // A block that was just freed waits behind all others that are free.
        assert!(ages.iter().all(|&age| age >= 10), "{:?}", ages.iter().min());
    }

    #[test]
    fn defragmentation_writes_to_its_own_stream() {
        let (_, log) = run(KeyLaw::Uniform, 0.6, 1_500);
        let moved = log.written.iter().filter(|&&(_, stream)| stream == DEFRAGMENTATION).count();
        assert!(moved > 200 && log.written.len() - moved == 1_500, "{moved}");
    }
}
