//! Parameters of a drive.

use esker_base::units::to_u64;
use esker_device::fdp::Isolation;

use crate::FlashError;
use crate::ftl::{Cleaning, CleaningPace, Frontier, FtlOptions};
use crate::timing::Timing;

use super::Places;

/// The largest page, in bytes.
const MAX_PAGE: u32 = 1 << 20;
/// The most dies.
const MAX_DIES: u32 = 1 << 16;
/// The most namespaces.
const MAX_NAMESPACES: u32 = 1 << 16;

/// Kind of the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Flash: programmed once between two erasures, behind a translation layer.
    Flash,
    /// Written in place, like storage-class memory: no erasures, no cleaning.
    InPlace,
}

/// A configuration of data placement that the drive offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Reclaim groups.
    pub groups: u16,
    /// The reclaim unit handles.
    pub handles: Vec<Isolation>,
}

/// A drive's parts. All sizes in bytes; every page is a page of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Capacity that it offers to namespaces.
    pub capacity: u64,
    /// Of an LBA: 512 or 4,096, and not more than a page.
    pub lba_size: u32,
    /// Of the unit in which the layer maps; smaller writes read, modify and write one.
    pub page_size: u32,
    /// Of the unit that a die reads at once; a multiple of the page.
    pub nand_page_size: u32,
    /// Of the unit that a die programs at once, all planes and bits together; a multiple of a NAND
    /// page.
    pub program_size: u32,
    /// Of a reclaim unit: a multiple of `program_size`.
    pub unit_size: u64,
    /// Reclaim units in all.
    pub units: u32,
    /// Channels.
    pub channels: u32,
    /// Dies; die `d` is on channel `d % channels`.
    pub dies: u32,
    /// Media that store the data.
    pub media: Media,
    /// Which unit is cleaned.
    pub cleaning: Cleaning,
    /// Where its valid pages go.
    pub frontier: Frontier,
    /// When they go there.
    pub pace: CleaningPace,
    /// See [`FtlOptions::wear_spread`].
    pub wear_spread: Option<u32>,
    /// How often a unit may be erased in its rated life.
    pub rated_erasures: u32,
    /// The configurations of data placement; none for a drive without it.
    pub configurations: Vec<Configuration>,
    /// Namespaces it can have.
    pub max_namespaces: u32,
    /// Times and rates.
    pub timing: Timing,
}

/// How many of the upper bits of a placement id name one of so many reclaim groups (RGIF).
pub(crate) fn group_bits(groups: u16) -> u16 {
    let bits = u16::BITS - groups.saturating_sub(1).leading_zeros();
    u16::try_from(bits).expect("at most 16")
}

impl Parameters {
    /// Pages the host can address.
    pub(crate) fn logical_pages(&self) -> Result<u32, FlashError> {
        let pages = self.capacity / u64::from(self.page_size);
        u32::try_from(pages).ok().filter(|&pages| pages < u32::MAX).ok_or_else(|| {
            let why = format!("{pages} pages are too many: use larger pages or less capacity");
            FlashError::Invalid(why)
        })
    }

    /// Pages per reclaim unit.
    pub(crate) fn unit_pages(&self) -> u32 {
        u32::try_from(self.unit_size / u64::from(self.page_size)).unwrap_or(u32::MAX)
    }

    /// Stripes of a reclaim unit.
    pub(crate) fn unit_stripes(&self) -> u32 {
        u32::try_from(self.unit_size / u64::from(self.program_size)).unwrap_or(u32::MAX)
    }

    /// The dies of all stripes, where the host chooses them.
    pub(crate) fn places(&self) -> Option<Places> {
        let is_chosen = self.timing.host_queues.is_some() && self.media == Media::Flash;
        is_chosen.then(|| Places::new(self.units, self.unit_stripes(), self.dies))
    }

    /// Bytes of media.
    #[must_use]
    pub fn media_bytes(&self) -> u64 {
        match self.media {
            Media::Flash => u64::from(self.units) * self.unit_size,
            Media::InPlace => self.capacity,
        }
    }

