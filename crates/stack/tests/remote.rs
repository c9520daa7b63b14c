//! Remote namespaces by their specification, over the loopback.

use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, ErrorKind, Lba};
use esker_device::{Create, Device, MemoryDevice, Port, conformance};
use esker_kv::{Kvdb, Location, MediaClass, Medium, Options, Policy};
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{
    Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_stack::{Opened, Spec, Stack, StackError, VolumeSpec};
use esker_volume::{CreateOptions, Pool, VolumeOptions};

const NQN: &str = "nqn.2026-01.io.esker:test";
const HOST: &str = "nqn.2026-01.io.esker:host";

/// A target with these devices as namespaces from 1 on, and two portals on free ports.
fn serve(devices: &[Arc<dyn Device>], access: Access) -> Target {
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.access = access;
    subsystem.namespaces = (1..)
        .zip(devices)
        .map(|(nsid, device)| NamespaceConfig { nsid, device: device.clone(), uuid: None })
        .collect();
    let portal = PortalConfig::new("127.0.0.1:0".parse().unwrap());
    let (portals, subsystems) = (vec![portal; 2], vec![subsystem]);
    Target::start(&TargetConfig { portals, subsystems, ..TargetConfig::default() }).unwrap()
}

fn memory(mib: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("memory", mib << 20, 4096))
}

fn text(target: &Target, keys: &str) -> String {
    let hosts: Vec<String> = target.addresses().iter().map(ToString::to_string).collect();
    format!("nvme-tcp://{}/{NQN}?{keys}", hosts.join(","))
}

fn open(text: &str) -> Result<Opened, StackError> {
    Stack::new().open(&text.parse::<Spec>()?, Create::IfMissing)
}

#[test]
fn a_remote_namespace_is_a_device_like_any_other() {
    let devices = [memory(2), memory(4)];
    let target = serve(&devices, Access::Any);
    for (nsid, keys) in [(1, "retry=10ms"), (2, "nsid=2&hdgst=1&ddgst=1&give-up=60s")] {
        let opened = open(&text(&target, keys)).unwrap();
        assert_eq!(opened.device.geometry().capacity.0, nsid * 512);
        assert!(opened.device.discards_zero() && opened.remarks().is_empty());
        conformance::check(&*opened.device, 16, 1000, nsid);
    }
    let refused = open(&text(&target, "nsid=3")).err().unwrap();
    assert!(refused.to_string().contains("it has no namespace 3"), "{refused}");
    target.close_portal(0).unwrap();
    let opened = open(&text(&target, "")).unwrap();
    conformance::check(&*opened.device, 4, 100, 3);
    let remark = &opened.remarks()[0];
    assert!(remark.contains("without success") || remark.contains("not connected"), "{remark}");
}

#[test]
fn keys_are_in_files_that_nobody_else_reads() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let key = |name: &str, byte: u8, mode: u32| {
        let (path, secret) = (scratch.path().join(name), Secret::new(&[byte; 32], None));
        std::fs::write(&path, secret.to_text()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (path.to_str().unwrap().to_owned(), secret)
    };
    let (own, secret) = key("own", 1, 0o600);
    let (controllers, controller_secret) = key("controllers", 2, 0o600);
    let (open_to_all, _) = key("open", 1, 0o644);
    let host = HostConfig {
        nqn: HOST.to_owned(),
        secret: Some(secret),
        controller_secret: Some(controller_secret),
        tls_key: None,
    };
    let target = serve(&[memory(1)], Access::Hosts(vec![host]));
    let with = |keys: String| open(&text(&target, &format!("hostnqn={HOST}&{keys}")));
    let opened = with(format!("key-file={own}&controller-key-file={controllers}")).unwrap();
    conformance::check(&*opened.device, 4, 100, 5);
    let refused = |keys: String, kind: ErrorKind| {
        let error = with(keys).err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
    };
    refused(String::new(), ErrorKind::Conflict);
    refused(format!("key-file={controllers}"), ErrorKind::Conflict);
    refused(format!("key-file={own}&controller-key-file={own}"), ErrorKind::Conflict);
    refused(format!("key-file={open_to_all}"), ErrorKind::Invalid);
    refused(format!("key-file={own}-gone"), ErrorKind::NotFound);
    assert_eq!(open(&text(&target, "")).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn a_database_on_a_remote_namespace_is_found_again() {
    let scratch = tempfile::tempdir().unwrap();
    let target = serve(&[memory(256)], Access::Any);
    let text = text(&target, "");
    let options = || Options::default().with(|set| set.memory_bytes = 64 << 20);
    let value = |n: u32| [n.to_le_bytes(); 50].concat();
    {
        let device = open(&text).unwrap().device;
        let name = text.parse::<Spec>().unwrap().for_reopening().unwrap().to_string();
        let location = Location::dir(scratch.path()).capacity(Medium::Device { name, device });
        let db = Kvdb::builder(location).options(options()).create().unwrap();
        let kvs = db.create_kvs("a", Policy::default()).unwrap();
        for n in 0..5000u32 {
            kvs.put(n.to_be_bytes(), value(n)).unwrap();
        }
        db.close().unwrap();
    }
    let location = Location::dir(scratch.path());
    let name = location.device_names().unwrap()[&MediaClass::Capacity].clone();
    let device = open(&name).unwrap().device;
    let location = location.capacity(Medium::Device { name, device });
    let db = Kvdb::builder(location).options(options()).open().unwrap();
    let kvs = db.kvs("a").unwrap();
    for n in (0..5000u32).step_by(7) {
        assert_eq!(kvs.get(n.to_be_bytes()).unwrap(), Some(value(n).into()));
    }
    db.close().unwrap();
}

/// Elsewhere an initiator tries for 30 s; here others have what the drive has.
#[test]
fn drive_of_a_pool_whose_target_is_gone_is_out_before_writers_wait_two_seconds() {
    let mut targets: Vec<Target> = (0..3).map(|_| serve(&[memory(32)], Access::Any)).collect();
    let drives: Vec<Spec> =
        targets.iter().map(|target| text(target, "").parse().unwrap()).collect();
    let stack = Stack::new();
    let devices: Vec<_> = drives.iter().map(|one| stack.open_member(one).unwrap().device).collect();
    let create = CreateOptions {
        name: "p".to_owned(),
        chunk_bytes: 256 << 10,
        log_bytes: 512 << 10,
        ..CreateOptions::default()
    };
    Pool::create(&devices, &[], &create).unwrap();
    drop(devices);
    let pool = stack.pool(&VolumeSpec::of_pool("p", &drives, &[])).unwrap();
    pool.create_volume("v", 1 << 20, VolumeOptions::default()).unwrap();
    let mut port = Port::open(&*pool.volume("v").unwrap(), 1).unwrap();
    let clock = Clock::real();
    let mut longest = Duration::ZERO;
    for round in 0..200u8 {
        if round == 50 {
            drop(targets.pop());
        }
        let began = clock.now();
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(round);
        port.write(Lba(u64::from(round) % 64), buf, None).unwrap();
        port.flush().unwrap();
        longest = longest.max(clock.now() - began);
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let faulted = pool.status().alarms.iter().any(|alarm| alarm.code == "DRIVE_FAULTED");
    assert!(faulted, "{:?}", pool.status().alarms);
}
