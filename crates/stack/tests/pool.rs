//! Stripes and volumes as specifications: the devices they give and share, and refusals.

use std::path::Path;
use std::sync::Arc;

use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{Create, Device, Port};
use esker_stack::{Opened, Spec, Stack, StackError};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeOptions};

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    /// A specification whose `@` before a slash stands for this directory.
    fn spec(&self, text: &str) -> String {
        text.replace("@/", &format!("{}/", self.0.path().display()))
    }

    fn file(&self, name: &str, bytes: u64) -> Arc<dyn Device> {
        let text = self.spec(&format!("file:@/{name}?capacity={bytes}"));
        open(&Stack::new(), &text, Create::IfMissing).unwrap().device
    }

    /// A pool of three files `d0` to `d2`, with volumes `one` and `two`, and a snapshot `one@then`.
    fn pool(&self, name: &str) {
        let drives: Vec<_> = (0..3).map(|n| self.file(&format!("{name}{n}"), 8 << 20)).collect();
        let options = CreateOptions {
            name: name.to_owned(),
            chunk_bytes: 256 << 10,
            log_bytes: 512 << 10,
            ..CreateOptions::default()
        };
        Pool::create(&drives, &[], &options).unwrap();
        let pool = Pool::open(&drives, OpenOptions::default()).unwrap();
        pool.create_volume("one", 1 << 20, VolumeOptions::default()).unwrap();
        pool.create_volume("two", 2 << 20, VolumeOptions::default()).unwrap();
        write(&*pool.volume("one").unwrap(), 7, 1);
        pool.snapshot("one", "then").unwrap();
        pool.close().unwrap();
    }
}

fn open(stack: &Stack, text: &str, create: Create) -> Result<Opened, StackError> {
    stack.open(&text.parse::<Spec>()?, create)
}

#[track_caller]
fn refused(stack: &Stack, text: &str, kind: ErrorKind, words: &[&str]) {
    let error = open(stack, text, Create::IfMissing).err().expect("a refusal");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no '{word}' in: {error}");
    }
}

fn write(device: &dyn Device, lba: u64, byte: u8) {
    let mut port = Port::open(device, 1).unwrap();
    let size = device.geometry().lba_size as usize;
    port.write(Lba(lba), AlignedBuf::padded(&vec![byte; size], size), None).unwrap();
}

fn read(device: &dyn Device, lba: u64) -> u8 {
    let size = device.geometry().lba_size as usize;
    Port::open(device, 1).unwrap().read(Lba(lba), AlignedBuf::zeroed(size)).unwrap()[0]
}

#[test]
fn stripe_is_found_again_on_its_files() {
    let scratch = Scratch::new();
    let text = scratch.spec("stripe:(file:@/a?capacity=1MiB)(file:@/b?capacity=1MiB)?chunk=64KiB");
    refused_never(&text, "no such file");
    {
        let stripe = open(&Stack::new(), &text, Create::IfMissing).unwrap().device;
        assert_eq!(stripe.geometry().capacity.bytes(4096), 2 << 20);
        (0..64).for_each(|lba| write(&*stripe, lba * 8, u8::try_from(lba + 1).unwrap()));
        Port::open(&*stripe, 1).unwrap().flush().unwrap();
    }
    let text = scratch.spec("stripe:(@/a)(@/b)?chunk=64KiB");
    let stripe = open(&Stack::new(), &text, Create::Never).unwrap().device;
    assert!((0..64).all(|lba| u64::from(read(&*stripe, lba * 8)) == lba + 1));
    assert!(stripe.identity().is_some());
    drop(stripe);
    let twice = scratch.spec("stripe:(@/a)(@/a)");
    assert!(open(&Stack::new(), &twice, Create::Never).is_err(), "a file is locked");
    let stack = Stack::new();
    refused(&stack, "stripe:(mem:1MiB)(mem:1MiB?lba=512)", ErrorKind::Invalid, &["of one size"]);
    refused(&stack, "stripe:(mem:1MiB)?chunk=1000", ErrorKind::Invalid, &["multiple of 4096"]);
    refused(&stack, "stripe:mem:1MiB", ErrorKind::Invalid, &["no specification in parentheses"]);
    refused(&stack, "stripe:", ErrorKind::Invalid, &["stripe:(/dev/nvme0n1)(/dev/nvme1n1)"]);
}

