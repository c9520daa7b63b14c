//! `esker ssd`, and databases on models of drives, as a user types it.

use std::fs;

use crate::common::{Scratch, esker, ran, run, text};

const SMALL: &str = "ssd:micron-7450?capacity=2GiB&time=none";

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run(args).succeeds().out()).unwrap()
}

#[test]
fn profiles_say_what_is_known_and_what_is_assumed() {
    let all = run(["ssd", "profiles"]).succeeds().out();
    for word in ["ssd:micron-5210", "disk:sas-10k", "published", "sources", "assumed", "MB/s"] {
        assert!(all.contains(word), "no '{word}' in:\n{all}");
    }
    let widest = all.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest} columns:\n{all}");
    let one = &json(&["ssd", "profiles", "micron-9300", "--json"])["profiles"];
    assert_eq!(one[0]["name"], "micron-9300");
    assert!(!one[0]["assumptions"].as_array().unwrap().is_empty());
    run(["ssd", "profiles", "floppy"]).fails(66, &["no profile 'floppy'", "micron-7450"]);
}

#[test]
fn a_drive_is_created_shown_and_divided() {
    let scratch = Scratch::new();
    let image = text(&scratch.path("d.img"));
    let create = ["ssd", "create", "micron-7450?op=0.2", &image, "--capacity", "2GiB"];
    let created = run(create.iter().chain(&["--namespaces", "2", "--fdp", "on"])).succeeds().out();
    for word in ["2.00 GiB of Micron 7450", "namespace 2: ssd:?image=", "&nsid=2", "assumed: "] {
        assert!(created.contains(word), "no '{word}' in:\n{created}");
    }
    run(create).fails(73, &["something already", "another path"]);
    let info = run(["ssd", "info", &image]).succeeds().out();
    for word in ["WAF", "20.0 % over-provisioning", "4,5,6,7", "erasures", "erased and free"] {
        assert!(info.contains(word), "no '{word}' in:\n{info}");
    }
    let widest = info.lines().skip(1).map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest} columns:\n{info}");
    run(["ssd", "namespace", "create", &image]).fails(73, &["no room is left"]);
    run(["ssd", "namespace", "delete", &image, "3"]).fails(64, &["no namespace 3"]);
    run(["ssd", "namespace", "delete", &image, "1"]).succeeds();
    let made = ["ssd", "namespace", "create", &image, "--size", "1GiB", "--handles"];
    run(made.iter().chain(&["9"])).fails(64, &["no reclaim unit handle 9"]);
    run(made.iter().chain(&["3,1"])).succeeds();
    let info = json(&["ssd", "info", &image, "--json"]);
    assert_eq!(info["profile"], "micron-7450");
    let handles = info["namespaces"].as_array().unwrap().iter().find(|one| one["nsid"] == 1);
    assert_eq!(handles.unwrap()["handles"], serde_json::json!([3, 1]));
    assert_eq!(info["free_bytes"], 0);
}

#[test]
fn drives_that_cannot_be_are_refused_and_leave_no_file() {
    let scratch = Scratch::new();
    let image = text(&scratch.path("d.img"));
    let refused = |drive: &str, more: &[&str], words: &[&str]| {
        run(["ssd", "create", drive, &image].iter().chain(more)).fails(64, words);
        assert!(!scratch.path("d.img").exists());
    };
    refused("floppy", &["--capacity", "1GiB"], &["no solid-state drive 'floppy'"]);
    refused("sas-10k", &["--capacity", "1GiB"], &["disk:sas-10k"]);
    refused("micron-7450", &[], &["needs a capacity"]);
    refused("micron-7450", &["--capacity", "1parsec"], &["unknown unit"]);
    refused("micron-7450", &["--capacity", "1KiB"], &["ask for at least"]);
    refused("micron-7450", &["--capacity", "9000TiB"], &["ask for at most"]);
    refused("micron-7450?capacity=2GiB", &["--capacity", "2GiB"], &["said twice"]);
    refused("micron-7450", &["--capacity", "2GiB", "--fdp", "7"], &["no configuration 7"]);
    refused("micron-7450", &["--capacity", "2GiB", "--handles", "0,1"], &["data placement"]);
    refused("micron-7450?time=10x", &["--capacity", "2GiB"], &["for who opens it"]);
    refused("micron-7450?speed=1", &["--capacity", "2GiB"], &["no key 'speed'", "cleaning="]);
    let letter = text(&scratch.path("letter"));
    fs::write(&letter, "dear reader").unwrap();
    run(["ssd", "info", &letter]).fails(65, &["no image of a drive"]);
    run(["ssd", "info", &image]).fails(66, &["no image here", "esker ssd create"]);
    run(["ssd", "create", "micron-7450", &letter, "--capacity", "2GiB"])
        .fails(73, &["something already"]);
    assert_eq!(fs::read(&letter).unwrap(), b"dear reader");
}

