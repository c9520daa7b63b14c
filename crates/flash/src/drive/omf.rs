//! The on-media format of a drive's image; the layout is drawn in `docs/format/ssd.md`.
//!
//! All integers are little-endian. Every structure carries a magic number, the epoch it belongs to
//! and a CRC-32C. Bytes that do not decode are an error that names the field.

use esker_base::checksum::crc32c;
use esker_base::codec::{Decoder, Encoder, Truncated};
use esker_base::units::to_u64;
use esker_device::fdp::Isolation;
use esker_device::occupant::ours;

use super::counts::{HostCounts, Totals};
use super::{Configuration, Extent, Media, NamespaceRecord, Parameters};
use crate::FlashError;
use crate::ftl::{
    Cleaning, CleaningPace, Event, Frontier, LogicalPage, MediaPage, PageCounts, Phase, UnitId,
    UnitRecord, Writer,
};
use crate::timing::{HostQueues, Suspension, Timing};

/// Bytes of a superblock, of a frame of the journal, and the alignment of everything.
pub(crate) const BLOCK: usize = 4096;
/// The version of this format. Those before are read as they are: the third has no rate of copies, those
/// before no queues of the host either, and the first one no writers that level wear.
const VERSION: u32 = 4;
const FIRST_VERSION: u32 = 1;
/// The first version with queues of the host, and the first one with a rate of copies.
const HOST_QUEUES: u32 = 3;
const COPY_RATE: u32 = 4;
const SUPERBLOCK: u64 = u64::from_le_bytes(*b"ESKRSSD1");
const CHECKPOINT: u64 = u64::from_le_bytes(*b"ESKRCKP1");
const FRAME: u32 = u32::from_le_bytes(*b"EFRM");
/// Bytes of an event.
const EVENT: usize = 16;
/// Bytes before the events of a frame.
const FRAME_HEADER: usize = 64;
/// Events that fit a frame, before its checksum.
pub(crate) const FRAME_EVENTS: usize = (BLOCK - FRAME_HEADER - 4) / EVENT;

const _: () = assert!(FRAME_HEADER + FRAME_EVENTS * EVENT + 4 <= BLOCK);

/// Parameters of a drive, and where its state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Counts superblocks written; the higher one of two is in force.
    pub(crate) sequence: u64,
    /// The epoch of the checkpoint and the journal in force.
    pub(crate) epoch: u64,
    /// Which of the two checkpoints.
    pub(crate) slot: u8,
    pub(crate) name: String,
    pub(crate) parameters: Parameters,
}

/// The whole state at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) configuration: Option<usize>,
    pub(crate) counts: PageCounts,
    /// Counts of the host's requests.
    pub(crate) host: HostCounts,
    /// Totals when the configuration was enabled.
    pub(crate) since: Totals,
    pub(crate) namespaces: Vec<NamespaceRecord>,
    pub(crate) units: Vec<UnitRecord>,
    pub(crate) map: Vec<MediaPage>,
    /// The die of each stripe, where the host chooses it; all ones for one that is in turn.
    pub(crate) dies: Vec<u16>,
}

/// Events, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) epoch: u64,
    /// Its number since the checkpoint, from 0.
    pub(crate) index: u32,
    /// The number of the first frame that was written between the same two flushes.
    pub(crate) commit: u32,
    /// Counts of the host's requests, after its events.
    pub(crate) host: HostCounts,
    pub(crate) events: Vec<Event>,
}

fn damaged(what: impl std::fmt::Display) -> FlashError {
    FlashError::Corrupt(format!("the image is damaged: {what}"))
}

impl From<Truncated> for FlashError {
    fn from(truncated: Truncated) -> FlashError {
        damaged(truncated)
    }
}

fn flag(value: bool) -> u8 {
    u8::from(value)
}

