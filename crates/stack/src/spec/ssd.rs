//! Models of solid-state drives.

use std::fmt;
use std::path::PathBuf;

use esker_flash::drive::{Media, Parameters};
use esker_flash::ftl::{Cleaning, Frontier};
use esker_flash::profile::{Kind, Profile};

use super::syntax::{Key, Keys, Parts, name_of, number, one_of, show_size, size};
use super::{bytes_of, path_of};
use crate::time::Time;

/// A namespace of a model of a solid-state drive. Fields that are `None` are as the drive is, or
/// else as the profile says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SsdSpec {
    /// The profile's name; none for a drive that is there already.
    pub profile: Option<String>,
    /// Bytes that the drive offers: the profile scaled down, its behaviour kept.
    pub capacity: Option<u64>,
    /// How its time passes.
    pub time: Option<Time>,
    /// The file in which the drive lies; in memory without.
    pub image: Option<PathBuf>,
    /// The name under which specifications of one process share a drive in memory.
    pub drive: Option<String>,
    /// How many namespaces of equal size a new drive is divided into; one where nothing is said.
    pub namespaces: Option<u32>,
    /// Which namespace this is about; the first where nothing is said.
    pub nsid: Option<u32>,
    /// The configuration of data placement that is enabled on a new drive; `Some(None)` is off.
    pub fdp: Option<Option<usize>>,
    /// The reclaim unit handles of the namespaces of a new drive: one list for all of them, or one
    /// for each. Where nothing is said, all handles divided among them.
    pub handles: Option<Vec<Vec<u16>>>,
    /// Bytes per LBA.
    pub lba: Option<u32>,
    /// Media beyond the capacity, as a share of the capacity.
    pub over_provisioning: Option<f64>,
    /// Which unit is cleaned.
    pub cleaning: Option<Cleaning>,
    /// Where its valid pages go.
    pub frontier: Option<Frontier>,
    /// Bytes of a reclaim unit.
    pub unit: Option<u64>,
    /// Erasures by which units may differ; `Some(None)` leaves wear to chance.
    pub wear: Option<Option<u32>>,
    /// The side that has the translation layer.
    pub ftl: Option<FtlSide>,
    /// Reads that the host holds back, at most, while their dies are busy.
    pub window: Option<u32>,
}

/// The side that has the translation layer of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FtlSide {
    /// The host, over dies with command queues of their own.
    Host,
    /// The drive's own controller.
    Drive,
}

impl FtlSide {
    fn of(parameters: &Parameters) -> FtlSide {
        match parameters.timing.host_queues {
            Some(_) => FtlSide::Host,
            None => FtlSide::Drive,
        }
    }
}

const LBA_SIZES: [(&str, u32); 2] = [("512", 512), ("4096", 4096)];
const FRONTIERS: [(&str, Frontier); 2] =
    [("separate", Frontier::Separate), ("shared", Frontier::Shared)];
const FTL_SIDES: [(&str, FtlSide); 2] = [("host", FtlSide::Host), ("drive", FtlSide::Drive)];
/// The most reads that a host holds back.
const MOST_WINDOW: u32 = 1 << 16;
/// Namespaces that a drive can be divided into at once.
const MOST_NAMESPACES: u32 = 1 << 10;

impl fmt::Display for SsdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssd:{}", self.parts())
    }
}

impl SsdSpec {
    const KEYS: [Key; 16] = [
        ("capacity", "SIZE"),
        ("time", Time::FORMS),
        ("image", "PATH"),
        ("drive", "NAME"),
        ("namespaces", "COUNT"),
        ("nsid", "NUMBER"),
        ("fdp", "on|off|INDEX"),
        ("handles", "0,1 for all or 0,1/2,3 for each namespace"),
        ("lba", "512|4096"),
        ("op", "SHARE, such as 0.145"),
        ("cleaning", "greedy|fifo|choices:COUNT|cost-benefit"),
        ("frontier", "separate|shared"),
        ("unit", "SIZE"),
        ("wear", "ERASURES|off"),
        ("ftl", "host|drive"),
        ("window", "COUNT"),
    ];

