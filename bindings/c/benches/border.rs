//! Cost of the border: calls of `libesker.so.0`, and the same in Rust within the library, on one KVS, in one process and
//! thread, with values of 1 KB in DRAM. Short rounds of both alternate. Build the library first, with those loops in Rust:
//!
//!     ESKER_MEASURE=1 bindings/c/build && cargo bench -p esker-c --bench border
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use esker_base::{Clock, Rng};

/// So few that the caches of the processor have them: else their misses hide the border.
const KEYS: u64 = 1_000;
const VALUE: usize = 1_000;
const CALLS: usize = 1_000;
const ROUNDS: usize = 2_001;
const MANY: usize = 50;
/// Puts of a round, so few that what disturbs a round disturbs few of them, and rounds of puts.
const PUTS: usize = 10;
const PUT_ROUNDS: usize = 40_001;

type Handle = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct Slice {
    data: *const c_void,
    size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    data: *mut u8,
    size: usize,
    capacity: usize,
}

type Open = unsafe extern "C" fn(*const c_char, Handle, *mut Handle) -> Handle;
type OpenKvs = unsafe extern "C" fn(Handle, *const c_char, Handle, *mut Handle) -> Handle;
type Put = unsafe extern "C" fn(Handle, *const u8, usize, *const u8, usize, u32) -> Handle;
type Get = unsafe extern "C" fn(Handle, *const u8, usize, *mut Value) -> Handle;
type FreeValue = unsafe extern "C" fn(*mut Value);
type GetInto =
    unsafe extern "C" fn(Handle, *const u8, usize, *mut u8, usize, *mut usize, *mut bool) -> Handle;
type GetMany = unsafe extern "C" fn(Handle, *const Slice, usize, *mut Value) -> Handle;
type FreeValues = unsafe extern "C" fn(*mut Value, usize);
type NewIter = unsafe extern "C" fn(Handle, Handle, *mut Handle) -> Handle;
type Next = unsafe extern "C" fn(Handle, *mut Slice, *mut Slice, *mut bool) -> Handle;
type Free = unsafe extern "C" fn(Handle);
type NewOptions = unsafe extern "C" fn() -> Handle;
type SetMemory = unsafe extern "C" fn(Handle, u64);
/// An operation in Rust with each key, and its nanoseconds.
type Measure = unsafe extern "C" fn(Handle, *const c_char, *const Slice, usize, *mut u64) -> Handle;

struct Library(Handle);

impl Library {
    fn open(path: &Path) -> Library {
        let text = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a text that ends with a zero.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{}: run bindings/c/build first", path.display());
        Library(handle)
    }

