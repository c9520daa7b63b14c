//! Users of the initiator. The kernel's target is at the other end.

use std::time::Duration;

use esker_base::units::to_u64;
use esker_base::{AlignedBuf, Clock, Lba, LbaCount};
use esker_device::fdp::{EventType, Reporter};
use esker_device::{
    Create, DataPlacement, Device, FileDevice, FileOptions, Op, PlacementId, Port, conformance,
};
use esker_nvmf::{Initiator, InitiatorConfig};

use super::Failure;

fn open(url: &str) -> Result<Initiator, Failure> {
    Ok(Initiator::open(InitiatorConfig::parse(url)?)?)
}

/// The conformance suite of devices, then transfers of all sizes up to the largest.
pub(crate) fn check(url: &str) -> Result<(), Failure> {
    let device = open(url)?;
    let geometry = device.geometry();
    println!("{geometry:?}");
    for (depth, seed) in [(1, 1), (16, 2), (100, 3)] {
        conformance::check(&device, depth, 400, seed);
    }
    let mut port = Port::open(&device, 8)?;
    let lba_size = u64::from(geometry.lba_size);
    let largest = u64::from(geometry.max_transfer_size).min(1 << 20) / lba_size;
    for (number, lbas) in (1u8..).zip([1, 2, 3, 8, 33, largest - 1, largest]) {
        let size = usize::try_from(lbas * lba_size)?;
        let mut buf = AlignedBuf::zeroed(size);
        buf.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = at.to_le_bytes()[1] ^ number);
        let written = port.write(Lba(lbas), buf, None)?;
        let read = port.read(Lba(lbas), AlignedBuf::zeroed(size))?;
        if read[..] != written[..] {
            return Err(format!("{size} bytes came back changed").into());
        }
    }
    port.flush()?;
    port.run(Op::WriteZeroes { lba: Lba(0), count: LbaCount(2 * largest) })?; // for the next check
    println!("{largest} LBAs at once at most");
    Ok(())
}

/// Writes and reads back for some seconds, whatever happens to the target meanwhile. Every round
/// carries its number, so a write that was lost, or came after a later one, shows.
pub(crate) fn rewrite(url: &str, seconds: u64) -> Result<(), Failure> {
    const LBAS: u64 = 64;
    let device = open(url)?;
    let lba_size = usize::try_from(device.geometry().lba_size)?;
    let mut port = Port::open(&device, 16)?;
    let (clock, mut round, mut longest) = (Clock::real(), 0u64, Duration::ZERO);
    let began = clock.now();
    while clock.now().since(began) < Duration::from_secs(seconds) {
        round += 1;
        let start = clock.now();
        let ops = (0..LBAS).map(|lba| {
            let mut buf = AlignedBuf::zeroed(lba_size);
            buf[..8].copy_from_slice(&round.to_le_bytes());
            Op::Write { lba: Lba(lba), buf, placement: None, fua: false }
        });
        let mut failed = Vec::new();
        port.run_all(ops, |_, outcome| failed.extend(outcome.err()))?;
        if let Some(error) = failed.pop() {
            return Err(format!("round {round}: {error}").into());
        }
        let read = port.read(Lba(0), AlignedBuf::zeroed(lba_size * usize::try_from(LBAS)?))?;
        for (lba, block) in read.chunks(lba_size).enumerate() {
            if block[..8] != round.to_le_bytes() {
                return Err(format!("round {round}: LBA {lba} has {:?}", &block[..8]).into());
            }
        }
        longest = longest.max(clock.now().since(start));
    }
    println!("{round} rounds, the longest took {} ms", longest.as_millis());
    Ok(())
}

/// Data placement of the drive at the other end: the answers to a host, and that writes go where
/// they say.
pub(crate) fn placement(url: &str) -> Result<(), Failure> {
    try_placement(&open(url)?)
}

/// Data placement of a drive in this machine, by its block device.
pub(crate) fn drive(path: &str) -> Result<(), Failure> {
    let options = FileOptions { create: Create::Never, ..FileOptions::default() };
    let device = FileDevice::open(path, &options)?;
    println!("{:?}\nremarks: {:?}", device.geometry(), device.remarks());
    conformance::check(&device, 8, 200, 1);
    try_placement(&device)
}

/// Writes so many LBAs to a drive in this machine with a placement id.
pub(crate) fn write(path: &str, id: u16, lbas: usize) -> Result<(), Failure> {
    let options = FileOptions { create: Create::Never, ..FileOptions::default() };
    let device = FileDevice::open(path, &options)?;
    let size = lbas * usize::try_from(device.geometry().lba_size)?;
    let mut port = Port::open(&device, 1)?;
    port.write(Lba(0), AlignedBuf::zeroed(size), Some(PlacementId(id)))?;
    Ok(port.flush()?)
}

fn try_placement(device: &dyn Device) -> Result<(), Failure> {
    let fdp = device.data_placement().ok_or("no data placement was found")?;
    let [configuration] = &fdp.configurations()[..] else {
        return Err("one configuration was expected".into());
    };
    println!("{configuration:?}\nenabled: {:?}\n{:?}", fdp.enabled(), fdp.usage()?);
    expect("handles of the drive", configuration.handles.len(), 8)?;
    expect("placement ids", device.geometry().placement_handles, 4)?;
    expect("configuration in force", fdp.enabled(), Some(0))?;
    let writable = |fdp: &dyn DataPlacement, id: usize| fdp.handles().map(|all| all[id].writable.0);
    let (before, host) = (writable(fdp, 2)?, fdp.statistics()?.host_bytes);
    let others = writable(fdp, 1)?;
    let mut port = Port::open(device, 4)?;
    let mut buf = AlignedBuf::zeroed(64 << 10);
    buf.fill(0x5a);
    let lbas = to_u64(buf.len()) / u64::from(device.geometry().lba_size);
    let buf = port.write(Lba(0), buf, Some(PlacementId(2)))?;
    expect("LBAs left in the reclaim unit written to", writable(fdp, 2)?, before - lbas)?;
    expect("LBAs left in another", writable(fdp, 1)?, others)?;
    expect("bytes of the host", fdp.statistics()?.host_bytes, host + 65_536)?;
    let read = port.read(Lba(0), AlignedBuf::zeroed(buf.len()))?;
    expect("the data", read[..] == buf[..], true)?;
    fdp.update(&[PlacementId(2)])?;
    let whole = configuration.reclaim_unit_bytes / u64::from(device.geometry().lba_size);
    expect("LBAs left after the update", writable(fdp, 2)?, whole)?;
    let refused = fdp.update(&[PlacementId(9)]).is_err();
    expect("an update of a handle that is not there is refused", refused, true)?;
    println!("{:?}", fdp.reported_events(PlacementId(0)));
    println!("{:?}", fdp.events(Reporter::Host)?);
    println!("{:?}", fdp.report_events(PlacementId(0), &[EventType::InvalidPlacementId], true));
    port.discard(Lba(0), LbaCount(lbas))?;
    Ok(())
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), Failure> {
    if got == expected {
        return Ok(());
    }
    Err(format!("{what}: {got:?}, not {expected:?}").into())
}
