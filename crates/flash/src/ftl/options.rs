//! Options of a translation layer.

use std::fmt;
use std::str::FromStr;

use esker_base::units::to_u64;
use esker_device::fdp::Isolation;

use super::ids::NOWHERE;
use crate::FlashError;

/// How the unit to be cleaned is chosen among those that are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaning {
    /// The one with the fewest valid pages.
    Greedy,
    /// The one that was full first.
    Fifo,
    /// The one with the fewest valid pages among so many chosen at random (Van Houdt 2013).
    Choices(u32),
    /// The one with the highest free share × age ÷ (1 + valid share) (Rosenblum and Ousterhout
    /// 1992), the age in host pages since it was full.
    CostBenefit,
}

/// Before the number of [`Cleaning::Choices`].
const CHOICES: &str = "choices:";

impl fmt::Display for Cleaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cleaning::Greedy => f.write_str("greedy"),
            Cleaning::Fifo => f.write_str("fifo"),
            Cleaning::Choices(count) => write!(f, "{CHOICES}{count}"),
            Cleaning::CostBenefit => f.write_str("cost-benefit"),
        }
    }
}

impl FromStr for Cleaning {
    type Err = String;

    fn from_str(text: &str) -> Result<Cleaning, String> {
        let choices = text.strip_prefix(CHOICES).map(str::parse);
        match (text, choices) {
            ("greedy", _) => Ok(Cleaning::Greedy),
            ("fifo", _) => Ok(Cleaning::Fifo),
            ("cost-benefit", _) => Ok(Cleaning::CostBenefit),
            (_, Some(Ok(count))) if count > 0 => Ok(Cleaning::Choices(count)),
            _ => {
                let all = "greedy, fifo, choices:10 or cost-benefit";
                Err(format!("'{text}' is unknown; write {all}"))
            }
        }
    }
}

/// Where cleaning copies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frontier {
    /// To units of its own: data that has survived is apart from fresh data.
    Separate,
    /// To the unit that the host is filling, as a single log does.
    Shared,
}

/// When cleaning is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleaningPace {
    /// A share after each host page, so that no write waits for a whole unit. Pages that die while
    /// their unit is being cleaned need no copy, so it costs less than the other.
    Steady,
    /// A whole unit at once, when there is none left to write to: the assumption of closed forms
    /// and most models.
    WhenNeeded,
}

/// Parameters of a translation layer: pages, units, handles, cleaning and wear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FtlOptions {
    /// Pages the host can address.
    pub logical_pages: u32,
    /// Pages per reclaim unit.
    pub unit_pages: u32,
    /// Reclaim units in all, those in reserve included.
    pub units: u32,
    /// Reclaim groups: the units are divided among them, and cleaning stays within one.
    pub groups: u16,
    /// The reclaim unit handles, each one's isolation. A drive without placement has one.
    pub handles: Vec<Isolation>,
    /// Which unit is cleaned.
    pub cleaning: Cleaning,
    /// Where its valid pages go.
    pub frontier: Frontier,
    /// When they go there.
    pub pace: CleaningPace,
    /// Erasures by which the units of a group may differ: data at rest in a seldom-erased one is
    /// moved to a worn one in time. `None` leaves wear to chance.
    pub wear_spread: Option<u32>,
    /// For [`Cleaning::Choices`].
    pub seed: u64,
}

impl FtlOptions {
    /// The erased units that cleaning keeps: one for each unit that may be opened at once, and one
    /// more. They add nothing to over-provisioning: all the rest is in use.
    #[must_use]
    pub fn reserve_units(&self) -> u32 {
        let open = self.handles.len() + self.cleaning_points();
        u32::from(self.groups) * u32::try_from(open + 1).unwrap_or(u32::MAX)
    }

    /// Write points that cleaning may have in a group.
    pub(super) fn cleaning_points(&self) -> usize {
        match self.frontier {
            Frontier::Separate => {
                let is_persistent = |one: &&Isolation| **one == Isolation::Persistently;
                1 + self.handles.iter().filter(is_persistent).count()
            }
            Frontier::Shared => 1,
        }
    }

    /// So many units that the pages in use are `over_provisioning` (0.07 is 7 %) more than the
    /// logical ones, the reserve not counted. The unit size is this value's.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    pub fn with_over_provisioning(mut self, over_provisioning: f64) -> FtlOptions {
        let in_use = f64::from(self.logical_pages) * (1.0 + over_provisioning);
        let units = (in_use / f64::from(self.unit_pages)).round() as u32;
        self.units = units.saturating_add(self.reserve_units());
        self
    }

    pub(crate) fn check(&self) -> Result<(), FlashError> {
        let refuse = |why: String| Err(FlashError::Invalid(why));
        if self.logical_pages == 0 || self.unit_pages == 0 {
            return refuse("a drive and its reclaim units have at least one page".into());
        }
        if self.handles.is_empty() || self.handles.len() > 128 || self.groups == 0 {
            return refuse("a drive has 1 to 128 reclaim unit handles and a reclaim group".into());
        }
        if self.cleaning == Cleaning::Choices(0) {
            return refuse("cleaning needs at least one choice".into());
        }
        if !self.units.is_multiple_of(u32::from(self.groups)) {
            let (units, groups) = (self.units, self.groups);
            return refuse(format!("{units} units cannot be divided among {groups} groups"));
        }
        let pages = to_u64(self.units as usize) * u64::from(self.unit_pages);
        if pages >= u64::from(NOWHERE.0) {
            return refuse(format!("{pages} media pages are too many: use larger pages"));
        }
        let reserve = u64::from(self.reserve_units()) + u64::from(self.groups);
        let needed = u64::from(self.logical_pages) + reserve * u64::from(self.unit_pages);
        if pages < needed {
            return refuse(format!(
                "{pages} media pages are too few for {} logical ones: with {reserve} units of {} \
                 pages in reserve at least {needed} are needed; add over-provisioning or use \
                 smaller units",
                self.logical_pages, self.unit_pages
            ));
        }
        Ok(())
    }
}
