use super::*;
use esker_base::Rng;
use xxhash_rust::xxh3::xxh3_64;

fn hash(n: u64) -> u64 {
    xxh3_64(&n.to_le_bytes())
}

fn filter(keys: u64, bits_per_key: usize) -> Filter {
    let mut builder = FilterBuilder::new(to_usize(keys), bits_per_key);
    (0..keys).for_each(|n| builder.add(hash(n)));
    builder.finish()
}

/// The rate of false positives by the formula of Putze, Sanders and Singler, section 3: the
/// keys in a block are Poisson-distributed, and each block is a Bloom filter of 512 bits.
#[allow(clippy::cast_precision_loss)]
fn expected_rate(bits_per_key: f64, probes: u8) -> f64 {
    let (mean, probes) = (512.0 / bits_per_key, f64::from(probes));
    let mut poisson = (-mean).exp();
    let mut rate = 0.0;
    for keys in 0..1000 {
        let empty = (1.0 - 1.0 / 512.0f64).powf(probes * f64::from(keys));
        rate += poisson * (1.0 - empty).powf(probes);
        poisson *= mean / f64::from(keys + 1);
    }
    rate
}

#[test]
fn added_keys_are_found_also_after_writing_and_reading() {
    for (keys, bits_per_key) in [(0, 10), (1, 1), (50, 10), (1000, 3), (20_000, 20)] {
        let filter = filter(keys, bits_per_key);
        let read = Filter::from_bytes(Vec::from(filter.as_bytes())).unwrap();
        assert!((0..keys).all(|n| filter.may_contain(hash(n)) && read.may_contain(hash(n))));
        assert_eq!(filter.as_bytes().len() % BLOCK, 0);
        assert_eq!(filter.as_bytes(), read.as_bytes());
    }
    assert!((0..1000).all(|n| !filter(0, 10).may_contain(hash(n))));
}

#[test]
#[allow(clippy::cast_precision_loss)]
fn false_positives_are_as_many_as_the_formula_says() {
    const KEYS: u64 = 100_000;
    const ASKED: u64 = 400_000;
    for bits_per_key in [6, 8, 10, 12, 16, 20] {
        let filter = filter(KEYS, bits_per_key);
        let asked = (KEYS..KEYS + ASKED).filter(|&n| filter.may_contain(hash(n)));
        let measured = asked.count() as f64 / ASKED as f64;
        let expected = expected_rate(bits_per_key as f64, probes(bits_per_key));
        // Five standard deviations of the count, and 3 % for keys whose fields coincide.
        let slack = 5.0 * (expected / ASKED as f64).sqrt() + 0.03 * expected;
        assert!(
            (measured - expected).abs() < slack,
            "{bits_per_key} bits a key: {measured:.5} measured, {expected:.5} expected"
        );
        if bits_per_key == 10 {
            assert!(measured < 0.012, "{measured}");
        }
    }
}

#[test]
fn the_number_of_probes_is_the_best_or_nearly_so() {
    for bits_per_key in 2..=20u8 {
        let rate = |probes| expected_rate(bits_per_key.into(), probes);
        let best = (1..=PROBES_MAX).map(rate).fold(1.0, f64::min);
        let ours = rate(probes(bits_per_key.into()));
        assert!(ours < 1.05 * best, "{bits_per_key}: {ours} against {best}");
    }
}

#[test]
fn the_layout_is_what_it_always_was() {
    // The fields of 0x1e37_79b9_7f4a_7c15 and of 0x3504_f333_f9de_6485, worked out by hand.
    let first = [60, 221, 461, 407, 489, 159, 10];
    let second = [106, 19, 409, 319, 315, 409, 66];
    let fields: Vec<usize> = first.into_iter().chain(second).collect();
    for (bits_per_key, blocks, block, probes) in [(10, 2, 1, 6), (20, 4, 2, 12)] {
        let mut builder = FilterBuilder::new(100, bits_per_key);
        builder.add(0x8000_0000_0000_0001);
        let filter = builder.finish();
        let bytes = filter.as_bytes();
        let mut expected = vec![0; (1 + blocks) * BLOCK];
        expected[..2].copy_from_slice(&[1, u8::try_from(probes).unwrap()]);
        for bit in &fields[..probes] {
            expected[(1 + block) * BLOCK + bit / 8] |= 1 << (bit % 8);
        }
        assert_eq!(bytes, expected);
    }
}

#[test]
fn a_filter_that_grows_finds_what_was_added_and_little_else() {
    const KEYS: u64 = 10_000;
    let filter = LiveFilter::new(32 << 10);
    assert!(!filter.may_contain(hash(0)), "nothing was added yet");
    for n in 0..KEYS {
        filter.add(hash(n));
        assert!(filter.may_contain(hash(n)));
    }
    assert!((0..KEYS).all(|n| filter.may_contain(hash(n))));
    // 26 bits a key in words of 64: four bits of a word that has 9.8 set, and varies. One in 200.
    let asked = KEYS..11 * KEYS;
    let passed = asked.filter(|&n| filter.may_contain(hash(n))).count() as u64;
    assert!(200 * passed < 10 * KEYS, "{passed}");
}

#[test]
fn any_bytes_are_a_filter_or_refused() {
    let mut rng = Rng::new(9);
    for size in 0..300 {
        let mut bytes = vec![0; size];
        rng.fill(&mut bytes);
        if rng.chance(3, 4) && size > 1 {
            (bytes[0], bytes[1]) = (1, u8::try_from(rng.below(20)).unwrap());
        }
        if let Ok(filter) = Filter::from_bytes(&bytes) {
            (0..100).for_each(|n| _ = filter.may_contain(hash(n)));
            assert_eq!(size % BLOCK, 0);
        }
    }
    let why = Filter::from_bytes([0; 64]).err().unwrap();
    assert!(why.contains("not 64"), "{why}");
}
