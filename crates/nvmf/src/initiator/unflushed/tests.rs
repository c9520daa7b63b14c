//! The bookkeeping by itself: small cases, and a model of the writes that a flush has to cover.

use esker_base::Rng;

use super::*;

const A: ControllerId = ControllerId { path: 0, generation: 1 };
const B: ControllerId = ControllerId { path: 0, generation: 3 };
const C: ControllerId = ControllerId { path: 1, generation: 1 };

fn all(_: ControllerId) -> bool {
    true
}

/// All but the first.
fn but_a(one: ControllerId) -> bool {
    one != A
}

fn unflushed(limit: u64) -> Unflushed {
    Unflushed::new(512, 1 << 20, limit)
}

fn write(unflushed: &mut Unflushed, lba: u64, count: u64, byte: u8, by: ControllerId) -> Kept {
    let ticket = unflushed.begin(lba, count, by).expect("nothing moves");
    let data = vec![byte; to_usize(count * 512)];
    unflushed.complete(&ticket, Written::Data(&data, None), false, all)
}

/// Returns the data that would be written again: LBAs and their bytes.
fn content(unflushed: &mut Unflushed) -> Vec<(u64, u8)> {
    let pieces = unflushed.take_orphans(u64::MAX, |_| false);
    let mut content = Vec::new();
    for Piece { lba, count, content: what } in &pieces {
        for n in 0..*count {
            let byte = match what {
                Content::Data(data, _) => data[to_usize(n * 512)],
                _ => 0,
            };
            content.push((lba + n, byte));
        }
    }
    pieces.iter().for_each(|piece| unflushed.moved(piece, None));
    content
}

#[test]
fn later_write_replaces_what_it_covers_when_it_completes() {
    let mut unflushed = unflushed(1 << 20);
    write(&mut unflushed, 0, 4, 1, A);
    let ticket = unflushed.begin(1, 2, A).unwrap();
    assert_eq!(content(&mut unflushed), [(0, 1), (1, 1), (2, 1), (3, 1)]);
    unflushed.complete(&ticket, Written::Zeroes, false, all);
    assert_eq!(content(&mut unflushed), [(0, 1), (1, 0), (2, 0), (3, 1)]);
    // One that is durable leaves nothing to be written again.
    let ticket = unflushed.begin(0, 2, A).unwrap();
    unflushed.complete(&ticket, Written::Data(&[2; 1024], None), true, all);
    assert_eq!(content(&mut unflushed), [(2, 0), (3, 1)]);
}

#[test]
fn write_in_flight_through_a_live_controller_is_not_written_over() {
    let mut unflushed = unflushed(1 << 20);
    write(&mut unflushed, 0, 8, 1, A);
    let ticket = unflushed.begin(2, 2, C).unwrap();
    let lbas = |pieces: &[Piece]| pieces.iter().map(|one| (one.lba, one.count)).collect::<Vec<_>>();
    let pieces = unflushed.take_orphans(u64::MAX, but_a);
    assert_eq!(lbas(&pieces), [(0, 2), (4, 4)]);
    // Nothing is written there before they are.
    assert!(unflushed.begin(4, 1, C).is_none());
    assert!(unflushed.begin(2, 1, C).is_some());
    pieces.iter().for_each(|piece| unflushed.moved(piece, Some(C)));
    // A flush waits for that write: it stands for the content before it.
    let number = unflushed.number();
    assert_eq!(unflushed.is_clear(number, C, but_a), Clear::Later);
    unflushed.complete(&ticket, Written::Zeroes, false, but_a);
    let ticket = unflushed.begin(2, 1, C).unwrap();
    unflushed.end(&ticket);
    assert_eq!(unflushed.is_clear(number, C, but_a), Clear::Yes);
}

#[test]
fn completion_that_a_lost_controller_sent_counts_for_nothing() {
    let mut unflushed = unflushed(1 << 20);
    let ticket = unflushed.begin(0, 1, A).unwrap();
    let kept = unflushed.complete(&ticket, Written::Zeroes, false, but_a);
    assert_eq!(kept, Kept::Stale);
    unflushed.end(&ticket);
    assert_eq!(content(&mut unflushed), []);
}

#[test]
fn flush_covers_what_its_controller_had_completed_when_it_was_sent() {
    let mut unflushed = unflushed(1 << 20);
    write(&mut unflushed, 0, 1, 1, A);
    let number = unflushed.number();
    write(&mut unflushed, 1, 1, 2, A);
    write(&mut unflushed, 2, 1, 3, C);
    assert_eq!(unflushed.is_clear(number, A, all), Clear::Yes, "C's write came after");
    assert_eq!(unflushed.is_clear(unflushed.number(), A, all), Clear::Restore);
    assert_eq!(unflushed.others(unflushed.number(), A, all), [C]);
    unflushed.flushed(number, A);
    assert_eq!(content(&mut unflushed), [(1, 2), (2, 3)]);
    unflushed.flushed(unflushed.number(), C);
    assert_eq!(content(&mut unflushed), [(1, 2)]);
    // A flush of another controller covers nothing that is moved to the next.
    let pieces = unflushed.take_orphans(u64::MAX, but_a);
    pieces.iter().for_each(|piece| unflushed.moved(piece, Some(B)));
    unflushed.flushed(unflushed.number(), A);
    assert_eq!(content(&mut unflushed), [(1, 2)]);
}

