//! A target service in this process: it is asked, reads its configuration again, and ends. Signals are of the whole
//! process, so this file has one test.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use esker_base::{AlignedBuf, Lba, thread};
use esker_device::Port;
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_serve::events::Waiting;
use esker_serve::target::{TargetOptions, TargetService, status};
use esker_stack::Stack;
use rustix::process::{Signal, getpid, kill_process};

const A: &str = "nqn.2026-01.io.esker:a";
const B: &str = "nqn.2026-01.io.esker:b";

fn options(config: &Path) -> TargetOptions {
    TargetOptions {
        config: Some(config.to_owned()),
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        listen_tls: Vec::new(),
        announce: Vec::new(),
        subsystem: None,
        devices: Vec::new(),
        allow: Vec::new(),
        allow_any: false,
        key_file: None,
        controller_key_file: None,
        tls_key_file: None,
        write_cache: true,
        reservations: None,
        workers: None,
        patience: None,
        controller_ids: None,
        control: None,
        api: None,
        metrics: SocketAddr::from(([127, 0, 0, 1], 0)),
        commit: "0123456789ab",
    }
}

fn subsystem(nqn: &str) -> String {
    format!(
        "[[subsystem]]\nnqn = \"{nqn}\"\nallow_any = true\n\
         [[subsystem.namespace]]\nnsid = 1\ndevice = \"mem:8MiB\"\n"
    )
}

/// The rest of the line that begins so, up to a slash.
fn address(greeting: &str, start: &str) -> SocketAddr {
    let rest = greeting.lines().find_map(|line| line.strip_prefix(start)).unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn target_is_asked_reads_its_configuration_again_and_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let config = scratch.path().join("target.toml");
    fs::write(&config, subsystem(A)).unwrap();
    let (said, heard) = mpsc::channel();
    let tell = |told: esker_serve::events::Told<'_>| said.send(format!("{told:?}")).unwrap();
    // Whatever is waited for in vain ends with the time.
    let mut events = Waiting::new(Some(Duration::from_secs(60))).unwrap();
    let mut service =
        TargetService::start(options(&config), Arc::new(Stack::new()), &tell).unwrap();
    assert!(heard.recv().unwrap().starts_with("Note(\"nqn.2026-01.io.esker:a: any host"));
    let greeting = service.greeting();
    assert!(greeting.ends_with("serving nqn.2026-01.io.esker:a namespace 1: mem:8MiB\n"));
    let (listening, metrics) =
        (address(&greeting, "listening on "), address(&greeting, "metrics at http://"));

    let client = thread::spawn("client", move || {
        let open = |nqn| Initiator::open(InitiatorConfig::new(vec![listening], nqn, 1).unwrap());
        let signal = |signal| {
            kill_process(getpid(), signal).unwrap();
            // Notes come before the outcome.
            heard.iter().find(|said| !said.starts_with("Note")).unwrap()
        };
        let first = open(A).unwrap();
        let mut port = Port::open(&first, 1).unwrap();
        port.write(Lba(1), AlignedBuf::zeroed(4096), None).unwrap();
        let text = status(metrics).unwrap();
        assert!(text.contains("namespace 1 of nqn.2026-01.io.esker:a"), "{text}");
        assert!(open(B).is_err());

        fs::write(&config, subsystem(A) + &subsystem(B)).unwrap();
        let said = signal(Signal::HUP);
        assert!(said.starts_with("Output(\"configuration read again\\nserving "), "{said}");
        drop(open(B).unwrap());
        fs::write(&config, "colour = 1\n").unwrap();
        let said = signal(Signal::HUP);
        assert!(said.starts_with("Failure(") && said.contains("stays in force: "), "{said}");
        drop(open(B).unwrap());
        port.write(Lba(2), AlignedBuf::zeroed(4096), None).unwrap();
        drop((port, first));
        assert_eq!(signal(Signal::TERM), "Output(\"ending: terminated\\n\")");
    });
    service.run(&mut events, &tell);
    client.unwrap().join().unwrap();
    service.close().unwrap();
    assert_eq!(status(metrics).unwrap_err().kind(), esker_base::ErrorKind::NotFound);
}
