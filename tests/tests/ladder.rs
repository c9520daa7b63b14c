//! The ladder of the crates, and the house rules that a program can check.
//!
//! Each rule is a function from its subject to findings, one line each; the workspace has to
//! yield none, and a small counterexample one. `cargo metadata` describes the workspace.

#[path = "ladder/callers.rs"]
mod callers;
#[path = "ladder/circles.rs"]
mod circles;
#[path = "ladder/crates.rs"]
mod crates;
#[path = "ladder/house.rs"]
mod house;
#[path = "ladder/imports.rs"]
mod imports;
#[path = "ladder/life.rs"]
mod life;
#[path = "ladder/limits.rs"]
mod limits;
#[path = "ladder/locks.rs"]
mod locks;
#[path = "ladder/rooms.rs"]
mod rooms;
#[path = "ladder/source.rs"]
mod source;

use std::path::{Path, PathBuf};

use callers::Words;
use crates::{Crate, Dependency, Kind};
use imports::Sources;
use rooms::Rooms;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().to_owned()
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[track_caller]
fn assert_one(findings: &[String], part: &str) {
    assert!(
        findings.len() == 1 && findings[0].contains(part),
        "one finding about '{part}' was expected: {findings:?}"
    );
}

// ---- crates --------------------------------------------------------------------------------------

#[test]
fn dependencies_keep_to_the_ladder() {
    let all = crates::of_workspace(&root());
    let rungs_1_to_3 = [
        "base", "device", "report", "sim", "kv", "attach", "cache", "bench", "flash", "nvmf",
        "pager", "trace", "volume",
    ];
    for name in rungs_1_to_3.into_iter().chain([
        "stack",
        "lab",
        "serve",
        "c",
        "cli",
        "preload",
        "preload-malloc",
        "tests",
    ]) {
        let name = format!("esker-{name}");
        assert!(all.iter().any(|one| one.name == name), "{name} is missing");
    }
    assert_none(&crates::findings(&all));
}

#[test]
fn an_edge_off_the_ladder_is_found() {
    let edge = |from: &str, kind: Kind, to: &str| {
        let dependency = Dependency { name: to.into(), kind };
        crates::findings(&[Crate { name: from.into(), dependencies: vec![dependency] }])
    };
    assert_none(&edge("esker-kv", Kind::Normal, "esker-device"));
    assert_none(&edge("esker-kv", Kind::Dev, "esker-sim"));
    assert_none(&edge("esker-device", Kind::Dev, "esker-sim"));
    assert_none(&edge("esker-cli", Kind::Normal, "esker-bench"));
    assert_none(&edge("esker-cli", Kind::Normal, "clap"));
    assert_none(&edge("esker-stack", Kind::Normal, "esker-flash"));
    assert_none(&edge("esker-cli", Kind::Normal, "esker-stack"));
    assert_none(&edge("esker-serve", Kind::Normal, "esker-stack"));
    assert_none(&edge("esker-cli", Kind::Normal, "esker-serve"));
    assert_one(&edge("esker-stack", Kind::Normal, "esker-serve"), "up or sideways");
    assert_one(&edge("esker-serve", Kind::Normal, "esker-lab"), "up or sideways");
    assert_one(&edge("esker-serve", Kind::Normal, "esker-cli"), "up or sideways");
    assert_one(&edge("esker-kv", Kind::Normal, "esker-stack"), "up or sideways");
    assert_one(&edge("esker-lab", Kind::Normal, "esker-stack"), "up or sideways");
    assert_one(&edge("esker-base", Kind::Normal, "esker-device"), "up or sideways");
    assert_one(&edge("esker-device", Kind::Build, "esker-kv"), "up or sideways");
    for sibling in ["bench", "cache", "pager", "volume", "nvmf", "flash"] {
        let sibling = format!("esker-{sibling}");
        assert_one(&edge("esker-kv", Kind::Normal, &sibling), "up or sideways");
        assert_one(&edge("esker-kv", Kind::Dev, &sibling), "up or sideways");
    }
    assert_none(&edge("esker-preload", Kind::Normal, "esker-pager"));
    assert_one(&edge("esker-bench", Kind::Normal, "esker-kv"), "up or sideways");
    assert_one(&edge("esker-bench", Kind::Normal, "esker-device"), "on base and report only");
    assert_none(&edge("esker-bench", Kind::Normal, "esker-report"));
    assert_one(&edge("esker-report", Kind::Normal, "esker-device"), "up or sideways");
    assert_one(&edge("esker-report", Kind::Normal, "esker-bench"), "up or sideways");
    assert_one(&edge("esker-kv", Kind::Normal, "esker-sim"), "in tests only");
    assert_one(&edge("esker-cli", Kind::Normal, "esker-sim"), "in tests only");
    assert_one(&edge("esker-sim", Kind::Normal, "esker-kv"), "up or sideways");
    assert_one(&edge("esker-oddments", Kind::Normal, "serde"), "no rung");
    assert_none(&edge("esker-kv", Kind::Dev, "tokio"));
    for refused in ["anyhow", "clap", "clap_complete", "tokio", "tracing", "indicatif"] {
        assert_one(&edge("esker-kv", Kind::Normal, refused), "rung 4");
        assert_one(&edge("esker-sim", Kind::Dev, refused), "rung 4");
    }
}

