//! Specifications, opened: the devices they give and share, and refusals.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::fdp::DataPlacement;
use esker_device::{Create, Device, Port};
use esker_stack::{Opened, Spec, Stack, StackError};

/// A directory that is gone after the test.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A specification whose `@` stands for this directory.
    fn spec(&self, text: &str) -> String {
        text.replace('@', self.0.path().to_str().unwrap())
    }
}

fn open(stack: &Stack, text: &str) -> Opened {
    try_open(stack, text, Create::IfMissing).unwrap()
}

fn try_open(stack: &Stack, text: &str, create: Create) -> Result<Opened, StackError> {
    stack.open(&text.parse::<Spec>()?, create)
}

#[track_caller]
fn refused(stack: &Stack, text: &str, kind: ErrorKind, words: &[&str]) {
    let error = try_open(stack, text, Create::IfMissing).err().expect("a refusal");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no '{word}' in: {error}");
    }
}

fn write(device: &dyn Device, lba: u64, byte: u8) {
    let size = device.geometry().lba_size as usize;
    let mut port = Port::open(device, 1).unwrap();
    port.write(Lba(lba), AlignedBuf::padded(&vec![byte; size], size), None).unwrap();
    port.flush().unwrap();
}

fn read(device: &dyn Device, lba: u64) -> u8 {
    let size = device.geometry().lba_size as usize;
    Port::open(device, 1).unwrap().read(Lba(lba), AlignedBuf::zeroed(size)).unwrap()[0]
}

fn placement(device: &Arc<dyn Device>) -> &dyn DataPlacement {
    device.data_placement().unwrap()
}

const SMALL: &str = "ssd:micron-7450?capacity=2GiB&time=none";

#[test]
fn every_kind_stores_what_is_written_to_it() {
    let scratch = Scratch::new();
    let stack = Stack::new();
    let texts = [
        "file:@/plain?capacity=1MiB",
        "file:@/other?capacity=1GiB&direct=never&lba=512",
        "mem:1MiB?lba=512",
        "ssd:micron-5210?capacity=1GiB&time=none",
        "ssd:optane-p4800x?capacity=1GiB",
        "ssd:micron-9300?capacity=2GiB&time=virtual",
        "disk:sata-7200?capacity=64GiB&time=2x",
        "disk:sas-10k?capacity=16GiB&time=virtual&image=@/disk",
    ];
    for text in texts {
        let opened = open(&stack, &scratch.spec(text));
        write(&*opened.device, 7, 42);
        assert_eq!(read(&*opened.device, 7), 42, "{text}");
        let is_model = text.starts_with("ssd") || text.starts_with("disk");
        assert_eq!(opened.model.is_some(), is_model, "{text}");
        let assumed = opened.remarks().iter().filter(|r| r.starts_with("assumed: ")).count();
        assert_eq!(assumed > 0, is_model, "{text}: {:?}", opened.remarks());
    }
    let geometry = open(&stack, "null:1GiB?lba=512").device.geometry();
    assert_eq!((geometry.lba_size, geometry.capacity), (512, LbaCount(1 << 21)));
}

#[test]
fn namespaces_of_one_drive_in_memory_are_found_by_its_name() {
    let stack = Stack::new();
    let first = open(&stack, &format!("{SMALL}&drive=a&namespaces=4&fdp=on"));
    let last = open(&stack, "ssd:?drive=a&nsid=4&time=none");
    write(&*first.device, 0, 1);
    assert_eq!(read(&*last.device, 0), 0);
    let of = |opened: &Opened| -> Vec<u16> {
        placement(&opened.device).handles().unwrap().iter().map(|one| one.handle).collect()
    };
    assert_eq!((of(&first), of(&last)), (vec![0, 1], vec![6, 7]));
    assert_eq!(last.device.geometry().placement_handles, 2);
    let lbas = first.device.geometry().capacity.0;
    assert_eq!(lbas, (2 << 30) / 4 / 4096);
    assert_eq!(last.model.unwrap().ssd.unwrap().report().host_written_bytes, 4096);
    let other = open(&stack, SMALL);
    assert_ne!(placement(&other.device).drive(), placement(&first.device).drive());
    refused(&stack, "ssd:?drive=b", ErrorKind::Invalid, &["needs a profile", "micron-7450"]);
    refused(&stack, "ssd:?drive=a&nsid=5", ErrorKind::Invalid, &["no namespace 5"]);
    refused(&stack, "ssd:?drive=a&time=2x", ErrorKind::Invalid, &["has time none, not 2x"]);
    refused(&stack, "ssd:?drive=a&fdp=1", ErrorKind::Invalid, &["has fdp 0, not 1"]);
}

