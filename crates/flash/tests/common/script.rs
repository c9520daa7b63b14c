//! A random program on a drive, and everything it may find there after a power cut.
//!
//! Every LBA that is written says which namespace, address and write it is of. The oracle keeps
//! all values of every LBA with the step that wrote each, and for every step which ones before it
//! are durable. A read must find the last durable value or a later one.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_device::{Device, DeviceError, Op, PlacementId, Port};
use esker_flash::{FlashError, Namespace, Pace, Parameters, Ssd};

/// The number of a step; content from before the first has 0.
pub(crate) type Step = u64;

/// A namespace in the oracle.
#[derive(Clone)]
struct Space {
    id: u32,
    /// Which of all namespaces that ever were.
    instance: u64,
    created: Step,
    deleted: Option<Step>,
    ids: u16,
    /// For each LBA, the writes to it: step and version, zero for zeroes.
    values: Vec<Vec<(Step, u64)>>,
}

/// A random program, and its steps so far.
#[derive(Clone)]
pub(crate) struct Script {
    rng: Rng,
    parameters: Parameters,
    spaces: Vec<Space>,
    steps: Step,
    versions: u64,
    /// For each step, the last one that is durable when it has ended.
    durable: Vec<Step>,
    /// For each step, the bytes that the host had written when it ended.
    host_bytes: Vec<u64>,
    /// The configuration of data placement to be used.
    placement: Option<usize>,
}

/// A drive that is open, with its namespaces.
pub(crate) struct Open {
    pub(crate) ssd: Ssd,
    ports: BTreeMap<u32, (Namespace, Port)>,
}

impl Open {
    pub(crate) fn new(ssd: Ssd) -> Open {
        let mut ports = BTreeMap::new();
        for id in ssd.namespaces() {
            ports.insert(id, open(&ssd, id));
        }
        Open { ssd, ports }
    }
}

fn open(ssd: &Ssd, id: u32) -> (Namespace, Port) {
    let namespace = ssd.namespace(id).unwrap();
    let port = Port::open(&namespace, 4).unwrap();
    (namespace, port)
}

