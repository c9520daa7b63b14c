//! Parities over the units of a stripe: P is their XOR, Q the sum of g^i times unit i over GF(2^8) with the polynomial
//! 0x11d and g = 2 (H. P. Anvin, "The mathematics of RAID-6"). Pure; sees nothing of this crate.
//!
//! Units 0 to k-1 are data, unit k is P, unit k+1 is Q. All have the same size.

use std::ops::DerefMut;

/// Bytes of each unit that are computed at a time.
const STRIP: usize = 4096;

/// Powers of g: `EXP[i]` = g^i.
const EXP: [u8; 255] = {
    let mut table = [0; 255];
    let mut value = 1_u8;
    let mut at = 0;
    while at < 255 {
        table[at] = value;
        value = double(value);
        at += 1;
    }
    table
};

const fn double(value: u8) -> u8 {
    (value << 1) ^ (0x1d * (value >> 7))
}

fn log(value: u8) -> usize {
    EXP.iter().position(|&power| power == value).expect("every element but zero is a power of g")
}

fn inverse(value: u8) -> u8 {
    EXP[(255 - log(value)) % 255]
}

fn product(a: u8, b: u8) -> u8 {
    match (a, b) {
        (0, _) | (_, 0) => 0,
        _ => EXP[(log(a) + log(b)) % 255],
    }
}

/// `into` ^= `unit`.
fn add(into: &mut [u8], unit: &[u8]) {
    for (into, byte) in into.iter_mut().zip(unit) {
        *into ^= byte;
    }
}

/// `into` = g × `into` ^ `unit`.
fn double_and_add(into: &mut [u8], unit: &[u8]) {
    for (into, byte) in into.iter_mut().zip(unit) {
        *into = double(*into) ^ byte;
    }
}

/// `into` ^= `factor` × `unit`.
fn add_product(into: &mut [u8], unit: &[u8], factor: u8) {
    // Bit by bit over runs that fit registers: the compiler makes vectors of it.
    for (into, unit) in into.chunks_mut(64).zip(unit.chunks(64)) {
        let mut power = [0; 64];
        power[..unit.len()].copy_from_slice(unit);
        let mut left = factor;
        while left != 0 {
            if left & 1 != 0 {
                add(into, &power);
            }
            power.iter_mut().for_each(|byte| *byte = double(*byte));
            left >>= 1;
        }
    }
}

/// Computes the parities behind the data: `units` has k + m of them, and the last m are overwritten.
pub(crate) fn encode<U: DerefMut<Target = [u8]>>(units: &mut [U], parities: usize) {
    let (data, parity) = units.split_at_mut(units.len() - parities);
    if let Some(p) = parity.first_mut() {
        for start in (0..p.len()).step_by(STRIP) {
            let part = start..p.len().min(start + STRIP);
            let p = &mut p[part.clone()];
            p.copy_from_slice(&data[0][part.clone()]);
            data[1..].iter().for_each(|unit| add(p, &unit[part.clone()]));
        }
    }
    if let Some(q) = parity.get_mut(1) {
        // In parts that stay in the processor's cache from unit to unit.
        for start in (0..q.len()).step_by(STRIP) {
            let part = start..q.len().min(start + STRIP);
            let q = &mut q[part.clone()];
            q.fill(0);
            data.iter().rev().for_each(|unit| double_and_add(q, &unit[part.clone()]));
        }
    }
}

/// Computes the lost units from the others; false when more are lost than there are parities.
pub(crate) fn reconstruct(units: &mut [Vec<u8>], parities: usize, lost: &[usize]) -> bool {
    let k = units.len() - parities;
    if lost.len() > parities {
        return false;
    }
    let mut lost_data: Vec<usize> = lost.iter().copied().filter(|&unit| unit < k).collect();
    lost_data.sort_unstable();
    let is_lost = |unit: usize| lost.contains(&unit);
    lost_data.iter().for_each(|&unit| units[unit].fill(0));
    match lost_data[..] {
        [] => {}
        [x] if !is_lost(k) => {
            let mut sum = units[k].clone();
            units[..k].iter().for_each(|unit| add(&mut sum, unit));
            units[x] = sum;
        }
        [x] => {
            // Q without x, which is zeroes here: what is missing is g^x times unit x.
            let sum = q_sum(units, k);
            units[x].fill(0);
            let factor = inverse(EXP[x % 255]);
            let mut unit = std::mem::take(&mut units[x]);
            add_product(&mut unit, &sum, factor);
            units[x] = unit;
        }
        [x, y] => {
            let mut p = units[k].clone();
            units[..k].iter().for_each(|unit| add(&mut p, unit));
            let q = q_sum(units, k);
            // p = x + y and q = g^x x + g^y y, so x = (g^y p + q) / (g^x + g^y).
            let (gx, gy) = (EXP[x % 255], EXP[y % 255]);
            let divisor = inverse(gx ^ gy);
            let mut first = vec![0; p.len()];
            add_product(&mut first, &p, product(gy, divisor));
            add_product(&mut first, &q, divisor);
            add(&mut p, &first);
            units[x] = first;
            units[y] = p;
        }
        _ => return false,
    }
    if lost.iter().any(|&unit| unit >= k) {
        encode(units, parities);
    }
    true
}

