//! The bytes of data placement as NVMe carries them: log pages, the status of handles, features
//! (NVM Express Base 2.1, 5.1.12.1.9 and 5.1.12.1.28 to 31; NVM Command Set 1.1, 3.3.5 and 3.3.6).
//!
//! A target that offers data placement encodes; a host that uses that of a drive decodes. Integers
//! are little-endian. Decoders take any bytes and never panic.
//!
//! | structure | size | log page |
//! | --- | --- | --- |
//! | endurance group information | 512 | 09h |
//! | configurations: header 16, descriptors 64 and 4 per handle | variable | 20h |
//! | handle usage: header 8, 8 per handle | variable | 21h |
//! | statistics | 64 | 22h |
//! | events: header 64, 64 per event | variable | 23h |
//! | handle status: header 16, 32 per handle | variable | I/O Management Receive, MO 1 |

pub mod command;

use esker_base::codec::{Decoder, Encoder, Truncated};
use esker_base::units::to_usize;
use esker_base::{Lba, LbaCount};

use super::{
    Configuration, Endurance, Event, EventType, HandleStatus, HandleUse, Isolation, Statistics,
};
use crate::PlacementId;

/// Bytes of the endurance group information.
pub const ENDURANCE_SIZE: usize = 512;
/// Bytes of the header of the configurations.
pub const CONFIGURATIONS_HEADER: usize = 16;
/// Bytes of a configuration before its handles.
pub const CONFIGURATION_SIZE: usize = 64;
/// Bytes of the statistics.
pub const STATISTICS_SIZE: usize = 64;
/// Bytes of an event, and of the header before events.
pub const EVENT_SIZE: usize = 64;
/// The most events in a log page.
pub const EVENTS_MAX: usize = 63;
/// Bytes of the header of the handle status.
pub const STATUS_HEADER: usize = 16;
/// Bytes of the status of one handle.
pub const STATUS_SIZE: usize = 32;

/// Bytes of one data unit, as log page 09h counts: a billion.
const DATA_UNIT: u128 = 1_000_000_000;

const RGIF_MASK: u8 = 0x0f;
const FDPVWC: u8 = 0x10;
const VALID: u8 = 0x80;

fn u128(e: &mut Encoder, value: u128) {
    e.bytes(&value.to_le_bytes());
}

fn take_u128(d: &mut Decoder<'_>, what: &'static str) -> Result<u128, Truncated> {
    Ok(u128::from_le_bytes(d.bytes(16, what)?.try_into().expect("16 bytes")))
}

fn pad(e: &mut Encoder, size: usize) {
    debug_assert!(e.0.len() <= size, "a structure fits its size");
    e.0.resize(size, 0);
}

fn low16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Log page 09h. The spare threshold is 10 %.
///
/// | offset | size | field |
/// | --- | --- | --- |
/// | 3, 4, 5 | 1 | available spare, its threshold, percentage used |
/// | 48, 64, 80 | 16 | data units read, written by the host, written to the media |
/// | 96, 112 | 16 | read and write commands of the host |
/// | 160, 176 | 16 | capacity, unallocated capacity, in bytes |
#[must_use]
pub fn encode_endurance(endurance: &Endurance) -> [u8; ENDURANCE_SIZE] {
    let mut e = Encoder::default();
    e.u8(0).u8(0).u8(0).u8(endurance.spare_percent).u8(10).u8(endurance.used_percent);
    pad(&mut e, 48);
    u128(&mut e, endurance.host_read_bytes.div_ceil(DATA_UNIT));
    u128(&mut e, endurance.host_written_bytes.div_ceil(DATA_UNIT));
    u128(&mut e, endurance.media_written_bytes.div_ceil(DATA_UNIT));
    u128(&mut e, endurance.host_reads);
    u128(&mut e, endurance.host_writes);
    pad(&mut e, 160);
    u128(&mut e, endurance.capacity_bytes);
    u128(&mut e, endurance.unallocated_bytes);
    pad(&mut e, ENDURANCE_SIZE);
    e.0.try_into().expect("512 bytes")
}

