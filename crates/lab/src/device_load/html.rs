//! The report of a load as a page.

use esker_report::{
    Assumption, Axis, Chart, Curve, Curves, Line, Page, Panel, Panels, Section, Table, Unit,
};

use super::report::{Carried, DriveResult, KindResult, LoadReport, NOTHING_TO_READ};

/// Points of the course that are put together where there are more.
const POINTS: usize = 400;
/// Units by how often they were erased are told where there are so few kinds.
const FEW: usize = 8;

impl LoadReport {
    /// The page: requests with their latencies, the course of the load, and the wear of a modelled drive.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(format!("A load on {}", self.device), self.headline());
        page.about.clone_from(&self.load);
        let mut section = Section::new("Requests");
        section.add(self.requests());
        section.text(self.traffic());
        section.charts([self.over_time(), self.by_percentile()].into_iter().flatten().collect());
        page.sections.push(section);
        page.sections.extend(self.drive.as_ref().map(drive));
        let notes = (1..).zip(&self.remarks);
        page.assumptions =
            notes.map(|(at, note)| Assumption::new(format!("note {at}"), note)).collect();
        page.environment = self.environment.clone();
        page.command.clone_from(&self.command);
        page
    }

    fn headline(&self) -> String {
        let of = |kind: &KindResult| {
            let latency = kind.latency.as_ref()?;
            let rate = Unit::Count.show(kind.requests_per_s);
            let p99 = Unit::Nanoseconds.show(latency.p99_ns as f64);
            Some(format!("{rate} {}s a second, one in 100 longer than {p99}", kind.kind))
        };
        let kinds: Vec<String> = self.kinds.iter().filter_map(of).collect();
        match kinds.is_empty() {
            true => "No request came back.".to_owned(),
            false if self.remarks.iter().any(|one| one == NOTHING_TO_READ) => {
                format!("{}; {NOTHING_TO_READ}.", kinds.join("; "))
            }
            false => format!("{}.", kinds.join("; ")),
        }
    }

    /// The bytes that the device carried meanwhile, in a sentence.
    fn traffic(&self) -> String {
        let Carried { read_bytes, written_bytes, discarded_bytes } = self.carried;
        let bytes = |bytes: u64| Unit::Bytes.show(bytes as f64);
        format!(
            "In {:.2} s of the device's time: {} read, {} written, {} discarded.",
            self.elapsed_ns as f64 / 1e9,
            bytes(read_bytes),
            bytes(written_bytes),
            bytes(discarded_bytes)
        )
    }

    fn requests(&self) -> Table {
        let head = [
            "",
            "requests",
            "per second",
            "bytes a second",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "longest",
        ];
        let mut table = Table::new(head);
        for kind in &self.kinds {
            let mut cells = vec![
                kind.kind.clone(),
                kind.requests.to_string(),
                Unit::Count.show(kind.requests_per_s),
                Unit::BytesRate.show(kind.bytes_per_s),
            ];
            let ns = |ns: f64| Unit::Nanoseconds.show(ns);
            if let Some(latency) = &kind.latency {
                let each = [latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns];
                cells.push(ns(latency.mean_ns));
                cells.extend(each.map(|one| ns(one as f64)));
            }
            cells.resize(9, String::new());
            table.row(cells);
        }
        table
    }

    fn over_time(&self) -> Option<Chart> {
        let together = self.course.len().div_ceil(POINTS).max(1);
        let mut begin_ns = 0;
        let (mut at, mut requests, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for points in self.course.chunks(together) {
            // The last interval is as long as the load had left of it.
            let end_ns = points.last()?.end_ns.min(self.elapsed_ns.max(begin_ns + 1));
            let seconds = (end_ns - begin_ns) as f64 / 1e9;
            let sum = |of: fn(&(u64, u64)) -> u64| {
                let each = points.iter().map(|one| of(&(one.requests, one.bytes)));
                each.sum::<u64>() as f64 / seconds
            };
            at.push(f64::midpoint(begin_ns as f64, end_ns as f64) / 1e9);
            requests.push(Some(sum(|one| one.0)));
            bytes.push(Some(sum(|one| one.1)));
            begin_ns = end_ns;
        }
        let least = requests.iter().flatten().copied().min_by(f64::total_cmp)?;
        let panel = |name: &str, unit, line: &str, values| {
            Panel::new(Axis::linear(name, unit), at.clone(), vec![Line::slope(line, values)])
        };
        let panels = vec![
            panel("requests a second", Unit::Rate, "requests", requests),
            panel("bytes a second", Unit::BytesRate, "bytes", bytes),
        ];
        let title =
            format!("The slowest interval had {} requests a second", Unit::Count.show(least));
        Some(Chart::new(title, Panels { x: Axis::seconds(), panels }))
    }

    fn by_percentile(&self) -> Option<Chart> {
        let (mut curves, mut tails) = (Vec::new(), Vec::new());
        for kind in &self.kinds {
            let Some(latency) = &kind.latency else { continue };
            let points = latency.by_percentile.iter();
            let points = points.map(|point| (point.one_in, point.latency_ns as f64)).collect();
            curves.push(Curve::line(&kind.kind, points));
            tails.push(format!(
                "{} ({})",
                Unit::Nanoseconds.show(latency.p99_ns as f64),
                kind.kind
            ));
        }
        let title = format!("One request in 100 takes longer than {}", tails.join(", "));
        (!curves.is_empty())
            .then(|| Chart::new(title, Curves::percentiles(Axis::latency_ns("latency"), curves)))
    }
}

/// The wear of a modelled drive.
fn drive(drive: &DriveResult) -> Section {
    let bytes = |bytes: u64| Unit::Bytes.show(bytes as f64);
    let mut section = Section::new("The drive");
    let amplification = drive.write_amplification;
    let mut facts = vec![
        ("written by the host".to_owned(), bytes(drive.host_written_bytes)),
        ("written to the media".to_owned(), bytes(drive.media_written_bytes)),
    ];
    facts.extend(amplification.map(|it| ("write amplification".to_owned(), format!("{it:.3}"))));
    facts.push(("of the rated life".to_owned(), format!("{:.3} %", drive.life_percent)));
    facts.push(("the host can address".to_owned(), bytes(drive.capacity_bytes)));
    let units = format!(
        "{} in {} units of {}, of which {} are cleaning's own",
        bytes(drive.physical_bytes),
        drive.units,
        bytes(drive.unit_bytes),
        drive.reserve_units
    );
    facts.push(("media".to_owned(), units));
    let erased = drive.wear.iter().map(|(times, units)| format!("{units} units {times} times"));
    if drive.wear.len() <= FEW {
        facts.push(("erased so far".to_owned(), erased.collect::<Vec<_>>().join(", ")));
    }
    section.pairs(facts);
    section
}
