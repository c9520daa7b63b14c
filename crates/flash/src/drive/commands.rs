//! Commands of the host: the effect of each on layer, data and time.

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Nanos};
use esker_device::fdp::{Event as PlacementEvent, EventType};
use esker_device::{Cause, DeviceError, DeviceStats, Identity, Op, OpKind};

use super::model::{Drive, NamespacePart};
use super::stage::{Moved, Source};
use super::{Image, Layer, NamespaceRecord};
use crate::FlashError;
use crate::emulate::{Model, Start, Ticket};
use crate::ftl::{Event, LogicalPage, MediaPage};

impl Drive {
    /// Reads a command's bytes from byte `offset` of the drive on: without a copy if it is of one
    /// page, which most are.
    fn read_command(
        &mut self,
        offset: u64,
        buf: &mut AlignedBuf,
        start: Option<Start>,
    ) -> Result<(), FlashError> {
        let page_size = u64::from(self.parameters.page_size);
        let page = page_of(offset / page_size);
        let is_page = offset.is_multiple_of(page_size) && to_u64(buf.len()) == page_size;
        let Some(at) = self.layer.locate(page).filter(|_| is_page) else {
            return self.read(offset, buf, start);
        };
        if let (Some(start), Some(timeline)) = (start, &mut self.timeline) {
            timeline.read(start, std::iter::once(at), self.parameters.page_size, &mut self.parts);
        }
        self.store.read_whole(at, buf).map_err(FlashError::from)
    }

    /// Reads `buf.len()` bytes from byte `offset` of the drive on.
    fn read(
        &mut self,
        offset: u64,
        buf: &mut [u8],
        start: Option<Start>,
    ) -> Result<(), FlashError> {
        let page_size = u64::from(self.parameters.page_size);
        let end = offset + to_u64(buf.len());
        let first = offset / page_size;
        let pages = first..end.div_ceil(page_size);
        let mut at = 0;
        let mut page = pages.start;
        while page < pages.end {
            // Pages that follow each other on the media are read together.
            let within = if page == first { to_usize(offset % page_size) } else { 0 };
            let here = self.layer.locate(page_of(page));
            let mut count = 1;
            let goes_on = |count: u32| here.map(|here| here + count);
            let is_whole = within == 0 && page < end / page_size;
            while is_whole
                && page + u64::from(count) < end / page_size
                && self.layer.locate(page_of(page + u64::from(count))) == goes_on(count)
            {
                count += 1;
            }
            let bytes = if is_whole {
                to_usize(u64::from(count) * page_size)
            } else {
                (to_usize(page_size) - within).min(buf.len() - at)
            };
            let target = &mut buf[at..at + bytes];
            match here {
                None => target.fill(0),
                Some(here) if is_whole => self.store.read(here, target)?,
                Some(here) => {
                    let mut whole = vec![0; to_usize(page_size)];
                    self.store.read(here, &mut whole)?;
                    target.copy_from_slice(&whole[within..within + bytes]);
                }
            }
            at += bytes;
            page += u64::from(count);
        }
        if let (Some(start), Some(timeline)) = (start, &mut self.timeline) {
            let (layer, bytes) = (&self.layer, u32::try_from(buf.len()).unwrap_or(u32::MAX));
            let located = pages.clone().filter_map(|page| layer.locate(page_of(page)));
            timeline.read(start, located, bytes, &mut self.parts);
        }
        Ok(())
    }

