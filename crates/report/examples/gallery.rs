//! A page with every kind of chart, of figures that are made up: for looking at, and for the test in a browser.
//!
//! `cargo run -p esker-report --example gallery > gallery.html`

use std::f64::consts::PI;

use esker_report::{
    Assumption, Axis, Bars, Block, Chart, Curve, Curves, Dot, DotRow, Dots, Draw, HeatMap, Line,
    Mark, Outcome, Page, Panel, Panels, Precondition, Range, Section, Span, Table, Unit, Verdict,
};

fn main() {
    print!("{}", page().html());
}

fn page() -> Page {
    let mut page = Page::new(
        "Every kind of chart <&>",
        "All of these figures are made up; what they look like is what is shown.",
    );
    page.about = "Two libraries draw; dot plots need none.".to_owned();
    page.verdicts = vec![
        Verdict::new("writes", "1.00").published("1.02 (a source)").wanted("at most 1.02", true),
        Verdict::new("a figure with a long name, so that it wraps on a phone", "7 (6 to 9)")
            .wanted("at most 5", false)
            .baseline("6, of the same drive alone"),
        Verdict::new("reads, at four sizes", "−12 to −45 %")
            .published("−40 %")
            .judged("at least 40 % fewer", Outcome::Partly),
        Verdict::new("bytes to capacity", "0.00")
            .wanted("at most 1.49", true)
            .requires(Precondition::new("data that has aged to capacity", "none has", false)),
    ];
    page.sections = vec![over_time(), curves(), cases(), tables()];
    page.assumptions = vec![Assumption::new("figures", "made up, all of them")];
    page.environment.insert("machine".to_owned(), "none".to_owned());
    page.command = "gallery > gallery.html".to_owned();
    page
}

fn over_time() -> Section {
    let mut section = Section::new("Over time");
    let at: Vec<f64> = (0..100).map(|n| f64::from(n) / 10.0).collect();
    let wave = |scale: f64, shift: f64| -> Vec<Option<f64>> {
        at.iter().map(|x| Some(scale * (1.5 + (x + shift).sin()))).collect()
    };
    let seconds = || Axis::seconds().over(Range::Fixed(0.0, 10.0));
    let rate = Panel::new(
        Axis::linear("operations a second", Unit::Rate),
        at.clone(),
        vec![Line::slope("ops/s", wave(80_000.0, 0.0))],
    )
    .shade("writers stalled", vec![Span { from: 4.0, to: 5.2 }]);
    let latencies = [("p50", 9e3), ("p99", 8e4), ("p99.9", 9e5)];
    let mut latency = Panel::new(
        Axis::latency_ns("latency"),
        at.clone(),
        latencies.iter().map(|(name, ns)| Line::slope(*name, wave(*ns, 2.0))).collect(),
    );
    latency.bands = vec![(1, 0), (2, 1)];
    let kvsets = (0..10).map(|n| Some(f64::from(n % 4))).collect();
    let steps = Panel::new(
        Axis::linear("kvsets in the root", Unit::Count),
        (0..=10).map(f64::from).collect(),
        vec![Line::step("kvsets", kvsets)],
    );
    let panels = Panels { x: seconds(), panels: vec![rate, latency, steps] };
    section.add(Chart::new("Three panels share a cursor", panels));
    let many = (0..14).map(|n| Line::slope(format!("series {n}"), wave(1.0, f64::from(n) / 4.0)));
    let many = Panel::new(Axis::linear("a ratio", Unit::Factor), at.clone(), many.collect());
    section.fold(
        "Fourteen series, folded away",
        vec![Block::from(Chart::new("Colours repeat with dashes", Panels::one(seconds(), many)))],
    );
    section
}

