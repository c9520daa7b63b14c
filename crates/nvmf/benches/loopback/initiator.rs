//! Esker's initiator, with one queue pair.

use std::collections::VecDeque;
use std::io::Read;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, Op, Tag};
use esker_nvmf::{Initiator, InitiatorConfig};

use super::target::NQN;
use super::{Failure, Load, process};

fn open(address: &str, load: &Load) -> Result<Initiator, Failure> {
    let mut config = InitiatorConfig::parse(&format!("nvme-tcp://{address}/{NQN}"))?;
    config.spin = Duration::from_micros(load.spin_us);
    config.data_digest = load.data_digest;
    Ok(Initiator::open(config)?)
}

/// Keeps `depth` operations at random places in flight.
pub(crate) fn load(address: &str, seconds: u64, load: &Load) -> Result<(), Failure> {
    let device = open(address, load)?;
    let lbas_per = u64::try_from(load.bytes)? / u64::from(device.geometry().lba_size);
    let places = device.geometry().capacity.0 / lbas_per;
    let mut queue = device.queue_pair(load.depth)?;
    let (clock, mut rng) = (Clock::real(), Rng::new(1));
    let mut free: Vec<_> = (0..load.depth).map(|_| AlignedBuf::zeroed(load.bytes)).collect();
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let mut latencies = Vec::with_capacity(1 << 22);
    let start = clock.now();
    let mut now = start;
    let end = start + Duration::from_secs(seconds);
    while now < end || queue.in_flight() > 0 {
        for buf in free.drain(..).take(if now < end { usize::MAX } else { 0 }) {
            let lba = Lba(rng.below(places) * lbas_per);
            let op = match load.is_write {
                true => Op::Write { lba, buf, placement: None, fua: false },
                false => Op::Read { lba, buf },
            };
            batch.push_back(Command { tag: Tag(now.0), op });
        }
        queue.submit(&mut batch)?;
        queue.wait(&mut done, None)?;
        now = clock.now();
        for completion in done.drain(..) {
            completion.result?;
            latencies.push(now.0 - completion.tag.0);
            free.extend(completion.buf);
        }
    }
    process::print(latencies.len() as f64 / now.since(start).as_secs_f64(), &mut latencies);
    Ok(())
}

/// Is connected, and wants nothing until its input is closed.
pub(crate) fn idle(address: &str) -> Result<(), Failure> {
    let device = open(address, &Load::reads(1, 4096))?;
    let _queue = device.queue_pair(1)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
