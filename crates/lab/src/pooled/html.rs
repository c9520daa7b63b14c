//! The document of the study.

use esker_report::{Axis, Bars, Chart, Curve, Curves, Draw, Page, Section, Unit};

use super::deployment::Deployment;
use super::figures::{LoadResult, find};
use super::report::{COSTS, LATENCIES, PooledFigures};
use crate::Spread;
use crate::study::QUICK;

impl PooledFigures {
    /// The document.
    pub(super) fn document(&self) -> Page {
        let label = if self.quick { QUICK } else { "" };
        let title = format!("Pooled drives beside local ones, under Cassandra{label}");
        let mut page = Page::new(title, self.finding().unwrap_or_default());
        page.about = "Nodes of Cassandra on local drives, and on volumes of one pool over NVMe/TCP with as many \
                      drives: real programs in real time, on modelled drives."
            .to_owned();
        for (title, table) in self.tables() {
            let mut section = Section::new(title);
            section.charts(match title {
                LATENCIES => self.latency_charts(),
                COSTS => self.cost_chart().into_iter().collect(),
                _ => Vec::new(),
            });
            section.add(table);
            page.sections.push(section);
        }
        let mut section = Section::new("Arms");
        section.list(self.arms.iter().map(|one| format!("{}: {}", one.name, one.description)));
        section.list(self.skipped.iter().map(|one| format!("Skipped: {one}")));
        if !section.blocks.is_empty() {
            page.sections.push(section);
        }
        page.assumptions = self.assumptions.iter().cloned().map(Into::into).collect();
        page
    }

    /// Latencies against the rate, a chart for each figure.
    fn latency_charts(&self) -> Vec<Chart> {
        LATENCY_CHARTS.iter().filter_map(|(name, of)| self.latency_chart(name, *of)).collect()
    }

    fn latency_chart(&self, name: &str, of: Figure) -> Option<Chart> {
        let ns = |one: &LoadResult| of(one).median * 1e3;
        let curve = |arm: Deployment| {
            let loads = self.loads.iter().filter(|one| one.arm == arm);
            let mut points: Vec<(f64, f64)> =
                loads.map(|one| (one.ops_per_s.median, ns(one))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve::new(arm.name(), Draw::Points, points)
        };
        let at_limit = |arm| {
            let shown = Unit::Nanoseconds.show(ns(find(&self.loads, arm, None)?));
            Some(format!("{shown} {}", arm.name()))
        };
        let title = format!(
            "{name}, at the unlimited rate: {}, {}",
            at_limit(Deployment::Local)?,
            at_limit(Deployment::Remote)?
        );
        let curves = self.arms_run().map(curve).collect();
        let x = Axis::linear("operations reached", Unit::Rate);
        Some(Chart::new(title, Curves::new(x, Axis::latency_ns(name), curves)))
    }

    /// Processor time for each operation at the unlimited rate, by program.
    fn cost_chart(&self) -> Option<Chart> {
        let storage_us = |arm| Some(find(&self.loads, arm, None)?.storage_cpu_us.median);
        let title = format!(
            "Storage takes {:.0} µs of processor time for each operation with remote drives, {:.0} µs with local ones",
            storage_us(Deployment::Remote)?,
            storage_us(Deployment::Local)?
        );
        let bar = |arm: Deployment| {
            let one = find(&self.loads, arm, None)?;
            let parts = [one.node_cpu_us, one.client_cpu_us, one.storage_cpu_us];
            Some((arm.name().to_owned(), parts.map(|part| part.median * 1e3).to_vec()))
        };
        Some(Chart::new(
            title,
            Bars {
                axis: Axis::linear("processor time at the unlimited rate", Unit::Nanoseconds),
                parts: ["Cassandra", "clients", "storage"].map(str::to_owned).to_vec(),
                bars: self.arms_run().filter_map(bar).collect(),
            },
        ))
    }

    /// The arms that have figures.
    fn arms_run(&self) -> impl Iterator<Item = Deployment> + '_ {
        Deployment::ALL.into_iter().filter(|arm| self.loads.iter().any(|one| one.arm == *arm))
    }

    /// Operations and tails of both sides at the unlimited rate, in a sentence; none where one has not run.
    fn finding(&self) -> Option<String> {
        let at_limit = |arm| find(&self.loads, arm, None);
        let (local, remote) = (at_limit(Deployment::Local)?, at_limit(Deployment::Remote)?);
        let times = |of: Figure| of(remote).median / of(local).median.max(f64::MIN_POSITIVE);
        Some(format!(
            "At the unlimited rate nodes on one pool reach {:.2} times the operations of nodes on their own drives, \
             and one read in a thousand takes {:.2} times as long.",
            times(|one| one.ops_per_s),
            times(|one| one.read_p999_us)
        ))
    }
}

type Figure = fn(&LoadResult) -> Spread;

const LATENCY_CHARTS: [(&str, Figure); 4] = [
    ("reads, mean", |one| one.read_mean_us),
    ("reads, 99.9 %", |one| one.read_p999_us),
    ("updates, mean", |one| one.update_mean_us),
    ("updates, 99.9 %", |one| one.update_p999_us),
];