/// Appends the checksum of everything so far, and zeroes up to a whole block.
fn seal(mut encoder: Encoder) -> Vec<u8> {
    let crc = crc32c(&encoder.0);
    encoder.u32(crc);
    let mut bytes = encoder.0;
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// Checks the checksum that follows the bytes that `decoder` has read.
fn check_seal(decoder: &mut Decoder<'_>, bytes: &[u8], what: &str) -> Result<(), FlashError> {
    let end = decoder.offset();
    let found = decoder.u32("checksum")?;
    if crc32c(&bytes[..end]) == found { Ok(()) } else { Err(damaged(format!("{what}: checksum"))) }
}

impl Superblock {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, FlashError> {
        let mut e = Encoder::default();
        e.u64(SUPERBLOCK).u32(VERSION).u64(self.sequence).u64(self.epoch).u8(self.slot);
        if self.name.len() > 1000 {
            return Err(FlashError::Invalid("a drive's name has at most 1000 bytes".into()));
        }
        e.bytes16(self.name.as_bytes());
        put_parameters(&mut e, &self.parameters);
        let bytes = seal(e);
        if bytes.len() > BLOCK {
            return Err(FlashError::Invalid("too many configurations of data placement".into()));
        }
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Superblock, FlashError> {
        let mut d = Decoder::new(bytes);
        if d.u64("magic")? != SUPERBLOCK {
            let found = ours(bytes).map_or_else(String::new, |found| format!(", but {found}"));
            let why = format!("this is no image of a drive{found}; `esker ssd create` makes one");
            return Err(FlashError::Corrupt(why));
        }
        let version = d.u32("version")?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            let known = format!("{FIRST_VERSION} to {VERSION}");
            let why = format!("it has version {version}, this program knows {known}");
            return Err(FlashError::Corrupt(format!("the image cannot be read: {why}")));
        }
        let (sequence, epoch) = (d.u64("sequence")?, d.u64("epoch")?);
        let slot = d.u8("slot")?;
        let name = String::from_utf8(d.bytes16("name")?.to_vec()).map_err(damaged)?;
        let parameters = take_parameters(&mut d, version)?;
        check_seal(&mut d, bytes, "superblock")?;
        if slot > 1 {
            return Err(damaged(format!("there is no checkpoint {slot}")));
        }
        Ok(Superblock { sequence, epoch, slot, name, parameters })
    }
}

fn put_parameters(e: &mut Encoder, p: &Parameters) {
    e.u64(p.capacity).u32(p.lba_size).u32(p.page_size).u32(p.nand_page_size).u32(p.program_size);
    e.u64(p.unit_size).u32(p.units).u32(p.channels).u32(p.dies);
    e.u8(flag(p.media == Media::InPlace));
    let (kind, choices) = match p.cleaning {
        Cleaning::Greedy => (0, 0),
        Cleaning::Fifo => (1, 0),
        Cleaning::Choices(count) => (2, count),
        Cleaning::CostBenefit => (3, 0),
    };
    e.u8(kind).u32(choices).u8(flag(p.frontier == Frontier::Shared));
    e.u8(flag(p.pace == CleaningPace::WhenNeeded));
    e.u8(flag(p.wear_spread.is_some())).u32(p.wear_spread.unwrap_or(0));
    e.u32(p.rated_erasures).u32(p.max_namespaces);
    e.u16(u16::try_from(p.configurations.len()).unwrap_or(u16::MAX));
    for configuration in &p.configurations {
        let handles: Vec<u8> = configuration.handles.iter().map(|&h| isolation_byte(h)).collect();
        e.u16(configuration.groups).bytes16(&handles);
    }
    let t = &p.timing;
    let suspension = t.suspension.unwrap_or(Suspension { overhead_ns: 0, most: 0 });
    for value in [
        t.read_ns,
        t.program_ns,
        t.erase_ns,
        t.channel_bytes_per_s,
        t.link_read_bytes_per_s,
        t.link_write_bytes_per_s,
        t.read_firmware_ns,
        t.write_firmware_ns,
        t.commands_per_s,
        t.host_ns,
        t.buffer_bytes,
        suspension.overhead_ns,
    ] {
        e.u64(value);
    }
    e.u32(suspension.most).u8(flag(t.suspension.is_some()));
    e.u8(flag(t.cache_register)).u8(flag(t.reads_overtake));
    e.u8(flag(t.host_queues.is_some()));
    let none = HostQueues { window: 0, in_flight: 0, cached_pages: 0, copy_bytes_per_s: 0 };
    let queues = t.host_queues.unwrap_or(none);
    e.u32(queues.window).u32(queues.in_flight).u32(queues.cached_pages);
    e.u64(queues.copy_bytes_per_s);
    e.u64(t.copy_bytes_per_s);
}

fn take_queues(d: &mut Decoder<'_>) -> Result<Option<HostQueues>, FlashError> {
    let is_host = take_flag(d, "host queues")?;
    let (window, in_flight) = (d.u32("window")?, d.u32("in flight")?);
    let (cached_pages, copy_bytes_per_s) = (d.u32("cached pages")?, d.u64("copies")?);
    let queues = HostQueues { window, in_flight, cached_pages, copy_bytes_per_s };
    Ok(is_host.then_some(queues))
}

fn isolation_byte(isolation: Isolation) -> u8 {
    match isolation {
        Isolation::Initially => 1,
        Isolation::Persistently => 2,
    }
}

fn take_flag(d: &mut Decoder<'_>, what: &'static str) -> Result<bool, FlashError> {
    match d.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(damaged(format!("{what} is {other}, not 0 or 1"))),
    }
}

