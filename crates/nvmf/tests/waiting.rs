//! Devices and targets that are slow, silent or refuse, and what hosts see of them.

mod common;

use std::time::Duration;

use common::paced::{Order, Paced};
use common::relay::{Mood, Relay};
use common::{memory, reach, serve};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Command, Device, Op, Tag};
use esker_nvmf::{Initiator, InitiatorConfig};

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn read(tag: u64) -> Command {
    Command { tag: Tag(tag), op: Op::Read { lba: Lba(tag), buf: AlignedBuf::zeroed(512) } }
}

#[test]
fn target_that_is_slow_under_a_deep_queue_is_waited_for() {
    const DEPTH: usize = 128;
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let target = serve(Paced::over(memory(1), ms(25), order));
        let relay = Relay::to(target.addresses()[0], Mood::Well);
        // The oldest waits for several times as long.
        let config =
            InitiatorConfig { timeout: ms(800), give_up: ms(800), ..reach(vec![relay.address]) };
        let initiator = Initiator::open(config).unwrap();
        let mut queue = initiator.queue_pair(DEPTH).unwrap();
        let mut commands = (0..DEPTH as u64).map(read).collect();
        assert_eq!(queue.submit(&mut commands).unwrap(), DEPTH);
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
        }
        let failed = done.iter().find_map(|one| one.result.as_ref().err());
        assert_eq!(failed, None, "{order:?}");
        assert_eq!((done.len(), relay.queues()), (DEPTH, 1), "{order:?}: it was connected again");
    }
}
