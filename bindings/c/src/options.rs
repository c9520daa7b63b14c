//! Options of a KVDB with the place of its classes, and callbacks of the caller's.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use esker_base::sync::{Mutex, MutexGuard};
use esker_kv::{
    Builder, Kvdb, KvsOptions, Location, Maintenance, Medium, Options as EngineOptions, Tuning,
};

use crate::border::{Handle, free, give, the};
use crate::bytes::{path, text};
use crate::error::{Error, Result};

/// Options of a KVDB, and where its classes are. The caller owns them, frees them with `esker_options_free`, and may use
/// them for several calls. A setter keeps a copy of what it is given. One that is given what cannot be remembers that, and
/// the call that uses the options answers `ESKER_INVALID`.
pub struct Options;

impl Handle for Options {
    type Of = Mutex<Settings>;
    const TAG: u64 = u64::from_le_bytes(*b"esk.opts");
    const NAME: &'static str = "esker_options";
    const INHERITED: bool = true;
}

/// So long a call waits for others that use the same options.
const PATIENCE: Duration = Duration::from_secs(1);

/// Values that setters have set.
#[derive(Default)]
pub(crate) struct Settings {
    options: EngineOptions,
    staging: Option<Medium>,
    capacity: Option<Medium>,
    refused: Option<Error>,
}

/// Receives a remark, a text of `size` bytes with a zero behind it that is there during the call. Any thread of the
/// KVDB's may call it, also several at once. It must neither close nor free the KVDB.
pub type RemarkFn =
    Option<unsafe extern "C" fn(context: *mut c_void, remark: *const c_char, size: usize)>;

/// Receives how far long work is: its phase in words, how much of it is done, and how much there is, 0 where nobody knows.
/// False calls the work off: it ends with `ESKER_CANCELLED`, and nothing is lost. The thread that works calls it.
pub type ProgressFn = Option<
    unsafe extern "C" fn(context: *mut c_void, phase: *const c_char, done: u64, total: u64) -> bool,
>;

/// How a KVS is made. All bytes zero is the default. Settings may be changed later.
#[repr(C)]
pub struct KvsSettings {
    /// Where its data goes: the name of a template such as `staging-only`, or cells such as `old-keys=capacity`. NULL is
    /// `auto`.
    pub policy: *const c_char,
    /// How its values are compressed: `none`, `lz4`, `zstd` or `auto`. NULL is `none`.
    pub compression: *const c_char,
    /// Milliseconds after which a value expires; 0 is never.
    pub ttl_ms: u64,
}

/// The caller's pointer, which goes back to it.
struct Context(*mut c_void);

// SAFETY: the library only hands it back, and the caller is told on which threads.
unsafe impl Send for Context {}
// SAFETY: the same.
unsafe impl Sync for Context {}

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// The caller's options, or the default for null.
///
/// # Safety
/// They are null or live.
unsafe fn settled<T>(
    options: *const Options,
    work: impl FnOnce(&Settings) -> Result<T>,
) -> Result<T> {
    if options.is_null() {
        return work(&Settings::default());
    }
    // SAFETY: the caller's promise.
    let settings = held(unsafe { the(options)? })?;
    match &settings.refused {
        Some(refused) => Err(refused.again()),
        None => work(&settings),
    }
}

/// Holds settings, which no call holds for long: unless a thread of the parent did when this process was forked.
fn held(settings: &Mutex<Settings>) -> Result<MutexGuard<'_, Settings>> {
    let refused =
        || Error::invalid("the options were in use when this process was forked: make new ones");
    settings.try_lock_for(PATIENCE).ok_or_else(refused)
}

/// The place that a directory and options name.
///
/// # Safety
/// `dir` is a text or null, and the options are null or live.
pub(crate) unsafe fn location(dir: *const c_char, options: *const Options) -> Result<Location> {
    // SAFETY: the caller's promise.
    let dir = unsafe { path(dir, "directory")? };
    // SAFETY: the same.
    unsafe { settled(options, |settings| Ok(settings.location(dir))) }
}

/// The beginning of an opening.
///
/// # Safety
/// As [`location`].
pub(crate) unsafe fn builder(dir: *const c_char, options: *const Options) -> Result<Builder> {
    // SAFETY: the caller's promise.
    let location = unsafe { location(dir, options)? };
    let with = |settings: &Settings| Ok(Kvdb::builder(location).options(settings.options.clone()));
    // SAFETY: the same.
    unsafe { settled(options, with) }
}

