//! `esker cache` as a user types it.

mod common;

use common::{Scratch, run, text};

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