// ---- sources -------------------------------------------------------------------------------------

/// The crates that are no programs.
const LIBRARIES: [&str; 16] = [
    "base", "device", "report", "sim", "kv", "attach", "cache", "bench", "flash", "nvmf", "pager",
    "trace", "volume", "stack", "lab", "serve",
];

#[test]
fn libraries_neither_print_nor_look_around_nor_hide_unsafe_code() {
    let mut findings = Vec::new();
    for library in LIBRARIES {
        let files = source::files(&root().join("crates").join(library).join("src"));
        assert!(files.len() > 5, "{library} has {} files", files.len());
        for (path, text) in files {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            findings.extend(source::findings(library, &name, &text));
        }
    }
    assert_none(&findings);
}

#[test]
fn printing_the_environment_and_unsafe_code_are_found() {
    let check = |library: &str, text: &str| source::findings(library, "x.rs", text);
    let allowed = "#![allow(unsafe_code)]\n";
    assert_none(&check("kv", "//! println!(\"a\")\nfn f() { g(\"println!(1) unsafe\") }"));
    assert_none(&check("kv", "/* unsafe /* env::var */ */ const Q: char = '\"'; // dbg!(1)"));
    assert_none(&check("kv", "const R: &str = r#\"std::env \" unsafe\"#;"));
    assert_none(&check("kv", "fn f() {}\n#[cfg(test)]\nmod tests {\n fn g() { println!() } }"));
    assert_none(&check("device", &format!("{allowed}fn f() {{ unsafe {{ g() }} }}")));
    let name = "crates/kv/src/omf/tests/golden.rs";
    assert_none(&source::findings("kv", name, "use std::env;"));
    for printing in ["println", "eprintln", "print", "eprint", "dbg"] {
        let text = format!("fn f<'a>(c: char) {{ if c == '\"' {{ {printing}!(\"a\"); }} }}");
        assert_one(&check("kv", &text), "x.rs:1");
    }
    assert_one(&check("base", "fn f() {\n    std::io::stdout();\n}"), "x.rs:2");
    assert_one(&check("base", "use std::env;"), "environment");
    assert_one(&check("base", "use std::{env, fs};"), "environment");
    assert_one(&check("base", "fn f() { std::env::var(\"A\"); }"), "environment");
    assert_none(&check("sim", "fn f() { std::env::var(\"A\"); }"));
    assert_one(&check("device", "fn f() { unsafe { g() } }"), "unsafe");
    assert_one(&check("device", "#[allow(unsafe_code)]\nfn f() {}"), "unsafe");
    assert_one(&source::findings("device", "src/lib.rs", allowed), "the whole crate");
    for library in ["kv", "bench", "stack", "lab", "serve"] {
        assert_one(&check(library, allowed), "unsafe");
    }
    assert_one(&check("kv", "#[cfg(test)]\nuse a::b;\nfn f() { println!() }"), "x.rs:3");
}

