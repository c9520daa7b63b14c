//! Whose turn it is when several stores write to one drive, each at its own rate.
//!
//! Invariants
//! 1. The sequence depends on weights, order and seed alone, and on no function whose last digit
//!    differs between machines.

use esker_base::Rng;
use serde::{Deserialize, Serialize};

/// In which order stores write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Stores know nothing of each other: whose block is next is random, as often each as its rate
    /// demands.
    Independent,
    /// Always the store that lies behind the most. Units of the drive become so alike that which of
    /// equals is cleaned matters.
    InStep,
}

/// Gives turns to stores.
#[derive(Clone, Debug)]
pub struct Turns {
    /// How often each store has a turn, in any unit.
    weights: Vec<f64>,
    /// Turns that each store has had, divided by its weight.
    had: Vec<f64>,
    order: Order,
    rng: Rng,
}

impl Turns {
    /// Turns for stores of these weights, of which there is at least one.
    #[must_use]
    pub fn new(weights: Vec<f64>, order: Order, seed: u64) -> Turns {
        let had = vec![0.0; weights.len()];
        Turns { weights, had, order, rng: Rng::new(seed) }
    }

    /// The store whose turn it is.
    pub fn next_index(&mut self) -> usize {
        match self.order {
            Order::Independent => self.draw(),
            Order::InStep => {
                let had = |index: usize| self.had[index];
                let behind = (0..self.had.len()).min_by(|&a, &b| had(a).total_cmp(&had(b)));
                let index = behind.unwrap_or(0);
                self.had[index] += 1.0 / self.weights[index];
                index
            }
        }
    }

    fn draw(&mut self) -> usize {
        let total: f64 = self.weights.iter().sum();
        let mut left = self.rng.unit() * total;
        let drawn = self.weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // The remainder may round to nothing.
        drawn.unwrap_or(self.weights.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(order: Order, turns: u32) -> [u32; 3] {
        let mut giver = Turns::new(vec![1.0, 2.0, 5.0], order, 4);
        let mut counts = [0; 3];
        for _ in 0..turns {
            counts[giver.next_index()] += 1;
        }
        counts
    }

    #[test]
    fn turns_are_as_frequent_as_their_weights() {
        let in_step = counts(Order::InStep, 8_000);
        assert!(in_step.iter().zip([1_000u32, 2_000, 5_000]).all(|(&a, b)| a.abs_diff(b) <= 1));
        let independent = counts(Order::Independent, 80_000);
        let bound = 500; // 4 standard deviations of the most frequent
        assert!(
            independent
                .iter()
                .zip([10_000u32, 20_000, 50_000])
                .all(|(&a, b)| a.abs_diff(b) < bound),
            "{independent:?}"
        );
        assert_ne!(counts(Order::Independent, 8_000), in_step);
    }
}
