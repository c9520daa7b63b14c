use std::path::PathBuf;
use std::time::Duration;

use esker_device::Preference;
use esker_flash::ftl::{Cleaning, Frontier};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let message = text.parse::<Spec>().unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "no '{word}' in: {message}");
    }
}

#[test]
fn a_text_without_a_scheme_is_a_path_as_it_is() {
    for path in ["/dev/nvme0n1", "./ssd:x?y=%", "data", "a b?c&d"] {
        let expected = FileSpec { path: path.into(), ..FileSpec::default() };
        assert_eq!(spec(path), Spec::File(expected));
        assert!(!Spec::has_scheme(path));
    }
    refused("", &["name a path"]);
}

#[test]
fn specifications_parse_to_their_meaning() {
    let Spec::Ssd(ssd) =
        spec("ssd:micron-7450?capacity=8GiB&time=10x&fdp=on&handles=0,1/2,3&op=0.2&wear=50")
    else {
        panic!("an SSD")
    };
    assert_eq!(ssd.profile.as_deref(), Some("micron-7450"));
    assert_eq!((ssd.capacity, ssd.time), (Some(8 << 30), Some(Time::Dilated(10))));
    assert_eq!((ssd.fdp, ssd.handles), (Some(Some(0)), Some(vec![vec![0, 1], vec![2, 3]])));
    assert_eq!((ssd.over_provisioning, ssd.cleaning), (Some(0.2), None));
    assert_eq!(ssd.wear, Some(Some(50)));
    refused("ssd:micron-7450?capacity=8GiB&wear=0", &["no count of erasures", "off"]);
    let text = "ssd:host-managed-256?capacity=8GiB&time=none&ftl=host&window=32";
    let Spec::Ssd(ssd) = spec(text) else { panic!("an SSD") };
    assert_eq!(
        (ssd.ftl, ssd.window, spec(text).to_string()),
        (Some(FtlSide::Host), Some(32), text.into())
    );
    let (_, parameters) = ssd.parameters().unwrap();
    assert_eq!(parameters.timing.host_queues.unwrap().window, 32);
    refused("ssd:host-managed-256?ftl=both", &["host", "drive"]);
    let why = |text: &str| {
        let Spec::Ssd(ssd) = spec(text) else { panic!("an SSD") };
        ssd.parameters().unwrap_err()
    };
    assert!(why("ssd:micron-7450?capacity=8GiB&ftl=host").contains("host-managed-256"));
    assert!(why("ssd:host-managed-256?capacity=8GiB&ftl=drive&window=8").contains("ftl=host"));
    assert_eq!(spec("mem:64KiB?lba=512"), Spec::Memory(MemorySpec { size: 65536, lba: Some(512) }));
    assert_eq!(spec("disk:sas-10k?time=none").time(), Some(Time::None));
    assert_eq!(spec("disk:sas-10k").time(), Some(Time::Real));
    assert_eq!(spec("mem:1MiB").time(), None);
    assert_eq!(spec("disk:sas-10k").with_time(Time::None), spec("disk:sas-10k?time=none"));
}

#[test]
fn a_device_within_another_is_what_it_is() {
    let text =
        "traced:(ssd:micron-7450?capacity=8GiB&time=none)?to=/tmp/a%28&if-exists=append&buffer=9";
    let traced = spec(text);
    assert_eq!(traced.to_string(), text);
    assert_eq!((traced.time(), traced.is_lasting()), (Some(Time::None), false));
    assert!(spec("traced:(/data)?to=t").is_lasting());
    let again = spec("traced:(/data)?to=t").for_reopening().unwrap();
    assert_eq!(again, spec("/data"));
    let text = "cache:(disk:sas-10k?time=none)?flash=(mem:64MiB)&mode=wb&policy=lru&size=32MiB\
                &sets=1MiB&run=64KiB&map=linear&bypass=off&read-ahead=512KiB&admit=again&dirty=30\
                &dirty-age=5s&name-age=off&daily-writes=0.5";
    let cache = spec(text);
    assert_eq!(cache.to_string(), text);
    assert_eq!((cache.time(), cache.is_lasting()), (Some(Time::None), false));
    assert!(spec("cache:(/data)?flash=(/fast)").is_lasting());
    refused("cache:(mem:1MiB)", &["the flash device is missing"]);
    refused("cache:(mem:1MiB)?flash=(mem:1MiB)&mode=x", &["is no mode"]);
    refused("cache:(mem:1MiB)?flash=(mem:1MiB)&read-ahead=x", &["read-ahead"]);
    refused("cache:(mem:1MiB)?flash=(mem:1MiB)&admit=x", &["auto"]);
    refused("cache:(mem:1MiB)?flash=(mem:1MiB)&daily-writes=0", &["0.5"]);
    refused("cache:(mem:1MiB)?flash=(mem:1MiB)&dirty-age=0s", &["dirty-age", "30s"]);
    let text = "stripe:(/a)(ssd:micron-7450?capacity=8GiB&time=none)?chunk=64KiB";
    let stripe = spec(text);
    assert_eq!(stripe, spec(&stripe.to_string()));
    assert_eq!((stripe.time(), stripe.is_lasting()), (Some(Time::None), false));
    assert_eq!(stripe.paths(), [Path::new("/a")]);
    let text = "volume:tank/db@monday?drives=(file:/a)(file:/b)&buffer=(mem:1MiB)&map=8MiB";
    let volume = spec(text);
    assert_eq!((volume.to_string().as_str(), volume.is_lasting()), (text, false));
    assert!(spec("volume:tank/db?drives=(/a)").is_lasting());
    refused("volume:tank/db?drives=/a", &["drives: '/a' is no specification in parentheses"]);
    refused("volume:/db", &["write volume:POOL/NAME, or volume:POOL/NAME?drives="]);
    refused("file:x?spin=1s", &["spin", "from 0 to 10000"]);
    refused("traced:(mem:1MiB)", &["say to=FILE"]);
    refused("traced:mem:1MiB?to=x", &["write traced:(mem:1GiB)?to=FILE"]);
}

