//! The document: gains beside the source's, tails, bytes by stream, and deciders.

use esker_report::{
    Axis, Bars, Block, Chart, Curve, Curves, Dot, DotRow, Dots, Line, Page, Panel, Panels, Section,
    Table, Unit,
};

use super::machine::Arm;
use super::phase::{Phase, StreamBytes};
use super::published;
use super::report::HseFigures;
use super::table::{BESIDE, BYTES, LATENCIES, RATES, STREAMS};
use super::verdict::{Pair, rate};

impl HseFigures {
    /// The document.
    pub(super) fn document(&self) -> Page {
        let title = "A staging drive in front of capacity flash";
        let mut page = Page::new(title, self.finding());
        page.about = "An engine on four QLC drives, and the same with an NVMe drive in front: Micron's study of HSE, \
                      records, memory and rates scaled down together."
            .to_owned();
        page.sections = vec![self.gain_section()];
        page.sections.extend(self.beside_section());
        page.sections.extend([
            self.tail_section(),
            self.byte_section(),
            self.decider_section(),
            self.course_section(),
        ]);
        page.assumptions.clone_from(&self.assumptions);
        page
    }

    /// Each workload's gain, in a sentence.
    fn finding(&self) -> String {
        let gains = Pair::all(&self.runs).into_iter().filter_map(|pair| {
            let ratio = pair.ratio(rate)?;
            Some(format!("{} {ratio:.2}", pair.workload()))
        });
        let gains: Vec<String> = gains.collect();
        format!(
            "With a staging drive throughput is so many times that without: {}.",
            gains.join(", ")
        )
    }

    fn gain_section(&self) -> Section {
        let mut section = Section::new("Throughput");
        let pairs = Pair::all(&self.runs);
        let mut rows = Vec::new();
        for pair in &pairs {
            let Some(gain) = pair.ratio(rate) else { continue };
            let known = published::THROUGHPUT.iter().find(|(name, _)| *name == pair.workload());
            let mut dots = vec![Dot::new(0, gain).beside(known.map(|(_, times)| *times))];
            if !pair.is_comparable() {
                "processors decided".clone_into(&mut dots[0].remark);
            }
            dots.extend(pair.rates_alone().map(|alone| Dot::new(1, alone)));
            rows.push(DotRow { name: pair.workload().to_owned(), dots });
        }
        let axis = Axis::linear("throughput with staging over without", Unit::Factor);
        let series = ["Esker", "by the drives' rates alone"];
        section.add(
            Chart::new(self.finding(), Dots::new(axis, series, rows))
                .note("By the drives' rates alone: what the bytes that each arm moved would give at published rates."),
        );
        section.add(table(RATES, self.rate_rows(), &[0, 1, 7]));
        section
    }

    /// The engine over RocksDB, or why that is not there; none where it was not asked for.
    fn beside_section(&self) -> Option<Section> {
        let mut section = Section::new("Beside RocksDB");
        section.list(self.skipped.iter().map(|why| format!("SKIPPED {why}")));
        let Some(description) = self.peer() else {
            return (!self.skipped.is_empty()).then_some(section);
        };
        let mut rows: Vec<DotRow> = Vec::new();
        for one in &self.beside {
            let series = usize::from(one.arm == Arm::Staged);
            let mut dot = Dot::new(series, one.throughput);
            if !one.is_comparable {
                "processors decided".clone_into(&mut dot.remark);
            }
            match rows.last_mut().filter(|row| row.name == one.workload) {
                Some(row) => row.dots.push(dot),
                None => rows.push(DotRow { name: one.workload.clone(), dots: vec![dot] }),
            }
        }
        let said = |arm| {
            let each = self.beside.iter().filter(|one| one.arm == arm && one.is_comparable);
            let each = each.map(|one| format!("{} {:.2}", one.workload, one.throughput));
            each.collect::<Vec<_>>().join(", ")
        };
        let title = format!("Throughput with staging over RocksDB's: {}", said(Arm::Staged));
        let axis = Axis::linear("throughput over RocksDB's", Unit::Factor);
        let series = Arm::ESKER.map(|arm| arm.to_string());
        section.add(
            Chart::new(title, Dots::new(axis, series, rows))
                .note("RocksDB has the capacity drives with a file system, and no staging drive."),
        );
        section.add(table(BESIDE, self.beside_rows(), &[0, 1, 5]));
        section.text(format!("RocksDB {description}"));
        Some(section)
    }

    fn tail_section(&self) -> Section {
        let mut section = Section::new("Latency");
        let rounds = self.first_rounds();
        let charts = rounds.iter().filter_map(|(workload, phases)| tail_chart(workload, phases));
        section.charts(charts.collect());
        section.add(table(LATENCIES, self.latency_rows(), &[0, 1, 2]));
        section
    }

    fn byte_section(&self) -> Section {
        let mut section = Section::new("Bytes written");
        section.charts(self.byte_chart().into_iter().collect());
        section.add(table(BYTES, self.byte_rows(), &[0, 1]));
        section.heading("The load, by stream");
        section.add(table(STREAMS, self.stream_rows(), &[0, 1, 2]));
        section
    }

