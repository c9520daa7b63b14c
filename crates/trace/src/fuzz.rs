//! Fuzz targets: any bytes in place of a trace, of the kernel's buffer, or of an option that a user gives. Each says
//! whether they were accepted. Run by `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Requests that were read are the same when they were written in the compact format, and read again.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use std::ops::Range;
use std::path::Path;

use esker_base::checksum::crc32c;

use crate::capture::ring;
use crate::compact::convert_to;
use crate::error::Result;
use crate::omf::{CHUNK_HEADER, FILE_HEADER};
use crate::read::Trace;
use crate::{Columns, Format, Options, Request, Writer};

/// Requests of a trace that are looked at: a few compressed bytes may be very many.
const MOST: usize = 1 << 16;

/// A trace in the format that the first byte says, or in the one that is recognised. It may be compressed.
pub fn trace_file(data: &[u8]) -> bool {
    let Some((&first, bytes)) = data.split_first() else { return false };
    let format = usize::from(first).checked_sub(1).map(|n| Format::ALL[n % Format::ALL.len()]);
    let options = Options { format, ..Options::default() };
    let Ok(requests) = requests(bytes, &options) else { return false };
    // The whole of a long trace is not read again.
    if requests.len() < MOST {
        let trace = Trace::of_bytes(Path::new("trace"), bytes.to_vec(), &options);
        let mut trace = trace.expect("it was opened before");
        let (mut compact, path) = (Vec::new(), Path::new("compact"));
        let writer = Writer::new(&mut compact, path).expect("a vector takes all");
        if convert_to(&mut trace, writer).is_ok() {
            let again = self::requests(&compact, &Options::default());
            assert_eq!(again.expect("a trace that was just written"), requests);
        }
    }
    !requests.is_empty()
}

/// The same, from a corpus of compressed traces: their decompressors take more memory.
pub fn trace_compressed(data: &[u8]) -> bool {
    trace_file(data)
}

/// All requests, or [`MOST`] and some.
fn requests(bytes: &[u8], options: &Options) -> Result<Vec<Request>> {
    let mut trace = Trace::of_bytes(Path::new("trace"), bytes.to_vec(), options)?;
    let mut requests = Vec::new();
    while requests.len() < MOST && trace.next_batch(&mut requests)? {}
    for request in &requests {
        assert!(request.offset.checked_add(request.length).is_some());
        assert!(usize::try_from(request.device).is_ok_and(|n| n < trace.devices().len()));
    }
    let _ = trace.remarks();
    Ok(requests)
}

/// A trace in the compact format whose checksums, and whose chunks' offsets, are made to fit.
pub fn trace_compact(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    put_crc(&mut bytes, 12, 0..12);
    let mut at = FILE_HEADER;
    while let Some(size) = bytes.get(at + 16..at + 20) {
        let size = u32::from_le_bytes(size.try_into().expect("4 bytes"));
        let payload = at + CHUNK_HEADER;
        let end = payload.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        bytes[at + 8..at + 16].copy_from_slice(&(at as u64).to_le_bytes());
        put_crc(&mut bytes, at + 32, payload..end);
        put_crc(&mut bytes, at + 36, at..at + 36);
        at = end;
    }
    trace_file(&[&[0], &bytes[..]].concat())
}

/// Writes the CRC-32C of these bytes, as far as they are there.
fn put_crc(bytes: &mut [u8], at: usize, range: Range<usize>) {
    let crc = crc32c(bytes.get(range.start..range.end.min(bytes.len())).unwrap_or_default());
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// A page of the kernel's ring buffer.
pub fn trace_ring(data: &[u8]) -> bool {
    ring::requests_of(FORMAT, data).is_ok()
}

/// The kernel's description of an event, with an empty page.
pub fn trace_event_format(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(|text| ring::requests_of(text, &[0; 16]).is_ok())
}

/// A format, or the columns of one, as a user says them.
pub fn trace_columns(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let format = text.parse::<Format>();
    if let Ok(format) = format {
        assert_eq!(format.to_string(), text);
    }
    format.is_ok() | text.parse::<Columns>().is_ok()
}

/// The kernel's description of the event that is captured.
const FORMAT: &str = "name: block_bio_queue\nID: 2097\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
    \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
    \tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n\
    \tfield:char comm[16];\toffset:38;\tsize:16;\tsigned:0;\n";

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;
    use crate::capture::ring::tests as kernel;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    /// A sample in a format that is said, or recognised.
    fn sample(name: &'static str, format: Option<Format>) -> (&'static str, Vec<u8>) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        let number =
            format.and_then(|format| Format::ALL.iter().position(|known| *known == format));
        let first = number.map_or(0, |number| u8::try_from(number + 1).unwrap());
        (name, [&[first][..], &std::fs::read(path).unwrap()].concat())
    }

    /// A sample as a compact trace.
    fn compact(name: &'static str) -> (&'static str, Vec<u8>) {
        let (_, bytes) = sample(name, None);
        let path = Path::new(name);
        let trace = Trace::of_bytes(path, bytes[1..].to_vec(), &Options::default());
        let mut written = Vec::new();
        convert_to(&mut trace.unwrap(), Writer::new(&mut written, path).unwrap()).unwrap();
        (name, written)
    }

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        let recognised = [
            "sample.alibaba.csv",
            "sample.blkparse",
            "sample.blktrace.0",
            "sample.cachelib.csv",
            "sample.disksim",
            "sample.fiu",
            "sample.lis",
            "sample.msr.csv",
            "sample.oracleGeneral",
            "sample.spc",
            "sample.ssdsim",
            "sample.systor.csv",
            "sample.tencent.csv",
            "sample.vscsi1",
            "sample.vscsi2",
        ];
        let mut files: Vec<_> = recognised.map(|name| sample(name, None)).into();
        files.push(sample("sample.u32le", Some(Format::U32le)));
        files.push(("object-store", b"\x101200 REST.GET.OBJECT a1 1024 0 1023\n".to_vec()));
        files.push(("csv", b"\x12time,id,size\n1.5,7,4096\n2,8,512\n".to_vec()));
        files.push(("text", b"\x1317\n18\n17\n".to_vec()));
        let compressed =
            ["sample.msr.csv.bz2", "sample.msr.csv.gz", "sample.msr.csv.xz", "sample.msr.csv.zst"];
        let pages = vec![("every-kind", kernel::page(100, &kernel::every_kind()))];
        replay(&[
            // A window, a line, and what reads a compact trace again.
            Target::new("trace_file", trace_file, files).memory(16 << 20),
            // Windows of decompressors: the largest that .xz may ask for.
            Target::new(
                "trace_compressed",
                trace_compressed,
                compressed.map(|name| sample(name, None)).into(),
            )
            .memory(300 << 20),
            Target::new(
                "trace_compact",
                trace_compact,
                ["sample.msr.csv", "sample.vscsi2"].map(compact).into(),
            )
            .memory(16 << 20),
            Target::new("trace_ring", trace_ring, pages),
            Target::of_texts(
                "trace_event_format",
                trace_event_format,
                &[("block_bio_queue", FORMAT)],
            ),
            Target::of_texts(
                "trace_columns",
                trace_columns,
                &[
                    ("columns", "time=1,id=2,size=3,op=4"),
                    ("long", "time-col=1, obj-id-col=2"),
                    ("format", "msr"),
                ],
            ),
        ]);
    }
}
