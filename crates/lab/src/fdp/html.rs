//! The document: for each workload its factors with and without placement, beside published ones.

use esker_report::{
    Axis, Block, Chart, Dot, DotRow, Dots, Page, Precondition, Range, Section, Table, Unit, Verdict,
};

use super::course::Measured;
use super::network::{NetworkFigures, Pair};
use super::report::{Chapter, FdpFigures, Published, Run};
use super::rows::{self, Row};
use super::table::{factor, figure, sources, spare_cells};
use super::worth::Worth;

/// The column of what a run has for itself.
const UNLIKE: &str = "unlike the others";
/// How far a model's factor may be from a published one that it is to reproduce, as a share.
const NEAR: f64 = 0.05;

impl FdpFigures {
    /// The document: for each chapter a dot plot of its workloads with published figures as hollow marks, its runs as a
    /// table, and their course, folded away.
    pub(super) fn document(&self) -> Page {
        let (stores, on) = (self.stores, self.device.as_deref().unwrap_or("one drive"));
        let title = format!("{stores} stores on {on}, with and without data placement");
        let mut page = Page::new(title, self.headline());
        let origin = match &self.device {
            None => "of a model".to_owned(),
            Some(device) => format!("that of {device}, as its own log says"),
        };
        page.about = format!(
            "Write amplification: bytes written to the media for each byte that the host writes. Every factor is \
             {origin}, over its last two spans."
        );
        page.sections.extend(self.chapters.iter().map(section));
        page.sections.extend(self.worth.as_ref().map(worth_section));
        page
    }

    /// The published factors beside those of the model; a device's own are beside none.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        match self.device {
            None => self.chapters.iter().flat_map(verdicts).collect(),
            Some(_) => Vec::new(),
        }
    }

    /// The workload for which placement does most.
    fn headline(&self) -> String {
        let mut most: Option<(f64, String)> = None;
        for chapter in &self.chapters {
            for row in rows::of(chapter) {
                let Some((without, with)) = row.gain() else { continue };
                let text = format!(
                    "Placement takes write amplification from {without:.2} to {with:.2} ({}; {}), the most of all.",
                    chapter.name, row.name
                );
                if most.as_ref().is_none_or(|(gain, _)| without - with > *gain) {
                    most = Some((without - with, text));
                }
            }
        }
        most.map_or_else(|| "No run has placement.".to_owned(), |(_, text)| text)
    }
}

impl NetworkFigures {
    /// The document: each factor both ways, whether they are the same to the byte, and all they depend on.
    pub(super) fn document(&self) -> Page {
        let (all, equal) =
            (self.pairs.len(), self.pairs.iter().filter(|pair| pair.is_equal()).count());
        let headline = format!(
            "{equal} of {all} workloads write the same in process and over NVMe/TCP, to the byte."
        );
        let run = |pair: &Pair| Run {
            name: pair.name.clone(),
            assumptions: pair.assumptions.clone(),
            measured: pair.in_process.clone(),
            published: None,
        };
        let chapter = Chapter {
            name: "Write amplification both ways".to_owned(),
            notes: Vec::new(),
            runs: self.pairs.iter().map(run).collect(),
            derived: Vec::new(),
        };
        let head = ["run", "WAF in process", "over the network", "bytes", UNLIKE];
        let rows = self.pairs.iter().zip(&chapter.runs).map(|(pair, run)| {
            let waf = |measured: &Measured| format!("{:.3}", measured.write_amplification);
            let equal = if pair.is_equal() { "equal" } else { "DIFFERENT" };
            let (here, there) = (waf(&pair.in_process), waf(&pair.over_network));
            [pair.name.clone(), here, there, equal.to_owned(), unlike(&chapter, run)]
        });
        let mut section = Section::new(&chapter.name);
        section.add(Table::of(head, rows).words([0, 3, 4]));
        depends(&mut section, &chapter);
        let mut page =
            Page::new("Four stores on one drive, in process and over NVMe/TCP", headline);
        page.sections.push(section);
        page
    }
}

fn verdicts(chapter: &Chapter) -> Vec<Verdict> {
    let of_runs = chapter.runs.iter().filter_map(|run| {
        let published = run.published.as_ref()?;
        let waf = run.measured.write_amplification;
        Some((&run.name, waf, published, rows::has_handles(run), run.measured.is_steady))
    });
    let are_steady = chapter.runs.iter().all(|run| run.measured.is_steady);
    let derived = chapter.derived.iter().filter_map(|derived| {
        let published = derived.published.as_ref()?;
        Some((&derived.name, derived.write_amplification, published, true, are_steady))
    });
    let verdict =
        |(name, waf, published, is_bound, is_steady): (&String, f64, &Published, bool, bool)| {
            let (how, is_reached) = if is_bound {
                ("at most", waf <= published.figure)
            } else {
                ("within 5 % of", (waf / published.figure - 1.0).abs() <= NEAR)
            };
            let found = if is_steady { "steady" } else { "it still changes" };
            Verdict::new(format!("{}: {name}", chapter.name), format!("{waf:.3}"))
                .published(format!("{} ({})", published.figure, published.source))
                .wanted(format!("{how} {}", published.figure), is_reached)
                .requires(Precondition::new("a steady factor", found, is_steady))
        };
    of_runs.chain(derived).map(verdict).collect()
}