#[test]
fn files_are_made_by_one_module_that_spares_dev() {
    let crates = root().join("crates");
    let mut findings = Vec::new();
    for entry in std::fs::read_dir(&crates).unwrap() {
        for (path, text) in source::files(&entry.unwrap().path().join("src")) {
            findings.extend(source::makes_files(&path.display().to_string(), &text));
        }
    }
    assert_none(&findings);
    for call in ["File::create(p)", "fs::write(p, b)", "fs::create_dir_all(p)", "o.create(true)"] {
        assert_one(&source::makes_files("x.rs", &format!("fn f() {{ {call}; }}")), "x.rs:1");
    }
    assert_none(&source::makes_files("x.rs", "// File::create(p)\nfn f() { files::create(p) }"));
}

/// The longest file of Rust, in lines.
const FILE_LINES: usize = 700;

#[test]
fn no_file_is_longer_than_anyone_reads() {
    let mut findings = Vec::new();
    for folder in ["crates", "bindings", "tests"] {
        for (path, text) in source::files(&root().join(folder)) {
            findings.extend(source::too_long(&path, &text, FILE_LINES));
        }
    }
    assert_none(&findings);
}

#[test]
fn a_long_file_is_found() {
    let path = Path::new("x.rs");
    let judge = |lines: usize| source::too_long(path, &"\n".repeat(lines), FILE_LINES);
    assert_none(judge(FILE_LINES).as_slice());
    assert_one(judge(FILE_LINES + 1).as_slice(), "701 lines");
}

#[test]
fn each_file_of_tests_is_in_their_program() {
    let mut programs = 0;
    let mut findings = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path().join("tests/all");
        if !folder.is_dir() {
            continue;
        }
        programs += 1;
        let (paths, texts): (Vec<_>, Vec<_>) = source::files(&folder).into_iter().unzip();
        let main = folder.join("main.rs");
        let at = paths.iter().position(|path| *path == main).expect("a main.rs");
        findings.extend(source::undeclared(&main, &texts[at], &paths));
    }
    assert!(programs > 5, "{programs} programs of tests");
    assert_none(&findings);
}

#[test]
fn a_file_of_tests_that_no_program_has_is_found() {
    let files = ["all/main.rs", "all/here.rs", "all/lost.rs", "all/here/part.rs"];
    let files = files.map(PathBuf::from);
    let check = |text: &str| source::undeclared(&files[0], text, &files);
    assert_none(&check("mod here;\nmod lost;\n"));
    assert_one(&check("mod here;\n// mod lost;\n"), "lost.rs");
}

// ---- rooms inside crates -------------------------------------------------------------------------

/// The rooms of the engine, which see the ones below by the names that these themselves give on.
fn kv_rooms() -> Vec<&'static str> {
    house::rooms("kv").unwrap()
}

/// The workspace's crates by their folders: those in `crates`, and the bindings.
fn folders() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for parent in ["crates", "bindings"] {
        let Ok(entries) = std::fs::read_dir(root().join(parent)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.join("Cargo.toml").exists() {
                found.push((path.file_name().unwrap().to_string_lossy().into_owned(), path));
            }
        }
    }
    found.sort();
    found
}

/// The findings in each crate.
fn in_all(find: impl Fn(&str, &Rooms) -> Vec<String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, _) in folders() {
        let found = find(&name, &rooms_of(&sources(&name)));
        findings.extend(found.iter().map(|one| format!("{name}: {one}")));
    }
    findings
}

/// The sources of a crate, by their paths below `src`.
fn sources(name: &str) -> Vec<(String, String)> {
    let folder = folders().into_iter().find(|(known, _)| known == name).unwrap().1;
    let src = folder.join("src");
    let below = |path: &Path| path.strip_prefix(&src).unwrap().display().to_string();
    source::files(&src).into_iter().map(|(path, text)| (below(&path), text)).collect()
}

fn rooms_of(files: &[(String, String)]) -> Rooms {
    Rooms::of(files.iter().map(|(name, text)| (&name[..], &text[..])))
}

#[test]
fn every_crate_has_an_order_of_rooms() {
    let known: Vec<&str> = house::ROOMS.iter().map(|(name, _)| *name).collect();
    let all = folders();
    let all: Vec<&str> = all.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(known, all, "ladder/house.rs names the crates and their rooms");
}

