//! Devices that lie: writes and flushes that are acknowledged and lost, reads and writes that go to another place,
//! commands that are slow.
//!
//! Metadata is verified: after any damage to it, every read is right or an error, then and after the cache was
//! closed and opened again. Data has no checksums (`docs/cache.md`, "What is promised"): a lie about a slot or
//! about the origin can show.

use crate::rig;
use std::sync::Arc;
use std::time::Duration;

use crate::oracle::{Act, Oracle, op, random};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng};
use esker_cache::{Cache, Mode};
use esker_device::{Device, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

const LBA: usize = 4096;
const LBAS: u64 = rig::ORIGIN / 4096;
/// Superblocks, the journal's areas, the tables of two sets.
const METADATA: u64 = rig::DATA / 4096;

/// How runs with one fault ended.
#[derive(Debug, Default)]
struct Tally {
    /// Everything read was right.
    right: u64,
    /// An error told of it, while the cache was open or when it was opened again.
    told: u64,
    /// Something else was read, after a lie about data.
    wrong: u64,
}

struct Run {
    mode: Mode,
    on_flash: bool,
    target: Target,
    effect: Effect,
}

/// Wrong blocks of the origin that `port` shows; errors are none.
fn wrong(oracle: &Oracle, port: &mut Port, told: &mut bool) -> Vec<u64> {
    let blocks = (0..LBAS).filter(|lba| match port.read(Lba(*lba), AlignedBuf::zeroed(LBA)) {
        Ok(buf) => !oracle.fits(*lba, &buf),
        Err(_) => {
            *told = true;
            false
        }
    });
    blocks.collect()
}

impl Run {
    /// Whether the fault struck.
    fn strike(&self, nth: u64, tally: &mut Tally) -> bool {
        let Run { mode, on_flash, target, effect } = self;
        let about = format!("{mode}, flash {on_flash}, {target:?} {nth}, {effect:?}");
        let (origin, flash) = rig::devices(*mode, 4096, 4096);
        let plan = FaultPlan::new();
        let lie = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
            Arc::new(FaultDevice::new(device.clone(), &plan))
        };
        let (bad_origin, bad_flash) = match on_flash {
            true => (origin.clone(), lie(&flash)),
            false => (lie(&origin), flash.clone()),
        };
        plan.once(*target, nth, effect.clone());
        let mut told = false;
        let mut shown = Vec::new();
        let mut oracle = Oracle::new(LBAS, LBA);
        let opened = Cache::open(bad_origin, bad_flash, rig::open_options());
        if let Ok(cache) = opened {
            let mut port = Port::open(&cache, 4).unwrap();
            let mut rng = Rng::new(5);
            for n in 0..160 {
                let act = random(&mut rng, LBAS, 1, n + 1);
                match (port.run(op(&act, LBA)), &act) {
                    (Ok(Some(buf)), Act::Read { lba, .. }) => {
                        let blocks = (*lba..).zip(buf.chunks(LBA));
                        shown.extend(
                            blocks.filter(|(lba, b)| !oracle.fits(*lba, b)).map(|(l, _)| l),
                        );
                    }
                    (Ok(_), _) => oracle.done(&act),
                    (Err(_), _) => {
                        told = true;
                        oracle.maybe(&act);
                    }
                }
                if n % 7 == 3 {
                    told |= cache.step(n % 2 == 0).is_err();
                }
            }
            told |= cache.close().is_err();
        } else {
            told = true;
        }
        let struck = plan.struck();
        plan.heal();
        match Cache::open(origin, flash, rig::open_options()) {
            Ok(cache) => {
                let mut port = Port::open(&cache, 4).unwrap();
                shown.extend(wrong(&oracle, &mut port, &mut told));
            }
            Err(_) => told = true,
        }
        let Some((_, lba, _)) = struck else {
            assert!(!told && shown.is_empty(), "{about}: without a fault");
            return false;
        };
        let is_data = |lba: u64| (METADATA..rig::LAST / 4096).contains(&lba);
        let to = match effect {
            Effect::Misdirect { distance } => lba.0 + distance.0,
            _ => lba.0,
        };
        let is_metadata = *on_flash && !is_data(lba.0) && !is_data(to);
        if shown.is_empty() {
            *(if told { &mut tally.told } else { &mut tally.right }) += 1;
        } else {
            assert!(!is_metadata, "{about}, at {lba:?}: wrong blocks {shown:?}");
            tally.wrong += 1;
        }
        true
    }

    fn strike_all(&self) -> Tally {
        let mut tally = Tally::default();
        for nth in 0.. {
            if !self.strike(nth, &mut tally) {
                break;
            }
        }
        println!("{}, flash {}, {:?}: {tally:?}", self.mode, self.on_flash, self.effect);
        tally
    }
}

/// In every mode, on each device.
fn strike_all(target: Target, effect: &Effect) -> Vec<Tally> {
    let runs = rig::MODES.into_iter().flat_map(|mode| {
        let run = |on_flash| Run { mode, on_flash, target, effect: effect.clone() };
        [run(true), run(false)]
    });
    runs.map(|run| run.strike_all()).collect()
}

#[test]
fn lost_writes_of_metadata_are_told_of_or_harmless() {
    let tallies = strike_all(Target::Write, &Effect::Lose);
    // The other copy is there.
    assert!(tallies.iter().all(|tally| tally.told == 0 && tally.right > 0), "{tallies:?}");
}

#[test]
fn misdirected_writes_of_metadata_are_told_of_or_harmless() {
    for distance in [1, 9] {
        strike_all(Target::Write, &Effect::Misdirect { distance: LbaCount(distance) });
    }
}

#[test]
fn misdirected_reads_of_metadata_are_told_of_or_harmless() {
    for distance in [1, 9] {
        strike_all(Target::Read, &Effect::Misdirect { distance: LbaCount(distance) });
    }
}

#[test]
fn lost_flushes_and_slow_commands_change_nothing_without_a_crash() {
    let slow = Effect::DelaySpan { clock: Clock::virtual_time(), span: Duration::from_secs(3) };
    let runs = [
        (Target::Flush, Effect::Lose),
        (Target::Read, slow.clone()),
        (Target::Write, slow.clone()),
        (Target::Flush, slow),
    ];
    for (target, effect) in runs {
        for tally in strike_all(target, &effect) {
            assert_eq!((tally.told, tally.wrong), (0, 0), "{target:?} {effect:?}");
        }
    }
}
