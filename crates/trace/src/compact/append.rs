//! Goes on with a trace in the compact format: reads its chunks to the last whole one, and writes from there.
//!
//! Invariants
//! 1. The recorded bytes stay as they are, but for the end: that is written again, further back.
//! 2. A file that is no trace in the compact format, or is damaged, is refused and left as it was.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom};
use std::path::Path;

use esker_base::units::{to_u64, to_usize};

use super::{Writer, lock};
use crate::error::{Result, TraceError};
use crate::names::Names;
use crate::omf::{self, CHUNK_HEADER, ChunkHeader, ChunkKind, FILE_HEADER};

/// State of a trace after some of its chunks.
#[derive(Default)]
struct Found {
    names: Names,
    requests: u64,
    dropped: u64,
    last_ns: u64,
}

impl Writer<BufWriter<File>> {
    /// Goes on with the trace at `path`. Its times go on from the last one: how much time has passed since is
    /// not known.
    ///
    /// # Errors
    /// When the file is no trace in the compact format or is damaged, or cannot be read or written.
    pub fn append(path: &Path) -> Result<Writer<BufWriter<File>>> {
        let failed = |doing| move |error| TraceError::file(path, doing, error);
        let opened = File::options().read(true).write(true).open(path);
        let mut file = opened.map_err(failed("opening"))?;
        lock(&file, path)?;
        let (found, offset) = Found::read(path, &mut BufReader::new(&file))?;
        file.set_len(offset).map_err(failed("cutting the end off"))?;
        file.seek(SeekFrom::Start(offset)).map_err(failed("writing"))?;
        Ok(Writer {
            sink: BufWriter::new(file),
            path: path.to_owned(),
            offset,
            named: found.names.all().len(),
            names: found.names,
            chunk: None,
            requests: found.requests,
            dropped: found.dropped,
            shift_ns: found.last_ns,
        })
    }
}

impl Found {
    /// Reads a trace; also says where its last whole chunk that is no end ends.
    fn read(path: &Path, input: &mut impl Read) -> Result<(Found, u64)> {
        let damaged = |offset: u64, what: String| {
            let path = path.display().to_string();
            TraceError::Damaged { path, offset, what }
        };
        let mut found = Found::default();
        let header = take(path, input, FILE_HEADER)?;
        omf::decode_file_header(&header).map_err(|what| damaged(0, what))?;
        let mut offset = to_u64(FILE_HEADER);
        loop {
            let bytes = take(path, input, CHUNK_HEADER)?;
            if bytes.len() < CHUNK_HEADER {
                return Ok((found, offset));
            }
            let header =
                ChunkHeader::decode(&bytes, offset).map_err(|what| damaged(offset, what))?;
            let size = to_usize(u64::from(header.size));
            let payload = take(path, input, size)?;
            if payload.len() < size {
                return Ok((found, offset));
            }
            found.note(&header, &payload).map_err(|what| damaged(offset, what))?;
            if header.kind == ChunkKind::End {
                return Ok((found, offset));
            }
            offset += to_u64(CHUNK_HEADER + size);
        }
    }

    fn note(&mut self, header: &ChunkHeader, payload: &[u8]) -> Result<(), String> {
        header.check(payload)?;
        match header.kind {
            ChunkKind::Devices => {
                for name in omf::decode_devices(payload, header.count)? {
                    self.names.number(&name)?;
                }
            }
            ChunkKind::Requests => {
                let devices = u32::try_from(self.names.all().len()).unwrap_or(u32::MAX);
                let mut requests = Vec::new();
                omf::decode_requests(payload, header, devices, &mut requests)?;
                self.requests += to_u64(requests.len());
                let last = requests.iter().map(|request| request.time_ns).max();
                self.last_ns = self.last_ns.max(last.unwrap_or(0));
            }
            ChunkKind::End => self.dropped = omf::decode_end(payload)?,
        }
        Ok(())
    }
}

/// Reads `size` bytes, or all that is left.
fn take(path: &Path, input: &mut impl Read, size: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = input.take(to_u64(size)).read_to_end(&mut bytes);
    read.map_err(|error| TraceError::file(path, "reading", error))?;
    Ok(bytes)
}
