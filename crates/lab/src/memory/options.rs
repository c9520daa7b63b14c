//! The runs of the study, and the memory of each.

use super::bench::RunFigures;
use super::program::{Program, Side};
use crate::LabError;

/// The budget, of the memory that a program takes without bounds.
const SHARE: f64 = 0.3;
/// The least budget, in MiB: below it a program's code and the pager's buffers decide.
const LEAST_MIB: u64 = 32;
/// Memory of the buffer pool of MariaDB, in MiB.
pub const BUFFER_POOL_MIB: u64 = 192;
/// The most repetitions.
const MOST_ROUNDS: u32 = 99;
/// Rounds from which on figures are judged.
pub const ROUNDS_TO_JUDGE: u32 = 3;
/// Memory beside the budget where no run of Esker has shown it, in MiB.
const OUTSIDE_MIB: f64 = 24.0;
/// A run may take so many times the plain one, and so many seconds more, but not more than the last of these.
const PATIENCE: (f64, f64, f64) = (10.0, 120.0, 600.0);

/// The runs of the study.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryOptions {
    /// The programs, in this order.
    pub programs: Vec<Program>,
    /// The sides, in this order in the first round; the other way round in the second.
    pub sides: Vec<Side>,
    /// Repetitions.
    pub rounds: u32,
    /// Whether it is a short run, which the report says.
    pub quick: bool,
}

impl MemoryOptions {
    /// Whether they make a study.
    ///
    /// # Errors
    /// The wrong option, and its range.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        if self.programs.is_empty() || has_twice(&self.programs) {
            return refuse("--programs: name at least one program, and each once".to_owned());
        }
        if self.sides.first() != Some(&Side::Esker) || has_twice(&self.sides) {
            return refuse(
                "--sides: begin with esker, whose memory sets the limit of the others, and name each once"
                    .to_owned(),
            );
        }
        if !(1..=MOST_ROUNDS).contains(&self.rounds) {
            return refuse(format!("--rounds: give from 1 to {MOST_ROUNDS}"));
        }
        Ok(())
    }
}

fn has_twice<T: Ord + Copy>(all: &[T]) -> bool {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// The budget of a program in MiB, by its plain run.
#[must_use]
pub fn budget_mib(program: Program, plain: &RunFigures) -> u64 {
    match program {
        Program::Mariadb => BUFFER_POOL_MIB / 2,
        _ => up(SHARE * plain.peak_mib).max(LEAST_MIB),
    }
}

/// The limit in MiB of a side that swaps. It has all memory that Esker's side had, of programs, pager and kernel, and
/// room for the pages of files that the plain run had mapped, which a cgroup may be charged for.
#[must_use]
pub fn limit_mib(budget: u64, esker: Option<&RunFigures>, plain: &RunFigures) -> u64 {
    #[allow(clippy::cast_precision_loss)] // MiB
    let budget = budget as f64;
    let paged = esker.map_or(budget + OUTSIDE_MIB, |one| one.peak_mib.max(budget));
    up(paged + plain.mapped_mib)
}

/// Seconds after which a run is ended.
#[must_use]
pub fn patience_s(plain: &RunFigures) -> f64 {
    let (times, more, most) = PATIENCE;
    (times * plain.wall_s + more).min(most)
}

/// Seconds after which a plain run is ended.
pub(super) const PLAIN_PATIENCE_S: f64 = PATIENCE.2;

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // MiB of memory
fn up(mib: f64) -> u64 {
    mib.ceil() as u64
}
