//! The document: a cumulative distribution for each depth, and the worth of each part.

use esker_base::units::counted;
use esker_report::{Axis, Bars, Block, Chart, Curve, Curves, Draw, Page, Section, Table, Unit};

use super::account::{AROUND, ESKER, PAGER};
use super::devices::{COLUMNS, DeviceResult};
use super::report::{
    BOUNDED_COLUMNS, DepthResult, HostSsdFigures, LATENCY_COLUMNS, Latency, StepResult, over,
};

impl HostSsdFigures {
    /// The document: a cumulative distribution for each depth, the account of each part's worth, and where all figures are
    /// from.
    pub(super) fn document(&self) -> Page {
        let mut page = Page::new("An SSD that the host manages", self.finding());
        page.about = "A software-controlled SSD beside a conventional drive of the same NAND, in virtual time: the \
                      same figures on every machine."
            .to_owned();
        page.sections = vec![self.latency_section()];
        page.sections.extend(self.device_section());
        page.sections.push(self.account_section());
        page.sections.extend(self.installed_section());
        page.sections.push(self.drive_section());
        page.assumptions.clone_from(&self.assumptions);
        page
    }

    /// The gain of Esker's whole way over both kernels, with the fewest threads.
    fn finding(&self) -> String {
        let scans = |other| over(&self.account, other, |one| one.scan_factor).first().copied();
        let last = self.account.get(ESKER).and_then(|step| step.by_threads.first());
        let (Some(one), Some((_, around)), Some((_, pager))) = (last, scans(AROUND), scans(PAGER))
        else {
            return String::new();
        };
        format!(
            "With {}, lookups are {:.2} times and scans {:.2} times as fast as on the conventional drive with a kernel \
             that reads nothing ahead. Scans are {around:.2} times those of a kernel that reads 128 KiB around each \
             fault, and {pager:.2} times those of Esker's pager on the conventional drive.",
            counted(u64::from(one.threads), "thread"),
            one.lookup_factor,
            one.scan_factor
        )
    }

    fn latency_section(&self) -> Section {
        let mut section = Section::new("4 KiB reads at random");
        let one = |depth| distribution(&self.grid_us, depth, &self.devices);
        section.charts(self.depths.iter().map(one).collect());
        section.heading("Microseconds: p50 / p80 / p99 / p99.9");
        section.add(Table::of(LATENCY_COLUMNS, self.latency_rows()));
        section.heading("So many at the dies, and 64 more in the host");
        section.add(Table::of(BOUNDED_COLUMNS, self.bounded_rows()));
        section
    }

    fn device_section(&self) -> Option<Section> {
        let mut section = Section::new("Named devices");
        section.charts(vec![medians(&self.depths, &self.devices)?]);
        for device in &self.devices {
            section.heading(device.subtitle());
            section.text(&device.comparison);
            section.add(Table::of(COLUMNS, device.rows(&self.depths)));
            section.list(device.remarks.iter().cloned());
        }
        Some(section)
    }

    fn account_section(&self) -> Section {
        let mut section = Section::new("Data four times memory");
        section.text(
            "What a lookup takes and what a scan carries; in parentheses how many times faster than in the first line.",
        );
        section.charts(factors(&self.account));
        let (head, rows) = self.account_rows();
        section.add(Table::of(head, rows));
        section.list(self.account.iter().map(|step| {
            let beside = if step.is_on_the_way { "" } else { " (for comparison)" };
            format!("{}{beside}: {}", step.name, step.what)
        }));
        section.heading("Factors with one thread, where a figure is another one");
        section.add(Table::of(["figure", "lookups", "scan"], self.sensitivity_rows()));
        section
    }

    fn installed_section(&self) -> Option<Section> {
        let installed = self.installed.as_ref()?;
        let mut section = Section::new("What is installed here");
        section.text(installed.subtitle());
        for (head, rows) in [installed.way_rows(), installed.query_rows()] {
            if !rows.is_empty() {
                section.add(Table::of(head, rows));
            }
        }
        section.list(installed.ways.iter().map(|one| format!("{}: {}", one.name, one.what)));
        Some(section)
    }

