//! Reads the figures that YCSB prints: lines of `[OPERATION], figure, value`.

use std::collections::BTreeMap;

use super::bench::Latencies;
use crate::LabError;

/// Latencies from the moment at which an operation was to start.
const INTENDED: &str = "Intended-";
const FAILED: &str = "-FAILED";

/// The figures of a run, by operation and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct YcsbFigures {
    values: BTreeMap<(String, String), f64>,
}

impl YcsbFigures {
    /// Reads the output of YCSB; lines of another form come from other programs.
    ///
    /// # Errors
    /// When there is no figure at all, or a line of figures has no number.
    pub fn parse(text: &str) -> Result<YcsbFigures, LabError> {
        let mut values = BTreeMap::new();
        for line in text.lines() {
            let mut parts = line.split(", ");
            let (Some(operation), Some(name), Some(value), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let inner = operation.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let Some(operation) = inner else { continue };
            let value: f64 =
                value.trim().parse().map_err(|_| wrong(format!("'{line}' has no number")))?;
            values.insert((operation.to_owned(), name.to_owned()), value);
        }
        if values.is_empty() {
            return Err(wrong(format!("it printed no figures: {}", text.trim())));
        }
        Ok(YcsbFigures { values })
    }

    fn value(&self, operation: &str, name: &str) -> Option<f64> {
        self.values.get(&(operation.to_owned(), name.to_owned())).copied()
    }

    /// Seconds that were measured.
    ///
    /// # Errors
    /// When the run's time is missing, or nothing.
    pub fn seconds(&self) -> Result<f64, LabError> {
        let found = self.value("OVERALL", "RunTime(ms)").map(|ms| ms / 1000.0);
        found
            .filter(|&seconds| seconds > 0.0)
            .ok_or_else(|| wrong("no second was measured: give it more time: --for".to_owned()))
    }

    /// Latencies of `READ`, `UPDATE` or `INSERT` from the moment at which an operation was to start, with the number
    /// of operations that ended.
    ///
    /// # Errors
    /// When there are none.
    pub fn intended(&self, operation: &str) -> Result<Latencies, LabError> {
        let name = format!("{INTENDED}{operation}");
        let value = |of: &str| {
            self.value(&name, of)
                .ok_or_else(|| wrong(format!("the figure '{of}' of {name} is missing")))
        };
        let count = self.value(operation, "Operations").unwrap_or(0.0);
        if count < 1.0 {
            return Err(wrong(format!(
                "no {operation} has ended in time: give it more time: --for"
            )));
        }
        let percentile =
            value("99.9thPercentileLatency(us)").or_else(|_| value("99.9PercentileLatency(us)"));
        Ok(Latencies {
            count: whole(count),
            mean_us: value("AverageLatency(us)")?,
            p999_us: percentile?,
        })
    }

    /// Operations that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let is_failed =
            |operation: &str| operation.ends_with(FAILED) && !operation.starts_with(INTENDED);
        let counts = self
            .values
            .iter()
            .filter(|((operation, name), _)| is_failed(operation) && name == "Operations");
        whole(counts.map(|(_, count)| count).sum())
    }
}

/// A count that was printed as a number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts, far below 2^53
fn whole(count: f64) -> u64 {
    count.max(0.0).round() as u64
}

fn wrong(why: String) -> LabError {
    LabError::Way { way: "YCSB".to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
        [OVERALL], RunTime(ms), 9144\n\
        DBWrapper: report latency for each error is false\n\
        [READ], Operations, 3517\n\
        [READ], AverageLatency(us), 9533.8\n\
        [READ], 99.9thPercentileLatency(us), 67775\n\
        [READ-FAILED], Operations, 2\n\
        [Intended-READ-FAILED], Operations, 2\n\
        [Intended-READ], Operations, 3505\n\
        [Intended-READ], AverageLatency(us), 10588.6\n\
        [Intended-READ], 99.9thPercentileLatency(us), 79423\n";

    #[test]
    fn intended_latencies_are_taken_with_the_operations_that_ended() {
        let figures = YcsbFigures::parse(PRINTED).unwrap();
        let reads = figures.intended("READ").unwrap();
        assert_eq!(reads, Latencies { count: 3517, mean_us: 10_588.6, p999_us: 79_423.0 });
        assert!((figures.seconds().unwrap() - 9.144).abs() < 1e-9);
        assert_eq!(figures.failed(), 2);
    }

    #[test]
    fn the_name_of_a_percentile_has_two_forms() {
        let text = PRINTED.replace("99.9thPercentile", "99.9Percentile");
        let reads = YcsbFigures::parse(&text).unwrap().intended("READ").unwrap();
        assert!((reads.p999_us - 79_423.0).abs() < 1e-9);
    }

    #[test]
    fn output_without_figures_is_an_error() {
        for (text, part) in [
            ("Exception in thread main", "no figures: Exception"),
            ("[READ], Operations, many", "no number"),
        ] {
            let why = YcsbFigures::parse(text).unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
        let figures = YcsbFigures::parse("[READ], Operations, 0\n").unwrap();
        assert!(figures.intended("READ").unwrap_err().to_string().contains("--for"));
        assert!(figures.intended("UPDATE").is_err());
        assert!(figures.seconds().is_err());
    }
}
