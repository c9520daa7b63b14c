//! Requests to a pool against their description: every answer has the form that it says, every change that is repeated
//! is made once, with a kill of the server between, and a wrong request is refused and changes nothing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::tank::{HOST, Running, Tank};
use crate::common::{run, text};
use esker_base::{Clock, Rng};
use rustix::process::Signal;
use serde_json::{Value, json};

fn document() -> Value {
    serde_json::from_str(&run(["pool", "openapi"]).succeeds().out()).unwrap()
}

/// Finds the description of a request, and checks answers with it.
struct Description(Value);

impl Description {
    /// Checks an answer, and returns the name of the request.
    #[track_caller]
    fn check(&self, method: &str, url: &str, status: &str, answer: &Value) -> String {
        let path = url.split('?').next().unwrap();
        let paths = self.0["paths"].as_object().unwrap();
        let fits = |template: &str| {
            let (parts, found): (Vec<_>, Vec<_>) =
                (template.split('/').collect(), path.split('/').collect());
            let mut pairs = parts.iter().zip(&found);
            parts.len() == found.len()
                && pairs.all(|(part, found)| part.starts_with('{') || part == found)
        };
        // Paths without a name in braces go before those with one.
        let mut templates: Vec<&String> = paths.keys().filter(|path| fits(path)).collect();
        templates.sort_by_key(|template| template.matches('{').count());
        let template = templates.first().unwrap_or_else(|| panic!("{path} is not described"));
        let method = method.to_ascii_lowercase();
        let name = self.0["paths"][template.as_str()][&method]["operationId"].as_str().unwrap();
        let status = if status == "200" { "200" } else { "default" };
        let escaped = template.replace('~', "~0").replace('/', "~1");
        let pointer = format!(
            "/paths/{escaped}/{method}/responses/{status}/content/application~1json/schema"
        );
        let schema = self.0.pointer(&pointer).unwrap();
        let schema = json!({ "allOf": [schema], "components": self.0["components"] });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}\n{answer:#}");
        name.to_owned()
    }
}

#[test]
fn description_is_published_as_the_command_prints_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api/pool.openapi.json");
    let printed = run(["pool", "openapi"]).succeeds().out();
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
        fs::write(path, &printed).unwrap();
    }
    let published = fs::read_to_string(path).unwrap();
    assert!(published == printed, "write it anew: ESKER_UPDATE_GOLDEN=1 cargo test -p esker-cli");
}

#[test]
fn description_describes_each_request_and_refers_to_what_is_there() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let tank = Tank::new();
    let running = tank.serve();
    let (_, served) = tank.request("GET /v1/openapi.json", "");
    assert_eq!(served, document);
    let (_, routes) = tank.request("GET /v1", "");
    for route in routes.as_array().unwrap() {
        let method = route["method"].as_str().unwrap().to_ascii_lowercase();
        let found = &document["paths"][route["path"].as_str().unwrap()][method];
        assert_eq!(found["summary"], route["about"]);
    }
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "nothing at {pointer}");
    }
    assert_eq!(running.end(), Some(0));
}

/// A pool and its server, which may be killed at any time.
struct Rig {
    tank: Tank,
    running: Option<Running>,
    description: Description,
    drives: Vec<String>,
    seen: BTreeSet<String>,
    keys: u64,
}

impl Rig {
    fn new() -> Rig {
        let tank = Tank::new();
        let (running, drives) = (Some(tank.serve()), tank.drives());
        Rig {
            tank,
            running,
            description: Description(document()),
            drives,
            seen: BTreeSet::new(),
            keys: 0,
        }
    }

    fn ask(&mut self, method: &str, url: &str, key: &str, body: &Value) -> (String, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.tank.request_with(&format!("{method} {url}"), key, &body);
        self.seen.insert(self.description.check(method, url, &status, &answer));
        (status, answer)
    }

    fn get(&mut self, url: &str) -> Value {
        let (status, answer) = self.ask("GET", url, "", &Value::Null);
        assert_eq!(status, "200", "{url}: {answer}");
        answer
    }

