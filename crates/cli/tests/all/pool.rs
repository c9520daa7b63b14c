//! `esker pool` and `esker volume` at the prompt, on a pool that each command opens.

use std::fs::File;

use crate::common::{Ran, Scratch, run, text};
use serde_json::Value;

const SIZE: u64 = 16 << 20;

/// A pool `tank` of three drives in files.
struct Tank(Scratch);

impl Tank {
    fn drives(scratch: &Scratch, count: usize) -> Vec<String> {
        let make = |number| {
            let path = scratch.path(&format!("d{number}"));
            if !path.exists() {
                File::create(&path).unwrap().set_len(SIZE).unwrap();
            }
            text(&path)
        };
        (0..count).map(make).collect()
    }

    fn new() -> Tank {
        let scratch = Scratch::new();
        let drives = Tank::drives(&scratch, 3);
        create(&drives, &[]).succeeds();
        Tank(scratch)
    }

    fn run(&self, args: &str) -> Ran {
        let mut all: Vec<String> = args.split(' ').map(str::to_owned).collect();
        all.push("--drives".into());
        all.extend(Tank::drives(&self.0, 3));
        run(all)
    }

    fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.run(&format!("{args} --json")).succeeds().out()).unwrap()
    }
}

fn create(drives: &[String], more: &[&str]) -> Ran {
    let mut args = vec!["pool", "create", "tank", "--log", "1MiB"];
    if !more.contains(&"--chunk") {
        args.extend(["--chunk", "256KiB"]);
    }
    args.extend(drives.iter().map(String::as_str));
    args.extend(more);
    run(args)
}

#[test]
fn pool_is_made_examined_and_tells_how_it_is() {
    let tank = Tank::new();
    let drives = Tank::drives(&tank.0, 3);
    let mut args = vec!["pool".to_owned(), "examine".to_owned()];
    args.extend(drives.clone());
    let labels = run(args.clone()).succeeds().out();
    assert!(labels.contains("d2") && labels.contains("tank"), "{labels}");
    args.push("--json".to_owned());
    let labels: Value = serde_json::from_str(&run(args).succeeds().out()).unwrap();
    let labels = &labels["labels"];
    assert_eq!((&labels[1]["pool"], &labels[1]["is_clean"]), (&"tank".into(), &true.into()));
    let status = tank.run("pool status tank").succeeds().out();
    for words in ["tank: online", "1 parity", "nothing is wrong", "d0", "raw 48"] {
        assert!(status.contains(words), "no '{words}' in:\n{status}");
    }
    let status = tank.json("pool status tank");
    let space = &status["space"];
    let sum = ["free", "waiting", "parity", "garbage", "live", "metadata"];
    let sum: u64 = sum.iter().map(|part| space[part].as_u64().unwrap()).sum();
    assert_eq!(space["raw"].as_u64(), Some(sum));
    assert_eq!(status["incarnation"], 2, "each command has opened it");
}

#[test]
fn volumes_are_made_changed_kept_and_restored() {
    let tank = Tank::new();
    let made = tank.run("volume create tank/db --size 8MiB --iops 100").succeeds().out();
    assert!(made.contains("db: 8.00 MiB, compressed") && made.contains("100 operations"), "{made}");
    tank.run("volume create tank/db --size 8MiB --iops 100").succeeds();
    tank.run("volume create tank/db --size 9MiB").fails(73, &["volume 'db' exists already"]);
    tank.run("volume snapshot tank/db@monday").succeeds();
    tank.run("volume clone tank/db@monday test").succeeds();
    tank.run("volume resize tank/db --size 4MiB").fails(64, &["would be lost", "shrink"]);
    tank.run("volume resize tank/db --size 12MiB").succeeds();
    tank.run("volume rollback tank/db@monday").succeeds();
    assert_eq!(tank.json("volume show tank/db")["bytes"], 8 << 20);
    let listed = tank.run("volume list tank").succeeds().out();
    assert!(listed.contains("db") && listed.contains("test"), "{listed}");
    let space = tank.json("volume du tank/db");
    assert_eq!((&space["provisioned"], &space["used"]), (&(8 << 20).into(), &0.into()));
    tank.run("volume delete tank/db@monday").succeeds();
    tank.run("volume delete tank/test --keep 0").succeeds();
    tank.run("volume restore tank/test").fails(66, &["no volume in the trash 'test'"]);
    tank.run("volume delete tank/db").succeeds();
    tank.run("volume show tank/db").fails(66, &["no volume 'db'"]);
    assert!(tank.json("volume list tank")["volumes"][0]["trashed_until"].is_u64());
    tank.run("volume restore tank/db").succeeds();
    assert_eq!(tank.json("volume show tank/db")["snapshots"], Value::Array(Vec::new()));
}

