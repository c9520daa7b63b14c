//! Annotated dumps of every structure: offset, bytes, field, meaning.
//!
//! The dumper walks the fields by the tables of the format and not by the decoders, so that an
//! encoder and a decoder that change together are noticed. A dump is read back, too: its bytes must decode to the
//! same value in every later build.

use std::fmt::Write as _;

use super::*;

/// Bytes per line.
const WIDTH: usize = 16;

/// Walks the fields of a structure and writes a line for each.
struct Dump<'a> {
    bytes: &'a [u8],
    at: usize,
    text: String,
}

impl<'a> Dump<'a> {
    fn new(title: &str, bytes: &'a [u8]) -> Dump<'a> {
        let text = format!("# {title}\n");
        Dump { bytes, at: 0, text }
    }

    /// A heading.
    fn part(&mut self, title: &str) {
        writeln!(self.text, "\n# {title}").unwrap();
    }

    /// The next `size` bytes are a field.
    fn field(&mut self, size: usize, name: &str, meaning: impl AsRef<str>) -> &'a [u8] {
        let bytes = &self.bytes[self.at..self.at + size];
        for (line, part) in bytes.chunks(WIDTH).enumerate() {
            let hex: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
            let (name, meaning) = if line == 0 { (name, meaning.as_ref()) } else { ("", "") };
            let (at, hex) = (self.at + line * WIDTH, hex.join(" "));
            let line = format!("{at:04x}  {hex:<47}  {name:<13}  {meaning}");
            writeln!(self.text, "{}", line.trim_end()).unwrap();
        }
        self.at += size;
        bytes
    }

    /// A little-endian number whose meaning is its value.
    fn number(&mut self, size: usize, name: &str, unit: &str) -> u64 {
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(&self.bytes[self.at..self.at + size]);
        let value = u64::from_le_bytes(raw);
        let shown = if size == 4 && name.ends_with("crc") {
            format!("{value:#010x}, {unit}")
        } else {
            counted(value, unit)
        };
        self.field(size, name, shown);
        value
    }

    /// A number of one or two bytes, seven bits each.
    fn varint(&mut self, name: &str, unit: &str) -> usize {
        let more = self.bytes[self.at] >= 0x80;
        let low = usize::from(self.bytes[self.at] & 0x7f);
        let value = if more { low | usize::from(self.bytes[self.at + 1]) << 7 } else { low };
        self.field(1 + usize::from(more), name, counted(value as u64, unit));
        value
    }

    /// A number of any size, seven bits a byte.
    fn long_varint(&mut self, name: &str, unit: &str) {
        let size = 1 + self.bytes[self.at..].iter().take_while(|byte| **byte >= 0x80).count();
        let bytes = self.bytes[self.at..self.at + size].iter().zip(0..);
        let value: u64 = bytes.map(|(byte, n)| u64::from(byte & 0x7f) << (7 * n)).sum();
        self.field(size, name, counted(value, unit));
    }

    fn text(&mut self, size: usize, name: &str) {
        let shown = self.bytes[self.at..self.at + size].escape_ascii().to_string();
        self.field(size, name, format!("\"{shown}\""));
    }

    /// A `u16` size and that many bytes.
    fn text16(&mut self, name: &str) {
        let size = self.number(2, "size", "bytes");
        self.text(to_usize(size), name);
    }

    fn zeroes(&mut self, size: usize) {
        assert!(self.field(size, "", "0").iter().all(|&byte| byte == 0));
    }

    fn class(&mut self, name: &str) {
        let class = ["staging", "capacity"][usize::from(self.bytes[self.at])];
        self.field(1, name, class);
    }

    fn place(&mut self, name: &str) {
        let place = ["staging", "capacity", "staging only", "capacity only"];
        let place = place[usize::from(self.bytes[self.at])];
        self.field(1, name, place);
    }

