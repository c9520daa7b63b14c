//! The replay itself: it reaches inputs that are not in a corpus, and sees memory.

use super::*;

#[global_allocator]
static MEMORY: Watched = Watched;

#[test]
fn mutants_follow_from_the_seed_and_differ() {
    let corpus = [("a".to_owned(), b"0123456789".to_vec()), ("b".to_owned(), Vec::new())];
    let of = |seed| {
        let mut rng = Rng::new(seed);
        let mut next = || mutate::mutant(&mut rng, &corpus[0].1, &corpus);
        (0..100).map(|_| next()).collect::<Vec<_>>()
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    let changed = of(1).iter().filter(|mutant| **mutant != corpus[0].1).count();
    assert!(changed > 90, "{changed}");
}

#[test]
fn empty_inputs_become_others() {
    let corpus = [("empty".to_owned(), Vec::new())];
    let mut rng = Rng::new(1);
    assert!((0..10).any(|_| !mutate::mutant(&mut rng, &[], &corpus).is_empty()));
}

#[test]
#[should_panic(expected = "number: mutation")]
fn panic_names_the_mutation() {
    let run = |bytes: &[u8]| {
        assert_eq!(bytes, b"12");
        true
    };
    let target = Target::new("number", run, Vec::new());
    mutations(&target, &[("twelve".to_owned(), b"12".to_vec())], 1);
}

#[test]
#[should_panic(expected = "bytes of memory, ")]
fn memory_that_no_bytes_stand_behind_is_found() {
    let run = |bytes: &[u8]| Vec::<u8>::with_capacity(1 << 20).len() == bytes.len();
    super::run(&Target::new("greedy", run, Vec::new()), "one byte", b"1");
}

#[test]
fn memory_of_the_input_size_is_allowed() {
    let run = |bytes: &[u8]| bytes.repeat(8).len() == 8 * bytes.len();
    assert!(super::run(&Target::new("modest", run, Vec::new()), "zeroes", &[0; 1 << 20]));
}
