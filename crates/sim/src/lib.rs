//! Devices that forget and fail, for tests of everything that stands on a
//! [`Device`](esker_device::Device). Never a dependency of production code.
//!
//! | module | content |
//! | --- | --- |
//! | [`record`] | [`CrashRecorder`], [`CrashDevice`]: writes down a program's operations on its devices |
//! | [`history`] | [`History`]: the record, ready to be crashed at any point |
//! | [`enumerate`] | [`Plan`], [`Images`]: which crash images to look at, lazily |
//! | [`image`] | [`Image`], [`ImageId`]: one state that a crash may leave, as fresh devices |
//! | [`lba_set`] | [`LbaSet`]: which LBAs of a torn write are there |
//! | [`fault`] | [`FaultDevice`], [`FaultPlan`]: fail, shorten, delay, lose, misdirect or corrupt the Nth command |
//! | [`hook`] | [`HookDevice`]: a test sees, changes, answers, refuses or holds back commands, and changes properties |
//! | [`fuzz`] | [`fuzz::replay`]: fuzz targets of decoders on their corpora, and on mutations |
//!
//! # A crash test
//!
//! Wrap the devices of a program in crash devices of one recorder and run it, marking every change
//! that it acknowledges. Then open the program on every image and check that each of them is there:
//!
//! ```
//! use std::sync::Arc;
//! use esker_base::{AlignedBuf, Lba};
//! use esker_device::{Device, MemoryDevice, Port};
//! use esker_sim::{CrashRecorder, Plan};
//!
//! let recorder = CrashRecorder::new();
//! let device = recorder.attach(Arc::new(MemoryDevice::new("log", 1 << 20, 512)));
//! let mut port = Port::open(&*device, 1)?;
//! port.write(Lba(0), AlignedBuf::padded(b"order 7", 512), None)?;
//! port.flush()?;
//! recorder.mark(7);
//!
//! for image in recorder.history().images(&Plan::default()) {
//!     let mut port = Port::open(&*image.device(0), 1)?;
//!     let content = port.read(Lba(0), AlignedBuf::zeroed(512))?;
//!     assert!(image.marks().is_empty() || content.starts_with(b"order 7"), "{image}");
//! }
//! # Ok::<(), esker_device::DeviceError>(())
//! ```
//!
//! # The licence that is used
//!
//! Of the contract in [`esker_device`], an image uses all of the following, and nothing else:
//!
//! * A flush makes durable the writes whose completion was handed out before the flush was
//!   submitted, and not one more. A write with FUA is durable when it completes.
//! * Any other completed write, and any write in flight at the crash, may be there, be missing, or
//!   be there for any of its LBAs; writes to several devices are forgotten independently.
//! * A write that failed stays in that state, until a later durable write covers it.
//! * An older write that was not durable never hides a later durable one.
//! * A discard that is not durable may have happened for any of its LBAs. A durable one too: its
//!   LBAs read as zeroes or as their content before (by a fixed rule, so that an image can be
//!   rebuilt). Write-zeroes is a write of zeroes.
//!
//! Not used: the missing order among commands in flight on the same LBA (they apply in the order
//! of completion), and other content than the old or the new one where a write failed.

mod contents;
pub mod enumerate;
pub mod fault;
mod flight;
pub mod fuzz;
pub mod history;
pub mod hook;
pub mod image;
pub mod lba_set;
pub mod record;

pub use enumerate::{Images, Plan};
pub use fault::{Effect, Fault, FaultDevice, FaultPlan, Repeat, Target};
pub use history::History;
pub use hook::{Fate, HookDevice, refusing};
pub use image::{BadImageId, Image, ImageDevice, ImageId, Kept};
pub use lba_set::LbaSet;
pub use record::{CrashDevice, CrashRecorder};
