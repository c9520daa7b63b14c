//! Charts as parts of a page: titles, legends, and the places that a script fills.
//!
//! Invariants
//! 1. Every foreign string goes through [`escape`] or [`attribute`] on its way into markup.
//! 2. No text within the JSON of the page can end the script element that it is in ([`json`]).

use std::fmt::Write as _;

use crate::chart::{Chart, Draw, Kind, dashes};
use crate::escape::{attribute, escape};
use crate::figures;
use crate::svg;

/// The JSON that the script draws from. `<` is escaped, so that nothing in it ends the script element.
pub(crate) fn json(charts: &[&Chart]) -> String {
    let kinds: Vec<&Kind> = charts.iter().map(|chart| &chart.kind).collect();
    let json = serde_json::to_string(&kinds).expect("every field has a JSON form");
    json.replace('<', "\\u003c")
}

/// A chart with its title, its legend and its figures. `index` is its place in the page's JSON.
pub(crate) fn figure(chart: &Chart, index: usize, command: &str) -> String {
    let number = index + 1;
    let mut text = format!(
        "<figure class=\"chart\" id=\"chart-{number}\">\n<figcaption><p class=\"title\">{}</p>",
        escape(&chart.title)
    );
    if !chart.note.is_empty() {
        let _ = write!(text, "<p>{}</p>", escape(&chart.note));
    }
    text.push_str("</figcaption>\n");
    text.push_str(&drawn(chart, index));
    if chart.needs_uplot() || chart.needs_echarts() {
        text.push_str(
            "<noscript><p>A script draws this chart. Its figures are in the table below.</p>\
             </noscript>\n",
        );
    }
    text.push_str("<details class=\"data\"><summary>Figures of this chart</summary>\n");
    for (index, table) in figures::tables(chart).iter().enumerate() {
        let name = match index {
            0 => chart.title.clone(),
            _ => format!("{} {}", chart.title, index + 1),
        };
        let _ = writeln!(text, "<p>{}</p>\n{}", table.download(&name), table.markup(&name, false));
    }
    let command = chart.command.as_deref().unwrap_or(command);
    if !command.is_empty() {
        let _ = writeln!(text, "<p>Made by <code>{}</code></p>", escape(command));
    }
    text.push_str("</details>\n</figure>\n");
    text
}

/// The plots of a chart, each below its legend.
fn drawn(chart: &Chart, index: usize) -> String {
    let label = |name: &str| attribute(&format!("{}. {name}", chart.title));
    match &chart.kind {
        Kind::Panels(panels) => {
            let mut text = String::new();
            for (at, panel) in panels.panels.iter().enumerate() {
                let names: Vec<&str> = panel.lines.iter().map(|line| &*line.name).collect();
                let (y, x) = (&panel.y.name, &panels.x.name);
                let spoken = label(&format!("{y} over {x}: {}", names.join(", ")));
                let keys =
                    panel.lines.iter().enumerate().map(|(at, line)| {
                        (Key::Line(line.colour.unwrap_or(at)), line.name.as_str())
                    });
                let spans = (!panel.spans.is_empty()).then_some((Key::Span, &*panel.spans_name));
                let legend = legend(keys.chain(spans));
                let y = escape(y);
                let _ = writeln!(
                    text,
                    "<p class=\"axis\">{y}</p>\n{legend}<div class=\"plot panel\" role=\"img\" \
                     aria-label=\"{spoken}\" data-chart=\"{index}\" data-panel=\"{at}\"></div>"
                );
            }
            text.push_str(&below(&panels.x.name));
            text
        }
        Kind::Curves(curves) => {
            let names: Vec<&str> = curves.curves.iter().map(|curve| &*curve.name).collect();
            let (y, x) = (&curves.y.name, &curves.x.name);
            let spoken = label(&format!("{y} over {x}: {}", names.join(", ")));
            let keys = curves.curves.iter().enumerate().map(|(at, curve)| {
                let colour = curve.colour.unwrap_or(at);
                let key = match curve.draw {
                    Draw::Dashed => Key::Dashed(colour),
                    Draw::Marks => Key::Dot(colour),
                    Draw::Hollow => Key::Hollow(colour),
                    Draw::Line | Draw::Points | Draw::Step => Key::Line(colour),
                };
                (key, curve.name.as_str())
            });
            let marks = curves.marks.iter().enumerate();
            let marks = marks.map(|(at, mark)| (Key::Mark(at), mark.name.as_str()));
            let legend = legend(keys.chain(marks));
            plot(y, &legend, &spoken, index, "curves", x)
        }
        Kind::Bars(bars) => {
            let spoken = label(&format!("{}: {}", bars.axis.name, bars.parts.join(", ")));
            let parts = bars.parts.iter().enumerate();
            let keys = parts.map(|(at, part)| (Key::Part(at), part.as_str()));
            plot("", &legend(keys), &spoken, index, "bars", &bars.axis.name)
        }
        Kind::HeatMap(map) => {
            let about = format!("{} by {} and {}", map.name, map.row_name, map.column_name);
            let y = format!("{}, by {}", map.name, map.row_name);
            plot(&y, "", &label(&about), index, "heat", &map.column_name)
        }
        Kind::Dots(dots) => {
            let series = dots.series.iter().enumerate();
            let keys = series.map(|(at, name)| (Key::Shape(at), name.as_str()));
            let hollow = dots.has_hollow().then_some((Key::Published, &*dots.hollow));
            let legend = legend(keys.chain(hollow));
            let spoken = label(&format!("{}: {}", dots.axis.name, dots.series.join(", ")));
            format!("{legend}{}{}", svg::dots(dots, &spoken), below(&dots.axis.name))
        }
    }
}

