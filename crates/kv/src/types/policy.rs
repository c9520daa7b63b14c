//! Where the data of a KVS goes, and the other options of a KVS that may be changed while it is open.
//!
//! A [`Policy`] is a table of four [`Place`]s: young and old data, keys and values. Policies are
//! written as text, too: see [`Policy`]'s `FromStr`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::types::class::MediaClass;
use crate::types::compression::Compression;

/// One cell of a policy: a media class, and whether the other one will do when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The class that is preferred.
    pub class: MediaClass,
    /// Whether data that has no room there goes to the other class. If not, writes are refused while the
    /// class is full; data that was accepted before, and finds no room when its memtable is ingested, is on the
    /// other class until there is.
    pub overflows: bool,
}

impl Place {
    /// On `class` while it has room, then on the other one.
    #[must_use]
    pub const fn prefer(class: MediaClass) -> Place {
        Place { class, overflows: true }
    }

    /// On `class`, or nowhere.
    #[must_use]
    pub const fn only(class: MediaClass) -> Place {
        Place { class, overflows: false }
    }

    /// The class that takes data for which this place's own has no room.
    #[must_use]
    pub fn fallback(self) -> Option<MediaClass> {
        self.overflows.then(|| self.class.other())
    }
}

/// `CLASS` or `CLASS/FALLBACK`, where the fallback is the other class (as without one) or `none`.
impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Place, String> {
        let (class, fallback) = match text.split_once('/') {
            Some((class, fallback)) => (class, Some(fallback)),
            None => (text, None),
        };
        let class: MediaClass = class.parse()?;
        let overflows = match fallback {
            None => true,
            Some("none") => false,
            Some(other) if other == class.other().to_string() => true,
            Some(other) => {
                let possible = class.other();
                return Err(format!("'{other}' is no fallback of {class}: use {possible} or none"));
            }
        };
        Ok(Place { class, overflows })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = if self.overflows { "" } else { "/none" };
        write!(f, "{}{none}", self.class)
    }
}

/// Where the data of one KVS goes: keys and values, young (in the root of the tree) and old (in its
/// leaves).
///
/// All KVSs share the durability log, which is on staging when there is a staging class, and young
/// values are in the log's segments: so they are written once. A KVS that prefers capacity for
/// young values has them written there when its memtable is ingested, from DRAM, in key order: once
/// more, for a staging class that holds no more than the records not ingested yet. So are those of a KVS
/// that has a small part of the log, in the class that it prefers for them.
///
/// Where there is no staging class, everything is on capacity, whatever the policy prefers.
///
/// As text, a policy is the name of a template, or changes to one, or both:
///
/// ```
/// use esker_kv::{MediaClass, Place, Policy};
///
/// assert_eq!("staging-only".parse(), Ok(Policy::STAGING_ONLY));
/// // Without a template, places not named are as in staging-max-capacity.
/// let policy: Policy = "old-keys=capacity,young=staging/none".parse().unwrap();
/// assert_eq!(policy.old_keys, Place::prefer(MediaClass::Capacity));
/// assert_eq!(policy.young_values, Place::only(MediaClass::Staging));
/// assert_eq!(policy.old_values, Policy::STAGING_MAX_CAPACITY.old_values);
/// assert_eq!(policy.to_string().parse(), Ok(policy));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// The root's keys.
    pub young_keys: Place,
    /// The values of the root's keys.
    pub young_values: Place,
    /// The leaves' keys.
    pub old_keys: Place,
    /// The values of the leaves' keys.
    pub old_values: Place,
}

const STAGING: Place = Place::prefer(MediaClass::Staging);
const CAPACITY: Place = Place::prefer(MediaClass::Capacity);

impl Policy {
    /// Keys and young values on staging, old values on capacity: searches never wait for slow
    /// media. Also the meaning of `auto`: without a staging class it is the same as
    /// [`Policy::CAPACITY_ONLY`], and one that is added later is used from then on.
    pub const STAGING_MAX_CAPACITY: Policy = Policy {
        young_keys: STAGING,
        young_values: STAGING,
        old_keys: STAGING,
        old_values: CAPACITY,
    };
    /// Young data on staging, everything old on capacity: staging can be small.
    pub const STAGING_MIN_CAPACITY: Policy =
        Policy { old_keys: CAPACITY, ..Policy::STAGING_MAX_CAPACITY };
    /// Everything on staging while it has room.
    pub const STAGING_ONLY: Policy = Policy { old_values: STAGING, ..Policy::STAGING_MAX_CAPACITY };
    /// Everything on capacity, but for records in the shared log that are not ingested yet.
    pub const CAPACITY_ONLY: Policy = Policy {
        young_keys: CAPACITY,
        young_values: CAPACITY,
        old_keys: CAPACITY,
        old_values: CAPACITY,
    };

    /// The templates by their names. The first of several names of one template is the one shown.
    pub const TEMPLATES: [(&'static str, Policy); 5] = [
        ("staging-max-capacity", Policy::STAGING_MAX_CAPACITY),
        ("staging-min-capacity", Policy::STAGING_MIN_CAPACITY),
        ("staging-only", Policy::STAGING_ONLY),
        ("capacity-only", Policy::CAPACITY_ONLY),
        ("auto", Policy::STAGING_MAX_CAPACITY),
    ];

    fn template(name: &str) -> Option<Policy> {
        let found = Policy::TEMPLATES.iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| *policy)
    }

