//! The document of a comparison, and its tables as Markdown.

use std::fmt::Write as _;

use esker_base::units::human_bytes;
use esker_bench::{Distribution, OperationKind, Workload, zipf};
use esker_report::{Axis, Block, Chart, Line, Page, Panel, Panels, Section, Table, Unit};

use crate::engine::Engine;
use crate::optimum::Popularity;
use crate::summary::{Metric, Percentile, Spread};
use crate::trial::Comparison;

/// Text of a cell without a figure.
const NOTHING: &str = "–";
/// Text behind a figure of a load that no round brought to its end.
const GIVEN_UP: &str = ", given up";

/// The tables, lists and pairs of a document as Markdown, without its charts.
pub(crate) fn markdown(page: &Page) -> String {
    let mut text = format!("{}\n", page.about);
    let blocks = page
        .sections
        .iter()
        .flat_map(|section| section.blocks.iter().map(move |block| (&section.heading, block)));
    for (heading, block) in blocks {
        match block {
            Block::Table(table) => {
                let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
                let head: Vec<&str> = table.head.iter().map(String::as_str).collect();
                let rule: Vec<&str> =
                    (0..head.len()).map(|at| if at == 0 { "---" } else { "---:" }).collect();
                let _ = write!(text, "\n**{heading}**\n\n{}{}", line(&head), line(&rule));
                for row in &table.rows {
                    let cells: Vec<&str> = row.iter().map(|cell| cell.text.as_str()).collect();
                    text += &line(&cells);
                }
            }
            Block::Pairs(pairs) => {
                let _ = writeln!(text, "\n**{heading}**\n");
                for (name, value) in pairs {
                    let _ = writeln!(text, "- {name}: {value}");
                }
            }
            Block::List(items) => {
                text += "\n**Remarks**\n\n";
                for item in items {
                    let _ = writeln!(text, "- {item}");
                }
            }
            _ => {}
        }
    }
    text += "\n**Where**\n\n";
    for (name, value) in &page.environment {
        let _ = writeln!(text, "- {name}: {value}");
    }
    for command in page.command.lines() {
        let _ = writeln!(text, "- command: `{command}`");
    }
    text
}

/// The document.
pub(crate) fn document(comparison: &Comparison) -> Page {
    let mut page = Page::new("Esker beside its peers", headline(comparison));
    page.about = introduction(comparison);
    let mut tables = tables(comparison).into_iter();
    page.sections.extend(tables.next());
    let mut over_time = Section::new("Over time");
    over_time.charts(charts(comparison));
    page.sections.push(over_time);
    page.sections.extend(tables);
    let mut opened = Section::new("How the engines were opened");
    let descriptions = descriptions(comparison).into_iter();
    opened.pairs(descriptions.map(|(engine, text)| (engine.title().to_owned(), text)).collect());
    opened.list(remarks(comparison));
    page.sections.push(opened);
    page.environment = comparison.environment.clone();
    page.command = comparison.commands.join("\n");
    page
}

/// Of how many workloads Esker is the fastest, and the worst of its ratios.
fn headline(comparison: &Comparison) -> String {
    let workloads = comparison.workloads();
    let ratios = workloads.iter().filter_map(|workload| {
        let ratio = comparison.ratio(workload)?;
        Some((ratio.of_rounds.median, workload))
    });
    let ratios: Vec<(f64, &String)> = ratios.collect();
    let Some((least, workload)) = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return "No two engines ran the same workload.".to_owned();
    };
    let ahead = ratios.iter().filter(|(ratio, _)| *ratio >= 1.0).count();
    format!(
        "Esker is the fastest in {ahead} of {} workloads; its least ratio to the best of the others is {least:.2}, \
         in {workload}.",
        ratios.len()
    )
}

/// A section of one table.
fn section(title: impl Into<String>, table: Table) -> Section {
    let mut section = Section::new(title);
    section.add(table);
    section
}

