//! The drive as a model: what each command of the host does to layer, data and time.

use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{Lba, Nanos};
use esker_device::fdp::{Event as PlacementEvent, EventType};
use esker_device::{Cause, Device, DeviceError, Op, OpKind, PlacementId};

use super::namespaces::find_room;
use super::omf::Checkpoint;
use super::placement::{Placement, Totals};
use super::store::Store;
use super::timeline::Timeline;
use super::{Extent, Image, Layer, NamespaceRecord, Parameters, group_bits};
use crate::FlashError;
use crate::emulate::{Model, Start, Ticket};
use crate::ftl::{Array, Event, Ftl, FtlOptions, LogicalPage, MediaPage, UnitId, Writer};
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
    /// What the device under the drive said when it failed. Nothing goes on then.
    failed: Option<DeviceError>,
    parts: Vec<Part>,
    now: Nanos,
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
        for namespace in &namespaces {
            let Extent { first, count } = namespace.pages;
            let end = first.checked_add(count);
            if count == 0 || end.is_none_or(|end| end > parameters.logical_pages().unwrap_or(0)) {
                let why = format!("namespace {} lies beyond the drive", namespace.id);
                return Err(FlashError::Corrupt(why));
            }
            if namespace.handles.iter().any(|&handle| usize::from(handle) >= handles) {
                let why = format!("namespace {} has a handle that is not there", namespace.id);
                return Err(FlashError::Corrupt(why));
            }
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
            parts: Vec::new(),
            now: Nanos::default(),
        })
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
        self.namespaces.push(NamespaceRecord {
            id,
            pages,
            handles: handles.map_or_else(|| vec![0], <[u16]>::to_vec),
            is_host_specified: handles.is_some(),
        });
        self.checkpoint()?;
        Ok(id)
    }

    /// Removes a namespace and what it holds.
    pub(crate) fn delete_namespace(&mut self, id: u32) -> Result<(), FlashError> {
        let Some(index) = self.namespaces.iter().position(|namespace| namespace.id == id) else {
            return Err(FlashError::Invalid(format!("{}: there is no namespace {id}", self.name)));
        };
        let Extent { first, count } = self.namespaces.swap_remove(index).pages;
        self.trim(first, count)?;
        self.checkpoint()
    }

    /// Enables a configuration of data placement, or disables it. Nothing may be on the drive.
    pub(crate) fn enable(&mut self, configuration: Option<usize>) -> Result<(), FlashError> {
        let options: FtlOptions = self.parameters.ftl_options(configuration)?;
        let handles = options.handles.len();
        if let Layer::Mapped(ftl) = &mut self.layer {
            **ftl = ftl.reformat(options)?;
        }
        if let Some(timeline) = &mut self.timeline {
            *timeline = Timeline::new(&self.parameters)?;
        }
        self.placement = Placement::new(configuration, handles, self.totals());
        self.checkpoint()
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
    /// anything is done.
    pub(crate) fn update_handles(&mut self, id: u32, ids: &[PlacementId]) -> Result<(), u16> {
        let Some(namespace) = self.namespace(id).cloned() else { return Ok(()) };
        let targets: Vec<_> = ids
            .iter()
            .map(|&id| self.resolve(&namespace, id).map(|at| (id, at)).ok_or(id.0))
            .collect::<Result<_, _>>()?;
        for (placement, (group, handle)) in targets {
            let (mut array, layer) = self.array(None);
            let Layer::Mapped(ftl) = layer else { continue };
            let unwritten = ftl.update(group, handle, &mut array);
            let result = array.settle();
            self.fail_on(&result.map(|_| ()));
            if unwritten > 0 {
                self.record_event(EventType::NotFullyWritten, id, Some(placement), (group, handle));
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
        let Some(image) = &mut self.image else { return Ok(()) };
        let erased = image.commit(self.store.port(), &self.device, self.host.written_bytes)?;
        self.discard(erased)
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
        image.checkpoint(self.store.port(), &self.device, &state)
    }

    /// The array under the layer, for one command that starts now or takes no time.
    fn array(&mut self, now: Option<Nanos>) -> (Media<'_>, &mut Layer) {
        let Drive { store, timeline, image, device, parameters, layer, host, .. } = self;
        let page_size = parameters.page_size;
        let media = Media {
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
        (media, layer)
    }

    fn fail_on(&mut self, result: &Result<(), FlashError>) {
        if let Err(FlashError::Device(error)) = result {
            self.failed = Some(error.clone());
        }
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
        if let (Some(start), Some(timeline)) = (start, &mut self.timeline) {
            let (layer, bytes) = (&self.layer, u32::try_from(buf.len()).unwrap_or(u32::MAX));
            let located = pages.clone().filter_map(|page| layer.locate(page_of(page)));
            timeline.read(start, located, bytes, &mut self.parts);
        }
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
        Ok(())
    }

    /// Writes `data` from byte `offset` of the drive on.
    fn write(
        &mut self,
        (group, handle): (u16, u16),
        offset: u64,
        data: &[u8],
        start: Option<Start>,
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
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let position = match (start, &mut self.timeline) {
            (Some(start), Some(timeline)) => timeline.controller.write(start, bytes),
            _ => 0,
        };
        let (mut array, layer) = self.array(start.map(|start| start.now));
        array.source = Source {
            first: page_of(first),
            data: merged.as_deref().unwrap_or(data),
            offset,
            end,
            position: position.saturating_sub(u64::from(bytes)),
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

    /// Makes a range of bytes read as zeroes; whole pages alone if it need not be exact.
    fn zero(&mut self, offset: u64, bytes: u64, is_exact: bool) -> Result<(), FlashError> {
        let page_size = u64::from(self.parameters.page_size);
        let end = offset + bytes;
        let (first, last) = (offset.next_multiple_of(page_size), end / page_size * page_size);
        if first < last {
            self.trim(page_of(first / page_size), page_of((last - first) / page_size))?;
        }
        if is_exact {
            let edges =
                if first > last { [(offset, end), (0, 0)] } else { [(offset, first), (last, end)] };
            for (from, to) in edges {
                if from < to {
                    let zeroes = vec![0; to_usize(to - from)];
                    self.write((0, 0), from, &zeroes, None)?;
                }
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        part: &NamespacePart,
        op: &mut Op,
        start: Option<Start>,
    ) -> Result<(), FlashError> {
        let lba_size = self.parameters.lba_size;
        let Some(namespace) = self.namespace(part.id) else {
            let gone = Cause::Gone("the namespace was deleted".to_owned());
            return Err(DeviceError::new(&part.name, op.kind(), Lba(0), 0, gone).into());
        };
        let base = u64::from(namespace.pages.first) * u64::from(self.parameters.page_size);
        match op {
            Op::Read { lba, buf } => {
                self.host.reads += 1;
                self.host.read_bytes += to_u64(buf.len());
                self.read(base + lba.offset(lba_size), buf, start)
            }
            Op::Write { lba, buf, placement, fua } => {
                let default = (0, namespace.handles[0]);
                let wanted = placement.filter(|_| self.placement.enabled.is_some());
                let found = wanted.map(|id| self.resolve(namespace, id).ok_or(id));
                let target = match found {
                    None => default,
                    Some(Ok(found)) => found,
                    Some(Err(id)) => {
                        let kind = EventType::InvalidPlacementId;
                        self.record_event(kind, part.id, Some(id), default);
                        default
                    }
                };
                self.host.writes += 1;
                self.host.written_bytes += to_u64(buf.len());
                let copied = self.write(target, base + lba.offset(lba_size), buf, start)?;
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
                self.zero(offset, bytes, is_exact)
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
        let (lba, bytes) = op.range(self.parameters.lba_size);
        let fail = |cause| DeviceError::new(&part.name, op.kind(), lba, bytes, cause);
        if let Some(failed) = &self.failed {
            let why = format!("the device under the drive has failed ({failed}); open it again");
            return Err(fail(Cause::Gone(why)));
        }
        self.now = start.map_or(self.now, |start| start.now);
        let kind = op.kind();
        let mut result = self.execute(part, op, start);
        if result.is_ok() && self.image.as_ref().is_some_and(Image::is_long) {
            result = self.commit().and_then(|()| self.checkpoint());
        }
        match (result, start, &mut self.timeline) {
            (Ok(()), Some(start), Some(timeline))
                if !matches!(kind, OpKind::Read | OpKind::Write) =>
            {
                timeline.controller.command(start);
                Ok(())
            }
            (Ok(()), ..) => Ok(()),
            (Err(error), ..) => {
                let cause = match &error {
                    FlashError::Device(below) => Cause::Media(below.to_string()),
                    other => Cause::Media(other.to_string()),
                };
                if kind != OpKind::Read {
                    let error = DeviceError::new(&part.name, kind, lba, bytes, cause.clone());
                    self.failed = Some(error);
                }
                Err(DeviceError::new(&part.name, kind, lba, bytes, cause))
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.timeline.as_ref().and_then(|timeline| timeline.controller.next_event())
    }

    fn advance(&mut self, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        if let Some(timeline) = &mut self.timeline {
            timeline.controller.advance(to, finished);
        }
    }
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
    /// Where the host's bytes begin in the stream of all it writes.
    position: u64,
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
struct Media<'a> {
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

impl Media<'_> {
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

impl Array for Media<'_> {
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
            let position = self.source.position + (end - self.source.offset);
            timeline.program(*now, at, bytes, position);
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