    /// The devices that have to be named at the next start.
    fn remember_drives(&mut self) {
        let pool = self.get("/v1/pool");
        let members = pool["members"].as_array().unwrap().iter();
        let active = members.filter(|one| {
            ["online", "draining", "rejoining"].contains(&one["state"].as_str().unwrap())
        });
        self.drives = active.map(|one| one["device"].as_str().unwrap().to_owned()).collect();
    }

    fn kill(&mut self) {
        self.running.take().unwrap().kill();
    }

    fn start(&mut self) {
        self.running = Some(self.tank.serve_with(&self.drives, &["--degraded"]));
    }

    /// Changes something twice, with or without a kill between. Both answers are the same.
    fn twice(&mut self, rng: &mut Rng, method: &str, url: &str, body: Value) -> Value {
        self.keys += 1;
        let key = format!("key-{}", self.keys);
        // A drive that is being added is not known to the process that starts the next server.
        let way = rng.below(if url.starts_with("/v1/drives") { 3 } else { 4 });
        if way == 3 {
            // It is killed while it works on the request.
            self.remember_drives();
            let mut stream = UnixStream::connect(self.tank.socket()).unwrap();
            let text = body.to_string();
            write!(
                stream,
                "{method} {url} HTTP/1.0\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )
            .unwrap();
            Clock::real().sleep(Duration::from_micros(rng.below(4000)));
            self.kill();
            let _ = stream.read_to_string(&mut String::new());
            self.start();
        }
        let (status, first) = self.ask(method, url, &key, &body);
        assert_eq!(status, "200", "{method} {url} {body}: {first}");
        let state = |rig: &mut Rig| {
            let mut members = rig.get("/v1/pool")["members"].take();
            for member in members.as_array_mut().unwrap() {
                *member = json!([member["index"], member["device"]]);
            }
            (rig.get("/v1/volumes"), rig.get("/v1/exports").as_array().unwrap().len(), members)
        };
        let before = state(self);
        if way == 1 {
            self.remember_drives();
            self.kill();
            self.start();
        }
        let (status, second) = self.ask(method, url, &key, &body);
        assert_eq!((status.as_str(), &second), ("200", &first), "{method} {url} {body}");
        let after = state(self);
        let is_same_devices =
            way != 1 || before.2.as_array().unwrap().len() == after.2.as_array().unwrap().len();
        assert_eq!((&before.0, before.1), (&after.0, after.1), "{method} {url} {body}");
        assert!(is_same_devices, "{method} {url}: {} {}", before.2, after.2);
        assert_eq!(first["operation"], key.as_str());
        let operation = self.get(&format!("/v1/operations/{key}"));
        assert_eq!(operation["answer"], first);
        // The key belongs to this request.
        let (status, refusal) =
            self.ask("POST", "/v1/volumes", &key, &json!({ "name": "x", "bytes": 4096 }));
        assert_eq!((status.as_str(), &refusal["error"]["code"]), ("409", &json!("CONFLICT")));
        first
    }

    fn wait(&mut self, operation: &Value) {
        let url = format!("/v1/operations/{}", operation["operation"].as_str().unwrap());
        let clock = Clock::real();
        let end = clock.now() + Duration::from_secs(60);
        while self.get(&url)["state"] == "running" {
            assert!(clock.now() < end, "{}", self.get(&url));
            clock.sleep(Duration::from_millis(20));
        }
    }
}

/// Names of volumes that are there, and of their snapshots.
fn names(volumes: &Value) -> Vec<(String, Vec<String>)> {
    let online = volumes["volumes"].as_array().unwrap().iter();
    let online = online.filter(|one| one["trashed_until"].is_null());
    let text = |value: &Value| value["name"].as_str().unwrap().to_owned();
    online
        .map(|one| (text(one), one["snapshots"].as_array().unwrap().iter().map(text).collect()))
        .collect()
}

#[test]
fn every_change_is_made_once_whatever_is_repeated_or_killed() {
    let mut all = BTreeSet::new();
    for seed in 0..3 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new();
        let rng = &mut rng;
        rig.twice(rng, "POST", "/v1/volumes", json!({ "name": "v", "bytes": 1 << 20 }));
        rig.twice(rng, "POST", "/v1/volumes/v/snapshots", json!({ "name": "s" }));
        for n in 0..14 {
            let found = names(&rig.get("/v1/volumes"));
            let (volume, snapshots) =
                &found[usize::try_from(rng.below(found.len() as u64)).unwrap()];
            let at = format!("/v1/volumes/{volume}");
            let snapshot = snapshots.first().cloned();
            match (rng.below(9), snapshot) {
                (0, _) => {
                    let body = json!({ "name": format!("v{n}"), "bytes": 8192, "iops_limit": 5 });
                    rig.twice(rng, "POST", "/v1/volumes", body);
                }
                (1, _) => {
                    let bytes = (1 + rng.below(100)) * 4096;
                    let body =
                        json!({ "bytes": bytes, "shrink": true, "bytes_limit": rng.below(9) });
                    rig.twice(rng, "PATCH", &at, body);
                }
                (2, _) => {
                    rig.twice(
                        rng,
                        "POST",
                        &format!("{at}/snapshots"),
                        json!({ "name": format!("s{n}") }),
                    );
                }
                (3, Some(snapshot)) => {
                    let body = json!({ "snapshot": snapshot, "name": format!("c{n}") });
                    rig.twice(rng, "POST", &format!("{at}/clones"), body);
                }
                (4, Some(snapshot)) => {
                    let generation = rig.get(&at)["generation"].clone();
                    let body = json!({ "snapshot": snapshot, "if_generation": generation });
                    rig.twice(rng, "POST", &format!("{at}/rollback"), body);
                }
                (5, Some(snapshot)) if snapshots.len() > 1 => {
                    let url = format!("{at}/snapshots/{snapshot}");
                    rig.get(&format!("{url}/if-deleted"));
                    rig.twice(rng, "DELETE", &url, json!({}));
                }
                (6, _) if volume != "v" => {
                    let keep = rng.below(2) * 1000;
                    rig.get(&format!("{at}/if-deleted"));
                    rig.twice(rng, "DELETE", &at, json!({ "keep_secs": keep }));
                    if keep > 0 {
                        rig.twice(rng, "POST", &format!("{at}/restore"), json!({}));
                    }
                }
                (7, _) => {
                    rig.twice(rng, "POST", &format!("{at}/hosts"), json!({ "nqn": HOST }));
                    rig.twice(rng, "DELETE", &format!("{at}/hosts/{HOST}"), json!({}));
                }
                _ => drop(rig.twice(rng, "POST", "/v1/scrub", json!({}))),
            }
        }
        rig.twice(rng, "POST", "/v1/settings", json!({ "repair_share": 40 }));
        rig.twice(rng, "POST", "/v1/volumes/v/snapshots", json!({ "name": "last" }));
        rig.get("/v1/volumes/v/snapshots/last/if-deleted");
        rig.twice(rng, "DELETE", "/v1/volumes/v/snapshots/last", json!({}));
        rig.twice(rng, "POST", "/v1/volumes", json!({ "name": "gone", "bytes": 4096 }));
        rig.get("/v1/volumes/gone/if-deleted");
        rig.twice(rng, "DELETE", "/v1/volumes/gone", json!({}));
        rig.twice(rng, "POST", "/v1/volumes/gone/restore", json!({}));
        let new = |rig: &Rig, name: &str| {
            let path = text(&rig.tank.0.path(name));
            File::create(&path).unwrap().set_len(24 << 20).unwrap();
            path
        };
        let (one, two) = (new(&rig, "new1"), new(&rig, "new2"));
        rig.twice(rng, "POST", "/v1/drives", json!({ "device": one, "overwrite": true }));
        let body = json!({ "device": two, "overwrite": true });
        let replaced = rig.twice(rng, "POST", "/v1/drives/0/replace", body);
        rig.wait(&replaced);
        let retired = rig.twice(rng, "POST", "/v1/drives/1/retire", json!({}));
        rig.wait(&retired);
        rig.twice(rng, "DELETE", "/v1/drives/2/retire", json!({}));
        rig.remember_drives();
        let away = rig.drives.pop().unwrap();
        rig.kill();
        rig.start();
        let members = rig.get("/v1/pool")["members"].take();
        let mut members = members.as_array().unwrap().iter();
        let missing = members.find(|one| one["state"] == "missing").unwrap()["index"].clone();
        let url = format!("/v1/drives/{missing}/rejoin");
        let rejoined = rig.twice(rng, "POST", &url, json!({ "device": away }));
        rig.wait(&rejoined);
        for url in [
            "/v1/config",
            "/v1/stats",
            "/v1/operations",
            "/v1/snapshots",
            "/v1",
            "/v1/openapi.json",
        ] {
            rig.get(url);
        }
        for url in ["space", "explain"] {
            let volume = names(&rig.get("/v1/volumes"))[0].0.clone();
            rig.get(&format!("/v1/volumes/{volume}/{url}"));
        }
        rig.get("/v1/drives/2/if-failed");
        let running = rig.running.take().unwrap();
        assert_eq!(running.end(), Some(0));
        all.append(&mut rig.seen);
    }
    let document = document();
    let paths = document["paths"].as_object().unwrap().values();
    let described = paths.flat_map(|path| path.as_object().unwrap().values());
    let missing: Vec<&str> = described
        .map(|one| one["operationId"].as_str().unwrap())
        .filter(|name| !all.contains(*name))
        .collect();
    assert!(missing.is_empty(), "never asked: {missing:?}");
}

