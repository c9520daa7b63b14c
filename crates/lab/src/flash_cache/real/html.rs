//! The replays on devices as a section of the page.

use esker_report::{Axis, Chart, Dot, DotRow, Dots, Section, Unit};

use super::report::{RealArm, RealReport, RealResult};

/// The series of charts with both arms.
const ARMS: [&str; 2] = ["disk alone", "with the cache"];

impl RealReport {
    /// Charts of rates, times and hits, then the tables.
    pub(crate) fn section(&self) -> Section {
        let mut section = Section::new("Measured on devices");
        section.text(self.headline());
        let mut charts = vec![self.rates(), self.hit_chart()];
        charts.extend(["read", "write"].into_iter().filter_map(|kind| self.slowest(kind)));
        section.charts(charts);
        self.tables().into_iter().for_each(|table| section.add(table));
        section.list(self.notes());
        section
    }

    fn rates(&self) -> Chart {
        let gains = self.workloads.iter().map(RealResult::gain);
        let (least, most) = gains.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), one| {
            (least.min(one), most.max(one))
        });
        let title = match self.workloads.len() {
            0 | 1 => format!("The cache gives {most:.2} times as many requests a second"),
            _ => format!("The cache gives {least:.2} to {most:.2} times as many requests a second"),
        };
        let axis = Axis::linear("requests a second", Unit::Rate);
        Chart::new(title, Dots::new(axis, ARMS, self.rows(|arm| Some(arm.requests_per_s))))
    }

    /// The slowest in a hundred of a kind of request; none where there is none of it.
    #[allow(clippy::cast_precision_loss)] // a figure for people
    fn slowest(&self, kind: &str) -> Option<Chart> {
        let rows = self.rows(|arm| arm.kind(kind).map(|one| one.p99_ns as f64));
        let all = || rows.iter().flat_map(|row| &row.dots);
        let most = |series| {
            let values = all().filter(|dot| dot.series == series).map(|dot| dot.value);
            values.max_by(f64::total_cmp)
        };
        let title = format!(
            "One {kind} in 100 takes longer than {} on the disk alone, and {} with the cache, at most",
            Unit::Nanoseconds.show(most(0)?),
            Unit::Nanoseconds.show(most(1)?)
        );
        let axis = Axis::linear(format!("p99 of {kind}s"), Unit::Nanoseconds);
        Some(Chart::new(title, Dots::new(axis, ARMS, rows)))
    }

    fn hit_chart(&self) -> Chart {
        let rows = self.workloads.iter().map(|one| {
            let simulated = Some(one.simulated_hit_ratio * 100.0);
            let dots = vec![Dot::new(0, one.hit_ratio * 100.0).beside(simulated)];
            DotRow { name: one.name.clone(), dots }
        });
        let farthest = self.workloads.iter().map(|one| one.difference().abs()).fold(0.0, f64::max);
        let title = format!("Measured and simulated hits differ by {farthest:.1} points at most");
        let axis = Axis::linear("hits by block", Unit::Percent);
        let mut dots = Dots::new(axis, ["measured"], rows.collect());
        dots.hollow = "simulated".to_owned();
        Chart::new(title, dots)
    }

    /// A row for each workload, with a figure of both arms.
    fn rows(&self, figure: impl Fn(&RealArm) -> Option<f64>) -> Vec<DotRow> {
        let row = |one: &RealResult| {
            let arms = [&one.alone, &one.cached].into_iter().enumerate();
            let dots = arms.filter_map(|(series, arm)| Some(Dot::new(series, figure(arm)?)));
            DotRow { name: one.name.clone(), dots: dots.collect() }
        };
        self.workloads.iter().map(row).filter(|row| !row.dots.is_empty()).collect()
    }
}
