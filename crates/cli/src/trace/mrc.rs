//! `esker trace mrc`: miss-ratio curves as a table, as JSON, as a chart.

use esker_base::units::{human_bytes, to_u64};
use esker_report::{Curve, Curves, Draw, Mark, Page, Section, Table, Unit};
use esker_trace::keys::Numbering;
use esker_trace::memory::Short;
use esker_trace::mrc::{ExactLru, Point, SampledLru, belady, sizes};
use esker_trace::{BLOCK_BYTES, Trace, TraceError, block_refs};
use serde_json::{Value, json};

use super::input::{memory, open, remark, title};
use crate::args::MrcArgs;
use crate::failure::{Failure, Result};
use crate::figures::{align, grouped};
use crate::host;
use crate::output::Outputs;

/// The seed of the samples: any other gives another estimate as good.
const SEED: u64 = 1;

/// How many sizes the optimum is computed for, unless they were given.
const OPTIMA: usize = 8;

/// Memory that the optimum takes for a reference, in bytes, beside its number.
const OPTIMUM_BYTES: u64 = 20;

/// The curves found, and how.
struct Found {
    title: String,
    references: u64,
    blocks: u64,
    /// The lowest rate of the samples; `None` when the curve is exact.
    rate: Option<f64>,
    lru: Vec<Point>,
    optimum: Vec<Point>,
}

pub(super) fn show(args: &MrcArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_ref(), args.report.as_ref())?;
    let mut trace = open(&args.input)?;
    let curves = match args.sampled {
        Some(blocks) => sampled(args, &mut trace, blocks)?,
        None => exact(args, &mut trace)?,
    };
    remark(&trace);
    if curves.references == 0 {
        return Err(Failure::usage("the trace has no request that reads or writes"));
    }
    outputs.say(&curves.text())?;
    outputs.finish(&curves.json(), &curves.page().html())
}

/// How many references are taken at a time, at most.
const PART: usize = 4096;

/// Calls `take` with every reference, some at a time.
fn each(trace: &mut Trace, mut take: impl FnMut(&[u64]) -> Result) -> Result<u64> {
    let (mut batch, mut keys, mut references) = (Vec::new(), Vec::new(), 0);
    loop {
        batch.clear();
        let more = trace.next_batch(&mut batch)?;
        for request in &batch {
            // A request may be for all of a device: its keys are taken in parts.
            let mut blocks = block_refs(request);
            loop {
                keys.clear();
                keys.extend(blocks.by_ref().take(PART).map(|block| block.key));
                if keys.is_empty() {
                    break;
                }
                take(&keys)?;
                references += to_u64(keys.len());
            }
        }
        if !more {
            return Ok(references);
        }
    }
}