fn take_parameters(d: &mut Decoder<'_>, version: u32) -> Result<Parameters, FlashError> {
    let (capacity, lba_size) = (d.u64("capacity")?, d.u32("LBA size")?);
    let (page_size, nand_page_size) = (d.u32("page size")?, d.u32("NAND page size")?);
    let (program_size, unit_size) = (d.u32("program size")?, d.u64("unit size")?);
    let (units, channels, dies) = (d.u32("units")?, d.u32("channels")?, d.u32("dies")?);
    let media = if take_flag(d, "media")? { Media::InPlace } else { Media::Flash };
    let (kind, choices) = (d.u8("cleaning")?, d.u32("choices")?);
    let cleaning = match kind {
        0 => Cleaning::Greedy,
        1 => Cleaning::Fifo,
        2 => Cleaning::Choices(choices),
        3 => Cleaning::CostBenefit,
        other => return Err(damaged(format!("cleaning {other} is unknown"))),
    };
    let frontier = if take_flag(d, "frontier")? { Frontier::Shared } else { Frontier::Separate };
    let is_late = take_flag(d, "pace")?;
    let pace = if is_late { CleaningPace::WhenNeeded } else { CleaningPace::Steady };
    let is_levelled = take_flag(d, "wear levelling")?;
    let spread = d.u32("wear spread")?;
    let (rated_erasures, max_namespaces) = (d.u32("rated erasures")?, d.u32("namespaces")?);
    let mut configurations = Vec::new();
    for _ in 0..d.u16("configurations")? {
        let groups = d.u16("groups")?;
        let handles = d.bytes16("handles")?.iter().map(|&byte| match byte {
            1 => Ok(Isolation::Initially),
            2 => Ok(Isolation::Persistently),
            other => Err(damaged(format!("isolation {other} is unknown"))),
        });
        configurations.push(Configuration { groups, handles: handles.collect::<Result<_, _>>()? });
    }
    let mut values = [0; 12];
    for value in &mut values {
        *value = d.u64("timing")?;
    }
    let most = d.u32("suspensions")?;
    let may_suspend = take_flag(d, "suspension")?;
    let (cache_register, reads_overtake) =
        (take_flag(d, "cache register")?, take_flag(d, "reads overtake")?);
    let host_queues = if version >= HOST_QUEUES { take_queues(d)? } else { None };
    let copy_bytes_per_s = if version >= COPY_RATE { d.u64("copy rate")? } else { 0 };
    let timing = Timing {
        read_ns: values[0],
        program_ns: values[1],
        erase_ns: values[2],
        channel_bytes_per_s: values[3],
        link_read_bytes_per_s: values[4],
        link_write_bytes_per_s: values[5],
        read_firmware_ns: values[6],
        write_firmware_ns: values[7],
        commands_per_s: values[8],
        host_ns: values[9],
        buffer_bytes: values[10],
        suspension: may_suspend.then_some(Suspension { overhead_ns: values[11], most }),
        cache_register,
        reads_overtake,
        host_queues,
        copy_bytes_per_s,
    };
    let wear_spread = is_levelled.then_some(spread);
    Ok(Parameters {
        capacity,
        lba_size,
        page_size,
        nand_page_size,
        program_size,
        unit_size,
        units,
        channels,
        dies,
        media,
        cleaning,
        frontier,
        pace,
        wear_spread,
        rated_erasures,
        configurations,
        max_namespaces,
        timing,
    })
}