    pub(super) fn of(parts: &Parts) -> Result<SsdSpec, String> {
        let mut keys = Keys::of("ssd:", parts, &SsdSpec::KEYS)?;
        let profile = Some(parts.text()?).filter(|name| !name.is_empty()).map(str::to_owned);
        if let Some(name) = &profile {
            find(name)?;
        }
        let spec = SsdSpec {
            profile,
            capacity: keys.take("capacity", size)?,
            time: keys.take("time", str::parse)?,
            image: keys.bytes("image")?.map(path_of).transpose()?,
            drive: keys.take("drive", name)?,
            namespaces: keys.take("namespaces", number(0, MOST_NAMESPACES))?,
            nsid: keys.take("nsid", number(1, u32::MAX - 1))?,
            fdp: keys.take("fdp", placement)?,
            handles: keys.take("handles", handles)?,
            lba: keys.take("lba", one_of(&LBA_SIZES))?,
            over_provisioning: keys.take("op", share)?,
            cleaning: keys.take("cleaning", str::parse)?,
            frontier: keys.take("frontier", one_of(&FRONTIERS))?,
            unit: keys.take("unit", size)?,
            wear: keys.take("wear", wear)?,
            ftl: keys.take("ftl", one_of(&FTL_SIDES))?,
            window: keys.take("window", number(0, MOST_WINDOW))?,
        };
        match (&spec.profile, &spec.image, &spec.drive) {
            (_, Some(_), Some(_)) => Err("an image names the drive; leave out drive=".to_owned()),
            (None, None, None) => {
                let names = names();
                Err(format!("a profile is missing; there are {names}, or name an image="))
            }
            _ => Ok(spec),
        }
    }

    fn parts(&self) -> Parts {
        let mut parts = Parts::new(self.profile.clone().unwrap_or_default());
        parts.push("capacity", self.capacity.map(show_size));
        parts.push("time", self.time.map(|time| time.to_string()));
        parts.push("image", self.image.as_deref().map(bytes_of));
        parts.push("drive", self.drive.clone());
        parts.push("namespaces", self.namespaces.map(|count| count.to_string()));
        parts.push("nsid", self.nsid.map(|nsid| nsid.to_string()));
        parts.push("fdp", self.fdp.map(show_placement));
        parts.push("handles", self.handles.as_deref().map(show_handles));
        parts.push("lba", self.lba.map(|lba| lba.to_string()));
        parts.push("op", self.over_provisioning.map(|share| share.to_string()));
        parts.push("cleaning", self.cleaning.map(|cleaning| cleaning.to_string()));
        parts.push("frontier", self.frontier.map(|frontier| name_of(&FRONTIERS, &frontier)));
        parts.push("unit", self.unit.map(show_size));
        parts.push("wear", self.wear.map(show_wear));
        parts.push("ftl", self.ftl.map(|side| name_of(&FTL_SIDES, &side)));
        parts.push("window", self.window.map(|window| window.to_string()));
        parts
    }

    /// Leaves only the keys needed to find the drive and the namespace, and the capacity as a check.
    pub(super) fn forget_making(&mut self) {
        *self = SsdSpec {
            profile: self.profile.take(),
            capacity: self.capacity,
            time: self.time,
            image: self.image.take(),
            drive: self.drive.take(),
            nsid: self.nsid,
            ..SsdSpec::default()
        };
    }

    /// Returns the profile and the parameters that this specification makes of it.
    pub(crate) fn parameters(&self) -> Result<(Profile, Parameters), String> {
        let Some(name) = &self.profile else {
            return Err(format!("a new drive needs a profile; there are {}", names()));
        };
        let (profile, whole) = self.sided(find(name)?)?;
        let Some(capacity) = self.capacity else {
            return Err(format!(
                "a new drive needs a capacity, such as capacity=8GiB: the whole has {} and would \
                 take as much memory for its map as it has",
                esker_base::units::human_bytes(whole.capacity)
            ));
        };
        let made = self.adjust(whole.scaled(capacity).map_err(|error| error.to_string())?)?;
        made.check().map_err(|error| error.to_string())?;
        Ok((profile, made))
    }

