//! Damage to whole KVDBs: every byte of every structure flipped on the medium, and any other damage, is
//! either noticed, by an error that names device and structure, or harmless: nothing wrong is returned.
//!
//! Bytes that the very last flush wrote are the exception that the format states: damaged, they look torn, and the
//! KVDB opens as it was before (`docs/format/kv.md`, "What is not detected"). The case is counted apart, and held
//! to be nothing else.
//!
//! `cargo test` flips a sample. Of every byte one bit, which takes two minutes; or all bits, a quarter of an hour:
//! `cargo test --release -p esker-kv --test all -- --ignored --nocapture every_byte` (or `every_flipped`)

use crate::common::OnDevices;
use crate::common::sample::{self, Content, LBA_SIZE, MEDIA, Media, options};
use crate::common::{small_tuning, test_options};
use esker_base::Rng;
use esker_kv::{CompactRequest, KvError, Kvdb, Policy, Tuning};

/// Outcome of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// An error or a finding said so.
    Noticed,
    /// All data is as it was.
    Harmless,
    /// Taken for a torn write of a crash: the last flush is missing.
    Torn,
}

struct Sample {
    media: Media,
    before: Content,
    content: Content,
}

impl Sample {
    fn build() -> Sample {
        let (media, before, content) = sample::build();
        let sample = Sample { media, before, content };
        assert_eq!(sample.fate(&sample.media, "nothing"), Fate::Harmless);
        sample
    }

    /// Checks, opens and reads damaged media.
    fn fate(&self, media: &Media, what: &str) -> Fate {
        let mut noticed = false;
        match Kvdb::check_on(&media.devices()) {
            Ok(report) => {
                report.findings.iter().for_each(|finding| must_name(finding, what));
                noticed |= !report.findings.is_empty();
            }
            Err(error) => {
                must_name(&error.to_string(), what);
                noticed = true;
            }
        }
        let db = match Kvdb::open_on(media.devices(), options()) {
            Ok(db) => db,
            Err(error) => {
                assert!(!matches!(error, KvError::NotAKvdb { .. }), "{what}: {error}");
                must_name(&error.to_string(), what);
                return Fate::Noticed;
            }
        };
        // Keys that one damage hides must not make other keys wrong.
        for ((name, key), value) in &self.content {
            let Ok(kvs) = db.kvs(name) else { continue };
            match kvs.get(key) {
                Ok(got) => {
                    let full = (name.clone(), key.clone());
                    let earlier = self.before.get(&full);
                    let fine = got.as_deref() == Some(&value[..])
                        || got.as_deref() == earlier.map(Vec::as_slice);
                    assert!(fine, "{what}: a wrong value of {name}/{}", key.escape_ascii());
                }
                Err(error) => {
                    must_name(&error.to_string(), what);
                    noticed = true;
                }
            }
        }
        match sample::read_all(&db) {
            Err(error) => {
                must_name(&error.to_string(), what);
                Fate::Noticed
            }
            Ok(found) if found == self.content && noticed => Fate::Noticed,
            Ok(found) if found == self.content => Fate::Harmless,
            Ok(found) if found == self.before => Fate::Torn,
            Ok(_) => panic!("{what}: the KVDB shows what it never held"),
        }
    }
}

fn must_name(message: &str, what: &str) {
    let named = MEDIA.iter().any(|(device, _)| message.contains(device));
    assert!(
        named && message.contains("LBA"),
        "{what}: an error that does not say where: {message}"
    );
}

/// How often each fate was met.
#[derive(Debug, Default)]
struct Fates {
    noticed: u64,
    harmless: u64,
    torn: u64,
}

impl Fates {
    fn add(&mut self, fate: Fate) {
        match fate {
            Fate::Noticed => self.noticed += 1,
            Fate::Harmless => self.harmless += 1,
            Fate::Torn => self.torn += 1,
        }
    }

    fn and(self, other: Fates) -> Fates {
        Fates {
            noticed: self.noticed + other.noticed,
            harmless: self.harmless + other.harmless,
            torn: self.torn + other.torn,
        }
    }
}

