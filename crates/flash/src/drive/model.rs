//! The drive as a model: what each command of the host does to layer, data and time.

use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, Nanos};
use esker_device::fdp::{Event as PlacementEvent, EventType};
use esker_device::{Cause, Device, DeviceError, Op, OpKind, PlacementId};

use super::namespaces::{find_room, gaps};
use super::omf::Checkpoint;
use super::placement::{Placement, Totals};
use super::store::Store;
use super::timeline::Timeline;
use super::{Extent, Image, Layer, Media, NamespaceRecord, Parameters, group_bits};
use crate::FlashError;
use crate::emulate::{Model, Start, Ticket};
use crate::ftl::{
    Array, Event, Ftl, FtlOptions, LogicalPage, MediaPage, PageCounts, UnitId, Writer,
};
use crate::timing::Part;

/// A drive.
pub(crate) struct Drive {
    pub(crate) name: Arc<str>,
    pub(crate) parameters: Parameters,
    pub(crate) layer: Layer,
    pub(crate) namespaces: Vec<NamespaceRecord>,
    pub(crate) placement: Placement,
    pub(crate) host: HostCounts,
    device: Arc<dyn Device>,
    store: Store,
    timeline: Option<Timeline>,
    image: Option<Image>,
    /// Why it has failed. What is in memory and what is on the device may differ then: nothing
    /// goes on.
    failed: Option<String>,
    /// The command that failed after it was started in time: nobody waits for its end.
    lost: Option<Ticket>,
    parts: Vec<Part>,
    now: Nanos,
    /// Namespaces added so far.
    births: u64,
}

/// What the host asked for, all namespaces together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostCounts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// What tells a namespace's device from another's on the same drive.
pub(crate) struct NamespacePart {
    pub(crate) id: u32,
    /// See [`NamespaceRecord::birth`].
    pub(crate) birth: u64,
    pub(crate) name: String,
}

impl Drive {
    /// A drive with nothing on it, which keeps its data on `device`; with an image, so that it can
    /// be opened again, if `is_kept`.
    pub(crate) fn create(
        name: &str,
        parameters: &Parameters,
        device: Arc<dyn Device>,
        is_kept: bool,
        is_timed: bool,
    ) -> Result<Drive, FlashError> {
        parameters.check()?;
        let layer = Layer::new(parameters, None)?;
        let image = is_kept.then(|| Image::create(&device, name, parameters)).transpose()?;
        let placement = Placement::new(None, 1, Totals::default());
        let mut drive =
            Drive::assemble(name, parameters, device, image, layer, placement, is_timed)?;
        drive.checkpoint()?;
        Ok(drive)
    }

    /// The drive whose image is on `device`.
    pub(crate) fn open(device: Arc<dyn Device>, is_timed: bool) -> Result<Drive, FlashError> {
        let (image, contents) = Image::open(&device)?;
        let parameters = image.parameters().clone();
        check(&parameters, &contents.checkpoint)?;
        let Checkpoint { configuration, counts, since, namespaces, units, map, .. } =
            contents.checkpoint;
        let mut layer = Layer::new(&parameters, configuration)?;
        match &mut layer {
            Layer::Mapped(ftl) => {
                let mut restored = Ftl::restore(ftl.options().clone(), map, &units, counts)?;
                for event in contents.events {
                    restored.replay(event)?;
                }
                restored.check()?;
                **ftl = restored;
            }
            Layer::InPlace(kept) => {
                *kept = counts;
                for event in contents.events {
                    if let Event::Program { count, .. } = event {
                        kept.host += u64::from(count);
                    }
                }
            }
        }
        let handles = layer.ftl().map_or(1, |ftl| ftl.options().handles.len());
        let placement = Placement::new(configuration, handles, since);
        let name = image.name().to_owned();
        let image = Some(image);
        let mut drive =
            Drive::assemble(&name, &parameters, device, image, layer, placement, is_timed)?;
        drive.host.written_bytes = contents.host_bytes;
        let (now, since) = (drive.totals(), drive.placement.since);
        if now.host < since.host || now.media < since.media || now.erased < since.erased {
            let why = "the image is damaged: data placement was enabled after what it holds";
            return Err(FlashError::Corrupt(why.to_owned()));
        }
        drive.namespaces = namespaces;
        // What was open goes on where the journal ends, and a new one begins.
        drive.checkpoint()?;
        Ok(drive)
    }

