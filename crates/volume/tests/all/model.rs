//! Random acts against an oracle: what a pool holds is what was done to it, whatever maintenance did meanwhile.

use crate::rig::{self, Act, Oracle, SMALL, Shape};
use esker_base::Rng;

fn check(shape: &Shape, seed: u64, acts: u64) {
    let mut rng = Rng::new(seed);
    let devices = rig::create(shape);
    let mut pool = rig::open(&devices, shape);
    let mut oracle = Oracle::default();
    let mut log = Vec::new();
    for n in 0..acts {
        let act = oracle.random(&mut rng, 1 + n * 16, 96);
        log.push(act.clone());
        pool = rig::reopened(pool, &devices, shape, &act);
        if let Err(error) = rig::run(&pool, &act) {
            panic!("seed {seed}, act {n}, {act:?}: {error}\n{:#?}", pool.status());
        }
        oracle.apply(&act);
        if n % 8 == 0 || matches!(act, Act::Reopen | Act::Abandon | Act::Rollback(..)) {
            if let Err(why) = rig::compare_all(&pool, &oracle) {
                let last = &log[log.len().saturating_sub(40)..];
                panic!("seed {seed}, after act {n}, {act:?}: {why}\n{last:#?}");
            }
            if let Err(why) = pool.check() {
                panic!("seed {seed}, after act {n}, {act:?}: {why}");
            }
        }
    }
}

#[test]
fn pool_holds_what_was_done_to_it() {
    for seed in 0..12 {
        check(&SMALL, seed, 600);
    }
}

#[test]
fn pool_of_one_drive_without_parity_holds_what_was_done_to_it() {
    let shape = Shape { drives: 1, parity: 0, drive_bytes: 7 << 20, ..SMALL };
    for seed in 100..104 {
        check(&shape, seed, 600);
    }
}

#[test]
fn pool_with_two_parities_and_buffer_devices_holds_what_was_done_to_it() {
    let shape = Shape { drives: 7, buffers: 2, parity: 2, lba_size: 512, ..SMALL };
    for seed in 200..204 {
        check(&shape, seed, 600);
    }
}

#[test]
fn pool_with_memory_for_three_leaves_holds_what_was_done_to_it() {
    let shape = Shape { map_bytes: 1, drives: 3, drive_bytes: 3 << 20, ..SMALL };
    for seed in 300..304 {
        check(&shape, seed, 600);
    }
}