/// Of the first round the rate over time, a chart for each workload and a line for each engine.
fn charts(comparison: &Comparison) -> Vec<Chart> {
    let chart = |workload: &String| {
        let lines = comparison.engines().into_iter().filter_map(|engine| {
            let phase = comparison.trials_of(engine).find_map(|trial| trial.phase(workload))?;
            let points = phase.run.intervals.iter().map(|interval| {
                let middle = (interval.start_ns + interval.end_ns) as f64 / 2e9;
                (middle, interval.ops_per_s.round())
            });
            Some((engine.title(), points.collect::<Vec<_>>()))
        });
        let lines: Vec<(&str, Vec<(f64, f64)>)> = lines.collect();
        // Engines tick at times of their own: each line has gaps where the others have points.
        let mut at: Vec<f64> =
            lines.iter().flat_map(|(_, points)| points.iter().map(|p| p.0)).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let drawn = lines.into_iter().map(|(name, points)| {
            let mut rest = points.into_iter().peekable();
            let values =
                at.iter().map(|at| rest.next_if(|point| point.0 == *at).map(|point| point.1));
            Line::slope(name, values.collect())
        });
        let drawn: Vec<Line> = drawn.collect();
        let y = Axis::linear("operations a second, first round", Unit::Rate);
        let panels = Panels::one(Axis::seconds(), Panel::new(y, at, drawn));
        Chart::new(rate_title(comparison, workload), panels)
    };
    comparison.workloads().iter().map(chart).collect()
}

fn rate_title(comparison: &Comparison, workload: &str) -> String {
    match comparison.ratio(workload) {
        Some(ratio) => format!(
            "{workload}: Esker at {:.2} of {}, the best of the others",
            ratio.of_rounds.median,
            ratio.best.title()
        ),
        None => format!("{workload}: operations a second"),
    }
}

fn introduction(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    let memory = match plan.setting.limit_bytes {
        Some(limit) => format!("all of an engine and its page cache in {}", human_bytes(limit)),
        None => "all in DRAM".to_owned(),
    };
    let rounds = comparison.rounds();
    let plural = if rounds == 1 { "" } else { "s" };
    format!(
        "{} records of {} bytes, {memory}, {} threads; each workload {} s after {} s of warm-up; \
         medians of {rounds} round{plural}.",
        grouped(plan.records),
        grouped(u64::from(plan.value_bytes)),
        plan.threads,
        plan.seconds,
        plan.warm_up_seconds,
    )
}

fn tables(comparison: &Comparison) -> Vec<Section> {
    let mut tables = vec![rates(comparison)];
    let mut by_workload = |title: &str, metric: Metric, show: fn(f64) -> String| {
        tables.push(section(title, matrix(comparison, metric, show)));
    };
    by_workload("CPU time, µs per operation", Metric::CpuMicros, short);
    by_workload("Written to the device, bytes per operation", Metric::Written, whole);
    by_workload(
        "Written to the device, per byte written by the user",
        Metric::WrittenPerUserByte,
        short,
    );
    by_workload("Read from the device, bytes per operation", Metric::Read, whole);
    by_workload("Syncs per thousand operations", Metric::Syncs, short);
    by_workload(
        "Resident memory at its peak, MiB, mapped files included",
        Metric::Resident,
        mebibytes,
    );
    tables.push(settling(comparison));
    tables.extend(record_cache(comparison));
    for (percentile, name) in
        [(Percentile::P999, "p99.9"), (Percentile::P99, "p99"), (Percentile::P50, "p50")]
    {
        tables.push(latencies(comparison, percentile, name));
    }
    tables
}

/// Rates, with Esker's ratios below them.
fn rates(comparison: &Comparison) -> Section {
    let mut table = matrix(comparison, Metric::Rate, |rate| short(rate / 1e3));
    let workloads = comparison.workloads();
    let ratios: Vec<_> = workloads.iter().map(|workload| comparison.ratio(workload)).collect();
    if comparison.engines().len() > 1 && ratios.iter().any(Option::is_some) {
        let mut row = |name: &str, cell: fn(&crate::summary::Ratio) -> String| {
            let cells = ratios.iter().map(|r| r.as_ref().map_or(NOTHING.to_owned(), cell));
            table.row(std::iter::once(name.to_owned()).chain(cells));
        };
        row("best of the others", |ratio| ratio.best.title().to_owned());
        row("Esker ÷ the best", |ratio| format!("{:.2}", ratio.of_rounds.median));
        if comparison.rounds() > 1 {
            row("in each round", |ratio| {
                format!("{:.2} to {:.2}", ratio.of_rounds.least, ratio.of_rounds.most)
            });
        }
    }
    section("Throughput, thousand operations a second", table)
}

