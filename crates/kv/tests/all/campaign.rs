//! The reliability campaign: random operations of every kind on several KVSs, through maintenance of
//! every kind, crashes on devices that forget, and devices that fail; all of it against a plain oracle
//! that keeps every version.
//!
//! A *case* follows from its seed alone. It is a KVDB with several lives: each opens the remains of the one before,
//! works, and ends in a close, a crash or a fault. Some of the images that a crash could have left anywhere in a
//! life are opened and compared, and the next life goes on from one of them.
//!
//! | command, in front of `cargo test --release -p esker-kv --test all campaign:: -- --nocapture` | |
//! | --- | --- |
//! | `ESKER_SOAK=3600` | runs cases for that many seconds, on seeds never used before |
//! | `ESKER_SEED=17` | runs this case alone |

pub(crate) mod hook;
mod life;
mod ops;
mod tally;
mod world;

use std::time::Duration;

use self::tally::Tally;
use esker_base::Clock;
use esker_sim::{Effect, Fault, Plan, Repeat, Target};

/// Says which case it was when one fails.
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            println!(
                "this case again: ESKER_SEED={seed} cargo test -p esker-kv --test all campaign::"
            );
        }
    }
}

fn run(seed: u64, tally: Tally) -> Tally {
    let _case = Case(seed);
    life::run(seed, tally)
}

#[test]
fn anything_in_any_order_crashed_and_broken_is_what_the_oracle_says() {
    let clock = Clock::real();
    let began = clock.now();
    let spent = || clock.now().since(began);
    let mut tally = Tally::default();
    if let Ok(seed) = std::env::var("ESKER_SEED") {
        tally = run(seed.parse().expect("ESKER_SEED is a number"), tally);
    } else if let Some(span) = life::soak() {
        let first = u64::try_from(esker_base::clock::unix_time().as_millis()).unwrap() << 20;
        let mut told = Duration::ZERO;
        println!("from seed {first} on");
        for seed in first.. {
            tally = run(seed, tally);
            if spent() > span {
                println!("seeds {first} to {seed}");
                break;
            }
            if spent() > told + Duration::from_secs(60) {
                told = spent();
                println!("{tally}\n");
            }
        }
    } else {
        for seed in 0..CASES {
            tally = run(seed, tally);
        }
        assert!(tally.maintenance.iter().all(|steps| *steps > 0), "{tally}");
        assert!(tally.called_off > 3, "{tally}");
        assert!(tally.conflicts > 0 && tally.no_space > 0 && tally.fault_ends > 0, "{tally}");
    }
    let names: Vec<&str> = ops::TABLE.iter().map(|(_, name, _)| *name).collect();
    println!("{}", tally.report(&names, spent()));
}

/// A fault at every command of a kind, one in each run; as many runs as there are such commands.
fn strike_all(target: Target, effect: &Effect, repeat: Repeat, step: usize) {
    let mut tally = Tally::default();
    for nth in (0..).step_by(step) {
        let fault = Fault { target, nth, repeat, effect: effect.clone() };
        let _what = What(format!("{fault:?}"));
        let fired;
        (fired, tally) = life::strike(19, fault, tally);
        if !fired {
            assert!(nth > 3, "{target:?}: a life has commands of every kind");
            break;
        }
    }
    println!("{target:?}, {effect:?}, {repeat:?}\n{tally}\n");
}

/// Prints the operations done when a test fails.
struct What(String);

impl Drop for What {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0);
        }
    }
}

#[test]
fn a_failing_command_at_any_position_surfaces_and_loses_nothing() {
    for target in [Target::Read, Target::Write, Target::Flush, Target::Discard] {
        strike_all(target, &Effect::Fail, Repeat::Once, STEP);
        strike_all(target, &Effect::Fail, Repeat::FromThenOn, 5 * STEP);
    }
}

#[test]
fn a_short_transfer_at_any_position_surfaces_and_loses_nothing() {
    strike_all(Target::Read, &Effect::Short, Repeat::Once, 3 * STEP);
    strike_all(Target::Write, &Effect::Short, Repeat::Once, 3 * STEP);
}

#[test]
fn a_flipped_bit_in_any_read_is_never_taken_for_data() {
    for (offset, mask) in [(37, 0x10), (2900, 0x01)] {
        strike_all(Target::Read, &Effect::Corrupt { offset, mask }, Repeat::Once, 3 * STEP);
    }
}

/// The device has no room for any write from the Nth on, until it is told that it has.
#[test]
fn a_disk_that_is_full_at_any_write_loses_nothing_and_goes_on() {
    strike_all(Target::Write, &Effect::NoSpace, Repeat::FromThenOn, STEP);
    strike_all(Target::Write, &Effect::NoSpace, Repeat::Once, 3 * STEP);
}

/// Which positions a debug build tries; a release build tries all.
const STEP: usize = if cfg!(debug_assertions) { 13 } else { 1 };

#[test]
fn no_crash_loses_what_was_promised() {
    let plan = Plan { all_subsets: 3, singles: 3, random_subsets: 2, ..Plan::default() };
    let mut tally = Tally::default();
    for (seed, with_staging) in [(1, true), (2, false)] {
        tally = life::enumerate(seed, 250, with_staging, plan.clone(), tally);
    }
    println!("{tally}");
    assert!(tally.images >= 2_000, "{tally}");
}

#[test]
fn a_broken_flush_is_caught_on_every_device() {
    let plan = Plan { all_subsets: 3, singles: 4, random_subsets: 2, ..Plan::default() };
    for device in 0..3 {
        assert!(life::broken_flushes_show(1, device, plan.clone()), "device {device}");
    }
}

/// As many as take some seconds.
const CASES: u64 = 24;
