//! The profiles.

use esker_device::fdp::Isolation;

use super::{Figure, Kind, Profile, Published};
use crate::disk::DiskParameters;
use crate::drive::{Configuration, Media, Parameters};
use crate::ftl::{Cleaning, CleaningPace, Frontier};
use crate::timing::{HostQueues, Suspension, Timing};

const KIB: u32 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The handles of an FDP drive: as many as shipping drives have.
const HANDLES: usize = 8;

const RAW_CAPACITY: &str = "raw NAND: the power of two above the capacity (8 TiB, 14.5 % \
                            over-provisioning with all reserves); makers do not publish it";
const POLICY: &str = "translation layer: page map of 4 KiB, superblocks over all dies, greedy \
                      cleaning into units of its own";
const WEAR: &str = "wear levelling: reclaim units differ by 100 erasures at most; what lies still moves to \
                    worn units of its own";
const PLACEMENT: &str = "data placement: one reclaim group, 8 handles, initially or persistently \
                         isolated, as shipping FDP drives have; off until it is enabled";

pub(super) fn all() -> Vec<Profile> {
    vec![
        micron_9300(),
        micron_7450(),
        micron_5210(),
        storage_class_memory(),
        host_managed(),
        disk("sata-7200", DiskParameters::sata_7200()),
        disk("sas-10k", DiskParameters::sas_10k()),
    ]
}

fn published(figures: &[(Figure, f64)]) -> Vec<Published> {
    figures.iter().map(|&(figure, value)| Published { figure, value }).collect()
}

fn configurations() -> Vec<Configuration> {
    let of = |isolation| Configuration { groups: 1, handles: vec![isolation; HANDLES] };
    vec![of(Isolation::Initially), of(Isolation::Persistently)]
}

/// A flash drive with the parameters that most have in common.
fn flash(capacity: u64, unit_size: u64, raw: u64, timing: Timing) -> Parameters {
    Parameters {
        capacity: capacity / 4096 * 4096,
        lba_size: 4096,
        page_size: 4 * KIB,
        nand_page_size: 16 * KIB,
        program_size: 192 * KIB,
        unit_size,
        units: u32::try_from(raw / unit_size).expect("a few thousand units"),
        channels: 16,
        dies: 128,
        media: Media::Flash,
        cleaning: Cleaning::Greedy,
        frontier: Frontier::Separate,
        pace: CleaningPace::Steady,
        wear_spread: Some(100),
        rated_erasures: 3000,
        configurations: configurations(),
        max_namespaces: 128,
        timing,
    }
}

fn micron_9300() -> Profile {
    let timing = Timing {
        read_ns: 58_000,
        program_ns: 1_500_000,
        cache_register: true,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 533_000_000,
        copy_bytes_per_s: 2_160_000_000,
        link_read_bytes_per_s: 3_500_000_000,
        link_write_bytes_per_s: 3_500_000_000,
        read_firmware_ns: 20_000,
        write_firmware_ns: 14_800,
        commands_per_s: 850_000,
        host_ns: 5_000,
        buffer_bytes: 64 * MIB,
        reads_overtake: true,
        suspension: Some(Suspension { overhead_ns: 20_000, most: 8 }),
        host_queues: None,
    };
    // 128 dies of 512 Gbit, blocks of 18 MiB in two planes.
    let mut parameters = flash(7_681_501_126_656, 128 * 36 * MIB, 8192 * GIB, timing);
    parameters.program_size = 96 * KIB;
    Profile {
        name: "micron-9300",
        title: "Micron 9300, 7.68 TB: TLC, NVMe, PCIe 3.0 x4",
        kind: Kind::Ssd(Box::new(parameters)),
        in_drive: None,
        published: published(&[
            (Figure::SequentialRead, 3.5e9),
            (Figure::SequentialWrite, 3.5e9),
            (Figure::RandomReads, 850e3),
            (Figure::RandomWrites, 150e3),
            (Figure::ReadLatency, 92e3),
            (Figure::WriteLatency, 21e3),
        ]),
        sources: vec![
            "64-layer TLC, PCIe 3.0 x4, up to 850,000 reads a second: ComputerBase, January 2023",
            "3,500 MB/s both ways, 92 and 21 µs: data sheet of the predecessor, Micron 9200",
            "read 58 µs, 57 MB/s a die, 18 MiB blocks, 2 planes, 533 MT/s: Kioxia 96-layer TLC, \
             AnandTech's ISSCC 2021 table",
            "erase 3 ms: FEMU hw/femu/nand/nand.h",
            "150,000 random writes a second in the steady state: Micron's product brief of the 9300 PRO, \
             as it is quoted; the brief was not seen",
        ],
        assumptions: vec![
            "the 9300's own table per capacity was not found: sequential rates and latencies are \
             the 9200's",
            "copies of cleaning pass the controller at 2.16 GB/s: chosen so that random writes in the steady \
             state are those that were published",
            "128 dies of 512 Gbit on 16 channels; NAND times of another maker's 96-layer TLC",
            RAW_CAPACITY,
            "write buffer 64 MiB, power-loss protected; 3,000 erasures rated; suspension 20 µs",
            POLICY,
            WEAR,
            PLACEMENT,
        ],
    }
}

