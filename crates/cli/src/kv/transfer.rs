//! Records in and out as lines: scan, dump, load.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use esker_base::progress::Unit;
use esker_base::units::{counted, to_u64};
use esker_base::{ErrorKind, Progress};
use esker_kv::{
    Batch, Cursor, KEY_MAX, KvError, Kvdb, Kvs, KvsOptions, Readable, Snapshot, VALUE_MAX,
};

use super::lines::{self, Line, Mark};
use crate::failure::{Failure, Result};
use crate::figures::grouped;
use crate::output::{self, is_dash};
use crate::progress::Watch;
use crate::stderr::{complain, tell};

/// A batch of a load is written when it holds this many records or bytes.
const BATCH_RECORDS: usize = 1_000;
const BATCH_BYTES: usize = 1 << 20;

/// Which records, in which order, and which parts of them.
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
    /// Writes the records of a fresh cursor as lines, and returns how many. `failed` makes a failure of an error of
    /// `out`.
    pub(super) fn write(
        &self,
        cursor: Cursor,
        out: &mut impl Write,
        failed: impl Fn(io::Error) -> Failure,
    ) -> Result<u64> {
        let mut cursor = cursor.prefix(&self.prefix)?;
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

/// Writes KVSs, as they are at one moment, to `file`, which has all of them or stays as it was. Records that are
/// damaged end it, or are left out.
pub(super) fn dump(db: &Kvdb, kvss: &[Kvs], file: &Path, skips_damage: bool) -> Result {
    let mut left_out = skips_damage.then(Vec::new);
    if is_dash(file) {
        let mut out = BufWriter::new(io::stdout().lock());
        dump_to(db, kvss, &mut out, &mut left_out, Failure::from)?;
        out.flush()?;
        return all_there(left_out);
    }
    let advice = "name a file that can be written, on a file system with room";
    let failed = |error: io::Error| Failure::file(file, &error, advice);
    let write = |out: &mut BufWriter<&File>| dump_to(db, kvss, out, &mut left_out, failed);
    let count = output::write_whole(file, failed, write)?;
    tell!("esker: {} written to {}", counted(count, "record"), file.display());
    all_there(left_out)
}

/// Names what was left out.
fn all_there(left_out: Option<Vec<String>>) -> Result {
    let left_out = left_out.unwrap_or_default();
    if left_out.is_empty() {
        return Ok(());
    }
    left_out.iter().for_each(|one| complain!("esker: left out: {one}"));
    let count = grouped(to_u64(left_out.len()));
    let message = format!("the dump lacks what is damaged, named above in {count} lines");
    Err(Failure::new(ErrorKind::Corrupt, message))
}

fn dump_to(
    db: &Kvdb,
    kvss: &[Kvs],
    out: &mut impl Write,
    left_out: &mut Option<Vec<String>>,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<u64> {
    let mut line = Vec::new();
    let mut mark = |out: &mut dyn Write, mark: &Mark| {
        line.clear();
        mark.append(&mut line);
        out.write_all(&line).map_err(&failed)
    };
    mark(out, &Mark::Dump(to_u64(kvss.len())))?;
    let snapshot = db.snapshot();
    let all = Range { limit: u64::MAX, ..Range::default() };
    let mut written = 0;
    for kvs in kvss {
        let KvsOptions { policy, compression, ttl_ms, .. } = kvs.options()?;
        let mut attributes = vec![
            (POLICY.to_owned(), policy.to_string()),
            (COMPRESSION.to_owned(), compression.to_string()),
        ];
        attributes.extend(ttl_ms.map(|ttl_ms| (TTL_MS.to_owned(), ttl_ms.to_string())));
        let metadata = Some(kvs.metadata()?).filter(|metadata| !metadata.is_empty());
        attributes
            .extend(metadata.map(|metadata| (METADATA.to_owned(), HEXLOWER.encode(&metadata))));
        mark(out, &Mark::Kvs { name: kvs.name().to_owned(), attributes })?;
        let count = match left_out {
            Some(left_out) => write_sound(&snapshot, kvs, out, left_out, &failed)?,
            None => all.write(snapshot.cursor(kvs)?, out, &failed)?,
        };
        mark(out, &Mark::End(count))?;
        written += count;
    }
    Ok(written)
}

/// Writes the records of a KVS that can be read, and returns how many; the others go to `left_out`.
fn write_sound(
    snapshot: &Snapshot,
    kvs: &Kvs,
    out: &mut impl Write,
    left_out: &mut Vec<String>,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<u64> {
    let is_damage = |error: &KvError| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io);
    let cursor_behind = |last: &[u8], keys_only: bool| -> Result<Cursor, KvError> {
        let mut cursor = snapshot.cursor(kvs)?;
        cursor = if keys_only { cursor.keys_only() } else { cursor };
        if !last.is_empty() {
            cursor.seek(&[last, &[0]].concat())?;
        }
        Ok(cursor)
    };
    let (mut line, mut last, mut written) = (Vec::new(), Vec::new(), 0);
    let mut put = |key: &[u8], value: &[u8]| {
        line.clear();
        lines::append(&mut line, key, Some(value));
        written += 1;
        out.write_all(&line).map_err(&failed)
    };
    loop {
        let walk = cursor_behind(&last, false).map_err(Ok).and_then(|mut cursor| {
            while let Some((key, value)) = cursor.next().map_err(Ok)? {
                put(key, value).map_err(Err)?;
                last = key.to_vec();
            }
            Ok(())
        });
        match walk {
            Ok(()) => break,
            Err(Ok(error)) if is_damage(&error) => {}
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(failure)) => return Err(failure),
        }
        // A value that the cursor has read ahead may be the damaged one: the keys alone say which is the next.
        let next = cursor_behind(&last, true)
            .and_then(|mut keys| Ok(keys.next()?.map(|(key, _)| key.to_vec())));
        let key = match next {
            Ok(Some(key)) => key,
            Ok(None) => break,
            Err(error) if is_damage(&error) => {
                let (name, from) = (kvs.name(), last.escape_ascii());
                left_out.push(format!("KVS '{name}', all keys behind '{from}': {error}"));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        match snapshot.get(kvs, &key) {
            Ok(Some(value)) => put(&key, &value)?,
            Ok(None) => {}
            Err(error) if is_damage(&error) => {
                let (name, shown) = (kvs.name(), key.escape_ascii());
                left_out.push(format!("KVS '{name}', key '{shown}': {error}"));
            }
            Err(error) => return Err(error.into()),
        }
        last = key;
    }
    Ok(written)
}

/// The attribute that says where the data of a KVS goes.
const POLICY: &str = "policy";
/// The one that says how values that age are compressed.
const COMPRESSION: &str = "compression";
/// The one that says how long its values live; without it they live for ever.
const TTL_MS: &str = "ttl_ms";
/// The one with the caller's metadata, in hexadecimal digits; without it there is none.
const METADATA: &str = "metadata";

/// The lines of `file`, and how many bytes they are if that is known.
pub(super) fn input(file: &Path) -> Result<(Box<dyn BufRead>, Option<u64>)> {
    if is_dash(file) {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let advice = "name a file that `esker kv dump` wrote, or leave it out to read standard input";
    let opened = File::open(file).map_err(|error| Failure::file(file, &error, advice))?;
    let regular = opened.metadata().ok().filter(std::fs::Metadata::is_file);
    let bytes = regular.map(|metadata| metadata.len());
    Ok((Box::new(BufReader::new(opened)), bytes))
}

/// Puts every record of `input` into `kvs`, or, for a dump that says which ones, into the KVSs it names.
/// A line that is malformed ends the load; the records before it stay.
/// `bytes` is how many the file has, if that is known.
pub(super) fn load(
    db: &Kvdb,
    kvs: Option<&Kvs>,
    input: &mut dyn BufRead,
    (file, bytes): (&Path, Option<u64>),
) -> Result {
    let Watch { bar, interrupt } = &Watch::start()?;
    let mut loading = Loading::new(db, kvs);
    let mut untold = 0;
    let mut progress = Progress::new("loading", bytes, Unit::Bytes);
    let mut go_on = |read: usize| {
        untold += to_u64(read);
        if untold >= TOLD_BYTES {
            progress.done += std::mem::take(&mut untold);
            bar.progress(&progress);
        }
        interrupt.outcome("no more lines are read")
    };
    let outcome = loading.lines(input, file, &mut go_on).and_then(|()| loading.flush());
    // The lines before a bad one are whole: keep them, so that the message can say so.
    let kept = outcome.as_ref().map_or_else(|_| loading.flush(), |()| Ok(()));
    let synced = kept.and_then(|()| Ok(db.sync()?));
    bar.end();
    let loaded = records(loading.loaded);
    match (outcome, synced) {
        (Ok(()), Ok(())) => {
            tell!("esker: {loaded} loaded into {}", loading.places());
            Ok(())
        }
        (_, Ok(())) if interrupt.has_come() => {
            interrupt.outcome(&format!("{loaded} loaded; load the file again for all of it"))
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
    /// Where all records go, also where a dump names another KVS.
    given: Option<&'a Kvs>,
    /// Where the next record goes.
    current: Option<Kvs>,
    names: Vec<String>,
    /// How many KVSs a dump says it has; `None`: it is no dump.
    dumped: Option<u64>,
    /// How many KVSs it had so far.
    sections: u64,
    /// Records since the last `\kvs`.
    of_current: u64,
    batch: Batch,
    batch_bytes: usize,
    loaded: u64,
}

/// The user is told how far a load is after so many bytes.
const TOLD_BYTES: u64 = 64 << 10;

/// The longest line there can be: every byte escaped.
const LINE_MAX: usize = 4 * (KEY_MAX + VALUE_MAX) + 16;

impl<'a> Loading<'a> {
    fn new(db: &'a Kvdb, given: Option<&'a Kvs>) -> Loading<'a> {
        Loading {
            db,
            given,
            current: given.cloned(),
            names: given.iter().map(|kvs| kvs.name().to_owned()).collect(),
            dumped: None,
            sections: 0,
            of_current: 0,
            batch: Batch::new(),
            batch_bytes: 0,
            loaded: 0,
        }
    }

    fn places(&self) -> String {
        match &self.names[..] {
            [name] => format!("KVS '{name}'"),
            names => counted(to_u64(names.len()), "KVS"),
        }
    }

    /// Puts the records of all lines. `go_on` is told how many bytes the last line had, and may end it.
    fn lines(
        &mut self,
        input: &mut dyn BufRead,
        file: &Path,
        go_on: &mut dyn FnMut(usize) -> Result,
    ) -> Result {
        let mut line = Vec::new();
        for number in 1u64.. {
            go_on(line.len())?;
            line.clear();
            let limit = to_u64(LINE_MAX) + 1;
            let read = Read::take(&mut *input, limit).read_until(b'\n', &mut line);
            let read = read.map_err(|error| Failure::file(file, &error, "it cannot be read"))?;
            let at = |failure: Failure| failure.at(format!("line {}", grouped(number)));
            if read > LINE_MAX {
                return Err(at(Failure::usage("it is longer than any record's line can be")));
            }
            if read == 0 {
                return self.check_end().map_err(at);
            }
            if self.is_cut_off(&line, number == 1) {
                let why = "the dump is cut off in this line: the rest is missing";
                return Err(at(Failure::usage(why)));
            }
            let body = line.strip_suffix(b"\n").unwrap_or(&line);
            let body = body.strip_suffix(b"\r").unwrap_or(body);
            let parsed = lines::parse(body).map_err(Failure::usage);
            parsed.and_then(|parsed| self.line(parsed, number == 1)).map_err(at)?;
        }
        Ok(())
    }

    /// Whether a line of a dump ends before its newline: the part that is there would pass for all of it. The count of
    /// `\end` tells by itself.
    fn is_cut_off(&self, line: &[u8], is_first: bool) -> bool {
        let is_dump = self.dumped.is_some() || is_first && line.starts_with(b"\\dump");
        is_dump && !line.ends_with(b"\n") && !line.starts_with(b"\\end")
    }

    fn line(&mut self, line: Line, is_first: bool) -> Result {
        match line {
            Line::Record(key, value) => {
                let (key, value) = within_limits((key, value)).map_err(Failure::usage)?;
                self.put(&key, &value)
            }
            Line::Mark(Mark::Dump(kvss)) if is_first => {
                self.dumped = Some(kvss);
                self.current = None;
                Ok(())
            }
            Line::Mark(Mark::Kvs { name, attributes })
                if self.dumped.is_some() && self.current.is_none() =>
            {
                self.begin(&name, &attributes)
            }
            Line::Mark(Mark::End(count)) if self.dumped.is_some() && self.current.is_some() => {
                if count != self.of_current {
                    let got = self.of_current;
                    let why = format!("{count} records end here, {got} came: some are missing");
                    return Err(Failure::usage(why));
                }
                self.current = None;
                Ok(())
            }
            Line::Mark(_) => Err(Failure::usage(
                "this line is out of its place: \\dump is the first one, and each \\kvs has its \\end",
            )),
        }
    }

    /// Begins the records of a KVS, which is made if need be.
    fn begin(&mut self, name: &str, attributes: &[(String, String)]) -> Result {
        let (mut options, mut metadata) = (KvsOptions::default(), Vec::new());
        for (attribute, value) in attributes {
            match &attribute[..] {
                POLICY => options.policy = value.parse().map_err(Failure::usage)?,
                COMPRESSION => options.compression = value.parse().map_err(Failure::usage)?,
                TTL_MS => {
                    let why = |_| Failure::usage(format!("'{value}' is no number of milliseconds"));
                    options.ttl_ms = Some(value.parse().map_err(why)?);
                }
                METADATA => {
                    let why = |_| Failure::usage(format!("'{value}' is no hexadecimal metadata"));
                    metadata = HEXLOWER_PERMISSIVE.decode(value.as_bytes()).map_err(why)?;
                }
                _ => {
                    let why = format!("a KVS has no attribute '{attribute}' that this build knows");
                    return Err(Failure::usage(why));
                }
            }
        }
        self.of_current = 0;
        self.sections += 1;
        if let Some(given) = self.given {
            if self.sections > 1 {
                let why = "the dump has several KVSs: name none, so that each goes to its own";
                return Err(Failure::usage(why));
            }
            self.current = Some(given.clone());
            return Ok(());
        }
        let kvs = match self.db.kvs(name) {
            Err(KvError::UnknownKvs(_)) => self.db.create_kvs(name, options)?,
            found => found?,
        };
        let kept = kvs.options()?;
        let note = |what: &str, kept: String, dumped: String| {
            if kept != dumped {
                tell!("esker: note: KVS '{name}' keeps its {what}, {kept}; the dump has {dumped}");
            }
        };
        let ttl = |ttl_ms: Option<u64>| ttl_ms.map_or("none".into(), |ms| format!("{ms} ms"));
        note("policy", kept.policy.to_string(), options.policy.to_string());
        note("compression", kept.compression.to_string(), options.compression.to_string());
        note("time to live", ttl(kept.ttl_ms), ttl(options.ttl_ms));
        let kept = kvs.metadata()?;
        if kept.is_empty() && !metadata.is_empty() {
            kvs.set_metadata(&metadata)?;
        } else if kept != metadata {
            tell!("esker: note: KVS '{name}' keeps its metadata; the dump has others");
        }
        self.names.push(name.to_owned());
        self.current = Some(kvs);
        Ok(())
    }

    fn check_end(&self) -> Result {
        let Some(kvss) = self.dumped else {
            // Records alone need a KVS that is named; a dump that is empty was cut off.
            let is_named = self.given.is_some();
            let why = "there is nothing to load: no \\dump line came";
            return if is_named { Ok(()) } else { Err(Failure::usage(why)) };
        };
        if self.current.is_some() {
            return Err(Failure::usage("the dump ends without its \\end: some of it is missing"));
        }
        if kvss != self.sections {
            let got = self.sections;
            let why = format!("the dump ends here with {got} of its {kvss} KVSs: some are missing");
            return Err(Failure::usage(why));
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result {
        let bytes = key.len() + value.len();
        if self.batch_bytes + bytes > BATCH_BYTES || self.batch.len() == BATCH_RECORDS {
            self.flush()?;
        }
        let Some(kvs) = &self.current else {
            let why = "no \\kvs line says where this record belongs: name a KVS";
            return Err(Failure::usage(why));
        };
        self.batch.put(kvs, key, value);
        self.batch_bytes += bytes;
        self.of_current += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result {
        self.db.write(&self.batch)?;
        self.loaded += to_u64(self.batch.len());
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }
}

/// The limits of the engine, asked here so that the message can name the line.
fn within_limits((key, value): (Vec<u8>, Vec<u8>)) -> Result<(Vec<u8>, Vec<u8>), String> {
    if key.len() > KEY_MAX {
        return Err(KvError::KeyLength(key.len()).to_string());
    }
    if value.len() > VALUE_MAX {
        return Err(KvError::ValueLength(value.len()).to_string());
    }
    Ok((key, value))
}
