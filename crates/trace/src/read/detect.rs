//! How one format of traces is told from another.
//!
//! A format is recognised by content: magic numbers, then lines that one parser and no other can
//! read, then records whose fields are plausible throughout a sample. Block numbers alone look
//! like anything, so that they are recognised by name only.

use super::fields::quoted_line;
use super::{binary, blktrace, lcs, text};
use crate::decode::Options;
use crate::format::Format;
use crate::names::Names;

/// How many lines of a sample are tried.
const LINES: usize = 16;

/// How many bytes of a file are looked at.
pub(super) const SAMPLE_BYTES: usize = 32 << 10;

/// The format of a file with this name that begins with `sample`.
///
/// `whole` says that the file has no more than the sample. The error tells the findings.
pub(super) fn detect(name: &str, sample: &[u8], whole: bool) -> Result<Format, String> {
    if sample.starts_with(&crate::omf::MAGIC) {
        return Ok(Format::Compact);
    }
    if blktrace::is_blktrace(sample) {
        return Ok(Format::Blktrace);
    }
    if lcs::is_lcs(sample) {
        return Ok(Format::Lcs);
    }
    if is_text(sample) {
        return detect_text(sample, whole);
    }
    if name.ends_with(".u32le") {
        return Ok(Format::U32le);
    }
    if binary::is_vscsi(sample) {
        return Ok(Format::Vscsi);
    }
    if binary::is_oracle_general(sample) {
        return Ok(Format::OracleGeneral);
    }
    if sample.starts_with(&[0xff, 0xfe]) || sample.starts_with(&[0xfe, 0xff]) {
        let advice = "convert it to UTF-8 first: iconv -f UTF-16 -t UTF-8";
        return Err(format!("it begins with the byte-order mark of UTF-16; {advice}"));
    }
    let first: Vec<String> = sample.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Err(format!("its content is binary and begins with {}", first.join(" ")))
}

fn is_text(sample: &[u8]) -> bool {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    !sample.is_empty() && sample.iter().take(4096).all(is_text)
}

/// How many lines one parser alone has to read before a line that it cannot read is taken to be an
/// error in a trace of its format.
const LINES_BEFORE_ERROR: usize = 2;

fn detect_text(sample: &[u8], whole: bool) -> Result<Format, String> {
    let mut lines: Vec<&[u8]> = sample.split(|&byte| byte == b'\n').collect();
    // The last line of a sample may go on behind it.
    if !whole && lines.len() > 1 {
        lines.pop();
    }
    lines.truncate(LINES);
    let mut furthest: Option<(usize, Format)> = None;
    // The lines that a parser read, at most: the next one is the one to look at.
    let mut passed = 0;
    for format in Format::ALL {
        let Some(mut parser) = text::parser(format, &Options::default()) else {
            continue;
        };
        let (mut names, mut requests) = (Names::default(), Vec::new());
        let read = lines.iter().take_while(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            line.is_empty() || parser.line(line, &mut names, &mut requests).is_ok()
        });
        let read = read.count();
        passed = passed.max(read);
        if requests.is_empty() && !parser.has_begun() {
            continue;
        }
        if read == lines.len() {
            return Ok(format);
        }
        if read >= LINES_BEFORE_ERROR && furthest.is_none_or(|(most, _)| read > most) {
            furthest = Some((read, format));
        }
    }
    if let Some((_, format)) = furthest {
        return Ok(format);
    }
    let at = passed.min(lines.len() - 1);
    Err(format!("line {} is in none of them: {}", at + 1, quoted_line(lines[at])))
}
