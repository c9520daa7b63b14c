//! Versions that each LBA may read as: now, and after a crash. Discards leave zeroes on the devices below, so they have
//! to do so here.

#![allow(dead_code)] // each test file uses a part

use std::collections::BTreeSet;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_device::{Op, Port};

/// An operation of a script, with versions that make every LBA's content unique.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Read { lba: u64, count: u64 },
    Write { lba: u64, count: u64, version: u64, fua: bool },
    Zero { lba: u64, count: u64 },
    Discard { lba: u64, count: u64 },
    Flush,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    /// Versions that it may read as now.
    current: BTreeSet<u64>,
    /// Versions that it may read as after a crash.
    possible: BTreeSet<u64>,
}

/// The possible content of every LBA.
#[derive(Clone)]
pub(crate) struct Oracle {
    cells: Vec<Cell>,
    lba_size: usize,
    /// Every version an LBA ever had, to name the one that was found.
    history: Vec<BTreeSet<u64>>,
}

/// The content of a version of an LBA; version 0 is zeroes.
pub(crate) fn fill(block: &mut [u8], lba: u64, version: u64) {
    match version {
        0 => block.fill(0),
        _ => {
            let seed = (lba << 32 ^ version).to_le_bytes();
            for (n, chunk) in block.chunks_mut(8).enumerate() {
                chunk.copy_from_slice(&seed[..chunk.len()]);
                chunk[7] ^= u8::try_from(n % 251).unwrap() | 1;
            }
        }
    }
}

impl Oracle {
    pub(crate) fn new(lbas: u64, lba_size: usize) -> Oracle {
        let zero = BTreeSet::from([0]);
        let cell = Cell { current: zero.clone(), possible: zero.clone() };
        let (cells, history) = (vec![cell; to_usize(lbas)], vec![zero; to_usize(lbas)]);
        Oracle { cells, lba_size, history }
    }

    /// An operation was acknowledged.
    pub(crate) fn done(&mut self, act: &Act) {
        self.apply(act, true);
    }

    /// An operation failed, or was under way when everything stopped.
    pub(crate) fn maybe(&mut self, act: &Act) {
        self.apply(act, false);
    }

    fn apply(&mut self, act: &Act, is_done: bool) {
        let (lba, count) = match act {
            Act::Read { .. } => return,
            Act::Flush if is_done => {
                self.cells.iter_mut().for_each(|cell| cell.possible = cell.current.clone());
                return;
            }
            Act::Flush => return,
            Act::Write { lba, count, .. }
            | Act::Zero { lba, count }
            | Act::Discard { lba, count } => (*lba, *count),
        };
        for at in to_usize(lba)..to_usize(lba + count) {
            let new: BTreeSet<u64> = match act {
                Act::Write { version, .. } => BTreeSet::from([*version]),
                _ => BTreeSet::from([0]),
            };
            if let Act::Write { version, .. } = act {
                self.history[at].insert(*version);
            }
            let cell = &mut self.cells[at];
            cell.possible.extend(&new);
            if is_done {
                cell.current = new;
            } else {
                cell.current.extend(&new);
            }
            if is_done && matches!(act, Act::Write { fua: true, .. }) {
                cell.possible = cell.current.clone();
            }
        }
    }

    /// Everything stopped: any version that may be there after a crash may be read now.
    pub(crate) fn crash(&mut self) {
        self.cells.iter_mut().for_each(|cell| cell.current = cell.possible.clone());
    }

    /// Checks content that was read; from now on nothing else may be.
    pub(crate) fn check(&mut self, lba: u64, bytes: &[u8], about: &dyn std::fmt::Display) {
        for (lba, block) in (lba..).zip(bytes.chunks(self.lba_size)) {
            let cell = &mut self.cells[to_usize(lba)];
            let mut expected = vec![0; self.lba_size];
            let found = cell.current.iter().copied().find(|version| {
                fill(&mut expected, lba, *version);
                expected == block
            });
            let Some(found) = found else {
                let was = self.history[to_usize(lba)].iter().find(|version| {
                    fill(&mut expected, lba, **version);
                    expected == block
                });
                panic!("LBA {lba} is version {was:?}, not one of {:?}: {about}", cell.current);
            };
            cell.current = BTreeSet::from([found]);
            if !cell.possible.contains(&found) {
                cell.possible.insert(found);
            }
        }
    }

    /// Whether an LBA may read as this.
    pub(crate) fn fits(&self, lba: u64, block: &[u8]) -> bool {
        let mut expected = vec![0; self.lba_size];
        self.cells[to_usize(lba)].current.iter().any(|version| {
            fill(&mut expected, lba, *version);
            expected == block
        })
    }

    /// Reads everything through `port` and checks it. The versions are not asked for: reading the
    /// same twice shows whether they stay.
    pub(crate) fn check_all(&mut self, port: &mut Port, about: &dyn std::fmt::Display) {
        let all = u64::try_from(self.cells.len()).unwrap();
        let mut lba = 0;
        while lba < all {
            let count = (all - lba).min(13);
            let buf = AlignedBuf::zeroed(to_usize(count) * self.lba_size);
            let buf = port.read(Lba(lba), buf).unwrap_or_else(|error| panic!("{error}: {about}"));
            self.check(lba, &buf, about);
            lba += count;
        }
    }
}

/// The command of an operation.
pub(crate) fn op(act: &Act, lba_size: usize) -> Op {
    let bytes = |count: u64| to_usize(count) * lba_size;
    match act {
        Act::Read { lba, count } => {
            Op::Read { lba: Lba(*lba), buf: AlignedBuf::zeroed(bytes(*count)) }
        }
        Act::Write { lba, count, version, fua } => {
            let mut buf = AlignedBuf::zeroed(bytes(*count));
            for (lba, block) in (*lba..).zip(buf.chunks_mut(lba_size)) {
                fill(block, lba, *version);
            }
            Op::Write { lba: Lba(*lba), buf, placement: None, fua: *fua }
        }
        Act::Zero { lba, count } => Op::WriteZeroes { lba: Lba(*lba), count: LbaCount(*count) },
        Act::Discard { lba, count } => Op::Discard { lba: Lba(*lba), count: LbaCount(*count) },
        Act::Flush => Op::Flush,
    }
}

/// A random operation on `lbas` LBAs of which `per_block` are in a block of the cache.
pub(crate) fn random(rng: &mut Rng, lbas: u64, per_block: u64, version: u64) -> Act {
    // Mostly whole blocks, mostly a few hot ones.
    let blocks = lbas / per_block;
    let block = match rng.chance(2, 3) {
        true => rng.below(blocks.min(12)),
        false => rng.below(blocks),
    };
    let (mut lba, mut count) = (block * per_block, per_block * (1 + rng.below(3)));
    if rng.chance(1, 5) {
        lba += rng.below(per_block);
        count = 1 + rng.below(2 * per_block);
    }
    let count = count.min(lbas - lba);
    match rng.below(20) {
        0..6 => Act::Read { lba, count },
        6..14 => Act::Write { lba, count, version, fua: rng.chance(1, 6) },
        14 => Act::Zero { lba, count },
        15 => Act::Discard { lba, count },
        _ => Act::Flush,
    }
}