    /// The options of a KVS, one of every kind.
    fn options(&mut self) {
        let size = self.number(2, "size", "bytes");
        let end = self.at + to_usize(size);
        while self.at < end {
            let tag = self.bytes[self.at];
            self.field(1, "tag", ["", "policy", "compression", "time to live"][usize::from(tag)]);
            if tag == 2 {
                let code = usize::from(self.bytes[self.at]);
                self.field(1, "compression", ["none", "lz4", "zstd", "auto"][code]);
                continue;
            }
            if tag == 3 {
                self.number(8, "ttl", "ms");
                continue;
            }
            for name in ["young_keys", "young_values", "old_keys", "old_values"] {
                self.place(name);
            }
        }
    }

    fn extent(&mut self) {
        self.class("extent.class");
        self.number(8, "extent.lba", "");
        self.number(8, "extent.count", "LBAs");
    }

    /// Checks that all bytes left are zero.
    fn finish(mut self) -> String {
        let left = &self.bytes[self.at..];
        assert!(left.iter().all(|&byte| byte == 0), "only zeroes are left");
        if !left.is_empty() {
            let (at, count) = (self.at, left.len());
            writeln!(self.text, "{at:04x}  00 times {count:<38}  padding        0").unwrap();
        }
        self.text
    }
}

/// A number and its unit.
fn counted(value: u64, unit: &str) -> String {
    let unit = if value == 1 { unit.trim_end_matches('s') } else { unit };
    format!("{value} {unit}").trim_end().to_owned()
}

/// The bytes that a dump shows.
fn bytes_of(dump: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in dump.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let shown = line[6..].split("  ").next().unwrap();
        if let Some(count) = shown.strip_prefix("00 times ") {
            bytes.resize(bytes.len() + count.trim().parse::<usize>().unwrap(), 0);
        } else {
            let hex = shown.split_whitespace();
            bytes.extend(hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
        }
    }
    bytes
}

/// Compares a dump with the one in `testdata/`, and checks that this one still decodes.
fn check(name: &str, bytes: &[u8], dump: &str, decode: Decode) {
    assert_eq!(bytes_of(dump), bytes, "{name}: the dump shows all bytes");
    let golden = golden_text(name, dump);
    assert_eq!(
        decode(&bytes_of(&golden)),
        decode(bytes),
        "{name}: this build reads the bytes of its version as something else"
    );
    assert!(
        golden == dump,
        "{name}: the format changed. Bytes that were released stay readable: give the structure a \
         new version (docs/format/kv.md). ESKER_UPDATE_GOLDEN=1 writes the dump anew:\n{dump}"
    );
}

#[test]
fn the_class_header_has_these_bytes() {
    let bytes = class_header().encode();
    let mut d = Dump::new("Class header", &bytes);
    d.text(8, "magic");
    d.number(2, "version", "");
    d.class("class");
    d.zeroes(1);
    d.number(4, "lba_size", "bytes");
    d.text(16, "uuid");
    d.zeroes(4);
    d.number(4, "crc", "of bytes 0 to 35");
    check("class.txt", &bytes, &d.finish(), decode_class);
}

fn dump_frame(title: &str, bytes: &[u8]) -> String {
    let mut d = Dump::new(title, bytes);
    d.text(8, "magic");
    d.number(2, "version", "");
    let kind = ["", "log", "aged"][usize::from(bytes[d.at])];
    d.field(1, "kind", kind);
    d.zeroes(1);
    let records = d.number(4, "records", "");
    d.number(8, "block", "");
    d.number(8, "offset", "bytes into the block");
    d.number(8, "durable_seqno", "");
    d.number(8, "first_seqno", "");
    d.number(4, "payload_size", "bytes");
    d.number(4, "payload_crc", "of the records");
    d.zeroes(4);
    d.number(4, "crc", "of bytes 0 to 59");
    for _ in 0..records {
        d.part("Record");
        d.number(4, "crc", "of the rest of the record");
        let value_size = d.number(4, "value_size", "bytes");
        d.number(4, "kvs", "");
        let key_size = d.number(2, "key_size", "bytes");
        let kind = ["", "put", "delete", "delete prefix", "expiry", "delete range"]
            [usize::from(bytes[d.at])];
        d.field(1, "kind", kind);
        let codec = ["", "lz4", "zstd"][usize::from(bytes[d.at] & 3)];
        d.field(1, "flags", format!("{} {codec}", bytes[d.at]).trim_end());
        d.text(to_usize(key_size), "key");
        if kind == "expiry" {
            d.number(8, "value", "ms since 1970");
        } else if kind == "delete range" {
            d.text(to_usize(value_size), "upper bound");
        } else if codec.is_empty() {
            d.text(to_usize(value_size), "value");
        } else {
            let end = d.at + to_usize(value_size);
            d.varint("plain_size", "bytes");
            d.field(end - d.at, "value", "compressed");
        }
    }
    d.part("To the end of the LBA");
    d.finish()
}