/// Computes the `wanted` units of `count` from those that were read, which are at least as many as are data. `None` when
/// they are not.
pub(crate) fn compute(
    read: &[(usize, &[u8])],
    count: usize,
    parities: usize,
    wanted: &[usize],
) -> Option<Vec<Vec<u8>>> {
    let find =
        |unit: usize| read.iter().find(|(number, _)| *number == unit).map(|(_, bytes)| *bytes);
    let k = count - parities;
    let missing: Vec<usize> = (0..count).filter(|unit| find(*unit).is_none()).collect();
    if wanted.iter().all(|unit| find(*unit).is_some()) {
        return wanted.iter().map(|unit| find(*unit).map(<[u8]>::to_vec)).collect();
    }
    if missing.len() > parities {
        return None;
    }
    let (_, first) = read.first()?;
    // One of the data and P, from all others of them: no need to copy these.
    if let [x] = wanted[..]
        && x <= k
        && missing.iter().all(|unit| *unit == x || *unit > k)
    {
        let mut sum = vec![0; first.len()];
        read.iter().filter(|(unit, _)| *unit <= k).for_each(|(_, unit)| add(&mut sum, unit));
        return Some(vec![sum]);
    }
    let unit = |unit| find(unit).map_or_else(|| vec![0; first.len()], <[u8]>::to_vec);
    let mut units: Vec<Vec<u8>> = (0..count).map(unit).collect();
    reconstruct(&mut units, parities, &missing)
        .then(|| wanted.iter().map(|unit| std::mem::take(&mut units[*unit])).collect())
}

/// Q as it is, plus Q of the data that is there.
fn q_sum(units: &[Vec<u8>], k: usize) -> Vec<u8> {
    let mut sum = vec![0; units[k + 1].len()];
    units[..k].iter().rev().for_each(|unit| double_and_add(&mut sum, unit));
    add(&mut sum, &units[k + 1]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;
    use reed_solomon_erasure::galois_8::ReedSolomon;

    fn stripe(k: usize, m: usize, size: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut rng = Rng::new(seed);
        let mut units = vec![vec![0; size]; k + m];
        units[..k].iter_mut().for_each(|unit| rng.fill(unit));
        units
    }

    /// All sets of up to `m` of `n` units.
    fn erasures(n: usize, m: usize) -> Vec<Vec<usize>> {
        let mut sets = vec![vec![]];
        for x in 0..n {
            sets.push(vec![x]);
            sets.extend((0..x).map(|y| vec![x, y]));
        }
        sets.retain(|set| set.len() <= m);
        sets
    }

    #[test]
    fn every_erasure_of_every_shape_is_recovered_like_reed_solomon_does() {
        for m in 0..=2 {
            for k in [1, 2, 3, 6, 10, 30] {
                let mut units = stripe(k, m, 200, (k * 10 + m) as u64);
                encode(&mut units, m);
                let oracle = (m > 0).then(|| ReedSolomon::new(k, m).unwrap());
                for lost in erasures(k + m, m) {
                    let mut damaged = units.clone();
                    lost.iter().for_each(|&unit| damaged[unit].fill(0xa5));
                    assert!(reconstruct(&mut damaged, m, &lost));
                    assert!(damaged == units, "{k}+{m} without {lost:?}");
                    let Some(oracle) = &oracle else { continue };
                    let mut theirs = units.clone();
                    oracle.encode(&mut theirs).unwrap();
                    let mut theirs: Vec<_> = theirs.into_iter().map(Some).collect();
                    lost.iter().for_each(|&unit| theirs[unit] = None);
                    oracle.reconstruct(&mut theirs).unwrap();
                    let data = theirs[..k].iter().map(|unit| unit.as_ref().unwrap());
                    assert!(data.eq(&damaged[..k]), "{k}+{m} without {lost:?}");
                }
            }
        }
    }

    #[test]
    fn more_losses_than_parities_are_refused() {
        let mut units = stripe(4, 1, 64, 1);
        encode(&mut units, 1);
        assert!(!reconstruct(&mut units, 1, &[0, 1]));
        let mut units = stripe(4, 0, 64, 1);
        assert!(!reconstruct(&mut units, 0, &[2]));
    }

    #[test]
    fn field_has_inverses() {
        for value in 1..=255 {
            assert_eq!(product(value, inverse(value)), 1);
        }
    }
}