/// A plot that a script fills, with the names of its axes.
fn plot(y: &str, legend: &str, label: &str, index: usize, kind: &str, x: &str) -> String {
    let y =
        if y.is_empty() { String::new() } else { format!("<p class=\"axis\">{}</p>\n", escape(y)) };
    format!(
        "{y}{legend}<div class=\"plot {kind}\" role=\"img\" aria-label=\"{label}\" \
         data-chart=\"{index}\"></div>\n{}",
        below(x)
    )
}

fn below(name: &str) -> String {
    format!("<p class=\"axis below\">{}</p>\n", escape(name))
}

/// The mark before a name in a legend.
#[derive(Clone, Copy)]
enum Key {
    Line(usize),
    Dashed(usize),
    Dot(usize),
    Hollow(usize),
    Shape(usize),
    Published,
    Part(usize),
    Mark(usize),
    Span,
}

/// A legend; the script writes the figures under the cursor into its outputs. Where there is one key alone, its name would
/// say what the axis says.
fn legend<'a>(keys: impl Iterator<Item = (Key, &'a str)>) -> String {
    let output = |key: Key| match key {
        Key::Line(_) | Key::Dashed(_) | Key::Dot(_) | Key::Hollow(_) => "<b></b>",
        _ => "",
    };
    let keys: Vec<(Key, &str)> = keys.collect();
    let mut text = String::from("<ul class=\"legend\">");
    if let [(key, _)] = keys[..] {
        let _ = write!(text, "<li>{}</li>", output(key));
    } else {
        for (key, name) in keys {
            let _ = write!(text, "<li>{} {}{}</li>", drawing(key), escape(name), output(key));
        }
    }
    text.push_str("</ul>\n");
    text
}

fn drawing(key: Key) -> String {
    let inside = match key {
        Key::Line(at) => stroke(&svg::colour(at), dashes(at)),
        Key::Dashed(at) => stroke(&svg::colour(at), "6 3"),
        Key::Mark(at) => stroke("var(--ink)", ["1 3", "6 2 1 2", "10 4"][at % 3]),
        Key::Dot(at) => svg::shape(0, "13", "6", &svg::colour(at), false),
        Key::Hollow(at) => svg::shape(0, "13", "6", &svg::colour(at), true),
        Key::Shape(at) => svg::shape(at, "13", "6", &svg::colour(at), false),
        Key::Published => svg::shape(0, "13", "6", "var(--ink)", true),
        Key::Part(at) => {
            format!("<rect x=\"6\" width=\"14\" height=\"12\" fill=\"{}\"/>", svg::colour(at))
        }
        Key::Span => "<rect x=\"3\" width=\"20\" height=\"12\" fill=\"var(--span)\"/>".to_owned(),
    };
    format!("<svg class=\"key\" width=\"26\" height=\"12\" aria-hidden=\"true\">{inside}</svg>")
}

fn stroke(colour: &str, dashes: &str) -> String {
    format!(
        "<line x1=\"0\" x2=\"26\" y1=\"6\" y2=\"6\" stroke=\"{colour}\" stroke-width=\"2\" \
         stroke-dasharray=\"{dashes}\"/>"
    )
}
