//! A value block in use: records that lie on a medium, and reading one of them.
//!
//! Log segments are value blocks too; `log/tail.rs` writes those, `writer.rs` the others. A block is freed when the last
//! kvset, memtable or log that refers to it lets go of it.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;
use esker_device::Op;

use crate::media::buffers;
use crate::media::class::{Allocation, Media};
use crate::omf::frame::{StoredRecord, record_size};
use crate::omf::packed::{Codec, Packed};
use crate::omf::page::Stored;
use crate::omf::{Malformed, expect};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::ids::{BlockId, KvsId, RecordAddress, Seqno};
use crate::types::stream::Stream;
use crate::values::budget::WindowBudget;
use crate::values::cache::RecordCache;
use crate::values::cache::record::{Origin, RecordKey, Sought, Version};
use crate::values::compression::Unpacker;

/// A block of records in use.
pub(crate) struct ValueBlock {
    pub(crate) id: BlockId,
    pub(crate) allocation: Allocation,
    /// Bytes of records in it; 0 for a log segment.
    pub(crate) bytes: u64,
    /// Size of these records with no value compressed.
    pub(crate) plain_bytes: u64,
}

impl ValueBlock {
    pub(crate) fn media(&self) -> &Arc<Media> {
        &self.allocation.media
    }

    pub(crate) fn extent(&self) -> &Extent {
        &self.allocation.extent
    }

    /// Size of `live` bytes of its records with no value compressed, if they are like all.
    pub(crate) fn plain_part(&self, live: u64) -> u64 {
        if self.plain_bytes == self.bytes {
            return live;
        }
        let part = u128::from(live) * u128::from(self.plain_bytes) / u128::from(self.bytes.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// Refuses a reference beyond its end.
    pub(crate) fn check_place(&self, key_size: usize, stored: &Stored) -> Result<(), String> {
        let size = record_size(key_size, to_usize(stored.value_size.into())) as u64;
        let (end, room) = (u64::from(stored.offset) + size, self.allocation.bytes());
        if end > room {
            return Err(format!("a record up to byte {end} of block {}, of {room}", self.id));
        }
        Ok(())
    }

    /// Whether it is a segment of the log.
    pub(crate) fn is_log(&self) -> bool {
        self.bytes == 0
    }

    /// The log's, which is that of all young values, or old values'.
    pub(crate) fn stream(&self) -> Stream {
        self.allocation.stream
    }

    /// Reads the record at `offset` with one device read, verifies it, checks that it is the one
    /// of `key`, and hands its value to `read`.
    pub(crate) fn read<R>(
        &self,
        kvs: KvsId,
        key: &[u8],
        offset: u32,
        value_size: u32,
        read: impl FnOnce(Packed<'_>) -> Result<R>,
    ) -> Result<R> {
        let size = record_size(key.len(), to_usize(value_size.into()));
        let (buf, skip) = self.allocation.read_at(offset.into(), size)?;
        self.verify(&buf[skip..skip + size], kvs, key, offset).and_then(read)
    }

    /// The value of the record that `bytes` are, after checking that it is the one of `key`, and as large:
    /// in place of a write that was lost there may be an older one of the same key.
    pub(crate) fn verify<'a>(
        &self,
        bytes: &'a [u8],
        kvs: KvsId,
        key: &[u8],
        offset: u32,
    ) -> Result<Packed<'a>> {
        let record = StoredRecord::decode(bytes).and_then(|record| {
            expect((record.kvs, record.key) == (kvs, key), || {
                format!(
                    "the record of another key was found at offset {offset} of block {}",
                    self.id
                )
            })?;
            let size = record_size(key.len(), record.value.bytes.len());
            expect(size == bytes.len(), || {
                let wanted = bytes.len();
                format!("a record of {size} bytes was found where one of {wanted} was expected")
            })?;
            Ok(record.value)
        });
        record.map_err(|malformed| self.corrupt_record(offset, malformed))
    }

    pub(crate) fn corrupt_record(&self, offset: u32, malformed: Malformed) -> KvError {
        let (lba, ..) = self.allocation.span(offset.into(), 1);
        self.media().corrupt("record", lba, malformed.0)
    }
}

/// The values of a KVDB.
pub(crate) struct Values {
    pub(crate) cache: RecordCache,
    pub(crate) unpacker: Unpacker,
    /// For cursors.
    pub(crate) windows: WindowBudget,
}

impl Values {
    /// The values of a KVDB with a budget of `memory_bytes`, none of them cached.
    pub(crate) fn new(memory_bytes: u64) -> Values {
        let (cache, unpacker) = (RecordCache::new(0), Unpacker::default());
        Values { cache, unpacker, windows: WindowBudget::of(memory_bytes) }
    }

    /// Writes the value of a record to `out`.
    pub(crate) fn read(&self, one: &Wanted<'_>, out: &mut Vec<u8>) -> Result<()> {
        let (key, version) = (&one.key, one.version());
        if self.cache.get(key.hash(), version.address, one.age, out) {
            return Ok(());
        }
        let Stored { offset, value_size, .. } = one.stored;
        one.block.read(key.kvs, key.key, offset, value_size, |packed| {
            self.unpack(one.block, offset, packed, out)
        })?;
        self.cache.insert(key, &version, &[out], Origin::Medium);
        Ok(())
    }