#[track_caller]
fn refused_never(text: &str, words: &str) {
    let error = open(&Stack::new(), text, Create::Never).err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn volumes_of_one_pool_share_it_and_the_last_one_closes_it() {
    let scratch = Scratch::new();
    scratch.pool("tank");
    let drives = scratch.spec("drives=(@/tank2)(@/tank0)(@/tank1)");
    let stack = Stack::new();
    let one = open(&stack, &format!("volume:tank/one?{drives}"), Create::Never).unwrap().device;
    let two = open(&stack, "volume:tank/two", Create::Never).unwrap().device;
    let then = open(&stack, "volume:tank/one@then", Create::New).unwrap().device;
    assert_eq!(one.geometry().capacity, LbaCount(256));
    assert_eq!(two.geometry().capacity, LbaCount(512));
    write(&*one, 7, 2);
    write(&*two, 7, 3);
    assert_eq!((read(&*one, 7), read(&*two, 7), read(&*then, 7)), (2, 3, 1));
    drop((one, then));
    let mut port = Port::open(&*two, 1).unwrap();
    drop(two);
    let buf = port.read(Lba(7), AlignedBuf::zeroed(4096)).unwrap();
    assert_eq!(buf[0], 3, "a queue pair keeps the pool open");
    drop(port);
    refused(
        &stack,
        "volume:tank/two?socket=/nowhere/tank.sock",
        ErrorKind::NotFound,
        &["no pool 'tank' is open here", "/nowhere/tank.sock", "drives="],
    );
    let drive = scratch.file("tank0", 8 << 20);
    assert!(Pool::examine(&*drive).unwrap().is_clean, "the last volume closed it");
    drop(drive);
    let again = open(&stack, &format!("volume:tank/one?{drives}"), Create::Never).unwrap().device;
    assert_eq!(read(&*again, 7), 2);
}

#[test]
fn pool_is_opened_by_all_of_its_devices_and_by_no_others() {
    let scratch = Scratch::new();
    scratch.pool("tank");
    scratch.pool("other");
    drop(scratch.file("plain", 8 << 20));
    let stack = Stack::new();
    let wrong = |text: &str, kind: ErrorKind, words: &[&str]| {
        refused(&stack, &scratch.spec(text), kind, words);
    };
    wrong("volume:tank?drives=(@/tank0)", ErrorKind::Invalid, &["POOL/NAME@SNAPSHOT"]);
    wrong("volume:tank/one@?drives=(@/tank0)", ErrorKind::Invalid, &["POOL/NAME@SNAPSHOT"]);
    wrong("volume:tank/one?size=1", ErrorKind::Invalid, &["no key 'size'", "drives=(SPEC)"]);
    wrong(
        "volume:tank/one?drives=(@/tank0)(@/tank1)(@/gone)",
        ErrorKind::NotFound,
        &["gone: there is no such file", "left out with degraded=yes"],
    );
    assert!(!Path::new(&scratch.spec("@/gone")).exists());
    wrong("volume:tank/one?drives=(@/plain)", ErrorKind::NotFound, &["no label of a pool"]);
    let mixed = "volume:tank/one?drives=(@/tank0)(@/tank1)(@/other2)";
    let two = "volume:tank/one?drives=(@/tank0)(@/tank1)";
    wrong(two, ErrorKind::NotFound, &["missing: drive 2 (", "tank2", "`degraded`"]);
    wrong(&format!("{two}&degraded=maybe"), ErrorKind::Invalid, &["yes or no"]);
    wrong(mixed, ErrorKind::Invalid, &["other2 belongs to pool 'other'"]);
    let all = "drives=(@/tank0)(@/tank1)(@/tank2)";
    wrong(&format!("volume:tank/three?{all}"), ErrorKind::NotFound, &["no volume 'three'"]);
    wrong(&format!("volume:tank/one@now?{all}"), ErrorKind::NotFound, &["no snapshot 'now'"]);
    let text = scratch.spec(&format!("volume:tank/one?{all}&map=8MiB"));
    let one = open(&stack, &text, Create::Never).unwrap();
    wrong("volume:tank/two?drives=(@/tank0)", ErrorKind::Invalid, &["is open on other devices"]);
    assert!(one.remarks().is_empty(), "{:?}", one.remarks());
    let spec: Spec = text.parse().unwrap();
    assert!(spec.is_lasting() && spec.paths().len() == 3);
    assert_eq!(spec.for_reopening().unwrap().to_string(), spec.to_string());
    // Another process would say the same: these files are open.
    let elsewhere = scratch.spec(&format!("volume:tank/one?{all}&socket=@/tank.sock"));
    let words = ["open in another process", "tank.sock", "end that process"];
    refused(&Stack::new(), &elsewhere, ErrorKind::Conflict, &words);
}