    fn assemble(
        name: &str,
        parameters: &Parameters,
        device: Arc<dyn Device>,
        image: Option<Image>,
        layer: Layer,
        placement: Placement,
        is_timed: bool,
    ) -> Result<Drive, FlashError> {
        let offset = image.as_ref().map_or(0, Image::data_offset);
        Ok(Drive {
            name: name.into(),
            store: Store::new(&device, offset, parameters.page_size)?,
            timeline: is_timed.then(|| Timeline::new(parameters)).transpose()?,
            parameters: parameters.clone(),
            layer,
            namespaces: Vec::new(),
            placement,
            host: HostCounts::default(),
            device,
            image,
            failed: None,
            lost: None,
            parts: Vec::new(),
            now: Nanos::default(),
            births: 0,
        })
    }

    /// Keeps no data from now on, only where it would be.
    pub(crate) fn keep_nothing(&mut self) {
        self.store.keep_nothing();
    }

    /// Whether it can be opened again.
    pub(crate) fn is_kept(&self) -> bool {
        self.image.is_some()
    }

    /// The device that holds its data.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes so far.
    pub(crate) fn totals(&self) -> Totals {
        let counts = self.layer.counts();
        let page = u64::from(self.parameters.page_size);
        Totals {
            host: self.host.written_bytes,
            media: counts.media() * page,
            erased: counts.erased * page,
        }
    }

    /// Adds a namespace.
    pub(crate) fn create_namespace(
        &mut self,
        bytes: u64,
        handles: Option<&[u16]>,
    ) -> Result<u32, FlashError> {
        self.is_alive()?;
        let page = u64::from(self.parameters.page_size);
        if bytes == 0 || !bytes.is_multiple_of(page) {
            let why = format!("a namespace has a multiple of {page} bytes, not {bytes}");
            return Err(FlashError::Invalid(why));
        }
        if to_u64(self.namespaces.len()) >= u64::from(self.parameters.max_namespaces) {
            let most = self.parameters.max_namespaces;
            return Err(FlashError::NoSpace(format!("the drive has at most {most} namespaces")));
        }
        let in_all = self.layer.ftl().map_or(1, |ftl| ftl.options().handles.len());
        if let Some(handles) = handles {
            let is_wrong = |&&handle: &&u16| usize::from(handle) >= in_all;
            if let Some(handle) = handles.iter().find(is_wrong) {
                let why = format!(
                    "there is no reclaim unit handle {handle}: the drive has 0 to {in_all}, \
                     exclusive; enable data placement for more"
                );
                return Err(FlashError::Invalid(why));
            }
            if handles.is_empty() || handles.len() > 128 {
                return Err(FlashError::Invalid("a namespace names 1 to 128 handles".to_owned()));
            }
        }
        let count = u32::try_from(bytes / page).unwrap_or(u32::MAX);
        let pages = find_room(&self.namespaces, count, self.parameters.logical_pages()?)?;
        let id = (1..).find(|id| self.namespaces.iter().all(|other| other.id != *id));
        let id = id.expect("there are fewer namespaces than numbers");
        if self.layer.ftl().is_none() {
            // What another namespace has left here.
            self.store.zero(pages.first, pages.count)?;
        }
        self.births += 1;
        self.namespaces.push(NamespaceRecord {
            id,
            birth: self.births,
            pages,
            handles: handles.map_or_else(|| vec![0], <[u16]>::to_vec),
            is_host_specified: handles.is_some(),
        });
        self.checkpoint()?;
        Ok(id)
    }

    /// Bytes of the largest namespace for which there is room.
    pub(crate) fn largest_gap(&self) -> u64 {
        let in_all = self.parameters.logical_pages().unwrap_or(0);
        let most = gaps(&self.namespaces, in_all).map(|gap| gap.count).max();
        u64::from(most.unwrap_or(0)) * u64::from(self.parameters.page_size)
    }

