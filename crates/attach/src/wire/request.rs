//! Requests.
//!
//! | offset | size | header | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | len | of the whole request |
//! | 4 | 4 | opcode | see [`Request`] |
//! | 8 | 8 | unique | the name of the request, which the reply carries |
//! | 16 | 8 | nodeid | the node it is about |
//! | 24 | 16 | uid, gid, pid, extensions | not used |

use esker_base::codec::{Decoder, Truncated};
use esker_base::units::to_u64;
use thiserror::Error;

/// Bytes of a request's header.
const HEADER_SIZE: usize = 40;
/// Bytes that stand before the data of a write.
pub(crate) const HEAD_SIZE: usize = HEADER_SIZE + 40;

const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 16;
const FATTR_SIZE: u32 = 1 << 3;
/// Access, modification and change time, "now", and bits that only accompany others (handle, owner of
/// a lock).
const FATTR_TIMES: u32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10;
/// `O_DSYNC`, which `O_SYNC` contains.
const O_DSYNC: u32 = 0o10000;
const O_ACCMODE: u32 = 3;

/// Why bytes are no request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Truncated(#[from] Truncated),
    #[error("the header says {said} bytes, and there are {got}")]
    Length { said: u32, got: usize },
    #[error("a write says {said} bytes, and carries {got}")]
    Data { said: u32, got: usize },
    #[error("a name without an end")]
    Name,
}

/// Header that every request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its name; 0 in none that wants a reply.
    pub(crate) unique: u64,
    /// The node it is about: 1 is the directory.
    pub(crate) node: u64,
}

/// AttributeChange to a file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttributeChange {
    /// Nothing but times.
    Times,
    /// Its size, in bytes.
    Size(u64),
    /// Owner or mode.
    Other,
}

/// The first request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitRequest {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
}

/// A request. Offsets and sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Init(InitRequest),
    Lookup {
        name: &'a [u8],
    },
    Attributes,
    Set(AttributeChange),
    Open {
        writes: bool,
    },
    OpenDirectory,
    ReadDirectory {
        offset: u64,
        size: u32,
    },
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        size: u32,
        durable: bool,
    },
    Sync,
    /// Makes the range read as zeroes; `frees` when its content is not needed either.
    Zero {
        offset: u64,
        size: u64,
        frees: bool,
    },
    /// Makes sure that the range can be written.
    Allocate {
        offset: u64,
        size: u64,
    },
    StatFs,
    /// A name or a handle is no longer used; `Ok` is all there is to say.
    Release,
    /// No reply is wanted.
    Silent,
    /// The connection ends.
    Destroy,
    /// Known, and not done here for this argument.
    Refused,
    /// Not known; the kernel does without it.
    Unknown,
}

/// Decodes a request; `head` is its beginning and `data` the bytes that follow, if it is longer than
/// [`HEAD_SIZE`]. The data of a write stays where it is.
pub(crate) fn decode<'a>(
    head: &'a [u8],
    data_size: usize,
) -> Result<(Header, Request<'a>), WireError> {
    let mut d = Decoder::new(head);
    let (len, opcode) = (d.u32("len")?, d.u32("opcode")?);
    let (unique, node) = (d.u64("unique")?, d.u64("nodeid")?);
    d.bytes(HEADER_SIZE - d.offset(), "uid, gid and pid")?;
    let got = head.len() + data_size;
    if to_u64(got) != u64::from(len) {
        return Err(WireError::Length { said: len, got });
    }
    Ok((Header { unique, node }, body(opcode, &mut d, data_size)?))
}

fn body<'a>(opcode: u32, d: &mut Decoder<'a>, data_size: usize) -> Result<Request<'a>, WireError> {
    Ok(match opcode {
        1 => Request::Lookup { name: name(d)? },
        3 => Request::Attributes,
        4 => Request::Set(change(d)?),
        14 => Request::Open { writes: d.u32("flags")? & O_ACCMODE != 0 },
        15 | 28 => {
            d.u64("handle")?;
            let (offset, size) = (d.u64("offset")?, d.u32("size")?);
            match opcode {
                15 => Request::Read { offset, size },
                _ => Request::ReadDirectory { offset, size },
            }
        }
        16 => {
            d.u64("handle")?;
            let (offset, size) = (d.u64("offset")?, d.u32("size")?);
            d.u32("write flags")?;
            d.u64("owner of the lock")?;
            let flags = d.u32("flags")?;
            d.u32("padding")?;
            if to_u64(data_size) != u64::from(size) {
                return Err(WireError::Data { said: size, got: data_size });
            }
            Request::Write { offset, size, durable: flags & O_DSYNC != 0 }
        }
        17 => Request::StatFs,
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => Request::Silent,
        // RELEASE, RELEASEDIR, ACCESS
        18 | 29 | 34 => Request::Release,
        // FSYNC, FSYNCDIR
        20 => Request::Sync,
        30 => Request::Release,
        26 => Request::Init(InitRequest {
            major: d.u32("major")?,
            minor: d.u32("minor")?,
            max_readahead: d.u32("max_readahead").unwrap_or(0),
            flags: d.u32("flags").unwrap_or(0),
        }),
        27 => Request::OpenDirectory,
        38 => Request::Destroy,
        43 => {
            d.u64("handle")?;
            let (offset, size, mode) = (d.u64("offset")?, d.u64("length")?, d.u32("mode")?);
            match mode & !FALLOC_KEEP_SIZE {
                0 => Request::Allocate { offset, size },
                FALLOC_PUNCH_HOLE => Request::Zero { offset, size, frees: true },
                FALLOC_ZERO_RANGE => Request::Zero { offset, size, frees: false },
                _ => Request::Refused,
            }
        }
        _ => Request::Unknown,
    })
}

