//! The experiment at small scales. The figures at full scale, with the bounds that are published or
//! agreed, take a minute:
//! `cargo test --release -p esker-lab -- --ignored --nocapture`

mod devices;
mod network;
mod on_device;
mod plain;

use std::ops::ControlFlow;

use super::configuration::{Configuration, InitialState, StoreKind, StoreRate};
use super::engine::EngineRun;
use super::keys::{KeyLaw, Keys};
use super::measure::{measure, measure_on};
use super::on_models;
use super::own::{BLOCKS, OwnStores, WIDE_BLOCKS, by_block};
use super::plan::{self, equal, with_handles};
use super::turns::Order;
use super::{Fdp, FdpFigures, FdpOptions};
use crate::{LabError, Report, study};
use esker_flash::ftl::CleaningPace;
use plain::PlainDrive;

fn factor(of: &Configuration) -> f64 {
    measure(of, &mut |_| true).unwrap().write_amplification
}

fn plain_factor(of: &Configuration) -> f64 {
    let mut drive = PlainDrive::new(&of.drive, of.stores.len());
    measure_on(&mut drive, of, &mut |_| true).unwrap().write_amplification
}

#[track_caller]
fn assert_within(got: f64, expected: f64, bound: f64) {
    assert!((got - expected).abs() <= bound, "{got} instead of {expected} ± {bound}");
}

fn tiny() -> FdpOptions {
    FdpOptions { drive_bytes: 256 << 20, engine: false, worth: false, ..FdpOptions::default() }
}

/// Circular writers on a drive of 2 GiB with 512 units.
fn circular(blocks: [u64; 4]) -> Configuration {
    let mut of = plan::circular_base(&FdpOptions { drive_bytes: 8 << 30, ..FdpOptions::default() });
    of.drive.units = 512;
    of.stores = by_block(blocks);
    of
}

/// Stores on a drive of 4 GiB with units as large as at full scale, so that they hold as many blocks.
fn stores() -> Configuration {
    let mut of = plan::stores_base(&FdpOptions { drive_bytes: 4 << 30, ..FdpOptions::default() });
    of.drive.units = 160;
    of
}

// ---- circular writers ----------------------------------------------------------------------------

#[test]
fn circular_writers_with_a_handle_each_cost_nothing() {
    for blocks in [BLOCKS, WIDE_BLOCKS] {
        let placed = factor(&with_handles(&circular(blocks), 1));
        assert!(placed <= 1.005, "{placed}");
    }
}

#[test]
fn circular_writers_at_equal_rates_cost_nothing_even_mixed() {
    let control = Configuration { stores: equal(BLOCKS), ..circular(BLOCKS) };
    for handles in [0, 1] {
        let got = factor(&with_handles(&control, handles));
        assert!(got <= 1.005, "{handles} handles: {got}");
    }
}

/// The bound is that of chance: the oracle makes its own units, and ends at others.
#[test]
fn circular_writers_cost_what_a_plain_simulation_says() {
    for blocks in [BLOCKS, WIDE_BLOCKS] {
        for order in [Order::InStep, Order::Independent] {
            for pace in [CleaningPace::Steady, CleaningPace::WhenNeeded] {
                let mut of = Configuration { order, ..circular(blocks) };
                of.drive.pace = pace;
                let (got, expected) = (factor(&of), plain_factor(&of));
                assert_within(got, expected, 0.02 * expected);
            }
        }
    }
}

#[test]
fn circular_writers_mixed_cost_what_their_rates_say() {
    assert_within(factor(&circular(BLOCKS)), 1.82, 0.03);
    assert_within(factor(&circular(WIDE_BLOCKS)), 1.64, 0.05);
}

/// The effect of pace: a unit that is cleaned while the host writes still loses pages meanwhile.
#[test]
fn whole_units_at_once_cost_more_than_steady_cleaning() {
    let of = circular(WIDE_BLOCKS);
    let mut steady = of.clone();
    steady.drive.pace = CleaningPace::Steady;
    let (at_once, steady) = (factor(&of), factor(&steady));
    assert!(steady < at_once - 0.08, "{steady} {at_once}");
}

