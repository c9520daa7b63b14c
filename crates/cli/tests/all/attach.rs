//! `esker attach` and `esker detach` as a user types them. Tests that need a mount are skipped,
//! aloud, where this machine or user cannot mount; tests/attach/run does the rest.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

use crate::common::{Scratch, esker, run, skip_without_mounts, text};

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
    let out = run(["detach", &at]).succeeds().out();
    assert!(out.contains("had crashed"), "{out}");
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
}

#[test]
fn same_attach_clears_away_remains_of_one_that_was_killed() {
    let scratch = Scratch::new();
    let at = text(&scratch.path("at"));
    fs::create_dir(&at).unwrap();
    let Some((mut serving, _)) = attach("mem:1MiB", &at) else { return };
    serving.0.kill().unwrap();
    serving.0.wait().unwrap();
    let (mut again, _) = attach("mem:1MiB", &at).unwrap();
    assert_eq!(fs::metadata(format!("{at}/disk")).unwrap().len(), 1 << 20);
    // A device that is served is not taken away.
    run(["attach", "mem:1MiB", &at]).fails(64, &["a device is attached here", "esker detach"]);
    run(["detach", &at]).succeeds();
    let mut said = String::new();
    again.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("cleared") && said.contains("had crashed"), "{said}");
    assert_eq!(again.0.wait().unwrap().code(), Some(0));
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn stopped_server_is_named_and_its_mount_is_taken_away_by_force() {
    let scratch = Scratch::new();
    let (image, at) = (text(&scratch.path("disk.img")), text(&scratch.path("at")));
    fs::create_dir(&at).unwrap();
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let Some((mut serving, _)) = attach(&image, &at) else { return };
    let file = OpenOptions::new().write(true).open(format!("{at}/disk")).unwrap();
    file.write_all_at(b"written", 4096).unwrap();
    // A program that is started would close it, and wait for the server in the middle of that.
    drop(file);
    let pid = serving.0.id();
    signal(pid, rustix::process::Signal::STOP);
    let named = format!("process {pid}, which is stopped");
    run(["detach", &at, "--wait", "0"]).fails(75, &[&named, "does not answer", "detach --force"]);
    run(["attach", "mem:1MiB", &at]).fails(64, &["a device is attached here"]);
    let words = [&named[..], "its device is not closed", "may be lost"];
    run(["detach", &at, "--force"]).fails(74, &words);
    run(["detach", &at]).fails(66, &["no device is attached here"]);
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    // A later mount may have the number that the old one had.
    let (mut later, _) = attach("mem:1MiB", &at).unwrap();
    run(["detach", &at]).succeeds();
    assert_eq!(later.0.wait().unwrap().code(), Some(0));
    signal(pid, rustix::process::Signal::CONT);
    // It ends by itself, and closes its device.
    serving.0.wait().unwrap();
    assert_eq!(&fs::read(&image).unwrap()[4096..4103], b"written");
}

#[test]
fn server_in_another_namespace_of_processes_is_detached_and_no_other_process_is_signalled() {
    let scratch = Scratch::new();
    let at = text(&scratch.path("at"));
    fs::create_dir(&at).unwrap();
    // In its namespace the server is process 1, or 2; here those are others.
    let serve = |unshare: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(unshare).arg(esker().get_program()).args(["attach", "mem:1MiB", &at]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    let Ok(mut child) = serve(&["-pf", "--kill-child"]) else {
        return eprintln!("SKIPPED: there is no unshare(1)");
    };
    let mut line = String::new();
    if BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap() == 0 {
        child.wait().unwrap();
        return eprintln!("SKIPPED: namespaces of processes or mounts are not to be had");
    }
    let mut serving = Serving(child, at.clone());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(&at)).unwrap();
    assert!(mount.contains(" esker:1 "), "{mount}");
    // Detach in a namespace where number 1 is a bystander: SIGTERM would end it.
    let program = text(std::path::Path::new(esker().get_program()));
    let script = format!("'{program}' detach '{at}'; echo \"code $?\"; sleep 0.2; echo alive");
    let detach = std::process::Command::new("unshare")
        .args(["-pf", "bash", "-c"])
        .arg(format!("trap 'echo signalled; exit 9' TERM; {script}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&detach.stdout).into_owned();
    assert_eq!(said, format!("detached {at}\ncode 0\nalive\n"), "{detach:?}");
    assert!(serving.0.wait().unwrap().success());
    run(["detach", &at]).fails(66, &["no device is attached here"]);
}

/// A small file system in memory, which is unmounted at the end.
struct Small(String);

impl Small {
    fn mount(at: String) -> Option<Small> {
        fs::create_dir(&at).unwrap();
        let mut command = std::process::Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", "size=24M", "none", &at]).output();
        mounted.is_ok_and(|out| out.status.success()).then_some(Small(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l", &self.0]).status();
    }
}

#[test]
fn detach_fails_when_cache_cannot_be_closed_and_names_what_is_dirty() {
    let scratch = Scratch::new();
    let (origin, at) = (text(&scratch.path("origin.img")), text(&scratch.path("at")));
    fs::create_dir(&at).unwrap();
    let Some(small) = Small::mount(text(&scratch.path("small"))) else {
        return eprintln!("SKIPPED: this user cannot mount");
    };
    let flash = format!("{}/flash.img", small.0);
    for path in [&origin, &flash] {
        fs::File::create(path).unwrap().set_len(64 << 20).unwrap();
    }
    run(["cache", "create", "--mode", "wb", "--sets", "1MiB", &origin, &flash]).succeeds();
    let spec = format!("cache:({origin})?flash=({flash})&bypass=off");
    for is_full in [false, true] {
        let Some((mut serving, _)) = attach(&spec, &at) else { return };
        let file = OpenOptions::new().write(true).open(format!("{at}/disk")).unwrap();
        let at_byte = if is_full { 32 << 20 } else { 0 };
        file.write_all_at(&[7; 2 << 20], at_byte).unwrap();
        drop(file);
        if is_full {
            // The file has holes, which cannot be filled any more.
            let mut fill = fs::File::create(format!("{}/fill", small.0)).unwrap();
            while std::io::Write::write_all(&mut fill, &[0; 4096]).is_ok() {}
        }
        let said = run(["detach", &at]);
        let (code, text) = (said.code, said.stderr);
        assert_eq!(code, serving.0.wait().unwrap().code(), "{text}");
        assert!(text.contains("are on its flash device alone"), "{text}");
        assert_eq!(code == Some(0), !is_full, "{text}");
        if is_full {
            assert!(text.contains(": unmounted: "), "{text}");
            assert!(
                text.contains("was not closed") && text.contains("MiB were not written back"),
                "{text}"
            );
        }
    }
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