    /// Removes a namespace and what it holds.
    pub(crate) fn delete_namespace(&mut self, id: u32) -> Result<(), FlashError> {
        self.is_alive()?;
        let Some(index) = self.namespaces.iter().position(|namespace| namespace.id == id) else {
            return Err(FlashError::Invalid(format!("{}: there is no namespace {id}", self.name)));
        };
        let Extent { first, count } = self.namespaces.swap_remove(index).pages;
        // In place, what it held is let go once nobody can find it any more.
        let is_mapped = self.layer.ftl().is_some();
        if is_mapped {
            let trimmed = self.trim(first, count);
            self.fail_on(trimmed)?;
        }
        self.checkpoint()?;
        if is_mapped { Ok(()) } else { Ok(self.store.discard(first, count)?) }
    }

    /// Enables a configuration of data placement, or disables it. Nothing may be on the drive.
    pub(crate) fn enable(
        &mut self,
        configuration: Option<usize>,
        now: Option<Nanos>,
    ) -> Result<(), FlashError> {
        self.is_alive()?;
        let options: FtlOptions = self.parameters.ftl_options(configuration)?;
        let handles = options.handles.len();
        if let Layer::Mapped(ftl) = &mut self.layer {
            **ftl = ftl.reformat(options)?;
        }
        if let Some((timeline, now)) = self.timeline.as_mut().zip(now) {
            timeline.close_all(now);
        }
        self.placement = Placement::new(configuration, handles, self.totals());
        self.checkpoint()
    }

    /// The namespace with this number, if it still is the one that a device was made for.
    pub(crate) fn living(&self, id: u32, birth: u64) -> Option<&NamespaceRecord> {
        self.namespace(id).filter(|namespace| namespace.birth == birth)
    }

    /// The namespace with this number.
    pub(crate) fn namespace(&self, id: u32) -> Option<&NamespaceRecord> {
        self.namespaces.iter().find(|namespace| namespace.id == id)
    }

    /// The group and the handle of a placement id: the upper bits name the group.
    fn resolve(&self, namespace: &NamespaceRecord, id: PlacementId) -> Option<(u16, u16)> {
        let groups = self.layer.ftl().map_or(1, |ftl| ftl.options().groups);
        let (group, index) = match group_bits(groups) {
            0 => (0, id.0),
            bits => (id.0 >> (16 - bits), id.0 & (u16::MAX >> bits)),
        };
        let handle = namespace.handles.get(usize::from(index))?;
        (group < groups).then_some((group, *handle))
    }

    /// Points the handles of these ids to empty reclaim units; the first wrong id ends it before
    /// anything is done. When the device under the drive fails meanwhile, the next command tells.
    pub(crate) fn update_handles(
        &mut self,
        part: (u32, u64),
        ids: &[PlacementId],
        now: Option<Nanos>,
    ) -> Result<(), u16> {
        let namespace = self.living(part.0, part.1).cloned();
        let resolve = |&id: &PlacementId| {
            let target = namespace.as_ref().and_then(|namespace| self.resolve(namespace, id));
            target.map(|at| (id, at)).ok_or(id.0)
        };
        let targets = ids.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        for (placement, (group, handle)) in targets {
            if self.failed.is_some() {
                break;
            }
            let (mut array, layer) = self.array(now);
            let Layer::Mapped(ftl) = layer else { continue };
            let unwritten = ftl.update(group, handle, &mut array);
            let settled = array.settle();
            if self.fail_on(settled).is_ok() && unwritten > 0 {
                let at = (group, handle);
                self.record_event(EventType::NotFullyWritten, part.0, Some(placement), at);
            }
        }
        Ok(())
    }

    fn record_event(
        &mut self,
        kind: EventType,
        namespace: u32,
        placement: Option<PlacementId>,
        (group, handle): (u16, u16),
    ) {
        let event = PlacementEvent {
            kind,
            timestamp_ms: self.now.0 / 1_000_000,
            placement,
            namespace: Some(namespace),
            location: Some((group, handle)),
            moved: None,
        };
        self.placement.record(handle, event);
    }

