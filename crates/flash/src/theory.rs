//! Write amplification in closed form: an exact model must agree with it before it is believed.
//!
//! All are limits for drives of infinitely many units under random single-page writes. `alpha` is
//! the ratio of media pages in use (the reserve of erased units not counted) to logical pages, so
//! over-provisioning of 7 % is an alpha of 1.07; `b` is the number of pages per unit.

/// Iterations after which every fixed point here has converged to the last digits.
const ITERATIONS: u32 = 20_000;

/// FIFO cleaning of uniform writes, any unit size: the share `u` of valid pages in the oldest unit
/// solves `u = exp(-alpha (1 - u))`, and the write amplification is `1 / (1 - u)` (Desnoyers 2012;
/// Robinson 1996).
#[must_use]
pub fn fifo(alpha: f64) -> f64 {
    fifo_of_classes(alpha, &[Class { writes: 1.0, space: 1.0 }])
}

/// A class of pages that are written alike.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Its share of the writes.
    pub writes: f64,
    /// Its share of the logical space.
    pub space: f64,
}

/// FIFO cleaning of several classes mixed in one log: with write amplification `w` a page of class
/// `i` survives a round with probability `exp(-(r_i / f_i) alpha / w)`, and
/// `w = sum r_i / (1 - exp(-(r_i / f_i) alpha / w))`.
#[must_use]
pub fn fifo_of_classes(alpha: f64, classes: &[Class]) -> f64 {
    let mut w = 1.0;
    for _ in 0..ITERATIONS {
        let each =
            |class: &Class| class.writes / -(-(class.writes / class.space) * alpha / w).exp_m1();
        // Half a step at a time: the map alone would oscillate.
        w = 0.5 * (w + classes.iter().map(each).sum::<f64>());
    }
    w
}

/// Classes that never share a unit, each under FIFO cleaning, with the spare space divided so that
/// the write amplification is least: for two classes, by ternary search over the division.
#[must_use]
pub fn separated(alpha: f64, hot: Class, cold: Class) -> f64 {
    let spare = alpha - 1.0;
    let amplification = |share: f64| {
        let of = |class: Class, share: f64| class.writes * fifo(1.0 + share * spare / class.space);
        of(hot, share) + of(cold, 1.0 - share)
    };
    let (mut low, mut high) = (1e-6, 1.0 - 1e-6);
    for _ in 0..100 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if amplification(a) < amplification(b) { high = b } else { low = a }
    }
    amplification(f64::midpoint(low, high))
}

/// Greedy cleaning of uniform writes with `b` pages per unit: every cleaned unit has `j` or `j - 1`
/// valid pages (Bux and Iliadis 2010), and with `p` the share of the latter
/// `alpha = b (H_b - H_j + p / j) / (b - j + p)`, `w = b / (b - j + p)`.
#[must_use]
pub fn greedy(alpha: f64, b: u32) -> f64 {
    let pages = f64::from(b);
    // tail = H_b - H_j, grown from j = b downwards; alpha falls as j does.
    let mut tail = 0.0;
    for j in (1..b).rev() {
        let j = f64::from(j);
        tail += 1.0 / (j + 1.0);
        let alpha_at = |p: f64| pages * (tail + p / j) / (pages - j + p);
        // From p = 0 to p = 1 alpha changes from that of j to that of j - 1.
        let (from, to) = (alpha_at(0.0), alpha_at(1.0));
        if (from..=to).contains(&alpha) || (to..=from).contains(&alpha) {
            // alpha (b - j + p) = b (tail + p / j), solved for p.
            let p = (pages * tail - alpha * (pages - j)) / (alpha - pages / j);
            return pages / (pages - j + p);
        }
    }
    1.0
}