#[test]
fn frames_have_these_bytes() {
    let log = frame_of(FrameKind::Log, &log_records());
    let dump = dump_frame(
        "Log frame with a put, a delete, the delete of a prefix, and a put that expires",
        &log,
    );
    check("log-frame.txt", &log, &dump, decode_frame);
    let ranges = frame_of(FrameKind::Log, &range_records());
    let dump = dump_frame(
        "Log frame of version 2: deletes of ranges, bounded, from a key, to a key, of all; the empty key",
        &ranges,
    );
    check("log-frame-2.txt", &ranges, &dump, decode_frame);
    let aged = frame_of(FrameKind::Aged, &aged_records());
    let dump = dump_frame("Aged frame with one value; the record is the log's", &aged);
    check("aged-frame.txt", &aged, &dump, decode_frame);
    let packed = packed_frame();
    let dump = dump_frame("Aged frame with two values, compressed", &packed);
    check("compressed-frame.txt", &packed, &dump, decode_frame);
}

#[test]
fn a_key_page_has_these_bytes() {
    let bytes = page();
    let mut d = Dump::new(
        "Key page with a tombstone, values in the page and in a block, and two that expire",
        &bytes,
    );
    d.number(4, "crc", "of bytes 4 to 4,095");
    d.number(8, "kvset", "");
    d.number(4, "index", "of this page");
    let count = d.number(2, "count", "entries");
    let prefix_size = d.number(2, "prefix_size", "bytes");
    let mut slots = Vec::new();
    for _ in 0..count {
        let shown = format!("{:#06x}", u16::from_le_bytes([bytes[d.at], bytes[d.at + 1]]));
        slots.push(usize::from_str_radix(&shown[2..], 16).unwrap());
        d.field(2, "slot", shown);
    }
    d.text(to_usize(prefix_size), "prefix");
    for slot in slots {
        d.part("Entry");
        assert_eq!(slot, d.at, "entries lie in the order of their keys");
        let size = d.varint("suffix_size", "bytes");
        d.text(size, "suffix");
        if bytes[d.at] == 19 {
            d.field(1, "tag", "expires");
            d.long_varint("expiry", "ms since 1970");
        }
        match bytes[d.at] {
            0 => {
                d.field(1, "tag", "tombstone");
            }
            1 => {
                d.field(1, "tag", "stored");
                d.varint("block", "of the block table");
                d.varint("offset", "bytes into the block");
                d.varint("value_size", "bytes");
            }
            tag => {
                let size = usize::from(tag) - 2;
                d.field(1, "tag", format!("inline, {size} bytes"));
                d.text(size, "value");
            }
        }
    }
    d.part("To the end of the page");
    check("page.txt", &bytes, &d.finish(), decode_page);
}

#[test]
fn kvset_meta_has_these_bytes() {
    let bytes = kvset_meta();
    let title = "Kvset meta of two pages, three keys and two deleted prefixes; values expire";
    let dump = dump_meta(title, &bytes, |d| {
        d.part("Prefixes");
        d.text16("prefix");
        d.text16("prefix");
    });
    check("kvset-meta.txt", &bytes, &dump, decode_meta);
    let bytes = kvset_meta_with_ranges();
    let title = "Kvset meta of version 2, with three deleted ranges; values expire";
    let dump = dump_meta(title, &bytes, |d| {
        d.part("Ranges");
        for _ in 0..3 {
            d.text16("lower bound");
            d.text16("upper bound");
        }
    });
    check("kvset-meta-2.txt", &bytes, &dump, decode_meta);
}