// ---- stores with records -------------------------------------------------------------------------

#[test]
fn stores_cost_little_alone_much_together_and_little_with_handles() {
    let of = stores();
    let alone: Vec<f64> = plan::alone(&of).map(|(_, of)| factor(&of)).collect();
    let mean = alone.iter().sum::<f64>() / 4.0;
    assert!(mean <= 1.10 && alone.is_sorted_by(|a, b| a >= b), "{alone:?}");
    // 3 % of the published figure.
    assert_within(factor(&of), 1.84, 0.055);
    let placed = factor(&with_handles(&of, 1));
    assert!(placed <= 1.10, "{placed}");
    let control = factor(&Configuration { stores: equal(BLOCKS), ..of });
    assert!(control <= 1.10, "{control}");
}

#[test]
fn hot_records_need_two_handles() {
    let options = FdpOptions { drive_bytes: 2 << 30, ..FdpOptions::default() };
    let law = KeyLaw::Zipfian { table_records: Some(plan::TABLE_RECORDS) };
    let of = plan::zipfian_base(&options, law);
    let (one, two) = (factor(&with_handles(&of, 1)), factor(&with_handles(&of, 2)));
    assert!(two <= 1.02 && one > 1.10, "{one} {two}");
}

#[test]
fn untrimmed_data_takes_the_spare_space() {
    let fresh = with_handles(&stores(), 1);
    let mapped = Configuration { initial: InitialState::Mapped, ..fresh.clone() };
    assert!(factor(&mapped) > factor(&fresh) + 0.1);
}

