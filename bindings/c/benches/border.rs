//! Cost of the border: the same calls on two KVDBs with the same content, one through `libesker.so.0` and one in Rust, in
//! one process and thread, with values of 1 KB in DRAM. Short rounds of both alternate. Build the library first:
//!
//!     bindings/c/build && cargo bench -p esker-c --bench border
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use esker_base::{Clock, Rng};
use esker_kv::{Kvdb, Kvs, Policy};

/// So few that the caches of the processor have them: else their misses hide the border.
const KEYS: u64 = 1_000;
const VALUE: usize = 1_000;
const CALLS: u64 = 1_000;
const ROUNDS: usize = 2_001;
const MANY: usize = 50;
/// Puts are compared on so many sets of new KVDBs, one after the other: where one has its memory changes what a put costs.
const SETS: usize = 15;
/// Rounds on a set, and puts of a round: so short that what disturbs a round seldom disturbs most of them.
const PUT_ROUNDS: usize = 1_200;
const PUTS: usize = 10;

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
        assert!(!found.is_null() && size_of::<F>() == size_of::<Handle>(), "{name}");
        // SAFETY: the caller's promise.
        unsafe { std::mem::transmute_copy(&found) }
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Nanoseconds of a call, in each round.
fn measure(clock: &Clock, calls: u64, work: impl FnOnce()) -> f64 {
    let began = clock.now();
    work();
    let took = clock.now().since(began);
    took.as_secs_f64() * 1e9 / f64::from(u32::try_from(calls).unwrap())
}

/// The first decile: most rounds on a shared machine were disturbed.
fn decile(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 10]
}

/// The median and the quartiles.
fn quartiles(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [1, 2, 3].map(|part| all[(all.len() - 1) * part / 4])
}

/// Prints the first deciles of both sides, their difference, and that of two KVDBs in Rust: the noise.
fn compare(name: &str, kvss: &[Kvs; 2], rust: impl Fn(&Kvs) -> f64, mut c: impl FnMut() -> f64) {
    let mut sides = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for turn in 0..3 {
            match (round + turn) % 3 {
                2 => sides[2].push(c()),
                side => sides[side].push(rust(&kvss[side])),
            }
        }
    }
    let [rust, again, c] = sides.map(decile);
    let (border, noise) = (c - rust.min(again), (rust - again).abs());
    println!(
        "{name:10} Rust {rust:7.1} ns   C {c:7.1} ns   border {border:6.1} ns   noise {noise:5.1} ns"
    );
}

fn ok(error: Handle) {
    assert!(error.is_null());
}