    /// Writes the value of a record of `block`, at `offset`, to `out`.
    pub(crate) fn unpack(
        &self,
        block: &ValueBlock,
        offset: u32,
        packed: Packed<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let unpacked = self.unpacker.unpack(packed, out);
        unpacked.map_err(|malformed| block.corrupt_record(offset, malformed))
    }

    /// Hands the value of each record to `each`, with the record's index. Those that are not cached are
    /// read many at a time, in the order in which they lie.
    pub(crate) fn read_many(
        &self,
        wanted: Vec<Wanted<'_>>,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let mut missing = self.cached(wanted, &mut each);
        missing.sort_unstable_by_key(|one| {
            (one.block.media().class, one.block.extent().lba, one.stored.offset)
        });
        let pieces: Vec<Piece<'_>> = missing.iter().map(Wanted::piece).collect();
        read_pieces(&pieces, |n, buf, skip| {
            let one = &missing[n];
            self.take(one, &buf[skip..skip + one.size()], Origin::Medium, &mut each)
        })
    }

    /// Hands the values that are cached to `each`; returns the others.
    pub(crate) fn cached<'w>(
        &self,
        mut wanted: Vec<Wanted<'w>>,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Vec<Wanted<'w>> {
        let sought = |one: &Wanted<'_>| {
            let (hash, address) = (one.key.hash(), one.version().address);
            Sought { hash, address, age: one.age }
        };
        let all: Vec<Sought> = wanted.iter().map(sought).collect();
        let mut missing = vec![true; wanted.len()];
        self.cache.with_many(&all, |at, value| {
            missing[at] = false;
            each(wanted[at].index, value);
        });
        let mut missing = missing.into_iter();
        wanted.retain(|_| missing.next().expect("one for each"));
        wanted
    }

    /// Verifies a record that was read, caches its value and hands it to `each`.
    pub(crate) fn take(
        &self,
        one: &Wanted<'_>,
        record: &[u8],
        source: Origin,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let offset = one.stored.offset;
        let packed = one.block.verify(record, one.key.kvs, one.key.key, offset)?;
        let mut unpacked = Vec::new();
        let value = match packed.codec {
            Codec::None => packed.bytes,
            Codec::Lz4 | Codec::Zstd => {
                self.unpack(one.block, offset, packed, &mut unpacked)?;
                &unpacked
            }
        };
        self.cache.insert(&one.key, &one.version(), &[value], source);
        each(one.index, value);
        Ok(())
    }
}

/// Bytes of a block that are to be read.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) block: &'a Arc<ValueBlock>,
    pub(crate) start: u64,
    pub(crate) size: usize,
}

impl Piece<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.size as u64
    }
}

/// Reads pieces, many at a time, and hands each one's index to `each` with the buffer it is in and where
/// it begins there.
pub(crate) fn read_pieces(
    pieces: &[Piece<'_>],
    mut each: impl FnMut(usize, AlignedBuf, usize) -> Result<()>,
) -> Result<()> {
    for class in MediaClass::ALL {
        let mut together = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let (allocation, media) = (&piece.block.allocation, piece.block.media());
            if media.class != class {
                continue;
            }
            let (lba, skip, bytes) = allocation.span(piece.start, piece.size);
            if bytes > media.transfer.largest() {
                let (buf, skip) = allocation.read_at(piece.start, piece.size)?;
                each(n, buf, skip)?;
            } else {
                together.push((n, lba, skip, bytes));
            }
        }
        let Some(media) = together.first().map(|&(n, ..)| pieces[n].block.media()) else {
            continue;
        };
        let reads = together.iter().map(|&(n, lba, _, bytes)| {
            media.count_read(pieces[n].block.stream(), 1, bytes);
            Op::Read { lba, buf: buffers::take(bytes) }
        });
        let mut failed: Result<()> = Ok(());
        media.ports.port()?.run_all(reads, |at, result| {
            let (n, _, skip, _) = together[at];
            let done = result
                .map_err(KvError::from)
                .and_then(|buf| each(n, buf.expect("a read carries a buffer"), skip));
            if failed.is_ok() {
                failed = done;
            }
        })?;
        failed?;
    }
    Ok(())
}

/// A record to be read.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Which of the caller's.
    pub(crate) index: usize,
    pub(crate) block: &'a Arc<ValueBlock>,
    pub(crate) key: RecordKey<'a>,
    pub(crate) stored: Stored,
    /// That of the tree in which it is the newest of its key; 0 when nobody knows that it is.
    pub(crate) age: Seqno,
}

impl<'a> Wanted<'a> {
    /// Its version for the cache.
    fn version(&self) -> Version {
        let address = RecordAddress { block: self.block.id, offset: self.stored.offset };
        Version { address, age: self.age, expires: !self.stored.expiry.is_never() }
    }

    /// Bytes of the record.
    pub(crate) fn size(&self) -> usize {
        record_size(self.key.key.len(), to_usize(self.stored.value_size.into()))
    }

    /// The record's place.
    pub(crate) fn piece(&self) -> Piece<'a> {
        Piece { block: self.block, start: self.stored.offset.into(), size: self.size() }
    }
}
