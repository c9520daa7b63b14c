//! The document of the study.

use esker_base::units::human_bytes;
use esker_report::{
    Axis, Block, Chart, Curve, Curves, Dot, DotRow, Dots, Draw, HeatMap, Page, Range, Section,
    Table, Unit,
};

use super::report::FlashCacheFigures;
use super::results::{COLUMNS, SizeResult, VersionResult, WorkloadResult};
use super::verdict::{ESKER, OF_2013, READS, Saving, WRITES};

impl FlashCacheFigures {
    /// The document: the versions, what was measured on devices, then for each workload the claims by size of the cache,
    /// hits and disk time of every version, hits by place of insertion, and tables of everything.
    pub(super) fn document(&self) -> Page {
        let mut page = Page::new("A flash cache, then and now", self.finding());
        let times = &self.times;
        page.about = format!(
            "Over a {}: {:.2} ms for a random read, {:.2} ms for a write, {:.1} µs for a further block.",
            times.disk,
            times.read_ns / 1e6,
            times.write_ns / 1e6,
            times.block_ns / 1e3
        );
        page.sections.push(self.versions_section());
        if let Some(real) = &self.real {
            page.headline = format!("{} {}", page.headline, real.headline());
            page.sections.push(real.section());
            page.assumptions = real.assumptions.iter().cloned().map(Into::into).collect();
        }
        page.sections
            .extend(self.workloads.iter().map(|workload| section(workload, &self.versions)));
        page
    }

    /// The savings of the version of 2013 on the first workload.
    fn finding(&self) -> String {
        let Some(workload) = self.workloads.first() else {
            return "No workload was run.".to_owned();
        };
        let part = |saving: &Saving| {
            let (least, most) = reach(workload, saving);
            format!(
                "{} of the {} ({} % claimed)",
                from_to(least, most),
                saving.what,
                saving.claimed
            )
        };
        format!(
            "{}: the version of 2013 saves {} and {}.",
            workload.name,
            part(&READS),
            part(&WRITES)
        )
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
    workload.sizes.iter().filter_map(|size| Some((size, size.version(OF_2013)?)))
}

/// The least and the most that is saved, over the sizes.
fn reach(workload: &WorkloadResult, saving: &Saving) -> (f64, f64) {
    let saved = of_2013(workload).map(|(_, version)| (saving.of)(version));
    saved.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), one| {
        (least.min(one), most.max(one))
    })
}

fn from_to(least: f64, most: f64) -> String {
    match (most - least).abs() < 0.05 {
        true => format!("{most:.1} %"),
        false => format!("{least:.1} to {most:.1} %"),
    }
}

fn section(workload: &WorkloadResult, versions: &[(String, String)]) -> Section {
    let mut section = Section::new(&workload.name);
    section.text(workload.line());
    let mut charts: Vec<Chart> = vec![claimed(workload, &READS), claimed(workload, &WRITES)];
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
        let points = size.by_percentile.iter();
        let points = points.map(|one| format!("{} {:.1}", one.percentile, one.hit_ratio * 100.0));
        let points = points.collect::<Vec<_>>().join(", ");
        section.fold(
            heading,
            vec![
                Block::from(Table::of(COLUMNS, size.rows())),
                Block::Text(format!("Hits in % by insertion percentile: {points}.")),
            ],
        );
    }
    section
}

/// Chart of the savings of all versions beside the claimed one, by size; the claim is a hollow mark on its version.
fn claimed(workload: &WorkloadResult, saving: &Saving) -> Chart {
    let shown = ["first, LRU", OF_2013, ESKER];
    let rows = workload.sizes.iter().map(|size| {
        let dots = shown.iter().enumerate().filter_map(|(series, name)| {
            let published = (*name == OF_2013).then_some(saving.claimed);
            Some(Dot::new(series, (saving.of)(size.version(name)?)).beside(published))
        });
        DotRow { name: format!("a cache of {} %", size.percent), dots: dots.collect() }
    });
    let (least, most) = reach(workload, saving);
    let title = format!(
        "The version of 2013 saves {} of the {}; {} % was claimed",
        from_to(least, most),
        saving.what,
        saving.claimed
    );
    let axis = Axis::linear(format!("fewer {} than the first version", saving.what), Unit::Percent);
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
        let at = |size: &SizeResult| size.version(version).map(&figure);
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
    let x = Axis::linear(
        "insertion percentile: 1 inserts as LRU does, 100 at the end that is evicted",
        Unit::Plain,
    );
    let y = Axis::linear("hits", Unit::Percent).over(Range::Data);
    let curves = workload.sizes.iter().map(curve).collect();
    Chart::new(title, Curves::new(x.over(Range::Data), y, curves))
}