#[test]
fn repetition_without_a_key_is_told_from_a_mistake() {
    let mut rig = Rig::new();
    let none = Value::Null;
    for _ in 0..2 {
        let body = json!({ "name": "v", "bytes": 1 << 20 });
        let (status, answer) = rig.ask("POST", "/v1/volumes", "", &body);
        assert_eq!((status.as_str(), &answer["name"]), ("200", &json!("v")));
    }
    assert_eq!(rig.ask("DELETE", "/v1/volumes/v", "", &none).0, "200");
    assert_eq!(rig.ask("DELETE", "/v1/volumes/v", "", &none).0, "404");
    assert_eq!(rig.ask("DELETE", "/v1/volumes/v", "k", &none).0, "200", "it may be a repetition");
    assert_eq!(rig.ask("POST", "/v1/volumes/v/restore", "", &none).0, "200");
    assert_eq!(rig.ask("POST", "/v1/volumes/v/restore", "", &none).0, "409");
    let body = json!({ "name": "s" });
    assert_eq!(rig.ask("POST", "/v1/volumes/v/snapshots", "", &body).0, "200");
    let generation = rig.get("/v1/volumes/v")["generation"].clone();
    let body = json!({ "snapshot": "s", "if_generation": generation });
    assert_eq!(rig.ask("POST", "/v1/volumes/v/rollback", "", &body).0, "200");
    assert_eq!(rig.ask("POST", "/v1/volumes/v/rollback", "", &body).0, "409", "it went back once");
    for key in ["op-1-1", "a b", ""] {
        if !key.is_empty() {
            assert_eq!(rig.ask("POST", "/v1/scrub", key, &none).0, "400", "{key}");
        }
    }
    // Dry runs are no operations.
    let count = rig.get("/v1/operations")["operations"].as_array().unwrap().len();
    let body = json!({ "name": "w", "bytes": 4096, "dry_run": true });
    let (_, answer) = rig.ask("POST", "/v1/volumes", "", &body);
    assert_eq!((&answer["dry_run"], answer["operation"].is_null()), (&json!(true), true));
    let body = json!({ "repair_share": 0, "dry_run": true });
    assert_eq!(rig.ask("POST", "/v1/settings", "", &body).0, "400", "as without");
    assert_eq!(rig.get("/v1/operations")["operations"].as_array().unwrap().len(), count);
    rig.running.take().unwrap().end();
}

