//! The log's frames in a file that is mapped: those that no flush has taken outlive a process that is killed, because
//! the kernel has them. They do not outlive the machine, so they are read back during one boot only.
//!
//! The file is `tail.esker` beside the manifest, while the KVDB is open to write. Its head, 512 words of 8 bytes in the
//! byte order of the machine:
//!
//! | word | name | meaning |
//! | --- | --- | --- |
//! | 0 | magic | `ESKTAIL1`; stored last |
//! | 1 | piece_size | bytes |
//! | 2, 3 | uuid | of the KVDB |
//! | 4, 5 | boot | the kernel's id of this boot |
//! | 6 | segment | id of the newest log segment that frames are meant for; all ones while they are written anew |
//! | 8 + 2n | first_seqno | of the first record of piece n |
//! | 9 + 2n | filled | low half: bytes of the piece, the frame's header included; high half: how many records |
//!
//! The pieces follow. Each has the room of a frame's header and records as in the log, whose own checksums tell damage.
//!
//! Invariants
//! 1. A batch is counted in `filled` when all of it is in its piece.
//! 2. A piece is in use until its frame is durable. One that is free may hold records: durable ones.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use esker_base::buf::kept::{HEAD, KeptFile};
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, files};

use crate::omf::Malformed;
use crate::omf::frame::{HEADER_SIZE, Record};
use crate::sync::atomic::Ordering;
use crate::types::error::{KvError, Result};
use crate::types::ids::{BlockId, Seqno};

const MAGIC: u64 = u64::from_ne_bytes(*b"ESKTAIL1");
const WORDS: usize = HEAD / 8;
const SEGMENT: usize = 6;
const PIECES: usize = 8;
/// As many as the head has words for.
const PIECES_MOST: u64 = (WORDS as u64 - PIECES as u64) / 2;
const WRITTEN_ANEW: u64 = u64::MAX;

/// The file's name in the directory of a KVDB.
const FILE: &str = "tail.esker";

/// The file that new frames are built in.
pub(crate) struct KeptFrames {
    file: KeptFile,
    path: PathBuf,
}

/// Number of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceId(usize);

impl KeptFrames {
    /// Makes the file in `dir`, with pieces of `frame_bytes` of records, as many as `limit` bytes take while they are not
    /// durable. `None` where that cannot be: on a file system that does not keep its promise of space, without space, or
    /// with a limit that is too large.
    pub(crate) fn create(
        dir: &Path,
        uuid: [u8; 16],
        (frame_bytes, limit): (u64, u64),
    ) -> Option<KeptFrames> {
        let piece = (frame_bytes + HEADER_SIZE as u64).next_multiple_of(4096);
        // Beside full ones: one that is filled, one in each of two flushes, and one that a segment's end has cut off.
        let pieces = limit / frame_bytes + 4;
        let boot = boot()?;
        if pieces > PIECES_MOST {
            return None;
        }
        let path = dir.join(FILE);
        let file = files::create_private(&path).ok()?;
        let Ok(file) = KeptFile::map(&file, to_usize(piece), to_usize(pieces)) else {
            remove_left(dir);
            return None;
        };
        let words = [piece].into_iter().chain(halves(uuid)).chain(halves(boot));
        for (word, value) in file.words()[1..].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        file.words()[0].store(MAGIC, Ordering::Release);
        Some(KeptFrames { file, path })
    }

    /// A piece for a frame that begins with `first`; `None` when all are in use.
    pub(crate) fn take(&self, first: Seqno) -> Option<(PieceId, AlignedBuf)> {
        let (number, buf) = self.file.take()?;
        let words = &self.file.words()[PIECES + 2 * number..];
        words[1].store(0, Ordering::Release);
        words[0].store(first.0, Ordering::Release);
        Some((PieceId(number), buf))
    }

    /// Counts what a piece holds: all before `used`, so many records.
    pub(crate) fn fill(&self, PieceId(number): PieceId, used: usize, records: u32) {
        let used = u32::try_from(used).expect("frames are below 4 GiB");
        let filled = u64::from(records) << 32 | u64::from(used);
        self.file.words()[PIECES + 2 * number + 1].store(filled, Ordering::Release);
    }

    /// Notes the segment that further frames are meant for.
    pub(crate) fn goes_on_in(&self, segment: BlockId) {
        self.file.words()[SEGMENT].store(segment.0, Ordering::Release);
    }

    /// Whether a buffer is a piece.
    pub(crate) fn has(&self, buf: &AlignedBuf) -> bool {
        self.file.has(buf)
    }

    /// Overwrites the pieces that are not in use, which hold durable records.
    pub(crate) fn erase_free(&self) {
        let mut free: Vec<AlignedBuf> =
            std::iter::from_fn(|| self.file.take()).map(|(_, buf)| buf).collect();
        for buf in &mut free {
            buf.set_len(buf.capacity());
            buf.fill(0);
        }
    }

    /// Bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes() as u64
    }

    /// Removes the file: all is durable.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Frames that a killed process has left in the file.
pub(crate) struct LeftFrames {
    path: PathBuf,
    /// The newest segment that they were meant for.
    pub(crate) segment: BlockId,
    /// In the order of their seqnos.
    frames: Vec<LeftFrame>,
}

struct LeftFrame {
    first_seqno: Seqno,
    records: u32,
    payload: Vec<u8>,
}

