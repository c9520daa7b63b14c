//! Report of a repair, and the ranges of keys in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::media::class::Media;
use crate::types::class::MediaClass;

/// State in which the manifest was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ManifestState {
    /// It could be read as an open would read it.
    Whole,
    /// Changes after its newest sound part are lost; the structures that they made were searched for on the media.
    Damaged,
    /// None of it could be used: the structures found are ordered by ids, names are invented.
    Lost,
}

/// Account of a repair: the data that it has salvaged, and the data that it has not.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// State in which the manifest was found.
    pub manifest: ManifestState,
    /// The KVSs of the new KVDB.
    pub kvss: Vec<KvsRepair>,
    /// One line for each structure that is damaged, with device and address.
    pub findings: Vec<String>,
    /// Facts about the result that cannot be known, in sentences.
    pub caveats: Vec<String>,
}

/// Outcome for one KVS.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct KvsRepair {
    /// Its name.
    pub name: String,
    /// Keys in the new KVDB.
    pub recovered: u64,
    /// Keys that are known and whose newest value is lost: they are not in the new KVDB.
    pub lost: Vec<Vec<u8>>,
    /// Keys whose newest value is lost as well, and which have an older one, as the media still held it.
    pub old: Vec<Vec<u8>>,
    /// Whether `lost` and `old` name every key that is not as it was. If not, further ones may be missing or old.
    pub is_complete: bool,
    /// Where keys may be missing, or older than they were, or deleted ones be back: their page was lost.
    pub lost_ranges: Vec<KeyRange>,
    /// Keys of which several versions were found, and none of them surely the newest.
    pub uncertain: u64,
}

/// The keys between two keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyRange {
    /// They come behind this one; `None`: from the beginning.
    pub after: Option<Vec<u8>>,
    /// And before this one; `None`: to the end.
    pub before: Option<Vec<u8>>,
}

impl KeyRange {
    /// Whether `key` is one of them.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.after.as_deref().is_none_or(|after| key > after)
            && self.before.as_deref().is_none_or(|before| key < before)
    }
}

impl RepairReport {
    /// Whether nothing was damaged and nothing lost.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.manifest == ManifestState::Whole
            && self.findings.is_empty()
            && self.kvss.iter().all(KvsRepair::is_whole)
    }
}

impl KvsRepair {
    fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.old.is_empty() && self.lost_ranges.is_empty()
    }
}

/// The classes that are left.
pub(crate) type ClassesLeft = BTreeMap<MediaClass, Arc<Media>>;