#[test]
fn handles_are_divided_or_as_they_were_named() {
    let stack = Stack::new();
    let handles = |text: &str, nsid: u32| -> Vec<u16> {
        let drive = text.replace(['=', '&', '/', ','], "-");
        let text = format!("{SMALL}&fdp=1&{text}&drive={drive}&nsid={nsid}");
        let opened = open(&stack, &text);
        placement(&opened.device).handles().unwrap().iter().map(|one| one.handle).collect()
    };
    assert_eq!(handles("namespaces=1", 1), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(handles("namespaces=3", 1), [0, 1]);
    assert_eq!(handles("namespaces=3", 3), [5, 6, 7]);
    assert_eq!(handles("namespaces=8", 5), [4]);
    assert_eq!(handles("namespaces=10", 10), [1]);
    assert_eq!(handles("namespaces=2&handles=3,1", 2), [3, 1]);
    assert_eq!(handles("namespaces=2&handles=3,1/2", 2), [2]);
    let wrong = |text: &str, words: &[&str]| {
        refused(&stack, &format!("{SMALL}&{text}"), ErrorKind::Invalid, words);
    };
    wrong("namespaces=3&handles=0/1", &["one list for all", "3 lists"]);
    wrong("fdp=on&handles=8", &["no reclaim unit handle 8"]);
    wrong("handles=0,1", &["enable data placement"]);
    wrong("fdp=7", &["no configuration 7"]);
}

#[test]
fn an_image_is_made_once_and_found_again() {
    let scratch = Scratch::new();
    let text = scratch.spec(&format!("{SMALL}&image=@/d.img&namespaces=2&fdp=1"));
    let again = scratch.spec("ssd:?image=@/d.img&time=none&nsid=");
    {
        let stack = Stack::new();
        let missing = try_open(&stack, &text, Create::Never).err().unwrap();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(!scratch.path("d.img").exists());
        let (one, two) = (open(&stack, &text), open(&stack, &format!("{again}2")));
        write(&*one.device, 3, 1);
        write(&*two.device, 3, 2);
        assert_eq!(one.model.unwrap().profile.unwrap().name, "micron-7450");
    }
    let stack = Stack::new();
    let taken = try_open(&stack, &text, Create::New).err().unwrap();
    assert_eq!(taken.kind(), ErrorKind::Exists);
    let (one, two) = (open(&stack, &text), open(&stack, &format!("{again}2")));
    assert_eq!((read(&*one.device, 3), read(&*two.device, 3)), (1, 2));
    assert_eq!(two.model.clone().unwrap().profile.unwrap().name, "micron-7450");
    assert_eq!(two.device.geometry().placement_handles, 4);
    let other = Stack::new();
    refused(&other, &text, ErrorKind::Conflict, &["open elsewhere"]);
    drop((stack, one, two));
    open(&other, &text);
}

#[test]
fn image_is_closed_with_the_last_device_of_its_drive() {
    let (scratch, stack) = (Scratch::new(), Stack::new());
    let first = open(&stack, &scratch.spec(&format!("{SMALL}&image=@/d.img&namespaces=2")));
    let text = scratch.spec("ssd:?image=@/d.img&time=none&nsid=2");
    let second = open(&stack, &text);
    write(&*second.device, 1, 7);
    let elsewhere = Stack::new();
    let taken = || try_open(&elsewhere, &text, Create::Never).err().map(|error| error.kind());
    assert_eq!(taken(), Some(ErrorKind::Conflict), "both are open");
    drop(first);
    assert_eq!(taken(), Some(ErrorKind::Conflict), "the other namespace is open");
    let port = Port::open(&*second.device, 1).unwrap();
    drop(second);
    assert_eq!(taken(), Some(ErrorKind::Conflict), "a queue pair is open");
    drop(port);
    // The stack is there still.
    assert_eq!(read(&*open(&elsewhere, &text).device, 1), 7);
    assert_eq!(read(&*open(&stack, &text).device, 1), 7, "and opens it again");
    // The same holds for a device on top of a drive.
    let traced = scratch.spec("traced:(ssd:?image=@/d.img&time=none&nsid=2)?to=@/t.trace");
    drop(open(&stack, &traced));
    assert_eq!(read(&*open(&elsewhere, &text).device, 1), 7);
}

#[test]
fn keys_that_contradict_an_image_are_refused() {
    let scratch = Scratch::new();
    open(&Stack::new(), &scratch.spec(&format!("{SMALL}&image=@/d.img")));
    let wrong = |profile: &str, keys: &str, words: &[&str]| {
        let text = scratch.spec(&format!("ssd:{profile}?image=@/d.img&{keys}"));
        refused(&Stack::new(), &text, ErrorKind::Invalid, words);
    };
    wrong("micron-9300", "", &["has profile micron-7450, not micron-9300"]);
    wrong("micron-7450", "capacity=1GiB", &["has capacity 2GiB, not 1GiB"]);
    wrong("", "lba=512", &["has lba 4096, not 512"]);
    wrong("", "cleaning=fifo", &["has cleaning greedy, not fifo"]);
    wrong("", "frontier=shared", &["has frontier separate, not shared"]);
    wrong("", "unit=768KiB", &["has unit"]);
    wrong("", "op=0.5", &["has op of"]);
    wrong("", "namespaces=2", &["has namespaces 1, not 2"]);
    wrong("", "fdp=on", &["has fdp off, not 0"]);
    wrong("", "handles=1", &["has handles 0, not 1"]);
    let made = "capacity=2GiB&lba=4096&cleaning=greedy&frontier=separate&namespaces=1&fdp=off";
    open(&Stack::new(), &scratch.spec(&format!("ssd:micron-7450?image=@/d.img&{made}")));
}

#[test]
fn a_drive_is_made_as_it_is_described() {
    let stack = Stack::new();
    let keys = "op=0.25&unit=768KiB&cleaning=choices:10&frontier=shared&lba=512";
    let opened = open(&stack, &format!("{SMALL}&{keys}"));
    assert_eq!(opened.device.geometry().lba_size, 512);
    let drive = opened.model.unwrap().ssd.unwrap().parameters();
    assert_eq!((drive.capacity, drive.unit_size), (2 << 30, 768 << 10));
    assert!((drive.over_provisioning() - 0.25).abs() < 0.001, "{}", drive.over_provisioning());
    let wrong = |text: &str, words: &[&str]| refused(&stack, text, ErrorKind::Invalid, words);
    wrong("ssd:micron-7450", &["needs a capacity", "capacity=8GiB"]);
    wrong("ssd:micron-7450?capacity=8TiB", &["ask for at most"]);
    wrong("ssd:micron-7450?capacity=1MiB", &["ask for at least"]);
    wrong(&format!("{SMALL}&unit=1MiB"), &["no multiple of the 196608"]);
    wrong(&format!("{SMALL}&unit=192TiB"), &["ssd:micron-7450"]);
    wrong("ssd:optane-p4800x?capacity=1GiB&op=0.1", &["written in place"]);
    wrong("ssd:optane-p4800x?capacity=1GiB&fdp=on", &["no data placement"]);
    wrong("disk:sas-10k?capacity=16000000TiB", &["too large"]);
    let small = open(&stack, "disk:sata-7200?capacity=1GiB").device.geometry();
    assert!(small.capacity.bytes(small.lba_size) >= 1 << 30);
}

#[test]
fn a_file_that_is_no_image_is_left_as_it_is() {
    let scratch = Scratch::new();
    fs::write(scratch.path("letter"), "dear reader").unwrap();
    let text = scratch.spec(&format!("{SMALL}&image=@/letter"));
    refused(&Stack::new(), &text, ErrorKind::Corrupt, &["no image"]);
    let disk = scratch.spec("disk:sas-10k?image=@/letter");
    refused(&Stack::new(), &disk, ErrorKind::Invalid, &["has 11 bytes"]);
    assert_eq!(fs::read(scratch.path("letter")).unwrap(), b"dear reader");
    let nowhere = scratch.spec(&format!("{SMALL}&image=@/no/d.img"));
    refused(&Stack::new(), &nowhere, ErrorKind::NotFound, &["must exist"]);
    let failed = scratch.spec(&format!("{SMALL}&image=@/half&fdp=9"));
    refused(&Stack::new(), &failed, ErrorKind::Invalid, &["no configuration 9"]);
    assert!(!scratch.path("half").exists());
}

#[test]
fn the_image_of_a_disk_says_how_large_it_is() {
    let scratch = Scratch::new();
    let text = scratch.spec("disk:sata-7200?capacity=64GiB&time=none&image=@/disk");
    write(&*open(&Stack::new(), &text).device, 9, 5);
    let opened = try_open(&Stack::new(), &text, Create::Never).unwrap();
    assert_eq!(read(&*opened.device, 9), 5);
    drop(opened);
    let other = scratch.spec("disk:sata-7200?capacity=65GiB&image=@/disk");
    refused(&Stack::new(), &other, ErrorKind::Invalid, &["has 6", "not 6"]);
}

#[test]
fn models_in_virtual_time_share_the_clock_of_their_stack() {
    let stack = Stack::new();
    let disk = open(&stack, "disk:sata-7200?capacity=64GiB&time=virtual");
    write(&*disk.device, 1_000_000, 1);
    let after_disk = stack.clock().now();
    assert!(after_disk.0 > 1_000_000, "a disk takes more than a millisecond: {after_disk:?}");
    let ssd = open(&stack, "ssd:micron-7450?capacity=2GiB&time=virtual");
    write(&*ssd.device, 0, 1);
    assert!(stack.clock().now() > after_disk);
}

#[test]
fn the_image_of_a_disk_may_begin_as_an_empty_file() {
    let scratch = Scratch::new();
    fs::write(scratch.path("disk"), b"").unwrap();
    let text = scratch.spec("disk:sata-7200?capacity=64GiB&time=none&image=@/disk");
    write(&*open(&Stack::new(), &text).device, 5, 7);
    assert_eq!(read(&*open(&Stack::new(), &text).device, 5), 7);
}

#[test]
fn assumption_about_spare_media_is_what_the_drive_has() {
    let stack = Stack::new();
    for (keys, has, has_not) in [
        ("", "14.5 %", "as given"),
        ("&op=0.3", "29.9 % with all reserves, as given", "(8 TiB, 14.5 %"),
    ] {
        let opened = open(&stack, &format!("ssd:micron-7450?capacity=256MiB{keys}"));
        let remarks = opened.remarks().concat();
        assert!(remarks.contains(has) && !remarks.contains(has_not), "{keys}: {remarks}");
    }
}

#[test]
fn stack_lists_drives_and_caches_while_they_are_open() {
    let stack = Stack::new();
    let first = open(&stack, &format!("{SMALL}&drive=a&namespaces=2"));
    let second = open(&stack, "ssd:?drive=a&nsid=2&time=none");
    let scratch = Scratch::new();
    let traced = format!("traced:(cache:(mem:64MiB)?flash=({SMALL}))?to=@/trace");
    let cached = open(&stack, &scratch.spec(&traced));
    let names: Vec<String> = stack.drives().iter().map(|drive| drive.name().to_owned()).collect();
    assert_eq!(names, ["micron-7450:a", "micron-7450"]);
    assert_eq!(stack.caches().len(), 1);
    write(&*cached.device, 3, 42);
    assert_eq!(stack.caches()[0].figures().host_written_bytes, 4096);
    drop((first, second, cached));
    // A drive in memory that has a name lives as long as the stack.
    assert_eq!((stack.drives().len(), stack.caches().len()), (1, 0));
}