impl Settings {
    fn location(&self, dir: &Path) -> Location {
        let mut location = Location::dir(dir);
        if let Some(medium) = &self.staging {
            location = location.staging(medium.clone());
        }
        if let Some(medium) = &self.capacity {
            location = location.capacity(medium.clone());
        }
        location
    }
}

/// A medium of the caller's: a path, or null for a file in the KVDB's own directory.
///
/// # Safety
/// It is a text or null.
pub(crate) unsafe fn medium(at: *const c_char) -> Result<Medium> {
    if at.is_null() {
        return Ok(Medium::InDir);
    }
    // SAFETY: the caller's promise.
    Ok(Medium::Path(unsafe { path(at, "path")? }.to_owned()))
}

/// Options of a KVS; null is the default.
///
/// # Safety
/// They are null or readable, and their texts end with zeroes.
pub(crate) unsafe fn kvs_options(settings: *const KvsSettings) -> Result<KvsOptions> {
    // SAFETY: the caller's promise.
    let Some(settings) = (unsafe { settings.as_ref() }) else { return Ok(KvsOptions::default()) };
    let ttl_ms = (settings.ttl_ms > 0).then_some(settings.ttl_ms);
    let mut options = KvsOptions::default().ttl_ms(ttl_ms);
    if !settings.policy.is_null() {
        // SAFETY: the caller's promise.
        options = options.policy(unsafe { parsed(settings.policy, "policy")? });
    }
    if !settings.compression.is_null() {
        // SAFETY: the caller's promise.
        options = options.compression(unsafe { parsed(settings.compression, "compression")? });
    }
    Ok(options)
}

/// A value that is written as text.
///
/// # Safety
/// The text ends with a zero, or is null.
pub(crate) unsafe fn parsed<T: std::str::FromStr<Err = String>>(
    of: *const c_char,
    name: &str,
) -> Result<T> {
    // SAFETY: the caller's promise.
    let text = unsafe { text(of, name)? };
    text.parse().map_err(|why: String| Error::invalid(&why))
}

/// Changes options, or remembers why not.
///
/// # Safety
/// They are null or live.
unsafe fn change(options: *mut Options, change: impl FnOnce(&mut Settings) -> Result<()>) {
    // SAFETY: the caller's promise.
    if let Ok(settings) = unsafe { the(options.cast_const()) } {
        // Then the call that uses the options fails, too.
        let Ok(mut settings) = held(settings) else { return };
        if let Err(error) = change(&mut settings) {
            settings.refused.get_or_insert(error);
        }
    }
}

/// The default options: a directory with a capacity class in a file of it, and a memory budget of a quarter of the
/// memory that the machine and the control group have, at most 1 GiB.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_new() -> *mut Options {
    give(Mutex::default())
}

/// Frees options. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_free(options: *mut Options) {
    // SAFETY: null, or options that the caller gives up.
    unsafe { free(options) };
}

