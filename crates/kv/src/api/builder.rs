//! The entrance to the engine: where a KVDB is and how it is opened, and then what is done with it.

use std::ops::ControlFlow;

use esker_base::{Clock, Progress};

use crate::api::kvdb::Kvdb;
use crate::api::location::Location;
use crate::recover::check::CheckReport;
use crate::recover::open;
use crate::types::error::Result;
use crate::types::options::{Durability, Options};

/// A KVDB to be opened or made: [`Kvdb::builder`].
///
/// ```
/// # use std::time::Duration;
/// # use esker_kv::{Durability, Kvdb, KvError};
/// # fn main() -> Result<(), KvError> {
/// # let scratch = tempfile::tempdir().unwrap();
/// # let dir = scratch.path().join("db");
/// let db = Kvdb::builder(&dir)
///     .memory(64 << 20)
///     .durability(Durability::within(Duration::from_millis(20)))
///     .open_or_create()?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    pub(crate) location: Location,
    pub(crate) options: Options,
}

impl Kvdb {
    /// Begins to open or make the KVDB in a directory, or at another [`Location`].
    pub fn builder(location: impl Into<Location>) -> Builder {
        Builder { location: location.into(), options: Options::default() }
    }
}

impl Builder {
    /// The DRAM that the engine may use for everything, in bytes: [`Options::memory_bytes`].
    pub fn memory(mut self, bytes: u64) -> Builder {
        self.options.memory_bytes = bytes;
        self
    }

    /// When acknowledged writes are durable: [`Options::durability`].
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.options.durability = durability;
        self
    }

    /// The engine's time: [`Options::clock`].
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.options.clock = clock;
        self
    }

    /// An observer of long work, called on the thread that works: opening after a crash, a check, a backup, a repair, a
    /// compaction. `Break` calls the work off: it ends with [`KvError::Cancelled`](crate::KvError::Cancelled), a check
    /// and a compaction with what they have until then, and nothing is lost.
    pub fn on_progress(
        mut self,
        observer: impl FnMut(&Progress) -> ControlFlow<()> + Send + 'static,
    ) -> Builder {
        self.options = self.options.on_progress(observer);
        self
    }

    /// A receiver of remarks, such as the program's log: [`Options::on_remark`].
    pub fn on_remark(mut self, receiver: impl Fn(&str) + Send + Sync + 'static) -> Builder {
        self.options = self.options.on_remark(receiver);
        self
    }

    /// All options at once: those set before are forgotten.
    pub fn options(mut self, options: Options) -> Builder {
        self.options = options;
        self
    }

    /// Makes a KVDB and opens it, or leaves nothing of it. One whose creation a killed process has left is begun anew.
    ///
    /// # Errors
    /// `Exists` when there is one already or a class's path holds data, `Invalid` for options or a location
    /// that cannot work, or a device's error.
    pub fn create(self) -> Result<Kvdb> {
        self.options.check_to_create()?;
        let Builder { location, options } = self;
        let made = location.make()?;
        open::create(&made.devices, &made.classes, made.uuid(), &options)?;
        let started = Kvdb::start(made.devices.clone(), location.directory(), options);
        match &started {
            Ok(_) => drop(made.keep()),
            Err(_) => made.undo(),
        }
        started
    }

    /// Opens the KVDB.
    ///
    /// # Errors
    /// `NotFound` when there is none, `ClassMissing` when the file of a class is gone, `InUse` when another process has
    /// it open ([read only](Builder::open_read_only): open to write), `ReadOnly` when its files may only be read,
    /// `Damaged` when its structures are damaged, `Invalid` when the location is no directory, contradicts the KVDB or
    /// lacks a device, or it has more KVSs than [`Options::kvs_limit`] says, or a device's error.
    pub fn open(self) -> Result<Kvdb> {
        self.options.check()?;
        let devices = self.location.open(self.options.read_only)?;
        Kvdb::start(devices, self.location.directory(), self.options)
    }

    /// Opens the KVDB, or makes it where there is none. It goes on where a killed process was creating it. Where files of
    /// a class lie without their manifest it makes none.
    ///
    /// # Errors
    /// As [`Builder::open`] where something of a KVDB is there; else as [`Builder::create`].
    pub fn open_or_create(self) -> Result<Kvdb> {
        self.options.check_to_create()?;
        if self.location.is_free()? { self.create() } else { self.open() }
    }

    /// Opens the KVDB to read: [`Options::read_only`].
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open_read_only(mut self) -> Result<Kvdb> {
        self.options.read_only = true;
        self.open()
    }

    /// Verifies the KVDB, which nobody has open to write, without changing it. An observer that breaks it off gets what
    /// was found until then.
    ///
    /// # Errors
    /// As [`Builder::open`] where nobody knows which structures there are to check: the manifest is damaged, and
    /// only [`Builder::repair`] remains. All other damage is a finding of the report, and no error.
    pub fn check(self) -> Result<CheckReport> {
        let devices = self.location.open(true)?;
        let observer = self.options.observer;
        Kvdb::check_observed(&devices, |progress| observer.tell(progress))
    }

    /// Removes the KVDB with all it holds: its files, and the marks that devices have of it. After a crash meanwhile, this
    /// can be called again.
    ///
    /// # Errors
    /// As [`Builder::open`], which it has to be possible to do.
    pub fn destroy(self) -> Result<()> {
        self.location.destroy()
    }
}