fn section(chapter: &Chapter) -> Section {
    let mut section = Section::new(&chapter.name);
    let all = rows::of(chapter);
    section.add(dots(chapter, &all));
    let sources = sources(chapter).into_iter().map(|source| format!("Published: {source}."));
    let unsteady = chapter.runs.iter().any(|run| !run.measured.is_steady);
    let mark = unsteady
        .then(|| "? Not steady: the last two spans differ by more than half a percent.".to_owned());
    section.list(chapter.notes.iter().cloned().chain(sources).chain(mark));
    section.add(table(chapter));
    depends(&mut section, chapter);
    let courses: Vec<Chart> = all.iter().filter_map(Row::course).collect();
    if !courses.is_empty() {
        section.fold("The course of each workload over drive writes", vec![Block::Charts(courses)]);
    }
    section
}

/// Adds the assumptions that most runs of a chapter share.
fn depends(section: &mut Section, chapter: &Chapter) {
    let usual = chapter.usual().into_iter().map(|one| (one.name.clone(), one.value.clone()));
    section.heading("All of them, unless a row says otherwise");
    section.pairs(usual.collect());
}

/// The assumptions of a run that most others do not share.
fn unlike(chapter: &Chapter, run: &Run) -> String {
    let unlike = chapter.unlike(run);
    let unlike = unlike.iter().map(|one| format!("{}: {}", one.name, one.value));
    unlike.collect::<Vec<_>>().join("; ")
}

/// A row for each workload, a lane for each way of placing.
fn dots(chapter: &Chapter, all: &[Row<'_>]) -> Chart {
    let series = rows::series(all);
    let mut dot_rows: Vec<DotRow> = all
        .iter()
        .map(|row| DotRow {
            name: row.name.to_owned(),
            dots: row.runs.iter().map(|(placing, run)| dot(&series, placing, run)).collect(),
        })
        .collect();
    dot_rows.extend(chapter.derived.iter().map(|derived| {
        let published = derived.published.as_ref().map(|one| one.figure);
        let dots = vec![Dot::new(0, derived.write_amplification).beside(published)];
        DotRow { name: derived.name.clone(), dots }
    }));
    let gain = |row: &&Row<'_>| row.gain().map_or(0.0, |(without, with)| without - with);
    let most = all.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)));
    let title = match most.and_then(Row::finding) {
        Some(finding) => finding,
        None => format!("{}: write amplification", chapter.name),
    };
    let axis = Axis::linear("write amplification", Unit::FineFactor);
    Chart::new(title, Dots::new(axis.over(Range::Fixed(1.0, 1.1)), series, dot_rows))
}

fn dot(series: &[String], placing: &str, run: &Run) -> Dot {
    let series = series.iter().position(|one| one == placing).unwrap_or(0);
    let published = run.published.as_ref().map(|one| one.figure);
    let remark = if run.measured.is_steady { "" } else { "not steady" };
    let dot = Dot::new(series, run.measured.write_amplification).beside(published);
    Dot { remark: remark.to_owned(), ..dot }
}

fn table(chapter: &Chapter) -> Table {
    let mut table = Table::new(["run", "WAF", "published", "drive writes", UNLIKE]).words([4]);
    for run in &chapter.runs {
        table.row([
            run.name.clone(),
            factor(run).trim_end().to_owned(),
            figure(run.published.as_ref()),
            format!("{:.1}", run.measured.drive_writes),
            unlike(chapter, run),
        ]);
    }
    for derived in &chapter.derived {
        table.row([
            derived.name.clone(),
            format!("{:.3}", derived.write_amplification),
            figure(derived.published.as_ref()),
            String::new(),
            String::new(),
        ]);
    }
    table
}

fn worth_section(worth: &Worth) -> Section {
    let mut section = Section::new("What it is worth");
    section.list(worth.assumptions.iter().cloned());
    section.heading("Drive life");
    let mut lives =
        Table::new(["under", "WAF", "drive writes a day for 5 years", "years at one a day"]);
    for life in &worth.lives {
        lives.row([
            life.name.clone(),
            format!("{:.3}", life.write_amplification),
            format!("{:.2}", life.drive_writes_per_day),
            format!("{:.1}", life.years),
        ]);
    }
    section.add(lives);
    section.heading("Spare space");
    let mut spares =
        Table::new(["for the same factor", "WAF", "over-provisioning", "capacity regained"]);
    for spare in &worth.spares {
        let (needed, regained) = spare_cells(spare);
        let waf = format!("{:.3}", spare.write_amplification);
        spares.row([spare.name.clone(), waf, needed, regained]);
    }
    section.add(spares);
    section
}
