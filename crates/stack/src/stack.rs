//! Opens specifications; those that name one drive share it.
//!
//! Invariants
//! 1. A drive is opened once: specifications with the same image, or the same `drive=`, are
//!    namespaces of one model, and whatever one of them says of the drive is true of it.
//! 2. Models with the same time share one clock.
//! 3. A pool is opened once, and by all of its devices: specifications with its name share it.
//! 4. A drive with an image is open as long as a device of it, or its [`Model`], is there: the last
//!    one closes the image. A drive in memory with a name lives as long as the stack: its content has no other place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker_base::process::Owner;
use esker_base::sync::Mutex;
use esker_base::{Clock, ErrorKind};
use esker_cache::{Cache, CacheError};
use esker_device::{Create, Device, FileOptions, Stripe};
use esker_flash::disk::Disk;
use esker_flash::profile::Profile;
use esker_flash::{Pace, Ssd};
use esker_trace::TraceError;
use esker_volume::{OpenOptions, Pool};

use crate::closings::{Closings, OpenCache, ServeCache};
use crate::pool::Held;
use crate::served::{self, NoAnswer, OpenError, Patience};
use crate::spec::{
    Access, CacheSpec, DiskSpec, RemoteSpec, SsdSpec, StripeSpec, TracedSpec, VolumeSpec,
};
use crate::{OpenPool, Spec, StackError, Time, Traced};
use crate::{drive, missing};

/// How long a command of a pool's drive that has lost its connection is tried before the pool is told: it asks once
/// more, and takes the drive out within two seconds.
const MEMBER_GIVE_UP: Duration = Duration::from_millis(400);

/// Opens specifications.
pub struct Stack {
    clock: Clock,
    access: Access,
    /// Where processes listen that serve pools.
    sockets: PathBuf,
    patience: Patience,
    closings: Closings,
    serve_cache: ServeCache,
    /// Held while the drive of a model is looked for or opened.
    opening: Mutex<()>,
    /// Never held while a device is waited for.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    paces: Vec<(Time, Pace)>,
    drives: Vec<Shared>,
    /// Every drive that is open, named or not, for its figures.
    open_drives: Vec<Weak<OpenDrive>>,
    /// Every cache that is open as a device, for its figures.
    caches: Vec<Weak<Cache>>,
    /// The profiles of drives in memory without a name, once for each drive.
    unnamed: Vec<String>,
    pools: Vec<SharedPool>,
}

struct SharedPool {
    /// The specification that opened it.
    spec: VolumeSpec,
    pool: Weak<OpenPool>,
}

struct Shared {
    key: Key,
    time: Time,
    drive: Weak<OpenDrive>,
    /// A drive without an image.
    _in_memory: Option<Arc<OpenDrive>>,
}

/// A drive that is open: each of its users has this, too.
struct OpenDrive {
    ssd: Ssd,
    closings: Closings,
    owner: Owner,
}

