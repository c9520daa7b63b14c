//! Formats of text whose requests are for objects: libCacheSim's csv and text, Twitter's caches, IBM's object store.

use std::collections::BTreeMap;

use super::line::{Line, MICROSECOND_NS, SECOND_NS, unknown_op};
use crate::format::Columns;
use crate::names::Names;
use crate::read::fields::{Between, Fields, number, quoted, time};
use crate::read::objects::{Object, Objects};
use crate::request::{Op, Request};

/// The name of the one device that objects are on.
const DEVICE: &[u8] = b"objects";

/// Numbers for the operations of caches, in either case: `get` and its like read, `set` and its like write, `delete`
/// discards.
fn op_of(word: &[u8]) -> Option<Op> {
    Some(match &word.to_ascii_lowercase()[..] {
        b"get" | b"gets" | b"read" | b"r" => Op::Read,
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr"
        | b"put" | b"update" | b"write" | b"w" => Op::Write,
        b"delete" | b"del" => Op::Discard,
        _ => return None,
    })
}

/// READ and WRITE of SCSI by their codes, as libCacheSim's sample of CloudPhysics has them.
fn scsi_op(word: &[u8]) -> Option<Op> {
    Some(match word {
        b"08" | b"28" | b"88" | b"a8" => Op::Read,
        b"0a" | b"2a" | b"8a" | b"aa" => Op::Write,
        _ => return None,
    })
}

/// libCacheSim's csv: columns in any order, which a header names or [`Columns`] does. Without either a line is
/// `seconds, object, bytes`, and may have the next request for the object behind it.
pub(super) struct Csv {
    objects: Objects,
    columns: Option<Columns>,
    /// Whether the columns are known from elsewhere than the lines.
    told: bool,
    /// A header was read.
    begun: bool,
    lines: u64,
    /// Operations that are not known, and how many requests had each.
    unknown: BTreeMap<String, u64>,
}

/// The most operations that are not known and told apart.
const UNKNOWN: usize = 8;

impl Csv {
    pub(super) fn new(unit: u64, columns: Option<Columns>) -> Csv {
        let (told, objects) = (columns.is_some(), Objects::new(unit));
        Csv { objects, columns, told, begun: false, lines: 0, unknown: BTreeMap::new() }
    }

    /// The columns of the lines, from the first of them; whether that is a header.
    fn begin(&mut self, line: &[u8]) -> Result<bool, String> {
        if let Some(columns) = Columns::of_header(line) {
            self.columns = self.columns.or(Some(columns));
            self.begun = true;
            return Ok(true);
        }
        if self.told {
            return Ok(false);
        }
        let columns = Columns::default();
        let cells = columns.cells(line).count();
        if !(3..=4).contains(&cells) {
            let what = "no header names the columns, and without one a line is time, object, size";
            return Err(format!("{cells} columns: {what}"));
        }
        self.columns = Some(columns);
        Ok(false)
    }

    fn op(&mut self, word: &[u8]) -> Op {
        op_of(word).or_else(|| scsi_op(word)).unwrap_or_else(|| {
            let word = quoted(word);
            if self.unknown.len() < UNKNOWN || self.unknown.contains_key(&word) {
                *self.unknown.entry(word).or_default() += 1;
            }
            Op::Read
        })
    }
}

impl Line for Csv {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let first = self.lines == 0;
        if first && self.begin(line)? {
            self.lines = 1;
            return Ok(());
        }
        let columns = self.columns.unwrap_or_default();
        let cells: Vec<&[u8]> = columns.cells(line).collect();
        let cell = |column: u32, name: &str| {
            let found = usize::try_from(column).ok().and_then(|column| cells.get(column - 1));
            found.copied().ok_or_else(|| format!("the line ends before column {column}, {name}"))
        };
        let time_ns = match columns.time {
            Some(column) => time(cell(column, "time")?, "time", SECOND_NS)?,
            None => self.lines * MICROSECOND_NS,
        };
        let id = cell(columns.id, "id")?;
        if id.is_empty() {
            return Err("the object's id is empty".to_owned());
        }
        let size = columns.size.map(|column| number(cell(column, "size")?, "size")).transpose()?;
        let op = columns.op.map(|column| cell(column, "op")).transpose()?;
        let op = op.map_or(Op::Read, |word| self.op(word));
        let device = names.number(DEVICE)?;
        out.push(self.objects.request(time_ns, op, Object::of(id), size, device)?);
        self.lines += 1;
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn remarks(&self) -> Vec<String> {
        let assumed = !self.told && !self.begun && self.lines > 0;
        let assumed = assumed.then(|| {
            "no header names the columns: they were taken to be time=1,id=2,size=3".to_owned()
        });
        let unknown = self.unknown.iter().map(|(word, count)| {
            format!("{count} requests have the operation {word}, which is not known: they count as reads")
        });
        assumed.into_iter().chain(self.objects.remark()).chain(unknown).collect()
    }
}

