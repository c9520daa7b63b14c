//! `esker target` as an administrator changes a target that runs: at the prompt, with signals meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use crate::common::tank::{HOST, until};
use crate::common::{Ran, Scratch, esker, ran, run, text};
use crate::target::Running;
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::Port;
use esker_nvmf::{Initiator, NvmfError};
use rustix::process::Signal;
use serde_json::{Value, json};

const A: &str = "nqn.2026-01.io.esker:a";
const OTHER: &str = "nqn.2026-01.io.esker:other";

/// A target that runs and takes requests.
struct Controlled {
    its: Running,
    socket: String,
}

impl Controlled {
    fn start(scratch: &Scratch, args: &[&str]) -> Controlled {
        let socket = text(&scratch.path("control.sock"));
        let mut its = Running::serving(&[&["--for", "120", "--control", &socket], args].concat());
        until(&mut its.out, "requests at ");
        Controlled { its, socket }
    }

    fn of_options(scratch: &Scratch) -> Controlled {
        let more = ["--subsystem", A, "--device", "mem:8MiB", "--allow", HOST];
        Controlled::start(scratch, &[&["--listen", "127.0.0.1:0"], &more[..]].concat())
    }

    /// A command about it.
    fn ask(&self, args: &[&str]) -> Ran {
        run([&["target"], args, &["--control", &self.socket]].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        let printed = self.ask(&[args, &["--json"]].concat()).succeeds().out();
        serde_json::from_str(&printed).unwrap()
    }

    /// Sends a request as it is, and returns the body.
    fn request(&self, head: &str) -> Value {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        write!(stream, "{head} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn open(&self, host: &str, nsid: u32) -> Result<Initiator, NvmfError> {
        self.its.open_as(host, A, nsid)
    }

    /// Its exit code, after a signal to end.
    fn end(self) -> Option<i32> {
        self.its.end(Signal::TERM)
    }
}

#[test]
fn description_is_published_as_the_command_prints_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api/target.openapi.json");
    let printed = run(["target", "openapi"]).succeeds().out();
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        fs::write(path, &printed).unwrap();
    }
    let published = fs::read_to_string(path).unwrap();
    assert!(published == printed, "write it anew: ESKER_UPDATE_GOLDEN=1 cargo test -p esker-cli");
}

/// Checks an answer with the description of its request.
#[track_caller]
fn check(document: &Value, method: &str, template: &str, answer: &Value) {
    let escaped = template.replace('~', "~0").replace('/', "~1");
    let at = format!("/paths/{escaped}/{method}/responses/200/content/application~1json/schema");
    let schema = document.pointer(&at).unwrap_or_else(|| panic!("nothing at {at}"));
    let schema = json!({ "allOf": [schema], "components": document["components"] });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(answer).map(|one| one.to_string()).collect();
    assert!(errors.is_empty(), "{template}: {errors:#?}\n{answer:#}");
}