    /// A function of the library.
    ///
    /// # Safety
    /// It has that type.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        let text = CString::new(name).unwrap();
        // SAFETY: the library is open, and the name ends with a zero.
        let found = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        assert!(
            !found.is_null() && size_of::<F>() == size_of::<Handle>(),
            "the library lacks {name}: run ESKER_MEASURE=1 bindings/c/build first"
        );
        // SAFETY: the caller's promise.
        unsafe { std::mem::transmute_copy(&found) }
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn ok(error: Handle) {
    assert!(error.is_null());
}

/// The loops in Rust, and the KVS that they work on.
struct Sides {
    kvs: Handle,
    measure: Measure,
}

impl Sides {
    /// Prints the median in Rust, how much more that of the calls is, which `c` makes, and the difference of two loops in
    /// Rust: the noise. The order changes from round to round, since the first of a round finds its keys in no cache.
    fn compare(
        &self,
        operation: &CStr,
        rounds: usize,
        parts: &[&[Slice]],
        mut c: impl FnMut(&[Slice]),
    ) {
        let clock = Clock::real();
        let mut all = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..rounds {
            let keys = parts[round % parts.len()];
            let calls = f64::from(u32::try_from(keys.len()).unwrap());
            let mut times = [0.0; 3];
            for turn in 0..3 {
                let side = (round + turn) % 3;
                let nanoseconds = if side == 2 {
                    let began = clock.now();
                    c(keys);
                    clock.now().0 - began.0
                } else {
                    let mut nanoseconds = 0;
                    // SAFETY: a live handle, and keys that are there.
                    ok(unsafe {
                        (self.measure)(
                            self.kvs,
                            operation.as_ptr(),
                            keys.as_ptr(),
                            keys.len(),
                            &raw mut nanoseconds,
                        )
                    });
                    nanoseconds
                };
                times[side] =
                    std::time::Duration::from_nanos(nanoseconds).as_secs_f64() * 1e9 / calls;
            }
            all.iter_mut().zip(times).for_each(|(side, time)| side.push(time));
        }
        let [one, other, c] = all.map(median);
        let rust = f64::midpoint(one, other);
        println!(
            "{:10} Rust {rust:7.1} ns   border {:6.1} ns   two loops in Rust {:6.1} ns",
            operation.to_str().unwrap(),
            c - rust,
            one - other
        );
    }
}

fn main() {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let library = Library::open(&target.join("c/lib/libesker.so.0"));
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    // SAFETY: the types are those of esker.h, and handles are used as it says.
    unsafe {
        let open: Open = library.function("esker_open_or_create");
        let open_kvs: OpenKvs = library.function("esker_kvs_open_or_create");
        let put: Put = library.function("esker_put");
        let get: Get = library.function("esker_get");
        let free_value: FreeValue = library.function("esker_value_free");
        let get_into: GetInto = library.function("esker_get_into");
        let get_many: GetMany = library.function("esker_get_many");
        let free_values: FreeValues = library.function("esker_values_free");
        let new_iter: NewIter = library.function("esker_iter_new");
        let next: Next = library.function("esker_iter_next");
        let free_iter: Free = library.function("esker_iter_free");
        let new_options: NewOptions = library.function("esker_options_new");
        let set_memory: SetMemory = library.function("esker_options_set_memory");
        let free_options: Free = library.function("esker_options_free");
        let free_kvs: Free = library.function("esker_kvs_free");
        let free_db: Free = library.function("esker_db_free");

        let dir = CString::new(scratch.path().join("c").to_str().unwrap()).unwrap();
        let (mut db, mut kvs) = (ptr::null_mut(), ptr::null_mut());
        let options = new_options();
        set_memory(options, 1 << 30);
        ok(open(dir.as_ptr(), options, &raw mut db));
        free_options(options);
        ok(open_kvs(db, c"a".as_ptr(), ptr::null_mut(), &raw mut kvs));

        let value = [7_u8; VALUE];
        let put_slice = |key: &Slice| {
            ok(put(kvs, key.data.cast(), key.size, value.as_ptr(), VALUE, 0));
        };
        let slices = |keys: &[[u8; 16]]| -> Vec<Slice> {
            keys.iter().map(|key| Slice { data: key.as_ptr().cast(), size: 16 }).collect()
        };
        let ordered: Vec<_> = (0..KEYS).map(key).collect();
        slices(&ordered).iter().for_each(put_slice);
        let mut rng = Rng::new(1);
        let random: Vec<_> = (0..CALLS).map(|_| key(rng.below(KEYS))).collect();
        let random = slices(&random);
        let sides = Sides { kvs, measure: library.function("esker_measure") };

        sides.compare(c"get", ROUNDS, &[&random], |keys| {
            for key in keys {
                let mut found = Value { data: ptr::null_mut(), size: 0, capacity: 0 };
                ok(get(kvs, key.data.cast(), key.size, &raw mut found));
                assert_eq!(found.size, VALUE);
                free_value(&raw mut found);
            }
        });
        let mut buffer = [0; VALUE];
        sides.compare(c"get_into", ROUNDS, &[&random], |keys| {
            for key in keys {
                let (mut size, mut found) = (0, false);
                let (to, room) = (buffer.as_mut_ptr(), buffer.len());
                let (from, key_size) = (key.data.cast(), key.size);
                ok(get_into(kvs, from, key_size, to, room, &raw mut size, &raw mut found));
                assert!(found && size == VALUE);
            }
        });
        sides.compare(c"get_many", ROUNDS, &[&random], |keys| {
            let none = Value { data: ptr::null_mut(), size: 0, capacity: 0 };
            for keys in keys.chunks(MANY) {
                let mut found = [none; MANY];
                ok(get_many(kvs, keys.as_ptr(), keys.len(), found.as_mut_ptr()));
                assert!(found[..keys.len()].iter().all(|value| value.size == VALUE));
                free_values(found.as_mut_ptr(), keys.len());
            }
        });
        sides.compare(c"scan", ROUNDS, &[&random], |keys| {
            let mut iter = ptr::null_mut();
            ok(new_iter(kvs, ptr::null_mut(), &raw mut iter));
            let none = Slice { data: ptr::null(), size: 0 };
            let (mut key, mut value, mut found) = (none, none, true);
            for _ in keys {
                ok(next(iter, &raw mut key, &raw mut value, &raw mut found));
                assert!(found && value.size == VALUE);
            }
            free_iter(iter);
        });
        let few: Vec<&[Slice]> = random.chunks(PUTS).collect();
        sides.compare(c"put", PUT_ROUNDS, &few, |keys| {
            keys.iter().for_each(put_slice);
        });
        free_kvs(kvs);
        free_db(db);
    }
}
