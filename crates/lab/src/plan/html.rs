//! The report as a page: the best cases, all cases, where bytes went, tails, and all assumptions.

use esker_report::{
    Axis, Bars, Block, Chart, Curve, Curves, Dot, DotRow, Dots, Draw, Page, Section, Table, Unit,
};

use super::judge::Judged;
use super::report::{COLUMNS, DRIVES, LAYERS, PlanReport};

type Figure = fn(&Judged) -> Option<f64>;

/// Costs that have a chart.
const COSTS: [(&str, Figure); 2] = [
    ("cost a year", |one| one.cost_per_year.filter(|_| one.measured.is_steady())),
    ("cost per drive-year", |one| one.cost_per_drive_year.filter(|_| one.measured.is_steady())),
];

impl PlanReport {
    /// The report as a page.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&self.title, &self.finding);
        page.about = self.load.clone();
        let sections = [
            self.best_section(),
            self.case_section(),
            self.sweep_section(),
            self.byte_section(),
            self.tail_section(),
        ];
        page.sections = sections.into_iter().filter(|one| !one.blocks.is_empty()).collect();
        page.assumptions = self.assumptions.iter().cloned().map(Into::into).collect();
        page.environment = self.environment.clone();
        page.command.clone_from(&self.command);
        page
    }

    fn best_section(&self) -> Section {
        let mut section = Section::new("Which is best");
        let mut table = Table::new(["by", "best", "its figure", "the worst has"]).words([0, 1]);
        for one in &self.best {
            table.row([&one.criterion, &one.names.join("; "), &one.figure, &one.worst]);
        }
        if !table.rows.is_empty() {
            section.add(table);
        }
        section
    }

    fn case_section(&self) -> Section {
        let mut section = Section::new("All alternatives");
        let mut charts = Vec::new();
        charts.extend(self.dots("throughput", Unit::Rate, |one| {
            one.measured.is_timed().then_some(one.measured.ops_per_s)
        }));
        charts.extend(self.dots("write amplification in all", Unit::Factor, |one| {
            one.measured.write_amplification().filter(|_| one.measured.is_steady())
        }));
        charts.extend(self.dots("drive life in years", Unit::Plain, |one| {
            one.life_years.filter(|_| one.measured.is_steady())
        }));
        for (name, figure) in COSTS {
            let name = format!("{name} in {}", self.currency);
            charts.extend(self.dots(&name, Unit::Plain, figure));
        }
        section.charts(charts);
        section.add(Table::of(COLUMNS, self.rows()));
        section.list(self.clock_notes());
        section.list(self.remarks.iter().cloned());
        section.text(format!("Runs made: {}; kept of earlier ones: {}.", self.made, self.kept));
        let clocks = self.cases.iter().map(|one| one.name.clone()).zip(self.clocks()).collect();
        section.fold("By which clock each one's times are", vec![Block::Pairs(clocks)]);
        section
    }

    /// A figure of every case; none where fewer than two have it.
    fn dots(&self, name: &str, unit: Unit, figure: Figure) -> Option<Chart> {
        let known: Vec<(&Judged, f64)> =
            self.cases.iter().filter_map(|one| Some((one, figure(one)?))).collect();
        let values = || known.iter().map(|(_, value)| *value);
        let (least, most) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if known.len() < 2 {
            return None;
        }
        let row = |(one, value): &(&Judged, f64)| DotRow {
            name: one.name.clone(),
            dots: vec![Dot::new(0, *value)],
        };
        let rows = known.iter().map(row).collect();
        let title = match (unit.show(least), unit.show(most)) {
            (least, most) if least == most => format!("All have the same {name}: {most}"),
            (least, most) => format!("The {name} is {least} to {most}"),
        };
        Some(Chart::new(title, Dots::new(Axis::linear(name, unit), [name], rows)))
    }

    /// Figures over the only parameter of a sweep, where its values are numbers.
    fn sweep_section(&self) -> Section {
        let mut section = Section::new("Over the sweep");
        let swept = self.cases.iter().find_map(|one| match &one.point[..] {
            [(key, value)] => Some((key.as_str(), Number::of(value)?.unit)),
            _ => None,
        });
        let Some((key, unit)) = swept else { return section };
        let short = key.replace('_', " ");
        let x = match unit {
            Unit::Bytes => Axis::sizes(short),
            unit => Axis::linear(short, unit),
        };
        let mut charts = Vec::new();
        let mut add = |name: &str, unit: Unit, figure: &dyn Fn(&Judged) -> Option<f64>| {
            let curves = self.curves(figure);
            if curves.iter().any(|curve| curve.points.len() > 1) {
                let y = Axis::linear(name, unit);
                charts.push(Chart::new(
                    format!("{name} by {key}"),
                    Curves::new(x.clone(), y, curves),
                ));
            }
        };
        add("throughput", Unit::Rate, &|one| {
            one.measured.is_timed().then_some(one.measured.ops_per_s)
        });
        add("write amplification in all", Unit::Factor, &|one| one.measured.write_amplification());
        add("drive life in years", Unit::Plain, &|one| one.life_years);
        add(&format!("cost a year in {}", self.currency), Unit::Plain, &|one| one.cost_per_year);
        section.charts(charts);
        section
    }

    /// A curve of each alternative over the parameter of the sweep.
    fn curves(&self, figure: &dyn Fn(&Judged) -> Option<f64>) -> Vec<Curve> {
        let mut curves: Vec<Curve> = Vec::new();
        for one in &self.cases {
            let at = one.point.first().and_then(|(_, value)| Number::of(value));
            let Some((at, value)) = at.zip(figure(one)) else { continue };
            match curves.iter_mut().find(|curve| curve.name == one.alternative) {
                Some(curve) => curve.points.push((at.value, value)),
                None => {
                    let points = vec![(at.value, value)];
                    curves.push(Curve::new(&one.alternative, Draw::Points, points));
                }
            }
        }
        for curve in &mut curves {
            curve.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        curves
    }

    fn byte_section(&self) -> Section {
        let mut section = Section::new("Where bytes went");
        let parts: Vec<String> = ["written by the user", "added above drives", "added in drives"]
            .map(str::to_owned)
            .to_vec();
        let bars: Vec<(String, Vec<f64>)> = self
            .cases
            .iter()
            .filter_map(|one| {
                let all = one.measured.write_amplification()?;
                let above = one.measured.software_amplification()?;
                Some((one.name.clone(), vec![1.0, (above - 1.0).max(0.0), (all - above).max(0.0)]))
            })
            .collect();
        if bars.len() > 1 {
            let axis = Axis::linear("bytes for each byte of the user", Unit::Factor);
            let title = "Each byte of the user becomes so many on media";
            section.add(Chart::new(title, Bars { axis, parts, bars }));
        }
        section.add(Table::of(LAYERS, self.layer_rows()));
        section.heading("By drive");
        section.add(Table::of(DRIVES, self.drive_rows()));
        section
    }

    fn tail_section(&self) -> Section {
        let mut section = Section::new("Latency");
        let curves: Vec<Curve> = self
            .cases
            .iter()
            .filter(|one| one.measured.is_timed())
            .filter_map(|one| {
                let points = &one.measured.tail()?.by_percentile;
                let points = points.iter().map(|(one_in, us)| (*one_in, us * 1e3)).collect();
                Some(Curve::line(&one.name, points))
            })
            .collect();
        let kind = self.cases.iter().find_map(|one| Some(one.measured.tail()?.kind.clone()));
        if let Some(kind) = kind.filter(|_| !curves.is_empty()) {
            let axis = Axis::latency_ns(format!("{kind}s"));
            let title = format!("How long one {kind} in so many takes");
            section.add(Chart::new(title, Curves::percentiles(axis, curves)));
        }
        section
    }
}

/// A value of a sweep.
struct Number {
    value: f64,
    unit: Unit,
}

impl Number {
    #[allow(clippy::cast_precision_loss)] // a place on an axis
    fn of(text: &str) -> Option<Number> {
        if let Ok(value) = text.parse() {
            return Some(Number { value, unit: Unit::Plain });
        }
        let bytes = esker_base::units::parse_bytes(text).ok()?;
        Some(Number { value: bytes as f64, unit: Unit::Bytes })
    }
}