    /// The profile with the translation layer where it is to be.
    fn sided(&self, found: (Profile, Parameters)) -> Result<(Profile, Parameters), String> {
        let (profile, parameters) = found;
        let has = FtlSide::of(&parameters);
        match (self.ftl, &profile.in_drive) {
            (Some(FtlSide::Drive), Some(other)) => {
                let parameters = other.ssd().ok_or("its twin is no solid-state drive")?.clone();
                Ok(((**other).clone(), parameters))
            }
            (Some(side), _) if side != has => Err(format!(
                "ftl: the controller of {} translates itself, and no host can; leave it out, or take \
                 host-managed-256",
                profile.name
            )),
            _ => Ok((profile, parameters)),
        }
    }

    /// The parameters with everything that the specification says of them.
    fn adjust(&self, mut parameters: Parameters) -> Result<Parameters, String> {
        let of_flash = [
            ("unit", self.unit.is_some()),
            ("op", self.over_provisioning.is_some()),
            ("cleaning", self.cleaning.is_some()),
            ("frontier", self.frontier.is_some()),
            ("wear", self.wear.is_some()),
        ];
        if parameters.media == Media::InPlace
            && let Some((key, _)) = of_flash.iter().find(|(_, is_said)| *is_said)
        {
            return Err(format!("{key}: the drive is written in place and has none; leave it out"));
        }
        match (&mut parameters.timing.host_queues, self.window) {
            (Some(queues), Some(window)) => queues.window = window,
            (None, Some(_)) => {
                let why =
                    "window: no host holds back reads of this drive; leave it out, or say ftl=host";
                return Err(why.to_owned());
            }
            (_, None) => {}
        }
        parameters.lba_size = self.lba.unwrap_or(parameters.lba_size);
        parameters.cleaning = self.cleaning.unwrap_or(parameters.cleaning);
        parameters.frontier = self.frontier.unwrap_or(parameters.frontier);
        parameters.wear_spread = self.wear.unwrap_or(parameters.wear_spread);
        if let Some(unit) = self.unit {
            let made = parameters.with_units_of(unit);
            parameters = made.map_err(|error| format!("unit: {error}"))?;
        }
        if let Some(share) = self.over_provisioning {
            parameters.units = parameters.units_for(share);
        }
        Ok(parameters)
    }

    /// Where a drive that is there says otherwise: the key, its value and the value asked for.
    pub(crate) fn contradiction(&self, profile: &str, has: &Parameters) -> Option<String> {
        let capacity = self.capacity.map(|bytes| bytes / u64::from(has.page_size));
        let units = self.over_provisioning.map(|share| has.units_for(share));
        let window = has.timing.host_queues.map_or(0, |queues| queues.window);
        let checks = [
            differs("profile", self.profile.as_deref(), profile, str::to_owned),
            differs("capacity", capacity, has.capacity / u64::from(has.page_size), |pages| {
                show_size(pages * u64::from(has.page_size))
            }),
            differs("lba", self.lba, has.lba_size, |lba| lba.to_string()),
            differs("ftl", self.ftl, FtlSide::of(has), |side| {
                name_of(&FTL_SIDES, &side).to_owned()
            }),
            differs("window", self.window, window, |window| window.to_string()),
            differs("cleaning", self.cleaning, has.cleaning, |cleaning| cleaning.to_string()),
            differs("frontier", self.frontier, has.frontier, |frontier| {
                name_of(&FRONTIERS, &frontier).to_owned()
            }),
            differs("unit", self.unit, has.unit_size, show_size),
            differs("wear", self.wear, has.wear_spread, show_wear),
            differs("op", units, has.units, |units| format!("of {units} units")),
        ];
        checks.into_iter().flatten().next()
    }

