//! Reading traces: one or several files, any known format, one stream of requests.
//!
//! Called by users of requests; calls the decoders: `text` (a line, a request), `binary`
//! (a record, a request), `compact` (the compact format). `detect` tells a file's format by its content.
//!
//! Invariants
//! 1. Memory is bounded, however long a trace is: a window of each file and a batch of requests.
//! 2. Requests before a malformed place are delivered; then the error, once; then nothing. A compressed file whose
//!    end is missing ends with its last whole request, and a remark.
//! 3. Several files are merged by time; those with equal times come in the order of the files.
//!    Within a file the order is that of the file, even where its times go back.

pub(crate) mod binary;
pub(crate) mod blktrace;
mod compact;
mod detect;
pub(crate) mod fields;
mod lcs;
mod objects;
mod processors;
pub(crate) mod text;

use std::path::Path;

use crate::decode::{BATCH, Decode, Events};
pub use crate::decode::{Event, Options};
use crate::error::{Result, TraceError};
use crate::format::Format;
use crate::input::Input;
use crate::names::Names;
use crate::request::Request;
use blktrace::BlktraceDecoder;
use compact::CompactDecoder;
use detect::{SAMPLE_BYTES, detect};
pub use processors::files_of;

/// One file, and the requests that were decoded of it and not yet taken.
struct Stream {
    format: Option<Format>,
    decoder: Box<dyn Decode>,
    batch: Vec<Request>,
    at: usize,
    error: Option<TraceError>,
    ended: bool,
}

impl Stream {
    fn open(path: &Path, options: &Options) -> Result<Stream> {
        Stream::of(Input::open(path)?, options)
    }

    fn of(mut input: Input, options: &Options) -> Result<Stream> {
        let (name, path) = (input.name(), input.path().to_owned());
        let is_text = |format| text::parser(format, options).is_some();
        if options.format.map_or(!name.ends_with(".u32le"), is_text) {
            input.skip_byte_order_mark()?;
        }
        let sample = input.fill(SAMPLE_BYTES)?;
        if sample.is_empty()
            && let Some(what) = input.cut_remark()
        {
            return Err(TraceError::Undetected { path: path.display().to_string(), what });
        }
        let (sample, is_cut) = (input.window(), input.is_cut());
        let format = match options.format {
            Some(format) => Some(format),
            // A processor on which nothing happened leaves an empty file.
            None if sample.is_empty() => None,
            None => {
                let whole = sample.len() < SAMPLE_BYTES && !is_cut;
                let sample = &sample[..sample.len().min(SAMPLE_BYTES)];
                let found = detect(&name, sample, whole).map_err(|what| {
                    TraceError::Undetected { path: path.display().to_string(), what }
                })?;
                Some(found)
            }
        };
        let decoder: Box<dyn Decode> = match format {
            None => Box::new(Nothing),
            Some(Format::Compact) => Box::new(CompactDecoder::new(input)),
            Some(format) => match text::parser(format, options) {
                Some(parser) => Box::new(text::TextDecoder::new(input, parser, format)),
                None if format == Format::Blktrace => {
                    Box::new(BlktraceDecoder::new(input, options.event))
                }
                None if format == Format::Lcs => {
                    Box::new(lcs::Lcs::new(input, name, options.unit(format)))
                }
                None => binary::decoder(format, input, options),
            },
        };
        Ok(Stream { format, decoder, batch: Vec::new(), at: 0, error: None, ended: false })
    }

    /// The next request, which stays until it is taken.
    fn peek(&mut self, names: &mut Names) -> Option<Request> {
        while self.at == self.batch.len() {
            if self.ended {
                return None;
            }
            self.batch.clear();
            self.at = 0;
            match self.decoder.decode(names, &mut self.batch) {
                Ok(true) => {}
                Ok(false) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    self.error = Some(error);
                }
            }
        }
        Some(self.batch[self.at])
    }
}

struct Nothing;

impl Decode for Nothing {
    fn decode(&mut self, _: &mut Names, _: &mut Vec<Request>) -> Result<bool> {
        Ok(false)
    }
}

/// A trace that is being read: an iterator of requests.
pub struct Trace {
    streams: Vec<Stream>,
    names: Names,
    format: Option<Format>,
    /// With several streams: the next request of each, by time.
    heads: Vec<Option<Request>>,
    primed: bool,
    event: Event,
    /// Remarks on the files, before anything of them was read.
    remarks: Vec<String>,
}