fn micron_7450() -> Profile {
    let timing = Timing {
        read_ns: 50_000,
        program_ns: 1_170_000,
        cache_register: true,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 1_600_000_000,
        copy_bytes_per_s: 3_230_000_000,
        link_read_bytes_per_s: 6_800_000_000,
        link_write_bytes_per_s: 5_600_000_000,
        read_firmware_ns: 20_000,
        write_firmware_ns: 10_000,
        commands_per_s: 1_000_000,
        host_ns: 5_000,
        buffer_bytes: 64 * MIB,
        reads_overtake: true,
        suspension: Some(Suspension { overhead_ns: 20_000, most: 8 }),
        host_queues: None,
    };
    Profile {
        name: "micron-7450",
        title: "Micron 7450 PRO, 7.68 TB: TLC, NVMe, PCIe 4.0 x4",
        // 128 dies of 512 Gbit, blocks of 24 MiB in four planes.
        kind: Kind::Ssd(Box::new(flash(7_681_501_126_656, 128 * 96 * MIB, 8192 * GIB, timing))),
        in_drive: None,
        published: published(&[
            (Figure::SequentialRead, 6.8e9),
            (Figure::SequentialWrite, 5.6e9),
            (Figure::RandomReads, 1e6),
            (Figure::RandomWrites, 215e3),
        ]),
        sources: vec![
            "6,800 MB/s read, up to 5,600 MB/s write, up to 1,000,000 reads a second, 1 drive \
             write a day: ServeTheHome; techunwrapped",
            "read 50 µs, 168 MB/s a die, 4 planes, 1.6 GT/s: SK hynix 176-layer TLC, AnandTech's \
             ISSCC 2021 table",
            "blocks of 24 MiB: Kioxia 128-layer TLC, the same table; erase 3 ms: FEMU nand.h",
            "215,000 random writes a second in the steady state: Micron's product brief of the 7450 PRO, \
             as it is quoted; the brief was not seen",
        ],
        assumptions: vec![
            "latencies per capacity were not found and are not compared; firmware 20 µs for a read, \
             10 µs for a write",
            "copies of cleaning pass the controller at 3.23 GB/s: chosen so that random writes in the steady \
             state are those that were published",
            "128 dies of 512 Gbit on 16 channels; NAND times of another maker's 176-layer TLC",
            RAW_CAPACITY,
            "write buffer 64 MiB, power-loss protected; 3,000 erasures rated; suspension 20 µs",
            POLICY,
            WEAR,
            PLACEMENT,
        ],
    }
}

