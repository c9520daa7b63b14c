//! The limits in `docs/limits.md` are those of the code. A row names constants, or fields with a default, and their
//! file; the numbers in its value are theirs, in that order.

use std::iter::Peekable;
use std::str::Chars;

/// Units of bytes, the largest first.
const UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const MINUTE_MS: u64 = 60_000;

/// The page as it should be. `source` finds the text of a file.
pub(crate) fn rendered(
    page: &str,
    source: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut file = String::new();
    let mut lines = String::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').collect();
        let is_row = cells.len() == 5 && cells[3].contains('`');
        let line = if is_row {
            row(&cells, &mut file, &source).map_err(|why| format!("{}: {why}", cells[1].trim()))?
        } else {
            line.to_owned()
        };
        lines.push_str(&line);
        lines.push('\n');
    }
    Ok(lines)
}

fn row(
    cells: &[&str],
    file: &mut String,
    source: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let (paths, names): (Vec<&str>, Vec<&str>) =
        cells[3].split('`').skip(1).step_by(2).partition(|name| name.contains('/'));
    if let Some(path) = paths.first() {
        *file = (*path).to_owned();
    }
    let text = source(file).ok_or_else(|| format!("there is no file {file}"))?;
    let mut values = Vec::new();
    for name in names {
        let found = values_of(&text, name);
        values.extend(found.ok_or_else(|| format!("{file} has no number of the name {name}"))?);
    }
    let value = with_numbers(cells[2], &values)?;
    Ok([cells[0], cells[1], &value, cells[3], cells[4]].join("|"))
}

/// The value of a constant, or of the default of a field; several for a tuple, or for the arguments of a call.
fn values_of(source: &str, name: &str) -> Option<Vec<u64>> {
    let (constant, field) = (format!("const {name}: "), format!("{name}: "));
    let expressions = source.lines().filter_map(|line| match line.split_once(&constant) {
        Some((_, rest)) => rest.split_once(" = ")?.1.strip_suffix(';'),
        None => line.trim_start().strip_prefix(&field)?.strip_suffix(','),
    });
    expressions.filter_map(numbers).next()
}

fn numbers(expression: &str) -> Option<Vec<u64>> {
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || ":_".contains(c));
    let list = expression.split_once('(').filter(|(callee, _)| is_name(callee));
    let list = list.and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(expression);
    list.split(',').map(evaluated).collect()
}

/// The value of an expression of whole numbers.
fn evaluated(expression: &str) -> Option<u64> {
    let plain: String = expression.chars().filter(|c| !c.is_whitespace() && *c != '_').collect();
    let mut rest = plain.chars().peekable();
    let value = shifted(&mut rest)?;
    rest.next().is_none().then_some(value)
}

fn shifted(rest: &mut Peekable<Chars<'_>>) -> Option<u64> {
    let mut value = summed(rest)?;
    while rest.next_if_eq(&'<').is_some() {
        rest.next_if_eq(&'<')?;
        value = value.checked_mul(1 << summed(rest)?)?;
    }
    Some(value)
}

fn summed(rest: &mut Peekable<Chars<'_>>) -> Option<u64> {
    let mut value = factor(rest)?;
    while let Some(operator) = rest.next_if(|c| "+-*".contains(*c)) {
        let other = factor(rest)?;
        value = match operator {
            '+' => value.checked_add(other)?,
            '-' => value.checked_sub(other)?,
            _ => value.checked_mul(other)?,
        };
    }
    Some(value)
}

fn factor(rest: &mut Peekable<Chars<'_>>) -> Option<u64> {
    if rest.next_if_eq(&'(').is_some() {
        let value = shifted(rest)?;
        return rest.next_if_eq(&')').map(|_| value);
    }
    let mut digits = String::new();
    while let Some(digit) = rest.next_if(char::is_ascii_alphanumeric) {
        digits.push(digit);
    }
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// The text with its numbers replaced, each written as it is there.
fn with_numbers(text: &str, values: &[u64]) -> Result<String, String> {
    let mut values = values.iter();
    let (mut written, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let value = *values.next().ok_or_else(|| format!("no constant has '{}'", &rest[at..]))?;
        written.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_digit = |c: char| c.is_ascii_hexdigit() || c == 'x';
        if let Some(exponent) = rest.strip_prefix("2^") {
            written.push_str(&format!("2^{}", value.checked_ilog2().unwrap_or_default()));
            if !value.is_power_of_two() {
                return Err(format!("{value} is no power of 2"));
            }
            rest = exponent.trim_start_matches(|c: char| c.is_ascii_digit());
        } else if rest.starts_with("0x") {
            written.push_str(&format!("{value:#x}"));
            rest = rest.trim_start_matches(is_digit);
        } else {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',');
            let unit = rest.strip_prefix(' ').and_then(|rest| rest.split(' ').next());
            let unit = unit.unwrap_or_default().trim_end_matches([',', ';', ':']);
            let is_of_bytes = unit == "bytes" || UNITS.iter().any(|(name, _)| *name == unit);
            let (shown, length) = match unit {
                "minutes" => (format!("{} minutes", value / MINUTE_MS), unit.len() + 1),
                _ if is_of_bytes => (bytes(value), unit.len() + 1),
                _ => (grouped(value), 0),
            };
            written.push_str(&shown);
            rest = &rest[length..];
        }
    }
    match values.next() {
        Some(value) => Err(format!("its value lacks {value}")),
        None => Ok(written + rest),
    }
}

fn bytes(value: u64) -> String {
    let unit = UNITS.iter().find(|(_, unit)| value >= *unit && value.is_multiple_of(*unit));
    match unit {
        Some((name, unit)) => format!("{} {name}", grouped(value / unit)),
        None => format!("{} bytes", grouped(value)),
    }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}