    /// The cells, with their names.
    #[must_use]
    pub fn cells(&self) -> [(&'static str, Place); 4] {
        [
            ("young-keys", self.young_keys),
            ("young-values", self.young_values),
            ("old-keys", self.old_keys),
            ("old-values", self.old_values),
        ]
    }

    /// Changes the cells of this name; false when there are none.
    fn set(&mut self, name: &str, place: Place) -> bool {
        let cells = [
            (&mut self.young_keys, "young", "keys"),
            (&mut self.young_values, "young", "values"),
            (&mut self.old_keys, "old", "keys"),
            (&mut self.old_values, "old", "values"),
        ];
        let mut any = false;
        for (cell, age, kind) in cells {
            let whole = name.split_once('-').is_some_and(|(a, k)| (a, k) == (age, kind));
            if whole || name == age || name == kind || name == "all" {
                *cell = place;
                any = true;
            }
        }
        any
    }

    /// The classes that cells must not leave.
    pub(crate) fn strict(&self) -> impl Iterator<Item = MediaClass> {
        self.cells().into_iter().filter(|(_, place)| !place.overflows).map(|(_, place)| place.class)
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::STAGING_MAX_CAPACITY
    }
}

/// Parts separated by commas: first the name of a template, if any, then `CELL=PLACE`, where the
/// cell is `young-keys`, `young-values`, `old-keys`, `old-values`, or several of them by `young`,
/// `old`, `keys`, `values` or `all`, and the place is a class, with `/none` when the other one will
/// not do.
impl FromStr for Policy {
    type Err = String;
    fn from_str(text: &str) -> Result<Policy, String> {
        let mut policy = Policy::default();
        for (n, part) in text.split(',').enumerate() {
            let Some((cell, place)) = part.split_once('=') else {
                policy = Policy::template(part).filter(|_| n == 0).ok_or_else(|| {
                    let names = Policy::TEMPLATES.map(|(name, _)| name).join(", ");
                    format!(
                        "'{part}' is no policy; use one of {names}, or say young-keys, \
                         young-values, old-keys or old-values = staging or capacity"
                    )
                })?;
                continue;
            };
            if !policy.set(cell, place.parse()?) {
                return Err(format!(
                    "'{cell}' is no cell of a policy; use young-keys, young-values, old-keys, \
                     old-values, or young, old, keys, values, all"
                ));
            }
        }
        Ok(policy)
    }
}

/// As it is parsed.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Policy::TEMPLATES.iter().find(|(_, policy)| policy == self) {
            return f.write_str(name);
        }
        let cells = self.cells().map(|(name, place)| format!("{name}={place}"));
        f.write_str(&cells.join(","))
    }
}

/// Options of a KVS that may change while it is open. The manifest keeps them. Made from a [`Policy`] or by default, and
/// changed by its methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KvsOptions {
    /// Where its data goes.
    pub policy: Policy,
    /// How its values are compressed. Default: not at all.
    pub compression: Compression,
    /// A value expires this many milliseconds after its put, 1 at least: then it is as if it were deleted.
    /// `None`: never. A change holds for values put from then on.
    pub ttl_ms: Option<u64>,
}

impl KvsOptions {
    /// The same options with another policy.
    #[must_use]
    pub fn policy(self, policy: Policy) -> KvsOptions {
        KvsOptions { policy, ..self }
    }

    /// The same options with another way of compression.
    #[must_use]
    pub fn compression(self, compression: Compression) -> KvsOptions {
        KvsOptions { compression, ..self }
    }

    /// The same options with a time to live in milliseconds, or without one.
    #[must_use]
    pub fn ttl_ms(self, ttl_ms: impl Into<Option<u64>>) -> KvsOptions {
        KvsOptions { ttl_ms: ttl_ms.into(), ..self }
    }
}

impl From<Policy> for KvsOptions {
    fn from(policy: Policy) -> KvsOptions {
        KvsOptions { policy, ..KvsOptions::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_read_back_as_it_is_written() {
        let classes = MediaClass::ALL;
        let places = classes.map(Place::prefer).into_iter().chain(classes.map(Place::only));
        let places: Vec<Place> = places.collect();
        for n in 0..256 {
            let place = |cell: usize| places[n >> (2 * cell) & 3];
            let policy = Policy {
                young_keys: place(0),
                young_values: place(1),
                old_keys: place(2),
                old_values: place(3),
            };
            assert_eq!(policy.to_string().parse(), Ok(policy), "{policy}");
        }
    }

    #[test]
    fn error_of_an_invalid_policy_says_how_to_write_one() {
        for (text, says) in [
            ("fastest", "staging-max-capacity"),
            ("", "staging-max-capacity"),
            ("old=staging,auto", "'auto' is no policy"),
            ("oldest=staging", "old-values"),
            ("old-=staging", "old-values"),
            ("old=pmem", "staging or capacity"),
            ("old=staging/staging", "capacity or none"),
            ("old=", "staging or capacity"),
        ] {
            let error = text.parse::<Policy>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn cells_are_changed_one_by_one_or_together() {
        let policy: Policy = "capacity-only,values=staging/none".parse().unwrap();
        assert_eq!(policy.young_values, Place::only(MediaClass::Staging));
        assert_eq!(policy.old_values, Place::only(MediaClass::Staging));
        assert_eq!(policy.old_keys, Place::prefer(MediaClass::Capacity));
        assert_eq!("all=capacity".parse(), Ok(Policy::CAPACITY_ONLY));
        assert_eq!("auto".parse(), Ok(Policy::default()));
    }
}
