//! The experiment on a device that is named: the same factors as the counting drive's, and nothing erased in vain.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_base::{AlignedBuf, Lba};
use esker_device::{Device, MemoryDevice, Port};
use esker_flash::{Pace, Ssd};

use super::factor;
use crate::LabError;
use crate::Report;
use crate::fdp::configuration::{Configuration, InitialState, StoreRate};
use crate::fdp::emulated;
use crate::fdp::on_device::{NamedDevice, run};
use crate::fdp::own::OwnStores;
use crate::fdp::plan::{stores_base, with_handles};
use crate::fdp::{Fdp, FdpFigures, FdpOptions};
use crate::text::one_line;

const BYTES: u64 = 128 << 20;

/// The published stores on a drive of 128 MiB.
fn small(handles_each: u16) -> Configuration {
    let mut of = stores_base(&FdpOptions { drive_bytes: BYTES, ..FdpOptions::default() });
    of.drive.units = 64;
    with_handles(&of, handles_each)
}

fn named(device: Arc<dyn Device>) -> NamedDevice {
    let name = "the device".to_owned();
    NamedDevice { name, device, remarks: vec!["assumed: little".into()], memory_bytes: 1 << 30 }
}

fn run_own(on: &NamedDevice, own: OwnStores) -> Result<FdpFigures, LabError> {
    let options = FdpOptions { own: Some(own), ..FdpOptions::default() };
    run(on, &options, &mut |_| ControlFlow::Continue(()))
}

fn with(handles: &[u16]) -> OwnStores {
    OwnStores { handles: handles.to_vec(), ..OwnStores::default() }
}

fn factors(report: &FdpFigures) -> Vec<f64> {
    report.chapters[0].runs.iter().map(|run| run.measured.write_amplification).collect()
}

#[test]
fn device_costs_what_the_counting_drive_says_to_the_last_digit() {
    for handles in [0, 1, 2] {
        let of = small(handles);
        let on = named(emulated::whole(&of).unwrap());
        let got = factors(&run_own(&on, with(&[handles])).unwrap())[0];
        assert_eq!(got.to_bits(), factor(&of).to_bits(), "{handles} handles: {got}");
    }
    let of = Configuration { initial: InitialState::Mapped, ..small(1) };
    let on = named(emulated::whole(&of).unwrap());
    let own = OwnStores { initial: InitialState::Mapped, ..with(&[1]) };
    assert_eq!(factors(&run_own(&on, own).unwrap())[0].to_bits(), factor(&of).to_bits());
}

#[test]
fn each_run_begins_on_an_erased_device() {
    let new = || named(emulated::whole(&small(2)).unwrap());
    let on = new();
    let filled = OwnStores { initial: InitialState::Mapped, ..with(&[1]) };
    let mapped = factors(&run_own(&on, filled).unwrap())[0];
    // Without handles that are named, all that the device has: 0, 1 and 2 each.
    let got = factors(&run_own(&on, with(&[])).unwrap());
    for (got, handles) in got.iter().zip([0, 1, 2]) {
        let expected = factors(&run_own(&new(), with(&[handles])).unwrap())[0];
        assert!((got / expected - 1.0).abs() < 0.02, "{handles} handles: {got} {expected}");
    }
    assert!(got.len() == 3 && mapped > got[1] + 0.1, "{mapped} {got:?}");
}

#[test]
fn report_says_what_ran_on_what() {
    let on = named(emulated::whole(&small(1)).unwrap());
    let own = OwnStores {
        stores: [64 << 10, 128 << 10, 64 << 10]
            .map(|block_bytes| StoreRate { block_bytes, rate: 1.0 })
            .to_vec(),
        keys: None,
        ..with(&[])
    };
    let figures = run_own(&on, own).unwrap();
    let report = Report::<Fdp>::of(figures);
    let table = one_line(&report.page().text());
    for words in [
        "3 stores on the device",
        "the device, 128.00 MiB, 4 placement handles",
        "over-provisioning the drive's",
        "cleaning the drive's",
        "log of placement (22h)",
        "all of it was discarded",
        "Left out: the stores alone",
        "with 2 handles and more",
        "assumed: little",
    ] {
        assert!(table.contains(words), "no '{words}' in:\n{table}");
    }
    let page = report.page();
    assert!(page.about.contains("that of the device") && page.verdicts.is_empty());
    let read: FdpFigures = serde_json::from_value(report.json()).unwrap();
    assert_eq!(read, report.figures);
}

/// The message with which a run on a device is refused that holds data, and holds them after.
fn refused(device: Arc<dyn Device>, own: OwnStores, memory_bytes: u64) -> String {
    let mut port = Port::open(&*device, 1).unwrap();
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(7);
    port.write(Lba(3), buf, None).unwrap();
    let on = NamedDevice { memory_bytes, ..named(device) };
    let error = run_own(&on, own).unwrap_err();
    assert!(matches!(error, LabError::Invalid(_)), "{error}");
    let read = port.read(Lba(3), AlignedBuf::zeroed(4096)).unwrap();
    assert!(read.iter().all(|&byte| byte == 7), "erased, and then: {error}");
    error.to_string()
}

#[test]
fn whatever_is_refused_is_refused_before_anything_is_erased() {
    let most = u64::MAX;
    let memory = Arc::new(MemoryDevice::new("m", BYTES, 4096));
    let why = refused(memory, with(&[0]), most);
    assert!(why.contains("the device: ") && why.contains("does not tell"), "{why}");

    let parameters = emulated::base().unwrap().scaled(1 << 30).unwrap();
    let ssd = Ssd::new("ssd", &parameters, Pace::untimed()).unwrap();
    let id = ssd.create_namespace(1 << 30, None).unwrap();
    let why = refused(Arc::new(ssd.namespace(id).unwrap()), with(&[0]), most);
    assert!(why.contains("placement is disabled") && why.contains("100 GB"), "{why}");

    let drive = || emulated::whole(&small(2)).unwrap();
    let why = refused(drive(), with(&[0, 3]), most);
    assert!(why.contains("has 8 placement handles") && why.contains("are 12"), "{why}");

    let large = StoreRate { block_bytes: 1 << 20, rate: 1.0 };
    let why = refused(drive(), OwnStores { stores: vec![large; 4], ..with(&[0]) }, most);
    assert!(why.contains("has 128.00 MiB") && why.contains("256.00 MiB at least"), "{why}");

    let why = refused(drive(), with(&[0]), 100 << 10);
    assert!(why.contains("larger records, by"), "{why}");

    let why = refused(drive(), OwnStores { stores: Vec::new(), ..with(&[0]) }, most);
    assert!(why.contains("1 to 64"), "{why}");
}
