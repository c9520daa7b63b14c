//! The compact format, read. Its writer is [`crate::compact`].
//!
//! Invariant: a file that was not finished is read up to its last whole chunk, and the decoder says so; damage anywhere
//! else is an error.

use esker_base::units::{to_u64, to_usize};

use crate::decode::Decode;
use crate::error::{Result, TraceError};
use crate::input::Input;
use crate::names::Names;
use crate::omf::{self, CHUNK_HEADER, ChunkHeader, ChunkKind};
use crate::request::Request;

/// A decoder of the compact format.
pub(super) struct CompactDecoder {
    input: Input,
    /// The numbers that the file's devices have in the trace that is read.
    devices: Vec<u32>,
    begun: bool,
    requests: u64,
    state: State,
}

enum State {
    Reading,
    Ended { dropped: u64 },
    Cut,
}

impl CompactDecoder {
    pub(super) fn new(input: Input) -> CompactDecoder {
        CompactDecoder {
            input,
            devices: Vec::new(),
            begun: false,
            requests: 0,
            state: State::Reading,
        }
    }

    fn damaged(&self, what: String) -> TraceError {
        let (path, offset) = (self.input.path().display().to_string(), self.input.offset());
        TraceError::Damaged { path, offset, what }
    }

    /// Decodes a chunk; `None` when the file has no more whole ones.
    fn chunk(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<Option<()>> {
        let offset = self.input.offset();
        let bytes = self.input.fill(CHUNK_HEADER)?;
        if bytes.len() < CHUNK_HEADER {
            return Ok(None);
        }
        let header = ChunkHeader::decode(&bytes[..CHUNK_HEADER], offset)
            .map_err(|what| self.damaged(what))?;
        let size = CHUNK_HEADER + to_usize(u64::from(header.size));
        let bytes = self.input.fill(size)?;
        if bytes.len() < size {
            return Ok(None);
        }
        let payload = &bytes[CHUNK_HEADER..size];
        let decoded = header.check(payload).and_then(|()| {
            let payload = &self.input.window()[CHUNK_HEADER..size];
            match header.kind {
                ChunkKind::Devices => {
                    if header.first != to_u64(self.devices.len()) {
                        return Err(format!("names of devices from number {}", header.first));
                    }
                    for name in omf::decode_devices(payload, header.count)? {
                        self.devices.push(names.number(&name)?);
                    }
                    Ok(None)
                }
                ChunkKind::Requests => {
                    let before = batch.len();
                    let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
                    let outcome = omf::decode_requests(payload, &header, devices, batch);
                    // Numbers of another trace that is read along may have come first.
                    let identical = self.devices.iter().zip(0..).all(|(a, b)| *a == b);
                    if !identical {
                        for request in &mut batch[before..] {
                            request.device = self.devices[to_usize(u64::from(request.device))];
                        }
                    }
                    self.requests += to_u64(batch.len() - before);
                    outcome.map(|()| None)
                }
                ChunkKind::End => {
                    if header.first != self.requests {
                        let (read, said) = (self.requests, header.first);
                        return Err(format!("{read} requests were read, of {said}"));
                    }
                    omf::decode_end(payload).map(Some)
                }
            }
        });
        let dropped = decoded.map_err(|what| self.damaged(what))?;
        self.input.consume(size);
        if let Some(dropped) = dropped {
            if !self.input.fill(1)?.is_empty() {
                return Err(self.damaged("bytes follow the end of the trace".to_owned()));
            }
            self.state = State::Ended { dropped };
        }
        Ok(Some(()))
    }
}

impl Decode for CompactDecoder {
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool> {
        if !self.begun {
            let bytes = self.input.fill(omf::FILE_HEADER)?;
            let header = &bytes[..bytes.len().min(omf::FILE_HEADER)];
            omf::decode_file_header(header).map_err(|what| self.damaged(what))?;
            self.input.consume(omf::FILE_HEADER);
            self.begun = true;
        }
        while matches!(self.state, State::Reading) {
            let before = batch.len();
            if self.chunk(names, batch)?.is_none() {
                self.state = State::Cut;
            }
            if batch.len() > before {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn remarks(&self) -> Vec<String> {
        let path = self.input.path().display();
        match self.state {
            State::Cut => vec![format!(
                "{path}: the trace has no end: it was cut or is being written; {} requests are whole",
                self.requests
            )],
            State::Ended { dropped } if dropped > 0 => {
                vec![format!("{path}: {dropped} requests got lost while it was recorded")]
            }
            _ => Vec::new(),
        }
    }
}
