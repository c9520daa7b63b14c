//! The facts that tell a device from others of its kind, and stay the same when it is opened again.
//!
//! A device reports each fact that it can find out: the identifiers of a drive, or the inode of a file. Two
//! identities are compared by the facts that both have, so a kernel that reports one fact more or less
//! changes nothing. The *part* is compared always: a partition is not its drive.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use esker_base::checksum::crc32c;

/// The most bytes of an identity as text.
pub const MAX_IDENTITY: usize = 512;
/// The most bytes of one fact; a longer one is cut, and ends with its checksum.
const MAX_FACT: usize = 120;

/// A fact that tells a device from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The kernel's worldwide identifier of a block device.
    Wwid,
    /// The serial number of a drive.
    Serial,
    /// The UUID of a namespace or of an array.
    Uuid,
    /// The NGUID of a namespace.
    Nguid,
    /// The EUI-64 of a namespace.
    Eui64,
    /// The identifier that device mapper has for a device.
    Mapped,
    /// The identifier of a file system, where that survives a restart of the machine.
    FileSystem,
    /// The number of a file in its file system.
    Inode,
    /// The moment at which a file was made: it tells a file from the one that had its inode before.
    Made,
}

impl Fact {
    const NAMES: [(Fact, &str); 9] = [
        (Fact::Wwid, "wwid"),
        (Fact::Serial, "serial"),
        (Fact::Uuid, "uuid"),
        (Fact::Nguid, "nguid"),
        (Fact::Eui64, "eui64"),
        (Fact::Mapped, "mapped"),
        (Fact::FileSystem, "file-system"),
        (Fact::Inode, "inode"),
        (Fact::Made, "made"),
    ];

    fn name(self) -> &'static str {
        Fact::NAMES.iter().find(|(fact, _)| *fact == self).map_or("", |(_, name)| name)
    }
}

/// The facts that tell a device from others of its kind. As text it has at most [`MAX_IDENTITY`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    facts: BTreeMap<Fact, String>,
    /// The part of the thing that the facts name; empty for all of it.
    part: String,
}

impl Identity {
    /// An identity with one more fact. A fact that is empty or all zeroes tells nothing, and is left out; so is
    /// one for which there is no room.
    #[must_use]
    pub fn with(mut self, fact: Fact, value: &str) -> Identity {
        let value = tidy(value);
        let is_telling = value.chars().any(|letter| !matches!(letter, '0' | '-' | '.' | '_' | ' '));
        if is_telling {
            self.facts.insert(fact, value);
            if self.to_string().len() > MAX_IDENTITY {
                self.facts.remove(&fact);
            }
        }
        self
    }

    /// The identity of a part of the device: a partition, a namespace, the device as a cache over it has it.
    #[must_use]
    pub fn part(mut self, part: &str) -> Identity {
        let separator = if self.part.is_empty() { "" } else { "/" };
        self.part = tidy(&format!("{}{separator}{part}", self.part));
        while self.to_string().len() > MAX_IDENTITY && self.facts.pop_last().is_some() {}
        self
    }

    /// The identity, if it has any fact.
    #[must_use]
    pub fn found(self) -> Option<Identity> {
        (!self.facts.is_empty()).then_some(self)
    }

    /// The facts that name the device, whatever else is known of it: its strongest identifier, or those of a
    /// file, and the part. Text to derive other names from.
    #[must_use]
    pub fn stable_name(&self) -> Option<String> {
        use Fact::{Eui64, FileSystem, Inode, Made, Mapped, Nguid, Serial, Uuid, Wwid};
        let shown = |fact: &Fact| Some(format!("{}={}", fact.name(), self.facts.get(fact)?));
        let strongest = [Wwid, Uuid, Nguid, Eui64, Mapped, Serial].iter().find_map(shown);
        let of_file = || {
            let facts: Vec<_> = [Inode, Made, FileSystem].iter().filter_map(shown).collect();
            self.facts.contains_key(&Inode).then(|| facts.join(", "))
        };
        Some(format!("{}, part={}", strongest.or_else(of_file)?, self.part))
    }

    /// Whether both mean the same device: one fact at least is the same, none differs, nor does the part.
    #[must_use]
    pub fn is_same(&self, other: &Identity) -> bool {
        let shared = || {
            let facts = self.facts.iter();
            facts.filter_map(|(fact, value)| Some((value, other.facts.get(fact)?)))
        };
        self.part == other.part && shared().count() > 0 && shared().all(|(own, its)| own == its)
    }

    /// Whether both are files of one file system, or parts of one drive, as far as is known: then
    /// one waits for the other's writes. A device that a file only is the image of, such as a
    /// namespace of a modelled drive, has a time of its own.
    #[must_use]
    pub fn is_beside(&self, other: &Identity) -> bool {
        let are_files = self.part.is_empty() && other.part.is_empty();
        let tells = |fact: &Fact| match fact {
            Fact::Inode | Fact::Made => false,
            Fact::FileSystem => are_files,
            _ => true,
        };
        let mut own = self.facts.iter().filter(|(fact, _)| tells(fact));
        own.any(|(fact, value)| other.facts.get(fact) == Some(value))
    }

    /// The facts of both, which mean the same device, or of `other` where this one has none. An identity that
    /// knows more than the other one is worth keeping.
    #[must_use]
    pub fn joined(&self, other: &Identity) -> Identity {
        if self.facts.is_empty() {
            return other.clone();
        }
        let mut joined = self.clone();
        for (fact, value) in other.facts.iter().filter(|(fact, _)| !self.facts.contains_key(fact)) {
            joined = joined.with(*fact, value);
        }
        joined
    }
}

