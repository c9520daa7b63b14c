//! A pool service in this process: it answers over HTTP at its socket, exports a volume, and ends. Signals are of the
//! whole process, so this file has one test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, ErrorKind, Lba, thread};
use esker_device::{Create, Port};
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_serve::events::Waiting;
use esker_serve::pool::{PoolOptions, PoolService, Served};
use esker_stack::served::{NoAnswer, Patience, ask};
use esker_stack::{Spec, Stack, VolumeSpec};
use esker_volume::{CreateOptions, Pool};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The specification of a new pool of three drives in files.
fn pool(stack: &Stack, folder: &Path) -> VolumeSpec {
    let drive = |name: &str| format!("file:{}?capacity=24MiB", folder.join(name).display()).parse();
    let drives: Vec<Spec> = ["a", "b", "c"].map(|name| drive(name).unwrap()).to_vec();
    let open = |spec| stack.open(spec, Create::IfMissing).unwrap().device;
    let devices: Vec<_> = drives.iter().map(open).collect();
    let options = CreateOptions {
        name: "tank".to_owned(),
        chunk_bytes: 256 << 10,
        log_bytes: 2 << 20,
        ..CreateOptions::default()
    };
    Pool::create(&devices, &[], &options).unwrap();
    VolumeSpec::of_pool("tank", &drives, &[])
}

fn request(socket: &Path, method: &str, url: &str, body: &Value) -> Result<Value, NoAnswer> {
    ask(socket, method, url, None, body, Patience::default())
}

/// The answer to a request at an address, with its head.
fn get(address: &str, path: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n{header}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The rest of the line that begins so, up to a slash.
fn place<'a>(greeting: &'a str, start: &str) -> &'a str {
    let rest = greeting.lines().find_map(|line| line.strip_prefix(start)).unwrap();
    rest.split('/').next().unwrap()
}

/// Uses the pool as clients and a host do.
fn use_it(socket: &Path, token: &Path, greeting: &str) {
    let status = request(socket, "GET", "/v1/pool", &Value::Null).unwrap();
    assert_eq!((&status["name"], &status["state"]), (&json!("tank"), &json!("online")));
    let body = json!({ "name": "db", "bytes": 1 << 20 });
    let made = request(socket, "POST", "/v1/volumes", &body).unwrap();
    assert_eq!((&made["name"], &made["operation"]), (&json!("db"), &json!("op-1-1")));
    let refused = request(socket, "GET", "/v1/volumes/other", &Value::Null).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let body = json!({ "hosts": [{ "nqn": "*" }] });
    request(socket, "PATCH", "/v1/volumes/db", &body).unwrap();

    let address = place(greeting, "listening on ").parse().unwrap();
    let config = InitiatorConfig::new(vec![address], "nqn.2026-01.io.esker:tank:db", 1).unwrap();
    let volume = Initiator::open(config).unwrap();
    let mut port = Port::open(&volume, 1).unwrap();
    port.write(Lba(1), AlignedBuf::zeroed(4096), None).unwrap();
    drop((port, volume));

    let requests = place(greeting, "requests at http://");
    assert!(get(requests, "/v1", "").starts_with("HTTP/1.0 401"));
    let token = std::fs::read_to_string(token).unwrap();
    let header = format!("Authorization: Bearer {}\r\n", token.trim());
    assert!(get(requests, "/v1", &header).starts_with("HTTP/1.0 200"));
    let metrics = get(place(greeting, "metrics at http://"), "/metrics", "");
    assert!(metrics.contains("\nesker_pool_volume_writes_total{volume=\"db\"} 1\n"), "{metrics}");
}

#[test]
fn pool_answers_at_its_socket_exports_a_volume_and_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let stack = Arc::new(Stack::new());
    let spec = pool(&stack, scratch.path());
    let (socket, token): (PathBuf, _) =
        (scratch.path().join("run/tank.sock"), scratch.path().join("token"));
    let options = PoolOptions {
        pool: spec.clone(),
        socket: socket.clone(),
        api: Some((any_port(), token.clone())),
        listen: vec![any_port()],
        listen_tls: Vec::new(),
        workers: None,
        cpus: Vec::new(),
        metrics: any_port(),
        commit: "0123456789ab",
    };
    let tell = |_: esker_serve::events::Told<'_>| {};
    // Whatever is waited for in vain ends with the time.
    let mut events = Waiting::new(Some(Duration::from_secs(60))).unwrap();
    let service = PoolService::start(&options, stack.clone(), &tell).unwrap();
    let (at, greeting) = (socket.clone(), service.greeting().to_owned());
    let client = thread::spawn("client", move || {
        use_it(&at, &token, &greeting);
        kill_process(getpid(), Signal::TERM).unwrap();
    });
    service.run(&mut events, &tell);
    client.unwrap().join().unwrap();
    service.close().unwrap();
    assert!(!socket.exists());
    let served = Served::new(stack.clone(), stack.pool(&spec).unwrap());
    let list = served.ask("/v1/volumes").unwrap();
    assert_eq!(list["volumes"][0]["name"], "db");
}