/// Decodes log page 09h. Bytes read and written come back in whole billions, rounded up.
///
/// # Errors
/// Fewer than 192 bytes.
pub fn decode_endurance(bytes: &[u8]) -> Result<Endurance, Truncated> {
    let mut d = Decoder::new(bytes);
    d.bytes(3, "reserved")?;
    let spare_percent = d.u8("available spare")?;
    d.u8("spare threshold")?;
    let used_percent = d.u8("percentage used")?;
    d.bytes(42, "reserved")?;
    let mut units = |what| Ok(take_u128(&mut d, what)?.saturating_mul(DATA_UNIT));
    let host_read_bytes = units("data units read")?;
    let host_written_bytes = units("data units written")?;
    let media_written_bytes = units("media units written")?;
    let host_reads = take_u128(&mut d, "read commands")?;
    let host_writes = take_u128(&mut d, "write commands")?;
    d.bytes(32, "errors")?;
    let capacity_bytes = take_u128(&mut d, "capacity")?;
    let unallocated_bytes = take_u128(&mut d, "unallocated capacity")?;
    Ok(Endurance {
        used_percent,
        spare_percent,
        host_read_bytes,
        host_written_bytes,
        media_written_bytes,
        host_reads,
        host_writes,
        capacity_bytes,
        unallocated_bytes,
    })
}

/// Log page 20h.
///
/// | offset | size | header |
/// | --- | --- | --- |
/// | 0 | 2 | N: configurations, 0's based |
/// | 2 | 1 | version: 0 |
/// | 4 | 4 | size of the log page |
///
/// | offset | size | descriptor |
/// | --- | --- | --- |
/// | 0 | 2 | size, a multiple of 8 |
/// | 2 | 1 | RGIF (3:0), FDPVWC (4), valid (7) |
/// | 4 | 4 | NRG |
/// | 8 | 2 | NRUH |
/// | 10 | 2 | MAXPIDS, 0's based |
/// | 12 | 4 | NNSS |
/// | 16 | 8 | RUNS |
/// | 24 | 4 | ERUTL |
/// | 64 | 4 each | RUHT: 1 initially, 2 persistently isolated |
///
/// # Panics
/// Without configurations.
#[must_use]
pub fn encode_configurations(configurations: &[Configuration]) -> Vec<u8> {
    let mut all = Encoder::default();
    for configuration in configurations {
        let mut e = Encoder::default();
        let size = CONFIGURATION_SIZE + 4 * configuration.handles.len();
        let size = size.next_multiple_of(8);
        let mut attributes = configuration.group_bits & RGIF_MASK;
        attributes |= if configuration.volatile_write_cache { FDPVWC } else { 0 };
        attributes |= if configuration.is_valid { VALID } else { 0 };
        e.u16(low16(size)).u8(attributes).u8(0).u32(configuration.reclaim_groups);
        e.u16(low16(configuration.handles.len()));
        e.u16(configuration.max_placement_ids.saturating_sub(1));
        e.u32(configuration.max_namespaces).u64(configuration.reclaim_unit_bytes);
        e.u32(configuration.time_limit_s);
        pad(&mut e, CONFIGURATION_SIZE);
        for isolation in &configuration.handles {
            let kind = match isolation {
                Isolation::Initially => 1,
                Isolation::Persistently => 2,
            };
            e.u8(kind).bytes(&[0; 3]);
        }
        pad(&mut e, size);
        all.bytes(&e.0);
    }
    let last = configurations.len().checked_sub(1).expect("at least one configuration");
    let size = CONFIGURATIONS_HEADER + all.0.len();
    let mut e = Encoder::default();
    e.u16(low16(last)).u8(0).u8(0).u32(u32::try_from(size).unwrap_or(u32::MAX)).u64(0);
    e.bytes(&all.0);
    e.0
}

/// The size of log page 20h, from its first bytes.
///
/// # Errors
/// Fewer than 8 bytes.
pub fn configurations_size(bytes: &[u8]) -> Result<u32, Truncated> {
    let mut d = Decoder::new(bytes);
    d.bytes(4, "header")?;
    d.u32("size")
}