/// Flips one bit of every `step`th byte, or all bits in turn; of LBAs of zeroes one byte each.
fn flip(step: usize, all_bits: bool) {
    let sample = Sample::build();
    let mut rng = Rng::new(1);
    for (index, (device, _)) in MEDIA.iter().enumerate() {
        let size = LBA_SIZE as usize;
        let bytes = &sample.media.0[index];
        let used = |lba: usize| bytes[lba * size..(lba + 1) * size].iter().any(|byte| *byte != 0);
        let mut flips: Vec<(usize, u8)> = Vec::new();
        let mut at = usize::try_from(rng.below(step as u64)).unwrap();
        while at < bytes.len() {
            match all_bits && used(at / size) {
                true => flips.extend((0..8).map(|bit| (at, 1 << bit))),
                false => flips.push((at, 1 << rng.below(8))),
            }
            at += if used(at / size) { step } else { step.max(size) };
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let part = &|first: usize| {
            let (mut media, mut fates) = (sample.media.clone(), Fates::default());
            for &(at, mask) in flips.iter().skip(first).step_by(threads) {
                media.0[index][at] ^= mask;
                fates.add(sample.fate(&media, &format!("{device}, byte {at}, mask {mask:#04x}")));
                media.0[index][at] ^= mask;
            }
            fates
        };
        let fates = std::thread::scope(|scope| {
            let parts: Vec<_> =
                (0..threads).map(|first| scope.spawn(move || part(first))).collect();
            parts.into_iter().map(|part| part.join().unwrap()).fold(Fates::default(), Fates::and)
        });
        println!("{device}: {fates:?}");
        assert!(fates.noticed > 0 && fates.harmless > 0, "{device}: {fates:?}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_or_harmless() {
    flip(421, false);
}

#[test]
#[ignore = "a bit of every byte: see the top of the file"]
fn a_flipped_bit_of_every_byte_is_noticed_or_harmless() {
    flip(1, false);
}

#[test]
#[ignore = "every bit of every byte: see the top of the file"]
fn every_flipped_bit_is_noticed_or_harmless() {
    flip(1, true);
}

/// LBAs that are lost, filled with noise, written elsewhere, or exchanged: one such damage at a time.
fn damage(count: u64, seed: u64) -> Fates {
    let sample = Sample::build();
    let mut fates = Fates::default();
    for case in 0..count {
        let mut rng = Rng::new(seed + case);
        let mut media = sample.media.clone();
        let index = usize::try_from(rng.below(3)).unwrap();
        let bytes = &mut media.0[index];
        let lbas = bytes.len() / LBA_SIZE as usize;
        let used: Vec<usize> = (0..lbas)
            .filter(|lba| bytes[lba * 512..(lba + 1) * 512].iter().any(|byte| *byte != 0))
            .collect();
        let mut pick = |of: u64| usize::try_from(rng.below(of)).unwrap();
        let lba = used[pick(used.len() as u64)];
        let other = used[pick(used.len() as u64)];
        let start = lba * 512;
        let what = match pick(5) {
            0 => {
                let (from, length) = (pick(512), 1 + pick(64));
                let end = (start + from + length).min(start + 512);
                rng.fill(&mut bytes[start + from..end]);
                "noise within an LBA"
            }
            1 => {
                rng.fill(&mut bytes[start..start + 512]);
                "an LBA of noise"
            }
            2 => {
                bytes[start..start + 512].fill(0);
                "a lost LBA"
            }
            3 => {
                let misdirected = bytes[other * 512..(other + 1) * 512].to_vec();
                bytes[start..start + 512].copy_from_slice(&misdirected);
                "an LBA of another place"
            }
            _ => {
                let (first, second) = (lba.min(other), lba.max(other));
                let (head, tail) = bytes.split_at_mut(second * 512);
                if first < second {
                    head[first * 512..(first + 1) * 512].swap_with_slice(&mut tail[..512]);
                }
                "exchanged LBAs"
            }
        };
        let device = MEDIA[index].0;
        fates.add(sample.fate(&media, &format!("case {case}: {what}, {device}, LBA {lba}")));
    }
    fates
}

#[test]
fn lost_noisy_and_misdirected_lbas_are_noticed_or_harmless() {
    let fates = damage(400, 0);
    println!("{fates:?}");
    assert!(fates.noticed > 20, "{fates:?}");
}

#[test]
#[ignore = "takes a while: see the top of the file"]
fn lost_noisy_and_misdirected_lbas_are_noticed_or_harmless_in_many_cases() {
    println!("{:?}", damage(20_000, 1 << 32));
}

/// A write that was lost where an older value of the same key lies at the same place: its checksum holds, and
/// only its size tells.
#[test]
fn an_older_value_of_another_size_in_the_place_of_a_value_is_noticed() {
    let (key, old, new) = (b"the key of both", [7; 40], [8; 300]);
    let size = |value: &[u8]| 16 + key.len() + value.len();
    let build = |value: &[u8]| {
        let devices = Media::blank().devices();
        let db = Kvdb::create_on(devices.clone(), options()).unwrap();
        let kvs = db.create_kvs("kvs", Policy::default()).unwrap();
        kvs.put(key, value).unwrap();
        db.ingest().unwrap();
        db.close().unwrap();
        Media::of(&devices)
    };
    let (before, mut media) = (build(&old), build(&new));
    let find = |media: &Media, value: &[u8]| {
        let record = [&key[..], value].concat();
        let device = |bytes: &Vec<u8>| bytes.windows(record.len()).position(|it| it == record);
        let mut found =
            media.0.iter().enumerate().filter_map(|(n, it)| Some((n, device(it)? - 16)));
        found.next().expect("the value is on a medium")
    };
    let ((from, start), (to, place)) = (find(&before, &old), find(&media, &new));
    media.0[to][place..place + size(&old)]
        .copy_from_slice(&before.0[from][start..start + size(&old)]);
    let db = Kvdb::open_on(media.devices(), options()).unwrap();
    let error = db.kvs("kvs").unwrap().get(key).unwrap_err().to_string();
    assert!(error.contains("a record of 71 bytes was found where one of 331"), "{error}");
    must_name(&error, "an older value");
}

/// A walk gives out every record that lies before a damaged key page, and then returns the error that it met.
#[test]
fn a_walk_comes_as_far_as_what_is_sound() {
    let tuning = Tuning { leaf_key_bytes: 1 << 20, ..small_tuning() };
    let devices = Media::blank().devices();
    let db = Kvdb::create_on(devices.clone(), test_options(tuning)).unwrap();
    let kvs = db.create_kvs("kvs", Policy::default()).unwrap();
    let keys: Vec<String> = (0..600).map(|n| format!("{n:04}{}", "-".repeat(200))).collect();
    keys.iter().for_each(|key| kvs.put(key.as_bytes(), b"v").unwrap());
    db.compact(CompactRequest::Full).unwrap();
    db.close().unwrap();
    let sound = Media::of(&devices);
    let mut met = 0;
    let size = LBA_SIZE as usize;
    let lbas = |device: usize| (0..sound.0[device].len() / size).map(move |lba| (device, lba));
    for (device, lba) in lbas(1).chain(lbas(2)) {
        let mut media = sound.clone();
        let bytes = &mut media.0[device][lba * size..][..size];
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        bytes[100] ^= 1;
        let Ok(db) = Kvdb::open_on(media.devices(), test_options(tuning)) else { continue };
        let kvs = db.kvs("kvs").unwrap();
        let lost = |key: &&String| kvs.get(key.as_bytes()).is_err();
        let (Some(first), Some(last)) = (keys.iter().find(lost), keys.iter().rfind(lost)) else {
            continue;
        };
        let at = |key| keys.iter().position(|it| it == key).unwrap();
        if at(first) == 0 || at(last) + 1 == keys.len() {
            continue;
        }
        met += 1;
        let mut cursor = kvs.cursor().unwrap().keys_only();
        for key in &keys[..at(first)] {
            assert_eq!(cursor.next().unwrap().unwrap().0, key.as_bytes(), "LBA {lba}");
        }
        must_name(&cursor.next().unwrap_err().to_string(), "a walk");
        cursor.seek_to_last().unwrap();
        for key in keys[at(last) + 1..].iter().rev() {
            assert_eq!(cursor.prev().unwrap().unwrap().0, key.as_bytes(), "LBA {lba}");
        }
        must_name(&cursor.prev().unwrap_err().to_string(), "a walk back");
        // Within a prefix it is over where the page begins that cannot be read.
        for (key, forward) in [(&keys[at(first) - 1], true), (&keys[at(last) + 1], false)] {
            let mut cursor = kvs.cursor().unwrap().keys_only().prefix(key.as_bytes()).unwrap();
            if !forward {
                cursor.seek_to_last().unwrap();
            }
            let mut step = || {
                let row = if forward { cursor.next() } else { cursor.prev() };
                row.unwrap().map(|(key, _)| key.to_vec())
            };
            assert_eq!(step().unwrap(), key.as_bytes(), "LBA {lba}");
            assert_eq!(step(), None, "LBA {lba}, forward {forward}");
        }
    }
    assert!(met > 3, "{met} damaged pages");
}