#[test]
fn unknown_names_are_answered_with_known_ones() {
    refused("tape:x", &["no devices 'tape:'", "ssd:PROFILE", "./tape:x"]);
    refused("ssd:", &["a profile is missing", "micron-5210", "image="]);
    refused("ssd:intel", &["no solid-state drive 'intel'", "micron-9300, "]);
    refused("ssd:sas-10k", &["write disk:sas-10k"]);
    refused("disk:micron-9300", &["write ssd:micron-9300"]);
    refused("disk:?capacity=1GiB", &["sata-7200"]);
    refused("ssd:micron-9300?size=8GiB", &["no key 'size'", "capacity=SIZE", "cleaning=greedy|"]);
    refused("ssd:micron-9300?time=fast", &["time: 'fast'", "10x"]);
    refused("ssd:micron-9300?time=0x", &["is no time"]);
    refused("ssd:micron-9300?capacity=8GiB&capacity=8GiB", &["said twice"]);
    refused("ssd:micron-9300?capacity", &["no key=value"]);
    refused("ssd:micron-9300?capacity=0", &["too few"]);
    refused("ssd:micron-9300?capacity=8parsecs", &["unknown unit"]);
    refused("ssd:micron-9300?cleaning=choices:0", &["choices:10"]);
    refused("ssd:micron-9300?frontier=wild", &["separate or shared"]);
    refused("ssd:micron-9300?handles=0,,1", &["0,1/2,3"]);
    refused("ssd:micron-9300?op=14.5", &["0.145 is 14.5 %"]);
    refused("ssd:micron-9300?op=NaN", &["no share"]);
    refused("ssd:micron-9300?fdp=yes", &["on, off"]);
    refused("ssd:micron-9300?nsid=0", &["from 1"]);
    refused("ssd:micron-9300?image=/x&drive=a", &["leave out drive="]);
    refused("ssd:micron-9300?image=", &["a path is missing"]);
    refused("ssd:%ff", &["no text"]);
    refused("mem:", &["a size is missing", "mem:1GiB"]);
    refused("mem:1GiB?lba=100", &["512, 1024"]);
    refused("null:1000", &["no multiple of an LBA of 4096"]);
    refused("file:?direct=never", &["a path is missing"]);
    refused("file:/x?direct=maybe", &["prefer or require or never"]);
}

#[test]
fn reopening_keeps_keys_that_find_a_drive() {
    let made = "ssd:micron-7450?capacity=8GiB&image=d.img&namespaces=4&nsid=2&fdp=on&lba=512";
    let here = std::env::current_dir().unwrap().join("d.img");
    let expected = format!("ssd:micron-7450?capacity=8GiB&image={}&nsid=2", here.display());
    assert_eq!(spec(made).for_reopening().unwrap(), spec(&expected));
    assert!(spec(made).is_lasting() && !spec("ssd:micron-7450?capacity=8GiB").is_lasting());
    assert!(spec("data").is_lasting() && !spec("mem:1GiB").is_lasting());
}

fn path() -> impl Strategy<Value = PathBuf> {
    vec(1u8.., 1..20).prop_map(|bytes| OsString::from_vec(bytes).into())
}

fn preference() -> impl Strategy<Value = Option<Preference>> {
    let all = [Preference::Prefer, Preference::Require, Preference::Never];
    option::of(prop::sample::select(all.to_vec()))
}

fn time() -> impl Strategy<Value = Option<Time>> {
    let dilated = (2u32..).prop_map(Time::Dilated);
    option::of(prop_oneof![Just(Time::None), Just(Time::Virtual), Just(Time::Real), dilated])
}

fn lba() -> impl Strategy<Value = Option<u32>> + Clone {
    option::of(prop::sample::select(vec![512, 1024, 2048, 4096]))
}

