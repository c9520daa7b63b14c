//! Figures in words.

/// A span that is given in microseconds.
pub(crate) fn span(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} µs"),
        ..1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

/// A text without its line breaks, so that its sentences can be looked for.
#[cfg(test)]
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
