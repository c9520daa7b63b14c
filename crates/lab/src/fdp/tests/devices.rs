//! The same experiment on devices: a store's writes there, and their cost, are those of the
//! counting drive.

use std::sync::Arc;

use esker_device::{Device, MemoryDevice};

use super::factor;
use crate::fdp::FdpOptions;
use crate::fdp::configuration::Configuration;
use crate::fdp::emulated;
use crate::fdp::measure::measure_on;
use crate::fdp::plan::{stores_base, with_handles};
use crate::fdp::sink::{DeviceDrive, Drive as _};

fn small() -> Configuration {
    let mut of = stores_base(&FdpOptions { drive_bytes: 128 << 20, ..FdpOptions::default() });
    of.drive.units = 64;
    of
}

fn namespaces(of: &Configuration) -> Vec<Arc<dyn Device>> {
    emulated::namespaces(of).unwrap()
}

#[test]
fn a_device_costs_what_the_counting_drive_says_to_the_last_digit() {
    for handles in [0, 1, 2] {
        let of = with_handles(&small(), handles);
        let mut drive = DeviceDrive::new(namespaces(&of)).unwrap();
        let got = measure_on(&mut drive, &of, &mut |_| true).unwrap();
        assert!(got.write_amplification.to_bits() == factor(&of).to_bits(), "{handles} handles");
    }
}

#[test]
fn a_device_that_cannot_tell_writes_what_it_is_given() {
    let of = small();
    let device = |_| -> Arc<dyn Device> { Arc::new(MemoryDevice::new("m", 32 << 20, 4096)) };
    let mut drive = DeviceDrive::new((0..4).map(device).collect()).unwrap();
    let got = measure_on(&mut drive, &of, &mut |_| true).unwrap();
    assert_eq!(got.write_amplification.to_bits(), 1.0f64.to_bits());
    assert!(drive.written().unwrap().host_bytes > 8 * (128 << 20));
}

#[test]
fn sinks_refuse_what_lies_outside_or_askew() {
    let of = small();
    let mut counting = crate::fdp::sink::CountingDrive::new(&of.drive, 4, 0).unwrap();
    let mut devices = DeviceDrive::new(namespaces(&of)).unwrap();
    for drive in [&mut counting as &mut dyn crate::fdp::sink::Drive, &mut devices] {
        let namespace = drive.namespace(3);
        let bytes = namespace.bytes();
        assert_eq!(bytes, 32 << 20);
        namespace.write(bytes - (32 << 10), 32 << 10, 0).unwrap();
        namespace.discard(bytes - (32 << 10), 32 << 10).unwrap();
        assert!(namespace.write(bytes, 32 << 10, 0).is_err());
        assert!(namespace.write(100, 32 << 10, 0).is_err());
        assert!(namespace.discard(bytes, 32 << 10).is_err());
    }
}