#[test]
fn rehearsal_says_what_would_be_and_changes_nothing() {
    let tank = Tank::new();
    tank.run("volume create tank/db --size 8MiB").succeeds();
    tank.run("volume snapshot tank/db@monday").succeeds();
    let before = tank.json("volume list tank");
    for args in [
        "volume create tank/new --size 1GiB",
        "volume resize tank/db --size 4MiB --shrink",
        "volume snapshot tank/db@tuesday",
        "volume clone tank/db@monday new",
        "volume rollback tank/db@monday",
        "volume delete tank/db",
        "volume delete tank/db@monday",
    ] {
        let out = tank.run(&format!("{args} --dry-run")).succeeds().out();
        assert!(out.starts_with("would ") && out.ends_with("nothing was changed\n"), "{out}");
    }
    assert_eq!(tank.json("volume list tank"), before);
    tank.run("volume create tank/db --size 8MiB --dry-run").fails(73, &["exists already"]);
    tank.run("volume rollback tank/db@friday --dry-run").fails(66, &["no snapshot 'friday'"]);
    tank.run("volume restore tank/db --dry-run").fails(73, &["exists already"]);
    let scratch = Scratch::new();
    let drives = Tank::drives(&scratch, 3);
    create(&drives, &["--dry-run"]).succeeds();
    run(["pool", "examine", &drives[0]]).fails(66, &["no label of a pool"]);
}

#[test]
fn pool_that_cannot_be_is_refused() {
    let scratch = Scratch::new();
    let drives = Tank::drives(&scratch, 3);
    create(&drives, &["--parity", "3"]).fails(64, &["give 0 to 2"]);
    create(&drives[..1], &[]).fails(64, &["made of 2 to", "not 1"]);
    create(&drives, &["--width", "4"]).fails(64, &["need as many drives"]);
    create(&drives, &["--chunk", "8MiB"]).fails(64, &["smaller chunks"]);
    create(&drives, &["--chunk", "0"]).fails(64, &["too few"]);
    create(&["mem:1GiB".to_owned(), drives[0].clone()], &[]).fails(64, &["is to be kept"]);
    create(&[drives[0].clone(), drives[0].clone()], &[]).fails(77, &["d0"]);
    create(&["/dev/no-such-drive".to_owned(), drives[0].clone()], &[]).fails(66, &["/dev/no-such"]);
    run(["pool", "create", "a/b", &drives[0]]).fails(64, &["'a/b' is no name"]);
    std::os::unix::fs::FileExt::write_all_at(
        &File::options().write(true).open(&drives[1]).unwrap(),
        &[7; 4096],
        0,
    )
    .unwrap();
    create(&drives, &[]).fails(73, &["d1", "--overwrite"]);
    run(["pool", "examine", &drives[0]]).fails(66, &["no label of a pool"]);
    create(&drives, &["--overwrite"]).succeeds();
    create(&drives, &[]).fails(73, &["belongs to pool 'tank'", "--overwrite"]);
}

#[test]
fn drives_may_differ_in_size_and_in_lba_size() {
    let scratch = Scratch::new();
    let drives: Vec<String> = [(16, 512), (24, 4096), (16, 4096)]
        .iter()
        .map(|(mib, lba)| {
            let path = text(&scratch.path(&format!("{mib}-{lba}")));
            format!("file:{path}?capacity={mib}MiB&lba={lba}")
        })
        .collect();
    create(&drives, &[]).succeeds();
    let mut args = vec!["pool", "status", "tank", "--drives"];
    args.extend(drives.iter().map(String::as_str));
    let status = run(args).succeeds().out();
    assert!(status.contains("raw 56"), "{status}");
}

#[test]
fn wrong_requests_are_answered() {
    let tank = Tank::new();
    tank.run("volume create tank/db --size 0").fails(64, &["too few"]);
    tank.run("volume create tank/db --size 1000").fails(64, &["blocks of 4096 bytes"]);
    tank.run("volume create db --size 1MiB").fails(64, &["write for example tank/db"]);
    tank.run("volume create tank/db@x --size 1MiB").fails(64, &["where a volume is meant"]);
    tank.run("volume snapshot tank/db").fails(64, &["tank/db@monday"]);
    tank.run("volume snapshot tank/db@x").fails(66, &["no volume 'db'"]);
    tank.run("volume list other").fails(64, &["belongs to pool 'tank'"]);
    let drives = Tank::drives(&tank.0, 3);
    let missing = text(&tank.0.path("gone"));
    run(["pool", "status", "tank", "--drives", &drives[0], &missing])
        .fails(66, &["gone: there is no such file", "left out with degraded=yes"]);
    run(["pool", "status", "tank", "--drives", &drives[0]]).fails(66, &["1 of 3 drives are there"]);
    assert!(tank.run("pool status tank").succeeds().out().contains("tank: online"));
}

