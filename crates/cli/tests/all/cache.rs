//! `esker cache` as a user types it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use crate::common::{Scratch, esker, run, text};
use rustix::process::{Pid, Signal, kill_process};

/// A target that serves a device.
struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Served {
    fn start(device: &str) -> Served {
        let mut child = esker()
            .args(["target", "serve", "--listen", "127.0.0.1:0", "--allow-any", "--for", "60"])
            .args(["--subsystem", "nqn.2026-01.io.example:disk", "--device", device])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        assert!(out.by_ref().lines().any(|line| line.unwrap().contains("listening on")));
        Served { child, out }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it by a signal, as it should end.
    fn end(mut self) {
        self.signal(Signal::TERM);
        self.out.by_ref().lines().for_each(drop);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_cache_is_made_shown_changed_resized_and_detached() {
    let scratch = Scratch::new();
    let disk = format!("file:{}?capacity=64MiB", text(&scratch.path("disk.img")));
    let flash = format!("file:{}?capacity=16MiB", text(&scratch.path("flash.img")));
    let create = ["cache", "create", &disk, &flash, "--mode", "wb", "--sets", "4MiB"];
    let made = run(create).succeeds().out();
    for word in ["write-back, attached", "64.00 MiB", "3.94 MiB, runs of 256.00 KiB", "cache:("] {
        assert!(made.contains(word), "no '{word}' in:\n{made}");
    }
    run(create).fails(73, &["there is a cache on it", "detach"]);
    let device = made.split('\'').nth(1).expect("a device in quotes").to_owned();
    let db = text(&scratch.path("db"));
    let medium = ["kv", "create", &db, "--capacity", &device];
    run(medium).succeeds();
    run(["kv", "put", &db, "default", "a", "b"]).succeeds();
    assert_eq!(run(["kv", "get", &db, "default", "a"]).succeeds().out().trim_end(), "b");
    let info = run(["cache", "info", &flash, "--json"]).succeeds().out();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!((&info["mode"], &info["is_detached"]), (&"write-back".into(), &false.into()));
    run(["cache", "mode", &flash, "sideways"]).fails(64, &["is no mode", "wt"]);
    run(["cache", "mode", &flash, "wt"]).succeeds();
    let resized = run(["cache", "resize", &disk, &flash, "--size", "8MiB"]).succeeds().out();
    assert!(resized.contains("write-through") && resized.contains("8.00 MiB"), "{resized}");
    run(["cache", "resize", &disk, &flash, "--size", "2MiB"]).fails(64, &["make it anew (--anew)"]);
    let anew = run(["cache", "resize", &disk, &flash, "--size", "4MiB", "--anew"]).succeeds().out();
    assert!(anew.contains("write-through") && anew.contains("4.00 MiB"), "{anew}");
    assert_eq!(run(["kv", "get", &db, "default", "a"]).succeeds().out().trim_end(), "b");
    let detached = run(["cache", "detach", &disk, &flash]).succeeds().out();
    assert!(detached.contains("written back"), "{detached}");
    run(["cache", "detach", &disk, &flash]).fails(75, &["was detached"]);
    run(["cache", "info", &disk]).fails(66, &["there is no cache on it"]);
}

#[test]
fn plain_files_have_the_size_they_have() {
    let scratch = Scratch::new();
    let (disk, flash) = (text(&scratch.path("disk.img")), text(&scratch.path("flash.img")));
    let create = ["cache", "create", &disk, &flash, "--mode", "wb", "--sets", "1MiB"];
    run(create).fails(66, &["disk.img", "name a file that exists, or its size"]);
    // Too small for a cache, and for its first two blocks.
    for (path, bytes) in [(&disk, 8 << 20), (&flash, 4096)] {
        std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
    }
    run(create).fails(64, &["too few for a cache; it needs 1 MiB at least"]);
    run(["cache", "info", &flash]).fails(66, &["there is no cache on it"]);
    let sizes = [(&disk, 8 << 20), (&flash, 4 << 20)];
    for (path, bytes) in sizes {
        std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
    }
    let made = run(create).succeeds().out();
    assert!(made.contains("origin      8.00 MiB") && made.contains("4.00 MiB"), "{made}");
    let resized = run(["cache", "resize", &disk, &flash]).succeeds().out();
    assert!(resized.contains("4.00 MiB"), "{resized}");
    for (path, bytes) in sizes {
        assert!(std::fs::metadata(path).unwrap().len() <= bytes);
    }
}

/// Two disks of one size, each with a flash device of one size, and a dirty block in each cache.
fn two_pairs(scratch: &Scratch) -> [(String, String); 2] {
    ["a", "b"].map(|name| {
        let (disk, flash) =
            (scratch.path(&format!("{name}.img")), scratch.path(&format!("{name}.fl")));
        let content: Vec<u8> = name.bytes().cycle().take(16 << 20).collect();
        std::fs::write(&disk, content).unwrap();
        std::fs::File::create(&flash).unwrap().set_len(4 << 20).unwrap();
        let (disk, flash) = (text(&disk), text(&flash));
        run(["cache", "create", &disk, &flash, "--mode", "wb", "--sets", "1MiB"]).succeeds();
        let device = esker_stack::Stack::new();
        let spec = format!(
            "cache:(file:{disk}?capacity=16MiB)?flash=(file:{flash}?capacity=4MiB)&bypass=off"
        );
        let device =
            device.open(&spec.parse().unwrap(), esker_device::Create::Never).unwrap().device;
        let mut port = esker_device::Port::open(&*device, 1).unwrap();
        let block = esker_base::AlignedBuf::padded(&[name.as_bytes()[0] + 1; 4096], 4096);
        port.write(esker_base::Lba(700), block, None).unwrap();
        port.flush().unwrap();
        (disk, flash)
    })
}

#[test]
fn swapped_flash_devices_are_refused_until_one_is_accepted() {
    let scratch = Scratch::new();
    let [(disk_a, flash_a), (disk_b, flash_b)] = two_pairs(&scratch);
    let info = run(["cache", "info", &flash_a]).succeeds().out();
    assert!(info.contains("16.00 MiB: ") && info.contains("inode="), "{info}");
    let read = |path: &str| std::fs::read(path).unwrap();
    let before = [&disk_a, &flash_a, &disk_b, &flash_b].map(|path| read(path));
    let words =
        ["is not the origin of the cache on", "inode=", "nothing was changed", "cache accept"];
    let swapped = format!("cache:({disk_a})?flash=({flash_b})");
    run(["cache", "detach", &disk_a, &flash_b]).fails(77, &words);
    run(["cache", "resize", &disk_a, &flash_b]).fails(77, &words);
    run(["cache", "resize", &disk_a, &flash_b, "--anew"]).fails(77, &words);
    run(["kv", "create", &text(&scratch.path("db")), "--capacity", &swapped]).fails(77, &words);
    // The command first announces its changes, and does nothing before the user has chosen.
    let asked = run(["cache", "accept", &disk_a, &flash_b]);
    let said = asked.out();
    for words in
        ["clean blocks: ", "with --dirty keep: 4.00 KiB are kept", "with --dirty drop: 4.00"]
    {
        assert!(said.contains(words), "no '{words}' in: {said}");
    }
    asked.fails(64, &["nothing was changed", "--dirty keep or --dirty drop"]);
    run(["cache", "accept", &disk_a, &flash_b, "--dirty", "both"]).fails(64, &["keep or drop"]);
    assert!(before == [&disk_a, &flash_a, &disk_b, &flash_b].map(|path| read(path)), "changed");

    let dropped = run(["cache", "accept", &disk_a, &flash_b, "--dirty", "drop"]).succeeds().out();
    assert!(
        dropped.contains("4.00 KiB are dropped, and lost") && dropped.contains("done"),
        "{dropped}"
    );
    run(["cache", "detach", &disk_a, &flash_b]).succeeds();
    assert!(read(&disk_a) == before[0], "another disk's blocks went over it");
    let kept = run(["cache", "accept", &disk_b, &flash_a, "--dirty", "keep"]).succeeds().out();
    assert!(kept.contains("4.00 KiB are kept, and go over what"), "{kept}");
    let again = run(["cache", "accept", &disk_b, &flash_a]).succeeds().out();
    assert!(again.contains("there is nothing to accept"), "{again}");
    run(["cache", "detach", &disk_b, &flash_a]).succeeds();
    assert_eq!(read(&disk_b)[700 * 4096..701 * 4096], [b'b'; 4096], "block 700 is a's dirty one");
}

#[test]
fn disk_that_was_written_without_its_cache_is_refused() {
    let scratch = Scratch::new();
    let [(disk, flash), _] = two_pairs(&scratch);
    // As a mount does, and an administrator who restores an old copy.
    let changed = |at: u64| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&disk).unwrap();
        file.write_all_at(b"changed", at).unwrap();
    };
    changed(1024);
    let words =
        ["was written without its cache", "1 of 6", "first one at byte 0", "4.00 KiB are on"];
    run(["cache", "detach", &disk, &flash]).fails(77, &words);
    let copy = text(&scratch.path("copy.img"));
    std::fs::copy(&disk, &copy).unwrap();
    run(["cache", "detach", &copy, &flash]).fails(77, &["is not the origin", "1 of 6"]);
    run(["cache", "accept", &disk, &flash, "--dirty", "keep"]).succeeds();
    run(["cache", "detach", &disk, &flash]).succeeds();
}

#[test]
fn cache_in_use_is_shown_changed_and_flushed_through_its_socket() {
    let scratch = Scratch::new();
    let disk = format!("file:{}?capacity=64MiB", text(&scratch.path("disk.img")));
    let flash = format!("file:{}?capacity=16MiB", text(&scratch.path("flash.img")));
    let path = text(&scratch.path("flash.img"));
    run(["cache", "create", &disk, &flash, "--mode", "wb", "--sets", "4MiB"]).succeeds();
    run(["cache", "set", &path, "--dirty", "50"]).fails(66, &["no process has this cache open"]);
    run(["cache", "flush", &path]).fails(66, &["esker cache detach ORIGIN FLASH"]);
    let disk = text(&scratch.path("disk.img"));
    let device = format!("cache:(file:{disk})?flash=(file:{path})&dirty-age=off");
    let served = Served::start(&device);
    let info = run(["cache", "info", &path, "--json"]).succeeds().out();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!((&info["mode"], &info["in_use"]["dirty_age_ms"]), (&"write-back".into(), &0.into()));
    let shown = run(["cache", "info", &path]).succeeds().out();
    assert!(
        shown.contains("at most 90 % of a set dirty, for any time; named within 10s"),
        "{shown}"
    );
    let set = run(["cache", "set", &path, "--dirty", "50", "--dirty-age", "5"]).succeeds().out();
    assert!(set.contains("at most 50 % of a set dirty, for 5s"), "{set}");
    run(["cache", "set", &path, "--dirty", "0"]).fails(64, &["0"]);
    run(["cache", "flush", &path]).succeeds();
    run(["cache", "mode", &path, "wt"]).succeeds();
    assert!(run(["cache", "info", &path]).succeeds().out().contains("write-through"));
    served.end();
    run(["cache", "set", &path, "--dirty", "50"]).fails(66, &["no process has this cache open"]);
    assert!(run(["cache", "info", &path]).succeeds().out().contains("write-through"));
}

#[test]
fn stopped_process_of_a_cache_is_not_waited_for_without_a_word() {
    let scratch = Scratch::new();
    let disk = format!("file:{}?capacity=64MiB", text(&scratch.path("disk.img")));
    let flash = format!("file:{}?capacity=16MiB", text(&scratch.path("flash.img")));
    run(["cache", "create", &disk, &flash, "--sets", "4MiB"]).succeeds();
    let path = text(&scratch.path("flash.img"));
    let device = format!("cache:(file:{})?flash=(file:{path})", text(&scratch.path("disk.img")));
    let served = Served::start(&device);
    served.signal(Signal::STOP);
    let words = ["has not answered for 1s", "is it stopped?"];
    run(["--timeout", "1", "cache", "flush", &path]).fails(75, &words);
    served.signal(Signal::CONT);
    run(["cache", "flush", &path]).succeeds();
}

#[test]
fn wiped_flash_of_a_cache_is_told_with_what_may_be_lost_and_how_to_use_the_origin() {
    let scratch = Scratch::new();
    let disk = format!("file:{}?capacity=64MiB", text(&scratch.path("disk.img")));
    let flash = format!("file:{}?capacity=16MiB", text(&scratch.path("flash.img")));
    run(["cache", "create", &disk, &flash, "--mode", "wb", "--sets", "4MiB"]).succeeds();
    let (disk, flash) = (text(&scratch.path("disk.img")), text(&scratch.path("flash.img")));
    std::fs::write(&flash, vec![0; 16 << 20]).unwrap();
    let device = format!("cache:(file:{disk})?flash=(file:{flash})");
    let words = ["was not written back is lost", "esker attach", "esker cache create"];
    run(["bench", "device", &device]).fails(66, &words);
    run(["cache", "detach", &disk, &flash]).fails(66, &["there is no cache on it"]);
    run(["cache", "create", &disk, &flash, "--sets", "4MiB"]).succeeds();
    let said = run(["cache", "detach", &disk, &flash, "--dirty", "drop"]).succeeds().out();
    assert!(said.contains("nothing was dirty") && !said.contains("0 B"), "{said}");
}

/// Overwrites a file at an offset.
fn overwrite(path: &str, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

#[test]
fn dirty_blocks_are_dropped_only_by_their_name_and_only_with_their_origin() {
    let scratch = Scratch::new();
    let [(disk_a, flash_a), (disk_b, flash_b)] = two_pairs(&scratch);
    let read = |path: &str| std::fs::read(path).unwrap();
    let before = [&disk_a, &flash_a, &disk_b, &flash_b].map(|path| read(path));
    run(["cache", "detach", &disk_a, &flash_a, "--dirty"]).fails(64, &["drop"]);
    run(["cache", "detach", &disk_a, &flash_a, "--dirty", "keep"]).fails(64, &["drop"]);
    let drop = |disk: &str, flash: &str| run(["cache", "detach", disk, flash, "--dirty", "drop"]);
    drop(&disk_a, &flash_b).fails(77, &["is not the origin of the cache on"]);
    drop(&text(&scratch.path("none")), &flash_a).fails(66, &["none"]);
    assert!(before == [&disk_a, &flash_a, &disk_b, &flash_b].map(|path| read(path)), "changed");

    // An origin that was used alone meanwhile.
    overwrite(&disk_a, 0, b"changed");
    let with_change = read(&disk_a);
    run(["cache", "detach", &disk_a, &flash_a]).fails(77, &["was written without its cache"]);
    let said = drop(&disk_a, &flash_a).succeeds().out();
    for words in ["4.00 KiB dropped, and lost", "is detached", "has the rest", "file system"] {
        assert!(said.contains(words), "no '{words}' in: {said}");
    }
    assert!(read(&disk_a) == with_change, "the origin was written");
    drop(&disk_a, &flash_a).fails(75, &["was detached"]);
    run(["bench", "device", &format!("cache:({disk_a})?flash=({flash_a})")])
        .fails(75, &["was detached"]);
}

#[test]
fn origin_is_let_go_of_when_its_flash_device_is_damaged_wiped_or_gone() {
    let scratch = Scratch::new();
    let [(disk, flash), (other, _)] = two_pairs(&scratch);
    let before = std::fs::read(&disk).unwrap();
    let drop = |disk: &str| run(["cache", "detach", disk, &flash, "--dirty", "drop"]);
    let says = |words: &[&str]| {
        let said = drop(&disk).succeeds().out();
        for words in words.iter().chain(&["has the rest, and stays as it is"]) {
            assert!(said.contains(words), "no '{words}' in: {said}");
        }
        assert!(std::fs::read(&disk).unwrap() == before, "the origin was written");
    };
    // The first record of its journal, of which one copy makes up for the other.
    let content = std::fs::read(&flash).unwrap();
    let first = content.windows(4).position(|part| part == b"EKCJ").unwrap();
    let record = &content[first..first + 64];
    let copies = content.windows(64).enumerate().filter(|(_, part)| *part == record);
    let copies: Vec<u64> = copies.map(|(at, _)| u64::try_from(at).unwrap()).collect();
    assert_eq!(copies.len(), 2);
    copies.into_iter().for_each(|at| overwrite(&flash, at, &[0x5a; 512]));
    run(["cache", "detach", &disk, &flash]).fails(65, &["damaged", "--dirty drop"]);
    drop(&other).fails(64, &["is not the origin of the cache on", "inode="]);
    says(&["its journal is damaged", "writes of the last 30 s", "is detached"]);
    drop(&disk).fails(75, &["was detached"]);

    std::fs::write(&flash, vec![0; 4 << 20]).unwrap();
    says(&["there is no cache on it", "writes of the last 30 s"]);

    std::fs::remove_file(&flash).unwrap();
    let device = format!("cache:({disk})?flash=({flash})");
    run(["bench", "device", &device]).fails(66, &["is not there", "--dirty drop"]);
    says(&["it is not there; check the path", "writes of the last 30 s", "If it comes back"]);
    assert!(!std::path::Path::new(&flash).exists());
}

#[test]
fn a_cache_that_cannot_be_made_leaves_no_files() {
    let scratch = Scratch::new();
    let [disk, flash] = ["disk", "flash"].map(|name| scratch.path(name));
    let of = |path: &std::path::Path| format!("file:{}?capacity=16MiB", text(path));
    run(["cache", "create", &of(&disk), &of(&flash), "--sets", "3KiB"]).fails(64, &[]);
    run(["cache", "create", &of(&disk), &of(&flash), "--size", "1TiB"]).fails(64, &[]);
    assert!(!disk.exists() && !flash.exists());
    // A file that was there stays.
    std::fs::write(&disk, vec![1; 16 << 20]).unwrap();
    run(["cache", "create", &text(&disk), &of(&flash), "--size", "1TiB"]).fails(64, &[]);
    assert!(disk.exists() && !flash.exists());
}
