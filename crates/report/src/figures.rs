//! The table behind each chart: every figure that is drawn.

use crate::chart::{Bars, Chart, Curves, Dots, HeatMap, Kind, Panel, Panels, Scale};
use crate::table::{Cell, Table};
use crate::unit::Unit;

/// The tables behind a chart; one, but for panels whose points lie at different times.
pub(crate) fn tables(chart: &Chart) -> Vec<Table> {
    match &chart.kind {
        Kind::Panels(panels) => of_panels(panels),
        Kind::Curves(curves) => vec![of_curves(curves)],
        Kind::Dots(dots) => vec![of_dots(dots)],
        Kind::Bars(bars) => vec![of_bars(bars)],
        Kind::HeatMap(map) => vec![of_map(map)],
    }
}

fn cell(unit: Unit, value: Option<f64>) -> Cell {
    value.map_or_else(|| Cell::from(""), |value| Cell::figure(unit.show(value), value))
}

/// Panels with points at the same times share a table.
fn of_panels(panels: &Panels) -> Vec<Table> {
    let mut groups: Vec<Vec<&Panel>> = Vec::new();
    for panel in &panels.panels {
        match groups.iter_mut().find(|group| group[0].at == panel.at) {
            Some(group) => group.push(panel),
            None => groups.push(vec![panel]),
        }
    }
    groups.iter().map(|group| of_group(panels, group)).collect()
}

fn of_group(panels: &Panels, group: &[&Panel]) -> Table {
    let mut table = Table::default();
    table.column(&panels.x.name, panels.x.unit.suffix());
    for panel in group {
        for line in &panel.lines {
            let name = match panel.lines.len() {
                1 => panel.y.name.clone(),
                _ => format!("{}, {}", panel.y.name, line.name),
            };
            table.column(name, panel.y.unit.suffix());
        }
    }
    let lines: Vec<_> = group
        .iter()
        .flat_map(|panel| panel.lines.iter().map(|line| (panel.y.unit, &line.values)))
        .collect();
    let count = lines.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    for (index, at) in group[0].at.iter().take(count).enumerate() {
        let mut row = vec![Cell::figure(panels.x.unit.show(*at), *at)];
        row.extend(
            lines.iter().map(|(unit, values)| cell(*unit, values.get(index).copied().flatten())),
        );
        table.rows.push(row);
    }
    table
}