#[test]
fn imports_run_downward_through_the_rooms_of_a_crate() {
    assert_none(&rooms_of(&sources("kv")).upward(&kv_rooms()));
    let upward = |name: &str, rooms: &Rooms| {
        rooms.upward_by_definition(&house::rooms(name).unwrap_or_default())
    };
    assert_none(&in_all(upward));
}

#[test]
fn methods_of_the_engine_call_none_of_a_higher_room() {
    assert_none(&rooms_of(&sources("kv")).calls_upward(&kv_rooms(), "Engine"));
}

#[test]
fn a_name_of_a_type_is_defined_once_in_a_crate() {
    assert_none(&rooms_of(&sources("kv")).names_defined_twice());
    let two = [("a/x.rs", "pub struct Place {\n}\n"), ("b.rs", "type Place = u64;\nfn f() {}\n")];
    assert_one(&Rooms::of(two).names_defined_twice(), "Place is defined in a/x.rs and b.rs");
    let tests = ("c.rs", "enum Other {}\n#[cfg(test)]\nmod tests {\nstruct Place;\n}");
    assert_none(&Rooms::of([two[0], tests]).names_defined_twice());
}

#[test]
fn a_public_name_of_a_type_is_defined_once_in_a_crate() {
    assert_none(&in_all(|_, rooms| rooms.public_names_defined_twice()));
    let of = |second: &str| {
        Rooms::of([("a.rs", "pub(crate) struct Verdict {}\n"), ("b.rs", second)])
            .public_names_defined_twice()
    };
    assert_one(&of("pub enum Verdict {}\n"), "Verdict is defined in a.rs and b.rs");
    assert_none(&of("enum Verdict {}\n"));
}

#[test]
fn methods_of_a_type_call_each_other_over_two_files_at_most() {
    assert_none(&in_all(|_, rooms| rooms.method_circles()));
    let file = |own: &str, other: &str| {
        format!(
            "\nimpl<'a> Pump<'a> {{\n    fn {own}(&self) {{\n        self.{other}();\n    }}\n}}\n"
        )
    };
    let (one, two, three) = (file("one", "two"), file("two", "three"), file("three", "one"));
    let files = [("pump/a.rs", &one[..]), ("pump/b.rs", &two), ("pump/c.rs", &three)];
    let found = Rooms::of(files).method_circles();
    assert_one(&found, "Pump's methods: a circle of 3 files: pump/a.rs, pump/b.rs, pump/c.rs");
    let other_room = [files[0], files[1], ("valve/c.rs", &three)];
    assert_none(&Rooms::of(other_room).method_circles());
    assert_none(&Rooms::of(files[..2].iter().copied()).method_circles());
}

#[test]
fn public_functions_of_inner_crates_have_callers() {
    let mut texts: Vec<String> = Vec::new();
    for folder in ["crates", "bindings", "tests", "compare/src", "compare/tests"] {
        if root().join(folder).exists() {
            texts.extend(source::files(&root().join(folder)).into_iter().map(|(_, text)| text));
        }
    }
    let words = Words::of(texts.iter().map(|text| &text[..]));
    let mut findings = Vec::new();
    // The engine's functions are called by programs of others, as those in C are.
    for (name, _) in folders().into_iter().filter(|(name, _)| name != "kv") {
        let files = sources(&name).into_iter().filter(|(file, _)| !imports::is_test(file));
        let found = files.flat_map(|(file, text)| words.uncalled(&file, &text));
        findings.extend(found.map(|one| format!("{name}: {one}")));
    }
    assert_none(&findings);
}

#[test]
fn function_without_a_caller_is_found() {
    let text = "pub fn lonely() {}\npub const fn used() {}\n// lonely()\n#[unsafe(no_mangle)]\npub extern \"C\" fn c() {}\n";
    let words = Words::of([text, "fn f() { used(); g(\"lonely\") }"]);
    assert_one(&words.uncalled("x.rs", text), "x.rs:1: nothing calls lonely");
}