fn micron_5210() -> Profile {
    let timing = Timing {
        read_ns: 110_000,
        program_ns: 46_100_000,
        cache_register: false,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 533_000_000,
        copy_bytes_per_s: 0,
        link_read_bytes_per_s: 540_000_000,
        link_write_bytes_per_s: 540_000_000,
        read_firmware_ns: 40_000,
        write_firmware_ns: 30_000,
        commands_per_s: 90_000,
        host_ns: 10_000,
        buffer_bytes: 64 * MIB,
        reads_overtake: true,
        suspension: Some(Suspension { overhead_ns: 20_000, most: 64 }),
        host_queues: None,
    };
    // 64 dies of 1 Tbit, blocks of 24 MiB in four planes.
    let mut parameters = flash(7_681_501_126_656, 64 * 96 * MIB, 7956 * GIB, timing);
    parameters.page_size = 16 * KIB;
    parameters.program_size = 256 * KIB;
    parameters.channels = 8;
    parameters.dies = 64;
    parameters.rated_erasures = 1000;
    // Data placement is a part of NVMe.
    parameters.configurations = Vec::new();
    parameters.capacity = parameters.capacity / u64::from(16 * KIB) * u64::from(16 * KIB);
    Profile {
        name: "micron-5210",
        title: "Micron 5210 ION, 7.68 TB: QLC, SATA",
        kind: Kind::Ssd(Box::new(parameters)),
        in_drive: None,
        published: published(&[
            (Figure::SequentialRead, 540e6),
            (Figure::SequentialWrite, 360e6),
            (Figure::RandomReads, 90e3),
            (Figure::RandomWrites, 4.5e3),
        ]),
        sources: vec![
            "540 and 360 MB/s, 90,000 reads and 4,500 writes a second, 64-layer QLC of 1 Tbit, 4 \
             planes, 1,000 erasures: AnandTech 13571; The Register, 2018",
            "read 110 µs: mean of the four QLC page types in FEMU nand.h (extrapolated there)",
        ],
        assumptions: vec![
            "program time (46 ms for 256 KiB, all planes and levels) follows from the published \
             sequential write rate and 64 dies",
            "mapping unit 16 KiB and 11 % over-provisioning net of parity and spares: together \
             they explain the published ratio of sequential to random writes",
            "latencies were not found; firmware 40 and 30 µs",
            "write buffer 64 MiB, power-loss protected; suspension 20 µs",
            "translation layer: superblocks over all dies, greedy cleaning into units of its own",
            PLACEMENT,
        ],
    }
}

fn storage_class_memory() -> Profile {
    let parameters = Parameters {
        capacity: 375_083_606_016,
        lba_size: 4096,
        page_size: 4 * KIB,
        nand_page_size: 4 * KIB,
        program_size: 4 * KIB,
        unit_size: u64::from(4 * KIB),
        units: 0,
        channels: 7,
        dies: 28,
        media: Media::InPlace,
        cleaning: Cleaning::Greedy,
        frontier: Frontier::Separate,
        pace: CleaningPace::Steady,
        wear_spread: None,
        rated_erasures: 0,
        configurations: Vec::new(),
        max_namespaces: 128,
        timing: Timing {
            read_ns: 3_000,
            program_ns: 10_000,
            cache_register: true,
            erase_ns: 0,
            channel_bytes_per_s: 2_000_000_000,
            copy_bytes_per_s: 0,
            link_read_bytes_per_s: 2_400_000_000,
            link_write_bytes_per_s: 2_048_000_000,
            read_firmware_ns: 1_650,
            write_firmware_ns: 1_650,
            commands_per_s: 550_000,
            host_ns: 500,
            buffer_bytes: MIB,
            reads_overtake: false,
            suspension: None,
            host_queues: None,
        },
    };
    Profile {
        name: "optane-p4800x",
        title: "Intel Optane P4800X, 375 GB: storage-class memory, NVMe, PCIe 3.0 x4",
        kind: Kind::Ssd(Box::new(parameters)),
        in_drive: None,
        published: published(&[
            (Figure::SequentialRead, 2.4e9),
            (Figure::SequentialWrite, 2.0e9),
            (Figure::RandomReads, 550e3),
            (Figure::RandomWrites, 500e3),
            (Figure::ReadLatency, 8.9e3),
        ]),
        sources: vec![
            "2,400 and 2,000 MB/s, 550,000 and 500,000 a second, mean 8.9 µs one at a time: \
             AnandTech",
        ],
        assumptions: vec![
            "28 dies on 7 channels, read 3 µs, write 10 µs in place, channel 2 GB/s: chosen to add \
             up to the published latency",
            "no wear is modelled (rated 30 drive writes a day)",
        ],
    }
}

/// The board of the software-controlled SSD, whichever side has the translation layer.
fn board(timing: Timing) -> Parameters {
    let mut parameters = flash(1708 * GIB, 256 * 8 * MIB, 2048 * GIB, timing);
    parameters.program_size = 32 * KIB;
    parameters.dies = 256;
    parameters.configurations = Vec::new();
    parameters
}

const BOARD: &str = "16 channels, 256 flash chips: The Register, 19 November 2015; ComSys 2015";
const MLC: &str = "program 1.575 ms for 32 KiB in two planes: mean of the lower and the upper page of Micron L95B \
                   (850 and 2,300 µs), erase 3 ms: FEMU hw/femu/nand/nand.h";