    /// Makes everything written durable.
    pub(crate) fn commit(&mut self) -> Result<(), FlashError> {
        self.is_alive()?;
        let Some(image) = &mut self.image else { return Ok(()) };
        let erased = image.commit(self.store.port(), &self.device, self.host.written_bytes);
        let erased = self.fail_on(erased)?;
        let discarded = self.discard(erased);
        self.fail_on(discarded)
    }

    fn discard(&mut self, erased: impl IntoIterator<Item = UnitId>) -> Result<(), FlashError> {
        let pages = self.parameters.unit_pages();
        for unit in erased {
            // A unit that was opened again since holds new data.
            let is_free = self.layer.ftl().is_some_and(|ftl| ftl.is_free(unit));
            if is_free {
                self.store.discard(unit * pages, pages)?;
            }
        }
        Ok(())
    }

    /// Writes the whole state down.
    pub(crate) fn checkpoint(&mut self) -> Result<(), FlashError> {
        self.is_alive()?;
        let Some(image) = &mut self.image else { return Ok(()) };
        let ftl = self.layer.ftl();
        let state = Checkpoint {
            configuration: self.placement.enabled,
            counts: self.layer.counts(),
            host_bytes: self.host.written_bytes,
            since: self.placement.since,
            namespaces: self.namespaces.clone(),
            units: ftl.map_or_else(Vec::new, |ftl| ftl.unit_records().collect()),
            map: ftl.map_or_else(Vec::new, |ftl| ftl.map().to_vec()),
        };
        let written = image.checkpoint(self.store.port(), &self.device, &state);
        self.fail_on(written)
    }

    /// The array under the layer, for one command that starts now or takes no time.
    fn array(&mut self, now: Option<Nanos>) -> (Stage<'_>, &mut Layer) {
        let Drive { store, timeline, image, device, parameters, layer, host, .. } = self;
        let page_size = parameters.page_size;
        let stage = Stage {
            store,
            timeline: timeline.as_mut().zip(now),
            image: image.as_mut(),
            device,
            page_size,
            unit_pages: parameters.unit_pages(),
            written_bytes: host.written_bytes,
            source: Source::default(),
            run: None,
            copied: 0,
            error: None,
        };
        (stage, layer)
    }

    /// Whether it goes on.
    fn is_alive(&self) -> Result<(), FlashError> {
        match self.gone() {
            None => Ok(()),
            Some(gone) => Err(DeviceError::new(&self.name, OpKind::Open, Lba(0), 0, gone).into()),
        }
    }

    /// Why it does not go on.
    fn gone(&self) -> Option<Cause> {
        let failed = self.failed.as_ref()?;
        Some(Cause::Gone(format!("the drive has failed ({failed}); open it again")))
    }

