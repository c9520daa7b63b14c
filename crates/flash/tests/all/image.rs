//! The image on a device: damaged in every byte, cut short, made over another one, and longer than
//! its journal.

use std::sync::Arc;

use crate::common::outlet::Outlet;
use crate::common::script::{Open, Script, reopen};
use crate::common::{small, tiny};
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Device, MemoryDevice, Op, PlacementId, Port};
use esker_flash::drive::{Configuration, Media};
use esker_flash::ftl::Cleaning;
use esker_flash::{FlashError, Pace, Parameters, Ssd};

const BLOCK: usize = 4096;

/// Everything before the data that is not zero, by block.
struct Metadata {
    device: Arc<dyn Device>,
    port: Port,
    blocks: Vec<(u64, AlignedBuf)>,
}

impl Metadata {
    fn of(device: &Arc<dyn Device>, parameters: &Parameters) -> Metadata {
        let mut port = Port::open(&**device, 1).unwrap();
        let end = Ssd::image_bytes(parameters).unwrap() - parameters.media_bytes();
        let mut blocks = Vec::new();
        for block in 0..end / BLOCK as u64 {
            let buf = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
            if buf.iter().any(|&byte| byte != 0) {
                blocks.push((block, buf));
            }
        }
        Metadata { device: device.clone(), port, blocks }
    }

    fn restore(&mut self) {
        for (block, buf) in &self.blocks {
            self.port.write(Lba(*block), buf.clone(), None).unwrap();
        }
    }

    /// Opens the drive with one byte of block number `index` changed.
    fn flipped(&mut self, index: usize, at: usize) -> Result<Open, FlashError> {
        self.restore();
        let (block, buf) = &self.blocks[index];
        let mut damaged = buf.clone();
        damaged[at] ^= 1 << (at % 8);
        self.port.write(Lba(*block), damaged, None).unwrap();
        reopen(&self.device, Pace::untimed())
    }
}

/// A drive with some commits in its journal, and nothing that is not flushed: the script, and the
/// step of the last commit but one.
fn prepared(device: &Arc<dyn Device>, parameters: &Parameters) -> (Script, u64) {
    let outlet = Outlet::new(device.clone(), 0);
    let below: Arc<dyn Device> = outlet.clone();
    let ssd = Ssd::create("damaged", parameters, below, Pace::untimed()).unwrap();
    let mut open = Open::new(ssd);
    let mut script = Script::new(8, parameters, Some(0));
    script.begin(&mut open).unwrap();
    for _ in 0..70 {
        script.step(&mut open).unwrap();
    }
    open.ssd.checkpoint().unwrap();
    let mut before = 0;
    for _ in 0..3 {
        before = script.durable();
        script.durable_write(&mut open).unwrap();
    }
    outlet.cut();
    drop(open);
    (script, before)
}

#[test]
fn a_flipped_bit_in_any_byte_of_the_image_is_noticed_or_harmless() {
    let parameters = tiny(Media::Flash);
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
    let (script, before_last) = prepared(&device, &parameters);
    let mut metadata = Metadata::of(&device, &parameters);
    assert_eq!(metadata.blocks[..2].iter().map(|(block, _)| *block).collect::<Vec<_>>(), [0, 1]);
    let (mut noticed, mut harmless, mut lost_the_last) = (0, 0, 0);
    for index in 0..metadata.blocks.len() {
        // Where there are only zeroes, a byte now and then will do.
        let meant = metadata.blocks[index].1.iter().rposition(|&byte| byte != 0).unwrap();
        let all = (0..=meant).chain((meant + 1..BLOCK).step_by(97));
        for at in all.filter(|at| *at < 700 || at % 5 == 0 || *at >= BLOCK - 8) {
            let what = format!("block {}, byte {at}", metadata.blocks[index].0);
            match metadata.flipped(index, at) {
                Err(error) => {
                    assert!(error.to_string().contains("damaged"), "{what}: {error}");
                    assert!(index > 1, "{what}: the other superblock says the same: {error}");
                    noticed += 1;
                }
                Ok(mut open) => match script.check(&mut open, script.steps()) {
                    Ok(()) => harmless += 1,
                    // Damage to the last commit cannot be told from a power cut in it.
                    Err(_) => {
                        script
                            .check_from(&mut open, before_last, script.steps())
                            .unwrap_or_else(|broken| panic!("{what}: {broken}"));
                        lost_the_last += 1;
                    }
                },
            }
        }
    }
    println!("{noticed} noticed, {harmless} harmless, {lost_the_last} have lost the last commit");
    assert!(noticed > 2000 && harmless > 500 && lost_the_last > 50);
}

