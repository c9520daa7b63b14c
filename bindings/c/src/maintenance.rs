//! Maintenance: backup, check, repair, compaction, classes.

#![allow(unsafe_code)]

use std::ffi::c_char;

use esker_kv::{CompactRequest, Kvdb};

use crate::border::{border, put, the, wanted};
use crate::bytes::Value;
use crate::error::{Error, Result};
use crate::kvdb::Db;
use crate::options::{Options, builder, location, medium};

/// A compaction merges everything, and leaves no garbage.
pub const ESKER_COMPACT_FULL: i32 = 0;
/// A compaction ends when the media hold at most `goal` bytes for each live byte.
pub const ESKER_COMPACT_SPACE: i32 = 1;
/// As `ESKER_COMPACT_FULL`; and then nothing that was deleted before is on the media.
pub const ESKER_COMPACT_SCRUB: i32 = 2;

/// Copies a KVDB to a new one in a directory, while reads and writes go on. `options` say where the classes of the copy
/// are, and may be NULL. `report` is JSON that the caller frees, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_backup(
    db: *const Db,
    to: *const c_char,
    options: *const Options,
    report: *mut Value,
) -> *mut Error {
    border(|| {
        // SAFETY: null, live, texts and writable, as the header demands.
        unsafe {
            let done = the(db)?.backup(&location(to, options)?)?;
            tell(report, "backup", &done)
        }
    })
}

/// Verifies a KVDB that nobody has open to write, without changing it. Damage is in `findings` of the report, and no
/// error. `report` is JSON that the caller frees; `sound` says whether nothing was found. Either may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_check(
    dir: *const c_char,
    options: *const Options,
    sound: *mut bool,
    report: *mut Value,
) -> *mut Error {
    border(|| {
        // SAFETY: null, live, texts and writable, as the header demands.
        unsafe {
            let found = builder(dir, options)?.check()?;
            if !sound.is_null() {
                sound.write(found.findings.is_empty() && !found.interrupted);
            }
            tell(report, "check", &found)
        }
    })
}

/// Salvages what is sound of a damaged KVDB, which nobody has open, to a new one in another directory. `report` is JSON that
/// the caller frees, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_repair(
    damaged: *const c_char,
    damaged_options: *const Options,
    to: *const c_char,
    to_options: *const Options,
    report: *mut Value,
) -> *mut Error {
    border(|| {
        // SAFETY: null, live, texts and writable, as the header demands.
        unsafe {
            let to = builder(to, to_options)?;
            let remains = location(damaged, damaged_options)?.remains()?;
            tell(report, "repair", &to.repair(&remains)?)
        }
    })
}

/// Removes a KVDB with all it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_destroy(dir: *const c_char, options: *const Options) -> *mut Error {
    // SAFETY: null, texts and live, as the header demands.
    border(|| Ok(unsafe { builder(dir, options)? }.destroy()?))
}

/// # Safety
/// The place is null or writable.
unsafe fn tell(report: *mut Value, name: &str, content: &impl serde::Serialize) -> Result<()> {
    if report.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { put(report, "report", Value::of_json(name, content)?) }
}

/// Merges and moves data, while the KVDB is in use, until it is as asked for: `ESKER_COMPACT_FULL`, `…_SPACE` with a `goal`
/// of at least 1.02, or `…_SCRUB`. Returns then, or when `esker_cancel_compact` or a progress function calls it off.
/// `status` is JSON that the caller frees, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_compact(
    db: *const Db,
    request: i32,
    goal: f64,
    status: *mut Value,
) -> *mut Error {
    border(|| {
        let request = match request {
            ESKER_COMPACT_FULL => CompactRequest::Full,
            ESKER_COMPACT_SPACE => CompactRequest::SpaceAmplification(goal),
            ESKER_COMPACT_SCRUB => CompactRequest::Scrub,
            other => {
                let why = format!("{other} is no compaction: use one of ESKER_COMPACT_…");
                return Err(Error::invalid(&why));
            }
        };
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { tell(status, "compaction", &the(db)?.compact(request)?) }
    })
}

/// How a compaction, or the removal of a class, is getting on, as JSON that the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_compact_status(db: *const Db, status: *mut Value) -> *mut Error {
    border(|| {
        let status = wanted(status, "status")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { tell(status, "compaction", &the(db)?.compact_status()) }
    })
}

/// # Safety
/// The handle is null or live.
unsafe fn with_db(db: *const Db, work: impl FnOnce(&Kvdb) -> esker_kv::Result<()>) -> *mut Error {
    // SAFETY: the caller's promise.
    border(|| Ok(work(unsafe { the(db)? })?))
}

/// Calls off the compaction, or the removal of a class, that is under way. It ends soon; its work so far stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_cancel_compact(db: *const Db) -> *mut Error {
    let cancel = |db: &Kvdb| {
        db.cancel_compact();
        Ok(())
    };
    // SAFETY: null or live, as the header demands.
    unsafe { with_db(db, cancel) }
}

/// Turns the memtable into kvsets now, full or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_ingest(db: *const Db) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    unsafe { with_db(db, Kvdb::ingest) }
}

/// Runs or waits for maintenance until nothing is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_settle(db: *const Db) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    unsafe { with_db(db, Kvdb::settle) }
}

/// Runs one step of maintenance that is due, for `esker_options_set_manual`. `worked` says whether there was one; it may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_step(db: *const Db, worked: *mut bool) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and writable, as the header demands.
        unsafe {
            let did = the(db)?.step()?;
            if !worked.is_null() {
                worked.write(did);
            }
        }
        Ok(())
    })
}

/// Upgrades a KVDB to the newest version of the on-media format, durably. There is no way back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_upgrade(db: *const Db) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    unsafe { with_db(db, |db| db.upgrade().map(drop)) }
}

/// Gives a KVDB a staging class while it runs: a raw block device, a directory, a file that is not there yet, or NULL for a
/// file in the KVDB's own directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_add_staging(db: *const Db, path: *const c_char) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and a text, as the header demands.
        let (db, medium) = unsafe { (the(db)?, medium(path)?) };
        Ok(db.add_staging(&medium)?)
    })
}

/// Takes the staging class away while the KVDB is in use, after its data has been moved to capacity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_remove_staging(db: *const Db) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    unsafe { with_db(db, Kvdb::remove_staging) }
}