    /// After an error in the middle of a change, nothing goes on.
    fn fail_on<T>(&mut self, result: Result<T, FlashError>) -> Result<T, FlashError> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        result
    }

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
    /// stream of all it writes; what the drive writes by itself has none.
    fn write(
        &mut self,
        (group, handle): (u16, u16),
        offset: u64,
        data: &[u8],
        now: Option<Nanos>,
        position: Option<u64>,
    ) -> Result<u32, FlashError> {
        let page_size = u64::from(self.parameters.page_size);
        let end = offset + to_u64(data.len());
        let (first, last) = (offset / page_size, (end - 1) / page_size);
        let count = page_of(last - first) + 1;
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
        array.settle()
    }

    /// Forgets whole pages.
    fn trim(&mut self, first: LogicalPage, count: u32) -> Result<(), FlashError> {
        match &mut self.layer {
            Layer::Mapped(ftl) => {
                ftl.trim(first, count);
                if let Some(image) = &mut self.image {
                    image.record(Event::Trim { page: first, count });
                }
                Ok(())
            }
            Layer::InPlace(_) => self.store.zero(first, count).map_err(FlashError::from),
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
            self.trim(page_of(first / page_size), page_of((last - first) / page_size))?;
        }
        let edges =
            if first > last { [(offset, end), (0, 0)] } else { [(offset, first), (last, end)] };
        for (from, to) in edges {
            // What lies nowhere is zero already.
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
                let copied = self.write(target, offset, buf, now, position)?;
                if copied > 0 && self.placement.is_reported(target.1, EventType::MediaReallocated) {
                    let lbas = copied.saturating_mul(self.parameters.page_size / lba_size);
                    let event = PlacementEvent {
                        kind: EventType::MediaReallocated,
                        timestamp_ms: self.now.0 / 1_000_000,
                        placement: None,
                        namespace: None,
                        location: Some(target),
                        moved: Some((u16::try_from(lbas).unwrap_or(u16::MAX), None)),
                    };
                    self.placement.record(target.1, event);
                }
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

    fn advance(&mut self, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        if let Some(timeline) = &mut self.timeline {
            timeline.controller.advance(to, finished);
            if let Some(lost) = self.lost {
                finished.retain(|(ticket, _)| *ticket != lost);
            }
        }
    }
}

/// Checks what a checkpoint says that the translation layer does not check.
fn check(parameters: &Parameters, checkpoint: &Checkpoint) -> Result<(), FlashError> {
    let corrupt = |what: String| Err(FlashError::Corrupt(format!("the image is damaged: {what}")));
    if let Some(index) = checkpoint.configuration
        && index >= parameters.configurations.len()
    {
        return corrupt(format!("there is no configuration {index} of data placement"));
    }
    // Far beyond any drive's life, and far from where a sum or a product overflows.
    let most = (1u64 << 62) / u64::from(parameters.page_size);
    let PageCounts { host, copied, erased, trimmed } = checkpoint.counts;
    let is_sane = [host, copied, erased, trimmed].iter().all(|&pages| pages < most);
    if !is_sane || checkpoint.host_bytes >= 1 << 62 {
        return corrupt("a counter is larger than a drive lives".to_owned());
    }
    let handles = match parameters.media {
        Media::Flash => parameters.ftl_options(checkpoint.configuration)?.handles.len(),
        Media::InPlace => 1,
    };
    let mut end_of_last = 0;
    let mut in_order: Vec<_> = checkpoint.namespaces.iter().collect();
    in_order.sort_unstable_by_key(|namespace| namespace.pages.first);
    for NamespaceRecord { id, pages: Extent { first, count }, handles: own, .. } in in_order {
        let end = u64::from(*first) + u64::from(*count);
        if *count == 0 || u64::from(*first) < end_of_last || *id == 0 {
            return corrupt(format!("namespace {id} has pages of another, or none"));
        }
        if end > u64::from(parameters.logical_pages()?) {
            return corrupt(format!("namespace {id} lies beyond the drive"));
        }
        if own.is_empty() || own.iter().any(|&handle| usize::from(handle) >= handles) {
            return corrupt(format!("namespace {id} has a handle that is not there, or none"));
        }
        end_of_last = end;
    }
    let mut ids: Vec<_> = checkpoint.namespaces.iter().map(|namespace| namespace.id).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return corrupt("two namespaces have the same number".to_owned());
    }
    Ok(())
}

/// A page number of the drive, which `Op::check` has found to be within it.
fn page_of(page: u64) -> LogicalPage {
    LogicalPage::try_from(page).expect("within the drive")
}

/// The data of the command, in whole pages from `first` on, and what of it the host gave.
#[derive(Default)]
struct Source<'a> {
    first: LogicalPage,
    data: &'a [u8],
    offset: u64,
    end: u64,
    /// Where they begin in the stream of all that the host writes; none if it did not give them.
    position: Option<u64>,
    /// Pages of which the host gave a part, and where the rest is.
    partly: [Option<(LogicalPage, MediaPage)>; 2],
}

/// Pages that follow each other, logically and on the media.
#[derive(Clone, Copy)]
struct Run {
    /// Where they are copied from; none if the host wrote them.
    from: Option<MediaPage>,
    at: MediaPage,
    page: LogicalPage,
    count: u32,
}