/// The percentile that "one in so many" is, with as many digits as it needs.
pub(crate) fn percentile(one_in: f64) -> String {
    let share = 100.0 * (1.0 - 1.0 / one_in.max(1.0));
    let digits = (0..8).find(|&nines| one_in <= 10f64.powi(nines + 2) * 1.001).unwrap_or(8);
    let text = format!("{share:.*}", usize::try_from(digits + 1).unwrap_or(1));
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

fn of_curves(curves: &Curves) -> Table {
    let is_percentile = curves.x.scale == Scale::Percentile;
    let suffix = if is_percentile { " (%)" } else { curves.x.unit.suffix() };
    let mut table = Table::default();
    table.column(&curves.x.name, suffix);
    let mut xs: Vec<f64> =
        curves.curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    for curve in &curves.curves {
        let unit = curves.y.unit.suffix();
        table.column(&curve.name, unit);
        if !curve.band.is_empty() {
            table.column(format!("{}, least", curve.name), unit);
            table.column(format!("{}, greatest", curve.name), unit);
        }
    }
    let mut next = vec![0; curves.curves.len()];
    for x in xs {
        let shown = if is_percentile { percentile(x) } else { curves.x.unit.show(x) };
        let figure = if is_percentile { 100.0 * (1.0 - 1.0 / x) } else { x };
        let mut row = vec![Cell::figure(shown, figure)];
        for (curve, next) in curves.curves.iter().zip(&mut next) {
            let here = curve.points.get(*next).filter(|(at, _)| *at == x);
            row.push(cell(curves.y.unit, here.map(|(_, y)| *y)));
            if !curve.band.is_empty() {
                let band = here.and_then(|_| curve.band.get(*next));
                row.push(cell(curves.y.unit, band.map(|(low, _)| *low)));
                row.push(cell(curves.y.unit, band.map(|(_, high)| *high)));
            }
            *next += usize::from(here.is_some());
        }
        table.rows.push(row);
    }
    table
}

fn of_dots(dots: &Dots) -> Table {
    let unit = dots.axis.unit;
    let has_hollow = dots.has_hollow();
    let has_remarks = dots.rows.iter().flat_map(|row| &row.dots).any(|dot| !dot.remark.is_empty());
    let mut table = Table::new(["case", "series"]).words([1]);
    table.column(&dots.axis.name, unit.suffix());
    if has_hollow {
        table.column(&dots.hollow, unit.suffix());
    }
    if has_remarks {
        table.words.push(table.head.len());
        table.column("remark", "");
    }
    for row in &dots.rows {
        for dot in &row.dots {
            let series = dots.series.get(dot.series).map_or("", String::as_str);
            let mut cells = vec![Cell::from(row.name.as_str()), Cell::from(series)];
            cells.push(cell(unit, Some(dot.value)));
            if has_hollow {
                cells.push(cell(unit, dot.published));
            }
            if has_remarks {
                cells.push(Cell::from(dot.remark.as_str()));
            }
            table.rows.push(cells);
        }
    }
    table
}

fn of_bars(bars: &Bars) -> Table {
    let unit = bars.axis.unit;
    let mut table = Table::new(["case"]);
    bars.parts.iter().for_each(|part| table.column(part, unit.suffix()));
    table.column("in all", unit.suffix());
    for (name, values) in &bars.bars {
        let mut row = vec![Cell::from(name.as_str())];
        row.extend(values.iter().map(|value| cell(unit, Some(*value))));
        row.push(cell(unit, Some(values.iter().sum())));
        table.rows.push(row);
    }
    table
}

fn of_map(map: &HeatMap) -> Table {
    let caption = format!("{}, by {}", map.name, map.column_name);
    let mut table = Table::new([&*map.row_name]).caption(caption);
    map.columns.iter().for_each(|column| table.column(column, map.unit.suffix()));
    for (name, values) in map.rows.iter().zip(&map.values) {
        let mut row = vec![Cell::from(name.as_str())];
        row.extend(values.iter().map(|value| cell(map.unit, *value)));
        table.rows.push(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Curve, Line};

    #[test]
    fn percentiles_have_the_digits_they_need() {
        let shown = [1.0, 2.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0].map(percentile);
        assert_eq!(shown, ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"]);
    }

    #[test]
    fn curves_with_points_at_different_places_share_a_table() {
        let (a, b) = (vec![(1.0, 5.0), (3.0, 6.0)], vec![(2.0, 7.0), (3.0, 8.0)]);
        let curves = vec![Curve::line("a", a), Curve::line("b", b)];
        let axis = || Axis::linear("n", Unit::Plain);
        let chart = Chart::new("t", Curves::new(axis(), axis(), curves));
        let csv = tables(&chart)[0].csv();
        assert_eq!(csv, "n,a,b\r\n1,5,\r\n2,,7\r\n3,6,8\r\n");
    }

    #[test]
    fn panels_with_other_times_have_a_table_of_their_own() {
        let panel = |at: Vec<f64>, name: &str| {
            let line = Line::slope(name, vec![Some(1.0); at.len()]);
            Panel::new(Axis::linear(name, Unit::Count), at, vec![line])
        };
        let panels =
            vec![panel(vec![0.0, 1.0], "a"), panel(vec![0.5], "b"), panel(vec![0.0, 1.0], "c")];
        let tables = tables(&Chart::new("t", Panels { x: Axis::seconds(), panels }));
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].csv(), "time (s),a,c\r\n0,1,1\r\n1,1,1\r\n");
    }
}
