//! A reader that found where a block is may take its time: what it found stays there until it is done.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::rig::{self, BLOCK, SMALL};
use esker_base::sync::Mutex;
use esker_base::{AlignedBuf, Lba, thread};
use esker_device::{Device, Op, Port};
use esker_sim::{Fate, HookDevice};
use esker_volume::{Pool, VolumeOptions};

/// Holds the next read back, before it is run: says that it does, and waits for leave.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Option<Ends>>>);

type Ends = (Sender<()>, Receiver<()>);

fn gated(device: Arc<dyn Device>, gate: Gate) -> Arc<dyn Device> {
    Arc::new(HookDevice::new(device).on_command(move |op| {
        if matches!(op, Op::Read { .. }) {
            let held = gate.0.lock().take();
            if let Some((arrived, leave)) = held {
                arrived.send(()).unwrap();
                leave.recv_timeout(Duration::from_secs(20)).unwrap();
            }
        }
        Fate::Pass
    }))
}

fn write_all(pool: &Pool, version: u64) {
    for block in (0..64).step_by(8) {
        rig::write(pool, 0, block, 8, version + block).unwrap();
    }
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
}

#[test]
fn slots_are_not_used_again_while_a_reader_may_look_at_them() {
    let gate = Gate::default();
    let devices = rig::create(&SMALL).into_iter().map(|device| gated(device, gate.clone()));
    let pool = Arc::new(rig::open(&devices.collect::<Vec<_>>(), &SMALL));
    pool.create_volume("v0", 64 * BLOCK as u64, VolumeOptions::default()).unwrap();
    write_all(&pool, 1000);
    let ((arrived, has_arrived), (give_leave, leave)) = (channel(), channel());
    *gate.0.lock() = Some((arrived, leave));
    let reader = {
        let pool = pool.clone();
        thread::spawn("reader", move || {
            let mut port = Port::open(&*pool.volume("v0").unwrap(), 1).unwrap();
            port.read(Lba(0), AlignedBuf::zeroed(8 * BLOCK))
        })
    };
    has_arrived.recv_timeout(Duration::from_secs(20)).unwrap();
    // All of it is replaced, again and again, so that every slot that is free is used.
    for round in 2..20 {
        write_all(&pool, round * 1000);
    }
    give_leave.send(()).unwrap();
    let read = reader.unwrap().join().unwrap().unwrap();
    for (version, bytes) in (1000..).zip(read.chunks(BLOCK)) {
        let mut expected = vec![0; BLOCK];
        rig::fill(&mut expected, version);
        assert!(expected == bytes, "version {version} is what the reader found");
    }
    pool.check().unwrap();
}