const MLC_READ: &str =
    "read 60 µs: between the 48 and 64 µs that are published for the pages of Micron L95B";
const BOARD_SIZE: &str =
    "2 TiB raw, 20 % over-provisioning, blocks of 4 MiB: the capacity was not found";

fn host_managed() -> Profile {
    let timing = Timing {
        read_ns: 60_000,
        program_ns: 1_575_000,
        cache_register: false,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 400_000_000,
        copy_bytes_per_s: 0,
        link_read_bytes_per_s: 5_500_000_000,
        link_write_bytes_per_s: 4_300_000_000,
        read_firmware_ns: 0,
        write_firmware_ns: 0,
        commands_per_s: 0,
        host_ns: 5_000,
        buffer_bytes: 32 * MIB,
        reads_overtake: true,
        suspension: None,
        host_queues: Some(HostQueues {
            window: 64,
            in_flight: 0,
            cached_pages: 256,
            copy_bytes_per_s: 4_000_000_000,
        }),
    };
    Profile {
        name: "host-managed-256",
        title: "Software-controlled SSD: 256 chips on 16 channels, PCIe 3.0 x8, FTL in the host",
        kind: Kind::Ssd(Box::new(board(timing.clone()))),
        in_drive: Some(Box::new(conventional(&timing))),
        published: published(&[(Figure::SequentialRead, 5.5e9), (Figure::SequentialWrite, 4.3e9)]),
        sources: vec![
            BOARD,
            "INPUT: 5.5 GB/s read and 4.3 GB/s written over the link, as measured on the hardware; 16 KiB pages; a \
             command queue for each chip, completions found by polling: Fujitsu's article on the \
             software-controlled SSD",
            "400 MT/s: what 5.5 GB/s over 16 channels needs, rounded up to a rate that chips have",
            MLC,
            MLC_READ,
        ],
        assumptions: vec![
            "a completion is found by polling, 5 µs after it has crossed the link",
            "the host knows when a die is free, from what it has sent there; 64 reads are held back at most",
            "256 NAND pages that were read whole stay in memory (4 MiB), and are copied at 4 GB/s",
            BOARD_SIZE,
            POLICY,
            "a stripe goes to the die of its row that has least to do; reads go before programs",
            WEAR,
        ],
    }
}

/// The same NAND behind a controller of its own.
fn conventional(host: &Timing) -> Profile {
    let timing = Timing {
        link_read_bytes_per_s: 2_800_000_000,
        link_write_bytes_per_s: 2_000_000_000,
        read_firmware_ns: 25_000,
        write_firmware_ns: 10_000,
        commands_per_s: 460_000,
        host_ns: 10_000,
        host_queues: None,
        ..host.clone()
    };
    Profile {
        name: "host-managed-256",
        title: "A conventional NVMe drive of the same NAND: 256 chips on 16 channels, PCIe 3.0 x4",
        kind: Kind::Ssd(Box::new(board(timing))),
        in_drive: None,
        published: published(&[
            (Figure::SequentialRead, 2.8e9),
            (Figure::SequentialWrite, 2.0e9),
            (Figure::RandomReads, 460e3),
        ]),
        sources: vec![
            "INPUT: 2,800 and 2,000 MB/s, 460,000 reads a second: Intel P3700, a drive of the period, Tom's Hardware",
            BOARD,
            MLC,
            MLC_READ,
        ],
        assumptions: vec![
            "firmware 25 µs for a read and 10 µs for a write, 10 µs for the interrupt and the block layer: 106.7 µs \
             for one read at a time, where 92 (Micron 9200, data sheet), 107.7 (Micron 9100 MAX, AnandTech) and \
             115 µs (Intel P3700, data sheet) were published",
            "write buffer 32 MiB, power-loss protected; no suspension; reads go before programs",
            BOARD_SIZE,
            POLICY,
            WEAR,
        ],
    }
}

fn disk(name: &'static str, parameters: DiskParameters) -> Profile {
    Profile {
        name,
        title: parameters.model,
        published: Vec::new(),
        sources: parameters.sources.clone(),
        assumptions: parameters.assumptions.clone(),
        kind: Kind::Disk(Box::new(parameters)),
        in_drive: None,
    }
}