#[test]
fn target_is_changed_at_the_prompt_and_answers_have_the_form_that_is_described() {
    let scratch = Scratch::new();
    let target = Controlled::of_options(&scratch);
    let document = target.request("GET /v1/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    for route in target.request("GET /v1").as_array().unwrap() {
        let method = route["method"].as_str().unwrap().to_ascii_lowercase();
        let found = &document["paths"][route["path"].as_str().unwrap()][method];
        assert_eq!(found["summary"], route["about"]);
    }
    let disk = scratch.path("disk");
    fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    let disk = text(&disk);
    let namespaces = "/v1/subsystems/{subsystem}/namespaces";
    let namespace = "/v1/subsystems/{subsystem}/namespaces/{nsid}";

    let would = target.ask(&["namespace", "add", A, &disk, "--dry-run"]).succeeds().out();
    assert!(
        would.starts_with("would serve ") && would.ends_with("nothing was changed\n"),
        "{would}"
    );
    let add = ["namespace", "add", A, &disk, "--write-cache", "off", "--operation", "first"];
    let added = target.json(&add);
    check(&document, "post", namespaces, &added);
    assert_eq!(added["nsid"], 2);
    assert_eq!(target.json(&add), added, "it is made once");
    let host = target.open(HOST, 2).unwrap();
    let shown = target.ask(&["namespace", "replace", A, "1", "mem:4MiB"]).succeeds().out();
    assert!(
        shown.contains("done: serve mem:4MiB as namespace 1 of") && shown.contains("SIGHUP"),
        "{shown}"
    );
    // Its limit changes while the host is connected, and keeps it to 16 reads a second.
    let limited =
        target.json(&["namespace", "limit", A, "2", "--iops", "16", "--operation", "slow"]);
    check(&document, "patch", namespace, &limited);
    let again = ["namespace", "limit", A, "2", "--iops", "16", "--operation", "slow"];
    assert_eq!(target.json(&again), limited, "it is made once");
    let clock = Clock::real();
    let began = clock.now();
    let mut port = Port::open(&host, 1).unwrap();
    for _ in 0..17 {
        port.read(Lba(0), AlignedBuf::zeroed(4096)).unwrap();
    }
    assert!(clock.now().since(began) > Duration::from_millis(800), "16 a second");
    drop(port);
    target.ask(&["namespace", "limit", A, "7", "--iops", "16"]).fails(66, &["no namespace 7"]);
    target.ask(&["namespace", "limit", A, "2", "--bandwidth", "1"]).fails(64, &["4KiB or more"]);
    target.ask(&["namespace", "limit", A, "2", "--bandwidth", "8MiB"]).succeeds();
    let shown = target.ask(&["status"]).succeeds().out();
    assert!(shown.contains("16/s, 8.00 MiB/s"), "{shown}");
    let exported = target.ask(&["export"]).succeeds().out();
    assert!(
        exported.contains("iops_limit = 16") && exported.contains("bytes_limit = "),
        "{exported}"
    );
    target.ask(&["namespace", "limit", A, "2", "--iops", "0", "--bandwidth", "0"]).succeeds();

    let removed = target.json(&["namespace", "remove", A, "1"]);
    check(&document, "delete", namespace, &removed);

    assert!(target.open(OTHER, 2).is_err());
    target.ask(&["host", "allow", A, "*"]).fails(77, &["force"]);
    check(
        &document,
        "post",
        "/v1/subsystems/{subsystem}/hosts",
        &target.json(&["host", "allow", A, OTHER]),
    );
    drop(target.open(OTHER, 2).unwrap());
    target.ask(&["host", "forbid", A, OTHER]).succeeds();
    target.ask(&["host", "forbid", A, OTHER]).fails(66, &["does not name"]);
    let listed = target.ask(&["host", "list"]).succeeds().out();
    assert!(listed.contains(HOST) && listed.contains("s ago"), "{listed}");
    let gone = target.json(&["host", "disconnect", HOST, "--subsystem", A]);
    check(&document, "post", "/v1/hosts/{host}/disconnect", &gone);
    target.ask(&["host", "disconnect", "nqn.2026-01.io.esker:a/b?c"]).fails(66, &["a/b?c"]);
    let refused = target.json(&["refused"]);
    check(&document, "get", "/v1/refused", &refused);
    assert_eq!(refused["refused"][0]["host"], OTHER);
    let shown = target.ask(&["refused"]).succeeds().out();
    assert!(shown.contains("it is not allowed to use the subsystem"), "{shown}");

    let added = target.json(&["portal", "add", "127.0.0.1:0", "--ana", "non-optimized"]);
    check(&document, "post", "/v1/portals", &added);
    let portal = added["portal"].to_string();
    target.ask(&["portal", "set", &portal, "persistent-loss"]).succeeds();
    let shown = target.ask(&["portal", "list"]).succeeds().out();
    assert!(shown.contains("optimized") && shown.contains("persistent loss"), "{shown}");
    // The subsystem is reached through one portal alone, then through each.
    let of = target.json(&["portal", "assign", A, "0", "--operation", "one"]);
    check(&document, "put", "/v1/subsystems/{subsystem}/portals", &of);
    assert_eq!(target.json(&["status"])["subsystems"][0]["portals"], json!([0]));
    target.ask(&["portal", "remove", "0"]).fails(77, &["is the last one of"]);
    target.ask(&["portal", "assign", A, "99"]).fails(66, &["no portal 99"]);
    let exported = target.ask(&["export"]).succeeds().out();
    assert!(exported.contains(&format!("listen = [\"{}\"]", target.its.address)), "{exported}");
    target.ask(&["portal", "assign", A, "--all"]).succeeds();
    assert_eq!(target.json(&["status"])["subsystems"][0]["portals"].as_array().unwrap().len(), 2);
    target.ask(&["portal", "drain", &portal, "--for", "61s"]).fails(64, &["0s to 1min"]);
    target.ask(&["portal", "drain", "x"]).fails(64, &["portal list"]);
    let drained = target.json(&["portal", "drain", &portal]);
    check(&document, "post", "/v1/portals/{portal}/drain", &drained);
    target.ask(&["portal", "remove", &portal]).fails(66, &["no portal"]);
    target.ask(&["portal", "remove", "0"]).fails(77, &["add another one first"]);

    let view = target.json(&["status"]);
    check(&document, "get", "/v1/target", &view);
    check(&document, "get", "/v1/hosts", &target.json(&["host", "list"]));
    check(&document, "get", "/v1/config", &target.json(&["export"]));
    let shown = target.ask(&["status"]).succeeds().out();
    for words in ["optimized", A, HOST, "8.00 MiB", "off", "requests have changed it"] {
        assert!(shown.contains(words), "no '{words}' in\n{shown}");
    }
    drop(host);
    assert_eq!(target.end(), Some(0));
    let gone = run(["target", "refused", "--control", &text(&scratch.path("control.sock"))]);
    gone.fails(66, &["no target answers", "esker target serve"]);
}

