//! `esker pool serve` as an operator runs it: requests at the socket, hosts over NVMe/TCP, kills.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::common::tank::{HOST, Tank, until};
use crate::common::{esker, run, text};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount};
use esker_device::{Device, Port};
use serde_json::Value;

const BLOCK: usize = 4096;

fn write(port: &mut Port, block: u64, byte: u8) {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    buf.fill(byte);
    port.write(Lba(block), buf, None).unwrap();
}

fn read(port: &mut Port, block: u64) -> u8 {
    let buf = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
    assert!(buf.iter().all(|byte| *byte == buf[0]), "block {block} is torn");
    buf[0]
}

#[test]
fn acknowledged_writes_and_exports_survive_kills() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    assert!(running.open("db").is_err(), "nobody may use it yet");
    tank.ask(&format!("volume export tank/db --host {HOST}")).succeeds();
    drop(running);
    for round in 0..4_u8 {
        let running = tank.serve();
        let volume = running.open("db").unwrap();
        assert!(!volume.geometry().volatile_write_cache);
        let mut port = Port::open(&volume, 4).unwrap();
        for earlier in 0..round {
            for block in 0..64 {
                assert_eq!(read(&mut port, u64::from(earlier) * 64 + block), earlier + 1);
            }
        }
        // Acknowledged, and never flushed.
        (0..64).for_each(|block| write(&mut port, u64::from(round) * 64 + block, round + 1));
        tank.ask(&format!("volume snapshot tank/db@{round}")).succeeds();
        running.kill();
    }
    let running = tank.serve();
    assert_eq!(tank.json("volume show tank/db")["snapshots"].as_array().unwrap().len(), 4);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn volumes_come_change_and_go_while_hosts_are_connected() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 4MiB").succeeds();
    tank.ask("volume export tank/db --any-host").succeeds();
    let volume = running.open("db").unwrap();
    let mut port = Port::open(&volume, 4).unwrap();
    write(&mut port, 0, 7);
    tank.ask("volume resize tank/db --size 8MiB").succeeds();
    let clock = esker_base::Clock::real();
    let end = clock.now() + std::time::Duration::from_secs(20);
    while volume.geometry().capacity != LbaCount(2048) {
        assert!(clock.now() < end, "the host was not told of the new size");
        clock.sleep(std::time::Duration::from_millis(20));
    }
    write(&mut port, 2047, 8);
    tank.ask("volume snapshot tank/db@then").succeeds();
    write(&mut port, 0, 9);
    tank.ask("volume clone tank/db@then test").succeeds();
    tank.ask("volume export tank/test --any-host").succeeds();
    let clone = running.open("test").unwrap();
    let mut of_clone = Port::open(&clone, 1).unwrap();
    assert_eq!((read(&mut of_clone, 0), read(&mut port, 0)), (7, 9));
    tank.ask("volume rollback tank/db@then --force").succeeds();
    assert_eq!(read(&mut port, 0), 7);
    tank.ask("volume export tank/test --nobody --force").succeeds();
    assert!(running.open("test").is_err(), "it is not exported any more");
    tank.ask("volume export tank/db --host nqn.2026-01.io.esker:other --force").succeeds();
    assert!(running.open("db").is_err(), "another host alone may use it");
    let (status, exports) = tank.request("GET /v1/exports", "");
    assert_eq!(
        (status.as_str(), exports[0]["nqn"].as_str()),
        ("200", Some("nqn.2026-01.io.esker:tank:db"))
    );
    assert_eq!(exports[0]["addresses"][0].as_str(), Some(running.address.as_str()));
    let text = running.metrics_text();
    for line in [
        "esker_pool_space_bytes{part=\"live\"}",
        "esker_pool_written_bytes_total{cause=\"user\"}",
        "esker_target_connections",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert_eq!(running.end(), Some(0));
}

#[test]
fn drives_are_added_replaced_and_retired_under_a_host() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    tank.ask("volume export tank/db --any-host").succeeds();
    let volume = running.open("db").unwrap();
    let mut port = Port::open(&volume, 4).unwrap();
    (0..512).for_each(|block| write(&mut port, block, 5));
    let new: Vec<String> = ["new0", "new1"].map(|name| text(&tank.0.path(name))).to_vec();
    new.iter().for_each(|path| File::create(path).unwrap().set_len(24 << 20).unwrap());
    let before = tank.json("pool status tank")["epoch"].clone();
    tank.ask(&format!("pool add tank {} --dry-run", new[0])).succeeds();
    tank.ask("pool retire tank 1 --dry-run").succeeds();
    tank.ask("pool add tank mem:24MiB").fails(64, &["gone when the process ends"]);
    tank.ask("pool add tank /nowhere/drive").fails(66, &["/nowhere/drive"]);
    tank.ask("pool retire tank 9").fails(66, &["no drive '9'"]);
    tank.ask(&format!("pool replace tank 9 {}", new[0])).fails(66, &["no drive '9'"]);
    assert_eq!(tank.json("pool status tank")["epoch"], before, "nothing was changed");
    let added = tank.ask(&format!("pool add tank {}", new[0])).succeeds().out();
    assert!(added.contains("is drive 3 of tank"), "{added}");
    let again = tank.ask(&format!("pool add tank {}", new[0])).succeeds().out();
    assert_eq!(again, added, "it was added already");
    tank.ask(&format!("pool replace tank 1 {} --wait", new[1])).succeeds();
    tank.ask("pool retire tank 0 --wait").succeeds();
    tank.ask("pool scrub tank --wait").succeeds();
    assert!((0..512).all(|block| read(&mut port, block) == 5));
    let status = tank.json("pool status tank");
    let states: Vec<_> = (0..5).map(|n| status["members"][n]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["retired", "retired", "online", "online", "online"]);
    assert_eq!((&status["state"], &status["scrub"]["errors"]), (&"online".into(), &0.into()));
    assert_eq!(running.end(), Some(0));
    let mut args = vec!["pool", "scrub", "tank", "--drives"];
    let old = tank.drives();
    args.extend([&old[2], &new[0], &new[1]].map(String::as_str));
    let scrubbed = run(args).succeeds().out();
    assert!(scrubbed.starts_with("done: "), "{scrubbed}");
}