fn put_totals(e: &mut Encoder, totals: &Totals) {
    e.u64(totals.host).u64(totals.media).u64(totals.erased);
}

fn take_totals(d: &mut Decoder<'_>) -> Result<Totals, FlashError> {
    let (host, media) = (d.u64("host bytes")?, d.u64("media bytes")?);
    Ok(Totals { host, media, erased: d.u64("erased bytes")? })
}

fn put_commands(e: &mut Encoder, host: &HostCounts) {
    e.u64(host.reads).u64(host.writes).u64(host.read_bytes);
}

fn take_commands(d: &mut Decoder<'_>, written_bytes: u64) -> Result<HostCounts, FlashError> {
    let (reads, writes) = (d.u64("reads")?, d.u64("writes")?);
    Ok(HostCounts { reads, writes, read_bytes: d.u64("read bytes")?, written_bytes })
}

fn put_writer(e: &mut Encoder, writer: Writer) {
    let (kind, handle) = match writer {
        Writer::Host(handle) => (0, handle),
        Writer::Cleaning => (1, 0),
        Writer::CleaningOf(handle) => (2, handle),
        Writer::Levelling => (3, 0),
        Writer::LevellingOf(handle) => (4, handle),
    };
    e.u8(kind).u16(handle);
}

fn take_writer(d: &mut Decoder<'_>) -> Result<Writer, FlashError> {
    let (kind, handle) = (d.u8("writer")?, d.u16("handle")?);
    match kind {
        0 => Ok(Writer::Host(handle)),
        1 => Ok(Writer::Cleaning),
        2 => Ok(Writer::CleaningOf(handle)),
        3 => Ok(Writer::Levelling),
        4 => Ok(Writer::LevellingOf(handle)),
        other => Err(damaged(format!("writer {other} is unknown"))),
    }
}

impl Checkpoint {
    /// The most bytes that a checkpoint of this drive takes.
    pub(crate) fn most_bytes(parameters: &Parameters, pages: u32) -> u64 {
        let units = match parameters.media {
            Media::Flash => u64::from(parameters.units),
            Media::InPlace => 0,
        };
        let namespaces = u64::from(parameters.max_namespaces) * (32 + 2 * 128);
        let stripes = match parameters.timing.host_queues {
            Some(_) => units * u64::from(parameters.unit_stripes()),
            None => 0,
        };
        let bytes = 256 + namespaces + units * 24 + u64::from(pages) * 4 + stripes * 2;
        bytes.next_multiple_of(BLOCK as u64)
    }

    pub(crate) fn encode(&self, epoch: u64) -> Result<Vec<u8>, FlashError> {
        let mut e = Encoder::default();
        e.u64(CHECKPOINT).u64(epoch).u64(0);
        let length = |length: usize| {
            u32::try_from(length).map_err(|_| FlashError::Invalid("the drive is too large".into()))
        };
        e.u32(self.configuration.map_or(Ok(u32::MAX), length)?);
        let PageCounts { host, copied, erased, trimmed } = self.counts;
        e.u64(host).u64(copied).u64(erased).u64(trimmed);
        e.u64(self.host.written_bytes);
        put_totals(&mut e, &self.since);
        e.u32(length(self.namespaces.len())?);
        for namespace in &self.namespaces {
            e.u32(namespace.id).u32(namespace.pages.first.0).u32(namespace.pages.count);
            e.u8(flag(namespace.is_host_specified))
                .u16(u16::try_from(namespace.handles.len()).unwrap_or(u16::MAX));
            namespace.handles.iter().for_each(|&handle| {
                e.u16(handle);
            });
        }
        e.u32(length(self.units.len())?);
        for unit in &self.units {
            let phase = match unit.phase {
                Phase::Free => 0,
                Phase::Open => 1,
                Phase::Closed => 2,
            };
            e.u8(phase);
            put_writer(&mut e, unit.writer);
            e.u32(unit.erasures).u64(unit.closed_at).u32(unit.next);
        }
        e.u32(length(self.map.len())?);
        for &at in &self.map {
            e.u32(at.0);
        }
        e.u32(length(self.dies.len())?);
        for &die in &self.dies {
            e.u16(die);
        }
        put_commands(&mut e, &self.host);
        let size = e.0.len() as u64 + 4;
        e.0[16..24].copy_from_slice(&size.to_le_bytes());
        Ok(seal(e))
    }

