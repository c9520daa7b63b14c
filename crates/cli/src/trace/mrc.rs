//! `esker trace mrc`: miss-ratio curves as a table, as JSON, as a chart.

use std::fmt::Write as _;

use esker_base::units::human_bytes;
use esker_bench::html::page;
use esker_trace::keys::Numbering;
use esker_trace::mrc::{ExactLru, Point, SampledLru, belady, sizes};
use esker_trace::{BLOCK_BYTES, Trace, block_refs};
use serde_json::{Value, json};

use super::input::{open, remark, title};
use crate::args::MrcArgs;
use crate::failure::Result;
use crate::figures::{align, grouped};
use crate::output::Outputs;

const SCRIPT: &str = include_str!("../../assets/mrc.js");

/// The seed of the samples: any other gives another estimate as good.
const SEED: u64 = 1;

/// How many sizes the optimum is computed for, unless they were given.
const OPTIMA: usize = 8;

/// What was found.
struct Curves {
    title: String,
    references: u64,
    blocks: u64,
    /// The lowest rate of the samples; `None` when the curve is exact.
    rate: Option<f64>,
    lru: Vec<Point>,
    optimum: Vec<Point>,
}

pub(super) fn show(args: &MrcArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_ref(), args.html.as_ref())?;
    let mut trace = open(&args.input)?;
    let curves = match args.sampled {
        Some(blocks) => sampled(args, &mut trace, blocks)?,
        None => exact(args, &mut trace)?,
    };
    remark(&trace);
    outputs.say(&curves.text())?;
    outputs.finish(&curves.json(), &curves.html())
}

/// Calls `take` with every reference.
fn each(trace: &mut Trace, mut take: impl FnMut(u64)) -> Result<u64> {
    let (mut batch, mut references) = (Vec::new(), 0);
    loop {
        batch.clear();
        let more = trace.next_batch(&mut batch)?;
        for block in batch.iter().flat_map(block_refs) {
            take(block.key);
            references += 1;
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

fn sampled(args: &MrcArgs, trace: &mut Trace, sample: u32) -> Result<Curves> {
    let mut lru = SampledLru::new(sample as usize, SEED);
    let references = each(trace, |key| lru.reference(key))?;
    let blocks = lru.blocks();
    Ok(Curves {
        title: title(&args.input),
        references,
        blocks,
        rate: Some(lru.rate()),
        lru: lru.curve(&wanted(args, blocks)),
        optimum: Vec::new(),
    })
}

fn exact(args: &MrcArgs, trace: &mut Trace) -> Result<Curves> {
    let mut lru = ExactLru::default();
    let (mut numbering, mut numbers) = (Numbering::default(), Vec::new());
    let references = each(trace, |key| {
        lru.reference(key);
        if args.optimum {
            numbers.push(numbering.number(key).0);
        }
    })?;
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
    Ok(Curves { title: title(&args.input), references, blocks, rate: None, lru, optimum })
}

impl Curves {
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
            "trace": self.title,
            "references": self.references,
            "blocks": self.blocks,
            "sampling_rate": self.rate,
            "lru": points(&self.lru),
            "optimum": points(&self.optimum),
        })
    }

    fn html(&self) -> String {
        let mut main =
            String::from("<section>\n<div class=\"charts\"></div>\n<div class=\"wide\"><table>\n");
        for (index, row) in self.rows().iter().enumerate() {
            let (cell, open, close) = match index {
                0 => ("th", "<thead>", "</thead>\n<tbody>"),
                _ => ("td", "", ""),
            };
            let cells: String = row.iter().map(|text| format!("<{cell}>{text}</{cell}>")).collect();
            let _ = writeln!(main, "{open}<tr>{cells}</tr>{close}");
        }
        main.push_str("</tbody></table></div>\n</section>\n");
        let title = format!("Misses of {}", self.title);
        let subtitle = format!("<p>{}</p>", self.heading());
        page(&title, &subtitle, &main, &self.json().to_string(), SCRIPT)
    }
}