/// A process that serves a file as a drive.
struct Far {
    child: Child,
    address: String,
    _out: BufReader<ChildStdout>,
}

impl Far {
    const NQN: &str = "nqn.2026-01.io.esker:far:disk";

    fn serve(file: &Path, address: &str) -> Far {
        let device = format!("file:{}", file.display());
        let mut child = esker()
            .args(["target", "serve", "--subsystem", Far::NQN, "--allow-any", "--device", &device])
            .args(["--listen", address, "--metrics", "127.0.0.1:0", "--for", "120"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let address = until(&mut out, "listening on ");
        Far { child, address, _out: out }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A drive that is another server's volume goes away with that server, and comes back; a file is missing at the start.
#[test]
fn drives_return_while_the_pool_is_served() {
    let tank = Tank::new();
    let remote = tank.0.path("remote");
    File::create(&remote).unwrap().set_len(24 << 20).unwrap();
    let far = Far::serve(&remote, "127.0.0.1:0");
    let url = format!("nvme-tcp://{}/{}?give-up=1s&retry=20ms&timeout=1s", far.address, Far::NQN);
    let mut drives = tank.drives();
    let missing = drives.remove(0);
    let running = tank.serve_with(&drives, &["--degraded"]);
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    tank.ask("volume export tank/db --any-host").succeeds();
    let volume = running.open("db").unwrap();
    let mut port = Port::open(&volume, 4).unwrap();
    (0..256).for_each(|block| write(&mut port, block, 5));
    // It returns under its path, and nothing else does.
    let state = |number: usize| tank.json("pool status tank")["members"][number]["state"].clone();
    assert_eq!(state(0), "missing");
    tank.ask("pool rejoin tank 0").fails(64, &["name its device"]);
    tank.ask(&format!("pool rejoin tank 1 {missing}")).fails(77, &["it is drive 0"]);
    tank.ask(&format!("pool rejoin tank 0 {missing} --dry-run")).succeeds();
    assert_eq!(state(0), "missing");
    tank.ask(&format!("pool rejoin tank 0 {missing} --wait")).succeeds();
    assert_eq!(state(0), "online");
    tank.ask(&format!("pool rejoin tank 0 {missing}")).succeeds();
    (256..512).for_each(|block| write(&mut port, block, 6));
    // One that is pulled under load, and brought back.
    tank.ask(&format!("pool add tank {url}")).succeeds();
    tank.ask("pool retire tank 1 --wait").succeeds();
    (512..768).for_each(|block| write(&mut port, block, 7));
    let address = far.address.clone();
    far.kill();
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(60);
    while state(3) != "faulted" {
        (768..1024).for_each(|block| write(&mut port, block, 8));
        assert!(clock.now() < end, "{}", tank.json("pool status tank"));
    }
    assert_ne!(tank.ask("pool rejoin tank 3").code, Some(0));
    assert_eq!(state(3), "faulted");
    (0..256).for_each(|block| write(&mut port, block, 9));
    let far = Far::serve(&remote, &address);
    tank.ask("pool rejoin tank 3 --wait").succeeds();
    assert_eq!(state(3), "online");
    tank.ask("pool scrub tank --wait").succeeds();
    let status = tank.json("pool status tank");
    assert_eq!((&status["state"], &status["scrub"]["errors"]), (&"online".into(), &0.into()));
    let holds = |port: &mut Port| {
        let blocks = [(0..256, 9), (256..512, 6), (512..768, 7)];
        blocks.into_iter().all(|(mut blocks, byte)| blocks.all(|at| read(port, at) == byte))
    };
    assert!(holds(&mut port));
    drop((port, volume));
    // Without another drive it is needed.
    assert_eq!(running.end(), Some(0));
    let running = tank.serve_with(&[missing, url], &["--degraded"]);
    let volume = running.open("db").unwrap();
    assert!(holds(&mut Port::open(&volume, 4).unwrap()));
    drop(volume);
    assert_eq!(running.end(), Some(0));
    drop(far);
}

#[test]
fn server_ends_in_order_and_leaves_a_closed_pool() {
    let tank = Tank::new();
    let running = tank.serve();
    let mode = std::fs::metadata(tank.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    tank.ask("volume create tank/db --size 4MiB").succeeds();
    tank.ask("volume export tank/db --any-host").succeeds();
    let volume = running.open("db").unwrap();
    write(&mut Port::open(&volume, 1).unwrap(), 3, 3);
    assert_eq!(running.end(), Some(0));
    drop(volume);
    tank.ask("pool status tank").fails(66, &["not served at", "esker pool serve tank"]);
    assert!(!std::path::Path::new(&tank.socket()).exists());
    let label = run(["pool", "examine", &tank.drives()[0], "--json"]).succeeds().out();
    let label: Value = serde_json::from_str(&label).unwrap();
    assert_eq!(label["labels"][0]["is_clean"], true);
}

#[test]
fn pool_has_one_server_and_wrong_requests_change_nothing() {
    let tank = Tank::new();
    let running = tank.serve();
    let drives = tank.drives();
    let mut second = vec!["pool", "serve", "tank", "--socket", "/nowhere/x.sock", "--drives"];
    second.extend(drives.iter().map(String::as_str));
    run(second).fails(77, &["d0"]);
    let answered = |head: &str, body: &str, status: &str, code: &str, words: &str| {
        let (got, answer) = tank.request(head, body);
        let error = &answer["error"];
        assert_eq!((got.as_str(), error["code"].as_str()), (status, Some(code)), "{answer}");
        assert!(error["message"].as_str().unwrap().contains(words), "{answer}");
    };
    answered("POST /v1/volumes", "{", "400", "INVALID", "no JSON");
    answered("POST /v1/volumes", "[1]", "400", "INVALID", "body");
    answered("POST /v1/volumes", "{}", "400", "INVALID", "missing field `name`");
    answered("POST /v1/volumes", r#"{"name":"a","bytes":0}"#, "400", "INVALID", "0 bytes");
    answered("POST /v1/volumes", r#"{"name":"../a","bytes":4096}"#, "400", "INVALID", "no name");
    answered("POST /v1/volumes", r#"{"name":"a","bytes":4096,"x":1}"#, "400", "INVALID", "`x`");
    answered("GET /v1/volumes/none", "", "404", "NOT_FOUND", "no volume 'none'");
    answered("PUT /v1/volumes", "", "405", "UNSUPPORTED", "takes GET, POST");
    answered("GET /etc/passwd", "", "404", "NOT_FOUND", "GET /v1");
    tank.ask("volume create tank/db --size 4MiB").succeeds();
    tank.ask("volume export tank/db --host db").fails(64, &["not an NQN"]);
    let hosts = tank.json("volume show tank/db")["hosts"].as_array().unwrap().len();
    assert_eq!(hosts, 0);
    let (_, routes) = tank.request("GET /v1", "");
    assert!(routes.as_array().unwrap().len() > 10);
    // A file that a process left is replaced; another file is not.
    running.kill();
    let running = tank.serve();
    tank.ask("pool status tank").succeeds();
    assert_eq!(running.end(), Some(0));
    std::fs::write(tank.socket(), "mine").unwrap();
    let mut wrong =
        vec!["pool".to_owned(), "serve".into(), "tank".into(), "--socket".into(), tank.socket()];
    wrong.extend(
        ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--drives"].map(str::to_owned),
    );
    wrong.extend(drives);
    run(wrong).fails(73, &["it is no socket"]);
}

/// A page of the list has a thousand; each volume has some counters, and latencies where there are few volumes.
#[test]
fn many_volumes_are_listed_whole_and_their_metrics_stay_small() {
    let tank = Tank::sized(512);
    let running = tank.serve();
    let make = |range: std::ops::Range<u32>| {
        for number in range {
            let body = format!("{{\"name\":\"v{number}\",\"bytes\":4096}}");
            assert_eq!(tank.request("POST /v1/volumes", &body).0, "200", "{number}");
        }
    };
    make(0..32);
    let few = running.metrics_text();
    assert!(
        few.contains("esker_pool_volume_latency_seconds_count{volume=\"v31\",operation=\"read\"}")
    );
    make(32..1_010);
    let many = running.metrics_text();
    assert!(many.contains("esker_pool_volume_reads_total{volume=\"v1009\"}"));
    assert!(
        many.contains("esker_pool_volume_latency_seconds_count{volume=\"*\",operation=\"read\"}")
    );
    assert!(!many.contains("volume=\"v31\",operation=\"read\""));
    assert!(many.len() < 1_010 * 1_024, "{} bytes", many.len());
    let listed = tank.json("volume list tank");
    assert_eq!(listed["volumes"].as_array().unwrap().len(), 1_010);
    assert_eq!(listed["next_token"], Value::Null);
    assert_eq!(running.end(), Some(0));
}