impl Trace {
    /// Opens a trace in one or several files, which are merged by time.
    ///
    /// # Errors
    /// When a file cannot be read, its format is not recognised, or there is none.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &Options) -> Result<Trace> {
        if paths.is_empty() {
            return Err(TraceError::Invalid("name at least one file of a trace".to_owned()));
        }
        if let Some(unit) = options.unit_bytes
            && !(1..=1 << 20).contains(&unit)
        {
            return Err(TraceError::Invalid(format!(
                "a unit of {unit} bytes: use 1 byte to 1 MiB"
            )));
        }
        let streams = paths
            .iter()
            .map(|path| Stream::open(path.as_ref(), options))
            .collect::<Result<Vec<Stream>>>()?;
        let format = streams.iter().find_map(|stream| stream.format);
        if format.is_none() {
            return Err(TraceError::Undetected {
                path: paths[0].as_ref().display().to_string(),
                what: "it is empty".to_owned(),
            });
        }
        let heads = vec![None; streams.len()];
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        let mut remarks = processors::remarks(&paths);
        for (path, _) in paths.iter().zip(&streams).filter(|(_, stream)| stream.format.is_none()) {
            remarks.push(format!(
                "{} is empty: nothing happened there, or its recording did not end well",
                path.display()
            ));
        }
        let (names, event) = (Names::default(), options.event);
        Ok(Trace { streams, names, format, heads, primed: false, event, remarks })
    }

    /// The trace that some bytes are, with a path for errors.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_bytes(path: &Path, bytes: Vec<u8>, options: &Options) -> Result<Trace> {
        let input = Input::compressed(path, std::io::Cursor::new(bytes))?;
        let streams = vec![Stream::of(input, options)?];
        let (format, heads, remarks) = (streams[0].format, vec![None], Vec::new());
        let (names, event) = (Names::default(), options.event);
        Ok(Trace { streams, names, format, heads, primed: false, event, remarks })
    }

    /// Opens one file, recognising its format.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn open_file(path: &Path) -> Result<Trace> {
        Trace::open(&[path], &Options::default())
    }

    /// The format, of the first file that has any content.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format.expect("checked when it was opened")
    }

    /// The names of the devices seen so far, in the order of their numbers.
    #[must_use]
    pub fn devices(&self) -> &[String] {
        self.names.all()
    }

    /// Remarks for the reader of the trace, once it was read to its end.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let of = |stream: &Stream| {
            let cut = stream.decoder.input().and_then(Input::cut_remark);
            cut.into_iter().chain(stream.decoder.remarks()).collect::<Vec<String>>()
        };
        let mut events = Events::default();
        self.streams.iter().for_each(|stream| events.add(stream.decoder.events()));
        let streams = self.streams.iter().flat_map(of);
        let remarks = self.remarks.iter().cloned().chain(streams);
        remarks.chain(events.remarks(self.event)).collect()
    }

    /// Appends the next requests to `batch`, a thousand or so, and says whether there may be more.
    /// The same requests as from the iterator, a little faster.
    ///
    /// # Errors
    /// As the iterator.
    pub fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool> {
        let before = batch.len();
        if let [stream] = &mut self.streams[..] {
            if stream.at < stream.batch.len() {
                batch.extend_from_slice(&stream.batch[stream.at..]);
                stream.at = stream.batch.len();
                return Ok(true);
            }
            if let Some(error) = stream.error.take() {
                return Err(error);
            }
            if stream.ended {
                return Ok(false);
            }
            match stream.decoder.decode(&mut self.names, batch) {
                Ok(more) => {
                    stream.ended = !more;
                    return Ok(true);
                }
                Err(error) if batch.len() == before => {
                    stream.ended = true;
                    return Err(error);
                }
                Err(error) => {
                    stream.ended = true;
                    stream.error = Some(error);
                    return Ok(true);
                }
            }
        }
        while batch.len() - before < BATCH {
            match self.merged() {
                Some(Ok(request)) => batch.push(request),
                Some(Err(error)) if batch.len() == before => return Err(error),
                Some(Err(error)) => {
                    // Delivered by the next call, before anything else.
                    self.streams[0].error = Some(error);
                    return Ok(true);
                }
                None => return Ok(batch.len() > before),
            }
        }
        Ok(true)
    }

    /// The earliest request of several streams.
    fn merged(&mut self) -> Option<Result<Request>> {
        if !self.primed {
            self.primed = true;
            for index in 0..self.streams.len() {
                self.heads[index] = self.streams[index].peek(&mut self.names);
            }
        }
        // The rest of other files after an error in one would look like a whole trace.
        if let Some(stream) =
            self.streams.iter_mut().find(|s| s.at == s.batch.len() && s.error.is_some())
        {
            let error = stream.error.take();
            self.streams.iter_mut().for_each(|stream| {
                stream.ended = true;
                stream.batch.clear();
                stream.at = 0;
            });
            self.heads.fill(None);
            return error.map(Err);
        }
        let heads = self.heads.iter().enumerate();
        let earliest = heads.filter_map(|(index, head)| head.map(|h| (h.time_ns, index))).min();
        let (_, index) = earliest?;
        let request = self.heads[index].take().expect("it was just seen");
        let stream = &mut self.streams[index];
        stream.at += 1;
        self.heads[index] = stream.peek(&mut self.names);
        Some(Ok(request))
    }
}

impl Iterator for Trace {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        let [stream] = &mut self.streams[..] else {
            return self.merged();
        };
        match stream.peek(&mut self.names) {
            Some(request) => {
                stream.at += 1;
                Some(Ok(request))
            }
            None => stream.error.take().map(Err),
        }
    }
}
