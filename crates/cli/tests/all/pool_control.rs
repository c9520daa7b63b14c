//! The control surface of a pool: volumes through its server, verbs, figures, keys, processors, requests over TCP.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::common::tank::{HOST, Tank};
use crate::common::{Scratch, run, skip_without_mounts, text};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Create, Device, Port};
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_stack::{Spec, Stack};
use serde_json::Value;

const BLOCK: usize = 4096;

fn open(text: &str) -> std::sync::Arc<dyn Device> {
    Stack::new().open(&text.parse::<Spec>().unwrap(), Create::Never).unwrap().device
}

fn write(device: &dyn Device, block: u64, byte: u8) {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    buf.fill(byte);
    Port::open(device, 1).unwrap().write(Lba(block), buf, None).unwrap();
}

fn read(device: &dyn Device, block: u64) -> u8 {
    Port::open(device, 1).unwrap().read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap()[0]
}

/// Writes so many blocks of `tank/db` that nothing compresses.
fn fill(tank: &Tank, blocks: u64) {
    let volume = open(&format!("volume:tank/db?socket={}", tank.socket()));
    let mut port = Port::open(&*volume, 1).unwrap();
    let mut rng = esker_base::Rng::new(1);
    for block in 0..blocks {
        let mut buf = AlignedBuf::zeroed(BLOCK);
        rng.fill(&mut buf);
        port.write(Lba(block), buf, None).unwrap();
    }
}

#[test]
fn volume_of_a_served_pool_is_opened_through_its_server() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    let spec = format!("volume:tank/db?socket={}", tank.socket());
    let hosts = || tank.json("volume show tank/db")["hosts"].as_array().unwrap().len();
    {
        let (one, two) = (open(&spec), open(&spec));
        write(&*one, 3, 7);
        assert_eq!((read(&*two, 3), hosts()), (7, 2), "each has a host of its own");
        let mut port = Port::open(&*two, 1).unwrap();
        drop((one, two));
        let buf = port.read(Lba(3), AlignedBuf::zeroed(BLOCK)).unwrap();
        assert_eq!((buf[0], hosts()), (7, 1), "a queue pair keeps its host");
    }
    assert_eq!(hosts(), 0, "they let go");
    tank.ask("volume snapshot tank/db@then").succeeds();
    {
        let (now, then) = (open(&spec), open(&spec.replace("db?", "db@then?")));
        write(&*now, 3, 8);
        assert_eq!((read(&*now, 3), read(&*then, 3)), (8, 7));
        let mut port = Port::open(&*then, 1).unwrap();
        assert!(port.write(Lba(0), AlignedBuf::zeroed(BLOCK), None).is_err(), "it is read-only");
    }
    // The drives are named, and another process has them: it is asked.
    let drives: String = tank.drives().iter().map(|drive| format!("({drive})")).collect();
    let named = format!("volume:tank/db?drives={drives}&socket={}", tank.socket());
    assert_eq!(read(&*open(&named), 3), 8);
    let elsewhere = named.replace("tank.sock", "none.sock");
    let db = text(&tank.0.path("db"));
    run(["kv", "create", &db, "--capacity", &elsewhere])
        .fails(77, &["open in another process", "none.sock", "end that process"]);
    run(["kv", "create", &db, "--capacity", &spec.replace("tank.sock", "none.sock")])
        .fails(66, &["none is served at", "none.sock", "drives=", "esker pool serve tank"]);
    run(["kv", "create", &db, "--capacity", &spec.replace("/db", "/none")])
        .fails(66, &["no volume 'none'"]);
    run(["kv", "create", &db, "--capacity", &spec]).succeeds();
    run(["kv", "put", &db, "default", "hello", "world"]).succeeds();
    assert_eq!(run(["kv", "get", &db, "default", "hello"]).succeeds().out().trim(), "world");
    assert_eq!(running.end(), Some(0));
    // Nobody serves it: it is opened by its drives.
    assert_eq!(run(["kv", "get", &db, "default", "hello"]).code, Some(66));
    let drives = format!("volume:tank/db@then?drives={drives}");
    assert_eq!(read(&*open(&drives), 3), 7);
}