#[test]
fn an_upward_import_is_found() {
    let mut files = sources("kv");
    let planted = [
        "use crate::read::get::Located;",
        "use crate::{sync::Mutex, api::{kvs::Kvs, kvdb}};",
        "fn f(kvs: &crate::api::kvs::Kvs) {}",
        "use super::super::api::kvs::Kvs;",
        "use crate::KEY_MAX;",
    ];
    let at = files.iter().position(|(name, _)| name == "tree/view.rs").unwrap();
    let sound = files[at].1.clone();
    for planted in planted {
        files[at].1 = sound.replacen("\n\nuse ", &format!("\n\n{planted}\nuse "), 1);
        let found = rooms_of(&files).upward(&kv_rooms());
        assert!(
            !found.is_empty() && found.iter().all(|it| it.contains("tree/view.rs")),
            "{found:?}"
        );
    }
    files[at].1 =
        sound.replacen("#[cfg(test)]", "", 0) + "\n#[cfg(test)]\nmod tests {\n use crate::Kvs; }";
    assert_none(&rooms_of(&files).upward(&kv_rooms()));
    // Elsewhere an import counts by where the name is defined: the root may give it on.
    let text = "use crate::KEY_MAX;\nuse crate::Kvs;\n";
    files[at].1 = sound.replacen("\n\nuse ", &format!("\n\n{text}use "), 1);
    assert_one(
        &rooms_of(&files).upward_by_definition(&kv_rooms()),
        "tree/view.rs imports api/kvs.rs",
    );
    files[at].1 = sound;
    files.push(("attic/box.rs".into(), String::new()));
    assert_one(&rooms_of(&files).upward(&kv_rooms()), "attic/box.rs: its room is not in the order");
}

#[test]
fn a_call_upward_is_found() {
    let lower = "\nimpl Engine {\n    pub(crate) fn low(&self) {\n        self.high();\n    }\n}\n";
    let upper = "\nimpl Engine {\n    fn high(&self) {\n        self.low();\n    }\n}\n";
    let calls = |lower: &str| {
        let both = [("engine/shared.rs", lower), ("write/put.rs", upper)];
        Rooms::of(both).calls_upward(&kv_rooms(), "Engine")
    };
    assert_one(&calls(lower), "engine/shared.rs calls Engine::high");
    assert_one(&calls("fn f(engine: &Engine) {\n    engine.high();\n}\n"), "calls Engine::high");
    assert_none(&calls("\nimpl Other {\n    fn f(&self) {\n        self.high();\n    }\n}\n"));
}

// ---- locks of the engine -------------------------------------------------------------------------

fn stated_locks() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    locks::stated(&text, "### Locks")
}

/// The engine's sources without comments, literals and tests.
fn engine_code() -> Vec<(String, String)> {
    let files = sources("kv").into_iter().filter(|(name, _)| !imports::is_test(name));
    files.map(|(name, text)| (name, imports::without_tests(&source::code(&text)))).collect()
}

#[test]
fn locks_of_the_engine_are_taken_in_the_order_that_is_stated() {
    let (order, code) = (stated_locks(), engine_code());
    let parts = [
        ("engine/shared.rs", "Engine"),
        ("engine/scheduler.rs", "Scheduler"),
        ("engine/remarks.rs", "Remarks"),
        ("log/open.rs", "Log"),
        ("tree/current.rs", "CurrentView"),
    ];
    let of = |(file, part): (&str, &str)| {
        let (_, code) = code.iter().find(|(name, _)| name == file).unwrap();
        let mutexes = locks::mutexes(code, part);
        assert!(!mutexes.is_empty(), "{part} has none in {file}");
        mutexes
    };
    let mut wanted: Vec<&str> = parts.into_iter().flat_map(of).collect();
    // These have their locks inside.
    wanted.extend(["transactions", "scratch"]);
    wanted.sort_unstable();
    let mut named: Vec<&str> = order.iter().map(|lock| &lock[..]).collect();
    named.sort_unstable();
    assert_eq!(named, wanted, "ARCHITECTURE.md names the engine's locks");
    assert_none(&locks::findings(&code, &order));
}