    fn drive_section(&self) -> Section {
        let mut section = Section::new("The drives");
        for drive in &self.drives {
            let sources = drive.sources.iter().map(|one| format!("Source: {one}"));
            let assumed = drive.assumptions.iter().map(|one| format!("Assumed: {one}"));
            section.heading(&drive.title);
            section.add(Block::List(sources.chain(assumed).collect()));
        }
        section.list(self.skipped.iter().map(|one| format!("Skipped: {one}")));
        section
    }
}

/// The median read of the conventional drive and of named devices by depth; none where no device is named.
fn medians(models: &[DepthResult], devices: &[DeviceResult]) -> Option<Chart> {
    let best = devices.iter().flat_map(|one| &one.depths).map(|one| one.latency.p50_us);
    let best = best.reduce(f64::min)?;
    let curve = |name: &str, medians: Vec<(u32, &Latency)>| {
        let point = |(depth, of): (u32, &Latency)| (f64::from(depth), of.p50_us * 1000.0);
        let mut points: Vec<(f64, f64)> = medians.into_iter().map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Curve::new(name, Draw::Points, points)
    };
    let model = models.iter().map(|one| (one.depth, &one.conventional)).collect();
    let mut curves = vec![curve("conventional, modelled", model)];
    curves.extend(devices.iter().map(|device| {
        curve(&device.name, device.depths.iter().map(|one| (one.depth, &one.latency)).collect())
    }));
    let (x, y) = (Axis::log("reads at a time", Unit::Plain), Axis::latency_ns("the median read"));
    let title = format!("The shortest median of a named device is {best:.0} µs");
    Some(Chart::new(title, Curves::new(x, y, curves)))
}

/// The share of reads over microseconds at one depth.
fn distribution(grid_us: &[u32], depth: &DepthResult, devices: &[DeviceResult]) -> Chart {
    let curve = |name: &str, latency: &Latency| {
        let points = grid_us.iter().zip(&latency.cumulative);
        let points = points.map(|(us, share)| (f64::from(*us) * 1000.0, share * 100.0));
        Curve::line(name, points.collect())
    };
    let mut curves = vec![
        curve("conventional", &depth.conventional),
        curve("host, as they come", &depth.in_order),
        // It lies on the one before where the window changes nothing.
        Curve { draw: Draw::Dashed, ..curve("window, from submission", &depth.submission) },
        curve("window, from issue", &depth.issue),
    ];
    let seen = devices.iter().filter_map(|one| Some((one, one.at(depth.depth)?)));
    curves.extend(seen.map(|(one, at)| curve(&one.name, &at.latency)));
    let title = format!(
        "{} at a time: p99 is {:.0} µs conventionally, {:.0} µs from submission, {:.0} µs from issue",
        depth.depth, depth.conventional.p99_us, depth.submission.p99_us, depth.issue.p99_us
    );
    let x = Axis::linear("latency", Unit::Nanoseconds);
    Chart::new(title, Curves::cumulative(x, "reads that took no longer", curves))
}

/// For the fewest and the most threads a bar for each step: how many times faster than the first.
fn factors(account: &[StepResult]) -> Vec<Chart> {
    let threads = account.first().map_or(&[][..], |first| &first.by_threads[..]);
    let mut charts = Vec::new();
    for (at, one) in threads.iter().enumerate() {
        if at > 0 && at + 1 < threads.len() {
            continue;
        }
        let plural = if one.threads == 1 { "" } else { "s" };
        let mut chart = |what: &str, factor: fn(&super::report::ThreadsResult) -> f64| {
            let bars: Vec<(String, Vec<f64>)> = account
                .iter()
                .filter_map(|step| {
                    Some((step.name.clone(), vec![factor(step.by_threads.get(at)?)]))
                })
                .collect();
            let best = bars.iter().map(|(_, values)| values[0]).fold(0.0, f64::max);
            let axis = Axis::linear("times as fast as the first", Unit::Factor);
            let title =
                format!("{what}, {} thread{plural}: up to {best:.2} times as fast", one.threads);
            charts.push(Chart::new(title, Bars { axis, parts: vec![what.to_owned()], bars }));
        };
        chart("lookups", |one| one.lookup_factor);
        chart("scans", |one| one.scan_factor);
    }
    charts
}