fn curves() -> Section {
    let mut section = Section::new("Curves");
    let points = |scale: f64| -> Vec<(f64, f64)> {
        (0..=50)
            .map(|n| 10f64.powf(f64::from(n) / 10.0))
            .map(|x| (x, scale * x.powf(0.4)))
            .collect()
    };
    let reads = Curve::line("read", points(8e3));
    let intended =
        Curve { draw: Draw::Dashed, colour: Some(0), ..Curve::line("read, intended", points(2e4)) };
    let updates = Curve::line("update", points(3e4));
    let latency = Curves::percentiles(Axis::latency_ns("latency"), vec![reads, intended, updates]);
    let sizes: Vec<f64> = (12..=34).map(|power| 2f64.powi(power)).collect();
    let misses = |x: f64| 100.0 / (1.0 + (x / 1e7).powf(0.7));
    let lru = Curve {
        band: sizes.iter().map(|x| (misses(*x) * 0.95, (misses(*x) * 1.05).min(100.0))).collect(),
        ..Curve::line("LRU, with 95 % intervals", sizes.iter().map(|x| (*x, misses(*x))).collect())
    };
    let optimum = Curve::new(
        "optimum, computed at these sizes",
        Draw::Marks,
        sizes.iter().step_by(4).map(|x| (*x, misses(*x) * 0.7)).collect(),
    );
    let marks = vec![
        Mark { at: 1e7, name: "knee: 9.5 MiB, 50 % misses".to_owned() },
        Mark { at: 8e9, name: "footprint: 7.5 GiB".to_owned() },
    ];
    let share = |scale: f64| -> Vec<(f64, f64)> {
        (0..=60)
            .map(|n| (f64::from(n) * 10_000.0, 100.0 * (1.0 - (-f64::from(n) / scale).exp())))
            .collect()
    };
    section.charts(vec![
        Chart::new("One operation in 100,000 takes 100 times the median", latency)
            .note("Dashed: counted from the intended start."),
        Chart::new(
            "Half of the misses are gone at 9.5 MiB",
            Curves::miss_ratio(vec![lru, optimum], marks),
        ),
        Chart::new(
            "Both end before 600 µs",
            Curves::cumulative(
                Axis::linear("latency", Unit::Nanoseconds),
                "reads that took no longer",
                vec![Curve::line("window", share(6.0)), Curve::line("in order", share(12.0))],
            ),
        ),
    ]);
    section
}

fn cases() -> Section {
    let mut section = Section::new("Cases");
    let dot = |series, value, published: Option<f64>| Dot::new(series, value).beside(published);
    let row = |name: &str, dots| DotRow { name: name.to_owned(), dots };
    let dots = Dots::new(
        Axis::linear("bytes written to the media for each byte of the host", Unit::Factor)
            .over(Range::Fixed(1.0, 1.5)),
        ["no placement", "a handle each", "two handles each", "three"],
        vec![
            row("1:2:4:8", vec![dot(0, 1.62, Some(1.84)), dot(1, 1.01, Some(1.08))]),
            row(
                "1:4:16:64",
                vec![
                    dot(0, 1.6, Some(1.6)),
                    dot(1, 1.0, Some(1.02)),
                    dot(2, 1.0, None),
                    dot(3, 1.3, None),
                ],
            ),
            row("equal rates", vec![Dot { remark: "not steady".to_owned(), ..dot(0, 1.0, None) }]),
        ],
    );
    let bars = Bars {
        axis: Axis::linear("device bytes for each byte of the user", Unit::Factor),
        parts: ["log", "keys", "values"].map(str::to_owned).to_vec(),
        bars: ["load", "workload A", "workload F"]
            .iter()
            .zip([1.0, 1.3, 0.8])
            .map(|(name, scale)| {
                ((*name).to_owned(), [1.0, 0.2, 0.7].map(|part| part * scale).to_vec())
            })
            .collect(),
    };
    let value = |x: u32, y: u32| 50.0 + 40.0 * (f64::from(x * 2 + y) * PI / 8.0).sin();
    let heat = HeatMap {
        column_name: "size of the cache".to_owned(),
        columns: ["5 %", "10 %", "20 %", "40 %"].map(str::to_owned).to_vec(),
        row_name: "version".to_owned(),
        rows: ["first, FIFO", "first, LRU", "2013", "Esker"].map(str::to_owned).to_vec(),
        name: "hits".to_owned(),
        unit: Unit::Percent,
        values: (0..4)
            .map(|y| (0..4).map(|x| (x + y != 6).then(|| value(x, y))).collect())
            .collect(),
    };
    section.charts(vec![
        Chart::new("Placement takes nearly all of it away", dots),
        Chart::new("Workload A writes most", bars),
        Chart::new("Larger caches are not always better", heat),
    ]);
    section
}

fn tables() -> Section {
    let mut section = Section::new("Tables");
    section.text("A table of many columns becomes cards on a phone, and wraps on paper.");
    let mut table = Table::new([
        "workload",
        "ops/s",
        "operation",
        "count",
        "p50, µs",
        "p99, µs",
        "p99.9, µs",
        "max, µs",
    ])
    .caption("Of one run")
    .words([2]);
    for workload in ["load", "A", "B"] {
        table.ruled_row([
            workload,
            "123,456",
            "read-modify-write",
            "1,234,567",
            "12.3",
            "45.6",
            "1,234",
            "123,456",
        ]);
    }
    section.add(table);
    section.heading("What each is");
    section.list(["A list, of one sentence.", "And of another one."]);
    section.pairs(vec![("drive".to_owned(), "a drive that has a long description ".repeat(6))]);
    section
}