/// Decodes log page 20h.
///
/// # Errors
/// When the bytes end first, or a descriptor is smaller than its content.
pub fn decode_configurations(bytes: &[u8]) -> Result<Vec<Configuration>, Truncated> {
    let mut d = Decoder::new(bytes);
    let last = d.u16("number of configurations")?;
    d.bytes(CONFIGURATIONS_HEADER - 2, "header")?;
    (0..=last)
        .map(|_| {
            let size = usize::from(Decoder::new(&bytes[d.offset()..]).u16("descriptor size")?);
            decode_configuration(d.bytes(size, "descriptor")?)
        })
        .collect()
}

fn decode_configuration(bytes: &[u8]) -> Result<Configuration, Truncated> {
    let mut d = Decoder::new(bytes);
    d.u16("descriptor size")?;
    let attributes = d.u8("attributes")?;
    d.u8("vendor specific size")?;
    let reclaim_groups = d.u32("reclaim groups")?;
    let count = d.u16("reclaim unit handles")?;
    let max_placement_ids = d.u16("placement ids")?.saturating_add(1);
    let max_namespaces = d.u32("namespaces")?;
    let reclaim_unit_bytes = d.u64("reclaim unit size")?;
    let time_limit_s = d.u32("time limit")?;
    d.bytes(CONFIGURATION_SIZE - d.offset(), "reserved")?;
    let mut handles = Vec::new();
    for _ in 0..count {
        handles.push(match d.bytes(4, "handle")?[0] {
            2 => Isolation::Persistently,
            _ => Isolation::Initially,
        });
    }
    Ok(Configuration {
        reclaim_groups,
        group_bits: attributes & RGIF_MASK,
        handles,
        max_placement_ids,
        max_namespaces,
        reclaim_unit_bytes,
        time_limit_s,
        volatile_write_cache: attributes & FDPVWC != 0,
        is_valid: attributes & VALID != 0,
    })
}

/// Log page 21h: NRUH, and from byte 8 on 8 bytes for each handle, of which the first names its
/// user.
#[must_use]
pub fn encode_usage(usage: &[HandleUse]) -> Vec<u8> {
    let mut e = Encoder::default();
    e.u16(low16(usage.len())).bytes(&[0; 6]);
    for user in usage {
        let user = match user {
            HandleUse::Unused => 0,
            HandleUse::Host => 1,
            HandleUse::Controller => 2,
        };
        e.u8(user).bytes(&[0; 7]);
    }
    e.0
}

/// Bytes of the header of the handle usage.
pub const USAGE_HEADER: usize = 8;

/// The size of log page 21h, from its first bytes.
///
/// # Errors
/// Fewer than 2 bytes.
pub fn usage_size(bytes: &[u8]) -> Result<usize, Truncated> {
    let count = Decoder::new(bytes).u16("reclaim unit handles")?;
    Ok(USAGE_HEADER + 8 * usize::from(count))
}

/// Decodes log page 21h.
///
/// # Errors
/// When the bytes end first.
pub fn decode_usage(bytes: &[u8]) -> Result<Vec<HandleUse>, Truncated> {
    let mut d = Decoder::new(bytes);
    let count = d.u16("reclaim unit handles")?;
    d.bytes(6, "reserved")?;
    (0..count)
        .map(|_| {
            Ok(match d.bytes(8, "handle usage")?[0] {
                1 => HandleUse::Host,
                2 => HandleUse::Controller,
                _ => HandleUse::Unused,
            })
        })
        .collect()
}

/// Log page 22h: HBMW, MBMW and MBE, 16 bytes each.
#[must_use]
pub fn encode_statistics(statistics: &Statistics) -> [u8; STATISTICS_SIZE] {
    let mut e = Encoder::default();
    u128(&mut e, statistics.host_bytes);
    u128(&mut e, statistics.media_bytes);
    u128(&mut e, statistics.erased_bytes);
    pad(&mut e, STATISTICS_SIZE);
    e.0.try_into().expect("64 bytes")
}

