//! A drive with data placement that keeps books and cleans nothing: its bytes are in memory, its
//! reclaim units have room for some LBAs, and media bytes are host bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::LbaCount;
use esker_base::sync::Mutex;
use esker_device::fdp::{
    Configuration, Endurance, Event, EventType, FdpError, HandleStatus, HandleUse, Isolation,
    Reporter, Statistics,
};
use esker_device::{
    Command, DataPlacement, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, Op,
    PlacementId, QueuePair,
};

const HANDLES: u16 = 4;
/// LBAs of a reclaim unit.
const UNIT: u64 = 256;

pub(crate) struct Drive {
    memory: MemoryDevice,
    books: Arc<Mutex<Books>>,
}

struct Books {
    left: Vec<u64>,
    lba_size: u32,
    host_bytes: u128,
    events: Vec<Event>,
    reported: Vec<Vec<(EventType, bool)>>,
}

impl Drive {
    pub(crate) fn new(mib: u64, lba_size: u32) -> Drive {
        let kinds: Vec<_> = EventType::ALL.iter().map(|&kind| (kind, false)).collect();
        let count = usize::from(HANDLES);
        let books = Books {
            left: vec![UNIT; count],
            lba_size,
            host_bytes: 0,
            events: Vec::new(),
            reported: vec![kinds; count],
        };
        let memory = MemoryDevice::new("drive", mib << 20, lba_size);
        Drive { memory, books: Arc::new(Mutex::new(books)) }
    }
}

impl Books {
    fn index(id: PlacementId) -> Result<usize, FdpError> {
        if id.0 < HANDLES {
            return Ok(id.0.into());
        }
        Err(FdpError::InvalidId { id: id.0, count: HANDLES.into() })
    }

    fn write(&mut self, id: PlacementId, bytes: usize) {
        let index = Books::index(id).unwrap_or(0);
        let mut lbas = (bytes / usize::try_from(self.lba_size).unwrap()) as u64;
        self.host_bytes += bytes as u128;
        while lbas > 0 {
            let part = lbas.min(self.left[index]);
            self.left[index] -= part;
            lbas -= part;
            if self.left[index] == 0 {
                self.left[index] = UNIT;
            }
        }
    }

    fn note(&mut self, id: PlacementId, index: usize) {
        let kind = EventType::NotFullyWritten;
        if self.reported[index].contains(&(kind, true)) {
            let location = Some((0, id.0));
            self.events.push(Event {
                kind,
                timestamp_ms: 1,
                placement: Some(id),
                namespace: Some(1),
                location,
                moved: None,
            });
        }
    }
}

impl Device for Drive {
    fn name(&self) -> &str {
        "drive"
    }
    fn geometry(&self) -> Geometry {
        Geometry { placement_handles: HANDLES, ..self.memory.geometry() }
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let queue = self.memory.queue_pair(depth)?;
        Ok(Box::new(Queue { queue, books: self.books.clone() }))
    }
    fn stats(&self) -> DeviceStats {
        self.memory.stats()
    }
    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        Some(self)
    }
}

struct Queue {
    queue: Box<dyn QueuePair>,
    books: Arc<Mutex<Books>>,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        for command in commands.iter() {
            if let Op::Write { buf, placement, .. } = &command.op {
                self.books.lock().write(placement.unwrap_or_default(), buf.len());
            }
        }
        self.queue.submit(commands)
    }

    esker_device::forward!(queue: poll, wait, in_flight);
}

impl DataPlacement for Drive {
    fn drive(&self) -> &str {
        "drive"
    }
    fn configurations(&self) -> Vec<Configuration> {
        vec![Configuration {
            reclaim_groups: 1,
            group_bits: 0,
            handles: vec![Isolation::Initially; usize::from(HANDLES)],
            max_placement_ids: HANDLES,
            max_namespaces: 1,
            reclaim_unit_bytes: UNIT * u64::from(self.memory.geometry().lba_size),
            time_limit_s: 0,
            volatile_write_cache: false,
            is_valid: true,
        }]
    }
    fn enabled(&self) -> Option<usize> {
        Some(0)
    }
    fn enable(&self, _: Option<usize>) -> Result<(), FdpError> {
        Err(FdpError::Sequence("the drive has a namespace".to_owned()))
    }
    fn usage(&self) -> Result<Vec<HandleUse>, FdpError> {
        Ok(vec![HandleUse::Host; usize::from(HANDLES)])
    }
    fn statistics(&self) -> Result<Statistics, FdpError> {
        let bytes = self.books.lock().host_bytes;
        Ok(Statistics { host_bytes: bytes, media_bytes: bytes, erased_bytes: 0 })
    }
    fn events(&self, reporter: Reporter) -> Result<Vec<Event>, FdpError> {
        let books = self.books.lock();
        let is_its = |event: &&Event| event.kind.reporter() == reporter;
        Ok(books.events.iter().filter(is_its).copied().collect())
    }
    fn endurance(&self) -> Endurance {
        let host_written_bytes = self.books.lock().host_bytes;
        Endurance {
            spare_percent: 100,
            host_written_bytes,
            media_written_bytes: host_written_bytes,
            ..Endurance::default()
        }
    }
    fn handles(&self) -> Result<Vec<HandleStatus>, FdpError> {
        let books = self.books.lock();
        let handles = (0..HANDLES).zip(&books.left).map(|(id, &left)| HandleStatus {
            placement: PlacementId(id),
            handle: id,
            time_left_s: 0,
            writable: LbaCount(left),
        });
        Ok(handles.collect())
    }
    fn update(&self, ids: &[PlacementId]) -> Result<(), FdpError> {
        let mut books = self.books.lock();
        for &id in ids {
            Books::index(id)?;
        }
        for &id in ids {
            let index = Books::index(id)?;
            if books.left[index] < UNIT {
                books.note(id, index);
            }
            books.left[index] = UNIT;
        }
        Ok(())
    }
    fn reported_events(&self, id: PlacementId) -> Result<Vec<(EventType, bool)>, FdpError> {
        Ok(self.books.lock().reported[Books::index(id)?].clone())
    }
    fn report_events(
        &self,
        id: PlacementId,
        events: &[EventType],
        enable: bool,
    ) -> Result<(), FdpError> {
        let index = Books::index(id)?;
        for (kind, is_reported) in &mut self.books.lock().reported[index] {
            if events.contains(kind) {
                *is_reported = enable;
            }
        }
        Ok(())
    }
}
