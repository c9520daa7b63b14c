//! Small drives, and programs that run on them.

#![allow(dead_code)] // not every test needs all

pub(crate) mod outlet;
pub(crate) mod script;

use esker_device::fdp::Isolation;
use esker_flash::Parameters;
use esker_flash::drive::{Configuration, Media};
use esker_flash::ftl::{Cleaning, CleaningPace, Frontier};
use esker_flash::timing::Timing;

/// 4 MiB in pages of 4 KiB, 16 to a unit, with 25 % over-provisioning.
pub(crate) fn small(media: Media) -> Parameters {
    let isolated = |kind| Configuration { groups: 1, handles: vec![kind; 4] };
    Parameters {
        capacity: 4 << 20,
        lba_size: 512,
        page_size: 4096,
        nand_page_size: 8192,
        program_size: 16 << 10,
        unit_size: 64 << 10,
        units: 80,
        channels: 2,
        dies: 4,
        media,
        cleaning: Cleaning::Greedy,
        frontier: Frontier::Separate,
        pace: CleaningPace::Steady,
        wear_spread: Some(20),
        rated_erasures: 3000,
        configurations: vec![
            isolated(Isolation::Initially),
            isolated(Isolation::Persistently),
            Configuration { groups: 2, handles: vec![Isolation::Initially; 2] },
        ],
        max_namespaces: 8,
        timing: Timing {
            read_ns: 50_000,
            program_ns: 600_000,
            erase_ns: if media == Media::Flash { 3_000_000 } else { 0 },
            cache_register: false,
            channel_bytes_per_s: 800_000_000,
            copy_bytes_per_s: 0,
            link_read_bytes_per_s: 3_000_000_000,
            link_write_bytes_per_s: 3_000_000_000,
            read_firmware_ns: 5_000,
            write_firmware_ns: 5_000,
            commands_per_s: 0,
            host_ns: 0,
            buffer_bytes: 1 << 20,
            reads_overtake: true,
            suspension: None,
            host_queues: None,
        },
    }
}

/// 128 pages of 4 KiB, 4 to a unit, with just the reserve that it must have: it cleans all the time.
pub(crate) fn tiny(media: Media) -> Parameters {
    Parameters {
        capacity: 128 * 4096,
        nand_page_size: 4096,
        program_size: 8192,
        unit_size: 16 << 10,
        units: 48,
        ..small(media)
    }
}