fn plain() -> impl Strategy<Value = Spec> {
    let spin = option::of(0..=10_000u32);
    let file = (path(), option::of(1u64..), lba(), preference(), preference(), spin);
    let file = file.prop_map(|(path, capacity, lba, direct, uring, spin)| {
        Spec::File(FileSpec { path, capacity, lba, direct, uring, spin })
    });
    let sized = (1..1u64 << 50, lba());
    let memory = sized.clone().prop_map(|(lbas, lba)| {
        Spec::Memory(MemorySpec { size: lbas * u64::from(lba.unwrap_or(4096)), lba })
    });
    let null = sized.prop_map(|(lbas, lba)| {
        Spec::Null(NullSpec { size: lbas * u64::from(lba.unwrap_or(4096)), lba })
    });
    let disk = (option::of(1u64..), time(), option::of(path()));
    let disk = disk.prop_map(|(capacity, time, image)| {
        Spec::Disk(DiskSpec { profile: "sas-10k".into(), capacity, time, image })
    });
    // Characters of an NQN: no white space, quotes or backslashes.
    let named = || "[!#-&(-\\[\\]-~]{0,20}";
    let remote = (
        (vec("[a-z0-9.\\[\\]:-]{1,12}", 1..3), named(), option::of(1u32..=0xffff_fffe)),
        (option::of(any::<[u8; 16]>()), option::of(named()), option::of(path())),
        (option::of(any::<bool>()), option::of(any::<bool>()), option::of(1u64..1 << 50)),
    );
    let remote = remote.prop_map(|((hosts, name, nsid), (id, host, key), (header, data, ms))| {
        Spec::Remote(Box::new(RemoteSpec {
            hosts,
            nqn: format!("nqn.2026-01.io.esker:{name}"),
            nsid,
            host_nqn: host.map(|host| format!("nqn.2026-01.io.esker:{host}")),
            host_id: id,
            key_file: key,
            controller_key_file: None,
            header_digest: header,
            data_digest: data,
            timeout: ms.map(Duration::from_millis),
            retry: ms.map(|ms| Duration::from_millis(ms + 1)),
            give_up: None,
            keep_alive: ms.map(Duration::from_secs),
            replay: ms.map(|bytes| bytes - 1),
        }))
    });
    prop_oneof![file, memory, null, disk, remote]
}

fn ssd() -> impl Strategy<Value = Spec> {
    let profile = prop::sample::select(vec!["micron-9300", "micron-5210", "optane-p4800x"]);
    let cleaning = prop_oneof![
        Just(Cleaning::Greedy),
        Just(Cleaning::Fifo),
        Just(Cleaning::CostBenefit),
        (1u32..).prop_map(Cleaning::Choices)
    ];
    let frontier = prop::sample::select(vec![Frontier::Separate, Frontier::Shared]);
    let place = prop_oneof![
        Just((None, None)),
        path().prop_map(|image| (Some(image), None)),
        "[^\u{0}]{1,16}".prop_map(|drive: String| (None, Some(drive))),
    ];
    let identity = (profile, option::of(1u64..), time(), place);
    let division = (option::of(0u32..=1024), option::of(1u32..u32::MAX - 1));
    let placement = (option::of(option::of(0usize..)), option::of(vec(vec(0u16.., 1..5), 1..5)));
    let parts = (
        option::of(prop::sample::select(vec![512u32, 4096])),
        option::of(0.01f64..=10.0),
        option::of(cleaning),
        option::of(frontier),
        option::of(1u64..),
        option::of(option::of(1u32..)),
        option::of(prop::sample::select(vec![FtlSide::Host, FtlSide::Drive])),
        option::of(0u32..=1 << 16),
    );
    (identity, division, placement, parts).prop_map(|(identity, division, placement, parts)| {
        let (profile, capacity, time, (image, drive)) = identity;
        let (lba, over_provisioning, cleaning, frontier, unit, wear, ftl, window) = parts;
        Spec::Ssd(Box::new(SsdSpec {
            profile: Some(profile.to_owned()),
            capacity,
            time,
            image,
            drive,
            namespaces: division.0,
            nsid: division.1,
            fdp: placement.0,
            handles: placement.1,
            lba,
            over_provisioning,
            cleaning,
            frontier,
            unit,
            wear,
            ftl,
            window,
        }))
    })
}

proptest! {
    #[test]
    fn the_text_of_a_specification_reads_back_as_the_same(spec in prop_oneof![plain(), ssd()]) {
        let text = spec.to_string();
        prop_assert_eq!(text.parse::<Spec>().unwrap(), spec, "{}", text);
    }

    #[test]
    fn no_text_panics_and_what_is_read_is_stable(
        scheme in prop::sample::select(vec!["", "ssd:", "ssd:micron-9300?", "disk:sas-10k?", "mem:"]),
        rest in "([a-z]{1,10}[=&?%:/,()]|[^\u{0}]){0,40}",
    ) {
        let text = format!("{scheme}{rest}");
        if let Ok(spec) = text.parse::<Spec>() {
            prop_assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        }
    }
}
