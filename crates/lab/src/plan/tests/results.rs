//! Results that are kept, and those that are computed again.

use super::*;

fn made(report: &PlanReport) -> (usize, usize) {
    (report.made, report.kept)
}

#[test]
fn a_changed_line_costs_only_its_own_runs() {
    let mut shelf = Memory::default();
    let two = READS.to_owned()
        + "[[alternative]]\nname = \"two\"\ndevice = \"other\"\n[drive.other]\nprofile = \"optane-p4800x\"\n\
           capacity = \"32MiB\"\n";
    let first = run_on(&two, &mut shelf, 1);
    assert_eq!(made(&first), (2, 0));
    let again = run_on(&two, &mut shelf, 1);
    assert_eq!(made(&again), (0, 2));
    assert_eq!(again.cases, first.cases);
    // Names, prices and growth change no run.
    let dearer = two.replace("price = 100", "price = 200").replace("\"two\"", "\"second\"");
    let report = run_on(&dearer, &mut shelf, 1);
    assert_eq!(made(&report), (0, 2));
    assert_eq!(report.cases[0].cost_per_year, Some(40.0));
    assert_eq!(made(&run_on(&two.replace("64MiB", "96MiB"), &mut shelf, 1)), (1, 1));
    assert_eq!(
        made(&run_on(&two.replace("bytes = \"8MiB\"", "bytes = \"4MiB\""), &mut shelf, 1)),
        (2, 0)
    );
}

#[test]
fn another_version_computes_again() {
    let mut shelf = Memory::default();
    run_on(READS, &mut shelf, 1);
    let newer = Surroundings { version: "newer", ..surroundings(1) };
    let listed = read(READS).unwrap().list(&mut shelf, &newer).unwrap();
    assert!(!listed.runs[0].is_kept);
    let listed = read(READS).unwrap().list(&mut shelf, &surroundings(1)).unwrap();
    assert!(listed.runs[0].is_kept && listed.takes_s == 0.0, "{listed:?}");
}

#[test]
fn damaged_and_foreign_results_are_computed_again_aloud() {
    let mut whole = Memory::default();
    let sound = run_on(READS, &mut whole, 1);
    let (key, document) = whole.0.iter().next().map(|(k, d)| (k.clone(), d.clone())).unwrap();
    let foreign = document.replace(&key, &"0".repeat(key.len()));
    let figure = document.find("\"ops_per_s\": ").unwrap() + "\"ops_per_s\": ".len();
    let mut altered = document.clone();
    altered.replace_range(
        figure..=figure,
        if document[figure..].starts_with('9') { "8" } else { "9" },
    );
    for (bad, why) in [
        ("no JSON".to_owned(), "damaged"),
        (document[..document.len() / 2].to_owned(), "damaged"),
        (foreign, "something else"),
        (altered, "figures are damaged"),
    ] {
        let mut shelf = Memory([(key.clone(), bad)].into());
        let report = run_on(READS, &mut shelf, 1);
        assert_eq!(made(&report), (1, 0), "{why}");
        assert!(
            report.remarks[0].contains(why) && report.remarks[0].contains("again"),
            "{:?}",
            report.remarks
        );
        assert_eq!(report.cases, sound.cases);
        assert_eq!(made(&run_on(READS, &mut shelf, 1)), (0, 1), "it was kept anew");
    }
}

#[test]
fn an_end_is_an_end_and_keeps_what_was_made() {
    let text = READS.to_owned() + "[sweep]\n\"mix.depth\" = [1, 2, 4, 8]\n";
    let plan = read(&text).unwrap();
    let mut shelf = Memory::default();
    let mut told = 0;
    let ended = plan.run(&mut shelf, &surroundings(1), |progress| {
        told += 1;
        if progress.done >= 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(ended, Err(LabError::Interrupted)), "{told}");
    assert!((2..4).contains(&shelf.0.len()), "{}", shelf.0.len());
}

#[test]
fn the_report_has_findings_first_and_reads_back() {
    let text = READS.to_owned() + "[sweep]\n\"mix.depth\" = [1, 8]\n";
    let report = run(&text);
    let back: PlanReport = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(back, report);
    let page = report.page().html();
    assert!(
        report.page().text().contains("By throughput “one, depth 8” is best"),
        "{}",
        report.page().text()
    );
    for part in
        ["“one, depth 8” is best", "Which is best", "All alternatives", "Over the sweep", "Latency"]
    {
        assert!(page.contains(part), "no '{part}'");
    }
}

/// The rows of a report's assumptions about drives.
fn drive_rows(report: &PlanReport) -> Vec<(&str, &str)> {
    let rows = report.assumptions.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    rows.filter(|(_, value)| value.contains("assumed: ") || value.contains("of it")).collect()
}

#[test]
fn drive_of_one_kind_has_one_row_with_its_assumptions() {
    let report = run(READS);
    let rows = drive_rows(&report);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0].0 == "drive fast" && rows[0].1.contains("64 MiB of it"), "{rows:?}");
    assert!(rows[0].1.contains("$100.00; assumed: "), "{rows:?}");
}

#[test]
fn swept_drive_has_its_common_assumptions_once_and_a_row_for_each_case() {
    let text = READS.to_owned()
        + "[[alternative]]\nname = \"two\"\ndevice = \"other\"\n[drive.other]\nprofile = \"optane-p4800x\"\n\
           capacity = \"32MiB\"\n[sweep]\n\"drive.fast.capacity\" = [\"64MiB\", \"96MiB\"]\n";
    let report = run(&text);
    let rows = drive_rows(&report);
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names[1..],
        ["drive fast: one, capacity 64MiB", "drive fast: one, capacity 96MiB", "drive other"]
    );
    assert!(rows[0].0.contains("Optane") && rows[0].1.starts_with("assumed: "), "{rows:?}");
    for ((_, value), part) in rows[1..].iter().zip(["64 MiB of it", "96 MiB of it", "32 MiB of it"])
    {
        assert!(value.contains(part) && !value.contains("assumed"), "{rows:?}");
    }
}

#[test]
fn assumption_of_one_case_only_stands_in_its_row() {
    let text = READS.replace("optane-p4800x", "micron-7450").replace("64MiB", "256MiB")
        + "[[alternative]]\nname = \"two\"\ndevice = \"fast\"\n\
           set = { \"drive.fast.over_provisioning\" = 0.28 }\n";
    let report = run(&text);
    let rows = drive_rows(&report);
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(names[1..], ["drive fast: one", "drive fast: two"]);
    let own = |row: usize| rows[row].1.split_once("; assumed: ").map(|(_, own)| own);
    assert!(own(1).unwrap().contains("over-provisioning") && own(2).is_none(), "{rows:?}");
    assert!(!rows[0].1.contains("over-provisioning"), "{rows:?}");
    // Bytes of media tell them apart.
    assert_ne!(rows[1].1.split("; assumed").next(), rows[2].1.split("; assumed").next());
}

#[test]
fn remark_of_several_cases_is_said_once() {
    let text = r#"
[drive.disk]
profile = "sata-7200"
capacity = "1GiB"
[trace]
database = { data = "4GiB", transactions_per_s = 100 }
requests = 1_000
[[alternative]]
name = "a disk"
device = "disk"
[sweep]
"trace.depth" = [4, 8]
"#;
    let report = run(text);
    let beyond: Vec<&String> = report.remarks.iter().filter(|one| one.contains("wrap")).collect();
    assert!(
        beyond.len() == 1 && beyond[0].starts_with("a disk, depth 4; a disk, depth 8: 7"),
        "{beyond:?}"
    );
}