fn name<'a>(d: &mut Decoder<'a>) -> Result<&'a [u8], WireError> {
    let bytes = d.bytes(d.left(), "name")?;
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(WireError::Name)?;
    Ok(&bytes[..end])
}

fn change(d: &mut Decoder<'_>) -> Result<AttributeChange, WireError> {
    let valid = d.u32("valid")?;
    d.u32("padding")?;
    d.u64("handle")?;
    let size = d.u64("size")?;
    Ok(match valid {
        _ if valid & FATTR_SIZE != 0 => AttributeChange::Size(size),
        _ if valid & !FATTR_TIMES == 0 => AttributeChange::Times,
        _ => AttributeChange::Other,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use esker_base::codec::Encoder;
    use proptest::prelude::*;

    use super::*;

    /// A request with this body.
    pub(crate) fn request(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
        let mut e = Encoder::default();
        let len = u32::try_from(HEADER_SIZE + body.len()).unwrap();
        e.u32(len).u32(opcode).u64(unique).u64(node).bytes(&[0; 16]).bytes(body);
        e.0
    }

    /// The body of a read, or of a write without its data.
    pub(crate) fn transfer(offset: u64, size: usize, flags: u32) -> Vec<u8> {
        let mut e = Encoder::default();
        e.u64(7).u64(offset).u32(u32::try_from(size).unwrap()).u32(0).u64(0).u32(flags).u32(0);
        e.0
    }

    /// The body of a fallocate.
    pub(crate) fn allocate(offset: u64, size: u64, mode: u32) -> Vec<u8> {
        let mut e = Encoder::default();
        e.u64(7).u64(offset).u64(size).u32(mode).u32(0);
        e.0
    }

    #[test]
    fn requests_are_what_linux_fuse_h_says() {
        let ok = |opcode: u32, body: &[u8], data: usize| {
            let mut bytes = request(opcode, 5, 2, body);
            let len = u32::try_from(bytes.len() + data).unwrap();
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            let (header, request) = decode(bytes.leak(), data).unwrap();
            assert_eq!(header, Header { unique: 5, node: 2 });
            request
        };
        assert_eq!(ok(1, b"disk\0", 0), Request::Lookup { name: b"disk" });
        assert_eq!(ok(15, &transfer(4096, 512, 0), 0), Request::Read { offset: 4096, size: 512 });
        let write = ok(16, &transfer(1, 3, 0o10002), 3);
        assert_eq!(write, Request::Write { offset: 1, size: 3, durable: true });
        assert_eq!(HEAD_SIZE, HEADER_SIZE + transfer(0, 0, 0).len());
        let zero = |mode| ok(43, &allocate(8, 16, mode), 0);
        assert_eq!(zero(3), Request::Zero { offset: 8, size: 16, frees: true });
        assert_eq!(zero(16), Request::Zero { offset: 8, size: 16, frees: false });
        assert_eq!(zero(0), Request::Allocate { offset: 8, size: 16 });
        assert_eq!(zero(8), Request::Refused);
        assert_eq!(ok(14, &[2, 0, 0, 0, 0, 0, 0, 0], 0), Request::Open { writes: true });
        let mut set = [0; 88];
        set[0] = 1 << 5;
        assert_eq!(ok(4, &set, 0), Request::Set(AttributeChange::Times));
        (set[0], set[16]) = (1 << 3, 9);
        assert_eq!(ok(4, &set, 0), Request::Set(AttributeChange::Size(9)));
        assert_eq!(ok(999, &[], 0), Request::Unknown);
    }

    #[test]
    fn lengths_that_contradict_themselves_are_refused() {
        let bytes = request(15, 1, 2, &transfer(0, 1, 0));
        assert!(matches!(decode(&bytes, 1), Err(WireError::Length { .. })));
        let bytes = request(16, 1, 2, &transfer(0, 9, 0));
        assert!(matches!(decode(&bytes, 0), Err(WireError::Data { said: 9, got: 0 })));
        assert_eq!(decode(&request(1, 1, 1, b"disk"), 0), Err(WireError::Name));
        assert!(matches!(decode(&[1; 39], 0), Err(WireError::Truncated(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_an_error(
            opcode in 0u32..60, body in prop::collection::vec(any::<u8>(), 0..120), data in 0usize..9,
        ) {
            let _ = decode(&body, data);
            let mut bytes = request(opcode, 1, 1, &body);
            let _ = decode(&bytes, data);
            let len = u32::try_from(bytes.len() + data).unwrap();
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            let _ = decode(&bytes, data);
        }
    }
}
