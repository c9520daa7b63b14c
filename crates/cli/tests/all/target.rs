//! `esker target serve` as an administrator runs it: a configuration file, signals.

use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use crate::common::tank::{HOST, until};
use crate::common::{Scratch, esker, run, text};
use esker_base::{AlignedBuf, Lba, thread};
use esker_device::{Device, Port};
use esker_nvmf::{Initiator, InitiatorConfig, NvmfError};
use rustix::process::{Pid, Signal, kill_process};

/// A target that runs, and its output.
pub(crate) struct Running {
    child: Child,
    pub(crate) out: BufReader<ChildStdout>,
    pub(crate) err: BufReader<ChildStderr>,
    pub(crate) address: String,
}

impl Running {
    fn start(config: &Path) -> Running {
        Running::serving(&["--config", &text(config), "--for", "60"])
    }

    /// One with these options; `--for` is of them, so that what is waited for in vain fails.
    pub(crate) fn serving(args: &[&str]) -> Running {
        let mut child = esker()
            .args(["target", "serve", "--metrics", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        let address = until(&mut out, "listening on ");
        Running { child, out, err, address }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn open(&self, nqn: &str, nsid: u32) -> Result<Initiator, NvmfError> {
        self.open_as(HOST, nqn, nsid)
    }

    pub(crate) fn open_as(&self, host: &str, nqn: &str, nsid: u32) -> Result<Initiator, NvmfError> {
        let config = InitiatorConfig::new(vec![self.address.parse().unwrap()], nqn, nsid)?;
        Initiator::open(InitiatorConfig { host_nqn: host.to_owned(), ..config })
    }

    /// Its exit code, after a signal to end.
    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        until(&mut self.out, "ending: ");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const A: &str = "nqn.2026-01.io.esker:a";
const B: &str = "nqn.2026-01.io.esker:b";

fn subsystem(nqn: &str, host: &str, devices: &[String]) -> String {
    let mut text =
        format!("[[subsystem]]\nnqn = \"{nqn}\"\n[[subsystem.host]]\nnqn = \"{host}\"\n");
    for (nsid, device) in (1..).zip(devices) {
        text += &format!("[[subsystem.namespace]]\nnsid = {nsid}\ndevice = \"{device}\"\n");
    }
    text
}

#[test]
fn signals_end_it_in_order_and_have_it_read_its_configuration_again() {
    let scratch = Scratch::new();
    let config = scratch.path("target.toml");
    let (one, two) = (text(&scratch.path("one")), text(&scratch.path("two")));
    for path in [&one, &two] {
        fs::File::create(path).unwrap().set_len(4 << 20).unwrap();
    }
    let devices = [one, format!("file:{two}?lba=512")];
    let head = "listen = [\"127.0.0.1:0\"]\n";
    let host = "nqn.2026-01.io.esker:host";
    fs::write(&config, format!("{head}{}", subsystem(A, host, &devices[..1]))).unwrap();
    let mut target = Running::start(&config);
    until(&mut target.out, "serving ");
    let first = target.open(A, 1).unwrap();
    let mut port = Port::open(&first, 1).unwrap();
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(7);
    port.write(Lba(1), buf, None).unwrap();
    assert!(target.open(B, 1).is_err());

    let both =
        format!("{head}{}{}", subsystem(A, host, &devices[..1]), subsystem(B, host, &devices[1..]));
    fs::write(&config, &both).unwrap();
    target.signal(Signal::HUP);
    until(&mut target.out, "configuration read again");
    drop(target.open(B, 1).unwrap());
    let read = port.read(Lba(1), AlignedBuf::zeroed(4096)).unwrap();
    assert!(read.iter().all(|&byte| byte == 7), "the host that was there goes on");

    for broken in ["listen = [", "colour = 1\n", &subsystem(A, "host", &devices)] {
        fs::write(&config, broken).unwrap();
        target.signal(Signal::HUP);
        let said = until(&mut target.err, "esker: the configuration was not read again");
        assert!(said.contains("the one before stays in force"), "{said}");
        drop(target.open(B, 1).unwrap());
    }

    // A device that is named elsewhere moves, and is not opened again beside itself.
    drop((port, first));
    let moved = [devices[1].clone(), devices[0].clone()];
    fs::write(&config, format!("{head}{}", subsystem(A, host, &moved))).unwrap();
    target.signal(Signal::HUP);
    until(&mut target.out, "configuration read again");
    let second = target.open(A, 2).unwrap();
    let read = Port::open(&second, 1).unwrap().read(Lba(1), AlignedBuf::zeroed(4096)).unwrap();
    assert!(read.iter().all(|&byte| byte == 7));
    drop(second);

    // The host may not use the first any more.
    fs::write(
        &config,
        format!("{head}{}", subsystem(A, "nqn.2026-01.io.esker:other", &devices[..1])),
    )
    .unwrap();
    target.signal(Signal::HUP);
    until(&mut target.out, "configuration read again");
    assert!(target.open(A, 1).is_err() && target.open(B, 1).is_err());
    assert_eq!(target.end(Signal::TERM), Some(0));

    // Acknowledged writes are there, and the next target serves them.
    fs::write(&config, &both).unwrap();
    let target = Running::start(&config);
    let first = target.open(A, 1).unwrap();
    let mut port = Port::open(&first, 1).unwrap();
    let read = port.read(Lba(1), AlignedBuf::zeroed(4096)).unwrap();
    assert!(read.iter().all(|&byte| byte == 7));
    drop((port, first));
    assert_eq!(target.end(Signal::INT), Some(0));
}

#[test]
fn device_of_a_namespace_that_was_removed_is_closed() {
    let scratch = Scratch::new();
    let (config, image) = (scratch.path("target.toml"), text(&scratch.path("drive.img")));
    let plain = text(&scratch.path("plain"));
    fs::File::create(&plain).unwrap().set_len(4 << 20).unwrap();
    run(["ssd", "create", "micron-7450", &image, "--capacity", "1GiB"]).succeeds();
    let (head, host) = ("listen = [\"127.0.0.1:0\"]\n", "nqn.2026-01.io.esker:host");
    let drive = format!("ssd:?image={image}&time=none");
    for devices in [[plain.clone(), drive.clone()], [drive, plain.clone()]] {
        fs::write(&config, format!("{head}{}", subsystem(A, host, &devices))).unwrap();
        let mut target = Running::start(&config);
        until(&mut target.out, "serving ");
        // A host uses it, so a worker has a queue of it.
        for nsid in [1, 2] {
            let namespace = target.open(A, nsid).unwrap();
            Port::open(&namespace, 1).unwrap().read(Lba(0), AlignedBuf::zeroed(4096)).unwrap();
        }
        run(["ssd", "info", &image]).fails(77, &["open elsewhere"]);
        fs::write(&config, format!("{head}{}", subsystem(A, host, std::slice::from_ref(&plain))))
            .unwrap();
        target.signal(Signal::HUP);
        until(&mut target.out, "configuration read again");
        let closed = |_: &u32| {
            esker_base::Clock::real().sleep(std::time::Duration::from_millis(100));
            run(["ssd", "info", &image]).code == Some(0)
        };
        assert!((0..100).find(closed).is_some(), "the image is open still");
        assert_eq!(target.end(Signal::TERM), Some(0));
    }
}

#[test]
fn device_replaced_by_a_signal_has_its_own_identity_and_a_given_one_is_for_those_without() {
    let scratch = Scratch::new();
    let config = scratch.path("target.toml");
    let files = ["one", "two"].map(|name| text(&scratch.path(name)));
    for path in &files {
        fs::File::create(path).unwrap().set_len(4 << 20).unwrap();
    }
    let head = "listen = [\"127.0.0.1:0\"]\n";
    let host = "nqn.2026-01.io.esker:host";
    let uuid = "0b0a0908-0706-4504-8302-010012345678";
    let serve = |device: &str, more: &str| {
        let served = subsystem(A, host, &[device.to_owned()]);
        fs::write(&config, format!("{head}{served}{more}")).unwrap();
    };
    let identity = |target: &Running| target.open(A, 1).unwrap().identity().unwrap().to_string();
    serve(&files[0], "");
    let mut target = Running::start(&config);
    let mut seen = vec![identity(&target)];
    for device in [&files[1], &files[0]] {
        serve(device, "");
        target.signal(Signal::HUP);
        until(&mut target.out, "configuration read again");
        seen.push(identity(&target));
    }
    assert!(seen[0] != seen[1] && seen[0] == seen[2], "{seen:?}");
    let given = format!("uuid = \"{uuid}\"\n");
    serve("mem:4MiB", &given);
    target.signal(Signal::HUP);
    until(&mut target.out, "configuration read again");
    assert!(identity(&target).contains(uuid), "{}", identity(&target));
    serve(&files[0], &given);
    target.signal(Signal::HUP);
    let said = until(&mut target.err, "esker: note: ");
    assert!(said.contains("namespace 1: its uuid is not used"), "{said}");
    until(&mut target.out, "configuration read again");
    assert_eq!(identity(&target), seen[0]);
    serve(&files[0], "uuid = \"7\"\n");
    target.signal(Signal::HUP);
    let said = until(&mut target.err, "esker: the configuration was not read again");
    assert!(said.contains("'7' is no UUID"), "{said}");
    assert_eq!(target.end(Signal::TERM), Some(0));
}

#[test]
fn a_damaged_file_of_reservations_stops_the_start() {
    let scratch = Scratch::new();
    let (file, path) = (text(&scratch.path("r")), scratch.path("r"));
    fs::write(&path, "these are no reservations at all").unwrap();
    let arguments = ["target", "serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let what = ["--subsystem", A, "--device", "mem:1MiB", "--allow-any", "--reservations", &file];
    run(arguments.iter().chain(&what)).fails(65, &[&file, "restore it from a copy"]);
}

/// A target over a model drive with an image is killed after writes that nobody flushed. Returns which of
/// them the next target serves.
fn what_a_kill_leaves(write_cache: &str) -> Vec<bool> {
    let scratch = Scratch::new();
    let (config, image) = (scratch.path("target.toml"), text(&scratch.path("drive.img")));
    run(["ssd", "create", "micron-7450?op=0.2", &image, "--capacity", "256MiB"]).succeeds();
    let host = "nqn.2026-01.io.esker:host";
    let served = subsystem(A, host, &[format!("ssd:?image={image}&nsid=1")]);
    let text = format!("listen = [\"127.0.0.1:0\"]\n{served}write_cache = \"{write_cache}\"\n");
    fs::write(&config, text).unwrap();
    let mut target = Running::start(&config);
    let device = target.open(A, 1).unwrap();
    assert_eq!(device.geometry().volatile_write_cache, write_cache == "on");
    let mut port = Port::open(&device, 1).unwrap();
    for lba in 0..64 {
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(7);
        port.write(Lba(lba), buf, None).unwrap();
    }
    target.child.kill().unwrap();
    target.child.wait().unwrap();
    drop((port, device));
    let target = Running::start(&config);
    let device = target.open(A, 1).unwrap();
    let mut port = Port::open(&device, 1).unwrap();
    let mut is_there = |lba| port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap()[0] == 7;
    (0..64).map(&mut is_there).collect()
}

#[test]
fn without_a_write_cache_completed_writes_survive_a_kill() {
    assert!(what_a_kill_leaves("off").iter().all(|is_there| *is_there));
    let kept = what_a_kill_leaves("on");
    assert!(kept.contains(&false), "with the cache the same writes are lost, so this test sees it");
}

#[test]
fn write_cache_says_what_it_can_be() {
    let scratch = Scratch::new();
    let config = scratch.path("target.toml");
    let served = subsystem(A, "nqn.2026-01.io.esker:host", &["mem:1MiB".to_owned()]);
    fs::write(&config, format!("{served}write_cache = \"maybe\"\n")).unwrap();
    let serve = ["target", "serve", "--metrics", "127.0.0.1:0", "--config", &text(&config)];
    run(serve).fails(64, &["maybe", "`on` or `off`"]);
}

/// The same commands reach the drive, one after the other: it writes the same to the byte.
#[test]
fn stores_on_a_served_drive_cost_what_they_cost_on_the_drive() {
    let scratch = Scratch::new();
    let config = scratch.path("target.toml");
    let drive = "ssd:micron-7450?capacity=256MiB&fdp=on&time=none";
    let host = "nqn.2026-01.io.esker:host";
    let served = subsystem(A, host, &[drive.to_owned()]);
    fs::write(&config, format!("listen = [\"127.0.0.1:0\"]\n{served}")).unwrap();
    let target = Running::start(&config);
    let remote = format!("nvme-tcp://{}/{A}?hostnqn={host}", target.address);
    let measured = |device: &str| {
        let study =
            ["lab", "fdp", "--erase", "--device", device, "--handles", "0,1", "--json", "-"];
        let json: serde_json::Value = serde_json::from_str(&run(study).succeeds().out()).unwrap();
        let runs = json["chapters"][0]["runs"].as_array().unwrap().clone();
        runs.iter().map(|run| run["measured"].clone()).collect::<Vec<_>>()
    };
    let (here, there) = std::thread::scope(|scope| {
        let here = thread::spawn_scoped(scope, "here", || measured(drive)).unwrap();
        let there = measured(&remote);
        (here.join().unwrap(), there)
    });
    assert!(here.len() == 2 && here == there, "{here:?}\n{there:?}");
    assert_eq!(target.end(Signal::TERM), Some(0));
}

#[test]
fn patience_and_controller_ids_come_from_the_file_or_the_options_and_wrong_ones_are_refused() {
    let scratch = Scratch::new();
    let config = scratch.path("target.toml");
    let host = "nqn.2026-01.io.esker:host";
    let write = |head: &str| {
        let served = subsystem(A, host, &["mem:4MiB".to_owned()]);
        fs::write(&config, format!("listen = [\"127.0.0.1:0\"]\n{head}{served}")).unwrap();
    };
    write("patience = 20\ncontroller_ids = [700, 701]\n");
    let target = Running::start(&config);
    drop(target.open(A, 1).unwrap());
    assert_eq!(target.end(Signal::TERM), Some(0));
    let file = text(&config);
    let serve = |more: &[&str]| {
        let args = ["target", "serve", "--config", &file, "--metrics", "127.0.0.1:0", "--for", "1"];
        run(args.iter().chain(more).copied())
    };
    serve(&["--patience", "2s", "--controller-ids", "1-9"]).succeeds();
    serve(&["--controller-ids", "9"]).fails(64, &["'9' is no range of ids", "1-1000"]);
    serve(&["--controller-ids", "9-8"]).fails(64, &["no range of ids from 1 to 65519"]);
    serve(&["--patience", "0"]).fails(64, &["too short"]);
    for (head, said) in
        [("patience = 0\n", "patience = 0"), ("controller_ids = [0, 7]\n", "0 to 7")]
    {
        write(head);
        serve(&[]).fails(64, &[said]);
    }
}
