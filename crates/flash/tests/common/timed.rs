//! A drive that takes time and stores nothing: the cost of emulation and timing on their own.

use std::sync::Arc;

use esker_base::{LbaCount, Nanos};
use esker_device::{DeviceError, Geometry, Op};
use esker_flash::emulate::{Emulated, Emulation, Model, Pace, Start, Ticket};
use esker_flash::timing::{Controller, HostBytes, Part, Place, Program, Timing};

const PAGE: u32 = 4096;
const DIES: u32 = 64;

/// A drive of 64 dies and pages of 4 KiB, page `n` on die `n % 64`.
pub(crate) struct Timed {
    drive: Controller,
    programs: u32,
}

/// It, as a device.
pub(crate) fn device(pace: Pace) -> Emulated<Timed> {
    let timing = Timing {
        read_ns: 60_000,
        program_ns: 600_000,
        cache_register: true,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 400_000_000,
        copy_bytes_per_s: 0,
        link_read_bytes_per_s: 3_200_000_000,
        link_write_bytes_per_s: 3_200_000_000,
        read_firmware_ns: 5_000,
        write_firmware_ns: 5_000,
        commands_per_s: 0,
        host_ns: 0,
        buffer_bytes: 1 << 20,
        reads_overtake: true,
        suspension: None,
        host_queues: None,
    };
    let drive = Controller::new(&timing, 8, DIES).expect("a drive");
    let geometry = Geometry {
        lba_size: PAGE,
        capacity: LbaCount(1 << 20),
        preferred_write_size: PAGE,
        max_transfer_size: PAGE,
        discard_granularity: 0,
        placement_handles: 0,
        volatile_write_cache: false,
    };
    let emulation = Emulation::new(Timed { drive, programs: 0 }, pace);
    Emulated::new(Arc::clone(&emulation), "timed", geometry, ())
}

impl Model for Timed {
    type Part = ();

    fn start(&mut self, (): &(), op: &mut Op, start: Option<Start>) -> Result<(), DeviceError> {
        let Some(start) = start else { return Ok(()) };
        match op {
            Op::Read { lba, .. } => {
                let die = u32::try_from(lba.0 % u64::from(DIES)).expect("below 64");
                let place = Place { die, program: u32::MAX };
                self.drive.read(start, [Part { place, bytes: PAGE, page: None }], PAGE);
            }
            Op::Write { .. } => {
                let end = self.drive.write(start, PAGE) + u64::from(PAGE);
                self.programs = (self.programs + 1) % (1 << 20);
                let place = Place { die: self.programs % DIES, program: self.programs };
                let host = Some(HostBytes { count: PAGE, end });
                let program = Program { place, bytes: PAGE, host, copies: None };
                self.drive.program(start.now, program);
            }
            _ => self.drive.command(start),
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        self.drive.next_event()
    }

    fn next_finish(&self) -> Option<Nanos> {
        self.drive.next_finish()
    }

    fn advance(&mut self, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        self.drive.advance(to, finished);
    }
}
