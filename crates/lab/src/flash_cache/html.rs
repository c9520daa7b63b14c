//! The report as a page: first what the source claims beside what came out, then each workload.

use esker_base::units::human_bytes;
use esker_report::{
    Axis, Block, Chart, Curve, Curves, Dot, DotRow, Dots, Draw, HeatMap, Outcome, Page, Range,
    Section, Table, Unit, Verdict,
};

use super::report::{COLUMNS, FlashCacheReport, SizeResult, VersionResult, WorkloadResult};

/// The version whose gains the source names.
const OF_2013: &str = "2013";
/// What the source claims of it, in percent.
const CLAIMS: [Claim; 2] = [
    Claim { what: "disk reads", fewer_percent: 40.0, of: |one| one.reads_saved * 100.0 },
    Claim { what: "disk writes", fewer_percent: 75.0, of: |one| one.writes_saved * 100.0 },
];

/// So much less of something.
struct Claim {
    what: &'static str,
    fewer_percent: f64,
    of: fn(&VersionResult) -> f64,
}

impl FlashCacheReport {
    /// The report as a page: verdicts on the source's claims, then for each workload the claims by
    /// size of the cache, hits and disk time of every version, hits by place of insertion, and tables of everything.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&self.title, self.headline());
        let times = &self.times;
        page.about = format!(
            "Over a {}: {:.2} ms for a random read, {:.2} ms for a write.",
            times.disk,
            times.read_ns / 1e6,
            times.write_ns / 1e6
        );
        page.verdicts = self.workloads.iter().flat_map(verdicts).collect();
        page.sections.push(self.versions_section());
        page.sections
            .extend(self.workloads.iter().map(|workload| section(workload, &self.versions)));
        page.environment = self.environment.clone();
        page.command.clone_from(&self.command);
        page
    }

    /// Whether the claims are reached on the first workload.
    fn headline(&self) -> String {
        let Some(workload) = self.workloads.first() else {
            return "No workload was run.".to_owned();
        };
        let part = |claim: &Claim| {
            let (least, most) = reach(workload, claim);
            let outcome = match outcome(workload, claim) {
                Outcome::Reached => "reached",
                Outcome::Partly => "reached at some sizes",
                _ => "not reached",
            };
            let (wanted, what) = (claim.fewer_percent, claim.what);
            format!("{} fewer {what}, {wanted} % claimed ({outcome})", from_to(least, most))
        };
        let parts: Vec<String> = CLAIMS.iter().map(part).collect();
        format!("{}: the version of 2013 needs {}.", workload.name, parts.join("; "))
    }

    fn versions_section(&self) -> Section {
        let mut section = Section::new("What is compared");
        section.pairs(self.versions.clone());
        section.list(self.notes.iter().cloned());
        section
    }
}

/// The version of 2013 at each size.
fn of_2013(workload: &WorkloadResult) -> impl Iterator<Item = (&SizeResult, &VersionResult)> {
    workload.sizes.iter().filter_map(|size| {
        let version = size.versions.iter().find(|version| version.name == OF_2013)?;
        Some((size, version))
    })
}

/// The least and the most that is saved, over the sizes.
fn reach(workload: &WorkloadResult, claim: &Claim) -> (f64, f64) {
    let saved = of_2013(workload).map(|(_, version)| (claim.of)(version));
    saved.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), one| {
        (least.min(one), most.max(one))
    })
}

fn outcome(workload: &WorkloadResult, claim: &Claim) -> Outcome {
    let (least, most) = reach(workload, claim);
    match (least >= claim.fewer_percent, most >= claim.fewer_percent) {
        (true, _) => Outcome::Reached,
        (false, true) => Outcome::Partly,
        (false, false) => Outcome::Missed,
    }
}

fn from_to(least: f64, most: f64) -> String {
    match (most - least).abs() < 0.05 {
        true => format!("{most:.1} %"),
        false => format!("{least:.1} to {most:.1} %"),
    }
}

fn verdicts(workload: &WorkloadResult) -> Vec<Verdict> {
    let judged = CLAIMS.iter().map(|claim| {
        let (least, most) = reach(workload, claim);
        Verdict {
            figure: format!("{}: fewer {} than the first version", workload.name, claim.what),
            published: format!("about {} %", claim.fewer_percent),
            esker: format!("{}, by size of the cache", from_to(least, most)),
            outcome: outcome(workload, claim),
        }
    });
    let halves: Vec<String> = workload
        .sizes
        .iter()
        .filter_map(|size| {
            let share = |name: &str| {
                let version = size.versions.iter().find(|version| version.name == name)?;
                Some(version.busier_half * 100.0)
            };
            let (before, after) = (share("first, FIFO")?, share(OF_2013)?);
            Some(format!("{before:.0} then {after:.0} % ({} %)", size.percent))
        })
        .collect();
    let halves = Verdict {
        outcome: Outcome::Shown,
        ..Verdict::new(
            format!("{}: disk operations of the busier half of the cache", workload.name),
            "80 then 50 %",
            halves.join(", "),
            true,
        )
    };
    judged.chain([halves]).collect()
}