#[test]
fn a_lock_against_the_order_is_found() {
    let order = stated_locks();
    let judge = |body: &str| {
        let code = format!(
            "fn planted(&self) {{\n{body}\n}}\nfn flushes(&self) {{\n    let _f = self.flushing.lock();\n}}\n"
        );
        locks::findings(&[("a.rs".into(), code)], &order)
    };
    assert_none(&judge("    let _a = self.flushing.lock();\n    let _b = self.writer.lock();\n"));
    assert_one(
        &judge("    let a = self.writer.lock();\n    let b = self.flushing.lock();\n"),
        "holds writer and takes flushing",
    );
    assert_one(
        &judge("    let a = self.writer.lock();\n    log::flushes(engine);\n"),
        "takes flushing in flushes",
    );
    assert_one(
        &judge("    let a = engine.log.tail();\n    let b = engine.log.lead();\n"),
        "holds writer and takes flushing",
    );
    assert_one(
        &judge("    let a = self.writer.lock();\n    self.flushes();\n"),
        "takes flushing in flushes",
    );
    assert_one(
        &judge("    let a = self.writer.lock();\n    let b = self.writer.lock();\n"),
        "takes writer",
    );
    assert_none(&judge("    let a = self.writer.lock();\n    drop(a);\n    self.flushes();\n"));
    assert_none(&judge("    {\n        let a = self.writer.lock();\n    }\n    self.flushes();\n"));
    assert_none(&judge(
        "    let mut a = self.writer.lock();\n    MutexGuard::unlocked(&mut a, || self.flushes());\n",
    ));
}

// ---- the lives of a put, a get, a write and a read -----------------------------------------------

#[track_caller]
fn assert_read_in_one_sitting(name: &str, lives: [&str; 2]) {
    let lib = root().join("crates").join(name).join("src/lib.rs");
    let text = std::fs::read_to_string(lib).unwrap();
    let mut findings = Vec::new();
    for life in lives {
        let files = life::files_named(name, &text, life);
        assert!(files.len() > 3, "{life} names {files:?}");
        findings.extend(life::findings(&root().join("crates"), life, &files));
    }
    assert_none(&findings);
}

#[test]
fn put_and_get_are_read_in_one_sitting() {
    assert_read_in_one_sitting("kv", ["Life of a put", "Life of a get"]);
}

#[test]
fn write_and_read_of_a_volume_are_read_in_one_sitting() {
    assert_read_in_one_sitting("volume", ["Life of a write", "Life of a read"]);
}

#[test]
fn a_life_that_is_too_long_or_names_what_is_not_there_is_found() {
    let text = "//! # Life of a put\n//!\n//! 1. `api/kvs.rs` [`Kvs::put`], `omf/frame.rs`, `api/kvs.rs`\n\
                //! 2. (`esker-device`: `blocking.rs`), `write/put.rs`.\n//!\n//! # Life of a get\n\
                //! `read/get.rs`\n";
    let named = life::files_named("kv", text, "Life of a put");
    let expected = [
        "kv/src/api/kvs.rs",
        "kv/src/omf/frame.rs",
        "device/src/blocking.rs",
        "kv/src/write/put.rs",
    ];
    assert_eq!(named, expected);
    assert_eq!(life::files_named("kv", text, "Life of a get"), ["kv/src/read/get.rs"]);
    let read = life::files_named("volume", text, "Life of a get");
    assert_eq!(read, ["volume/src/read/get.rs"]);

    let crates = root().join("crates");
    let judge = |files: &[String]| life::findings(&crates, "Life of a put", files);
    assert_none(&judge(&named));
    assert_one(&judge(&["kv/src/gone.rs".into()]), "does not exist");
    let every: Vec<String> = source::files(&crates.join("kv/src"))
        .iter()
        .map(|(path, _)| path.strip_prefix(&crates).unwrap().display().to_string())
        .collect();
    assert_one(&judge(&every[..11])[..1], "11 files");
    let long: Vec<String> = std::iter::repeat_n(named[1].clone(), 10).collect();
    assert_none(&judge(&long));
    let found = judge(&every);
    assert!(found.iter().any(|finding| finding.contains("lines")), "{found:?}");
}

// ---- circles of files ----------------------------------------------------------------------------

#[test]
fn no_more_than_two_files_import_each_other_in_a_circle() {
    assert_none(&in_all(|_, rooms| circles::findings(rooms.sources())));
}

