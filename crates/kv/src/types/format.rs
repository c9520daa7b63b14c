//! Versions of the on-media format. A KVDB has the lowest version that says all that it holds, and so has a structure
//! in it: a build that does not know a version refuses what has it, and reads the rest.

/// Version of the on-media format: of a KVDB, or of one structure of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FormatVersion {
    #[default]
    V1,
    /// With deleted ranges of keys, the empty key, and metadata of KVSs.
    V2,
}

impl FormatVersion {
    pub(crate) const NEWEST: FormatVersion = FormatVersion::V2;

    /// As the media have it.
    pub(crate) const fn number(self) -> u16 {
        match self {
            FormatVersion::V1 => 1,
            FormatVersion::V2 => 2,
        }
    }

    /// The version of this number, if this build knows it.
    pub(crate) fn of(number: u16) -> Option<FormatVersion> {
        [FormatVersion::V1, FormatVersion::V2].into_iter().find(|known| known.number() == number)
    }
}