/// The sizes in blocks.
fn wanted(args: &MrcArgs, blocks: u64) -> Vec<u64> {
    if args.sizes.is_empty() {
        return sizes(blocks, args.points);
    }
    let mut sizes: Vec<u64> = args.sizes.iter().map(|bytes| (bytes / BLOCK_BYTES).max(1)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn sampled(args: &MrcArgs, trace: &mut Trace, sample: u32) -> Result<Found> {
    let mut lru = SampledLru::new(sample as usize, SEED);
    let references = each(trace, |keys| {
        keys.iter().for_each(|key| lru.reference(*key));
        Ok(())
    })?;
    let blocks = lru.blocks();
    Ok(Found {
        title: title(&args.input),
        references,
        blocks,
        rate: Some(lru.rate()),
        lru: lru.curve(&wanted(args, blocks)),
        optimum: Vec::new(),
    })
}

fn exact(args: &MrcArgs, trace: &mut Trace) -> Result<Found> {
    let mut lru = ExactLru::default();
    let (mut numbering, mut numbers) = (Numbering::default(), Vec::new());
    let references = each(trace, |keys| {
        let blocks = lru.blocks();
        let short = |Short(bytes)| TraceError::Memory { blocks, bytes };
        lru.reserve(keys.len(), memory()).map_err(short)?;
        keys.iter().for_each(|key| lru.reference(*key));
        if args.optimum {
            numbering.reserve(keys.len(), memory()).map_err(short)?;
            memory().reserve(&mut numbers, keys.len()).map_err(short)?;
            numbers.extend(keys.iter().map(|key| numbering.number(*key).0));
        }
        Ok(())
    })?;
    if args.optimum {
        // When each reference is needed next, and a heap of as many.
        let bytes = to_u64(numbers.len()).saturating_mul(OPTIMUM_BYTES);
        memory()
            .check(bytes)
            .map_err(|Short(bytes)| TraceError::Memory { blocks: lru.blocks(), bytes })?;
    }
    let blocks = lru.blocks();
    let sizes = wanted(args, blocks);
    let every = if args.sizes.is_empty() { sizes.len().div_ceil(OPTIMA) } else { 1 };
    let mut optimum = Vec::new();
    if args.optimum {
        for &blocks in sizes.iter().step_by(every.max(1)) {
            optimum.push(Point { blocks, miss_ratio: belady(&numbers, blocks), error: 0.0 });
        }
    }
    let lru = lru.curve(&sizes);
    Ok(Found { title: title(&args.input), references, blocks, rate: None, lru, optimum })
}

impl Found {
    fn heading(&self) -> String {
        let how = match self.rate {
            Some(rate) => format!(
                "; LRU estimated from five samples at a rate of {rate:.4}, with 95 % intervals"
            ),
            None => String::new(),
        };
        let about = if self.rate.is_some() { "about " } else { "" };
        format!(
            "{} references to {about}{} blocks of 4 KiB, {}{how}",
            grouped(self.references),
            grouped(self.blocks),
            human_bytes(self.blocks * BLOCK_BYTES)
        )
    }

    /// The optimum at a size, if it was computed.
    fn optimum_at(&self, blocks: u64) -> Option<f64> {
        let found = self.optimum.iter().find(|point| point.blocks == blocks);
        found.map(|point| point.miss_ratio)
    }

    /// The rows of the table, the names of its columns first.
    fn rows(&self) -> Vec<Vec<String>> {
        let mut header = vec!["cache", "of footprint", "LRU misses"];
        if self.rate.is_some() {
            header.push("error");
        }
        if !self.optimum.is_empty() {
            header.push("optimum misses (no bypass)");
        }
        let mut rows = vec![header.into_iter().map(str::to_owned).collect::<Vec<String>>()];
        for point in &self.lru {
            let share = 100.0 * point.blocks as f64 / self.blocks.max(1) as f64;
            let mut row = vec![
                human_bytes(point.blocks * BLOCK_BYTES),
                format!("{share:.1} %"),
                format!("{:.4}", point.miss_ratio),
            ];
            if self.rate.is_some() {
                row.push(format!("± {:.4}", point.error));
            }
            if !self.optimum.is_empty() {
                let optimum = self.optimum_at(point.blocks);
                row.push(optimum.map_or(String::new(), |ratio| format!("{ratio:.4}")));
            }
            rows.push(row);
        }
        rows
    }

    fn text(&self) -> String {
        format!("{}: {}\n\n{}", self.title, self.heading(), align(&self.rows(), 0))
    }

    fn json(&self) -> Value {
        let points = |points: &[Point]| -> Vec<Value> {
            let point = |p: &Point| {
                json!({
                    "bytes": p.blocks * BLOCK_BYTES,
                    "blocks": p.blocks,
                    "miss_ratio": p.miss_ratio,
                    "error": p.error,
                })
            };
            points.iter().map(point).collect()
        };
        json!({
            "format": "esker-trace-mrc/1",
            "trace": self.title,
            "references": self.references,
            "blocks": self.blocks,
            "sampling_rate": self.rate,
            "lru": points(&self.lru),
            "optimum": points(&self.optimum),
        })
    }

    /// The size from which on more of it gains less than it did on average: the point that lies farthest below the
    /// line from the first to the last one, over sizes in bytes.
    fn knee(&self) -> Option<&Point> {
        let (first, last) = (self.lru.first()?, self.lru.last()?);
        let span = last.blocks.saturating_sub(first.blocks) as f64;
        let fall = first.miss_ratio - last.miss_ratio;
        if span == 0.0 || fall <= 0.0 {
            return None;
        }
        let below = |point: &Point| {
            let along = (point.blocks - first.blocks) as f64 / span;
            (first.miss_ratio - point.miss_ratio) / fall - along
        };
        self.lru.iter().max_by(|a, b| below(a).total_cmp(&below(b)))
    }

    /// The least size with nine tenths of the hits that the largest has.
    fn working_set(&self) -> Option<&Point> {
        let most = 1.0 - self.lru.last()?.miss_ratio;
        let enough = |point: &&Point| 1.0 - point.miss_ratio >= 0.9 * most;
        (most > 0.0).then(|| self.lru.iter().find(enough)).flatten()
    }

    fn headline(&self) -> String {
        let of = |point: &Point| {
            let share = 100.0 * point.blocks as f64 / self.blocks.max(1) as f64;
            let bytes = human_bytes(point.blocks * BLOCK_BYTES);
            format!("{bytes} ({share:.0} % of the footprint)")
        };
        match self.working_set() {
            Some(point) => {
                let misses = Unit::Percent.show(point.miss_ratio * 100.0);
                format!(
                    "A cache of {} has 90 % of the hits to be had with LRU; {misses} miss.",
                    of(point)
                )
            }
            None => "No cache of these sizes has a hit.".to_owned(),
        }
    }

    fn page(&self) -> Page {
        let mut page = Page::new(format!("Misses of {}", self.title), self.headline());
        page.about = self.heading();
        let mut section = Section::new("Miss-ratio curve");
        let mut chart = esker_report::Chart::new(self.headline(), self.curves());
        if !self.optimum.is_empty() {
            chart = chart.note("The optimum is known at its marks only.");
        }
        section.add(chart);
        section.add(self.percentages());
        page.sections.push(section);
        page.environment = host::environment();
        page.command = host::command_line();
        page
    }

    /// The table of the page, in percent.
    fn percentages(&self) -> Table {
        let percent = |ratio: f64| format!("{:.2} %", 100.0 * ratio);
        let mut head = vec!["cache", "of footprint", "LRU misses"];
        if self.rate.is_some() {
            head.push("error");
        }
        if !self.optimum.is_empty() {
            head.push("optimum misses (no bypass)");
        }
        let mut table = Table::new(head);
        for point in &self.lru {
            let share = point.blocks as f64 / self.blocks.max(1) as f64;
            let bytes = human_bytes(point.blocks * BLOCK_BYTES);
            let mut row = vec![bytes, format!("{:.1} %", 100.0 * share), percent(point.miss_ratio)];
            if self.rate.is_some() {
                row.push(format!("± {:.2}", 100.0 * point.error));
            }
            if !self.optimum.is_empty() {
                row.push(self.optimum_at(point.blocks).map_or(String::new(), percent));
            }
            table.row(row);
        }
        table
    }

    fn curves(&self) -> Curves {
        let at = |point: &Point| (point.blocks * BLOCK_BYTES) as f64;
        let percent = |ratio: f64| 100.0 * ratio.clamp(0.0, 1.0);
        let points = |points: &[Point]| -> Vec<(f64, f64)> {
            points.iter().map(|point| (at(point), percent(point.miss_ratio))).collect()
        };
        let name = if self.rate.is_some() { "LRU, with 95 % intervals" } else { "LRU" };
        let mut lru = Curve::line(name, points(&self.lru));
        if self.rate.is_some() {
            let band = |point: &Point| {
                (percent(point.miss_ratio - point.error), percent(point.miss_ratio + point.error))
            };
            lru.band = self.lru.iter().map(band).collect();
        }
        let mut curves = vec![lru];
        if !self.optimum.is_empty() {
            let name = "optimum, at these sizes";
            curves.push(Curve::new(name, Draw::Marks, points(&self.optimum)));
        }
        let mark = |name: &str, point: &Point| Mark {
            at: at(point),
            name: format!(
                "{name}: {}, {} miss",
                human_bytes(point.blocks * BLOCK_BYTES),
                Unit::Percent.show(percent(point.miss_ratio))
            ),
        };
        let knee = self.knee().map(|point| mark("knee", point));
        let working_set = self.working_set().map(|point| mark("90 % of the hits", point));
        Curves::miss_ratio(curves, knee.into_iter().chain(working_set).collect())
    }
}
