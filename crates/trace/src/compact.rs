//! The writer of the compact format. Its decoder is `read/compact.rs`.
//!
//! Calls `omf.rs` for the bytes; `append` goes on with a file.
//!
//! Invariant: a device's name is in the file before the first request for it.

mod append;

use std::fs::{File, TryLockError};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use esker_base::files;
use esker_base::units::{to_u64, to_usize};

use crate::error::{Result, TraceError};
use crate::names::Names;
use crate::omf::{self, CHUNK_REQUESTS, ChunkHeader, ChunkKind, RequestEncoder};
use crate::read::Trace;
use crate::request::Request;

/// Writes a trace in the compact format.
pub struct Writer<W: Write> {
    sink: W,
    path: PathBuf,
    offset: u64,
    names: Names,
    named: usize,
    chunk: Option<RequestEncoder>,
    requests: u64,
    dropped: u64,
    /// The time in the file that is zero for the writer.
    shift_ns: u64,
}

/// Counts of a written trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Requests.
    pub requests: u64,
    /// Bytes, headers included.
    pub bytes: u64,
    /// Requests that got lost before they were written.
    pub dropped: u64,
}

impl Writer<BufWriter<File>> {
    /// Writes a new file, or over an old one.
    ///
    /// # Errors
    /// When the file cannot be made or written.
    pub fn create(path: &Path) -> Result<Writer<BufWriter<File>>> {
        let file =
            files::create(path).map_err(|error| TraceError::file(path, "creating", error))?;
        Writer::new(BufWriter::new(file), path)
    }

    /// Writes a new file, where none is yet.
    ///
    /// # Errors
    /// `Exists` when there is one, or when it cannot be made or written.
    pub fn create_new(path: &Path) -> Result<Writer<BufWriter<File>>> {
        let file = files::create_new(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => TraceError::exists(path),
            _ => TraceError::file(path, "creating", error),
        })?;
        lock(&file, path)?;
        Writer::new(BufWriter::new(file), path)
    }
}

/// Keeps others from going on with a file that is being written.
fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let why = "somebody else is writing it; name another file, or end that first";
            Err(TraceError::Conflict(format!("{}: {why}", path.display())))
        }
        Err(TryLockError::Error(error)) => Err(TraceError::file(path, "locking", error)),
    }
}

impl<W: Write> Writer<W> {
    /// Writes to `sink`; `path` is for errors.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(sink: W, path: &Path) -> Result<Writer<W>> {
        let mut writer = Writer {
            sink,
            path: path.to_owned(),
            offset: 0,
            names: Names::default(),
            named: 0,
            chunk: None,
            requests: 0,
            dropped: 0,
            shift_ns: 0,
        };
        writer.write(&omf::encode_file_header())?;
        Ok(writer)
    }

    /// The file that errors name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the device called `name`, by which requests refer to it.
    ///
    /// # Errors
    /// With too many devices, or a name of more than 64 KiB.
    pub fn device(&mut self, name: &str) -> Result<u32> {
        if u16::try_from(name.len()).is_err() {
            let what = format!("a device's name of {} bytes; use at most 65535", name.len());
            return Err(TraceError::Invalid(what));
        }
        self.names.number(name.as_bytes()).map_err(TraceError::Invalid)
    }

    /// Makes the devices of another trace known, so that its numbers hold here too.
    ///
    /// # Errors
    /// When their order is another one than that of the devices known so far.
    pub fn devices(&mut self, names: &[String]) -> Result<()> {
        for (index, name) in names.iter().enumerate().skip(self.names.all().len()) {
            let number = self.device(name)?;
            if to_usize(u64::from(number)) != index {
                let what = format!("device {index}, '{name}', has number {number} in this file");
                return Err(TraceError::Invalid(what));
            }
        }
        Ok(())
    }

    /// Appends a request. The range of a flush is not kept: it has none.
    ///
    /// # Errors
    /// When it cannot be written, or its device has no name yet.
    pub fn push(&mut self, request: &Request) -> Result<()> {
        if to_usize(u64::from(request.device)) >= self.named {
            self.name_devices(request.device)?;
        }
        Request::checked(0, request.op, request.offset, request.length, request.device)
            .map_err(TraceError::Invalid)?;
        let time_ns = self.shift_ns.saturating_add(request.time_ns);
        let chunk = self.chunk.get_or_insert_with(|| RequestEncoder::new(time_ns));
        chunk.push(&Request { time_ns, ..*request });
        self.requests += 1;
        if chunk.count() == CHUNK_REQUESTS {
            self.end_chunk()?;
        }
        Ok(())
    }

    /// Counts requests that got lost before they could be written.
    pub fn dropped(&mut self, count: u64) {
        self.dropped += count;
    }

    /// Writes the gathered requests, so that a reader of the file as it is now sees them.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.end_chunk()?;
        self.sink.flush().map_err(|error| TraceError::file(&self.path, "writing", error))
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<(W, Written)> {
        self.end_chunk()?;
        let end = omf::encode_end(self.dropped);
        let chunk = omf::chunk(ChunkKind::End, self.offset, 0, self.requests, end);
        self.write_chunk(&chunk)?;
        self.sink.flush().map_err(|error| TraceError::file(&self.path, "writing", error))?;
        let (requests, bytes, dropped) = (self.requests, self.offset, self.dropped);
        Ok((self.sink, Written { requests, bytes, dropped }))
    }

    fn name_devices(&mut self, wanted: u32) -> Result<()> {
        self.end_chunk()?;
        let known = self.names.all().len();
        if to_usize(u64::from(wanted)) >= known {
            let what = format!("a request for device {wanted}; {known} have names");
            return Err(TraceError::Invalid(what));
        }
        // In pieces that fit a chunk, for names of any size.
        while self.named < known {
            let names = &self.names.all()[self.named..];
            let names = &names[..names.len().min(15)];
            let (first, count) = (to_u64(self.named), names.len());
            let payload = omf::encode_devices(names);
            let counted = u32::try_from(count).expect("at most 15");
            let chunk = omf::chunk(ChunkKind::Devices, self.offset, counted, first, payload);
            self.write_chunk(&chunk)?;
            self.named += count;
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<()> {
        match self.chunk.take() {
            Some(chunk) => {
                let chunk = chunk.finish(self.offset);
                self.write_chunk(&chunk)
            }
            None => Ok(()),
        }
    }

    fn write_chunk(&mut self, (header, payload): &(ChunkHeader, Vec<u8>)) -> Result<()> {
        self.write(&header.encode())?;
        self.write(payload)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.sink.write_all(bytes);
        written.map_err(|error| TraceError::file(&self.path, "writing", error))?;
        self.offset += to_u64(bytes.len());
        Ok(())
    }
}

/// Writes all requests of a trace to a new file in the compact format.
///
/// # Errors
/// When either cannot be read or written; the file is then incomplete.
pub fn convert(trace: &mut Trace, path: &Path) -> Result<Written> {
    convert_to(trace, Writer::create(path)?)
}

/// Writes all requests of a trace with `writer`.
///
/// # Errors
/// When it cannot be read or written.
pub fn convert_to<W: Write>(trace: &mut Trace, mut writer: Writer<W>) -> Result<Written> {
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let more = trace.next_batch(&mut batch)?;
        writer.devices(trace.devices())?;
        for request in &batch {
            writer.push(request)?;
        }
        if !more {
            break;
        }
    }
    Ok(writer.finish()?.1)
}