    /// Media beyond the capacity, as a share of the capacity, all reserves included.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a ratio for people
    pub fn over_provisioning(&self) -> f64 {
        self.media_bytes() as f64 / self.capacity as f64 - 1.0
    }

    /// The layer for a configuration of data placement, or without.
    ///
    /// # Errors
    /// When the drive has no such configuration, or too many pages.
    pub fn ftl_options(&self, configuration: Option<usize>) -> Result<FtlOptions, FlashError> {
        let (groups, handles) = match configuration {
            None => (1, vec![Isolation::Initially]),
            Some(index) => {
                let found = self.configurations.get(index).ok_or_else(|| {
                    let count = self.configurations.len();
                    let why = match count {
                        0 => "the drive has no data placement".to_owned(),
                        _ => format!("there is no configuration {index}: the drive has {count}"),
                    };
                    FlashError::Invalid(why)
                })?;
                (found.groups, found.handles.clone())
            }
        };
        Ok(FtlOptions {
            logical_pages: self.logical_pages()?,
            unit_pages: self.unit_pages(),
            units: self.units / u32::from(groups) * u32::from(groups),
            groups,
            handles,
            cleaning: self.cleaning,
            frontier: self.frontier,
            pace: self.pace,
            wear_spread: self.wear_spread,
            seed: 0,
        })
    }

    /// Checks that the sizes fit each other.
    ///
    /// # Errors
    /// The problem, and a remedy.
    pub fn check(&self) -> Result<(), FlashError> {
        let refuse = |why: String| Err(FlashError::Invalid(why));
        if !matches!(self.lba_size, 512 | 4096) {
            return refuse(format!("an LBA has 512 or 4096 bytes, not {}", self.lba_size));
        }
        let steps = [
            ("page", u64::from(self.page_size), "LBA", u64::from(self.lba_size)),
            ("NAND page", u64::from(self.nand_page_size), "page", u64::from(self.page_size)),
            ("program", u64::from(self.program_size), "NAND page", self.nand_page_size.into()),
            ("reclaim unit", self.unit_size, "program", u64::from(self.program_size)),
            ("capacity", self.capacity, "page", u64::from(self.page_size)),
        ];
        for (large, size, small, of) in steps {
            if of == 0 || size == 0 || !size.is_multiple_of(of) {
                let why = format!("a {large} of {size} bytes is no multiple of a {small} of {of}");
                return refuse(why);
            }
        }
        if self.page_size > MAX_PAGE {
            return refuse(format!("a page has at most {MAX_PAGE} bytes, not {}", self.page_size));
        }
        if self.unit_size / u64::from(self.page_size) > to_u64(1 << 30) {
            return refuse("a reclaim unit has at most 2^30 pages".into());
        }
        if self.channels == 0 || self.dies < self.channels || self.dies > MAX_DIES {
            let (channels, dies) = (self.channels, self.dies);
            return refuse(format!(
                "{channels} channels and {dies} dies: a drive has at least one die on each \
                 channel, and at most {MAX_DIES}"
            ));
        }
        if self.max_namespaces > MAX_NAMESPACES {
            let most = self.max_namespaces;
            return refuse(format!("a drive has at most {MAX_NAMESPACES} namespaces, not {most}"));
        }
        for configuration in &self.configurations {
            let Configuration { groups, handles } = configuration;
            if self.media == Media::Flash && !self.units.is_multiple_of(u32::from(*groups).max(1)) {
                let units = self.units;
                return refuse(format!("{units} units cannot be divided among {groups} groups"));
            }
            if *groups == 0 || !(1..=128).contains(&handles.len()) {
                let why = "a configuration of data placement has 1 to 128 reclaim unit handles and \
                           a reclaim group";
                return refuse(why.to_owned());
            }
            let bits = u32::from(group_bits(*groups));
            if handles.len() > 1 << (u16::BITS - bits) {
                let count = handles.len();
                return refuse(format!(
                    "{groups} groups take {bits} bits of a placement id, and {count} handles do \
                     not fit the others"
                ));
            }
        }
        self.logical_pages()?;
        if self.media == Media::Flash {
            self.ftl_options(None)?.check()?;
        }
        self.timing.check()
    }
}