/// Engines by workloads.
fn matrix(comparison: &Comparison, metric: Metric, show: fn(f64) -> String) -> Table {
    let workloads = comparison.workloads();
    let mut header = vec!["engine".to_owned()];
    header.extend(workloads.iter().cloned());
    let rows = comparison.engines().into_iter().map(|engine| {
        let cells = workloads.iter().map(|workload| {
            let figure = median(comparison.figure(engine, workload, metric), show);
            if comparison.is_given_up(engine, workload) { figure + GIVEN_UP } else { figure }
        });
        std::iter::once(engine.title().to_owned()).chain(cells).collect::<Vec<String>>()
    });
    Table::of(header, rows)
}

fn settling(comparison: &Comparison) -> Section {
    let header = [
        "engine",
        "seconds",
        "CPU, s",
        "written, MiB",
        "read, MiB",
        "load and this, written per user byte",
        "database, per user byte",
    ];
    let rows = comparison.engines().into_iter().map(|engine| {
        let of = |figure: fn(&crate::trial::Settling) -> f64| {
            let all = comparison.loaded(engine).filter_map(|trial| trial.settling.as_ref());
            Spread::of(all.map(figure))
        };
        let all_at_rest = comparison
            .loaded(engine)
            .filter_map(|trial| trial.settling.as_ref())
            .all(|settling| settling.at_rest);
        let mut seconds = median(of(|settling| settling.seconds), short);
        if !all_at_rest {
            seconds += ", not at rest";
        }
        if comparison.is_given_up(engine, "load") {
            seconds += GIVEN_UP;
        }
        vec![
            engine.title().to_owned(),
            seconds,
            median(of(|settling| settling.cpu_ns as f64 / 1e9), short),
            median(of(|settling| settling.written_bytes as f64), mebibytes),
            median(of(|settling| settling.read_bytes as f64), mebibytes),
            median(comparison.load_written(engine), short),
            median(comparison.size_after_load(engine), short),
        ]
    });
    section("After the load, until maintenance is at rest", Table::of(header, rows))
}