#[test]
fn a_database_finds_its_drive_again() {
    let scratch = Scratch::new();
    let (db, image) = (text(&scratch.path("db")), text(&scratch.path("d.img")));
    let drive = format!("{SMALL}&image={image}&namespaces=2&fdp=on");
    let (staging, capacity) = (format!("--staging={drive}"), format!("{drive}&nsid=2"));
    let created = run(["kv", "create", &db, &staging, "--capacity", &capacity]).succeeds().out();
    assert!(created.contains("a model of: Micron 7450") && created.contains("assumed: "));
    run(["kv", "put", &db, "default", "k", "v"]).succeeds();
    assert_eq!(run(["kv", "get", &db, "default", "k"]).succeeds().stdout, b"v");
    run(["kv", "check", &db]).succeeds();
    let info = run(["kv", "info", &db]).succeeds().out();
    for word in ["staging and capacity drive: ", "write amplification", "note: assumed: "] {
        assert!(info.contains(word), "no '{word}' in:\n{info}");
    }
    assert!(
        info.contains(&format!(
            "capacity class on ssd:micron-7450?capacity=2GiB&time=none&image={image}&nsid=2"
        )),
        "{info}"
    );
    let info = json(&["kv", "info", &db, "--json"]);
    assert_eq!(info["devices"][0]["model_of"], "Micron 7450 PRO, 7.68 TB: TLC, NVMe, PCIe 4.0 x4");

    let other = text(&scratch.path("other"));
    run(["kv", "create", &other, "--capacity", &capacity]).fails(73, &["holds data already"]);
    fs::rename(&image, scratch.path("moved")).unwrap();
    run(["kv", "get", &db, "default", "k"]).fails(66, &["d.img", "no image here"]);
    fs::rename(scratch.path("moved"), &image).unwrap();
    assert_eq!(run(["kv", "get", &db, "default", "k"]).succeeds().stdout, b"v");
}

#[test]
fn staging_on_a_drive_is_added_and_found_again() {
    let scratch = Scratch::new();
    let (db, image) = (text(&scratch.path("db")), text(&scratch.path("d.img")));
    run(["kv", "create", &db]).succeeds();
    run(["kv", "add-staging", &db, SMALL]).fails(64, &["add image=PATH"]);
    run(["kv", "add-staging", &db, &format!("{SMALL}&image={image}")]).succeeds();
    run(["kv", "put", &db, "default", "k", "v"]).succeeds();
    assert_eq!(run(["kv", "get", &db, "default", "k"]).succeeds().stdout, b"v");
}

#[test]
fn devices_that_cannot_keep_a_database_are_refused() {
    let scratch = Scratch::new();
    let db = text(&scratch.path("db"));
    let refused = |capacity: &str, words: &[&str]| {
        run(["kv", "create", &db, "--capacity", capacity]).fails(64, words);
        assert!(!scratch.path("db").exists());
    };
    refused("mem:1GiB", &["gone when the command ends", "name a file"]);
    refused(SMALL, &["gone when the command ends", "add image=PATH"]);
    refused("tape:x", &["no devices 'tape:'", "ssd:PROFILE"]);
    refused("ssd:micron-7450?capacity", &["no key=value"]);
    let image = text(&scratch.path("d.img"));
    let drive = format!("ssd:micron-7450?capacity=2GiB&time=virtual&image={image}");
    refused(&drive, &["virtual time is for one thread"]);
    run(["demo", "--db", &db, "--staging", "mem:1GiB"]).fails(64, &["gone when the command ends"]);
    run(["demo", "--capacity", "ssd:micron-7450"]).fails(64, &["needs a capacity"]);
    assert!(!scratch.path("d.img").exists());
    let taken = scratch.database();
    let drive = format!("{SMALL}&image={image}");
    run(["kv", "create", &taken, "--capacity", &drive]).fails(73, &["a KVDB here already"]);
    assert!(!scratch.path("d.img").exists());
}

#[test]
fn a_measurement_on_models_shows_what_they_assume_and_what_they_wrote() {
    let scratch = Scratch::new();
    let (temp, image) = (scratch.path("tmp"), text(&scratch.path("qlc.img")));
    let report = scratch.path("report.html");
    fs::create_dir(&temp).unwrap();
    let ycsb = |capacity: &str| {
        let output = esker()
            .env("TMPDIR", &temp)
            .args(["bench", "ycsb", "--workload", "load,c", "--records", "2000"])
            .args(["--seconds", "0.1", "--memory", "64MiB"])
            .args(["--staging", "mem:1GiB", "--capacity", capacity, "--report"])
            .arg(&report)
            .output();
        ran(output.unwrap())
    };
    for capacity in [
        format!("ssd:micron-5210?capacity=2GiB&time=none&image={image}"),
        "disk:sata-7200?capacity=16GiB&time=none".to_owned(),
    ] {
        let out = ycsb(&capacity).succeeds().out();
        for word in [&*format!("capacity class: {capacity}"), "a model of: ", "assumed: "] {
            assert!(out.contains(word), "no '{word}' in:\n{out}");
        }
        let is_drive = capacity.starts_with("ssd");
        assert_eq!(out.contains("capacity drive: "), is_drive, "{out}");
        let html = fs::read_to_string(&report).unwrap();
        assert!(html.contains("assumed: "));
    }
    assert!(!scratch.path("qlc.img").exists(), "a temporary database leaves nothing behind");
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
    fs::write(scratch.path("qlc.img"), "").unwrap();
    ycsb(&format!("{SMALL}&image={image}")).fails(73, &["a file that exists"]);
}