/// libCacheSim's plain text: a line is the id of an object. There is no time: lines are taken to be a microsecond apart.
pub(super) struct Ids {
    objects: Objects,
    /// Whether ids that are no numbers are read, too.
    words: bool,
    lines: u64,
}

impl Ids {
    pub(super) fn new(unit: u64, words: bool) -> Ids {
        Ids { objects: Objects::new(unit), words, lines: 0 }
    }
}

impl Line for Ids {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let id = line.trim_ascii();
        if id.is_empty() || !self.words {
            number(id, "the object")?;
        }
        let (time_ns, device) = (self.lines * MICROSECOND_NS, names.number(DEVICE)?);
        self.lines += 1;
        out.push(self.objects.request(time_ns, Op::Read, Object::of(id), None, device)?);
        Ok(())
    }
}

/// Twitter's caches (Yang et al., OSDI 2020): `seconds, key, bytes of key, bytes of value, client, operation, time to
/// live`.
pub(super) struct Twitter {
    objects: Objects,
}

impl Twitter {
    pub(super) fn new(unit: u64) -> Twitter {
        Twitter { objects: Objects::new(unit) }
    }
}

impl Line for Twitter {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        // A key may have commas: the other fields are counted from the end.
        let mut ends = line.rsplitn(6, |&byte| byte == b',').map(<[u8]>::trim_ascii);
        let mut end =
            |name: &str| ends.next().ok_or_else(|| format!("the line has no field '{name}'"));
        number(end("TTL")?, "TTL")?;
        let word = end("operation")?;
        let expected = "get, gets, set, add, replace, cas, append, prepend, delete, incr or decr";
        let op = op_of(word).ok_or_else(|| unknown_op("operation", word, expected))?;
        number(end("client id")?, "client id")?;
        let value = number(end("value size")?, "value size")?;
        let key = number(end("key size")?, "key size")?;
        let mut begin = Fields::new(end("key")?, Between::Comma);
        let time_ns = begin.time("timestamp", SECOND_NS)?;
        let id = begin.rest().filter(|id| !id.is_empty()).ok_or("the line has no key")?;
        let size = Some(key.saturating_add(value));
        let device = names.number(DEVICE)?;
        out.push(self.objects.request(time_ns, op, Object::Word(id), size, device)?);
        Ok(())
    }

    fn remarks(&self) -> Vec<String> {
        self.objects.remark().into_iter().collect()
    }
}

/// IBM's object store (Eytan et al., HotStorage 2020; SNIA IOTTA): `milliseconds REST.GET.OBJECT id [bytes [first
/// last]]`. PUT, COPY and POST write, DELETE discards, HEAD asks for no data. A range counts as its object.
#[derive(Default)]
struct Skipped {
    /// Requests without data.
    without_data: u64,
    /// Requests for a part of an object.
    ranges: u64,
}

/// Reader of IBM's object store.
pub(super) struct ObjectStore {
    objects: Objects,
    skipped: Skipped,
    begun: bool,
}

impl ObjectStore {
    pub(super) fn new(unit: u64) -> ObjectStore {
        ObjectStore { objects: Objects::new(unit), skipped: Skipped::default(), begun: false }
    }
}

impl Line for ObjectStore {
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        out: &mut Vec<Request>,
    ) -> Result<(), String> {
        let mut fields = Fields::new(line, Between::Blanks);
        let time_ns = fields.scaled("time", 1_000_000)?;
        let word = fields.word("operation")?;
        let op = match word {
            b"REST.GET.OBJECT" => Some(Op::Read),
            b"REST.PUT.OBJECT" | b"REST.COPY.OBJECT" | b"REST.POST.OBJECT" => Some(Op::Write),
            b"REST.DELETE.OBJECT" => Some(Op::Discard),
            b"REST.HEAD.OBJECT" => None,
            other => return Err(unknown_op("operation", other, "REST.GET.OBJECT or its like")),
        };
        let id = fields.word("object")?;
        let mut more = |name: &str| fields.optional().map(|field| number(field, name)).transpose();
        let size = more("size")?;
        let first = more("the first byte")?;
        let range = more("the last byte")?.is_some() && first.is_some();
        fields.end()?;
        self.begun = true;
        let Some(op) = op else {
            self.skipped.without_data += 1;
            return Ok(());
        };
        self.skipped.ranges += u64::from(range);
        let device = names.number(DEVICE)?;
        out.push(self.objects.request(time_ns, op, Object::Word(id), size, device)?);
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn remarks(&self) -> Vec<String> {
        let Skipped { without_data, ranges } = self.skipped;
        let heads = (without_data > 0)
            .then(|| format!("{without_data} HEAD requests move no data: they were skipped"));
        let ranges = (ranges > 0)
            .then(|| format!("{ranges} requests name a range: each counts as its whole object"));
        heads.into_iter().chain(ranges).chain(self.objects.remark()).collect()
    }
}
