//! The bytes of a trace: a file, decompressed as it is read, in a window that decoders look at.
//!
//! Called by the decoders of [`crate::read`]. The first bytes of a file tell how it was compressed.
//!
//! A compressed file whose end is missing ends where its content does, and says so: [`Input::cut_remark`].
//!
//! Invariants
//! 1. The window is bounded: [`WINDOW`] bytes, or one line of at most [`LINE_LIMIT`] bytes.
//! 2. `offset` is that of the window's first byte in the decompressed content.
//! 3. Of content that was cut, a line without its end is not delivered: it may be part of another.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_base::units::to_u64;
use ruzstd::decoding::StreamingDecoder;

use crate::error::{Place, Result, TraceError};

/// How much is read at a time.
const WINDOW: usize = 256 << 10;

/// No line of a trace is longer.
const LINE_LIMIT: usize = 1 << 20;

/// A mark that may stand before text in UTF-8.
const MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// The most memory that an .xz file may ask for, in KiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// A file that is read from its beginning.
pub(crate) struct Input {
    path: PathBuf,
    from: Box<dyn Read + Send>,
    window: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    line: u64,
    ended: bool,
    /// Whether the compressed file has been read to its end.
    at_end: Arc<AtomicBool>,
    /// The compressed file ended before its content did.
    is_cut: bool,
}

/// A file that says when its end was met.
struct Ending<R> {
    inner: R,
    at_end: Arc<AtomicBool>,
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.at_end.store(read == 0 && !buf.is_empty(), Ordering::Relaxed);
        Ok(read)
    }
}

impl Input {
    /// Opens a file, compressed or not.
    pub(crate) fn open(path: &Path) -> Result<Input> {
        let failed = |error| TraceError::file(path, "opening", error);
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        Input::compressed(path, file)
    }

    /// Bytes that may be compressed; `path` is for errors, and its name may tell the format.
    pub(crate) fn compressed(path: &Path, from: impl Read + Send + 'static) -> Result<Input> {
        let at_end = Arc::new(AtomicBool::new(false));
        let file = Ending { inner: from, at_end: at_end.clone() };
        let mut file = BufReader::with_capacity(64 << 10, file);
        let first = file.fill_buf().map_err(|error| TraceError::file(path, "reading", error))?;
        let from: Box<dyn Read + Send> = if first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Box::new(Frames::new(file))
        } else if first.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB))
        } else if first.starts_with(&[0x1f, 0x8b]) {
            Box::new(flate2::bufread::MultiGzDecoder::new(file))
        } else if first.starts_with(b"BZh") {
            Box::new(bzip2::bufread::MultiBzDecoder::new(file))
        } else {
            Box::new(file)
        };
        Ok(Input { at_end, ..Input::new(path, from) })
    }

    /// Bytes from elsewhere; `path` is for errors.
    pub(crate) fn new(path: &Path, from: Box<dyn Read + Send>) -> Input {
        let window = vec![0; WINDOW];
        let path = path.to_owned();
        let at_end = Arc::new(AtomicBool::new(false));
        let (start, end, offset, line) = (0, 0, 0, 0);
        Input { path, from, window, start, end, offset, line, ended: false, at_end, is_cut: false }
    }

    /// Passes the mark that some programs put before text in UTF-8.
    pub(crate) fn skip_byte_order_mark(&mut self) -> Result<()> {
        let first = self.fill(MARK.len() + 1)?;
        // Text follows it: a binary file may begin with the same three bytes.
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        if first.starts_with(MARK) && first.get(MARK.len()).is_none_or(is_text) {
            self.consume(MARK.len());
        }
        Ok(())
    }

    /// Whether the compressed file ended before its content did.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Says that the content is not whole, and names the remedy, if so.
    pub(crate) fn cut_remark(&self) -> Option<String> {
        let (path, end) = (self.path.display(), self.offset + to_u64(self.end - self.start));
        self.is_cut.then(|| {
            format!(
                "{path} ends in the middle of its compressed data: what follows byte {end} of its content is missing, \
                 and the result is of what came before; for the rest, get the whole file again"
            )
        })
    }

    /// The file's name without its folder and the suffix of its compression.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for suffix in [".zst", ".xz", ".gz", ".bz2"] {
            if let Some(rest) = name.strip_suffix(suffix) {
                return rest.to_owned();
            }
        }
        name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes in the window; see [`Input::fill`].
    pub(crate) fn window(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Reads until the window holds `wanted` bytes or the content has ended.
    pub(crate) fn fill(&mut self, wanted: usize) -> Result<&[u8]> {
        while self.end - self.start < wanted && !self.ended {
            self.more()?;
        }
        Ok(self.window())
    }

    /// The first `count` bytes of the window are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        self.offset += to_u64(count);
    }

    /// The next line without its end, or `None` after the last one. It stays in the window until
    /// the next call.
    pub(crate) fn line(&mut self) -> Result<Option<&[u8]>> {
        let mut seen = 0;
        loop {
            let window = &self.window[self.start..self.end];
            if let Some(at) = window[seen..].iter().position(|&byte| byte == b'\n') {
                let size = seen + at;
                let line = self.start..self.start + size;
                self.consume(size + 1);
                self.line += 1;
                return Ok(Some(trimmed(&self.window[line])));
            }
            seen = window.len();
            if seen > LINE_LIMIT {
                self.line += 1;
                let what = format!("a line of more than {LINE_LIMIT} bytes");
                return Err(self.malformed_line(what, "text"));
            }
            if self.ended {
                if seen == 0 || self.is_cut {
                    return Ok(None);
                }
                let line = self.start..self.end;
                self.consume(seen);
                self.line += 1;
                return Ok(Some(trimmed(&self.window[line])));
            }
            self.more()?;
        }
    }

    /// An error in the line that [`Input::line`] gave last.
    pub(crate) fn malformed_line(&self, what: String, format: &'static str) -> TraceError {
        self.malformed(Place::Line(self.line), what, format)
    }

    /// An error at the first byte of the window and some more.
    pub(crate) fn malformed_byte(
        &self,
        at: usize,
        what: String,
        format: &'static str,
    ) -> TraceError {
        self.malformed(Place::Byte(self.offset + to_u64(at)), what, format)
    }

    fn malformed(&self, place: Place, what: String, format: &'static str) -> TraceError {
        TraceError::Malformed { path: self.path.display().to_string(), place, what, format }
    }

    fn more(&mut self) -> Result<()> {
        if self.start > 0 {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.window.len() {
            self.window.resize(self.window.len() * 2, 0);
        }
        let read = loop {
            match self.from.read(&mut self.window[self.end..]) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A decoder that wants more than there is: the file was cut, on its way or as it was written.
                Err(error) if is_end(&error) && self.at_end.load(Ordering::Relaxed) => {
                    self.is_cut = true;
                    break 0;
                }
                Err(error) => return Err(TraceError::file(&self.path, "reading", error)),
            }
        };
        self.end += read;
        self.ended = read == 0;
        Ok(())
    }
}