#[test]
fn refused_host_is_told_of_once() {
    let scratch = Scratch::new();
    let mut target = Controlled::of_options(&scratch);
    for _ in 0..3 {
        assert!(target.open(OTHER, 1).is_err());
    }
    let said =
        until(&mut target.its.err, &format!("esker: note: {OTHER} at 127.0.0.1 was not let in: "));
    assert!(said.starts_with("it is not allowed to use the subsystem that it named"), "{said}");
    target.its.signal(Signal::TERM);
    let mut rest = String::new();
    target.its.err.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("was not let in"), "{rest}");
}

#[test]
fn export_starts_the_same_target_and_a_full_disk_leaves_the_old_file() {
    let scratch = Scratch::new();
    let target = Controlled::of_options(&scratch);
    target.ask(&["namespace", "add", A, "mem:2MiB", "--nsid", "9"]).succeeds();
    let file = text(&scratch.path("target.toml"));
    target.ask(&["export", "--output", &file]).succeeds();
    let printed = target.ask(&["export"]).succeeds().out();
    assert_eq!(fs::read_to_string(&file).unwrap(), printed);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let child = esker()
        .args(["target", "export", "--control", &target.socket])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    ran(child.wait_with_output().unwrap()).fails(73, &["space"]);
    target.ask(&["export", "--output", "/dev/full"]).fails(73, &["/dev/full", "make room"]);
    // A file in whose directory there is no room for another stays as it is.
    let status = |target: &Controlled| target.json(&["status"])["subsystems"].clone();
    let before = status(&target);
    assert_eq!(target.end(), Some(0));
    let target = Controlled::start(&scratch, &["--config", &file]);
    assert_eq!(status(&target), before);
    assert_eq!(target.ask(&["export"]).succeeds().out(), printed);
    assert_eq!(target.end(), Some(0));
}

#[test]
fn signal_goes_back_to_the_file_while_requests_come() {
    let scratch = Scratch::new();
    let config = scratch.path("target.toml");
    fs::write(
        &config,
        format!(
            "listen = [\"127.0.0.1:0\"]\n[[subsystem]]\nnqn = \"{A}\"\nallow_any = true\n\
             [[subsystem.namespace]]\nnsid = 1\ndevice = \"mem:8MiB\"\n"
        ),
    )
    .unwrap();
    let mut target = Controlled::start(&scratch, &["--config", &text(&config)]);
    let first = target.open(HOST, 1).unwrap();
    for round in 0..10 {
        target.its.signal(Signal::HUP);
        // It comes before or behind the new reading, and is gone or there as a whole.
        target
            .ask(&["namespace", "add", A, "mem:1MiB", "--nsid", &(round + 2).to_string()])
            .succeeds();
        until(&mut target.its.out, "configuration read again");
    }
    target.its.signal(Signal::HUP);
    until(&mut target.its.out, "configuration read again");
    // So are portals: one that came goes.
    target.ask(&["portal", "add", "127.0.0.1:0"]).succeeds();
    target.its.signal(Signal::HUP);
    until(&mut target.its.out, "configuration read again");
    let view = target.json(&["status"]);
    assert_eq!(view["subsystems"][0]["namespaces"].as_array().unwrap().len(), 1, "{view:#}");
    assert_eq!(view["portals"].as_array().unwrap().len(), 1, "{view:#}");
    assert_eq!(view["portals"][0]["listen"], target.its.address);
    assert_eq!(view["is_changed"], false);
    assert_eq!(view["connected"][0]["host"], HOST, "the host that was there goes on");
    drop(first);
    assert_eq!(target.end(), Some(0));
}