/// Decodes log page 22h.
///
/// # Errors
/// Fewer than 48 bytes.
pub fn decode_statistics(bytes: &[u8]) -> Result<Statistics, Truncated> {
    let mut d = Decoder::new(bytes);
    Ok(Statistics {
        host_bytes: take_u128(&mut d, "host bytes")?,
        media_bytes: take_u128(&mut d, "media bytes")?,
        erased_bytes: take_u128(&mut d, "media bytes erased")?,
    })
}

const PIV: u8 = 1;
const NSIDV: u8 = 2;
const LV: u8 = 4;
/// In the type-specific part of a media reallocated event: the LBA is valid.
const LBAV: u8 = 1;

/// Log page 23h, with the latest [`EVENTS_MAX`] events.
///
/// | offset | size | event |
/// | --- | --- | --- |
/// | 0 | 1 | type |
/// | 1 | 1 | PIV (0), NSIDV (1), LV (2) |
/// | 2 | 2 | placement id |
/// | 4 | 8 | timestamp: milliseconds in 6 bytes, and 2 bytes about where they come from |
/// | 12 | 4 | namespace |
/// | 16 | 16 | media reallocated: LBAV (0) at 16, LBAs moved at 18, first LBA at 20 |
/// | 32 | 2 | reclaim group |
/// | 34 | 2 | reclaim unit handle; some read one byte of it |
#[must_use]
pub fn encode_events(events: &[Event]) -> Vec<u8> {
    let events = &events[events.len().saturating_sub(EVENTS_MAX)..];
    let mut e = Encoder::default();
    e.u32(u32::from(low16(events.len())));
    pad(&mut e, EVENT_SIZE);
    for event in events {
        let flag = |is_there: bool, flag| if is_there { flag } else { 0 };
        let flags = flag(event.placement.is_some(), PIV)
            | flag(event.namespace.is_some(), NSIDV)
            | flag(event.location.is_some(), LV);
        let mut one = Encoder::default();
        one.u8(event.kind as u8).u8(flags).u16(event.placement.map_or(0, |id| id.0));
        one.bytes(&event.timestamp_ms.to_le_bytes()[..6]).u16(0);
        one.u32(event.namespace.unwrap_or(0));
        if let Some((count, first)) = event.moved {
            one.u8(flag(first.is_some(), LBAV)).u8(0).u16(count);
            one.u64(first.map_or(0, |lba| lba.0));
        }
        pad(&mut one, 32);
        let (group, handle) = event.location.unwrap_or((0, 0));
        one.u16(group).u16(handle);
        pad(&mut one, EVENT_SIZE);
        e.bytes(&one.0);
    }
    e.0
}

/// The size of log page 23h, from its first bytes.
///
/// # Errors
/// Fewer than 4 bytes.
pub fn events_size(bytes: &[u8]) -> Result<usize, Truncated> {
    let count = Decoder::new(bytes).u32("number of events")?;
    Ok(to_usize(u64::from(count) + 1).saturating_mul(EVENT_SIZE))
}

/// Decodes log page 23h; events of kinds that are not known are left out.
///
/// # Errors
/// When the bytes end first.
pub fn decode_events(bytes: &[u8]) -> Result<Vec<Event>, Truncated> {
    let mut d = Decoder::new(bytes);
    let count = d.u32("number of events")?;
    d.bytes(EVENT_SIZE - 4, "reserved")?;
    let mut events = Vec::new();
    for _ in 0..count {
        let mut one = Decoder::new(d.bytes(EVENT_SIZE, "event")?);
        let (kind, flags, placement) = (one.u8("type")?, one.u8("flags")?, one.u16("id")?);
        let timestamp_ms = one.u64("timestamp")? & 0xffff_ffff_ffff;
        let namespace = one.u32("namespace")?;
        let mut specific = Decoder::new(one.bytes(16, "type specific")?);
        let (group, handle) = (one.u16("reclaim group")?, one.u16("reclaim unit handle")?);
        let lbav = specific.u16("flags")?.to_le_bytes()[0] & LBAV != 0;
        let (moved, lba) = (specific.u16("LBAs moved")?, specific.u64("LBA")?);
        let Some(kind) = event_type(kind) else { continue };
        events.push(Event {
            kind,
            timestamp_ms,
            placement: (flags & PIV != 0).then_some(PlacementId(placement)),
            namespace: (flags & NSIDV != 0).then_some(namespace),
            location: (flags & LV != 0).then_some((group, handle)),
            moved: (kind == EventType::MediaReallocated)
                .then_some((moved, lbav.then_some(Lba(lba)))),
        });
    }
    Ok(events)
}