#[test]
fn a_device_cut_short_anywhere_is_refused() {
    let parameters = tiny(Media::Flash);
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
    let _ = prepared(&device, &parameters);
    let metadata = Metadata::of(&device, &parameters);
    for size in [0, 1, 2, 3, 4, 10, 500, 1000, 1200, bytes / 4096 - 1] {
        let short: Arc<dyn Device> = Arc::new(MemoryDevice::new("short", size * 4096, 4096));
        let mut port = Port::open(&*short, 1).unwrap();
        for (block, buf) in metadata.blocks.iter().filter(|(block, _)| *block < size) {
            port.write(Lba(*block), buf.clone(), None).unwrap();
        }
        let error = Ssd::open(short, Pace::untimed()).err().unwrap();
        assert!(error.to_string().contains("short"), "{size} blocks: {error}");
    }
}

#[test]
fn a_drive_made_over_another_is_the_one_that_is_found() {
    for media in [Media::Flash, Media::InPlace] {
        let parameters = tiny(media);
        let bytes = Ssd::image_bytes(&parameters).unwrap();
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
        for round in 0..3u64 {
            let outlet = Outlet::new(device.clone(), 0);
            let below: Arc<dyn Device> = outlet.clone();
            let name = format!("number {round}");
            let ssd = Ssd::create(&name, &parameters, below, Pace::untimed()).unwrap();
            let mut open = Open::new(ssd);
            let mut script = Script::new(round, &parameters, None);
            script.begin(&mut open).unwrap();
            // Every one writes less than the one before, so that frames of that are left.
            for _ in 0..20 - 6 * round {
                script.durable_write(&mut open).unwrap();
            }
            outlet.cut();
            drop(open);
            let mut again = reopen(&device, Pace::untimed()).unwrap();
            assert_eq!(again.ssd.name(), name);
            script.check(&mut again, script.steps()).unwrap();
        }
    }
}

/// Writes page after page, each with a command of its own, in an order in which none continues
/// another.
fn scattered(namespace: &dyn Device, pages: u64, page_lbas: u64) {
    let mut port = Port::open(namespace, 1).unwrap();
    for n in 0..pages {
        let page = n * 7 % pages;
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(u8::try_from(page % 251 + 1).unwrap());
        port.write(Lba(page * page_lbas), buf, None).unwrap();
    }
}

#[test]
fn a_commit_of_many_frames_is_read_back_to_its_last_event() {
    let parameters = small(Media::Flash);
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
    let ssd = Ssd::create("long", &parameters, device.clone(), Pace::untimed()).unwrap();
    let id = ssd.create_namespace(4 << 20, None).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    scattered(&namespace, 1024, 8);
    Port::open(&namespace, 1).unwrap().flush().unwrap();
    drop((namespace, ssd));
    let ssd = Ssd::open(device, Pace::untimed()).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    let mut port = Port::open(&namespace, 1).unwrap();
    for page in 0..1024 {
        let buf = port.read(Lba(page * 8), AlignedBuf::zeroed(4096)).unwrap();
        assert!(buf.iter().all(|&byte| u64::from(byte) == page % 251 + 1), "page {page}");
    }
}