    /// The handles of the namespace with an index, of so many, on a drive with so many handles.
    pub(crate) fn handles_of(&self, index: u32, namespaces: u32, handles: u16) -> Vec<u16> {
        let Ok(place) = usize::try_from(index) else { return Vec::new() };
        match self.handles.as_deref() {
            Some([all]) => all.clone(),
            Some(each) => each.get(place).cloned().unwrap_or_default(),
            None if u32::from(handles) <= namespaces => {
                vec![u16::try_from(index % u32::from(handles.max(1))).unwrap_or(0)]
            }
            None => {
                let share = |index: u32| {
                    let at = u64::from(index) * u64::from(handles) / u64::from(namespaces.max(1));
                    u16::try_from(at).unwrap_or(handles)
                };
                (share(index)..share(index + 1)).collect()
            }
        }
    }
}

/// The first difference, as a sentence's end.
pub(crate) fn differs<T: PartialEq + Copy>(
    key: &str,
    asked: Option<T>,
    has: T,
    show: impl Fn(T) -> String,
) -> Option<String> {
    let asked = asked.filter(|asked| *asked != has)?;
    Some(format!("has {key} {}, not {}", show(has), show(asked)))
}

fn find(name: &str) -> Result<(Profile, Parameters), String> {
    let found = Profile::all().into_iter().find(|profile| profile.name == name);
    match found.map(|profile| (profile.kind.clone(), profile)) {
        Some((Kind::Ssd(parameters), profile)) => Ok((profile, *parameters)),
        Some((Kind::Disk(_), _)) => {
            Err(format!("'{name}' is no solid-state drive; write disk:{name}"))
        }
        None => Err(format!("there is no solid-state drive '{name}'; there are {}", names())),
    }
}

/// The profiles of solid-state drives.
fn names() -> String {
    let all = Profile::all();
    let names: Vec<&str> =
        all.iter().filter(|profile| profile.ssd().is_some()).map(|profile| profile.name).collect();
    names.join(", ")
}

fn name(text: &str) -> Result<String, String> {
    match (1..=64).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 64 bytes".to_owned()),
    }
}

fn placement(text: &str) -> Result<Option<usize>, String> {
    match (text, text.parse()) {
        ("off", _) => Ok(None),
        ("on", _) => Ok(Some(0)),
        (_, Ok(index)) => Ok(Some(index)),
        _ => Err(format!("'{text}' is unknown; write on, off, or the index of a configuration")),
    }
}

pub(crate) fn show_placement(fdp: Option<usize>) -> String {
    fdp.map_or_else(|| "off".to_owned(), |index| index.to_string())
}

fn handles(text: &str) -> Result<Vec<Vec<u16>>, String> {
    let wrong =
        || format!("'{text}' names no handles; write 0,1 for all namespaces, or 0,1/2,3 for each");
    let lists = text.split('/').map(|list| list.split(',').map(str::parse).collect());
    lists.collect::<Result<_, _>>().map_err(|_| wrong())
}

fn show_handles(lists: &[Vec<u16>]) -> String {
    let lists = lists.iter().map(|list| {
        let numbers: Vec<String> = list.iter().map(u16::to_string).collect();
        numbers.join(",")
    });
    lists.collect::<Vec<_>>().join("/")
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.01..=10.0).contains(&share) => Ok(share),
        _ => Err(format!("'{text}' is no share from 0.01 to 10; 0.145 is 14.5 %")),
    }
}

fn wear(text: &str) -> Result<Option<u32>, String> {
    match (text, text.parse()) {
        ("off", _) => Ok(None),
        (_, Ok(spread)) if spread > 0 => Ok(Some(spread)),
        _ => Err(format!(
            "'{text}' is no count of erasures; write 100, or off to leave wear to chance"
        )),
    }
}

fn show_wear(spread: Option<u32>) -> String {
    spread.map_or_else(|| "off".to_owned(), |spread| spread.to_string())
}
