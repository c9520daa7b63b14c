//! Judges whether the state after a kill is the promised one.
//!
//! Of each lane: the state is exactly the one after some write; all that was synced, or
//! acknowledged longer ago than the durability window, is in it; nothing is in it that was never
//! begun. Across lanes: a write is there only with all that was acknowledged before it began, and the
//! transactions in which they add to one number all count.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use esker_kv::Kvdb;

use crate::history::{self, LANES, Lane};
use crate::watch::Heard;

/// The time that the device may take to write and flush, on a busy machine, before a write that is
/// due is durable, and that of the entry in the acknowledgements' file.
const MARGIN: Duration = Duration::from_millis(200);

const LANE_COUNT: usize = 2;
const _: () = assert!(LANES == 2, "as many as LANE_COUNT");

/// Hears the promises to lanes, and judges the states that they find.
pub(crate) struct Judge {
    window: Duration,
    lanes: [Promised; LANE_COUNT],
    lost_writes: Cell<u64>,
    /// The oldest write that was lost: how long before the kill it was acknowledged, at least.
    oldest_lost: Cell<Duration>,
}

/// The promises to one lane.
#[derive(Clone, Debug, Default)]
struct Promised {
    /// Survives everything: synced, or found after an earlier kill.
    durable: u64,
    /// The last child that got as far as writing.
    heard: Heard,
    /// The last write that the children before it had acknowledged, at most.
    ever: u64,
    /// How many children were killed since, each with one write that it may have begun.
    killed: u64,
}

impl Judge {
    pub(crate) fn new(durability_ms: u64) -> Judge {
        Judge {
            window: Duration::from_millis(durability_ms),
            lanes: Default::default(),
            lost_writes: Cell::new(0),
            oldest_lost: Cell::new(Duration::ZERO),
        }
    }

    /// From now on judges by another durability window.
    pub(crate) fn promise(&mut self, durability_ms: u64) {
        self.window = Duration::from_millis(durability_ms);
    }

    /// Takes note of the promises to a child before it was killed.
    pub(crate) fn hear(&mut self, lane: usize, heard: &Heard) {
        let window = self.window;
        let promised = &mut self.lanes[lane];
        promised.killed += 1;
        if heard.last == 0 {
            return;
        }
        promised.durable = promised.durable_within(window);
        promised.ever = promised.ever.max(promised.heard.last);
        // This child went on from a state that its recovery had made durable.
        promised.heard = heard.clone();
    }

    /// Checks that nothing was promised yet.
    pub(crate) fn check_nothing_promised(&self) -> Result<(), String> {
        let promised = self.lanes.iter().any(|lane| lane.durable_within(self.window) > 0);
        if promised {
            return Err(format!("there is no KVDB, though this was promised: {self}"));
        }
        Ok(())
    }

    /// Judges the content of `db`, and returns the state of each lane.
    pub(crate) fn check(&self, db: &Kvdb) -> Result<[u64; LANE_COUNT], String> {
        let mut states = [0; LANE_COUNT];
        for (lane, promised) in (0..LANES).zip(&self.lanes) {
            let index = usize::try_from(lane).unwrap();
            let state = history::state_of(db, lane)?;
            states[index] = state;
            let durable = promised.durable_within(self.window);
            if state < durable {
                return Err(format!("lane {lane} is at write {state}, but {durable} was promised"));
            }
            let begun = promised.ever.max(promised.heard.last) + promised.killed;
            if state > begun {
                return Err(format!(
                    "lane {lane} is at write {state}, but {begun} is the last begun"
                ));
            }
            Lane::new(lane).compare(db, state)?;
        }
        for lane in 0..LANES {
            let [_, known @ ..] = history::mark_of(db, lane)?;
            for (other, (known, state)) in known.iter().zip(states).enumerate() {
                if *known > state {
                    return Err(format!(
                        "lane {other} is at write {state}, but what lane {lane} wrote after write \
                         {known} is there"
                    ));
                }
            }
        }
        history::check_sum(db, states)?;
        self.note_losses(states);
        Ok(states)
    }

    fn note_losses(&self, states: [u64; LANE_COUNT]) {
        for (promised, state) in self.lanes.iter().zip(states) {
            let heard = &promised.heard;
            let lost = heard.last.saturating_sub(state);
            self.lost_writes.set(self.lost_writes.get() + lost);
            if let Some((_, age)) = heard.ages.iter().find(|(n, _)| *n > state) {
                self.oldest_lost.set(self.oldest_lost.get().max(*age));
            }
        }
    }

    /// How many acknowledged writes were not found again, in all.
    pub(crate) fn lost_writes(&self) -> u64 {
        self.lost_writes.get()
    }

    /// The state that was judged right counts from now on: it has been made durable.
    pub(crate) fn settle(&mut self, states: [u64; LANE_COUNT]) {
        self.lanes = states.map(|state| Promised {
            durable: state,
            heard: Heard::default(),
            ever: state,
            killed: 0,
        });
    }
}

impl Promised {
    /// The last write that has to be there.
    fn durable_within(&self, window: Duration) -> u64 {
        let due = self.heard.ages.iter().rev().find(|(_, age)| *age > window + MARGIN);
        let due = due.map_or(0, |(n, _)| *n);
        self.durable.max(self.heard.synced).max(due)
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "window {:?} and a margin of {MARGIN:?}; {} acknowledged writes lost, the oldest {:?} \
             before its kill;",
            self.window,
            self.lost_writes.get(),
            self.oldest_lost.get()
        )?;
        for (lane, promised) in self.lanes.iter().enumerate() {
            write!(
                f,
                " lane {lane}: acknowledged {}, synced {}, durable {};",
                promised.heard.last,
                promised.heard.synced,
                promised.durable_within(self.window)
            )?;
        }
        Ok(())
    }
}