fn dump_meta(title: &str, bytes: &[u8], dump_hides: impl FnOnce(&mut Dump<'_>)) -> String {
    let mut d = Dump::new(title, bytes);
    d.text(8, "magic");
    d.number(2, "version", "");
    d.number(2, "flags", "");
    let pages = d.number(4, "pages", "");
    d.number(8, "kvset", "");
    d.number(4, "kvs", "");
    let filter_size = d.number(4, "filter_size", "bytes");
    d.number(4, "index_size", "bytes");
    d.number(4, "body_crc", "of all that follows the header");
    d.number(4, "prefixes_size", "bytes");
    d.number(4, "crc", "of bytes 0 to 43");
    d.part("Filter");
    d.number(1, "version", "");
    d.number(1, "probes", "bits per key");
    d.zeroes(62);
    for _ in 1..filter_size / 64 {
        d.field(64, "bits", "one block of 512");
    }
    d.part("Index");
    for _ in 0..pages {
        d.text16("first key");
    }
    d.text16("last key");
    dump_hides(&mut d);
    d.part("Expiries");
    d.number(8, "count", "entries");
    d.number(8, "first", "ms since 1970");
    d.number(8, "last", "ms since 1970");
    d.finish()
}

#[test]
fn a_manifest_record_has_these_bytes() {
    for (version, name, title) in [
        (FormatVersion::V1, "manifest-record.txt", "Manifest record with one edit of every kind"),
        (FormatVersion::V2, "manifest-record-2.txt", "Manifest record of a KVDB of version 2"),
    ] {
        let bytes = manifest_record(version);
        check(name, &bytes, &dump_manifest(title, &bytes), decode_manifest);
    }
}

fn dump_manifest(title: &str, bytes: &[u8]) -> String {
    let mut d = Dump::new(title, bytes);
    d.text(8, "magic");
    d.number(2, "version", "");
    d.zeroes(2);
    let payload_size = d.number(4, "payload_size", "bytes");
    d.number(8, "epoch", "of the region");
    d.number(8, "index", "of this record in the region");
    d.number(8, "lba", "of this record");
    d.text(16, "uuid");
    d.number(4, "payload_crc", "of the edits");
    d.number(4, "crc", "of bytes 0 to 59");
    let end = d.at + to_usize(payload_size);
    while d.at < end {
        d.part("Edit");
        dump_edit(&mut d);
    }
    d.part("To the end of the LBA");
    d.finish()
}

fn dump_edit(d: &mut Dump<'_>) {
    let names = [
        "",
        "LastId",
        "Class",
        "Kvs",
        "KvsDropped",
        "Block",
        "Ingested",
        "Leaf",
        "LeafRemoved",
        "Kvset",
        "KvsetRemoved",
        "ClassRemoved",
        "KvsMetadata",
    ];
    let tag = d.bytes[d.at];
    d.field(1, "tag", names[usize::from(tag)]);
    match tag {
        2 => {
            d.class("class");
            d.text16("path");
        }
        3 => {
            d.number(4, "id", "");
            d.text16("name");
            d.options();
        }
        4 => _ = d.number(4, "id", ""),
        5 => {
            d.number(8, "id", "");
            d.extent();
            d.number(1, "log", "");
            d.number(8, "bytes", "");
            d.number(8, "plain_bytes", "");
        }
        6 => {
            d.number(8, "seqno", "");
            d.number(8, "first", "");
        }
        7 => {
            d.number(8, "id", "");
            d.number(4, "kvs", "");
            d.text16("lower");
        }
        9 => dump_kvset(d),
        11 => d.class("class"),
        12 => {
            d.number(4, "id", "");
            d.text16("metadata");
        }
        _ => _ = d.number(8, "id", ""),
    }
}

fn dump_kvset(d: &mut Dump<'_>) {
    d.number(8, "id", "");
    d.number(4, "kvs", "");
    for name in ["leaf", "age", "entries", "tombstones"] {
        d.number(8, name, "");
    }
    d.number(4, "pages", "");
    d.number(4, "meta_size", "bytes");
    for _ in 0..d.number(4, "extents", "") {
        d.extent();
    }
    for _ in 0..d.number(4, "blocks", "") {
        d.number(8, "block", "");
        d.number(8, "live", "bytes");
    }
}