    /// Chart with a bar for each workload and arm, of the bytes that streams wrote to each class.
    fn byte_chart(&self) -> Option<Chart> {
        let rounds = self.first_rounds();
        let all = || rounds.iter().flat_map(|(name, arms)| arms.iter().map(move |arm| (name, arm)));
        let mut parts: Vec<String> = Vec::new();
        for (_, (_, phase)) in all() {
            for one in phase.streams.iter().filter(|one| one.written_bytes > 0) {
                let part = part(one);
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        #[allow(clippy::cast_precision_loss)] // bytes for a chart
        let value = |phase: &Phase, part: &String| {
            let ours = phase.streams.iter().filter(|one| self::part(one) == *part);
            ours.map(|one| one.written_bytes as f64).sum::<f64>()
        };
        let bars: Vec<(String, Vec<f64>)> = all()
            .map(|(name, (arm, phase))| {
                (format!("{name}, {arm}"), parts.iter().map(|part| value(phase, part)).collect())
            })
            .filter(|(_, values): &(String, Vec<f64>)| values.iter().any(|value| *value > 0.0))
            .collect();
        let (_, load) = rounds.first()?;
        let capacity: Vec<String> = load
            .iter()
            .filter_map(|(arm, phase)| {
                let ratio = phase.per_user_byte(esker_kv::MediaClass::Capacity)?;
                Some(format!("{ratio:.2} {arm}"))
            })
            .collect();
        let title = format!(
            "Bytes that the load writes to capacity for each of the user's: {}",
            capacity.join(", ")
        );
        let axis = Axis::linear("written", Unit::Bytes);
        Some(Chart::new(title, Bars { axis, parts, bars }))
    }

    fn decider_section(&self) -> Section {
        let mut section = Section::new("What decided");
        section.text(
            "A run says something of drives when a drive was busy for most of the time and the processors were not. \
             Where neither was, the engine or its clients waited: for what, the list says.",
        );
        for (workload, phases) in self.first_rounds() {
            let held = phases.iter().filter(|(_, phase)| !phase.held_s.is_empty());
            let held = held.map(|(arm, phase)| {
                let causes: Vec<String> =
                    phase.held_s.iter().map(|(cause, s)| format!("{cause} {s:.1} s")).collect();
                format!("{workload}, {arm}: {}; all clients together", causes.join(", "))
            });
            section.list(held);
        }
        let remarks = self.runs.iter().flat_map(|run| &run.remarks);
        let mut seen: Vec<String> = Vec::new();
        for remark in remarks {
            if !seen.contains(remark) {
                seen.push(remark.clone());
            }
        }
        section.fold("What is known and assumed of the drives", vec![Block::List(seen)]);
        section
    }

    fn course_section(&self) -> Section {
        let mut section = Section::new("Over time");
        let mut charts = Vec::new();
        for (workload, phases) in self.first_rounds() {
            charts.extend(phases.iter().filter_map(|(arm, phase)| course(workload, *arm, phase)));
        }
        section.fold(
            "Throughput and latency of each run of the first round",
            vec![Block::Charts(charts)],
        );
        section
    }
}

/// The part of a bar that a stream is in: there are six colours, so keys of all ages are one.
fn part(one: &StreamBytes) -> String {
    let stream = if one.stream.ends_with(" keys") { "keys" } else { &one.stream };
    format!("{}, {stream}", one.class)
}

fn table<const N: usize>(head: [&str; N], rows: Vec<Vec<String>>, words: &[usize]) -> Table {
    let mut table = Table::new(head).words(words.iter().copied());
    for row in rows {
        // A workload's second arm stands right below its first.
        match table.rows.last().is_some_and(|last| last[0].text != row[0]) {
            true => table.ruled_row(row),
            false => table.row(row),
        }
    }
    table
}

/// Latency of a workload's reads by percentile, both arms.
fn tail_chart(workload: &str, phases: &[(Arm, &Phase)]) -> Option<Chart> {
    let curve = |(arm, phase): &(Arm, &Phase)| {
        let read = phase.run.by_operation.iter().find(|one| one.operation.name() == "read")?;
        let points = &read.latency.as_ref()?.by_percentile;
        // The fastest half came from memory.
        let slower = points.iter().filter(|one| one.one_in >= 2.0);
        #[allow(clippy::cast_precision_loss)] // latencies for a chart
        let points = slower.map(|one| (one.one_in, one.latency_ns as f64)).collect();
        Some(Curve::line(arm.to_string(), points))
    };
    let curves: Vec<Curve> = phases.iter().filter_map(curve).collect();
    let tails = phases.iter().filter_map(|(arm, phase)| {
        let us = phase.latency("read")?.p999_us;
        Some(format!("{} {arm}", Unit::Nanoseconds.show(us * 1e3)))
    });
    let tails: Vec<String> = tails.collect();
    let title = format!("{workload}: one read in a thousand takes {}", tails.join(", "));
    let axis = Axis::latency_ns("reads");
    (!curves.is_empty()).then(|| Chart::new(title, Curves::percentiles(axis, curves)))
}

/// Throughput and latency over a run.
#[allow(clippy::cast_precision_loss)] // figures for a chart
fn course(workload: &str, arm: Arm, phase: &Phase) -> Option<Chart> {
    let intervals = &phase.run.intervals;
    let last = intervals.last()?;
    let mut at: Vec<f64> = intervals.iter().map(|one| one.start_ns as f64 / 1e9).collect();
    at.push(last.end_ns as f64 / 1e9);
    let line = |name: &str, values: Vec<Option<f64>>| {
        let mut values = values;
        values.push(values.last().copied().flatten());
        Line::step(name, values)
    };
    let rates = intervals.iter().map(|one| Some(one.ops_per_s)).collect();
    let tails = intervals.iter().map(|one| one.p99_ns.map(|ns| ns as f64)).collect();
    let panels = vec![
        Panel::new(
            Axis::linear("operations", Unit::Rate),
            at.clone(),
            vec![line("operations", rates)],
        ),
        Panel::new(Axis::linear("p99", Unit::Nanoseconds), at, vec![line("p99", tails)]),
    ];
    let title = format!("{workload}, {arm}: {} in the mean", Unit::Rate.show(phase.ops_per_s));
    Some(Chart::new(title, Panels { x: Axis::seconds(), panels }))
}