/// The kind of event with this number.
#[must_use]
pub fn event_type(number: u8) -> Option<EventType> {
    EventType::ALL.into_iter().find(|kind| *kind as u8 == number)
}

/// Reclaim unit handle status: NRUHSD at 14, and from byte 16 on for each handle PID, RUHID,
/// EARUTR and RUAMW in LBAs.
#[must_use]
pub fn encode_handles(handles: &[HandleStatus]) -> Vec<u8> {
    let mut e = Encoder::default();
    e.bytes(&[0; 14]).u16(low16(handles.len()));
    for handle in handles {
        e.u16(handle.placement.0).u16(handle.handle).u32(handle.time_left_s);
        e.u64(handle.writable.0).bytes(&[0; 16]);
    }
    e.0
}

/// How many handles the reclaim unit handle status has, from its first bytes.
///
/// # Errors
/// Fewer than 16 bytes.
pub fn handles_count(bytes: &[u8]) -> Result<u16, Truncated> {
    let mut d = Decoder::new(bytes);
    d.bytes(14, "reserved")?;
    d.u16("number of handles")
}

/// The size of the reclaim unit handle status, from its first bytes.
///
/// # Errors
/// Fewer than 16 bytes.
pub fn handles_size(bytes: &[u8]) -> Result<usize, Truncated> {
    Ok(STATUS_HEADER + usize::from(handles_count(bytes)?) * STATUS_SIZE)
}

/// Decodes the reclaim unit handle status.
///
/// # Errors
/// When the bytes end first.
pub fn decode_handles(bytes: &[u8]) -> Result<Vec<HandleStatus>, Truncated> {
    let count = handles_count(bytes)?;
    let mut d = Decoder::new(bytes);
    d.bytes(STATUS_HEADER, "header")?;
    (0..count)
        .map(|_| {
            let mut one = Decoder::new(d.bytes(STATUS_SIZE, "handle")?);
            Ok(HandleStatus {
                placement: PlacementId(one.u16("placement id")?),
                handle: one.u16("handle")?,
                time_left_s: one.u32("time left")?,
                writable: LbaCount(one.u64("writable LBAs")?),
            })
        })
        .collect()
}

/// Dword 0 of Get Features 1Dh: FDPE in bit 0, the index of the configuration in bits 15:8.
#[must_use]
pub fn encode_enabled(enabled: Option<usize>) -> u32 {
    enabled.map_or(0, |index| 1 | u32::from(u8::try_from(index).unwrap_or(u8::MAX)) << 8)
}

/// Decodes dword 0 of Get Features 1Dh, or dword 12 of Set Features 1Dh.
#[must_use]
pub fn decode_enabled(value: u32) -> Option<usize> {
    let [flags, index, ..] = value.to_le_bytes();
    (flags & 1 != 0).then_some(usize::from(index))
}

/// The data of Get Features 1Eh: for each kind of event its number, and 1 if it is reported.
#[must_use]
pub fn encode_reported(events: &[(EventType, bool)]) -> Vec<u8> {
    events.iter().flat_map(|&(kind, is_reported)| [kind as u8, u8::from(is_reported)]).collect()
}

/// Decodes the data of Get Features 1Eh, of `count` kinds.
#[must_use]
pub fn decode_reported(bytes: &[u8], count: usize) -> Vec<(EventType, bool)> {
    let pairs = bytes.as_chunks::<2>().0.iter().take(count);
    pairs.filter_map(|&[kind, flags]| Some((event_type(kind)?, flags & 1 != 0))).collect()
}

#[cfg(test)]
mod tests;