/// A value in which no letter is a separator, and that is not too long.
fn tidy(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, ',' | '=');
    let words: Vec<&str> = value.split_whitespace().collect();
    let plain: String =
        words.join("_").chars().map(|it| if is_plain(it) { it } else { '_' }).collect();
    match plain.get(..MAX_FACT - 9) {
        Some(begin) if plain.len() > MAX_FACT => {
            format!("{begin}~{:08x}", crc32c(plain.as_bytes()))
        }
        _ => plain,
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts.iter().map(|(fact, value)| (fact.name(), value));
        let part = (!self.part.is_empty()).then_some(("part", &self.part));
        for (n, (name, value)) in facts.chain(part).enumerate() {
            let separator = if n > 0 { ", " } else { "" };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for Identity {
    type Err = String;

    /// Reads the text that [`Display`](fmt::Display) writes. A fact that this program does not know is left out.
    fn from_str(text: &str) -> Result<Identity, String> {
        let mut identity = Identity::default();
        for item in text.split(", ").filter(|item| !item.is_empty()) {
            let Some((name, value)) = item.split_once('=') else {
                return Err(format!("'{item}' is no fact about a device"));
            };
            match (name, Fact::NAMES.iter().find(|(_, known)| *known == name)) {
                ("part", _) => value.clone_into(&mut identity.part),
                (_, Some((fact, _))) => drop(identity.facts.insert(*fact, value.to_owned())),
                _ => {}
            }
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: &str) -> Identity {
        Identity::default().with(Fact::Inode, inode)
    }

    #[test]
    fn files_of_one_file_system_are_beside_each_other() {
        let file = |system, inode| {
            Identity::default().with(Fact::FileSystem, system).with(Fact::Inode, inode)
        };
        assert!(file("5", "1").is_beside(&file("5", "2")));
        assert!(!file("5", "1").is_beside(&file("6", "1")));
        assert!(!file("5", "1").part("namespace-1").is_beside(&file("5", "2").part("namespace-1")));
        let drive = Identity::default().with(Fact::Serial, "S1");
        assert!(drive.clone().part("sector-1").is_beside(&drive.clone().part("sector-9")));
        assert!(!drive.is_beside(&file("5", "1")));
    }

    #[test]
    fn identities_are_compared_by_the_facts_that_both_have() {
        let whole = file("7").with(Fact::Made, "5.3").with(Fact::FileSystem, "ab");
        assert!(whole.is_same(&whole) && whole.is_same(&file("7")) && file("7").is_same(&whole));
        assert!(!whole.is_same(&file("8")));
        assert!(!whole.is_same(&file("7").with(Fact::Made, "5.4")));
        assert!(!whole.is_same(&Identity::default().with(Fact::Wwid, "7")), "nothing in common");
        assert!(!Identity::default().is_same(&Identity::default()));
        let part = whole.clone().part("start=8");
        assert!(!part.is_same(&whole) && !whole.is_same(&part) && part.is_same(&part));
        assert_eq!(file("7").joined(&whole), whole);
        assert_eq!(Identity::default().joined(&part), part, "the part is kept");
    }

    #[test]
    fn name_stays_when_more_is_known_of_a_drive() {
        let drive = Identity::default().with(Fact::Wwid, "w").part("sector-8");
        let name = drive.stable_name();
        assert_eq!(name.as_deref(), Some("wwid=w, part=sector-8"));
        assert_eq!(drive.with(Fact::Uuid, "u").with(Fact::Serial, "s").stable_name(), name);
        let named = |made| file("7").with(Fact::Made, made).stable_name();
        assert_eq!(named("5.3").as_deref(), Some("inode=7, made=5.3, part="));
        assert_ne!(named("5.3"), named("5.4"));
        assert_eq!(Identity::default().part("p").stable_name(), None);
    }

    #[test]
    fn identity_is_read_as_it_is_written() {
        let whole = Identity::default()
            .with(Fact::Wwid, "t10.ATA  A, B=C \u{e9}\n")
            .with(Fact::Nguid, "0000-0000")
            .with(Fact::Serial, "")
            .part("start=1")
            .part("cache=2");
        let text = whole.to_string();
        assert_eq!(text, "wwid=t10.ATA_A__B_C__, part=start_1/cache_2");
        assert_eq!(text.parse(), Ok(whole));
        assert_eq!("wwid=a, colour=red".parse(), Ok(Identity::default().with(Fact::Wwid, "a")));
        assert!("wwid".parse::<Identity>().is_err());
        assert_eq!(Identity::default().with(Fact::Uuid, "0").found(), None);
    }

    #[test]
    fn long_fact_is_cut_and_still_told_apart() {
        let of = |last: &str| Identity::default().with(Fact::Wwid, &("x".repeat(300) + last));
        assert!(of("a").is_same(&of("a")) && !of("a").is_same(&of("b")));
        let mut all = Identity::default();
        for (fact, _) in Fact::NAMES {
            all = all.with(fact, &"y".repeat(300));
        }
        all = all.part(&"z".repeat(300));
        let text = all.to_string();
        assert!(text.len() <= MAX_IDENTITY && text.parse() == Ok(all), "{} {text}", text.len());
    }
}
