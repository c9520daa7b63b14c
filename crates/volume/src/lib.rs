//! A pool of drives that serves thin volumes: log-structured, with up to two parities, a write buffer, snapshots and
//! clones. A volume *is* a [`Device`](esker_device::Device), and a pool *stands on* devices.
//!
//! # Rooms
//!
//! Imports run downward only.
//!
//! | room | what it is | sees |
//! | --- | --- | --- |
//! | [`pool`] | the face: [`Pool`], what it is asked for and what it tells | all |
//! | `queue` | a volume as a device | `read`, `append`, `admission`, `keep`, `commit` |
//! | `recover` | opening: labels, quorum, checkpoint, replay | `keep`, `engine` and below |
//! | `append` | records that a caller appends to the log at once: changes of the catalogue, long zeroes | `keep`, `commit` and below |
//! | `admission` | blocks are refused for which there is no room | `keep` and below |
//! | `read` | look up, fetch, hand out | `engine` and below |
//! | `keep` | destaging, checkpoints, cleaning, repair, rebuilds, verification, sweeps | `commit`, `engine` and below |
//! | `commit` | changes of all queue pairs become frames, visible, acknowledged | `engine` and below |
//! | `engine` | what the threads share; locks; the share of what can wait | what is below |
//! | `map` | lineage and block → versions and their places | `segment`, `space`, `buffer` |
//! | `catalog` | volumes, snapshots, lineages | `buffer`, `omf`, `types` |
//! | `buffer` | the log, and what it holds | `drive`, `omf` |
//! | `segment` | packing, writing, sealing, reading, reconstruction | `drive`, `parity`, `omf` |
//! | `space` | segments and slots | `drive`, `omf` |
//! | `config` | labels, membership, quorum | `drive`, `omf` |
//! | `drive` | many devices at once; where things lie | `omf` |
//! | `fragment`, `parity` | how a block is stored; P and Q | `types` |
//! | [`stats`] | what volumes were asked for, and where the time went | `types` |
//! | `omf` | every byte on media | `types` |
//! | [`types`] | ids, limits, errors, options | nothing |
//!
//! # Life of a write
//!
//! 1. `queue.rs` takes the command when it is submitted, checks it, and holds it back where the volume has limits;
//! 2. `admission.rs` refuses it if the pool has no room; else it goes with its neighbours into the inbox that all queue
//!    pairs share (`engine.rs`);
//! 3. `commit.rs` makes a frame of all that is in the inbox: the first queue pair that gets the lock does so for all;
//! 4. `buffer/ring.rs` gives the frame its place in the log, and `omf/frame.rs` encodes it;
//! 5. `drive/lanes.rs` writes it to all copies of the log, durably;
//! 6. `commit.rs` ends the frame when it and all before it are on all copies: `buffer/pending.rs` gets the blocks, which
//!    makes them visible;
//! 7. `queue.rs` finds the command in its outbox and completes it.
//!
//! `keep/destage.rs` moves the block into a segment later.
//!
//! # Life of a read
//!
//! 1. `queue.rs` takes the command, and `read.rs` goes through its blocks;
//! 2. `engine.rs` looks each up (`Core::look`): among blocks that wait in the write buffer, then in `map.rs`, whose
//!    `map/leaf.rs` has the place of each version; a clone goes on with its parent;
//! 3. `segment/fetch.rs` reads the places through `drive/lanes.rs`, verifies them against the map's checksums, and computes
//!    those that are wrong or late from the parities;
//! 4. `fragment.rs` unpacks blocks that were compressed, and `queue.rs` completes the command.
//!
//! # The protocol
//!
//! 1. A write is a record in a frame of the log. It is acknowledged when the frame, and each before it, is durable on all
//!    copies of the log. Several frames may be in flight; a replay ends at the first one that is missing.
//! 2. *Destaging* packs the oldest records into the open segment, and enters the places into the map in memory.
//! 3. *Cleaning* moves what lives in a segment to others, verified; *repair* rebuilds lost chunks in free slots. Nothing is
//!    ever overwritten in place.
//! 4. A *checkpoint* writes what changed of the map, seals, and a root; flushes all drives; points the labels to the
//!    root. Only then are records let go, and slots of empty segments used again.
//! 5. After a crash the checkpoint is the state, and the log has what came later. What was written to segments after
//!    the checkpoint is not looked at.
//!
//! So there is no write hole (no stripe that a checkpoint names is ever written again) and no torn stripe (a stripe
//! counts when a checkpoint names it, and all drives were flushed before). The order inside a checkpoint stands at the
//! head of `keep/checkpoint.rs`; which drives may open a pool, at the head of `config.rs`.

pub mod pool;
pub mod types;

mod admission;
mod append;
mod buffer;
mod catalog;
mod commit;
mod config;
mod drive;
mod engine;
mod fragment;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
mod keep;
mod map;
mod omf;
mod parity;
mod queue;
mod read;
mod recover;
mod segment;
mod space;
pub mod stats;

pub use drive::Unanswering;
pub use engine::SpaceUse;
pub use omf::label::{MemberState, Role};
pub use pool::{
    Alarm, DriveLatency, DriveLoss, Examined, LogStatus, MemberStatus, Pool, RebuildStatus,
    ScrubStatus, SnapshotInfo, Status, VolumeInfo, VolumeSpace, WriteCounts,
};
pub use space::Class;
pub use stats::{Stage, VolumeStats};
pub use types::error::VolumeError;
pub use types::id::DriveIndex;
pub use types::options::{
    CreateOptions, Maintenance, OpenOptions, VolumeOptions, check_repair_share,
};