#[test]
fn device_goes_on_when_its_server_was_killed() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    let volume = open(&format!("volume:tank/db?socket={}", tank.socket()));
    write(&*volume, 1, 1);
    let address = running.address.clone();
    running.kill();
    let running = tank.serve_at(&address);
    write(&*volume, 2, 2);
    assert_eq!((read(&*volume, 1), read(&*volume, 2)), (1, 2));
    drop(volume);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn volume_is_attached_through_its_server() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    let at = text(&tank.0.path("at"));
    fs::create_dir(&at).unwrap();
    let mut child = crate::common::esker()
        .args(["volume", "attach", "tank/db", &at, "--socket", &tank.socket()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    if line.is_empty() {
        skip_without_mounts(&mut child);
        return;
    }
    assert!(line.contains("8.00 MiB in LBAs of 4096 bytes"), "{line}");
    let path = format!("{at}/disk");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"hello", 5000).unwrap();
    drop(file);
    run(["detach", &at]).succeeds();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let volume = open(&format!("volume:tank/db?socket={}", tank.socket()));
    let buf = Port::open(&*volume, 1).unwrap().read(Lba(1), AlignedBuf::zeroed(BLOCK)).unwrap();
    assert_eq!(&buf[904..909], b"hello");
    drop(volume);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn volumes_are_limited_watched_and_explained() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    tank.ask("volume limit tank/db --iops 20 --bandwidth 1GiB --dry-run").succeeds();
    assert_eq!(tank.json("volume show tank/db")["iops_limit"], 0);
    let shown = tank.ask("volume limit tank/db --iops 20 --bandwidth 1GiB").succeeds().out();
    assert!(shown.contains("limits: 20 operations, 1.00 GiB a second"), "{shown}");
    tank.ask("volume limit tank/db").fails(64, &["--iops"]);
    let volume = open(&format!("volume:tank/db?socket={}", tank.socket()));
    let mut port = Port::open(&*volume, 1).unwrap();
    let clock = Clock::real();
    let start = clock.now();
    for block in 0..20 {
        port.write(Lba(block), AlignedBuf::zeroed(BLOCK), None).unwrap();
    }
    assert!(clock.now().since(start).as_millis() > 700, "20 operations at 20 a second");
    let explained = tank.json("pool explain tank --volume db");
    assert_eq!(explained["slowest"], "limit", "{explained:#}");
    let finding = explained["findings"][0].as_str().unwrap();
    assert!(finding.contains("esker volume limit tank/db"), "{finding}");
    let table = tank.ask("pool explain tank --volume db").succeeds().out();
    for words in ["writes", "limit", "buffer", "log", "p99.9", "≤"] {
        assert!(table.contains(words), "no '{words}' in\n{table}");
    }
    assert!(tank.ask("pool explain tank").succeeds().out().contains("db"));
    let writer = esker_base::thread::spawn("writer", move || {
        for block in 0..40 {
            port.write(Lba(block), AlignedBuf::zeroed(BLOCK), None).unwrap();
        }
    });
    let top = tank.json("volume top tank --once --interval 0.5");
    let writes = top["volumes"][0]["writes"].as_u64().unwrap();
    assert!((3..=35).contains(&writes), "{top:#}");
    let latency = &top["volumes"][0]["write_latency"];
    assert_eq!(latency["count"], writes);
    assert!(latency["p50_ns"].as_u64().unwrap() > 1_000_000, "{latency}");
    let top = tank.ask("volume top tank --once --interval 0.2").succeeds().out();
    assert!(top.contains("writes/s") && top.contains("db") && top.contains("≤"), "{top}");
    assert!(top.lines().all(|line| line.chars().count() <= 100), "{top}");
    writer.unwrap().join().unwrap();
    let status = running.page("/status");
    assert!(status.contains("latency: p50 ≤") && status.contains(", p99.9 ≤"), "{status}");
    let text = running.metrics_text();
    for line in [
        "esker_pool_write_amplification_ratio{cause=\"metadata\"}",
        "esker_pool_stage_latency_seconds_count{volume=\"db\",stage=\"limit\"}",
        "esker_pool_stage_latency_seconds_bucket{volume=\"db\",stage=",
        "esker_pool_volume_writes_total{volume=\"db\"} 60",
        "esker_pool_volume_latency_seconds_sum{volume=\"db\",operation=\"write\"}",
        "esker_pool_buffer_used_bytes",
        "esker_pool_rebuild_remaining_segments 0",
        "esker_pool_scrub_running 0",
        "esker_pool_checksum_errors_total{drive=\"2\"} 0",
        "esker_pool_drive_state{drive=\"0\",state=\"online\"} 1",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert_eq!(running.end(), Some(0));
}

#[test]
fn forecasts_are_told_and_come_true() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    fill(&tank, 512);
    tank.ask("volume snapshot tank/db@s").succeeds();
    assert_eq!(tank.json("pool explain tank --if-deleted db@s")["freed"], 0);
    let said = tank.json("pool explain tank --if-deleted db")["freed"].as_u64().unwrap();
    assert!(said >= 512 * 4096, "{said}");
    let loss = tank.json("pool explain tank --if-fails 1");
    assert_eq!((&loss["beyond_repair"], &loss["opens"]), (&0.into(), &true.into()));
    assert!(loss["segments"][1].as_u64().unwrap() > 0 && loss["to_move"].as_u64().unwrap() > 0);
    let told = tank.ask("pool explain tank --if-fails 1").succeeds().out();
    assert!(told.contains("nothing would be lost"), "{told}");
    tank.ask("pool explain tank --if-fails 9").fails(66, &["no drive '9'"]);
    tank.ask("pool explain tank --if-deleted none").fails(66, &["no volume 'none'"]);
    let before = tank.json("pool status tank")["space"]["live"].as_u64().unwrap();
    tank.ask("volume delete tank/db --keep 0 --wait --operation bye").succeeds();
    let after = tank.json("pool status tank")["space"]["live"].as_u64().unwrap();
    assert_eq!(before - after, said);
    let operation = tank.json("pool operations tank --id bye");
    assert_eq!(
        (&operation["state"], &operation["request"]),
        (&"done".into(), &"DELETE /v1/volumes/db".into())
    );
    assert!(tank.ask("pool operations tank").succeeds().out().contains("bye"));
    tank.ask("pool operations tank --id none").fails(66, &["no operation 'none'"]);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn volume_in_use_is_deleted_only_when_that_is_said() {
    let tank = Tank::new();
    let running = tank.serve();
    for name in ["db", "other"] {
        tank.ask(&format!("volume create tank/{name} --size 8MiB")).succeeds();
        tank.ask(&format!("volume export tank/{name} --host {HOST}")).succeeds();
    }
    tank.ask("volume snapshot tank/db@s").succeeds();
    let other = running.open("other").unwrap();
    write(&other, 1, 9);
    let host = running.open("db").unwrap();
    write(&host, 1, 5);
    let nqn = "nqn.2026-01.io.esker:tank:db";
    let words = [HOST, &format!("nvme disconnect -n {nqn}"), "--force"];
    for args in ["", " --keep 0", " --dry-run"] {
        tank.ask(&format!("volume delete tank/db{args}")).fails(77, &words);
    }
    let (status, answer) = tank.request("DELETE /v1/volumes/db", "{}");
    assert_eq!((status.as_str(), &answer["error"]["code"]), ("409", &"CONFLICT".into()));
    tank.ask("volume delete tank/db@s --dry-run").succeeds(); // nobody has the snapshot
    let would = tank.ask("volume delete tank/db --force --dry-run").succeeds().out();
    assert!(would.contains(&format!("{HOST} would lose it")), "{would}");
    assert_eq!(read(&host, 1), 5);
    // Attached, or open, on this machine.
    tank.ask("volume export tank/other --nobody --force").succeeds();
    let spec = format!("volume:tank/other?socket={}", tank.socket());
    let here = open(&spec);
    assert_eq!(read(&*here, 1), 9);
    tank.ask("volume delete tank/other").fails(77, &["esker detach", "--force"]);
    let snapshot = format!("volume:tank/db@s?socket={}", tank.socket());
    let then = open(&snapshot);
    assert_eq!(read(&*then, 1), 0);
    tank.ask("volume delete tank/db@s").fails(77, &["db@s is in use", "esker detach"]);
    drop((here, then));
    tank.ask("volume delete tank/other").succeeds();
    tank.ask("volume delete tank/db@s").succeeds();
    tank.ask("volume delete tank/db --force --keep 0").succeeds();
    assert!(running.open("db").is_err());
    drop((host, other));
    assert_eq!(running.end(), Some(0));
}

#[test]
fn drive_is_retired_where_the_others_have_room() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 64MiB").succeeds();
    let usable = tank.json("pool status tank")["space"]["usable"].as_u64().unwrap();
    fill(&tank, usable / 4 * 3 / BLOCK as u64);
    for how in ["", " --dry-run"] {
        tank.ask(&format!("pool retire tank 1{how}"))
            .fails(73, &["add a drive of ", "discard or delete"]);
    }
    let state = |drive: usize| tank.json("pool status tank")["members"][drive]["state"].clone();
    assert_eq!(state(1), "online", "nothing was changed");
    let told = tank.ask("pool retire tank 1 --cancel").succeeds().out();
    assert!(told.contains("drive 1 of tank stays"), "{told}");
    let more = text(&tank.0.path("d3"));
    File::create(&more).unwrap().set_len(24 << 20).unwrap();
    tank.ask(&format!("pool add tank {more}")).succeeds();
    tank.ask("pool retire tank 1 --wait").succeeds();
    assert_eq!(state(1), "retired");
    tank.ask("pool retire tank 1 --cancel").fails(77, &["retired already", "`add`"]);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn configuration_makes_the_same_pool_again() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB --iops 100").succeeds();
    tank.ask("volume create tank/log --size 4MiB --no-compression").succeeds();
    tank.ask(&format!("volume export tank/db --host {HOST}")).succeeds();
    let toml = tank.ask("pool export-config tank").succeeds().out();
    let json = tank.json("pool export-config tank");
    assert_eq!(running.end(), Some(0));
    let scratch = Scratch::new();
    let other = |text: &str| {
        tank.drives().iter().enumerate().fold(text.to_owned(), |text, (number, drive)| {
            let copy = scratch.path(&format!("d{number}"));
            if !copy.exists() {
                File::create(&copy).unwrap().set_len(24 << 20).unwrap();
            }
            text.replace(drive, copy.to_str().unwrap())
        })
    };
    let path = text(&scratch.path("tank.toml"));
    fs::write(&path, other(&toml)).unwrap();
    run(["pool", "create", "--config", &path, "--dry-run"]).succeeds();
    let made = run(["pool", "create", "--config", &path]).succeeds().out();
    assert!(made.contains("3 drives and 2 volumes"), "{made}");
    run(["pool", "create", "--config", &path]).fails(73, &["belongs to pool 'tank'"]);
    let drives = (0..3).map(|number| text(&scratch.path(&format!("d{number}"))));
    let mut args = vec!["pool".to_owned(), "export-config".into(), "tank".into(), "--json".into()];
    args.push("--drives".into());
    args.extend(drives);
    let again: Value = serde_json::from_str(&run(&args).succeeds().out()).unwrap();
    let expected: Value = serde_json::from_str(&other(&json.to_string())).unwrap();
    assert_eq!(again, expected);
    fs::write(&path, "pool = \"x\"\ncolor = 1").unwrap();
    run(["pool", "create", "--config", &path]).fails(64, &["tank.toml", "color"]);
    // JSON is taken, too.
    fs::write(&path, expected.to_string()).unwrap();
    let made = run(["pool", "create", "--config", &path, "--overwrite", "--json"]).succeeds().out();
    assert_eq!(serde_json::from_str::<Value>(&made).unwrap(), expected);
}

