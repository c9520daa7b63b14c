//! Records in and out as lines: scan, dump, load.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use esker_kv::{Batch, KEY_MAX, KvError, Kvdb, Kvs, VALUE_MAX};

use super::lines;
use crate::failure::{Failure, Result};
use crate::figures::grouped;
use crate::output::is_dash;

/// A batch of a load is written when it holds this many records or bytes.
const BATCH_RECORDS: usize = 1_000;
const BATCH_BYTES: usize = 1 << 20;

/// Which records, in which order, and what of them.
#[derive(Default)]
pub(super) struct Range {
    /// The first key, inclusive.
    pub(super) from: Option<Vec<u8>>,
    /// The end, exclusive.
    pub(super) to: Option<Vec<u8>>,
    /// Only keys that begin so.
    pub(super) prefix: Vec<u8>,
    /// From the last key to the first.
    pub(super) reverse: bool,
    /// At most this many.
    pub(super) limit: u64,
    pub(super) keys_only: bool,
}

impl Range {
    /// Writes the records as lines, and returns how many. `failed` says what an error of `out`
    /// means.
    pub(super) fn write(
        &self,
        kvs: &Kvs,
        out: &mut impl Write,
        failed: impl Fn(io::Error) -> Failure,
    ) -> Result<u64> {
        let mut cursor = kvs.cursor()?.within(&self.prefix)?;
        if self.keys_only {
            cursor = cursor.keys_only();
        }
        match (self.reverse, &self.from, &self.to) {
            (false, Some(from), _) => cursor.seek(from)?,
            (false, None, _) => {}
            (true, _, Some(to)) => cursor.seek(to)?,
            (true, _, None) => cursor.seek_to_last()?,
        }
        let mut line = Vec::new();
        let mut written = 0;
        while written < self.limit {
            let step = if self.reverse { cursor.prev()? } else { cursor.next()? };
            let Some((key, value)) = step else { break };
            let is_before = self.from.as_deref().is_some_and(|from| key < from);
            if is_before || self.to.as_deref().is_some_and(|to| key >= to) {
                break;
            }
            line.clear();
            lines::append(&mut line, key, (!self.keys_only).then_some(value));
            out.write_all(&line).map_err(&failed)?;
            written += 1;
        }
        Ok(written)
    }
}

/// Writes all records of a KVS to `file`.
pub(super) fn dump(kvs: &Kvs, file: &Path) -> Result {
    let all = Range { limit: u64::MAX, ..Range::default() };
    if is_dash(file) {
        let mut out = BufWriter::new(io::stdout().lock());
        all.write(kvs, &mut out, Failure::from)?;
        return Ok(out.flush()?);
    }
    let advice = "name a file that can be written, on a file system with room";
    let failed = |error: io::Error| Failure::file(file, &error, advice);
    let mut out = BufWriter::new(File::create(file).map_err(failed)?);
    let count = all.write(kvs, &mut out, failed)?;
    out.flush().map_err(failed)?;
    eprintln!("esker: {} records written to {}", grouped(count), file.display());
    Ok(())
}

/// The lines of `file`.
pub(super) fn input(file: &Path) -> Result<Box<dyn BufRead>> {
    if is_dash(file) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let advice = "name a file that `esker kv dump` wrote, or leave it out to read standard input";
    let opened = File::open(file).map_err(|error| Failure::file(file, &error, advice))?;
    Ok(Box::new(BufReader::new(opened)))
}

/// Puts every line of `input`. A line that is malformed ends the load; the lines before it stay.
pub(super) fn load(db: &Kvdb, kvs: &Kvs, input: &mut dyn BufRead, file: &Path) -> Result {
    let mut loading = Loading { db, kvs, batch: Batch::new(), batch_bytes: 0, loaded: 0 };
    let outcome = loading.lines(input, file).and_then(|()| loading.flush());
    // What went before a bad line is whole: keep it, so that the message can say so.
    let kept = outcome.as_ref().map_or_else(|_| loading.flush(), |()| Ok(()));
    let synced = kept.and_then(|()| Ok(db.sync()?));
    let loaded = records(loading.loaded);
    match (outcome, synced) {
        (Ok(()), Ok(())) => {
            eprintln!("esker: {loaded} loaded into KVS '{}'", kvs.name());
            Ok(())
        }
        (Err(failure), Ok(())) => Err(failure.and(format!(
            "{loaded} before it loaded; mend the cause and load the file again, \
             loading a record twice does no harm"
        ))),
        (Ok(()), Err(failure)) | (Err(failure), Err(_)) => Err(failure.and(format!(
            "{loaded} loaded, the last of them perhaps not durably; mend the cause \
             and load the file again, loading a record twice does no harm"
        ))),
    }
}

/// `1 record`, `2 records`.
fn records(count: u64) -> String {
    let word = if count == 1 { "record" } else { "records" };
    format!("{} {word}", grouped(count))
}

struct Loading<'a> {
    db: &'a Kvdb,
    kvs: &'a Kvs,
    batch: Batch,
    batch_bytes: usize,
    loaded: u64,
}

impl Loading<'_> {
    fn lines(&mut self, input: &mut dyn BufRead, file: &Path) -> Result {
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let advice = "it cannot be read";
            let read = input.read_until(b'\n', &mut line);
            if read.map_err(|error| Failure::file(file, &error, advice))? == 0 {
                break;
            }
            let body = line.strip_suffix(b"\n").unwrap_or(&line);
            let body = body.strip_suffix(b"\r").unwrap_or(body);
            let (key, value) = lines::parse(body)
                .and_then(within_limits)
                .map_err(|why| Failure::usage(format!("line {}: {why}", grouped(number))))?;
            self.put(&key, &value)?;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result {
        let bytes = key.len() + value.len();
        if self.batch_bytes + bytes > BATCH_BYTES || self.batch.len() == BATCH_RECORDS {
            self.flush()?;
        }
        self.batch.put(self.kvs, key, value);
        self.batch_bytes += bytes;
        Ok(())
    }

    fn flush(&mut self) -> Result {
        self.db.write(&self.batch)?;
        self.loaded += esker_base::units::to_u64(self.batch.len());
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }
}

/// The limits of the engine, asked here so that the message can name the line.
fn within_limits((key, value): (Vec<u8>, Vec<u8>)) -> Result<(Vec<u8>, Vec<u8>), String> {
    if !(1..=KEY_MAX).contains(&key.len()) {
        return Err(KvError::KeyLength(key.len()).to_string());
    }
    if value.len() > VALUE_MAX {
        return Err(KvError::ValueLength(value.len()).to_string());
    }
    Ok((key, value))
}
