//! A target in this process is changed by requests at its socket, while hosts are connected.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, thread};
use esker_device::{Device, Port};
use esker_nvmf::{Initiator, InitiatorConfig, NvmfError};
use esker_serve::target::{TargetOptions, TargetService};
use esker_stack::Stack;
use serde_json::{Value, json};

const A: &str = "nqn.2026-01.io.esker:a";
const HOST: &str = "nqn.2026-01.io.esker:host";
const OTHER: &str = "nqn.2026-01.io.esker:other";
const BLOCK: usize = 4096;

/// A target with a namespace of 8 MiB in memory.
struct Rig {
    scratch: tempfile::TempDir,
    service: TargetService,
}

impl Rig {
    fn new() -> Rig {
        let scratch = tempfile::tempdir().unwrap();
        let service = start(options(scratch.path().join("run/control.sock"))).unwrap();
        Rig { scratch, service }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path().join("run/control.sock")
    }

    /// A new device in a file.
    fn file(&self, name: &str, mib: u64) -> String {
        let path = self.scratch.path().join(name);
        fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Sends a request with headers, and returns status and body.
    fn send(&self, head: &str, headers: &str, body: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let length = body.len();
        // It may be refused before all of it was read.
        let _ =
            write!(stream, "{head} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        answer(&mut stream)
    }

    #[track_caller]
    fn done(&self, head: &str, body: Value) -> Value {
        let (status, answer) = self.send(head, "", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        answer
    }

    #[track_caller]
    fn look(&self, path: &str) -> Value {
        self.done(&format!("GET {path}"), Value::Null)
    }

    /// It is refused with a code and these words, and has changed nothing.
    #[track_caller]
    fn refused(&self, head: &str, body: Value, code: &str, words: &str) {
        let before = self.look("/v1/config");
        let (status, answer) = self.send(head, "", &body.to_string());
        assert_ne!(status, 200, "{answer}");
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == code && message.contains(words), "{answer}");
        assert_eq!(self.look("/v1/config"), before);
    }

    fn address(&self) -> SocketAddr {
        self.look("/v1/target")["portals"][0]["listen"].as_str().unwrap().parse().unwrap()
    }

    fn open(&self, host: &str, nsid: u32) -> Result<Initiator, NvmfError> {
        self.open_at(vec![self.address()], host, nsid)
    }

    fn open_at(
        &self,
        portals: Vec<SocketAddr>,
        host: &str,
        nsid: u32,
    ) -> Result<Initiator, NvmfError> {
        let config = InitiatorConfig::new(portals, A, nsid)?;
        Initiator::open(InitiatorConfig { host_nqn: host.to_owned(), ..config })
    }
}

fn options(control: PathBuf) -> TargetOptions {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    TargetOptions {
        config: None,
        listen: vec![any],
        listen_tls: Vec::new(),
        announce: Vec::new(),
        subsystem: Some(A.to_owned()),
        devices: vec!["mem:8MiB".to_owned()],
        allow: vec![HOST.to_owned()],
        allow_any: false,
        key_file: None,
        controller_key_file: None,
        tls_key_file: None,
        write_cache: true,
        reservations: None,
        workers: None,
        patience: None,
        controller_ids: None,
        control: Some(control),
        api: None,
        metrics: any,
        commit: "0123456789ab",
    }
}

fn start(options: TargetOptions) -> esker_serve::Result<TargetService> {
    TargetService::start(options, Arc::new(Stack::new()), &|_| {})
}

fn answer(stream: &mut UnixStream) -> (u16, Value) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// Waits until it is so.
#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(10);
    while !is_so() {
        assert!(clock.now() < end, "in vain: {what}");
        clock.sleep(Duration::from_millis(20));
    }
}

fn namespaces() -> String {
    format!("/v1/subsystems/{A}/namespaces")
}

fn hosts() -> String {
    format!("/v1/subsystems/{A}/hosts")
}

fn write(port: &mut Port, fill: u8) -> bool {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    buf.fill(fill);
    port.write(Lba(0), buf, None).is_ok()
}

fn first_byte(device: &dyn Device) -> u8 {
    Port::open(device, 1).unwrap().read(Lba(0), AlignedBuf::zeroed(BLOCK)).unwrap()[0]
}

#[test]
fn namespaces_come_go_and_are_replaced_while_a_host_uses_them() {
    let rig = Rig::new();
    let first = rig.open(HOST, 1).unwrap();
    let mut port = Port::open(&first, 1).unwrap();
    assert!(write(&mut port, 7));
    assert!(rig.open(HOST, 2).is_err());

    let (disk, other) = (rig.file("disk", 8), rig.file("other", 8));
    let would =
        rig.done(&format!("POST {}", namespaces()), json!({ "device": disk, "dry_run": true }));
    assert!(would["would"].as_str().unwrap().starts_with("serve /"), "{would}");
    let added = rig.done(&format!("POST {}", namespaces()), json!({ "device": disk }));
    assert_eq!(added["nsid"], 2, "{added}");
    assert!(added["lasts"].as_str().unwrap().contains("SIGHUP"), "{added}");
    let second = rig.open(HOST, 2).unwrap();
    let mut its = Port::open(&second, 1).unwrap();
    assert!(write(&mut its, 9) && second.geometry().volatile_write_cache);

    // The same device without its write cache, and then another one.
    let path = format!("{}/2", namespaces());
    rig.done(&format!("PUT {path}"), json!({ "device": disk, "write_cache": "off" }));
    drop((its, second));
    let second = rig.open(HOST, 2).unwrap();
    assert_eq!(first_byte(&second), 9);
    assert!(!second.geometry().volatile_write_cache);
    rig.done(&format!("PUT {path}"), json!({ "device": other }));
    let is_told = || second.remarks().iter().any(|one| one.contains("has taken the number"));
    until("the host hears of it by an event", is_told);
    assert_eq!(first_byte(&rig.open(HOST, 2).unwrap()), 0);
    let view = rig.look("/v1/target");
    let its = &view["subsystems"][0]["namespaces"][1];
    assert_eq!(
        (&its["nsid"], &its["bytes"], &its["device"]),
        (&json!(2), &json!(8 << 20), &json!(other))
    );
    assert_eq!(view["is_changed"], true);

    // One that is in use goes: commands fail, and those of another go on.
    let second = rig.open(HOST, 2).unwrap();
    let mut its = Port::open(&second, 1).unwrap();
    rig.done(&format!("DELETE {path}"), json!({}));
    assert!(!write(&mut its, 1), "it is gone");
    assert!(write(&mut port, 8), "the first is there");
    assert!(rig.open(HOST, 2).is_err());
    // Its device is free for the next one, under any number.
    drop((its, second));
    rig.done(&format!("POST {}", namespaces()), json!({ "device": other, "nsid": 5 }));
    assert_eq!(first_byte(&rig.open(HOST, 5).unwrap()), 0);
    // All may go.
    for nsid in [1, 5] {
        rig.done(&format!("DELETE {}/{nsid}", namespaces()), json!({}));
    }
    assert_eq!(rig.look("/v1/target")["subsystems"][0]["namespaces"], json!([]));
    drop((port, first));
    rig.service.close().unwrap();
}

#[test]
fn wrong_requests_change_nothing_and_say_what_to_do() {
    let rig = Rig::new();
    let post = format!("POST {}", namespaces());
    let missing = rig.scratch.path().join("missing");
    rig.refused(&post, json!({ "device": missing }), "NOT_FOUND", "missing");
    let made = format!("file:{}?capacity=8MiB", missing.display());
    rig.refused(&post, json!({ "device": made }), "NOT_FOUND", "missing");
    assert!(!missing.exists(), "no request makes a device");
    rig.refused(&post, json!({ "device": "mem:8MiB", "nsid": 1 }), "EXISTS", "replace");
    rig.refused(&post, json!({ "device": "mem:8MiB", "nsid": 0 }), "INVALID", "from 1 to 1024");
    rig.refused(&post, json!({ "device": "mem:8MiB", "nsid": 1025 }), "INVALID", "1024");
    rig.refused(&post, json!({ "device": "colour:" }), "INVALID", "colour");
    rig.refused(&post, json!({ "device": "mem:8MiB", "size": 1 }), "INVALID", "size");
    rig.refused(&post, json!({ "device": "mem:8MiB", "uuid": "x" }), "INVALID", "uuid");
    rig.refused(&post, json!({}), "INVALID", "device");
    let rehearsed = json!({ "device": "mem:8MiB", "nsid": 1025, "dry_run": true });
    rig.refused(&post, rehearsed, "INVALID", "1024");
    let unknown = "POST /v1/subsystems/nqn.2026-01.io.esker:b/namespaces";
    rig.refused(unknown, json!({ "device": "mem:8MiB" }), "NOT_FOUND", A);
    let one = format!("{}/2", namespaces());
    rig.refused(
        &format!("PUT {one}"),
        json!({ "device": "mem:8MiB" }),
        "NOT_FOUND",
        "GET /v1/target",
    );
    rig.refused(&format!("DELETE {one}"), json!({}), "NOT_FOUND", "GET /v1/target");
    rig.refused(&format!("DELETE {}/x", namespaces()), json!({}), "INVALID", "number");
    let post = format!("POST {}", hosts());
    rig.refused(&post, json!({ "nqn": "host" }), "INVALID", "NQN");
    rig.refused(&post, json!({ "nqn": "*" }), "CONFLICT", "force");
    rig.refused(&post, json!({ "nqn": OTHER, "key_file": "key" }), "INVALID", "whole path");
    let any = json!({ "nqn": "*", "key_file": missing, "force": true });
    rig.refused(&post, any, "INVALID", "no key");
    rig.refused(&post, json!({ "nqn": OTHER, "key_file": missing }), "NOT_FOUND", "missing");
    rig.refused(&format!("DELETE {}/{OTHER}", hosts()), json!({}), "NOT_FOUND", "GET /v1/target");
    rig.refused(&format!("POST /v1/hosts/{OTHER}/disconnect"), json!({}), "NOT_FOUND", "/v1/hosts");
    rig.refused("GET /v1/volumes", Value::Null, "NOT_FOUND", "GET /v1");
    rig.refused("PUT /v1/target", json!({}), "UNSUPPORTED", "GET");
    rig.service.close().unwrap();
}

#[test]
fn hosts_are_allowed_forbidden_disconnected_and_refused() {
    let rig = Rig::new();
    let post = format!("POST {}", hosts());
    assert!(rig.open(OTHER, 1).is_err() && rig.open(OTHER, 1).is_err());
    let refused = rig.look("/v1/refused");
    let row = &refused["refused"][0];
    assert_eq!((&row["host"], &row["reason"]), (&json!(OTHER), &json!("not_allowed")), "{refused}");
    assert_eq!(row["address"], "127.0.0.1");
    assert!(row["count"].as_u64().unwrap() >= 2 && row["last"].as_u64().unwrap() > 0);

    rig.done(&post, json!({ "nqn": OTHER }));
    let other = rig.open(OTHER, 1).unwrap();
    let mut port = Port::open(&other, 1).unwrap();
    assert!(write(&mut port, 1));
    let connected = rig.look("/v1/hosts");
    let row = &connected["connected"][0];
    assert_eq!((&row["host"], &row["subsystem"]), (&json!(OTHER), &json!(A)));
    assert_eq!((&row["portal"], &row["io_queues"]), (&json!(0), &json!(1)), "{connected}");
    assert!(row["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    let (controller, since) = (row["controller"].clone(), row["since"].as_u64().unwrap());
    assert!(esker_base::clock::unix_time().as_secs() - since < 60);

    // A host that is allowed connects again, as another controller.
    rig.done(&format!("POST /v1/hosts/{OTHER}/disconnect"), json!({ "subsystem": A }));
    until("the host connects again", || {
        let connected = rig.look("/v1/hosts");
        let all = connected["connected"].as_array().unwrap();
        all.iter().any(|one| one["host"] == OTHER && one["controller"] != controller)
    });
    assert!(write(&mut port, 2), "nothing is lost");

    // One that is forbidden does not.
    rig.done(&format!("DELETE {}/{OTHER}", hosts()), json!({}));
    until("the host is gone", || rig.look("/v1/hosts")["connected"] == json!([]));
    assert!(!write(&mut port, 3));
    drop((port, other));

    // A host with a key, and one that does not know it.
    let key = rig.scratch.path().join("key");
    fs::write(&key, "DHHC-1:00:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYOtVl3:\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    rig.done(&post, json!({ "nqn": OTHER, "key_file": key }));
    assert!(rig.open(OTHER, 1).is_err(), "it proves nothing");
    let config = rig.look("/v1/config").to_string();
    assert!(config.contains(key.to_str().unwrap()) && !config.contains("DHHC"), "{config}");
    // The key was read: its file may go without disturbing other changes.
    fs::remove_file(&key).unwrap();
    rig.done(&format!("POST {}", namespaces()), json!({ "device": "mem:8MiB" }));

    // Any host, and then none but those that are named.
    rig.done(&post, json!({ "nqn": "*", "force": true }));
    drop(rig.open("nqn.2026-01.io.esker:third", 1).unwrap());
    rig.refused(&post, json!({ "nqn": HOST }), "CONFLICT", "force");
    rig.done(&format!("DELETE {}/*", hosts()), json!({}));
    assert!(rig.open(HOST, 1).is_err(), "nobody may");
    rig.done(&post, json!({ "nqn": HOST }));
    drop(rig.open(HOST, 1).unwrap());
    rig.service.close().unwrap();
}

#[test]
fn portals_come_change_drain_and_go_while_a_host_writes() {
    let rig = Rig::new();
    let first = rig.address();
    let added =
        rig.done("POST /v1/portals", json!({ "listen": "127.0.0.1:0", "ana": "non-optimized" }));
    assert_eq!(added["portal"], 1, "{added}");
    let view = rig.look("/v1/target");
    assert_eq!(view["portals"][1]["ana"], "non-optimized");
    let second: SocketAddr = view["portals"][1]["listen"].as_str().unwrap().parse().unwrap();
    let host = rig.open_at(vec![first, second], HOST, 1).unwrap();
    let (end, is_over) = std::sync::mpsc::channel();
    let writer = thread::spawn("writer", move || {
        let mut port = Port::open(&host, 1).unwrap();
        let mut count = 0u64;
        while is_over.try_recv().is_err() {
            assert!(write(&mut port, 5), "after {count}");
            count += 1;
        }
        drop(port);
        (count, host)
    });
    let queues = |portal: u64| {
        let connected = rig.look("/v1/hosts");
        let all = connected["connected"].as_array().unwrap().iter();
        let its = all.filter(|one| one["portal"] == portal).map(|one| one["io_queues"].as_u64());
        its.flatten().sum::<u64>()
    };
    until("the host takes the best way", || queues(0) > 0);
    // The best way is the other one now, and then the only one.
    rig.done("PATCH /v1/portals/0", json!({ "ana": "inaccessible" }));
    until("the host takes the other way", || queues(1) > 0);
    rig.done("PATCH /v1/portals/0", json!({ "ana": "optimized" }));
    let would = rig.done("POST /v1/portals/1/drain", json!({ "dry_run": true }));
    assert!(would["would"].as_str().unwrap().contains("(portal 1) no more"), "{would}");
    let drained = rig.done("POST /v1/portals/1/drain", json!({ "secs": 20 }));
    assert!(drained["did"].as_str().unwrap().contains("no command was under way"), "{drained}");
    until("the host is back", || queues(0) > 0);
    let portals = rig.look("/v1/target")["portals"].clone();
    assert_eq!(portals.as_array().unwrap().len(), 1);
    assert!(rig.open_at(vec![second], HOST, 1).is_err(), "nobody listens there");
    let taken = std::net::TcpListener::bind(second).unwrap();
    rig.refused("POST /v1/portals", json!({ "listen": second }), "CONFLICT", "listening on");
    drop(taken);
    // A number is never another portal's, and the last one stays.
    let added = rig.done("POST /v1/portals", json!({ "listen": second }));
    assert_eq!(added["portal"], 2);
    rig.done("DELETE /v1/portals/2", json!({}));
    for head in ["DELETE /v1/portals/0", "POST /v1/portals/0/drain"] {
        rig.refused(head, json!({}), "CONFLICT", "add another one first");
    }
    rig.refused("PATCH /v1/portals/1", json!({ "ana": "optimized" }), "NOT_FOUND", "no portal 1");
    rig.refused("PATCH /v1/portals/x", json!({ "ana": "optimized" }), "INVALID", "number");
    rig.refused("PATCH /v1/portals/0", json!({ "ana": "best" }), "INVALID", "non-optimized");
    rig.refused("POST /v1/portals/0/drain", json!({ "secs": 61 }), "INVALID", "60");
    rig.refused("POST /v1/portals", json!({ "listen": first }), "EXISTS", "already");
    end.send(()).unwrap();
    let (count, host) = writer.unwrap().join().unwrap();
    assert!(count > 0);
    drop(host);
    rig.service.close().unwrap();
}

#[test]
fn drain_waits_for_commands_of_slow_devices_but_not_for_ever() {
    let rig = Rig::new();
    let slow = "ssd:micron-7450?capacity=256MiB&time=5000x";
    rig.done(&format!("POST {}", namespaces()), json!({ "device": slow }));
    let add = || {
        let added = rig.done("POST /v1/portals", json!({ "listen": "127.0.0.1:0" }));
        let view = rig.look("/v1/target");
        let portals = view["portals"].as_array().unwrap().clone();
        let it = portals.iter().find(|one| one["portal"] == added["portal"]).unwrap();
        it["listen"].as_str().unwrap().parse::<SocketAddr>().unwrap()
    };
    let portals = vec![rig.address(), add(), add()];
    for number in [1, 2] {
        rig.done(&format!("PATCH /v1/portals/{number}"), json!({ "ana": "non-optimized" }));
    }
    let host = rig.open_at(portals, HOST, 2).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let (counted, ends) = (count.clone(), is_over.clone());
    let writer = thread::spawn("writer", move || {
        let mut port = Port::open(&host, 1).unwrap();
        while !ends.load(Ordering::Relaxed) {
            assert!(write(&mut port, 5), "no write is lost");
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    // A write has ended: the next one takes a while.
    let just_begun = || {
        let before = count.load(Ordering::Relaxed);
        until("a write ends", || count.load(Ordering::Relaxed) > before);
        Clock::real().sleep(Duration::from_millis(20));
    };
    let drain = |portal: u64, secs: u64| {
        let head = format!("POST /v1/portals/{portal}/drain");
        rig.send(&head, "", &json!({ "secs": secs }).to_string())
    };
    just_begun();
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| drain(0, 20));
        until("it is inaccessible", || {
            rig.look("/v1/target")["portals"][0]["ana"] == "inaccessible"
        });
        rig.done("PATCH /v1/portals/0", json!({ "ana": "optimized" }));
        let clock = Clock::real();
        let set_back = clock.now();
        let (status, answer) = drained.join().unwrap();
        assert_eq!(status, 409, "{answer}");
        assert!(clock.now().since(set_back) < Duration::from_secs(10), "nothing is waited for");
        assert!(answer["error"]["message"].as_str().unwrap().contains("it stays"), "{answer}");
    });
    let in_use = || {
        let connected = rig.look("/v1/hosts");
        let mut all = connected["connected"].as_array().unwrap().iter();
        let found = all.find(|one| one["io_queues"] != 0).unwrap_or_else(|| panic!("{connected}"));
        found["portal"].as_u64().unwrap()
    };
    just_begun();
    let (_, drained) = drain(in_use(), 20);
    assert!(drained["did"].as_str().unwrap().contains("no command was under way"), "{drained}");
    just_begun();
    let (_, drained) = drain(in_use(), 0);
    let did = drained["did"].as_str().unwrap();
    assert!(did.contains("1 command under way: devices finish them"), "{drained}");
    just_begun();
    is_over.store(true, Ordering::Relaxed);
    writer.unwrap().join().unwrap();
    rig.service.close().unwrap();
}

#[test]
fn configuration_in_force_starts_a_target_that_is_the_same() {
    let rig = Rig::new();
    let disk = rig.file("disk", 8);
    rig.done(
        &format!("POST {}", namespaces()),
        json!({ "device": disk, "nsid": 7, "write_cache": "off" }),
    );
    rig.done(&format!("POST {}", hosts()), json!({ "nqn": OTHER }));
    rig.done("POST /v1/portals", json!({ "listen": "127.0.0.1:0", "ana": "inaccessible" }));
    let file = rig.look("/v1/config");
    let config: esker_serve::target::file::TargetFile =
        serde_json::from_value(file.clone()).unwrap();
    let path = rig.scratch.path().join("target.toml");
    fs::write(&path, toml::to_string(&config).unwrap()).unwrap();
    let status = |rig: &Rig| {
        let view = rig.look("/v1/target");
        (view["portals"].clone(), view["subsystems"].clone())
    };
    let before = status(&rig);
    let Rig { scratch, service } = rig;
    service.close().unwrap();
    let plain = options(scratch.path().join("run/control.sock"));
    let plain = TargetOptions { listen: Vec::new(), devices: Vec::new(), subsystem: None, ..plain };
    let options = TargetOptions { allow: Vec::new(), config: Some(path), ..plain };
    let rig = Rig { service: start(options).unwrap(), scratch };
    assert_eq!(status(&rig), before);
    assert_eq!(rig.look("/v1/config"), file);
    assert_eq!(rig.look("/v1/target")["is_changed"], false);
    rig.service.close().unwrap();
}

#[test]
fn repeated_change_is_made_once_and_two_clients_at_once_lose_nothing() {
    let rig = Rig::new();
    let (post, body) =
        (format!("POST {}", namespaces()), json!({ "device": "mem:8MiB" }).to_string());
    let key = "Idempotency-Key: nightly-7\r\n";
    let first = rig.send(&post, key, &body);
    assert_eq!(first.0, 200, "{}", first.1);
    assert_eq!(rig.send(&post, key, &body), first, "it is made once");
    let (status, other) = rig.send(&post, key, &json!({ "device": "mem:9MiB" }).to_string());
    assert_eq!((status, &other["error"]["code"]), (409, &json!("CONFLICT")));
    let (status, _) = rig.send(&post, "Idempotency-Key: op-1\r\n", &body);
    assert_eq!(status, 400);

    let rig = Arc::new(rig);
    let client = |begin: u32| {
        let rig = rig.clone();
        thread::spawn("client", move || {
            for nsid in begin..begin + 20 {
                let body = json!({ "device": "mem:1MiB", "nsid": nsid });
                rig.done(&format!("POST {}", namespaces()), body);
                let host = format!("nqn.2026-01.io.esker:host{nsid}");
                rig.done(&format!("POST {}", hosts()), json!({ "nqn": host }));
            }
            // Both want this one.
            let body = json!({ "device": "mem:1MiB", "nsid": 900 });
            rig.send(&format!("POST {}", namespaces()), "", &body.to_string()).0
        })
        .unwrap()
    };
    let clients = [client(100), client(200)];
    let mut outcomes: Vec<u16> = clients.into_iter().map(|one| one.join().unwrap()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, [200, 409]);
    let its = &rig.look("/v1/target")["subsystems"][0];
    assert_eq!(its["namespaces"].as_array().unwrap().len(), 2 + 40 + 1);
    assert_eq!(its["hosts"].as_array().unwrap().len(), 1 + 40);
    Arc::into_inner(rig).unwrap().service.close().unwrap();
}

#[test]
fn socket_is_its_owners_and_clients_that_misbehave_disturb_no_other() {
    let rig = Rig::new();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(rig.socket()), mode(rig.scratch.path().join("run"))), (0o600, 0o700));
    // One more server at the socket, and a path that is too long or no socket.
    let error = start(options(rig.socket())).err().unwrap();
    assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("end it first"));
    let long = rig.scratch.path().join("x".repeat(120));
    let error = start(options(long)).err().unwrap().to_string();
    assert!(error.contains("--control"), "{error}");
    let error = start(options(rig.file("plain", 1).into())).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Exists);