impl Drop for OpenDrive {
    fn drop(&mut self) {
        // In a forked child the locks are the parent's.
        if self.owner.is_here()
            && let Err(error) = self.ssd.sync()
        {
            self.closings.note(StackError::flash(self.ssd.name(), error));
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Key {
    Name(String),
    Image(PathBuf),
}

/// A device that was opened.
#[derive(Clone)]
pub struct Opened {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The drive that it models, if it is a model.
    pub model: Option<Model>,
}

/// The devices of a cache.
pub struct CacheParts {
    /// The slow, large device.
    pub origin: Arc<dyn Device>,
    /// The fast device.
    pub flash: Arc<dyn Device>,
}

/// The drive that a device models.
#[derive(Clone)]
pub struct Model {
    /// The profile; none when an image was made from one that this program does not know.
    pub profile: Option<Profile>,
    /// The drive, unless it is a disk.
    pub ssd: Option<Ssd>,
    /// Keeps the drive open for others that name it.
    open: Option<Arc<OpenDrive>>,
}

impl Model {
    /// Returns the assumptions about the drive, to be shown wherever a result depends on them.
    #[must_use]
    pub fn assumptions(&self) -> Vec<String> {
        let Some(profile) = &self.profile else {
            return vec!["all of the drive: it was made from no profile that is known here".into()];
        };
        let given = self.given_over_provisioning(profile);
        let shown = |&one: &&str| match &given {
            Some(given) if one.contains("over-provisioning") => given.clone(),
            _ => one.to_owned(),
        };
        profile.assumptions.iter().map(shown).collect()
    }

    /// The over-provisioning of a drive that was made with another one than its profile's, in words.
    fn given_over_provisioning(&self, profile: &Profile) -> Option<String> {
        let has = self.ssd.as_ref()?.parameters().over_provisioning();
        let assumed = profile.ssd()?.over_provisioning();
        // Smaller drives have whole units, too: their share differs a little.
        let is_given = (has - assumed).abs() > 0.01;
        is_given
            .then(|| format!("over-provisioning {:.1} % with all reserves, as given", has * 100.0))
    }
}

impl Opened {
    /// Returns remarks for the user: how the device was opened, and the assumptions of a model.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.device.remarks();
        for assumption in self.model.iter().flat_map(Model::assumptions) {
            let remark = format!("assumed: {assumption}");
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        remarks
    }
}

impl Default for Stack {
    fn default() -> Stack {
        Stack::new()
    }
}

impl Stack {
    /// A stack with a virtual clock of its own.
    #[must_use]
    pub fn new() -> Stack {
        Stack::with_clock(Clock::virtual_time())
    }

    /// A stack whose models with `time=virtual` live on `clock`.
    ///
    /// # Panics
    /// If the clock is not virtual.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Stack {
        assert!(clock.is_virtual(), "the clock of a stack is for models in virtual time");
        Stack {
            clock,
            access: Access::default(),
            sockets: served::socket_dir(),
            patience: Patience::default(),
            serve_cache: |_, _| None,
            closings: Closings::default(),
            opening: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// The same stack, which looks here for the sockets of pools that are served: `POOL.sock`.
    #[must_use]
    pub fn sockets_in(self, sockets: PathBuf) -> Stack {
        Stack { sockets, ..self }
    }

    /// The same stack, which waits so for processes that serve pools.
    #[must_use]
    pub fn patient(self, patience: Patience) -> Stack {
        Stack { patience, ..self }
    }

    /// The same stack, which notes here failures to close devices.
    #[must_use]
    pub fn noting(self, closings: Closings) -> Stack {
        Stack { closings, ..self }
    }

    /// The same stack, which calls this for every cache that it opens as a device.
    #[must_use]
    pub fn serving_caches(self, serve_cache: ServeCache) -> Stack {
        Stack { serve_cache, ..self }
    }

    /// The same stack, which opens `file:` to read only, also inside `traced:`: several may then have it open.
    /// Models and caches keep books in their files, and are opened as ever.
    #[must_use]
    pub fn read_only(self, read_only: bool) -> Stack {
        Stack { access: Access { read_only, ..self.access }, ..self }
    }

    /// The same stack, for the classes of a KVDB: a `file:`, also inside `traced:`, grows with the data written to
    /// it. Everywhere else a file has one size: the one it has, or the capacity that was said.
    #[must_use]
    pub fn growing(self, growing: bool) -> Stack {
        Stack { access: Access { growing, ..self.access }, ..self }
    }

    /// The clock of models with `time=virtual`.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The modelled drives that are open now, each once, in the order in which they were opened. A caller that keeps
    /// one keeps its image open.
    #[must_use]
    pub fn drives(&self) -> Vec<Ssd> {
        let drives = &mut self.state.lock().open_drives;
        drives.retain(|drive| drive.strong_count() > 0);
        drives.iter().filter_map(Weak::upgrade).map(|drive| drive.ssd.clone()).collect()
    }

    /// The caches that are open as devices now, in the order in which they were opened. A caller that keeps one
    /// keeps it open.
    #[must_use]
    pub fn caches(&self) -> Vec<Arc<Cache>> {
        let caches = &mut self.state.lock().caches;
        caches.retain(|cache| cache.strong_count() > 0);
        caches.iter().filter_map(Weak::upgrade).collect()
    }

    /// Opens a device. `create` is about the file of a device that lasts: whether it, or the drive
    /// in it, is made or must be there; the same of a cache on a flash device that lasts. A remote
    /// namespace is connected to, and always there.
    ///
    /// # Errors
    /// `NotFound` and `Exists` as `create` says, or for a new file without a size. `Invalid` for a specification that
    /// contradicts itself or the drive that is there, `Corrupt` for a damaged image or another file, or a device's
    /// error.
    pub fn open(&self, spec: &Spec, create: Create) -> Result<Opened, StackError> {
        self.open_as(spec, create, self.access)
    }

    /// Opens a device of a pool; it never makes one. A pool does without a drive that refuses, or gives it its commands
    /// again: so an initiator gives a lost connection up early, unless its specification says when.
    ///
    /// # Errors
    /// As [`Stack::open`].
    pub fn open_member(&self, spec: &Spec) -> Result<Opened, StackError> {
        let open = |spec: &Spec| self.open_as(spec, Create::Never, Access::default());
        match spec {
            Spec::Remote(remote) => {
                let give_up = remote.give_up.or(Some(MEMBER_GIVE_UP));
                open(&Spec::Remote(Box::new(RemoteSpec { give_up, ..(**remote).clone() })))
            }
            other => open(other),
        }
    }

    fn open_as(&self, spec: &Spec, create: Create, access: Access) -> Result<Opened, StackError> {
        let plain = |device: Arc<dyn Device>| Ok(Opened { device, model: None });
        match spec {
            Spec::File(file) => plain(Arc::new(file.open(create, access)?)),
            Spec::Memory(memory) => plain(Arc::new(memory.open(&spec.to_string()))),
            Spec::Null(null) => plain(Arc::new(null.open())),
            Spec::Ssd(ssd) => {
                let model = self.drive(ssd, create)?;
                let drive = model.open.clone().expect("a drive was opened");
                let namespace = drive.ssd.namespace(ssd.nsid.unwrap_or(1));
                let namespace = namespace.map_err(|error| StackError::flash(spec, error))?;
                let device = Held::over(Arc::new(namespace), drive, Vec::new());
                Ok(Opened { device, model: Some(model) })
            }
            Spec::Disk(disk) => self.disk(disk, create),
            Spec::Traced(traced) => self.traced(spec, traced, create, access),
            Spec::Cache(parts) => {
                let cache = Arc::new(self.cache(parts, create)?);
                self.state.lock().caches.push(Arc::downgrade(&cache));
                let served = (self.serve_cache)(&cache, parts);
                let closings = self.closings.clone();
                let open = OpenCache::new(cache.clone(), spec.clone(), served, closings);
                plain(Held::over(cache, Arc::new(open), Vec::new()))
            }
            Spec::Stripe(stripe) => plain(Arc::new(self.stripe(spec, stripe, create, access)?)),
            Spec::Volume(volume) => plain(self.volume(spec, volume)?),
            Spec::Remote(remote) => match remote.open() {
                Ok(initiator) => plain(Arc::new(initiator)),
                Err(error) => Err(StackError::remote(spec, error)),
            },
        }
    }

    fn traced(
        &self,
        spec: &Spec,
        traced: &TracedSpec,
        create: Create,
        access: Access,
    ) -> Result<Opened, StackError> {
        let failed = |error: TraceError| StackError::trace(spec, &traced.to, &error);
        // Before anything is made for a trace that cannot be.
        traced.check().map_err(failed)?;
        let Opened { device, model } = self.open_as(&traced.inner, create, access)?;
        let clock = match traced.inner.time() {
            Some(Time::Virtual) => self.clock.clone(),
            _ => Clock::real(),
        };
        let writer = traced.writer().map_err(failed)?;
        let device = Traced::new(device, writer, clock, traced.buffer()).map_err(failed)?;
        Ok(Opened { device: Arc::new(device.noting(self.closings.clone())), model })
    }

    /// Opens the cache of a specification. If there is none on the flash device, it is made, unless `create` says
    /// that it must be there and the flash device lasts.
    ///
    /// # Errors
    /// As [`Stack::open`]; `NotFound` when it has to be there and is not.
    pub fn cache(&self, spec: &CacheSpec, create: Create) -> Result<Cache, StackError> {
        let CacheParts { origin, flash } = self.cache_devices(spec, create)?;
        let failed =
            |error: &CacheError| StackError::cache(Spec::Cache(Box::new(spec.clone())), error);
        if let Err(error @ CacheError::NoCache { .. }) = Cache::inspect(&flash) {
            if create == Create::Never && spec.flash.is_lasting() {
                return Err(missing::no_cache(spec, &error));
            }
            Cache::create(&*origin, &flash, &spec.create_options()).map_err(|e| failed(&e))?;
        }
        Cache::open(origin, flash, spec.open_options()).map_err(|error| failed(&error))
    }

    /// Opens the origin and the flash device of a cache.
    ///
    /// # Errors
    /// As [`Stack::open`].
    pub fn cache_devices(
        &self,
        spec: &CacheSpec,
        create: Create,
    ) -> Result<CacheParts, StackError> {
        if create == Create::Never {
            missing::check(spec)?;
        }
        // A cache writes to both even for reads, and neither grows.
        let open = |part| self.open_as(part, create, Access::default());
        Ok(CacheParts { origin: open(&spec.origin)?.device, flash: open(&spec.flash)?.device })
    }

    fn stripe(
        &self,
        spec: &Spec,
        stripe: &StripeSpec,
        create: Create,
        access: Access,
    ) -> Result<Stripe, StackError> {
        // Its size is that of its drives, which do not grow.
        let access = Access { growing: false, ..access };
        let open = |drive| Ok(self.open_as(drive, create, access)?.device);
        let drives = stripe.drives.iter().map(open).collect::<Result<_, StackError>>()?;
        Ok(Stripe::new(&spec.to_string(), drives, stripe.chunk_bytes())?)
    }

    /// Opens a volume: of a pool that is open here, of one that these devices are, or of one that is served.
    fn volume(&self, spec: &Spec, volume: &VolumeSpec) -> Result<Arc<dyn Device>, StackError> {
        let own = match self.pool(volume) {
            Ok(pool) => {
                let opened = pool.device(&volume.name, volume.snapshot.as_deref());
                return opened.map_err(|error| StackError::volume(spec, &error));
            }
            // It is not open here, or another process has it.
            Err(error) if volume.drives.is_empty() || error.kind() == ErrorKind::Conflict => error,
            Err(error) => return Err(error),
        };
        let socket = self.socket_of(volume);
        let failed =
            |kind, cause: String| Err(StackError::Volume { spec: spec.to_string(), cause, kind });
        match served::open(spec, volume, &socket, self.patience) {
            Ok(device) => Ok(device),
            Err(OpenError::Stack(error)) => Err(error),
            Err(OpenError::NoAnswer(NoAnswer::Absent(error))) if volume.drives.is_empty() => {
                let cause = format!(
                    "no pool '{0}' is open here, and none is served at {1} ({error}); start `esker pool serve {0} \
                     --drives …`, say socket=PATH, or name all of its devices: drives=(SPEC)(SPEC)…&buffer=(SPEC)",
                    volume.pool,
                    socket.display()
                );
                failed(ErrorKind::NotFound, cause)
            }
            Err(OpenError::NoAnswer(NoAnswer::Absent(_))) => {
                let cause = format!(
                    "{own}; the pool is open in another process, which does not serve it at {}: end that process, or \
                     say socket=PATH",
                    socket.display()
                );
                failed(own.kind(), cause)
            }
            Err(OpenError::NoAnswer(error)) => failed(error.kind(), error.to_string()),
        }
    }

    /// The socket of the process that serves the pool of a volume.
    #[must_use]
    pub fn socket_of(&self, volume: &VolumeSpec) -> PathBuf {
        let in_place = || self.sockets.join(format!("{}.sock", volume.pool));
        volume.socket.clone().unwrap_or_else(in_place)
    }

    /// Opens the pool of a volume by the labels of its devices, or finds it open. It never makes one.
    ///
    /// # Errors
    /// As [`Stack::open`]; a device that is named and not there is an error, because a pool that is opened without
    /// one of its devices goes on without it.
    pub fn pool(&self, spec: &VolumeSpec) -> Result<Arc<OpenPool>, StackError> {
        let mut state = self.state.lock();
        state.pools.retain(|shared| shared.pool.strong_count() > 0);
        let known = state.pools.iter().find(|shared| shared.spec.pool == spec.pool);
        if let Some((opener, pool)) = known.and_then(|it| Some((&it.spec, it.pool.upgrade()?))) {
            let named: Vec<&Spec> = spec.devices().collect();
            let open: Vec<&Spec> = opener.devices().collect();
            let is_same = named.len() == open.len() && named.iter().all(|one| open.contains(one));
            if named.is_empty() || is_same {
                return Ok(pool);
            }
            let opener = Spec::Volume(Box::new(opener.clone()));
            return Err(StackError::invalid(
                Spec::Volume(Box::new(spec.clone())),
                format!("the pool is open on other devices, as {opener}"),
            ));
        }
        drop(state);
        let pool = self.open_pool(spec)?;
        let shared = SharedPool { spec: spec.clone(), pool: Arc::downgrade(&pool) };
        self.state.lock().pools.push(shared);
        Ok(pool)
    }

    fn open_pool(&self, spec: &VolumeSpec) -> Result<Arc<OpenPool>, StackError> {
        let text = || Spec::Volume(Box::new(spec.clone()));
        let failed = |error| StackError::volume(text(), &error);
        if spec.drives.is_empty() {
            let why = format!(
                "no pool '{}' is open here; name all of its devices: drives=(SPEC)(SPEC)…&buffer=(SPEC)",
                spec.pool
            );
            return Err(StackError::invalid(text(), why));
        }
        let open = |device| match self.open_member(device) {
            Ok(opened) => Ok(opened.device),
            Err(error) => {
                let advice = match error.kind() {
                    ErrorKind::Conflict => {
                        "The pool may be served by that process: ask it, without its devices"
                    }
                    _ => {
                        "Name all devices of a pool; one that is missing may be left out with degraded=yes"
                    }
                };
                let cause = format!("{error}. {advice}");
                Err(StackError::Volume { spec: text().to_string(), cause, kind: error.kind() })
            }
        };
        let devices = spec.devices().map(open).collect::<Result<Vec<_>, StackError>>()?;
        for device in &devices {
            let found = Pool::examine(&**device).map_err(failed)?;
            if found.pool != spec.pool {
                let (device, other) = (device.name(), found.pool);
                let why = format!("{device} belongs to pool '{other}'; name other drives");
                return Err(StackError::invalid(text(), why));
            }
        }
        let usual = OpenOptions::default();
        let map_bytes = spec.map.and_then(|bytes| usize::try_from(bytes).ok());
        let options = OpenOptions {
            map_bytes: map_bytes.unwrap_or(usual.map_bytes),
            degraded: spec.degraded,
            lose_buffer: spec.lose_buffer,
            accept_half: spec.accept_half,
            missing_grace: spec.grace.unwrap_or(usual.missing_grace),
            patience: spec.patience.unwrap_or(usual.patience),
            repair_share: spec.repair_share.unwrap_or(usual.repair_share),
            scrub_within: spec.scrub,
            ..usual
        };
        let names = devices.iter().map(|device| device.name().to_owned());
        let specs = names.zip(spec.devices().cloned()).collect();
        let pool = Pool::open(&devices, options).map_err(failed)?;
        Ok(OpenPool::new(pool, specs, self.closings.clone()))
    }

    /// Opens or makes the drive of a specification, which may have no namespace yet.
    ///
    /// # Errors
    /// As [`Stack::open`].
    pub fn drive(&self, spec: &SsdSpec, create: Create) -> Result<Model, StackError> {
        let _one_at_a_time = self.opening.lock();
        let time = spec.time.unwrap_or_default();
        let key = key_of(spec)?;
        let known = {
            let drives = &mut self.state.lock().drives;
            drives.retain(|shared| shared.drive.strong_count() > 0);
            let mut shared = drives.iter().filter(|shared| Some(&shared.key) == key.as_ref());
            shared.find_map(|shared| Some((shared.time, shared.drive.upgrade()?)))
        };
        let open = if let Some((known, open)) = known {
            if spec.time.is_some_and(|time| time != known) {
                let why = format!("has time {known}, not {time}");
                return Err(StackError::contradiction(spec, why));
            }
            drive::check(spec, &open.ssd)?;
            open
        } else {
            let pace = self.state.lock().pace(time, &self.clock);
            let ssd = match &spec.image {
                Some(path) => open_image(spec, path, create, pace)?,
                None => {
                    let name = self.state.lock().name(spec);
                    drive::make(spec, &name, pace)?
                }
            };
            let (closings, owner) = (self.closings.clone(), Owner::here());
            let open = Arc::new(OpenDrive { ssd, closings, owner });
            // An image has its key only now that it is there.
            let shared = key_of(spec)?.map(|key| Shared {
                key,
                time,
                drive: Arc::downgrade(&open),
                _in_memory: spec.image.is_none().then(|| open.clone()),
            });
            let mut state = self.state.lock();
            state.open_drives.push(Arc::downgrade(&open));
            state.drives.extend(shared);
            open
        };
        let profile = drive::profile_of(&open.ssd);
        Ok(Model { profile, ssd: Some(open.ssd.clone()), open: Some(open) })
    }

    fn disk(&self, spec: &DiskSpec, create: Create) -> Result<Opened, StackError> {
        let found = spec.parameters();
        let (profile, parameters) = found.map_err(|why| StackError::invalid(spec, why))?;
        let pace = self.state.lock().pace(spec.time.unwrap_or_default(), &self.clock);
        let disk = |content| match Disk::new(&parameters, content) {
            Ok(disk) => Ok(disk.emulate(&spec.name(), pace.clone())),
            Err(error) => Err(StackError::flash(spec, error)),
        };
        let device = match &spec.image {
            None => disk(None)?,
            Some(path) => {
                let geometry = disk(None)?.geometry();
                let bytes = geometry.capacity.bytes(geometry.lba_size);
                let create_it = || missing::create_disk(spec, path);
                if expect_image(path, create, create_it)? {
                    let has = std::fs::metadata(path).map_or(0, |found| found.len());
                    if has != bytes && path.is_file() {
                        let why = format!("has {has} bytes, not {bytes}");
                        return Err(StackError::contradiction(spec, why));
                    }
                }
                // The length of the file says how large the disk is.
                let file = drive::open_file(
                    path,
                    FileOptions {
                        // An existing file has been looked at before.
                        create: if create == Create::Never { create } else { Create::IfMissing },
                        capacity_bytes: Some(bytes),
                        fixed: true,
                        lba_size: Some(geometry.lba_size),
                        ..FileOptions::default()
                    },
                )?;
                disk(Some(Arc::new(file)))?
            }
        };
        let model = Model { profile: Some(profile), ssd: None, open: None };
        Ok(Opened { device: Arc::new(device), model: Some(model) })
    }
}

impl State {
    fn pace(&mut self, time: Time, clock: &Clock) -> Pace {
        if let Some((_, pace)) = self.paces.iter().find(|(known, _)| *known == time) {
            return pace.clone();
        }
        let pace = match time {
            Time::None => Pace::untimed(),
            Time::Virtual => Pace::virtual_time(clock.clone()),
            Time::Real => Pace::real(),
            Time::Dilated(factor) => Pace::dilated(factor),
        };
        self.paces.push((time, pace.clone()));
        pace
    }

    /// A name for a new drive in memory, which no other drive of this stack has.
    fn name(&mut self, spec: &SsdSpec) -> String {
        let profile = spec.profile.as_deref().unwrap_or_default();
        if let Some(name) = &spec.drive {
            return format!("{profile}:{name}");
        }
        self.unnamed.push(profile.to_owned());
        match self.unnamed.iter().filter(|known| *known == profile).count() {
            1 => profile.to_owned(),
            number => format!("{profile}#{number}"),
        }
    }
}

/// The key by which other specifications mean the same drive.
fn key_of(spec: &SsdSpec) -> Result<Option<Key>, StackError> {
    let Some(path) = &spec.image else {
        return Ok(spec.drive.clone().map(Key::Name));
    };
    Ok(std::fs::canonicalize(path).ok().map(Key::Image))
}

/// Whether there is an image; an error if there should not be, or should. `create_it` says with which command it
/// is created.
fn expect_image(
    path: &Path,
    create: Create,
    create_it: impl FnOnce() -> String,
) -> Result<bool, StackError> {
    let path_now = || path.to_owned();
    match (drive::is_there(path)?, create) {
        (true, Create::New) => Err(StackError::Exists { path: path_now() }),
        (false, Create::Never) => {
            Err(StackError::NotFound { path: path_now(), create: create_it() })
        }
        (is_there, _) => Ok(is_there),
    }
}

fn open_image(spec: &SsdSpec, path: &Path, create: Create, pace: Pace) -> Result<Ssd, StackError> {
    if expect_image(path, create, || missing::create_drive(spec, path))? {
        let ssd = drive::open(spec, path, pace)?;
        drive::check(spec, &ssd)?;
        return Ok(ssd);
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let profile = spec.profile.as_deref().unwrap_or_default();
    let name = format!("{profile}:{}", absolute.display());
    drive::make(spec, &name, pace)
}