#[test]
fn a_store_that_is_too_full_says_so() {
    let mut of = stores();
    let StoreKind::Records { fill, threshold, .. } = &mut of.kind else { unreachable!() };
    (*fill, *threshold) = (0.95, 0.5);
    let error = measure(&of, &mut |_| true).unwrap_err();
    assert!(matches!(error, LabError::Full { .. } | LabError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("fewer records") || error.to_string().contains("fit"));
}

/// Of the whole table, the most popular record is asked for by the first of ten billion ranks: one
/// in zeta, 3.8 %. Of a sample of 1,000 records of 800 million it is the first of 12,500 ranks that
/// begin where the popular ones end: ln 2 / ln 12,500, 7.3 %.
#[test]
fn a_small_table_is_less_skewed_than_a_sample_of_a_large_one() {
    let most_popular = |law: KeyLaw| {
        let (keys, mut rng) = (Keys::new(law, 1000), esker_base::Rng::new(9));
        let mut counts = vec![0u32; 1000];
        for _ in 0..200_000 {
            counts[keys.choose(&mut rng) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| count > 0));
        counts.into_iter().max().unwrap()
    };
    let whole = most_popular(KeyLaw::Zipfian { table_records: None });
    assert!((7_300..8_200).contains(&whole), "{whole}");
    let sample = most_popular(KeyLaw::Zipfian { table_records: Some(800_000_000) });
    assert!((13_800..15_400).contains(&sample), "{sample}");
    assert!(most_popular(KeyLaw::Uniform) < 300);
}

// ---- the whole -----------------------------------------------------------------------------------

fn run(options: &FdpOptions) -> Report<Fdp> {
    study::run(options, &mut None, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_report_is_the_same_on_any_number_of_threads() {
    let one = run(&tiny());
    let three = run(&FdpOptions { threads: 3, ..tiny() });
    assert!(one == three, "{}\n{}", one.page().text(), three.page().text());
    let planned = plan::chapters(&tiny());
    for (chapter, planned) in one.figures.chapters.iter().zip(&planned) {
        let (run, planned) = (&chapter.runs[3], &planned.runs[3]);
        assert_eq!(run.name, planned.name);
        assert!(run.measured == measure(&planned.configuration, &mut |_| true).unwrap());
    }
    let other = run(&FdpOptions { seed: 2, ..tiny() });
    assert!(one.json() != other.json());
}

#[test]
fn every_factor_is_printed_with_all_it_depends_on_and_what_was_published() {
    let mut report = run(&tiny());
    // Published figures stand beside larger drives only.
    assert!(
        report
            .figures
            .chapters
            .iter()
            .flat_map(|chapter| &chapter.runs)
            .all(|run| run.published.is_none())
    );
    assert!(
        report.page().text().contains("below 8 GiB")
            && report.page().html().contains("below 8 GiB")
    );
    let larger = plan::chapters(&FdpOptions { drive_bytes: 8 << 30, ..tiny() });
    for (chapter, larger) in report.figures.chapters.iter_mut().zip(larger) {
        for (run, larger) in chapter.runs.iter_mut().zip(larger.runs) {
            run.published = larger.published;
        }
    }
    let (table, page) = (report.page().text(), report.page().html());
    for chapter in &report.figures.chapters {
        for run in &chapter.runs {
            let printed = format!("{:.3}", run.measured.write_amplification);
            assert!(table.contains(&printed) && page.contains(&printed));
        }
    }
    for figure in ["1.84", "1.08", "1.6", "1.02"] {
        assert!(table.contains(figure) && page.contains(figure), "{figure}");
    }
    // A row names the assumptions in which its run differs from the others; the rest is said once.
    let circular = &report.figures.chapters[0];
    let run = circular.runs.iter().find(|run| run.name == "1:2:4:8, steady cleaning").unwrap();
    let unlike: Vec<&str> = circular.unlike(run).iter().map(|one| &*one.name).collect();
    assert_eq!(unlike, ["pace of cleaning"]);
    let back: FdpFigures = serde_json::from_value(report.json()).unwrap();
    assert_eq!(back.chapters.len(), report.figures.chapters.len());
}

#[test]
fn the_experiment_can_be_ended() {
    let options = FdpOptions { threads: 2, ..tiny() };
    let result = study::run::<Fdp>(&options, &mut None, &mut |_| ControlFlow::Break(()));
    assert!(matches!(result, Err(LabError::Interrupted)));
}

#[test]
fn ended_experiment_reports_the_runs_that_are_through() {
    let options = FdpOptions { threads: 1, ..tiny() };
    let report = study::run::<Fdp>(&options, &mut None, &mut |progress| match progress.done {
        0..3 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    let report = report.unwrap();
    let runs: usize = report.figures.chapters.iter().map(|chapter| chapter.runs.len()).sum();
    assert_eq!(runs, 3);
    let name =
        &report.figures.chapters.iter().find_map(|chapter| chapter.runs.first()).unwrap().name;
    assert!(report.page().text().contains(name) && report.json().to_string().contains(name));
    assert!(report.page().html().contains(name));
}

#[test]
fn options_out_of_range_are_refused() {
    let wrong = [
        FdpOptions { drive_bytes: 1 << 20, ..tiny() },
        FdpOptions { over_provisioning: f64::NAN, ..tiny() },
        FdpOptions { fill: 1.5, ..tiny() },
        FdpOptions { record_bytes: 0, ..tiny() },
        FdpOptions { threads: 0, ..tiny() },
    ];
    for options in wrong {
        let result = study::run::<Fdp>(&options, &mut None, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(result, Err(LabError::Invalid(_))), "{options:?}");
    }
}

// ---- the engine ----------------------------------------------------------------------------------

#[test]
fn kvdbs_with_their_streams_apart_cost_nothing() {
    let of = EngineRun {
        drive_bytes: 64 << 20,
        units: 128,
        handles_each: 5,
        fill: 0.4,
        ..EngineRun::all(&tiny())[0].clone()
    };
    let first = of.measure(&mut |_| true).unwrap();
    assert!(first.write_amplification <= 1.05, "{}", first.write_amplification);
}

/// With two, old keys share one with the young: they die as soon, and values would be copied for them.
#[test]
#[ignore = "a minute with optimisation: cargo test --release -p esker-lab -- --ignored"]
fn two_handles_are_enough_for_kvdbs_that_are_more_than_half_full() {
    let of = EngineRun {
        drive_bytes: 128 << 20,
        units: 32,
        handles_each: 2,
        fill: 0.6,
        ..EngineRun::all(&tiny())[0].clone()
    };
    let two = of.measure(&mut |_| true).unwrap().write_amplification;
    assert!(two <= 1.02, "{two}");
}

/// At full scale: the judged figures. It prints the report.
#[test]
#[ignore = "a minute with optimisation: cargo test --release -p esker-lab -- --ignored"]
#[allow(clippy::print_stdout)]
fn the_experiment_at_full_scale() {
    let report = run(&FdpOptions { threads: 2, ..FdpOptions::default() });
    println!("{}", report.page().text());
    let factor = |chapter: usize, name: &str| {
        let runs = &report.figures.chapters[chapter].runs;
        runs.iter().find(|run| run.name == name).unwrap().measured.write_amplification
    };
    assert_within(factor(0, "1:2:4:8, no placement"), 1.82, 0.03);
    assert_within(factor(0, "1:4:16:64, no placement"), 1.64, 0.05);
    for placed in ["equal rates", "1:2:4:8", "1:4:16:64"] {
        assert!(factor(0, &format!("{placed}, a handle each")) <= 1.005, "{placed}");
    }
    assert!(factor(0, "equal rates, no placement (control)") <= 1.005);
    assert_within(factor(1, "1:2:4:8, no placement"), 1.84, 0.055);
    assert!(factor(1, "1:2:4:8, a handle each") <= 1.10);
    assert!(report.figures.chapters[1].derived[0].write_amplification <= 1.10);
    assert!(factor(3, "1:2:4:8, two handles each") <= 1.02);
    assert!(factor(4, "KVDBs at 1:2:4:8, 2 handles each") <= 1.01);
    assert!(factor(4, "KVDBs at 1:2:4:8, 5 handles each") <= 1.01);
    for run in report.figures.chapters.iter().flat_map(|chapter| &chapter.runs) {
        assert!(run.measured.is_steady, "{}", run.name);
    }
}

fn own(stores: OwnStores) -> FdpOptions {
    FdpOptions { drive_bytes: 256 << 20, own: Some(stores), ..FdpOptions::default() }
}

#[test]
fn stores_of_ones_own_run_alone_and_with_each_number_of_handles() {
    let stores = [(64 << 10, 1.0), (256 << 10, 8.0)];
    let stores = stores.map(|(block_bytes, rate)| StoreRate { block_bytes, rate }).to_vec();
    let asked = OwnStores { stores, handles: vec![0, 1], keys: None, ..OwnStores::default() };
    let report = run(&own(asked));
    assert!(report.figures.worth.is_none());
    let [chapter] = &report.figures.chapters[..] else { panic!("{:?}", report.figures.chapters) };
    let names: Vec<&str> = chapter.runs.iter().map(|run| &*run.name).collect();
    let placed = "together, a handle each";
    assert_eq!(
        names,
        ["alone, 64 KiB blocks", "alone, 256 KiB blocks", "together, no placement", placed]
    );
    let factor = |name: &str| {
        let run = chapter.runs.iter().find(|run| run.name == name).unwrap();
        run.measured.write_amplification
    };
    assert!(factor("together, no placement") > 1.1, "{:?}", chapter.runs);
    assert!(factor(placed) < 1.02, "{:?}", chapter.runs);
    let text = report.page().text();
    assert!(text.contains("in reserve"), "{text}");
}

#[test]
fn stores_that_no_drive_has_are_refused_with_what_would_do() {
    let one = |block_bytes, rate| OwnStores {
        stores: vec![StoreRate { block_bytes, rate }],
        ..OwnStores::default()
    };
    let cases = [
        (OwnStores { stores: Vec::new(), ..OwnStores::default() }, "name the blocks"),
        (one(5000, 1.0), "powers of two"),
        (one(65536, f64::NAN), "above 0"),
        (OwnStores { handles: vec![33], ..OwnStores::default() }, "128 at most"),
        (OwnStores { handles: Vec::new(), ..OwnStores::default() }, "such as 0,1"),
        (OwnStores { unit_bytes: Some(128 << 20), ..OwnStores::default() }, "a sixteenth"),
        (OwnStores { unit_bytes: Some(0), ..OwnStores::default() }, "at least a page"),
    ];
    for (stores, part) in cases {
        let error = on_models(&own(stores), &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}