    // Half a request, one that stays silent, one whose body is huge.
    let mut half = UnixStream::connect(rig.socket()).unwrap();
    write!(half, "POST {} HTTP/1.1\r\nContent-Length: 100\r\n\r\n{{\"device\"", namespaces())
        .unwrap();
    let _silent = UnixStream::connect(rig.socket()).unwrap();
    let (status, answer) = rig.send("POST /v1/hosts/x/disconnect", "", &"x".repeat((1 << 20) + 1));
    assert_eq!((status, &answer["error"]["code"]), (413, &json!("INVALID")));
    let mut claims = UnixStream::connect(rig.socket()).unwrap();
    write!(claims, "POST /v1 HTTP/1.0\r\nContent-Length: 99999999999\r\n\r\n").unwrap();
    assert_eq!(self::answer(&mut claims).0, 413);
    let (status, _) = rig.send(&format!("POST {}", namespaces()), "", "{ no json");
    assert_eq!(status, 400);
    drop(half);
    assert_eq!(rig.look("/v1/target")["is_changed"], false);

    // A key that is no file is refused, and waited for by nobody.
    let pipe = rig.scratch.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (status, answer) = rig.send(
        &format!("POST {}", hosts()),
        "",
        &json!({ "nqn": OTHER, "key_file": pipe }).to_string(),
    );
    assert_ne!(status, 200, "{answer}");