    /// How many bytes the checkpoint of an epoch has, by the first block of it: to be compared with
    /// how many it may have.
    pub(crate) fn size(bytes: &[u8], epoch: u64) -> Result<u64, FlashError> {
        let mut d = Decoder::new(bytes);
        if d.u64("magic")? != CHECKPOINT || d.u64("epoch")? != epoch {
            return Err(damaged("the checkpoint is not the one that the superblock names"));
        }
        Ok(d.u64("size")?)
    }

    pub(crate) fn decode(bytes: &[u8], epoch: u64) -> Result<Checkpoint, FlashError> {
        Checkpoint::size(bytes, epoch)?;
        let mut d = Decoder::new(bytes);
        d.bytes(24, "header")?;
        let configuration = d.u32("configuration")?;
        let configuration = (configuration != u32::MAX).then_some(configuration as usize);
        let (host_pages, copied) = (d.u64("host pages")?, d.u64("copied pages")?);
        let (erased, trimmed) = (d.u64("erased pages")?, d.u64("trimmed pages")?);
        let (written_bytes, since) = (d.u64("host bytes")?, take_totals(&mut d)?);
        let mut namespaces = Vec::new();
        for _ in 0..d.u32("namespaces")? {
            let id = d.u32("namespace")?;
            let pages = Extent { first: LogicalPage(d.u32("first page")?), count: d.u32("pages")? };
            let is_host_specified = take_flag(&mut d, "host specified")?;
            let mut handles = Vec::new();
            for _ in 0..d.u16("handles")? {
                handles.push(d.u16("handle")?);
            }
            namespaces.push(NamespaceRecord { id, birth: 0, pages, handles, is_host_specified });
        }
        let mut units = Vec::new();
        for _ in 0..d.u32("units")? {
            let phase = match d.u8("phase")? {
                0 => Phase::Free,
                1 => Phase::Open,
                2 => Phase::Closed,
                other => return Err(damaged(format!("phase {other} is unknown"))),
            };
            let writer = take_writer(&mut d)?;
            let (erasures, closed_at) = (d.u32("erasures")?, d.u64("closed at")?);
            units.push(UnitRecord { phase, writer, erasures, closed_at, next: d.u32("next")? });
        }
        let pages = d.u32("map")? as usize;
        let entries = d.bytes(pages.saturating_mul(4), "map")?;
        let (entries, _) = entries.as_chunks();
        let map = entries.iter().map(|&entry| MediaPage(u32::from_le_bytes(entry))).collect();
        // Versions without queues of the host end here.
        let rest = Checkpoint::size(bytes, epoch)?.saturating_sub(to_u64(d.offset()));
        let mut dies = Vec::new();
        let mut host = HostCounts { written_bytes, ..HostCounts::default() };
        if rest > 4 {
            let count = d.u32("dies")? as usize;
            let entries = d.bytes(count.saturating_mul(2), "dies")?;
            let (entries, _) = entries.as_chunks();
            dies.extend(entries.iter().map(|&entry| u16::from_le_bytes(entry)));
            host = take_commands(&mut d, written_bytes)?;
        }
        check_seal(&mut d, bytes, "checkpoint")?;
        let counts = PageCounts { host: host_pages, copied, erased, trimmed };
        Ok(Checkpoint { configuration, counts, host, since, namespaces, units, map, dies })
    }
}