/// Whether a decoder has met the end of its file where there should be more.
fn is_end(error: &io::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|it| it as _);
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return true;
    }
    while let Some(one) = source {
        let io = one.downcast_ref::<io::Error>();
        if io.is_some_and(|one| one.kind() == io::ErrorKind::UnexpectedEof) {
            return true;
        }
        source = one.source();
    }
    false
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// All frames of a .zst file, one after the other.
struct Frames<R: BufRead> {
    state: State<R>,
}

enum State<R: BufRead> {
    Between(R),
    Within(Box<StreamingDecoder<Begun<R>, ruzstd::decoding::FrameDecoder>>),
    Ended,
}

/// A file from a frame's magic number on, which was read to tell the kind of frame.
type Begun<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

impl<R: BufRead> Frames<R> {
    fn new(from: R) -> Frames<R> {
        Frames { state: State::Between(from) }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Ok(0),
                State::Between(mut from) => {
                    let mut magic = Vec::with_capacity(4);
                    from.by_ref().take(4).read_to_end(&mut magic)?;
                    if magic.is_empty() {
                        return Ok(0);
                    }
                    if magic[0] & 0xf0 == 0x50 && magic[1..] == [0x2a, 0x4d, 0x18] {
                        skip_frame(&mut from)?;
                        self.state = State::Between(from);
                        continue;
                    }
                    let decoder = StreamingDecoder::new(io::Cursor::new(magic).chain(from))
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    self.state = State::Within(Box::new(decoder));
                }
                State::Within(mut decoder) => {
                    let read = decoder
                        .read(buf)
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    if read > 0 || buf.is_empty() {
                        self.state = State::Within(decoder);
                        return Ok(read);
                    }
                    self.state = State::Between(decoder.into_inner().into_inner().1);
                }
            }
        }
    }
}

/// Passes a frame of foreign content behind its magic number: a length, and as many bytes.
fn skip_frame(from: &mut impl Read) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    let skipped = io::copy(&mut from.take(u64::from(length)), &mut io::sink())?;
    if skipped < u64::from(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Input {
        Input::new(Path::new("a.csv"), Box::new(io::Cursor::new(bytes.to_vec())))
    }

    #[test]
    fn lines_end_with_either_end_or_none() {
        let mut input = of(b"one\r\n\ntwo\nthree");
        let mut lines = Vec::new();
        while let Some(line) = input.line().unwrap() {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(lines, ["one", "", "two", "three"]);
        assert_eq!(input.offset(), 15);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let mut input = of(&vec![b'1'; 3 << 20]);
        let error = input.line().unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
    }

    #[test]
    fn a_line_longer_than_the_window_is_read() {
        let mut bytes = vec![b'x'; WINDOW + 5];
        bytes.extend(b"\nnext\n");
        let mut input = of(&bytes);
        assert_eq!(input.line().unwrap().unwrap().len(), WINDOW + 5);
        assert_eq!(input.line().unwrap().unwrap(), b"next");
        assert_eq!(input.line().unwrap(), None);
    }

    /// The buffer of the file may end anywhere: within the bytes that tell the frames apart, too.
    #[test]
    fn frames_are_told_apart_across_the_ends_of_a_buffer() {
        let frame = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        for size in 1..24 {
            let file = BufReader::with_capacity(size, io::Cursor::new(frame.repeat(3)));
            let mut content = Vec::new();
            Frames::new(file).read_to_end(&mut content).unwrap();
            assert!(content.is_empty(), "{size}");
        }
    }
}