#[test]
fn room_is_bounded_and_freed_by_flushes_alone() {
    let mut unflushed = unflushed(10_000);
    let is_filling = |kept| kept == Kept::Yes { is_filling: true };
    assert!(!is_filling(write(&mut unflushed, 0, 8, 1, A)));
    assert!(is_filling(write(&mut unflushed, 8, 8, 1, A)));
    let ticket = unflushed.begin(16, 8, A).unwrap();
    let data = [3; 4096];
    let full = unflushed.complete(&ticket, Written::Data(&data, None), false, all);
    assert_eq!(full, Kept::Full(3));
    assert!(unflushed.bytes <= 10_000);
    unflushed.flushed(unflushed.number(), A);
    unflushed.written_through(&ticket);
    assert_eq!((unflushed.bytes, unflushed.extents.len(), unflushed.in_flight.len()), (0, 0, 0));
}

#[test]
fn unkept_data_is_lost_with_its_controller_until_it_is_written() {
    let mut unflushed = unflushed(0);
    for lba in 0..1000 {
        write(&mut unflushed, lba, 1, 1, A);
    }
    assert_eq!(unflushed.extents.len(), 1, "what is written in order is one extent");
    write(&mut unflushed, 2000, 10, 1, A);
    assert!(!unflushed.has_lost());
    assert_eq!(unflushed.take_orphans(u64::MAX, but_a), []);
    assert!(
        unflushed.lost_in(Lba(999), 1).is_some() && unflushed.lost_in(Lba(1000), 999).is_none()
    );
    assert!(unflushed.lost_in(Lba(1000), 1001).is_some());
    assert!(matches!(unflushed.is_clear(0, B, but_a), Clear::Lost(what) if what.contains("1010")));
    write(&mut unflushed, 10, 1980, 1, B);
    write(&mut unflushed, 2005, 1, 1, B);
    let lost: Vec<_> = unflushed.lost.clone().into_iter().collect();
    assert_eq!(lost, [(0, 10), (2000, 2005), (2006, 2010)]);
    unflushed.find(0, 3000);
    assert!(!unflushed.has_lost());
}

#[test]
fn ranges_that_are_lost_are_bounded_and_none_is_forgotten() {
    let mut unflushed = unflushed(0);
    for n in 0..10_000 {
        unflushed.lose(n * 3, 1);
    }
    assert!(unflushed.lost.len() <= LOST);
    assert!((0..10_000).all(|n| unflushed.lost_in(Lba(n * 3), 1).is_some()));
}

/// Against arrays: after any steps, LBAs that no flush has covered are written again with the data
/// last written; and the bytes are counted right.
#[test]
fn random_writes_flushes_and_losses_agree_with_a_model() {
    const LBAS: usize = 64;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut unflushed = unflushed(1 << 20);
        let mut model: Vec<Option<u8>> = vec![None; LBAS];
        let mut by = A;
        for step in 0..60u8 {
            let lba = rng.below(60);
            let count = 1 + rng.below(4);
            let range = to_usize(lba)..to_usize(lba + count);
            match rng.below(10) {
                0 => {
                    unflushed.flushed(unflushed.number(), by);
                    model.fill(None);
                }
                1 => {
                    by = ControllerId { generation: by.generation + 2, ..by };
                    let pieces = unflushed.take_orphans(u64::MAX, |one| one == by);
                    let tried = rng.chance(1, 2).then_some(by);
                    pieces.iter().for_each(|piece| unflushed.moved(piece, tried));
                    let pieces = unflushed.take_orphans(u64::MAX, |one| one == by);
                    pieces.iter().for_each(|piece| unflushed.moved(piece, Some(by)));
                }
                2 => {
                    let ticket = unflushed.begin(lba, count, by).unwrap();
                    unflushed.complete(&ticket, Written::Zeroes, false, all);
                    model[range].fill(Some(0));
                }
                3 => {
                    unflushed.lose(lba, count);
                    unflushed.find(lba, count);
                    model[range].fill(None);
                }
                _ => {
                    write(&mut unflushed, lba, count, step, by);
                    model[range].fill(Some(step));
                }
            }
            let expected: Vec<_> =
                (0..).zip(&model).filter_map(|(lba, byte)| Some((lba, (*byte)?))).collect();
            assert_eq!(content(&mut unflushed), expected, "seed {seed}, step {step}");
            let bytes: u64 = unflushed.extents.values().map(Unflushed::size).sum();
            assert_eq!((unflushed.bytes, unflushed.moving), (bytes, 0));
        }
    }
}