#[test]
fn lists_are_read_a_page_at_a_time() {
    let mut rig = Rig::new();
    for n in 0..7 {
        let body = json!({ "name": format!("v{n}"), "bytes": 4096 });
        rig.ask("POST", "/v1/volumes", "", &body);
        rig.ask("POST", &format!("/v1/volumes/v{n}/snapshots"), "", &json!({ "name": "s" }));
    }
    for list in ["volumes", "snapshots"] {
        let (mut found, mut url, mut pages) = (0, format!("/v1/{list}?max=3"), 0);
        loop {
            let page = rig.get(&url);
            found += page[list].as_array().unwrap().len();
            pages += 1;
            let Some(token) = page["next_token"].as_str() else { break };
            url = format!("/v1/{list}?max=3&token={token}");
        }
        assert_eq!((found, pages), (7, 3));
    }
    for url in
        ["/v1/volumes?max=x", "/v1/volumes?token=-1", "/v1/volumes?color=red", "/v1/pool?max=1"]
    {
        let (status, answer) = rig.ask("GET", url, "", &Value::Null);
        assert_eq!(status, "400", "{url}: {answer}");
    }
    rig.running.take().unwrap().end();
}

#[test]
fn wrong_requests_are_refused_with_a_remedy_and_change_nothing() {
    let mut rig = Rig::new();
    rig.ask("POST", "/v1/volumes", "", &json!({ "name": "v", "bytes": 1 << 20 }));
    rig.ask("POST", "/v1/volumes/v/snapshots", "", &json!({ "name": "s" }));
    let other = Tank::new();
    let foreign = other.drives()[0].clone();
    let mine = rig.tank.drives()[1].clone();
    let small = text(&rig.tank.0.path("small"));
    File::create(&small).unwrap().set_len(1 << 20).unwrap();
    let occupied = text(&rig.tank.0.path("occupied"));
    fs::write(&occupied, vec![7; 24 << 20]).unwrap();
    let state = |rig: &mut Rig| {
        let pool = rig.get("/v1/pool");
        (rig.get("/v1/volumes"), pool["epoch"].clone(), pool["members"].as_array().unwrap().len())
    };
    let before = state(&mut rig);
    let volume = "/v1/volumes/v";
    for (method, url, body, status, words) in [
        (
            "POST",
            "/v1/volumes",
            json!({ "name": "v", "bytes": 4096 }),
            "409",
            "choose another name",
        ),
        ("POST", "/v1/volumes", json!({ "name": "w", "bytes": 0 }), "400", "4096"),
        ("POST", "/v1/volumes", json!({ "name": "w", "bytes": 4095 }), "400", "4096"),
        ("POST", "/v1/volumes", json!({ "name": "w", "bytes": u64::MAX }), "400", "4096"),
        ("POST", "/v1/volumes", json!({ "name": "w", "bytes": -1 }), "400", "expected u64"),
        ("POST", "/v1/volumes", json!({ "name": "a/b", "bytes": 4096 }), "400", "no name"),
        (
            "POST",
            "/v1/volumes",
            json!({ "name": "w", "bytes": 4096, "parity": 3 }),
            "400",
            "`parity`",
        ),
        ("POST", "/v1/volumes", json!([]), "400", "body"),
        ("PATCH", volume, json!({ "bytes": 4096 }), "400", "shrink"),
        ("PATCH", volume, json!({ "hosts": [{ "nqn": "me" }] }), "400", "NQN"),
        ("PATCH", volume, json!({ "hosts": ["me"] }), "400", "body"),
        (
            "POST",
            "/v1/volumes/v/hosts",
            json!({ "nqn": HOST, "key_file": "k" }),
            "400",
            "whole path",
        ),
        ("POST", "/v1/volumes/v/hosts", json!({ "nqn": "*", "key_file": "/k" }), "400", "any host"),
        ("POST", "/v1/volumes/v/hosts", json!({ "nqn": HOST, "snapshot": "x" }), "404", "'x'"),
        ("POST", "/v1/volumes/v/clones", json!({ "snapshot": "x", "name": "c" }), "404", "'x'"),
        (
            "POST",
            "/v1/volumes/v/clones",
            json!({ "snapshot": "s", "name": "v" }),
            "409",
            "another name",
        ),
        ("POST", "/v1/volumes/v/rollback", json!({ "snapshot": "x" }), "404", "'x'"),
        ("POST", "/v1/volumes/none/snapshots", json!({ "name": "s" }), "404", "'none'"),
        ("DELETE", "/v1/volumes/v/snapshots/x", json!({}), "404", "'x'"),
        ("POST", "/v1/drives", json!({ "device": foreign }), "409", "belongs to pool 'tank'"),
        ("POST", "/v1/drives", json!({ "device": small }), "400", "larger drive"),
        ("POST", "/v1/drives", json!({ "device": occupied }), "409", "choose another device"),
        ("POST", "/v1/drives", json!({ "device": "/dev/no-such" }), "404", "/dev/no-such"),
        ("POST", "/v1/drives", json!({ "device": "tape:1" }), "400", "tape:"),
        ("POST", "/v1/drives/0/replace", json!({ "device": mine }), "409", "open elsewhere"),
        ("POST", "/v1/drives/0/rejoin", json!({ "device": foreign }), "409", "not drive 0"),
        ("POST", "/v1/drives/0/rejoin", json!({ "device": occupied }), "404", "no label"),
        ("POST", "/v1/drives/7/rejoin", json!({ "device": mine }), "404", "'7'"),
        ("POST", "/v1/drives/7/rejoin", json!({}), "404", "'7'"),
        ("POST", "/v1/drives/x/retire", json!({}), "400", "no number"),
        ("POST", "/v1/drives/7/retire", json!({}), "404", "'7'"),
        ("DELETE", "/v1/drives/7/retire", json!({}), "404", "'7'"),
        ("POST", "/v1/scrub", json!({ "fast": true }), "400", "`fast`"),
    ] {
        let (got, answer) = rig.ask(method, url, "", &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(got, status, "{method} {url} {body}: {answer}");
        assert!(message.contains(words), "{method} {url} {body}: no '{words}' in {message}");
    }
    for (head, body, status, words) in [
        ("POST /v1/volumes", "{\"name\":", "400", "no JSON"),
        ("POST /v1/volumes", "\u{1}", "400", "no JSON"),
        ("PUT /v1/volumes", "{}", "405", "takes GET, POST"),
        ("TRACE /v1/pool", "", "405", "takes GET"),
        ("GET /v2", "", "404", "GET /v1"),
        ("GET /v1/volumes/%", "", "404", "GET /v1"),
    ] {
        let (got, answer) = rig.tank.request(head, body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(got == status && message.contains(words), "{head}: {got} {answer}");
    }
    // A body that is too large is refused by its length, before it is sent.
    let mut stream = UnixStream::connect(rig.tank.socket()).unwrap();
    write!(stream, "POST /v1/volumes HTTP/1.0\r\nContent-Length: 1048577\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 413 ") && answer.contains("1048576 bytes"), "{answer}");
    assert_eq!(state(&mut rig), before);
    rig.running.take().unwrap().signal(Signal::TERM);
}

#[test]
fn alarms_have_a_code_a_sentence_and_a_command() {
    let mut rig = Rig::new();
    rig.kill();
    rig.drives.remove(1);
    rig.start();
    let pool = rig.get("/v1/pool");
    let alarms = pool["alarms"].as_array().unwrap();
    assert!(alarms.iter().any(|alarm| alarm["code"] == "DRIVE_MISSING"), "{alarms:?}");
    let shown = rig.tank.ask("pool status tank").succeeds().out();
    for alarm in alarms {
        let word = |name: &str| alarm[name].as_str().unwrap();
        assert!(word("code").chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{alarm}");
        assert!(word("text").ends_with('.') && !word("text").contains(". "), "{alarm}");
        assert!(word("command").starts_with("esker ") && !word("command").contains('`'), "{alarm}");
        // An alarm during a repair may have come and gone.
        let is_passing = word("code") == "DEGRADED" || word("code") == "BUFFER_DEGRADED";
        assert!(
            is_passing || shown.contains(word("code")) && shown.contains(word("command")),
            "{shown}"
        );
    }
    rig.running.take().unwrap().end();
}