/// Cleaning the emptiest of `d` randomly chosen units, uniform writes, `b` pages per unit: the
/// stationary point of the mean-field equations of Van Houdt (2013),
/// `dm_j/dt = ((j + 1) m_{j+1} - j m_j) w - p_j + [j = b]` with `p_j` the probability that the
/// emptiest has `j` valid pages and `w = (b - sum j p_j) alpha / b`; the write amplification is
/// `b / (b - sum j p_j)`.
#[must_use]
pub fn choices(alpha: f64, b: u32, d: u32) -> f64 {
    let b = b as usize;
    let pages = index_to_f64(b);
    let exponent = f64::from(d);
    // Start with the uniform spread of a drive that has been written for long.
    let mut m = vec![1.0 / (pages + 1.0); b + 1];
    let mut next = m.clone();
    let mut amplification = 1.0;
    let step = 0.5 / (alpha * pages);
    for round in 0..400 * b * b {
        let mut above = 0.0; // S_{j+1}
        let mut mean = 0.0;
        let mut power_above = 0.0;
        let mut p = vec![0.0; b + 1];
        for j in (0..=b).rev() {
            above += m[j];
            let power = f64::powf(above.min(1.0), exponent);
            p[j] = power - power_above;
            power_above = power;
            mean += index_to_f64(j) * p[j];
        }
        let w = (pages - mean) * alpha / pages;
        let mut moved = 0.0;
        for j in 0..=b {
            let from_above = if j < b { index_to_f64(j + 1) * m[j + 1] } else { 0.0 };
            let arrival = if j == b { 1.0 } else { 0.0 };
            let change = (from_above - index_to_f64(j) * m[j]) * w - p[j] + arrival;
            next[j] = change.mul_add(step, m[j]).max(0.0);
            moved += change.abs();
        }
        std::mem::swap(&mut m, &mut next);
        amplification = pages / (pages - mean);
        if round % 64 == 0 && moved < 1e-9 {
            break;
        }
    }
    amplification
}

#[allow(clippy::cast_precision_loss)] // page counts are small
fn index_to_f64(index: usize) -> f64 {
    index as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERCENT: [f64; 5] = [1.07, 1.11, 1.15, 1.20, 1.28];

    #[track_caller]
    fn assert_near(got: f64, expected: f64) {
        assert!((got - expected).abs() < 6e-5 * expected.max(1.0), "{got} instead of {expected}");
    }

    #[test]
    fn fifo_agrees_with_the_literature() {
        assert_near(fifo(1.3), 2.3642); // 2.36 in Desnoyers 2012
        for (alpha, w) in PERCENT.into_iter().zip([7.8172, 5.2240, 4.0160, 3.1878, 2.4814]) {
            assert_near(fifo(alpha), w);
        }
    }

    #[test]
    fn greedy_tends_to_fifo_as_units_grow() {
        for (alpha, w) in PERCENT.into_iter().zip([6.3474, 4.5378, 3.6092, 2.9304, 2.3303]) {
            assert_near(greedy(alpha, 32), w);
        }
        for (alpha, w) in PERCENT.into_iter().zip([7.0099, 4.8585, 3.8005, 3.0528, 2.4028]) {
            assert_near(greedy(alpha, 64), w);
        }
        for (alpha, w) in PERCENT.into_iter().zip([7.7605, 5.1992, 4.0017, 3.1790, 2.4762]) {
            assert_near(greedy(alpha, 1024), w);
        }
        assert!((greedy(1.15, 1 << 20) / fifo(1.15) - 1.0).abs() < 1e-4);
    }

    #[test]
    fn mixed_classes_cost_and_separated_ones_save() {
        let classes = |share: f64| {
            (
                Class { writes: share, space: 1.0 - share },
                Class { writes: 1.0 - share, space: share },
            )
        };
        let (hot, cold) = classes(0.8);
        assert_near(fifo_of_classes(1.07, &[hot, cold]), 8.1818);
        assert_near(fifo_of_classes(1.28, &[hot, cold]), 2.8196);
        assert!((separated(1.07, hot, cold) - 5.254).abs() < 1e-3);
        assert!((separated(1.28, hot, cold) - 1.866).abs() < 1e-3);
        let (hot, cold) = classes(0.9);
        assert_near(fifo_of_classes(1.07, &[hot, cold]), 8.8660);
        assert!((separated(1.28, hot, cold) - 1.412).abs() < 1e-3);
    }

    #[test]
    fn one_choice_is_random_and_many_are_greedy() {
        assert!((choices(1.15, 64, 1) / fifo(1.15) - 1.0).abs() > 0.01);
        assert!((choices(1.15, 32, 1000) / greedy(1.15, 32) - 1.0).abs() < 5e-3);
    }
}
