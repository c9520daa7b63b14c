//! Runs the conformance suite of devices against a remote namespace, whose first LBAs are lost.
//!
//! `cargo run -p esker-nvmf --example conform -- URL [COMMANDS]`
//!
//! With data placement, what the drive says is shown, and its handles are tried.

#![allow(clippy::print_stdout)]

use esker_base::{AlignedBuf, Lba};
use esker_device::fdp::Reporter;
use esker_device::{DataPlacement, Device, PlacementId, Port, conformance};
use esker_nvmf::{Initiator, InitiatorConfig};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("a URL")?;
    let commands = arguments.next().map_or(Ok(2000), |count| count.parse())?;
    let device = Initiator::open(InitiatorConfig::parse(&url)?)?;
    println!("{}: {:?}", device.name(), device.geometry());
    {
        let geometry = device.geometry();
        let size = usize::try_from(geometry.lba_size)? * 256;
        Port::open(&device, 1)?.write(Lba(0), AlignedBuf::zeroed(size), None)?;
    }
    for (depth, seed) in [(1, 1), (32, 2)] {
        conformance::check(&device, depth, commands, seed);
    }
    if let Some(placement) = device.data_placement() {
        try_placement(&device, placement)?;
    }
    println!("conforms");
    Ok(())
}

fn try_placement(device: &dyn Device, placement: &dyn DataPlacement) -> Result<(), Failure> {
    println!("{}: {:?}", placement.drive(), placement.configurations());
    println!("enabled {:?}, usage {:?}", placement.enabled(), placement.usage()?);
    let mut port = Port::open(device, 1)?;
    let lba_size = device.geometry().lba_size;
    let left = |id: usize| -> Result<u64, Failure> { Ok(placement.handles()?[id].writable.0) };
    let before = placement.statistics()?;
    placement.update(&[PlacementId(0), PlacementId(1)])?;
    let (zero, one) = (left(0)?, left(1)?);
    let size = usize::try_from(lba_size)? * 8;
    port.write(Lba(0), AlignedBuf::zeroed(size), Some(PlacementId(1)))?;
    if (left(0)?, left(1)?) != (zero, one - 8) {
        return Err("a write with a placement id went elsewhere".into());
    }
    let after = placement.statistics()?;
    if after.host_bytes - before.host_bytes < u128::from(lba_size) * 8 {
        return Err("the write was not counted".into());
    }
    println!("events {:?}", placement.events(Reporter::Host)?);
    println!("reported {:?}", placement.reported_events(PlacementId(0)));
    if placement.update(&[PlacementId(4000)]).is_ok() {
        return Err("a placement id that is none was taken".into());
    }
    Ok(())
}