    /// Writes `data` from byte `offset` of the drive on. The host's bytes have a position in the
    /// stream of all it writes; the drive's own writes have none.
    fn write(
        &mut self,
        (group, handle): (u16, u16),
        offset: u64,
        data: &[u8],
        now: Option<Nanos>,
        position: Option<u64>,
    ) -> Result<(), FlashError> {
        let page_size = u64::from(self.parameters.page_size);
        let end = offset + to_u64(data.len());
        let (first, last) = (offset / page_size, (end - 1) / page_size);
        let count = count_of(last - first) + 1;
        let head = to_usize(offset % page_size);
        // A page of which only a part is written is read and merged.
        let merged = if head > 0 || !end.is_multiple_of(page_size) {
            let mut whole = vec![0; to_usize(u64::from(count) * page_size)];
            let size = to_usize(page_size);
            let tail = whole.len() - size;
            self.read(first * page_size, &mut whole[..size], None)?;
            if last > first {
                self.read(last * page_size, &mut whole[tail..], None)?;
            }
            whole[head..head + data.len()].copy_from_slice(data);
            Some(whole)
        } else {
            None
        };
        let partly = [first, last].map(|page| {
            let is_whole = page * page_size >= offset && (page + 1) * page_size <= end;
            (!is_whole).then(|| self.layer.locate(page_of(page)).map(|at| (page_of(page), at)))?
        });
        let (mut array, layer) = self.array(now);
        array.source = Source {
            first: page_of(first),
            data: merged.as_deref().unwrap_or(data),
            offset,
            end,
            position,
            partly,
        };
        layer.write(group, handle, page_of(first), count, &mut array);
        let moved = array.settle()?;
        moved.into_iter().for_each(|unit| self.record_moved(&unit));
        Ok(())
    }

    /// Records that a unit's pages lie elsewhere now, for the handle whose pages they were. Of a unit with pages of
    /// several handles any of them may ask to hear.
    fn record_moved(&mut self, unit: &Moved) {
        let lbas =
            u64::from(unit.pages) * u64::from(self.parameters.page_size / self.parameters.lba_size);
        let event = PlacementEvent {
            kind: EventType::MediaReallocated,
            timestamp_ms: self.now.0 / 1_000_000,
            placement: None,
            namespace: None,
            location: unit.handle.map(|handle| (unit.group, handle)),
            moved: Some((u16::try_from(lbas).unwrap_or(u16::MAX), None)),
        };
        self.placement.record(unit.handle, event);
    }

    /// Forgets whole pages.
    pub(super) fn trim(&mut self, first: LogicalPage, count: u32) -> Result<(), FlashError> {
        match &mut self.layer {
            Layer::Mapped(ftl) => {
                ftl.trim(first, count);
                if let Some(image) = &mut self.image {
                    image.record(Event::Trim { page: first, count });
                }
                Ok(())
            }
            Layer::InPlace(_) => {
                self.store.zero(MediaPage(first.0), count).map_err(FlashError::from)
            }
        }
    }