    // The socket of a process that was killed is taken over.
    let stale = rig.scratch.path().join("run/stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    start(options(stale.clone())).unwrap().close().unwrap();
    assert!(!stale.exists());
    rig.service.close().unwrap();
}

#[test]
fn clients_over_tcp_need_the_token() {
    let scratch = tempfile::tempdir().unwrap();
    let (token, any) = (scratch.path().join("token"), SocketAddr::from(([127, 0, 0, 1], 0)));
    let plain = options(scratch.path().join("control.sock"));
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let wide = TargetOptions { api: Some((open, token.clone())), ..plain.clone() };
    assert!(start(wide).err().unwrap().to_string().contains("say a loopback address"));
    let service = start(TargetOptions { api: Some((any, token.clone())), ..plain }).unwrap();
    let greeting = service.greeting();
    let line = greeting.lines().find_map(|line| line.strip_prefix("requests at http://")).unwrap();
    let address: SocketAddr = line.split('/').next().unwrap().parse().unwrap();
    let send = |said: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET /v1/target HTTP/1.0\r\n{said}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let right = fs::read_to_string(&token).unwrap();
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(send(&format!("Authorization: Bearer {}\r\n", right.trim())), "200");
    for wrong in ["", "Authorization: Bearer \r\n", "Authorization: Bearer 0123456789abcdef\r\n"] {
        assert_eq!(send(wrong), "401", "{wrong}");
    }
    service.close().unwrap();
}