#[test]
fn hosts_have_keys_which_no_answer_shows() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    let key = text(&tank.0.path("host.key"));
    let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+pUl/1:";
    let secret = esker_nvmf::auth::Secret::parse(secret)
        .unwrap_or_else(|_| esker_nvmf::auth::Secret::new(&[7; 32], None));
    fs::write(&key, secret.to_text()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let export = format!("volume export tank/db --host {HOST} --key {key}");
    tank.ask(&export).fails(64, &["host.key"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    tank.ask(&export.replace("host.key", "none.key")).fails(66, &["none.key"]);
    assert_eq!(tank.json("volume show tank/db")["hosts"], Value::Array(Vec::new()));
    tank.ask(&export).succeeds();
    let opened = |with_key: bool| {
        let address = running.address.parse().unwrap();
        let config =
            InitiatorConfig::new(vec![address], "nqn.2026-01.io.esker:tank:db", 1).unwrap();
        let secret = with_key.then(|| secret.clone());
        Initiator::open(InitiatorConfig { host_nqn: HOST.to_owned(), secret, ..config })
    };
    assert!(opened(false).is_err(), "a host without its key");
    drop(opened(true).unwrap());
    let shown = tank.ask("volume show tank/db").succeeds().out();
    assert!(shown.contains("(with a key)"), "{shown}");
    let (_, exports) = tank.request("GET /v1/exports", "");
    let (_, volumes) = tank.request("GET /v1/volumes", "");
    let (_, operations) = tank.request("GET /v1/operations", "");
    let (_, config) = tank.request("GET /v1/config", "");
    for answer in [exports, volumes, operations, config] {
        assert!(!answer.to_string().contains(&secret.to_text()[10..30]), "{answer}");
        assert!(answer.to_string().contains("host.key"), "{answer}");
    }
    // A key that cannot be read any more lets nobody in, and is told of.
    assert_eq!(running.end(), Some(0));
    fs::remove_file(&key).unwrap();
    let running = tank.serve();
    assert!(running.open("db").is_err());
    let alarm = tank.json("pool status tank")["alarms"][0].clone();
    assert_eq!(alarm["code"], "HOST_KEY_UNREADABLE");
    assert!(alarm["command"].as_str().unwrap().starts_with("esker volume export tank/db --host"));
    assert_eq!(running.end(), Some(0));
}

/// `cargo test -p esker-cli --features tls --test all pool_control::`.
#[cfg(feature = "tls")]
#[test]
fn volumes_are_exported_over_tls_with_the_key_of_each_host() {
    use esker_nvmf::tls::TlsKey;
    let tank = Tank::new();
    let drives = tank.drives();
    let running = tank.serve_with(&drives, &["--listen-tls", "127.0.0.1:0"]);
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    let second = "nqn.2026-01.io.esker:second";
    let key = |byte: u8| TlsKey::new(&[byte; 32], false).unwrap();
    let keep = |name: &str, byte: u8| {
        let path = text(&tank.0.path(name));
        fs::write(&path, key(byte).to_text()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (one, two) = (keep("one.key", 1), keep("two.key", 2));
    tank.ask(&format!("volume export tank/db --host {HOST} --tls-key {one}")).succeeds();
    let body = serde_json::json!({ "nqn": second, "tls_key_file": two }).to_string();
    let (status, answer) = tank.request("POST /v1/volumes/db/hosts", &body);
    assert_eq!(status, "200", "{answer}");
    let (_, exports) = tank.request("GET /v1/exports", "");
    let tls = exports[0]["tls_addresses"][0].as_str().unwrap().to_owned();
    assert_ne!(tls, running.address);
    assert!(!exports.to_string().contains(&key(1).to_text()[16..40]), "{exports}");
    let opened = |address: &str, host: &str, tls_key: Option<TlsKey>| {
        let address = vec![address.parse().unwrap()];
        let config = InitiatorConfig::new(address, "nqn.2026-01.io.esker:tank:db", 1).unwrap();
        Initiator::open(InitiatorConfig { host_nqn: host.to_owned(), tls_key, ..config })
    };
    for (host, byte) in [(HOST, 1), (second, 2)] {
        let volume = opened(&tls, host, Some(key(byte))).unwrap();
        write(&volume, u64::from(byte), byte);
        assert_eq!(read(&volume, u64::from(byte)), byte);
    }
    // A wrong key, the other host's, none; and none of them without TLS.
    for (host, byte) in [(HOST, 9), (HOST, 2), (second, 1), ("nqn.2026-01.io.esker:third", 1)] {
        let error = opened(&tls, host, Some(key(byte))).err().expect("refused").to_string();
        assert!(error.contains("TLS"), "{host} with {byte}: {error}");
    }
    assert!(opened(&tls, HOST, None).is_err());
    assert!(opened(&running.address, HOST, None).is_err());
    assert!(opened(&running.address, HOST, Some(key(1))).is_err());
    // The next server lets them in again, and one that was taken off no more.
    let (status, _) = tank.request(&format!("DELETE /v1/volumes/db/hosts/{HOST}"), "{}");
    assert_eq!(status, "200");
    running.kill();
    let running = tank.serve_with(&drives, &["--listen-tls", &tls]);
    assert!(opened(&tls, HOST, Some(key(1))).is_err());
    let volume = opened(&tls, second, Some(key(2))).unwrap();
    assert_eq!((read(&volume, 1), read(&volume, 2)), (1, 2));
    drop(volume);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn requests_over_tcp_need_the_token() {
    let tank = Tank::new();
    let token = text(&tank.0.path("token"));
    let more = ["--api", "127.0.0.1:0", "--api-token", &token];
    let running = tank.serve_with(&tank.drives(), &more);
    let line = running.said.lines().find_map(|line| line.strip_prefix("requests at http://"));
    let address = line.unwrap().strip_suffix("/v1").unwrap().to_owned();
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    let word = fs::read_to_string(&token).unwrap().trim().to_owned();
    let ask = |header: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /v1/pool HTTP/1.0\r\n{header}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(ask(""), "401");
    assert_eq!(ask("Authorization: Bearer wrong\r\n"), "401");
    assert_eq!(ask(&format!("Authorization: Bearer {}\r\n", &word[1..])), "401");
    assert_eq!(ask(&format!("Authorization: Bearer {word}\r\n")), "200");
    assert_eq!(running.end(), Some(0));
    let serve = |api: &str, token: &str| {
        let mut args = vec!["pool".to_owned(), "serve".into(), "tank".into()];
        args.extend([
            "--socket".to_owned(),
            tank.socket(),
            "--listen".into(),
            "127.0.0.1:0".into(),
        ]);
        args.extend(["--metrics", "127.0.0.1:0", "--for", "1", "--api", api].map(str::to_owned));
        args.extend(["--api-token".to_owned(), token.to_owned(), "--drives".to_owned()]);
        args.extend(tank.drives());
        run(args)
    };
    serve("0.0.0.0:0", &token).fails(64, &["loopback"]);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
    serve("127.0.0.1:0", &token).fails(64, &["others can read it", "chmod 600"]);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&token, "short").unwrap();
    serve("127.0.0.1:0", &token).fails(64, &["32 characters"]);
}

/// On which processors the threads of a process may run.
fn processors(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let line = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    status.map(line).collect()
}

#[test]
fn two_pools_run_on_two_sets_of_processors() {
    let all = processors(std::process::id());
    let first = all[0].split([',', '-']).next().unwrap().to_owned();
    let last = all[0].split([',', '-']).next_back().unwrap().to_owned();
    let (one, two) = (Tank::new(), Tank::new());
    let first_running = one.serve_with(&one.drives(), &["--cpus", &first, "--workers", "2"]);
    let last_running = two.serve_with(&two.drives(), &["--cpus", &last]);
    for (tank, running, cpu) in [(&one, &first_running, &first), (&two, &last_running, &last)] {
        tank.ask("volume create tank/db --size 4MiB").succeeds();
        write(&*open(&format!("volume:tank/db?socket={}", tank.socket())), 0, 1);
        let found = processors(running.child.id());
        assert!(found.len() > 6 && found.iter().all(|on| on == cpu), "{cpu}: {found:?}");
    }
    if first == last {
        eprintln!("SKIPPED: this machine has one processor, so both pools ran on it");
    }
    let drives = one.drives();
    for (list, words) in
        [("x", "0-3,8"), ("3-1", "0-3,8"), ("99999", "0-3,8"), ("1000", "this machine has")]
    {
        let mut args = vec!["pool", "serve", "tank", "--cpus", list, "--drives"];
        args.extend(drives.iter().map(String::as_str));
        run(args).fails(64, &[words]);
    }
    assert_eq!((first_running.end(), last_running.end()), (Some(0), Some(0)));
}
