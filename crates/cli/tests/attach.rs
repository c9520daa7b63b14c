//! `esker attach` and `esker detach` as a user types them. Tests that need a mount are skipped,
//! aloud, where this machine or user cannot mount; tests/attach/run does the rest.

mod common;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

use common::{Scratch, esker, run, skip_without_mounts, text};

/// Ends the process and detaches its device, if the test has not.
struct Serving(Child, String);

impl Drop for Serving {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            run(["detach", &self.1]);
        }
    }
}

/// Attaches, and waits until it says so; none where mounts are not to be had.
fn attach(spec: &str, at: &str) -> Option<(Serving, Vec<String>)> {
    let child = esker()
        .args(["attach", spec, at])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut serving = Serving(child, at.to_owned());
    let mut out = BufReader::new(serving.0.stdout.take().unwrap());
    let mut lines = Vec::new();
    for _ in 0..2 {
        let mut line = String::new();
        if out.read_line(&mut line).unwrap() == 0 {
            skip_without_mounts(&mut serving.0);
            return None;
        }
        lines.push(line.trim_end().to_owned());
    }
    // A program that prints to a closed pipe must not fail for it.
    drop(out);
    Some((serving, lines))
}

#[test]
fn a_file_is_attached_written_to_and_detached() {
    let scratch = Scratch::new();
    let (image, at) = (text(&scratch.path("disk.img")), text(&scratch.path("at")));
    fs::create_dir(&at).unwrap();
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let Some((mut serving, said)) = attach(&image, &at) else { return };
    assert!(said[0].contains("1.00 MiB in LBAs of 4096 bytes"), "{said:?}");
    assert_eq!(said[1], format!("file: {at}/disk"));
    let file = OpenOptions::new().write(true).open(format!("{at}/disk")).unwrap();
    file.write_all_at(b"between two LBAs", 4090).unwrap();
    drop(file);
    let out = run(["detach", &at]).succeeds().out();
    assert_eq!(out, format!("detached {at}\n"));
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    assert_eq!(&fs::read(&image).unwrap()[4088..4100], b"\0\0between tw");
    run(["detach", &at]).fails(66, &["no device is attached here"]);
}

#[test]
fn remains_of_a_crash_are_cleared_away() {
    let scratch = Scratch::new();
    let at = text(&scratch.path("at"));
    fs::create_dir(&at).unwrap();
    let Some((mut serving, _)) = attach("mem:1MiB", &at) else { return };
    serving.0.kill().unwrap();
    serving.0.wait().unwrap();
    run(["attach", "mem:1MiB", &at]).fails(64, &["has crashed", "esker detach"]);
    let out = run(["detach", &at]).succeeds().out();
    assert!(out.contains("had crashed"), "{out}");
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
}

#[test]
fn devices_that_cannot_be_attached_are_refused_with_a_remedy() {
    let scratch = Scratch::new();
    let at = text(&scratch.path("at"));
    fs::create_dir(&at).unwrap();
    let gone = text(&scratch.path("gone.img"));
    run(["attach", &gone, &at]).fails(66, &["gone.img", "there is no such file", "truncate -s 8G"]);
    let empty = text(&scratch.path("empty.img"));
    fs::write(&empty, b"").unwrap();
    run(["attach", &empty, &at]).fails(64, &["the file is empty"]);
    run(["attach", "mem:1MiB", &empty]).fails(64, &["it is no directory"]);
    run(["attach", "tape:1", &at]).fails(64, &["no devices 'tape:'"]);
    run(["detach", &at]).fails(66, &["no device is attached here"]);
}

#[test]
fn device_in_use_is_detached_in_bounded_time_or_by_force_and_its_user_is_named() {
    let scratch = Scratch::new();
    let at = text(&scratch.path("at"));
    fs::create_dir(&at).unwrap();
    let Some((mut serving, _)) = attach("mem:1MiB", &at) else { return };
    let disk = format!("{at}/disk");
    let user = std::process::Command::new("tail").args(["-f", &disk]).stdout(Stdio::null()).spawn();
    let mut user = user.unwrap();
    let is_open = || {
        fs::read_dir(format!("/proc/{}/fd", user.id()))
            .unwrap()
            .flatten()
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|path| path.ends_with("disk")))
    };
    while !is_open() {
        std::hint::spin_loop();
    }
    let who = format!("process {} (tail) has {disk} open", user.id());
    let clock = esker_base::Clock::real();
    let begun = clock.now();
    run(["detach", &at, "--wait", "2"])
        .fails(77, &[&who, "esker detach --force", "goes on serving"]);
    assert!(clock.now().since(begun).as_secs() < 60, "it waits no longer than it was told to");
    assert!(fs::metadata(&disk).is_ok(), "it is there still");
    run(["detach", &at, "--force"]).succeeds();
    serving.0.wait().unwrap();
    user.kill().unwrap();
    user.wait().unwrap();
    run(["detach", &at]).fails(66, &["no device is attached here"]);
}

#[test]
fn mount_point_with_content_is_hidden_only_when_that_is_asked_for() {
    let scratch = Scratch::new();
    let at = text(&scratch.path("at"));
    fs::create_dir(&at).unwrap();
    let mine = format!("{at}/mine.txt");
    fs::write(&mine, "mine").unwrap();
    let words = ["not empty", "mine.txt", "hidden", "--nonempty"];
    run(["attach", "mem:1MiB", &at]).fails(64, &words);
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
}