#[test]
fn unflushed_events_do_not_outgrow_the_journal() {
    let parameters = small(Media::Flash);
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
    let ssd = Ssd::create("trims", &parameters, device.clone(), Pace::untimed()).unwrap();
    let id = ssd.create_namespace(4 << 20, None).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    let mut port = Port::open(&namespace, 1).unwrap();
    // More discards than a journal of 1,024 frames with 251 events each has room for.
    for n in 0..300_000u64 {
        let op = Op::Discard { lba: Lba(n * 8 % 8192), count: LbaCount(8) };
        port.run(op).unwrap();
    }
    port.flush().unwrap();
    drop((port, namespace, ssd));
    Ssd::open(device, Pace::untimed()).unwrap();
}

#[test]
fn parameters_that_no_drive_has_are_refused_and_never_computed_with() {
    let right = small(Media::Flash);
    assert!(Ssd::image_bytes(&right).is_ok());
    let one = |groups, handles: usize| Configuration {
        groups,
        handles: vec![esker_device::fdp::Isolation::Initially; handles],
    };
    type Change = Box<dyn Fn(&mut Parameters)>;
    let changes: Vec<Change> = vec![
        Box::new(|p| p.page_size = 0),
        Box::new(|p| p.lba_size = 0),
        Box::new(|p| p.nand_page_size = 0),
        Box::new(|p| p.program_size = 0),
        Box::new(|p| p.unit_size = 0),
        Box::new(|p| p.unit_size = u64::MAX / (16 << 10) * (16 << 10)),
        Box::new(|p| p.capacity = 0),
        Box::new(|p| p.capacity = u64::MAX / 4096 * 4096),
        Box::new(|p| p.units = 0),
        Box::new(|p| p.units = u32::MAX),
        Box::new(|p| p.channels = 0),
        Box::new(|p| p.dies = 0),
        Box::new(|p| p.dies = u32::MAX),
        Box::new(|p| p.max_namespaces = u32::MAX),
        Box::new(|p| p.cleaning = Cleaning::Choices(0)),
        Box::new(move |p| p.configurations.push(one(0, 1))),
        Box::new(move |p| p.configurations.push(one(1, 0))),
        Box::new(move |p| p.configurations.push(one(1, 70_000))),
        Box::new(move |p| p.configurations.push(one(3, 2))),
        // 10 bits of a placement id for the group, 7 for the handle.
        Box::new(move |p| {
            p.units = 1024;
            p.configurations = vec![one(1024, 128)];
        }),
        Box::new(|p| {
            p.page_size = 1 << 31;
            p.nand_page_size = 1 << 31;
            p.program_size = 1 << 31;
            p.unit_size = 1 << 31;
            p.capacity = 1 << 31;
        }),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut wrong = right.clone();
        change(&mut wrong);
        assert!(Ssd::image_bytes(&wrong).is_err(), "change {number}");
        assert!(Ssd::new("wrong", &wrong, Pace::untimed()).is_err(), "change {number}");
    }
}

#[test]
fn a_drive_written_in_place_is_not_put_on_a_device_that_tears_its_lbas() {
    let parameters = Parameters { lba_size: 4096, ..small(Media::InPlace) };
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 512));
    let error = Ssd::create("torn", &parameters, device, Pace::untimed()).err().unwrap();
    assert!(error.to_string().contains("tear"), "{error}");
}

#[test]
fn units_in_use_are_erased_when_data_placement_is_enabled() {
    let ssd = Ssd::new("fresh", &small(Media::Flash), Pace::untimed()).unwrap();
    let id = ssd.create_namespace(1 << 20, None).unwrap();
    scattered(&ssd.namespace(id).unwrap(), 256, 8);
    ssd.delete_namespace(id).unwrap();
    let used = 80 - ssd.report().free_units;
    assert_eq!(used, 16);
    ssd.enable_placement(Some(0)).unwrap();
    let report = ssd.report();
    assert_eq!((report.free_units, report.pages.erased), (80, 16 * 16));
    assert_eq!(report.wear, [(0, 64), (1, 16)]);
    let id = ssd.create_namespace(1 << 20, Some(&[1])).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    let mut port = Port::open(&namespace, 1).unwrap();
    port.write(Lba(0), AlignedBuf::zeroed(4096), Some(PlacementId(0))).unwrap();
}
