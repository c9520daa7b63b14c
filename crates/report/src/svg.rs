//! Dot plots as SVG whose places are percentages: they follow the width of the page without a script.

use std::fmt::Write as _;

use crate::chart::{COLOURS, Dot, Dots, Range};
use crate::escape::escape;

/// Where the axis begins and ends, in percent of the width: figures stand beside the outermost dots.
const LEFT: f64 = 14.0;
const RIGHT: f64 = 83.0;
/// Pixels of a lane, of the name above the lanes, and of the axis.
const LANE: usize = 22;
const NAME: usize = 24;
const AXIS: usize = 24;

/// The colour of a series.
pub(crate) fn colour(index: usize) -> String {
    format!("var(--series-{})", index % COLOURS + 1)
}

/// The mark of a series, centred: a disc, a square, a diamond or a bar.
pub(crate) fn shape(series: usize, x: &str, y: &str, colour: &str, is_hollow: bool) -> String {
    let (fill, stroke) = if is_hollow { ("var(--paper)", colour) } else { (colour, "none") };
    let style = format!("fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"2\"");
    let half = 4.5;
    // Squares are placed by a percentage and moved by pixels.
    let square = |turn: &str, width: f64, height: f64| {
        format!(
            "<svg x=\"{x}\" y=\"{y}\" overflow=\"visible\"><rect x=\"{}\" y=\"{}\" width=\"{width}\" \
             height=\"{height}\" {style}{turn}/></svg>",
            -width / 2.0,
            -height / 2.0
        )
    };
    match series % 4 {
        _ if is_hollow => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{half}\" {style}/>"),
        0 => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" {style}/>"),
        1 => square("", 9.0, 9.0),
        2 => square(" transform=\"rotate(45)\"", 9.0, 9.0),
        _ => square("", 4.0, 12.0),
    }
}

/// A dot plot.
pub(crate) fn dots(dots: &Dots, label: &str) -> String {
    let (from, to, step) = ticks(dots);
    let place = |value: f64| LEFT + (RIGHT - LEFT) * ((value - from) / (to - from)).clamp(0.0, 1.0);
    let lanes: usize = dots.rows.iter().map(|row| row.dots.len()).sum();
    let height = dots.rows.len() * NAME + lanes * LANE + AXIS;
    let floor = height - AXIS + 4;
    let mut text = format!(
        "<svg class=\"plot dots\" role=\"img\" aria-label=\"{label}\" width=\"100%\" \
         height=\"{height}\">\n"
    );
    let mut tick = from;
    while tick <= to + step / 1e6 {
        let x = place(tick);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{floor}\"/>\
             <text class=\"tick\" x=\"{x:.2}%\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            height - 4,
            escape(&dots.axis.unit.show(tick))
        );
        tick += step;
    }
    let mut y = 0;
    for row in &dots.rows {
        let _ = writeln!(
            text,
            "<text class=\"name\" x=\"0\" y=\"{}\">{}</text>",
            y + 16,
            escape(&row.name)
        );
        y += NAME;
        for dot in &row.dots {
            lane(&mut text, dots, dot, y + LANE / 2 - 2, &place);
            y += LANE;
        }
    }
    text.push_str("</svg>\n");
    text
}

/// A dot on its lane, and the figures on the outer sides of both marks.
fn lane(text: &mut String, dots: &Dots, dot: &Dot, y: usize, place: &dyn Fn(f64) -> f64) {
    let _ = writeln!(
        text,
        "<line class=\"lane\" x1=\"{LEFT}%\" x2=\"{RIGHT}%\" y1=\"{y}\" y2=\"{y}\"/>"
    );
    let unit = dots.axis.unit;
    let mut figure = |value: f64, class: &str, is_right: bool, remark: &str| {
        let (anchor, dx) = if is_right { ("start", 9) } else { ("end", -9) };
        let _ = writeln!(
            text,
            "<text class=\"{class}\" x=\"{:.2}%\" dx=\"{dx}\" y=\"{}\" text-anchor=\"{anchor}\">\
             {}{remark}</text>",
            place(value),
            y + 4,
            escape(&unit.show(value))
        );
    };
    let is_right = dot.published.is_none_or(|published| dot.value >= published);
    figure(dot.value, "figure", is_right, if dot.remark.is_empty() { "" } else { " ?" });
    if let Some(published) = dot.published {
        figure(published, "figure published", !is_right, "");
    }
    let (y, at) = (y.to_string(), |value: f64| format!("{:.2}%", place(value)));
    let colour = colour(dot.series);
    text.push_str(&shape(dot.series, &at(dot.value), &y, &colour, false));
    if let Some(published) = dot.published {
        text.push_str(&shape(0, &at(published), &y, "var(--ink)", true));
    }
    text.push('\n');
}

/// Where the axis begins and ends, and how far its labels are apart.
fn ticks(dots: &Dots) -> (f64, f64, f64) {
    let all = dots.rows.iter().flat_map(|row| &row.dots);
    let all = all.flat_map(|dot| [Some(dot.value), dot.published]).flatten();
    let (least, most) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    let (least, most) = if least.is_finite() { (least, most) } else { (0.0, 1.0) };
    let (from, to) = match dots.axis.range {
        Range::Zero => (least.min(0.0), most.max(0.0)),
        Range::Data => (least, most),
        Range::Fixed(from, to) => (from.min(least), to.max(most)),
    };
    let span = if to > from { to - from } else { 1.0 };
    let power = 10f64.powf((span / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power);
    let step = step.into_iter().find(|step| span / step <= 5.0).unwrap_or(power * 10.0);
    let from = (from / step).floor() * step;
    (from, (from + span).max((to / step - 1e-9).ceil() * step), step)
}