impl Frame {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.u32(FRAME).u32(self.index).u64(self.epoch).u64(self.host.written_bytes);
        e.u32(u32::try_from(self.events.len()).unwrap_or(u32::MAX)).u32(self.commit);
        put_commands(&mut e, &self.host);
        e.0.resize(FRAME_HEADER, 0);
        for event in &self.events {
            let start = e.0.len();
            match *event {
                Event::Open { unit, writer } => {
                    put_writer(e.u8(1), writer);
                    e.u32(unit.0);
                }
                Event::Program { page, at, count } => put_run(&mut e, 2, page.0, at.0, count),
                Event::Copy { page, at, count } => put_run(&mut e, 3, page.0, at.0, count),
                Event::Close { unit } => put_run(&mut e, 4, unit.0, 0, 0),
                Event::Erase { unit } => put_run(&mut e, 5, unit.0, 0, 0),
                Event::Trim { page, count } => put_run(&mut e, 6, page.0, 0, count),
                Event::Place { stripe, die } => put_run(&mut e, 7, stripe, u32::from(die), 0),
            }
            e.0.resize(start + EVENT, 0);
        }
        e.0.resize(BLOCK - 4, 0);
        seal(e)
    }

    /// The frame in a block, if there is one of this epoch and number, and undamaged. Anything else
    /// is where the journal ends.
    ///
    /// # Errors
    /// When it is undamaged, and yet has impossible content.
    pub(crate) fn decode(
        bytes: &[u8],
        epoch: u64,
        index: u32,
    ) -> Result<Option<Frame>, FlashError> {
        let mut d = Decoder::new(bytes);
        let is_it =
            d.u32("magic")? == FRAME && d.u32("index")? == index && d.u64("epoch")? == epoch;
        if !is_it {
            return Ok(None);
        }
        let Some((meant, sum)) = bytes.split_at_checked(BLOCK - 4) else {
            return Ok(None);
        };
        if crc32c(meant) != Decoder::new(sum).u32("checksum")? {
            return Ok(None);
        }
        let written_bytes = d.u64("host bytes")?;
        let (count, commit) = (d.u32("count")? as usize, d.u32("commit")?);
        if count > FRAME_EVENTS || commit > index {
            return Err(damaged(format!("frame {index}: {count} events from commit {commit}")));
        }
        // Zeroes in versions without them.
        let host = take_commands(&mut d, written_bytes)?;
        let (events, _) = meant[FRAME_HEADER..FRAME_HEADER + count * EVENT].as_chunks::<EVENT>();
        let events = events.iter().map(|event| decode_event(event)).collect::<Result<_, _>>()?;
        Ok(Some(Frame { epoch, index, commit, host, events }))
    }
}

fn put_run(e: &mut Encoder, kind: u8, a: u32, b: u32, c: u32) {
    e.u8(kind).bytes(&[0; 3]).u32(a).u32(b).u32(c);
}

fn decode_event(bytes: &[u8]) -> Result<Event, FlashError> {
    let mut d = Decoder::new(bytes);
    let kind = d.u8("kind")?;
    if kind == 1 {
        let writer = take_writer(&mut d)?;
        return Ok(Event::Open { unit: UnitId(d.u32("unit")?), writer });
    }
    d.bytes(3, "reserved")?;
    let (a, b, c) = (d.u32("page")?, d.u32("at")?, d.u32("count")?);
    match kind {
        2 => Ok(Event::Program { page: LogicalPage(a), at: MediaPage(b), count: c }),
        3 => Ok(Event::Copy { page: LogicalPage(a), at: MediaPage(b), count: c }),
        4 => Ok(Event::Close { unit: UnitId(a) }),
        5 => Ok(Event::Erase { unit: UnitId(a) }),
        6 => Ok(Event::Trim { page: LogicalPage(a), count: c }),
        7 => match u16::try_from(b) {
            Ok(die) => Ok(Event::Place { stripe: a, die }),
            Err(_) => Err(damaged(format!("there is no die {b}"))),
        },
        other => Err(damaged(format!("event {other} is unknown"))),
    }
}

#[cfg(test)]
pub(crate) mod tests;
