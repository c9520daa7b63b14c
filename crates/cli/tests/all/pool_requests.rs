//! Requests to a pool that would disturb its users, that say extreme numbers, or that name a file or a device which
//! never answers.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::tank::{HOST, Tank};
use crate::common::{esker, run, skip_without_mounts, text};
use esker_base::{AlignedBuf, Clock, Lba, thread};
use esker_device::{Create, Device, Port};
use esker_stack::{Spec, Stack};
use serde_json::{Value, json};

const BLOCK: usize = 4096;
/// Longer than any answer takes that waits for nobody.
const PATIENCE: Duration = Duration::from_secs(30);

fn open(text: &str) -> std::sync::Arc<dyn Device> {
    Stack::new().open(&text.parse::<Spec>().unwrap(), Create::Never).unwrap().device
}

fn write(device: &dyn Device, byte: u8) {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    buf.fill(byte);
    Port::open(device, 1).unwrap().write(Lba(1), buf, None).unwrap();
}

fn read(device: &dyn Device) -> u8 {
    Port::open(device, 1).unwrap().read(Lba(1), AlignedBuf::zeroed(BLOCK)).unwrap()[0]
}

/// Sends a request, and returns status and body; none within [`PATIENCE`] is a failure.
#[track_caller]
fn request(socket: &str, head: &str, key: &str, body: &Value) -> (String, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.to_string();
    let key = if key.is_empty() { String::new() } else { format!("Idempotency-Key: {key}\r\n") };
    let length = body.len();
    write!(stream, "{head} HTTP/1.0\r\n{key}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    if let Err(error) = stream.read_to_string(&mut answer) {
        panic!("no answer to {head} {body}: {error}");
    }
    let (first, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{head}: '{answer}'"));
    (first.split(' ').nth(1).unwrap().to_owned(), serde_json::from_str(body).unwrap())
}

/// The end of a process, which is killed when it does not end by itself.
fn code_of(mut child: Child) -> Option<i32> {
    let clock = Clock::real();
    let end = clock.now() + PATIENCE;
    while clock.now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        clock.sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn volume_in_use_is_changed_only_when_that_is_said() {
    let tank = Tank::new();
    let running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    tank.ask(&format!("volume export tank/db --host {HOST}")).succeeds();
    tank.ask("volume snapshot tank/db@s").succeeds();
    let host = running.open("db").unwrap();
    write(&host, 5);
    let before = tank.json("volume show tank/db");
    let words = [HOST, "nvme disconnect -n nqn.2026-01.io.esker:tank:db", "--force"];
    let under_host = [
        "volume rollback tank/db@s",
        "volume resize tank/db --size 4MiB --shrink",
        "volume export tank/db --nobody",
        "volume export tank/db --host nqn.2026-01.io.esker:other",
    ];
    for change in under_host {
        for how in ["", " --dry-run"] {
            tank.ask(&format!("{change}{how}")).fails(77, &words);
        }
        let would = tank.ask(&format!("{change} --force --dry-run")).succeeds().out();
        assert!(would.contains("in use") && would.contains(HOST), "{would}");
    }
    for dry_run in [false, true] {
        let head = format!("DELETE /v1/volumes/db/hosts/{HOST}");
        let (status, answer) = tank.request(&head, &json!({ "dry_run": dry_run }).to_string());
        assert_eq!((&*status, &answer["error"]["code"]), ("409", &json!("CONFLICT")), "{answer}");
    }
    assert_eq!((tank.json("volume show tank/db"), read(&host)), (before, 5));
    // These disturb nobody.
    tank.ask("volume resize tank/db --size 16MiB").succeeds();
    tank.ask(&format!("volume export tank/db --host {HOST} --host nqn.2026-01.io.esker:other"))
        .succeeds();
    let (status, answer) =
        tank.request("DELETE /v1/volumes/db/hosts/nqn.2026-01.io.esker:other", "{}");
    assert_eq!(status, "200", "{answer}");
    tank.ask("volume export tank/db --any-host").succeeds();
    tank.ask("volume limit tank/db --iops 100000").succeeds();
    assert_eq!(read(&host), 5);
    tank.ask("volume rollback tank/db@s --force").succeeds();
    assert_eq!(read(&host), 0);
    tank.ask("volume resize tank/db --size 4MiB --shrink --force").succeeds();
    tank.ask("volume export tank/db --nobody --force").succeeds();
    drop(host);
    // Open in a process of this machine.
    tank.ask("volume snapshot tank/db@t").succeeds();
    let spec = format!("volume:tank/db?socket={}", tank.socket());
    {
        let then = open(&spec.replace("db?", "db@t?"));
        tank.ask("volume rollback tank/db@t").succeeds();
        tank.ask("volume export tank/db --nobody").fails(77, &["esker detach", "--force"]);
        assert_eq!(read(&*then), 0);
    }
    let here = open(&spec);
    for change in ["volume rollback tank/db@t", "volume resize tank/db --size 1MiB --shrink"] {
        tank.ask(change).fails(77, &["db is in use", "esker detach", "--force"]);
    }
    drop(here);
    tank.ask("volume resize tank/db --size 1MiB --shrink").succeeds();
    assert_eq!(tank.json("volume show tank/db")["hosts"], json!([]), "it has let go");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn stale_rollback_is_told_from_a_repeated_one() {
    let tank = Tank::new();
    let mut running = tank.serve();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    tank.ask("volume snapshot tank/db@s").succeeds();
    tank.ask("volume snapshot tank/db@other").succeeds();
    let generation = |tank: &Tank| tank.json("volume show tank/db")["generation"].clone();
    let back = |to: &str, key: &str, generation: &Value| {
        let body = json!({ "snapshot": to, "if_generation": generation });
        request(&tank.socket(), "POST /v1/volumes/db/rollback", key, &body)
    };
    let old = generation(&tank);
    let (status, first) = back("s", "one", &old);
    assert_eq!(status, "200", "{first}");
    let new = generation(&tank);
    assert_ne!(old, new);
    assert_eq!(back("s", "one", &old), ("200".to_owned(), first), "a repetition");
    for (to, key) in [("s", "two"), ("other", "three"), ("s", "")] {
        let (status, answer) = back(to, key, &old);
        assert_eq!((&*status, &answer["error"]["code"]), ("409", &json!("CONFLICT")), "{key}");
    }
    // The next server does not know the keys: it knows what the volume went back to.
    running.kill();
    running = tank.serve();
    let (status, again) = back("s", "one", &old);
    assert_eq!((&*status, &again["generation"]), ("200", &new));
    let (status, _) = back("other", "four", &old);
    assert_eq!(status, "409", "it did not go back to that one");
    assert_eq!(back("s", "five", &new).0, "200");
    assert_eq!(back("s", "six", &new).0, "409", "it went back in this server");
    assert_eq!(running.end(), Some(0));
}

/// 0, 1, the largest ones, and what is about powers of two.
fn extremes() -> Vec<u64> {
    let about = |power: u32| [(1_u64 << power) - 1, 1 << power, (1_u64 << power).saturating_add(1)];
    let mut all: Vec<u64> =
        (0..64).step_by(9).chain([12, 32, 53, 60, 62]).flat_map(about).collect();
    all.extend([0, u64::MAX / 1000, u64::MAX / 512, u64::MAX - 1, u64::MAX]);
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn extreme_numbers_of_requests_are_kept_or_refused() {
    let tank = Tank::new();
    let running = tank.serve();
    let socket = tank.socket();
    let ask = |head: &str, body: Value| {
        let (status, answer) = request(&socket, head, "", &body);
        let is_an_answer = ["200", "400", "404", "409", "507"].contains(&&*status);
        assert!(is_an_answer, "{head} {body}: {status} {answer}");
        (status == "200", answer)
    };
    let now = esker_base::clock::unix_time().as_secs();
    for number in extremes() {
        let body = json!({ "name": "v", "bytes": number });
        let is_size = number % 4096 == 0 && (1..=1 << 48).contains(&(number / 4096));
        let (made, answer) = ask("POST /v1/volumes", body);
        assert_eq!(made, is_size, "{number}: {answer}");
        if !made {
            let body = json!({ "name": "v", "bytes": 8192 });
            assert!(ask("POST /v1/volumes", body).0);
        } else {
            assert_eq!(answer["bytes"], number);
        }
        let body =
            json!({ "bytes": number, "shrink": true, "iops_limit": number, "bytes_limit": number });
        let (done, answer) = ask("PATCH /v1/volumes/v", body);
        assert_eq!(done, is_size, "{number}: {answer}");
        let body = json!({ "iops_limit": number, "bytes_limit": number });
        let (done, answer) = ask("PATCH /v1/volumes/v", body);
        let kept = (&answer["iops_limit"], &answer["bytes_limit"]);
        assert!(done && kept == (&json!(number), &json!(number)), "{answer}");
        if number == 0 || number >= 1 << 30 {
            let volume = open(&format!("volume:tank/v?socket={socket}"));
            write(&*volume, 7);
            assert_eq!(read(&*volume), 7, "limits of {number}");
        }
        assert!(ask("POST /v1/volumes/v/snapshots", json!({ "name": "s" })).0);
        let current = ask("GET /v1/volumes/v", Value::Null).1["generation"].as_u64().unwrap();
        let body = json!({ "snapshot": "s", "if_generation": number });
        assert_eq!(ask("POST /v1/volumes/v/rollback", body).0, number == current, "{number}");
        // For as long as that, or for ever.
        assert!(ask("DELETE /v1/volumes/v", json!({ "keep_secs": number })).0);
        let volumes = ask("GET /v1/volumes", Value::Null).1;
        let found = volumes["volumes"].as_array().unwrap().iter().find(|one| one["name"] == "v");
        if number == 0 {
            assert!(found.is_none(), "{found:?}");
        } else if number > 60 {
            let until = found.unwrap()["trashed_until"].as_u64().unwrap();
            assert!(until >= now.saturating_add(number), "{number}: until {until}");
            assert!(ask("POST /v1/volumes/v/restore", json!({})).0, "{number} seconds");
            assert!(ask("DELETE /v1/volumes/v", json!({ "keep_secs": 0 })).0);
        } else {
            ask("DELETE /v1/volumes/v", json!({ "keep_secs": 0 }));
        }
        for list in ["volumes", "snapshots"] {
            assert!(ask(&format!("GET /v1/{list}?max={number}&token={number}"), Value::Null).0);
        }
        for (method, verb) in [("GET", "if-failed"), ("POST", "retire"), ("DELETE", "retire")] {
            let body = if method == "GET" { Value::Null } else { json!({ "dry_run": true }) };
            let (done, answer) = ask(&format!("{method} /v1/drives/{number}/{verb}"), body);
            assert!(!done || number < 3, "{number}: {answer}");
        }
        let none = text(&tank.0.path("none"));
        for device in [
            format!("file:{none}?capacity={number}"),
            format!("file:{none}?spin={number}"),
            format!("ssd:micron-7450?image={none}&capacity={number}&nsid={number}"),
            format!("disk:sas-10k?image={none}&capacity={number}"),
            format!("stripe:({none})({none})?chunk={number}"),
            format!("cache:({none})?flash=({none})&size={number}&sets={number}"),
            format!(
                "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.esker:a?timeout={number}s&nsid={number}"
            ),
            format!(
                "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.esker:a?retry={number}s&replay={number}"
            ),
        ] {
            let body = json!({ "device": device, "dry_run": true });
            let (status, answer) = request(&socket, "POST /v1/drives", "", &body);
            assert!(status != "200" && answer["error"]["code"].is_string(), "{device}: {answer}");
        }
    }
    for number in ["-1", "1e30", "18446744073709551616", "1.5", "\"1\""] {
        let body: Value = serde_json::from_str(&format!("{{\"keep_secs\":{number}}}")).unwrap();
        let (status, _) = request(&socket, "DELETE /v1/volumes/v", "", &body);
        assert_eq!(status, "400", "{number}");
    }
    assert_eq!(tank.json("pool status tank")["state"], "online");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn key_in_a_fifo_is_refused_and_stops_no_change() {
    let tank = Tank::new();
    let running = tank.serve();
    let socket = tank.socket();
    tank.ask("volume create tank/db --size 8MiB").succeeds();
    let fifo = tank.0.path("fifo");
    make_fifo(&fifo);
    let key = tank.0.path("host.key");
    let keep_key = || {
        let secret = esker_nvmf::auth::Secret::new(&[7; 32], None);
        fs::write(&key, secret.to_text()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    };
    keep_key();
    let large = tank.0.path("large");
    File::create(&large).unwrap().set_len(1 << 40).unwrap();
    fs::set_permissions(&large, fs::Permissions::from_mode(0o600)).unwrap();
    for (path, words) in [
        (&fifo, "no regular file"),
        (&large, "more than"),
        (&"/dev/zero".into(), "no regular file"),
    ] {
        for body in [
            json!({ "nqn": HOST, "key_file": path }),
            json!({ "nqn": HOST, "key_file": key, "controller_key_file": path }),
            json!({ "nqn": HOST, "tls_key_file": path }),
        ] {
            let (status, answer) = request(&socket, "POST /v1/volumes/db/hosts", "", &body);
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(status == "400" && message.contains(words), "{body}: {status} {answer}");
            let body = json!({ "hosts": [body] });
            assert_eq!(request(&socket, "PATCH /v1/volumes/db", "", &body).0, "400", "{body}");
            let device = format!(
                "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.esker:a?key-file={}",
                path.display()
            );
            let body = json!({ "device": device });
            let (status, answer) = request(&socket, "POST /v1/drives", "", &body);
            assert!(status == "400" && answer.to_string().contains(words), "{status} {answer}");
        }
    }
    // A key that becomes a FIFO later lets nobody in, and other changes go on.
    let body = json!({ "nqn": HOST, "key_file": key });
    assert_eq!(request(&socket, "POST /v1/volumes/db/hosts", "", &body).0, "200");
    fs::remove_file(&key).unwrap();
    make_fifo(&key);
    let body = json!({ "name": "other", "bytes": 8192 });
    assert_eq!(request(&socket, "POST /v1/volumes", "", &body).0, "200");
    // The keys are read when exports change, and when hosts connect.
    let body = json!({ "nqn": HOST });
    let (status, answer) = request(&socket, "POST /v1/volumes/other/hosts", "", &body);
    assert_eq!(status, "200", "{answer}");
    let (_, pool) = request(&socket, "GET /v1/pool", "", &Value::Null);
    assert_eq!(pool["alarms"][0]["code"], "HOST_KEY_UNREADABLE", "{}", pool["alarms"]);
    assert_eq!(running.end(), Some(0));
    // So is a token, and the configuration of a target.
    let fifo = text(&fifo);
    let quiet = |args: &[&str]| {
        esker().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut args = vec!["pool", "serve", "tank", "--socket", &socket, "--listen", "127.0.0.1:0"];
    args.extend(["--metrics", "127.0.0.1:0", "--api", "127.0.0.1:0", "--api-token", &fifo]);
    let drives = tank.drives();
    args.push("--drives");
    args.extend(drives.iter().map(String::as_str));
    assert_eq!(code_of(quiet(&args)), Some(64));
    assert_eq!(code_of(quiet(&["target", "serve", "--config", &fifo])), Some(64));
}

#[test]
fn silent_device_holds_up_no_other_request() {
    let tank = Tank::new();
    let running = tank.serve();
    let socket = tank.socket();
    // The kernel takes connections, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let device = format!("nvme-tcp://{}/nqn.2026-01.io.esker:far", silent.local_addr().unwrap());
    let requests = ["POST /v1/drives", "POST /v1/drives/0/replace", "POST /v1/drives/1/rejoin"];
    let waiting: Vec<_> = requests
        .into_iter()
        .map(|head| {
            let (socket, body) = (socket.clone(), json!({ "device": device }));
            thread::spawn("slow", move || request(&socket, head, "", &body)).unwrap()
        })
        .collect();
    let taken = silent.accept().unwrap();
    for number in 0..3 {
        let body = json!({ "name": format!("v{number}"), "bytes": 8192 });
        assert_eq!(request(&socket, "POST /v1/volumes", "", &body).0, "200");
        assert_eq!(request(&socket, "GET /v1/pool", "", &Value::Null).0, "200");
    }
    assert!(waiting.iter().all(|one| !one.is_finished()), "the device was waited for");
    drop((silent, taken));
    for (one, head) in waiting.into_iter().zip(requests) {
        let (status, answer) = one.join().unwrap();
        assert_ne!(status, "200", "{head}: {answer}");
    }
    assert_eq!(running.end(), Some(0));
}

#[test]
fn device_that_two_requests_add_is_added_once() {
    let tank = Tank::new();
    let running = tank.serve();
    let socket = tank.socket();
    for (round, keys) in [["a", "b"], ["c", "c"], ["", ""]].into_iter().enumerate() {
        let device = text(&tank.0.path(&format!("new{round}")));
        File::create(&device).unwrap().set_len(24 << 20).unwrap();
        let asking = keys.map(|key| {
            let (socket, body) = (socket.clone(), json!({ "device": device }));
            thread::spawn("add", move || request(&socket, "POST /v1/drives", key, &body)).unwrap()
        });
        for one in asking {
            let (status, answer) = one.join().unwrap();
            assert_eq!((&*status, &answer["drive"]), ("200", &json!(3 + round)), "{answer}");
        }
        let members = tank.json("pool status tank")["members"].as_array().unwrap().len();
        assert_eq!(members, 4 + round);
    }
    assert_eq!(running.end(), Some(0));
}

/// Adds, and puts in another's place, a device that leads back to the pool; with the words of the refusal.
#[track_caller]
fn refuse_cycle(socket: &str, device: &str) {
    for head in ["POST /v1/drives", "POST /v1/drives/0/replace", "POST /v1/drives/0/rejoin"] {
        for dry_run in [false, true] {
            let mut body = json!({ "device": device, "dry_run": dry_run });
            if !head.ends_with("rejoin") {
                body["overwrite"] = json!(true);
            }
            let (status, answer) = request(socket, head, "", &body);
            let is_told = answer.to_string().contains("would stand on its own volume");
            assert!(status == "400" && is_told, "{head} {device}: {status} {answer}");
        }
    }
}

#[test]
fn pool_does_not_stand_on_its_own_volume() {
    let tank = Tank::new();
    let running = tank.serve();
    let socket = tank.socket();
    tank.ask("volume create tank/db --size 32MiB").succeeds();
    tank.ask("volume export tank/db --any-host").succeeds();
    let nqn = "nqn.2026-01.io.esker:tank:db";
    let port = running.address.rsplit(':').next().unwrap();
    let file = text(&tank.0.path("file"));
    File::create(&file).unwrap().set_len(24 << 20).unwrap();
    refuse_cycle(&socket, "volume:tank/db");
    refuse_cycle(&socket, &format!("volume:tank/db?socket={socket}"));
    refuse_cycle(&socket, &format!("stripe:({file})(volume:tank/db)"));
    refuse_cycle(&socket, &format!("cache:({file})?flash=(nvme-tcp://{}/{nqn})", running.address));
    refuse_cycle(&socket, &format!("nvme-tcp://{}/{nqn}", running.address));
    refuse_cycle(&socket, &format!("nvme-tcp://localhost:{port}/{nqn}"));
    // Another pool's volume, where that pool stands on this one.
    let far = Tank::new();
    let mut drives = far.drives();
    let path = text(&far.0.path("far"));
    let mut args =
        vec!["pool", "create", "far", "--chunk", "256KiB", "--log", "2MiB", "--overwrite"];
    drives.push(format!("volume:tank/db?socket={socket}"));
    args.extend(drives.iter().map(String::as_str));
    run(args).succeeds();
    let mut child = esker()
        .args(["pool", "serve", "far", "--socket", &path, "--listen", "127.0.0.1:0"])
        .args(["--metrics", "127.0.0.1:0", "--for", "120", "--drives"])
        .args(&drives)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    crate::common::tank::until(&mut BufReader::new(child.stdout.take().unwrap()), "listening on ");
    run(["volume", "create", "far/x", "--size", "8MiB", "--socket", &path]).succeeds();
    refuse_cycle(&socket, &format!("volume:far/x?socket={path}"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(running.end(), Some(0));
}

#[test]
fn pool_does_not_stand_on_its_own_volume_through_an_attachment() {
    let tank = Tank::new();
    let running = tank.serve();
    let socket = tank.socket();
    tank.ask("volume create tank/db --size 32MiB").succeeds();
    let at = text(&tank.0.path("at"));
    fs::create_dir(&at).unwrap();
    let mut child = esker()
        .args(["volume", "attach", "tank/db", &at, "--loop", "--socket", &socket])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let Some(block_device) =
        lines.find_map(|line| Some(line.strip_prefix("block device: ")?.to_owned()))
    else {
        skip_without_mounts(&mut child);
        return;
    };
    refuse_cycle(&socket, &format!("{at}/disk"));
    refuse_cycle(&socket, &block_device);
    refuse_cycle(&socket, &format!("ssd:micron-7450?image={block_device}"));
    // A file on a file system on it.
    let mounted = text(&tank.0.path("mounted"));
    fs::create_dir(&mounted).unwrap();
    let shell = format!("mkfs.ext4 -q {block_device} && mount {block_device} {mounted}");
    let made = std::process::Command::new("sh").args(["-c", &shell]).stderr(Stdio::null()).status();
    if made.unwrap().success() {
        let file = format!("{mounted}/file");
        let made = File::create(&file).and_then(|file| file.set_len(24 << 20));
        refuse_cycle(&socket, &file);
        let status = std::process::Command::new("umount").arg(&mounted).status().unwrap();
        assert!(status.success());
        made.unwrap();
    } else {
        eprintln!("SKIPPED: no ext4 can be made and mounted here");
    }
    run(["detach", &at]).succeeds();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(running.end(), Some(0));
}

#[test]
fn keys_and_names_beyond_ascii_are_refused_and_never_dropped() {
    let tank = Tank::new();
    let running = tank.serve();
    let body = json!({ "name": "db", "bytes": 8 << 20 });
    for key in
        ["schl\u{fc}ssel", "\u{30ad}\u{30fc}", "two words", "a,b", "nightly\r\nIdempotency-Key: 2"]
    {
        let (status, answer) = request(&tank.socket(), "POST /v1/volumes", key, &body);
        assert_eq!(status, "400", "{key}: {answer}");
        let why = answer["error"]["message"].as_str().unwrap();
        assert!(why.contains("is no key of an operation: 1 to 128 ASCII letters"), "{key}: {why}");
        let socket = tank.socket();
        let create = ["volume", "create", "tank/db", "--size", "8MiB", "--socket", &socket];
        run([&create[..], &["--operation", key]].concat())
            .fails(64, &["is no key of an operation"]);
        run(["pool", "operations", "tank", "--socket", &socket, "--id", key])
            .fails(64, &["is no key of an operation"]);
    }
    assert_eq!(tank.json("volume list tank")["volumes"], json!([]));
    for (head, body) in [
        ("POST /v1/volumes", json!({ "name": "b\u{fc}cher", "bytes": 8 << 20 })),
        ("GET /v1/volumes/b%c3%bccher", Value::Null),
        ("GET /v1/volumes/b\u{fc}cher", Value::Null),
        ("GET /v1/volumes/b%fccher", Value::Null),
        ("GET /v1/operations/b%c3%bccher", Value::Null),
    ] {
        let (status, answer) = request(&tank.socket(), head, "", &body);
        assert!(status == "400" || status == "404", "{head}: {status} {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("cher"), "{head}: {answer}");
    }
    tank.ask("volume create tank/b\u{fc}cher --size 8MiB").fails(64, &["ASCII letters"]);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn path_of_a_key_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let tank = Tank::new();
    tank.ask("volume list tank").fails(66, &["is not served"]);
    let key = std::ffi::OsStr::from_bytes(b"/etc/\xff.key");
    for option in ["--key", "--tls-key"] {
        let mut export = esker();
        export.args(["volume", "export", "tank/db", "--host", HOST, option]).arg(key);
        let ended = export.args(["--socket", &tank.socket()]).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(64), "{said}");
        assert!(
            said.contains("/etc/") && said.contains("UTF-8") && said.contains("rename"),
            "{said}"
        );
    }
}

#[test]
fn token_beyond_ascii_lets_its_owner_in() {
    let tank = Tank::new();
    let token = "\u{fc}".repeat(32);
    let path = text(&tank.0.path("token"));
    fs::write(&path, &token).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let running = tank.serve_with(&tank.drives(), &["--api", "127.0.0.1:0", "--api-token", &path]);
    let line = running.said.lines().find_map(|line| line.strip_prefix("requests at http://"));
    let address = line.unwrap().strip_suffix("/v1").unwrap();
    let asked = |token: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = format!("GET /v1/pool HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((asked(&token), asked("\u{fc}")), ("200".to_owned(), "401".to_owned()));
    assert_eq!(running.end(), Some(0));
}