/// Content of an LBA: its namespace, address and version, and bytes that depend on them.
fn content(instance: u64, lba: u64, version: u64, target: &mut [u8]) {
    if version == 0 {
        return target.fill(0);
    }
    let mixed = (instance ^ lba.rotate_left(20) ^ version.rotate_left(40)).wrapping_mul(PRIME);
    for (word, bytes) in [instance | 1 << 63, lba, version, mixed].iter().zip(target.chunks_mut(8))
    {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    target[32..].fill(mixed.to_be_bytes()[0]);
}

/// An odd number with bits all over (2^64 over the golden ratio).
const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

impl Script {
    pub(crate) fn new(seed: u64, parameters: &Parameters, placement: Option<usize>) -> Script {
        Script {
            rng: Rng::new(seed),
            parameters: parameters.clone(),
            spaces: Vec::new(),
            steps: 0,
            versions: 0,
            durable: vec![0],
            host_bytes: vec![0],
            placement,
        }
    }

    /// Steps that have ended.
    pub(crate) fn steps(&self) -> Step {
        self.steps
    }

    /// The last step that is durable.
    pub(crate) fn durable(&self) -> Step {
        self.durable[usize::try_from(self.steps).unwrap()]
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// Enables data placement, if it is to be: the first step.
    pub(crate) fn begin(&mut self, open: &mut Open) -> Result<(), FlashError> {
        open.ssd.enable_placement(self.placement)?;
        self.end(0, true);
        Ok(())
    }

    /// A random step. On an error it has not ended, and may have done anything it could do.
    pub(crate) fn step(&mut self, open: &mut Open) -> Result<(), FlashError> {
        let living: Vec<usize> =
            (0..self.spaces.len()).filter(|&at| self.spaces[at].deleted.is_none()).collect();
        let kind = self.below(1000);
        if living.is_empty() || (kind < 8 && living.len() < 3) {
            return self.create(open);
        }
        let chosen = living[usize::try_from(self.below(living.len() as u64)).unwrap()];
        match kind {
            8..14 if living.len() > 1 => self.delete(open, chosen),
            14..20 => {
                open.ssd.checkpoint()?;
                self.end(0, true);
                Ok(())
            }
            20..60 => {
                let ids = u64::from(self.spaces[chosen].ids);
                if ids > 0 && self.placement.is_some() {
                    let id = PlacementId(u16::try_from(self.below(ids)).unwrap());
                    let (namespace, _) = &open.ports[&self.spaces[chosen].id];
                    namespace.data_placement().unwrap().update(&[id]).unwrap();
                }
                self.end(0, false);
                Ok(())
            }
            _ => self.command(open, chosen, kind),
        }
    }

    fn command(&mut self, open: &mut Open, chosen: usize, kind: u64) -> Result<(), FlashError> {
        let (lba_size, ids) = (u64::from(self.parameters.lba_size), self.spaces[chosen].ids);
        let per_page = u64::from(self.parameters.page_size) / lba_size;
        let lbas = self.spaces[chosen].values.len() as u64;
        // One half of the writes fall on an eighth of the space.
        let span = if self.rng.chance(1, 2) { lbas.div_ceil(8) } else { lbas };
        let mut first = self.below(span);
        let mut count = 1 + self.below((6 * per_page).min(lbas - first));
        if self.rng.chance(1, 3) {
            first = first / per_page * per_page;
            count = count.next_multiple_of(per_page).min(lbas - first);
        }
        let (port, instance) = (
            &mut open.ports.get_mut(&self.spaces[chosen].id).unwrap().1,
            self.spaces[chosen].instance,
        );
        let (lba, many) = (Lba(first), LbaCount(count));
        match kind {
            60..260 => {
                port.flush()?;
                self.end(0, true);
            }
            260..320 => {
                // Whole pages are let go, and read as zeroes; others stay as they are.
                let whole = first.next_multiple_of(per_page)..(first + count) / per_page * per_page;
                self.write(chosen, whole, 0);
                port.discard(lba, many)?;
                self.end(0, false);
            }
            320..380 => {
                self.write(chosen, first..first + count, 0);
                port.run(Op::WriteZeroes { lba, count: many })?;
                self.end(0, false);
            }
            _ => {
                self.versions += 1;
                let (version, fua) = (self.versions, kind < 440);
                let size = usize::try_from(count * lba_size).unwrap();
                let mut buf = AlignedBuf::zeroed(size);
                for (part, lba) in buf.chunks_mut(usize::try_from(lba_size).unwrap()).zip(first..) {
                    content(instance, lba, version, part);
                }
                let placement = (ids > 0 && self.rng.chance(7, 8))
                    .then(|| PlacementId(u16::try_from(self.rng.below(u64::from(ids))).unwrap()));
                self.write(chosen, first..first + count, version);
                port.run(Op::Write { lba, buf, placement, fua })?;
                self.end(count * lba_size, fua);
            }
        }
        Ok(())
    }

    /// A flush.
    pub(crate) fn flush(&mut self, open: &mut Open) -> Result<(), FlashError> {
        open.ports.values_mut().next().unwrap().1.flush()?;
        self.end(0, true);
        Ok(())
    }

    /// A write of one LBA with FUA, to the first namespace.
    pub(crate) fn durable_write(&mut self, open: &mut Open) -> Result<(), FlashError> {
        if self.spaces.is_empty() {
            return self.create(open);
        }
        let lba = self.below(self.spaces[0].values.len() as u64);
        self.versions += 1;
        self.write(0, lba..lba + 1, self.versions);
        let mut buf = AlignedBuf::zeroed(usize::try_from(self.parameters.lba_size).unwrap());
        content(self.spaces[0].instance, lba, self.versions, &mut buf);
        let bytes = buf.len() as u64;
        let op = Op::Write { lba: Lba(lba), buf, placement: None, fua: true };
        open.ports.get_mut(&self.spaces[0].id).unwrap().1.run(op)?;
        self.end(bytes, true);
        Ok(())
    }

    fn write(&mut self, space: usize, lbas: std::ops::Range<u64>, version: u64) {
        for lba in lbas {
            let step = self.steps + 1;
            self.spaces[space].values[usize::try_from(lba).unwrap()].push((step, version));
        }
    }

    fn end(&mut self, host_bytes: u64, is_durable: bool) {
        self.steps += 1;
        let durable = if is_durable { self.steps } else { *self.durable.last().unwrap() };
        self.durable.push(durable);
        self.host_bytes.push(self.host_bytes.last().unwrap() + host_bytes);
    }

    fn create(&mut self, open_drive: &mut Open) -> Result<(), FlashError> {
        let page = u64::from(self.parameters.page_size);
        let room = open_drive.ssd.free_bytes() / page;
        if room == 0 {
            self.end(0, false);
            return Ok(());
        }
        let bytes = if room < 8 { room } else { room / 2 + self.below(room / 2) } * page;
        let handles: Vec<u16> = match self.placement {
            None => Vec::new(),
            Some(index) => {
                let handles = self.parameters.configurations[index].handles.len() as u64;
                let count = 1 + self.below(3);
                (0..count).map(|_| u16::try_from(self.below(handles)).unwrap()).collect()
            }
        };
        let named = self.placement.map(|_| &handles[..]);
        let lbas = bytes / u64::from(self.parameters.lba_size);
        let ids = (1..).find(|id| self.spaces.iter().all(|s| s.id != *id || s.deleted.is_some()));
        self.spaces.push(Space {
            id: ids.unwrap(),
            instance: self.spaces.len() as u64 + 1,
            created: self.steps + 1,
            deleted: None,
            ids: u16::try_from(handles.len()).unwrap(),
            values: vec![Vec::new(); usize::try_from(lbas).unwrap()],
        });
        let id = open_drive.ssd.create_namespace(bytes, named)?;
        assert_eq!(Some(id), ids);
        open_drive.ports.insert(id, open(&open_drive.ssd, id));
        self.end(0, true);
        Ok(())
    }

    fn delete(&mut self, open: &mut Open, chosen: usize) -> Result<(), FlashError> {
        let id = self.spaces[chosen].id;
        self.spaces[chosen].deleted = Some(self.steps + 1);
        open.ssd.delete_namespace(id)?;
        open.ports.remove(&id);
        self.end(0, true);
        Ok(())
    }

    /// The namespaces after a step.
    fn living(&self, step: Step) -> impl Iterator<Item = &Space> {
        self.spaces.iter().filter(move |space| {
            space.created <= step && space.deleted.is_none_or(|deleted| deleted > step)
        })
    }

    /// Checks a drive that was cut off after `ended` steps, perhaps in the middle of the next.
    pub(crate) fn check(&self, open: &mut Open, ended: Step) -> Result<(), String> {
        self.check_from(open, self.durable[usize::try_from(ended).unwrap()], ended)
    }

    /// As [`Script::check`], when steps after `durable` may be lost.
    pub(crate) fn check_from(
        &self,
        open: &mut Open,
        durable: Step,
        ended: Step,
    ) -> Result<(), String> {
        let found = open.ssd.namespaces();
        let numbers = |step: Step| {
            let mut numbers: Vec<u32> = self.living(step).map(|space| space.id).collect();
            numbers.sort_unstable();
            numbers
        };
        let mut sorted = found.clone();
        sorted.sort_unstable();
        let at = [ended, ended + 1].into_iter().find(|&step| numbers(step) == sorted);
        let Some(at) = at else {
            return Err(format!("there are namespaces {found:?}, not {:?}", numbers(ended)));
        };
        for space in self.living(at) {
            self.check_space(open, space, durable, ended + 1)?;
        }
        self.check_counts(&open.ssd, durable, ended + 1)
    }

    fn check_space(
        &self,
        open: &mut Open,
        space: &Space,
        from: Step,
        to: Step,
    ) -> Result<(), String> {
        let size = usize::try_from(self.parameters.lba_size).unwrap();
        let (namespace, port) = open.ports.get_mut(&space.id).ok_or("a namespace is closed")?;
        let lbas = namespace.geometry().capacity.0;
        if lbas != space.values.len() as u64 {
            return Err(format!("namespace {} has {lbas} LBAs", space.id));
        }
        let most = (64 << 10) / u64::from(self.parameters.lba_size);
        let mut expected = vec![0; size];
        for start in (0..lbas).step_by(usize::try_from(most).unwrap()) {
            let count = most.min(lbas - start);
            let buf = AlignedBuf::zeroed(usize::try_from(count).unwrap() * size);
            let buf = port.read(Lba(start), buf).map_err(|error| error.to_string())?;
            for (found, lba) in buf.chunks(size).zip(start..) {
                let values = &space.values[usize::try_from(lba).unwrap()];
                let base = values.partition_point(|(step, _)| *step <= from);
                let end = values.partition_point(|(step, _)| *step <= to);
                let last = base.checked_sub(1).map_or((0, 0), |at| values[at]);
                let is_allowed = std::iter::once(&last).chain(&values[base..end]).any(|value| {
                    content(space.instance, lba, value.1, &mut expected);
                    *found == expected[..]
                });
                if !is_allowed {
                    let word =
                        |at: usize| u64::from_le_bytes(found[at * 8..][..8].try_into().unwrap());
                    return Err(format!(
                        "LBA {lba} of namespace {} (instance {}) holds {:x} {} {} (its instance, \
                         LBA and version), and not {last:?} or one of {:?}",
                        space.id,
                        space.instance,
                        word(0),
                        word(1),
                        word(2),
                        &values[base..end]
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_counts(&self, ssd: &Ssd, from: Step, to: Step) -> Result<(), String> {
        let report = ssd.report();
        let bytes = |step: Step| {
            let last = self.host_bytes.len() - 1;
            self.host_bytes[usize::try_from(step).unwrap().min(last)]
        };
        // A command under way has at most a megabyte.
        let most = bytes(to) + (1 << 20);
        if !(bytes(from)..=most).contains(&report.host_written_bytes) {
            let found = report.host_written_bytes;
            return Err(format!("{found} bytes written, not {} to {most}", bytes(from)));
        }
        let erasures: u64 = report.wear.iter().map(|(n, units)| u64::from(n * units)).sum();
        let unit_pages = self.parameters.unit_size / u64::from(self.parameters.page_size);
        if erasures * unit_pages != report.pages.erased {
            return Err(format!("{erasures} erasures, and {} pages erased", report.pages.erased));
        }
        Ok(())
    }

    /// The program as it was after `ended` steps, to go on with the content found on the drive now.
    pub(crate) fn fork(&self, ended: Step, open: &mut Open) -> Result<Script, DeviceError> {
        let mut fork = self.clone();
        let kept = usize::try_from(ended + 1).unwrap();
        fork.steps = ended;
        fork.durable.truncate(kept);
        fork.host_bytes.truncate(kept);
        let living = open.ssd.namespaces();
        // Namespaces made or deleted in the step after may be there, or gone.
        fork.spaces.retain(|space| space.created <= ended + 1);
        for space in &mut fork.spaces {
            let was_there = space.deleted.is_none_or(|deleted| deleted > ended);
            space.deleted = if was_there && living.contains(&space.id) { None } else { Some(0) };
            space.created = 0;
        }
        fork.resume(open)?;
        Ok(fork)
    }

    /// Forgets the steps that were found to be lost: from here on the drive's present content
    /// counts.
    pub(crate) fn resume(&mut self, open: &mut Open) -> Result<(), DeviceError> {
        let size = usize::try_from(self.parameters.lba_size).unwrap();
        let step = self.steps;
        for space in self.spaces.iter_mut().filter(|space| space.deleted.is_none()) {
            let port = &mut open.ports.get_mut(&space.id).unwrap().1;
            for (values, lba) in space.values.iter_mut().zip(0u64..) {
                let buf = port.read(Lba(lba), AlignedBuf::zeroed(size))?;
                let version = u64::from_le_bytes(buf[16..24].try_into().unwrap());
                *values = vec![(step, version)];
            }
        }
        *self.durable.last_mut().unwrap() = step;
        *self.host_bytes.last_mut().unwrap() = open.ssd.report().host_written_bytes;
        Ok(())
    }

    /// Bytes the host has written.
    pub(crate) fn host_bytes(&self) -> u64 {
        *self.host_bytes.last().unwrap()
    }

    /// Checks that a drive holds exactly the content that was last written.
    pub(crate) fn check_now(&self, open: &mut Open) -> Result<(), String> {
        for space in self.living(self.steps) {
            self.check_space(open, space, self.steps, self.steps)?;
        }
        self.check_counts(&open.ssd, self.steps, self.steps)
    }
}

/// The drive on a device.
pub(crate) fn reopen(device: &Arc<dyn Device>, pace: Pace) -> Result<Open, FlashError> {
    Ssd::open(device.clone(), pace).map(Open::new)
}