/// Sets the DRAM that the engine may use for everything, in bytes: at least 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_memory(options: *mut Options, bytes: u64) {
    let set = |settings: &mut Settings| {
        settings.options.memory_bytes = bytes;
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Sets when acknowledged writes are durable: within so many milliseconds, 0 for each before it returns, and with so many
/// bytes at most that are not durable yet, 0 for the default of 8 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_durability(options: *mut Options, ms: u64, bytes: u64) {
    let set = |settings: &mut Settings| {
        settings.options.durability.ms = ms;
        if bytes > 0 {
            settings.options.durability.bytes = bytes;
        }
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Sets how long a transaction may be open, in milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_transaction_ms(options: *mut Options, ms: u64) {
    let set = |settings: &mut Settings| {
        settings.options.transaction_ms = ms;
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Sets how many bytes the media may hold for each live byte: 1.02 to 100.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_space_amplification(options: *mut Options, ratio: f64) {
    let set = |settings: &mut Settings| {
        settings.options.space_amplification = ratio;
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Gives a new KVDB a staging class: a raw block device, a directory, a file that is not there yet, or NULL for a file in the
/// KVDB's own directory. One that is there knows its classes itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_staging(options: *mut Options, path: *const c_char) {
    let set = |settings: &mut Settings| {
        // SAFETY: null, or a text of the caller's.
        settings.staging = Some(unsafe { medium(path)? });
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Says where a new KVDB has its capacity class: as for the staging class.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_capacity(options: *mut Options, path: *const c_char) {
    let set = |settings: &mut Settings| {
        // SAFETY: null, or a text of the caller's.
        settings.capacity = Some(unsafe { medium(path)? });
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Has maintenance done by the caller's own calls of `esker_step` and by writes that have to wait for it, or by threads
/// of the KVDB's as by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_manual(options: *mut Options, manual: bool) {
    let set = |settings: &mut Settings| {
        settings.options.maintenance =
            if manual { Maintenance::Manual } else { Maintenance::Threads };
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Sets the size of a part of the engine, which else follows from the memory budget: `memtable_bytes`, `block_bytes`,
/// `frame_bytes`, `key_extent_bytes`, `allocation_bytes`, `root_kvsets`, `spill_bytes`, `compact_kvsets`, `leaf_key_bytes`,
/// `gather_bytes` or `workers`. Set the memory budget before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_tuning(
    options: *mut Options,
    name: *const c_char,
    value: u64,
) {
    let set = |settings: &mut Settings| {
        // SAFETY: null, or a text of the caller's.
        let name = unsafe { text(name, "name")? };
        let budget = settings.options.memory_bytes;
        let mut tuning = settings.options.tuning.unwrap_or_else(|| Tuning::for_budget(budget));
        let count = usize::try_from(value).unwrap_or(usize::MAX);
        match name {
            "memtable_bytes" => tuning.memtable_bytes = value,
            "block_bytes" => tuning.block_bytes = value,
            "frame_bytes" => tuning.frame_bytes = value,
            "key_extent_bytes" => tuning.key_extent_bytes = value,
            "allocation_bytes" => tuning.allocation_bytes = value,
            "root_kvsets" => tuning.root_kvsets = count,
            "spill_bytes" => tuning.spill_bytes = value,
            "compact_kvsets" => tuning.compact_kvsets = count,
            "leaf_key_bytes" => tuning.leaf_key_bytes = value,
            "gather_bytes" => tuning.gather_bytes = value,
            "workers" => tuning.workers = count,
            other => {
                let why =
                    format!("'{other}' is no part of the engine: esker.h lists those that are");
                return Err(Error::invalid(&why));
            }
        }
        settings.options.tuning = Some(tuning);
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Has remarks told to `receiver`, such as the log of the program: each once, with `context`, which has to be there as long
/// as a KVDB that was opened with these options. NULL for nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_on_remark(
    options: *mut Options,
    receiver: RemarkFn,
    context: *mut c_void,
) {
    let context = Context(context);
    let set = |settings: &mut Settings| {
        let tell = move |remark: &str| {
            if let Some(receiver) = receiver {
                let text = CString::new(remark.replace('\0', "\u{fffd}")).unwrap_or_default();
                let size = text.as_bytes().len();
                // SAFETY: the caller's function and context, as it has said.
                unsafe { receiver(context.get(), text.as_ptr(), size) };
            }
        };
        settings.options = std::mem::take(&mut settings.options).on_remark(tell);
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}

/// Has the progress of long work told to `observer`: opening after a crash, check, backup, repair and compaction. `context`
/// has to be there as long as a KVDB that was opened with these options. NULL for nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_options_set_on_progress(
    options: *mut Options,
    observer: ProgressFn,
    context: *mut c_void,
) {
    let context = Context(context);
    let set = |settings: &mut Settings| {
        let mut phase: CString = CString::default();
        let observe = move |progress: &esker_kv::Progress| {
            let Some(observer) = observer else { return ControlFlow::Continue(()) };
            if phase.as_bytes() != progress.phase.as_bytes() {
                phase = CString::new(progress.phase).unwrap_or_default();
            }
            let total = progress.total.unwrap_or(0);
            let phase: &CStr = &phase;
            // SAFETY: the caller's function and context, as it has said.
            let goes_on = unsafe { observer(context.get(), phase.as_ptr(), progress.done, total) };
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        settings.options = std::mem::take(&mut settings.options).on_progress(observe);
        Ok(())
    };
    // SAFETY: null, or options of the caller's.
    unsafe { change(options, set) };
}