impl LeftFrames {
    /// Reads the file in `dir`: `None` when there is none, or one of another boot or KVDB, or of nothing that is known.
    pub(crate) fn read(dir: &Path, uuid: [u8; 16]) -> Option<LeftFrames> {
        let path = dir.join(FILE);
        let file = files::open_in_place(&path, false).ok()?;
        let size = file.metadata().ok()?.len();
        let owner =
            |words: [[u64; 2]; 2]| Some(words) == boot().map(|boot| [uuid, boot].map(halves));
        LeftFrames::of(path, size, owner, |bytes, at| file.read_exact_at(bytes, at).ok())
    }

    /// Reads them from a file's content, of which `read` gives a part; `is_ours` is told the owner and the boot.
    fn of(
        path: PathBuf,
        size: u64,
        is_ours: impl Fn([[u64; 2]; 2]) -> bool,
        read: impl Fn(&mut [u8], u64) -> Option<()>,
    ) -> Option<LeftFrames> {
        let mut head = [0; HEAD];
        read(&mut head, 0)?;
        let word =
            |n: usize| u64::from_ne_bytes(head[8 * n..8 * n + 8].try_into().expect("8 bytes"));
        let is_ours = word(0) == MAGIC && is_ours([[word(2), word(3)], [word(4), word(5)]]);
        let piece = word(1);
        if !is_ours || piece == 0 {
            return None;
        }
        let pieces = (size.saturating_sub(HEAD as u64) / piece).min(PIECES_MOST);
        let mut frames = Vec::new();
        for number in 0..to_usize(pieces) {
            let (first_seqno, filled) = (word(PIECES + 2 * number), word(PIECES + 2 * number + 1));
            let used = filled & u64::from(u32::MAX);
            let records = u32::try_from(filled >> 32).expect("32 bits");
            if records == 0 || !(HEADER_SIZE as u64..=piece).contains(&used) {
                continue;
            }
            let mut payload = vec![0; to_usize(used) - HEADER_SIZE];
            let at = HEAD as u64 + number as u64 * piece + HEADER_SIZE as u64;
            read(&mut payload, at)?;
            frames.push(LeftFrame { first_seqno: Seqno(first_seqno), records, payload });
        }
        frames.sort_by_key(|frame| frame.first_seqno);
        Some(LeftFrames { path, segment: BlockId(word(SEGMENT)), frames })
    }

    /// Those in the bytes of a file, whoever it belongs to.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_bytes(content: &[u8]) -> Option<LeftFrames> {
        let read = |bytes: &mut [u8], at: u64| {
            let part = content.get(to_usize(at)..)?.get(..bytes.len())?;
            bytes.copy_from_slice(part);
            Some(())
        };
        LeftFrames::of(PathBuf::new(), content.len() as u64, |_| true, read)
    }

    /// Notes that they are going to be written anew, whatever segments that begins.
    pub(crate) fn are_written_anew(&self) -> Result<()> {
        let write = || {
            let file = files::open_in_place(&self.path, true)?;
            file.write_all_at(&WRITTEN_ANEW.to_ne_bytes(), 8 * SEGMENT as u64)
        };
        write().map_err(|error| KvError::of_file(&self.path, &error))
    }

    /// Hands the records behind `last` to `each`, those of a frame at a time, up to the first gap or damage.
    pub(crate) fn behind(
        &self,
        mut last: Seqno,
        mut each: impl FnMut(&[Record<'_>]) -> Result<()>,
    ) -> Result<()> {
        for LeftFrame { first_seqno, records, payload } in &self.frames {
            if *first_seqno > last.next() {
                break;
            }
            let end = first_seqno.plus(*records);
            let Some(known) = end.0.checked_sub(last.next().0).filter(|&left| left > 0) else {
                continue;
            };
            let known = u64::from(*records) - known;
            let Ok(decoded) = decode(payload, *records) else { break };
            each(&decoded[to_usize(known)..])?;
            last = Seqno(end.0 - 1);
        }
        Ok(())
    }

    /// Hands the sound records behind `last` to `each`, those of a frame at a time, and says how many seqnos are missing
    /// before them.
    pub(crate) fn all_behind(
        &self,
        mut last: Seqno,
        mut each: impl FnMut(u64, &[Record<'_>]) -> Result<()>,
    ) -> Result<()> {
        for LeftFrame { first_seqno, records, payload } in &self.frames {
            let end = first_seqno.plus(*records);
            let known = last.next().0.saturating_sub(first_seqno.0);
            if end <= last.next() {
                continue;
            }
            if let Ok(decoded) = decode(payload, *records) {
                let missing = first_seqno.0.saturating_sub(last.next().0);
                each(missing, &decoded[to_usize(known)..])?;
                last = Seqno(end.0 - 1);
            }
        }
        Ok(())
    }
}

/// Removes the file in `dir`, if there is one: what it held is durable, or of no use.
pub(crate) fn remove_left(dir: &Path) {
    let _ = std::fs::remove_file(dir.join(FILE));
}

fn decode(payload: &[u8], records: u32) -> Result<Vec<Record<'_>>, Malformed> {
    let mut at = 0;
    let mut next = |_| {
        let record = Record::decode(&payload[at..])?;
        at += record.size();
        Ok(record)
    };
    (0..records).map(&mut next).collect()
}

/// The kernel's id of this boot.
fn boot() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    Some(u128::from_str_radix(&digits, 16).ok()?.to_ne_bytes())
}

fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let [a, b] = [0, 8].map(|at| bytes[at..at + 8].try_into().expect("8 bytes"));
    [u64::from_ne_bytes(a), u64::from_ne_bytes(b)]
}