fn section(workload: &WorkloadResult, versions: &[(String, String)]) -> Section {
    let mut section = Section::new(&workload.name);
    section.text(workload.line());
    let mut charts: Vec<Chart> = CLAIMS.iter().map(|claim| claimed(workload, claim)).collect();
    let names: Vec<String> = versions.iter().map(|(name, _)| name.clone()).collect();
    let best = best_of(workload);
    charts.push(by_version(workload, &names, best, "hits", Unit::Percent, |one| {
        one.hit_ratio * 100.0
    }));
    let least = "The shorter the disk works, the better";
    charts.push(by_version(
        workload,
        &names,
        least.to_owned(),
        "time on the disk",
        Unit::Seconds,
        |one| one.disk_s.round(),
    ));
    charts.push(insertion(workload));
    section.charts(charts);
    for size in &workload.sizes {
        let heading = format!("A cache of {} ({} %)", human_bytes(size.cache_bytes), size.percent);
        section.fold(heading, vec![Block::from(table(size))]);
    }
    section
}

/// What all versions save of what is claimed, by size; the claim is a hollow mark on the version it is of.
fn claimed(workload: &WorkloadResult, claim: &Claim) -> Chart {
    let shown = ["first, LRU", OF_2013, "Esker"];
    let rows = workload.sizes.iter().map(|size| {
        let dots = shown.iter().enumerate().filter_map(|(series, name)| {
            let version = size.versions.iter().find(|version| version.name == *name)?;
            let published = (*name == OF_2013).then_some(claim.fewer_percent);
            Some(Dot::new(series, (claim.of)(version)).beside(published))
        });
        DotRow { name: format!("a cache of {} %", size.percent), dots: dots.collect() }
    });
    let (least, most) = reach(workload, claim);
    let title = format!(
        "The version of 2013 saves {} of the {}; {} % was claimed",
        from_to(least, most),
        claim.what,
        claim.fewer_percent
    );
    let axis = Axis::linear(format!("fewer {} than the first version", claim.what), Unit::Percent);
    let mut dots = Dots::new(axis, shown, rows.collect());
    dots.hollow = "claimed of 2013".to_owned();
    Chart::new(title, dots)
}

/// The version that hits most and knows no future.
fn best_of(workload: &WorkloadResult) -> String {
    let Some(size) = workload.sizes.last() else { return "Hits".to_owned() };
    let known = size.versions.iter().filter(|version| version.name != "optimum");
    match known.max_by(|a, b| a.hit_ratio.total_cmp(&b.hit_ratio)) {
        Some(best) => format!(
            "With {} % of what is touched, '{}' hits most: {:.1} %",
            size.percent,
            best.name,
            best.hit_ratio * 100.0
        ),
        None => "Hits".to_owned(),
    }
}

/// A figure of every version at every size.
fn by_version(
    workload: &WorkloadResult,
    names: &[String],
    title: String,
    name: &str,
    unit: Unit,
    figure: impl Fn(&VersionResult) -> f64,
) -> Chart {
    let row = |version: &String| {
        let at =
            |size: &SizeResult| size.versions.iter().find(|one| one.name == *version).map(&figure);
        workload.sizes.iter().map(at).collect()
    };
    let map = HeatMap {
        column_name: "size of the cache, of what is touched".to_owned(),
        columns: workload.sizes.iter().map(|size| format!("{} %", size.percent)).collect(),
        row_name: "version".to_owned(),
        rows: names.to_vec(),
        name: name.to_owned(),
        unit,
        values: names.iter().map(row).collect(),
    };
    Chart::new(title, map)
}

/// Hits by the place at which the version of 2013 inserts.
fn insertion(workload: &WorkloadResult) -> Chart {
    let curve = |size: &SizeResult| {
        let points = size.by_percentile.iter();
        let points = points.map(|one| (f64::from(one.percentile), one.hit_ratio * 100.0)).collect();
        Curve::new(format!("a cache of {} %", size.percent), Draw::Points, points)
    };
    let spread = workload.sizes.iter().map(|size| {
        let hits = || size.by_percentile.iter().map(|point| point.hit_ratio);
        hits().fold(0.0, f64::max) - hits().fold(1.0, f64::min)
    });
    let title = format!(
        "The place of insertion decides over {:.1} points of hits at most",
        spread.fold(0.0, f64::max) * 100.0
    );
    let x = Axis::linear("insertion percentile, from the end that is evicted", Unit::Plain);
    let y = Axis::linear("hits", Unit::Percent).over(Range::Data);
    let curves = workload.sizes.iter().map(curve).collect();
    Chart::new(title, Curves::new(x.over(Range::Data), y, curves))
}

fn table(size: &SizeResult) -> Table {
    let mut table = Table::new(COLUMNS);
    for row in size.rows() {
        table.row(row);
    }
    table
}