/// Share of gets that Esker answers from DRAM beside the best possible one, where requests are scattered zipfian.
fn record_cache(comparison: &Comparison) -> Option<Section> {
    let plan = &comparison.plan;
    let zipfian = |name: &String| {
        let workload = Workload::preset(name)?;
        let fits = matches!(workload.request, Distribution::ScrambledZipfian { .. });
        (fits && workload.scan == 0.0).then_some(())
    };
    let workloads = comparison.workloads().into_iter().filter(|name| zipfian(name).is_some());
    let workloads: Vec<String> = workloads.collect();
    let of = |name: &str, metric| Some(comparison.figure(Engine::Esker, name, metric)?.median);
    let answered = |name: &String| of(name, Metric::FromDram);
    workloads.iter().find_map(answered)?;
    let popularity = Popularity::new(plan.records, zipf::DEFAULT_THETA);
    let record_bytes = plan.setting.data_bytes / plan.records;
    let caught = |bytes: u64| popularity.caught(bytes / record_bytes);
    let row = |title: &str, cell: &dyn Fn(&String) -> Option<f64>| {
        let cells = workloads.iter().map(|name| {
            cell(name).map_or(NOTHING.to_owned(), |share| format!("{:.1}", share * 100.0))
        });
        std::iter::once(title.to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let mut rows = vec![
        row("answered", &answered),
        row("the best with its room", &|name| {
            of(name, Metric::RecordRoom).map(|bytes| caught(floor(bytes)))
        }),
    ];
    if let Some(limit) = plan.setting.limit_bytes {
        rows.push(row("the best with all of the limit", &|_| Some(caught(limit))));
    }
    let head = std::iter::once("gets".to_owned()).chain(workloads.clone());
    Some(section("Gets that Esker answers from DRAM, %", Table::of(head, rows)))
}

/// A number of bytes that went through a figure.
fn floor(bytes: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // far below 2^53, not negative
    let whole = bytes as u64;
    whole
}

fn latencies(comparison: &Comparison, percentile: Percentile, name: &str) -> Section {
    let mut columns: Vec<(String, OperationKind)> = Vec::new();
    for workload in comparison.workloads() {
        let phase = comparison.trials.iter().find_map(|trial| trial.phase(&workload));
        let kinds = phase.into_iter().flat_map(|phase| &phase.run.by_operation);
        columns.extend(kinds.map(|result| (workload.clone(), result.operation)));
    }
    let rows = comparison.engines().into_iter().map(|engine| {
        let cells = columns.iter().map(|(workload, kind)| {
            median(comparison.figure(engine, workload, Metric::Latency(*kind, percentile)), short)
        });
        std::iter::once(engine.title().to_owned()).chain(cells).collect::<Vec<String>>()
    });
    let names = columns.iter().map(|(workload, kind)| match workload.as_str() {
        "load" => format!("load, {kind}"),
        _ => format!("{workload} {kind}"),
    });
    let head = std::iter::once("engine".to_owned()).chain(names);
    section(format!("Latency, {name}, µs"), Table::of(head, rows))
}

fn descriptions(comparison: &Comparison) -> Vec<(Engine, String)> {
    let first = |engine: Engine| {
        let opened = |text: &&String| !text.is_empty();
        let found = comparison.trials_of(engine).map(|trial| &trial.description).find(opened);
        (engine, found.map_or_else(|| "could not be opened".to_owned(), Clone::clone))
    };
    comparison.engines().into_iter().map(first).collect()
}

/// Remarks that a reader must not miss: trials that failed, operations that did, wrong values.
fn remarks(comparison: &Comparison) -> Vec<String> {
    let mut remarks = Vec::new();
    for trial in &comparison.trials {
        let who = format!("{}, round {}", trial.engine.title(), trial.round);
        if let Some(why) = &trial.failure {
            remarks.push(format!("{who}: {why}"));
        }
        for phase in &trial.phases {
            let run = &phase.run;
            let wrong = run.errors + run.not_found + run.wrong_values;
            if wrong > 0 {
                remarks.push(format!(
                    "{who}, {}: {} errors, {} not found, {} wrong values",
                    run.workload.name, run.errors, run.not_found, run.wrong_values
                ));
            }
        }
    }
    remarks
}

fn median(spread: Option<Spread>, show: fn(f64) -> String) -> String {
    spread.map_or(NOTHING.to_owned(), |spread| show(spread.median))
}

/// Three digits, or all of those before the point.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        x if x >= 99.95 => 0,
        x if x >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    if digits == 0 { grouped_text(&text) } else { text }
}

fn whole(value: f64) -> String {
    grouped_text(&format!("{value:.0}"))
}

fn mebibytes(value: f64) -> String {
    whole(value / f64::from(1 << 20))
}

fn grouped(n: u64) -> String {
    grouped_text(&n.to_string())
}

/// Digits in groups of three.
fn grouped_text(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut text = String::from(sign);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::tests::comparison;

    #[test]
    fn figures_have_three_digits_and_groups() {
        assert_eq!(short(0.0), "0.00");
        assert_eq!(short(9.994), "9.99");
        assert_eq!(short(9.996), "10.0");
        assert_eq!(short(99.96), "100");
        assert_eq!(short(1234567.4), "1,234,567");
        assert_eq!(whole(-1234.0), "-1,234");
        assert_eq!(mebibytes(1048576.0 * 2.0), "2");
    }

    #[test]
    fn the_tables_say_who_is_ahead_and_what_went_wrong() {
        let mut figures =
            comparison(&[(Engine::Esker, &[300e3, 200e3]), (Engine::Lmdb, &[100e3, 100e3])]);
        figures.trials[0].failure = Some("killed".to_owned());
        let text = markdown(&document(&figures));
        for line in [
            "| engine | A |\n| --- | ---: |\n| Esker | 250 |\n| LMDB | 100 |\n",
            "| best of the others | LMDB |\n| Esker ÷ the best | 2.50 |\n",
            "| in each round | 2.00 to 3.00 |\n",
            "- Esker, round 1: killed\n",
            "| engine | A update |",
            "- command: `compare/run`",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_load_that_was_given_up_is_marked() {
        let text = markdown(&document(&crate::summary::tests::loads_given_up()));
        for line in [
            "| fjall | 0.90, given up |\n| LMDB | 0.07 |\n| best of the others | LMDB |\n",
            "| fjall | 30.0, given up | 0.00 | 0 | 0 | 20.0 | 2.00 |\n",
            "| LMDB | 4.00 | 0.00 | 0 | 0 | 2.00 | 2.00 |\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_page_has_the_same_tables_and_no_foreign_markup() {
        let page = document(&comparison(&[(Engine::Esker, &[1.0])])).html();
        assert!(page.contains("1.0: &lt;default&gt;") && !page.contains("<default>"));
        assert!(page.contains("<h2>CPU time, µs per operation</h2>"));
    }
}
