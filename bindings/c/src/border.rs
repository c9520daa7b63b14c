//! The border: panics end here, and handles are looked at before they are used.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_base::process::Owner;
use esker_base::thread::said;
use esker_kv::KvError;

use crate::error::{ESKER_BUSY, ESKER_PANICKED, Error, Result};

/// Does the work of a call, and returns its error, or null. A panic is an error.
#[inline]
pub(crate) fn border(work: impl FnOnce() -> Result<()>) -> *mut Error {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => ptr::null_mut(),
        Ok(Err(error)) => Box::into_raw(Box::new(error)),
        Err(panic) => {
            let why =
                format!("the call panicked: {}; report this as a bug of Esker", said(&*panic));
            Box::into_raw(Box::new(Error::new(ESKER_PANICKED, &why)))
        }
    }
}

/// An opaque type of the interface in C: a pointer to it is one to a [`Tagged`].
pub(crate) trait Handle {
    type Of;
    /// The first bytes of each handle of the type, and of no other one.
    const TAG: u64;
    const NAME: &'static str;
    /// Whether a forked child may use it: it has no part of a KVDB, whose locks threads of the parent may hold.
    const INHERITED: bool = false;
}

/// A handle's memory.
#[repr(C)]
struct Tagged<T> {
    /// First, so that it is there to be read in a handle of any type.
    tag: AtomicU64,
    owner: Owner,
    value: T,
}

impl<T> Tagged<T> {
    /// Whether the calling process may use it.
    #[inline]
    fn is_here<H: Handle<Of = T>>(&self) -> bool {
        H::INHERITED || self.owner.is_here()
    }
}

/// Gives a new handle to the caller.
pub(crate) fn give<H: Handle>(value: H::Of) -> *mut H {
    let (tag, owner) = (AtomicU64::new(H::TAG), Owner::here());
    Box::into_raw(Box::new(Tagged { tag, owner, value })).cast()
}

#[cold]
fn refused<H: Handle>(is_null: bool) -> Error {
    let name = H::NAME;
    Error::invalid(&if is_null {
        format!("the {name} is NULL: pass one that a call of this library has made")
    } else {
        format!("the pointer is to no {name}: it is a handle of another type, or was freed")
    })
}

#[inline]
fn check<H: Handle>(handle: *const H) -> Result<*const Tagged<H::Of>> {
    let tagged = handle.cast::<Tagged<H::Of>>();
    if tagged.is_null() || !tagged.is_aligned() {
        return Err(refused::<H>(tagged.is_null()));
    }
    // SAFETY: a handle of any type begins with its tag. One that was freed is the caller's fault.
    let tag = unsafe { (*tagged.cast::<AtomicU64>()).load(Ordering::Relaxed) };
    if tag == H::TAG { Ok(tagged) } else { Err(refused::<H>(false)) }
}

/// The content of a handle.
///
/// # Safety
/// It is null, or a handle of any type that is not freed while the result is used.
#[inline]
pub(crate) unsafe fn the<'a, H: Handle>(handle: *const H) -> Result<&'a H::Of> {
    // SAFETY: it is of this type, as its tag says, and shared references are all that is given of it.
    let tagged = unsafe { &*check(handle)? };
    if tagged.is_here::<H>() { Ok(&tagged.value) } else { Err(forked()) }
}

#[cold]
fn forked() -> Error {
    KvError::Forked.into()
}

/// Frees a handle, unless it is null or of another type. A forked child leaves the memory of its parent's handles as it
/// is: a thread that the child lacks may have been at it.
///
/// # Safety
/// As [`the`], and nobody uses it any more.
pub(crate) unsafe fn free<H: Handle>(handle: *mut H) {
    if let Ok(tagged) = check(handle.cast_const()) {
        let tagged = tagged.cast_mut();
        // SAFETY: it is of this type, and the caller gives it up.
        let boxed = unsafe { Box::from_raw(tagged) };
        boxed.tag.store(0, Ordering::Relaxed);
        if !boxed.is_here::<H>() {
            std::mem::forget(boxed);
            return;
        }
        // A panic of a destructor stays here.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(boxed)));
    }
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// The place is null or writable.
pub(crate) unsafe fn put<T>(place: *mut T, name: &str, value: T) -> Result<()> {
    // SAFETY: the caller's promise; null was refused.
    unsafe { wanted(place, name)?.write(value) };
    Ok(())
}

/// The place of a result, which is not null.
pub(crate) fn wanted<T>(place: *mut T, name: &str) -> Result<*mut T> {
    if place.is_null() {
        return Err(Error::invalid(&format!("`{name}` is NULL: pass where the result is to go")));
    }
    Ok(place)
}

/// Something that one thread may use at a time: another one that comes meanwhile is refused.
pub(crate) struct Exclusive<T> {
    is_used: AtomicBool,
    value: UnsafeCell<T>,
}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Exclusive<T> {
        Exclusive { is_used: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        if self.is_used.swap(true, Ordering::Acquire) {
            let why = "another thread uses this handle: give each thread its own, or lock it";
            return Err(Error::new(ESKER_BUSY, why));
        }
        let end = Ends(&self.is_used);
        // SAFETY: nobody else has it, as the flag says.
        let result = work(unsafe { &mut *self.value.get() });
        drop(end);
        result
    }
}

/// Ends a use, of a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ESKER_INVALID, esker_error_code, esker_error_free};

    struct One;
    struct Other;

    impl Handle for One {
        type Of = Exclusive<u8>;
        const TAG: u64 = 1;
        const NAME: &'static str = "one";
    }

    impl Handle for Other {
        type Of = Vec<u64>;
        const TAG: u64 = 2;
        const NAME: &'static str = "other";
    }

    fn code(work: impl FnOnce() -> Result<()>) -> i32 {
        let error = border(work);
        // SAFETY: null, or an error of this test's.
        unsafe {
            let code = esker_error_code(error);
            esker_error_free(error);
            code
        }
    }

    #[test]
    fn panic_of_a_call_is_its_error() {
        assert_eq!(code(|| Ok(())), 0);
        assert_eq!(code(|| panic!("as it is meant to")), ESKER_PANICKED);
    }

    #[test]
    fn panic_of_a_destructor_does_not_leave_free() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("as it is meant to");
            }
        }
        struct Third;
        impl Handle for Third {
            type Of = Panics;
            const TAG: u64 = 3;
            const NAME: &'static str = "third";
        }
        let handle = give::<Third>(Panics);
        // SAFETY: it is given up.
        unsafe { free(handle) };
    }

    #[test]
    fn handle_of_another_type_is_refused_and_not_freed() {
        let one = give::<One>(Exclusive::new(7));
        // SAFETY: the handle lives until it is freed at the end.
        unsafe {
            let other = one.cast::<Other>();
            assert_eq!(code(|| the(other.cast_const()).map(drop)), ESKER_INVALID);
            free(other);
            assert_eq!(code(|| the(one.cast_const())?.with(|seven| put(seven, "", 8))), 0);
            assert_eq!(the(one.cast_const()).ok().unwrap().with(|eight| Ok(*eight)).ok(), Some(8));
            free(one);
        }
    }

    #[test]
    fn second_use_at_a_time_is_refused_and_a_panic_ends_a_use() {
        let one = Exclusive::new(1);
        let within = |_: &mut i32| one.with(|_| Ok(()));
        assert_eq!(code(|| one.with(within)), ESKER_BUSY);
        assert_eq!(code(|| one.with(|_| panic!("as it is meant to"))), ESKER_PANICKED);
        assert_eq!(code(|| one.with(|_| Ok(()))), 0);
    }
}