#[test]
fn forgotten_drive_is_named_and_waited_for_when_told_to() {
    let tank = Tank::new();
    tank.run("volume create tank/db --size 1MiB").succeeds();
    let drives = Tank::drives(&tank.0, 3);
    let two = |more: &[&str]| {
        let mut args = vec!["pool", "status", "tank"];
        args.extend(more);
        args.extend(["--drives", &drives[0], &drives[2]]);
        run(args)
    };
    two(&[]).fails(66, &["missing: drive 1 (", "d1", "--degraded"]);
    let status = two(&["--degraded"]).succeeds().out();
    assert!(status.contains("tank: degraded") && status.contains("DRIVE_MISSING"), "{status}");
    // It is known from then on.
    assert!(two(&[]).succeeds().out().contains("missing"));
    let status = tank.run("pool status tank").succeeds().out();
    assert!(
        status.contains("when it was opened: drive 1 (") && status.contains("there again"),
        "{status}"
    );
    tank.run("pool scrub tank").succeeds();
    assert!(tank.run("pool status tank").succeeds().out().contains("tank: online"));
    // A flag that says how to open a pool needs one that says which.
    run(["pool", "status", "tank", "--degraded"]).fails(64, &["--drives"]);
}

#[test]
fn half_of_a_pool_and_a_lost_buffer_need_their_flags() {
    let scratch = Scratch::new();
    let drives = Tank::drives(&scratch, 3);
    create(&drives[..2], &["--buffer", &drives[2]]).succeeds();
    let status = |more: &[&str]| run([&["pool", "status", "tank"], more].concat());
    let buffer = ["--buffer", &drives[2]];
    let half = [&["--drives", &drives[0]][..], &buffer].concat();
    status(&half).fails(66, &["more than half are needed", "--accept-half"]);
    status(&[&half[..], &["--accept-half"]].concat()).succeeds();
    let whole = ["--drives", &drives[0]];
    status(&whole).fails(66, &["missing: drive 2 (", "--degraded"]);
    // It was closed, and nothing is lost with the buffer.
    status(&[&whole[..], &["--lose-buffer"]].concat()).succeeds();
}

#[test]
fn a_pool_that_cannot_be_made_leaves_no_files() {
    let scratch = Scratch::new();
    let theirs = scratch.path("theirs");
    std::fs::write(&theirs, vec![7; usize::try_from(SIZE).unwrap()]).unwrap();
    let new = |name: &str| format!("file:{}?capacity=16MiB", text(&scratch.path(name)));
    let drives = [new("a"), new("b"), text(&theirs)];
    create(&drives, &[]).fails(73, &["theirs"]);
    let mut left: Vec<_> =
        std::fs::read_dir(scratch.path("theirs").parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left.pop().unwrap().unwrap().file_name(), "theirs");
}

#[test]
fn sizes_beyond_the_pool_are_told() {
    let tank = Tank::new();
    tank.run("volume create tank/db --size 4MiB").succeeds();
    let list = tank.run("volume list tank").succeeds().out();
    assert!(list.contains("volumes have 4.00 MiB together, of "), "{list}");
    tank.run("volume create tank/log --size 1TiB").succeeds();
    for command in ["volume list tank", "pool status tank"] {
        let shown = tank.run(command).succeeds().out();
        assert!(shown.contains("volumes have 1.00 TiB together, "), "{shown}");
        assert!(shown.contains(" times the ") && shown.contains("overcommitted"), "{shown}");
    }
}

#[test]
fn another_kind_of_header_is_said_in_words() {
    let tank = Tank::new();
    let drive = Tank::drives(&tank.0, 1).remove(0);
    run(["cache", "info", &drive]).fails(66, &["no cache on it, but a drive of an Esker pool"]);
    run(["ssd", "info", &drive]).fails(65, &["no image of a drive, but a drive of an Esker pool"]);
    let (disk, flash) = (text(&tank.0.path("disk")), text(&tank.0.path("flash")));
    for path in [&disk, &flash] {
        File::create(path).unwrap().set_len(SIZE).unwrap();
    }
    run(["cache", "create", &disk, &flash]).succeeds();
    run(["pool", "examine", &flash]).fails(66, &["it holds a cache of Esker's"]);
}