    /// Makes a range of bytes read as zeroes; whole pages alone if it need not be exact. The edges
    /// are written to `target`.
    fn zero(
        &mut self,
        target: (u16, u16),
        offset: u64,
        bytes: u64,
        is_exact: bool,
        now: Option<Nanos>,
    ) -> Result<(), FlashError> {
        let page_size = u64::from(self.parameters.page_size);
        let end = offset + bytes;
        let (first, last) = (offset.next_multiple_of(page_size), end / page_size * page_size);
        if first < last {
            self.trim(page_of(first / page_size), count_of((last - first) / page_size))?;
        }
        let edges =
            if first > last { [(offset, end), (0, 0)] } else { [(offset, first), (last, end)] };
        for (from, to) in edges {
            // A page without a place is zero already.
            let lies = from < to && self.layer.locate(page_of(from / page_size)).is_some();
            if is_exact && lies {
                let zeroes = vec![0; to_usize(to - from)];
                self.write(target, from, &zeroes, now, None)?;
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        index: usize,
        op: &mut Op,
        start: Option<Start>,
    ) -> Result<(), FlashError> {
        let lba_size = self.parameters.lba_size;
        let namespace = &self.namespaces[index];
        let base = u64::from(namespace.pages.first) * u64::from(self.parameters.page_size);
        let (default, now) = ((0, namespace.handles[0]), start.map(|start| start.now));
        match op {
            Op::Read { lba, buf } => {
                self.read_command(base + lba.offset(lba_size), buf, start)?;
                self.host.reads += 1;
                self.host.read_bytes += to_u64(buf.len());
                Ok(())
            }
            Op::Write { lba, buf, placement, fua } => {
                let wanted = placement.filter(|_| self.placement.enabled.is_some());
                let found = wanted.map(|id| self.resolve(namespace, id).ok_or(id));
                let target = match found {
                    None => default,
                    Some(Ok(found)) => found,
                    Some(Err(id)) => {
                        let kind = EventType::InvalidPlacementId;
                        self.record_event(kind, namespace.id, Some(id), default);
                        default
                    }
                };
                self.host.writes += 1;
                self.host.written_bytes += to_u64(buf.len());
                let position = start.zip(self.timeline.as_mut()).map(|(start, timeline)| {
                    let bytes = u32::try_from(buf.len()).unwrap_or(u32::MAX);
                    timeline.controller.write(start, bytes)
                });
                let offset = base + lba.offset(lba_size);
                self.write(target, offset, buf, now, position)?;
                if *fua { self.commit() } else { Ok(()) }
            }
            Op::Flush => self.commit(),
            Op::Discard { lba, count } | Op::WriteZeroes { lba, count } => {
                let (offset, bytes) = (base + lba.offset(lba_size), count.bytes(lba_size));
                let is_exact = matches!(op, Op::WriteZeroes { .. });
                self.zero(default, offset, bytes, is_exact, now)
            }
        }
    }
}

impl Model for Drive {
    type Part = NamespacePart;

    fn start(
        &mut self,
        part: &NamespacePart,
        op: &mut Op,
        start: Option<Start>,
    ) -> Result<(), DeviceError> {
        let (kind, (lba, bytes)) = (op.kind(), op.range(self.parameters.lba_size));
        let fail = |cause| Err(DeviceError::new(&part.name, kind, lba, bytes, cause));
        if let Some(gone) = self.gone() {
            return fail(gone);
        }
        let is_it = |one: &NamespaceRecord| one.id == part.id && one.birth == part.birth;
        let Some(index) = self.namespaces.iter().position(is_it) else {
            return fail(Cause::Gone("the namespace was deleted".to_owned()));
        };
        self.now = start.map_or(self.now, |start| start.now);
        let mut result = self.execute(index, op, start);
        // A read that fails has changed nothing.
        let has_started = match kind {
            OpKind::Read => result.is_ok(),
            _ => {
                result = self.fail_on(result);
                kind == OpKind::Write
            }
        };
        if result.is_ok() && self.image.as_ref().is_some_and(Image::is_long) {
            result = self.commit().and_then(|()| self.checkpoint());
        }
        match (result, start, &mut self.timeline) {
            (Ok(()), Some(start), Some(timeline)) => {
                if !has_started {
                    timeline.controller.command(start);
                }
                Ok(())
            }
            (Ok(()), ..) => Ok(()),
            (Err(error), start, _) => {
                self.lost = start.filter(|_| has_started).map(|start| start.ticket).or(self.lost);
                fail(Cause::Media(error.to_string()))
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.timeline.as_ref().and_then(|timeline| timeline.controller.next_event())
    }

    fn next_finish(&self) -> Option<Nanos> {
        self.timeline.as_ref().and_then(|timeline| timeline.controller.next_finish())
    }

    fn advance(&mut self, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        if let Some(timeline) = &mut self.timeline {
            timeline.controller.advance(to, finished);
            if let Some(lost) = self.lost {
                finished.retain(|(ticket, _)| *ticket != lost);
            }
        }
    }

    fn issued(&self, ticket: Ticket) -> Option<Nanos> {
        let is_host = self.parameters.timing.host_queues.is_some();
        let timeline = self.timeline.as_ref().filter(|_| is_host)?;
        Some(timeline.controller.issued(ticket))
    }

    fn identity(&self, part: &NamespacePart) -> Option<Identity> {
        let image = if self.is_kept() { self.device.identity() } else { None };
        Some(image?.part(&format!("namespace-{}", part.id)))
    }

    fn account(&self, _: &NamespacePart, stats: &mut DeviceStats) {
        let (before, media) = self.opened;
        stats.below.push(DeviceStats {
            name: self.name.to_string(),
            reads: self.host.reads - before.reads,
            writes: self.host.writes - before.writes,
            read_bytes: self.host.read_bytes - before.read_bytes,
            written_bytes: self.host.written_bytes - before.written_bytes,
            media_written_bytes: self.totals().media - media,
            below: vec![self.device.stats()],
            ..DeviceStats::default()
        });
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.device.remarks();
        remarks.push(format!("{} is a model of a drive, not one", self.name));
        remarks
    }
}

/// A page of the drive, which `Op::check` has found to be within it.
fn page_of(page: u64) -> LogicalPage {
    LogicalPage(count_of(page))
}

/// So many pages of the drive.
fn count_of(pages: u64) -> u32 {
    u32::try_from(pages).expect("within the drive")
}