/// The media under the layer during one command: data, time and journal. Consecutive pages are
/// moved together.
struct Stage<'a> {
    store: &'a mut Store,
    timeline: Option<(&'a mut Timeline, Nanos)>,
    image: Option<&'a mut Image>,
    device: &'a Arc<dyn Device>,
    page_size: u32,
    unit_pages: u32,
    written_bytes: u64,
    source: Source<'a>,
    run: Option<Run>,
    copied: u32,
    error: Option<FlashError>,
}

impl Stage<'_> {
    fn extend(&mut self, from: Option<MediaPage>, at: MediaPage, page: LogicalPage) {
        if let Some(run) = &mut self.run {
            let goes_on = run.from.map(|from| from + run.count) == from
                && run.at + run.count == at
                && run.page + run.count == page;
            if goes_on {
                run.count += 1;
                return;
            }
        }
        self.move_run();
        self.run = Some(Run { from, at, page, count: 1 });
    }

    /// Moves the pages gathered so far.
    fn move_run(&mut self) {
        let Some(Run { from, at, page, count }) = self.run.take() else { return };
        if self.error.is_some() {
            return;
        }
        let moved = match from {
            Some(from) => self.store.copy(from, at, count),
            None => {
                let size = self.page_size as usize;
                let start = (page - self.source.first) as usize * size;
                self.store.write(at, &self.source.data[start..start + count as usize * size])
            }
        };
        self.error = moved.err().map(FlashError::from);
        self.record(match from {
            Some(_) => Event::Copy { page, at, count },
            None => Event::Program { page, at, count },
        });
    }

    fn record(&mut self, event: Event) {
        if let Some(image) = &mut self.image {
            image.record(event);
        }
    }

    /// Ends the command: how many pages cleaning has copied meanwhile.
    fn settle(mut self) -> Result<u32, FlashError> {
        self.move_run();
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(self.copied),
        }
    }
}

impl Array for Stage<'_> {
    fn open(&mut self, unit: UnitId, writer: Writer) {
        self.move_run();
        if let Some(image) = &mut self.image
            && self.error.is_none()
            && image.must_commit_before(unit)
        {
            self.error = image.commit(self.store.port(), self.device, self.written_bytes).err();
        }
        self.record(Event::Open { unit, writer });
    }

    fn program(&mut self, at: MediaPage, page: LogicalPage) {
        if let Some((timeline, now)) = &mut self.timeline {
            let size = u64::from(self.page_size);
            let begin = (u64::from(page) * size).max(self.source.offset);
            let end = ((u64::from(page) + 1) * size).min(self.source.end);
            let bytes = u32::try_from(end - begin).expect("at most a page");
            let partly = self.source.partly.iter().flatten().find(|(partly, _)| *partly == page);
            if let Some(&(_, old)) = partly {
                timeline.merge(*now, old, at);
            }
            match self.source.position {
                Some(begin) => {
                    timeline.program(*now, at, bytes, begin + (end - self.source.offset))
                }
                None => timeline.program(*now, at, 0, 0),
            }
        }
        self.extend(None, at, page);
    }

    fn copy(&mut self, from: MediaPage, to: MediaPage, page: LogicalPage) {
        if let Some((timeline, now)) = &mut self.timeline {
            timeline.copy(*now, from, to);
        }
        self.copied += 1;
        self.extend(Some(from), to, page);
    }

    fn close(&mut self, unit: UnitId) {
        self.move_run();
        if let Some((timeline, now)) = &mut self.timeline {
            timeline.close(*now, unit);
        }
        self.record(Event::Close { unit });
    }

    fn erase(&mut self, unit: UnitId) {
        self.move_run();
        if let Some((timeline, now)) = &mut self.timeline {
            timeline.erase(*now, unit);
        }
        if self.image.is_none() && self.error.is_none() {
            let discarded = self.store.discard(unit * self.unit_pages, self.unit_pages);
            self.error = discarded.err().map(FlashError::from);
        }
        self.record(Event::Erase { unit });
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if self.failed.is_none() {
            // Whoever needs to know flushes first; this saves what it can.
            let _ = self.commit();
        }
    }
}