#[test]
fn circle_of_three_files_is_found_through_faces_and_braces() {
    let of = |files: &[(&str, &str)]| circles::findings(&Sources::of(files.iter().copied()));
    let three = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use b::{inner::B, Other as Same};\n"),
        ("a.rs", "use std::fmt;\nuse crate::{B, c::C};\n"),
        ("b.rs", "pub mod inner;\n"),
        ("b/inner.rs", "use super::super::c::C;\n"),
        ("c.rs", "use crate::a::{\n    A,\n};\n// use crate::gone::D;\n"),
    ];
    assert_one(&of(&three), "a circle of 3 files: a.rs, b/inner.rs, c.rs");
    let mut inline = three;
    inline[3].1 = "fn f() -> super::super::c::C {}\n";
    assert_one(&of(&inline), "a circle of 3 files");
    // A parent imports a child whose path it writes, wherever its tests are declared.
    let parent = [
        ("lib.rs", "mod hse;\n"),
        (
            "hse.rs",
            "mod arm;\nmod calibrate;\n#[cfg(test)]\nmod tests;\nfn run() { calibrate::run() }\n",
        ),
        ("hse/calibrate.rs", "use super::arm::Arm;\n"),
        ("hse/arm.rs", "use super::run;\n"),
    ];
    assert_one(&of(&parent), "a circle of 3 files: hse.rs, hse/arm.rs, hse/calibrate.rs");
    // A face that gives on its children's names, while they use its own: no circle.
    let face = [
        ("lib.rs", "mod face;\n"),
        (
            "face.rs",
            "mod one;\nmod two;\npub use one::One;\npub(crate) use two::Two;\npub struct Face;\n",
        ),
        ("face/one.rs", "use super::Face;\n"),
        ("face/two.rs", "use super::{Face, One};\n"),
    ];
    assert_none(&of(&face));
    // Two may be one thought; tests may look anywhere.
    let two = [
        ("lib.rs", ""),
        ("a.rs", "use crate::b::B;\n"),
        ("b.rs", "use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n"),
        ("c.rs", "use crate::b::B;\n"),
    ];
    assert_none(&of(&two));
}

// ---- documents -----------------------------------------------------------------------------------

#[test]
fn limits_of_the_document_are_those_of_the_code() {
    let path = root().join("docs/limits.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let source = |file: &str| std::fs::read_to_string(root().join(file)).ok();
    let rendered = limits::rendered(&page, source).unwrap();
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &rendered).unwrap();
        return;
    }
    for (found, wanted) in page.lines().zip(rendered.lines()) {
        assert_eq!(
            found, wanted,
            "docs/limits.md is not the code's: ESKER_UPDATE_GOLDEN=1 writes it"
        );
    }
}

#[test]
fn numbers_of_a_row_become_those_of_its_constants() {
    let source = "const A: u64 = 3 << (5 + 5);\nconst B: (u8, u16) = (0x10, 1_000 * 2);\n    c: after(120_000),\n\
                  const D: u64 = 1 << 48;\nconst E: u16 = 0xff;\n";
    let row = |value: &str, constants: &str| {
        let page = format!("| a | {value} | {constants} |\n");
        limits::rendered(&page, |file| (file == "a/b.rs").then(|| source.to_owned()))
    };
    let whole = row("1 MiB, 2th of 9; 4 minutes", "`A`, `B`, `c`, `a/b.rs`").unwrap();
    assert_eq!(whole, "| a | 3 KiB, 16th of 2,000; 2 minutes | `A`, `B`, `c`, `a/b.rs` |\n");
    assert!(row("2^3 bytes, 0xab", "`D`, `E`, `a/b.rs`").unwrap().contains("2^48 bytes, 0xff "));
    for (value, constants) in [
        ("7", "`E`, `A`, `a/b.rs`"),
        ("7 to 8", "`E`, `a/b.rs`"),
        ("7", "`F`, `a/b.rs`"),
        ("7", "`E`, `a/c.rs`"),
        ("2^3", "`E`, `a/b.rs`"),
    ] {
        row(value, constants).unwrap_err();
    }
}