fn main() {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let library = Library::open(&target.join("c/lib/libesker.so.0"));
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let clock = Clock::real();

    let dbs = ["one", "other"]
        .map(|name| Kvdb::builder(scratch.path().join(name)).memory(1 << 30).create().unwrap());
    let kvss = [0, 1].map(|at| -> Kvs { dbs[at].create_kvs("a", Policy::default()).unwrap() });
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
        let (mut c_db, mut c_kvs) = (ptr::null_mut(), ptr::null_mut());
        ok(open(dir.as_ptr(), ptr::null_mut(), &raw mut c_db));
        ok(open_kvs(c_db, c"a".as_ptr(), ptr::null_mut(), &raw mut c_kvs));

        let value = [7_u8; VALUE];
        for n in 0..KEYS {
            kvss.iter().for_each(|kvs| kvs.put(key(n), value).unwrap());
            ok(put(c_kvs, key(n).as_ptr(), 16, value.as_ptr(), VALUE, 0));
        }
        let random = |seed: u64| {
            let mut rng = Rng::new(seed);
            (0..CALLS).map(|_| key(rng.below(KEYS))).collect::<Vec<_>>()
        };
        let keys = random(1);
        compare(
            "get",
            &kvss,
            |kvs| {
                measure(&clock, CALLS, || {
                    for key in &keys {
                        assert_eq!(kvs.get(key).unwrap().unwrap().len(), VALUE);
                    }
                })
            },
            || {
                measure(&clock, CALLS, || {
                    for key in &keys {
                        let mut found = Value { data: ptr::null_mut(), size: 0, capacity: 0 };
                        ok(get(c_kvs, key.as_ptr(), 16, &raw mut found));
                        assert_eq!(found.size, VALUE);
                        free_value(&raw mut found);
                    }
                })
            },
        );
        let read = std::cell::RefCell::new(Vec::new());
        let mut buffer = [0; VALUE];
        compare(
            "get_into",
            &kvss,
            |kvs| {
                let mut read = read.borrow_mut();
                measure(&clock, CALLS, || {
                    for key in &keys {
                        assert!(kvs.get_into(key, &mut read).unwrap() && read.len() == VALUE);
                    }
                })
            },
            || {
                measure(&clock, CALLS, || {
                    for key in &keys {
                        let (mut size, mut found) = (0, false);
                        let (to, room) = (buffer.as_mut_ptr(), buffer.len());
                        ok(get_into(
                            c_kvs,
                            key.as_ptr(),
                            16,
                            to,
                            room,
                            &raw mut size,
                            &raw mut found,
                        ));
                        assert!(found && size == VALUE);
                    }
                })
            },
        );
        let slices: Vec<Slice> =
            keys.iter().map(|key| Slice { data: key.as_ptr().cast(), size: 16 }).collect();
        compare(
            "get_many",
            &kvss,
            |kvs| {
                measure(&clock, CALLS, || {
                    for keys in keys.chunks(MANY) {
                        assert!(kvs.get_many(keys).unwrap().iter().all(Option::is_some));
                    }
                })
            },
            || {
                measure(&clock, CALLS, || {
                    let none = Value { data: ptr::null_mut(), size: 0, capacity: 0 };
                    for keys in slices.chunks(MANY) {
                        let mut found = [none; MANY];
                        ok(get_many(c_kvs, keys.as_ptr(), keys.len(), found.as_mut_ptr()));
                        assert!(found.iter().all(|value| value.size == VALUE));
                        free_values(found.as_mut_ptr(), MANY);
                    }
                })
            },
        );
        compare(
            "scan, row",
            &kvss,
            |kvs| {
                measure(&clock, KEYS, || {
                    let mut cursor = kvs.cursor().unwrap();
                    let mut count = 0;
                    while let Some((_, value)) = cursor.next().unwrap() {
                        count += u64::from(value.len() == VALUE);
                    }
                    assert_eq!(count, KEYS);
                })
            },
            || {
                measure(&clock, KEYS, || {
                    let mut iter = ptr::null_mut();
                    ok(new_iter(c_kvs, ptr::null_mut(), &raw mut iter));
                    let none = Slice { data: ptr::null(), size: 0 };
                    let (mut key, mut value, mut found) = (none, none, true);
                    let mut count = 0;
                    while found {
                        ok(next(iter, &raw mut key, &raw mut value, &raw mut found));
                        count += u64::from(found && value.size == VALUE);
                    }
                    assert_eq!(count, KEYS);
                    free_iter(iter);
                })
            },
        );
        let open_set = |set: usize| {
            let dir = |side: &str| scratch.path().join(format!("{side}-{set}"));
            let rust = ["one", "other"].map(|side| -> (Kvdb, Kvs) {
                let db = Kvdb::builder(dir(side)).memory(1 << 30).create().unwrap();
                let kvs = db.create_kvs("a", Policy::default()).unwrap();
                (db, kvs)
            });
            let path = CString::new(dir("c").to_str().unwrap()).unwrap();
            let (mut db, mut kvs) = (ptr::null_mut(), ptr::null_mut());
            let options = new_options();
            set_memory(options, 1 << 30);
            ok(open(path.as_ptr(), options, &raw mut db));
            free_options(options);
            ok(open_kvs(db, c"a".as_ptr(), ptr::null_mut(), &raw mut kvs));
            (rust, (db, kvs))
        };
        let mut sides = [Vec::new(), Vec::new(), Vec::new()];
        for set in 0..SETS {
            let (rust, (c_db, c_kvs)) = open_set(set);
            let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
            for round in 0..PUT_ROUNDS {
                let keys = keys.iter().cycle().skip(round * PUTS % keys.len()).take(PUTS);
                for turn in 0..3 {
                    let keys = keys.clone();
                    let side = (round + turn) % 3;
                    rounds[side].push(measure(&clock, PUTS as u64, || match side {
                        2 => keys.for_each(|key| {
                            ok(put(c_kvs, key.as_ptr(), 16, value.as_ptr(), VALUE, 0));
                        }),
                        side => keys.for_each(|key| rust[side].1.put(key, value).unwrap()),
                    }));
                }
            }
            for (side, rounds) in sides.iter_mut().zip(rounds) {
                side.push(quartiles(rounds)[0]);
            }
            free_kvs(c_kvs);
            free_db(c_db);
        }
        let over = |side: &[f64]| {
            let over = side.iter().zip(&sides[0]).zip(&sides[1]);
            quartiles(over.map(|((c, one), other)| c - f64::midpoint(*one, *other)).collect())
        };
        let [_, rust, _] = quartiles([&sides[0][..], &sides[1][..]].concat());
        let [low, border, high] = over(&sides[2]);
        let noise = quartiles(sides[0].iter().zip(&sides[1]).map(|(a, b)| a - b).collect());
        println!(
            "put        Rust {rust:7.1} ns   border {border:6.1} ns, quartiles {low:.1} to {high:.1}   two in Rust {:.1}, \
             quartiles {:.1} to {:.1}   ({SETS} sets of KVDBs)",
            noise[1], noise[0], noise[2]
        );
    }
}
