//! Models of disks.

use std::fmt;
use std::path::PathBuf;

use esker_flash::disk::DiskParameters;
use esker_flash::profile::{Kind, Profile};

use super::syntax::{Key, Keys, Parts, show_size, size};
use super::{bytes_of, path_of};
use crate::time::Time;

/// A model of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskSpec {
    /// The profile's name.
    pub profile: String,
    /// Bytes; the profile's own where nothing is said. The disk has at least so many, in whole
    /// cylinders.
    pub capacity: Option<u64>,
    /// How its time passes.
    pub time: Option<Time>,
    /// The file in which the content lies; in memory without.
    pub image: Option<PathBuf>,
}

impl fmt::Display for DiskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk:{}", self.parts())
    }
}

impl DiskSpec {
    const KEYS: [Key; 3] = [("capacity", "SIZE"), ("time", Time::FORMS), ("image", "PATH")];

    pub(super) fn of(parts: &Parts) -> Result<DiskSpec, String> {
        let mut keys = Keys::of("disk:", parts, &DiskSpec::KEYS)?;
        let profile = parts.text()?.to_owned();
        find(&profile)?;
        Ok(DiskSpec {
            profile,
            capacity: keys.take("capacity", size)?,
            time: keys.take("time", str::parse)?,
            image: keys.bytes("image")?.map(path_of).transpose()?,
        })
    }

    fn parts(&self) -> Parts {
        let mut parts = Parts::new(self.profile.clone());
        parts.push("capacity", self.capacity.map(show_size));
        parts.push("time", self.time.map(|time| time.to_string()));
        parts.push("image", self.image.as_deref().map(bytes_of));
        parts
    }

    /// The name of the device.
    pub(crate) fn name(&self) -> String {
        match &self.image {
            Some(path) => format!("{}:{}", self.profile, path.display()),
            None => self.profile.clone(),
        }
    }

    /// The disk's profile, and its parameters as this specification changes them.
    pub(crate) fn parameters(&self) -> Result<(Profile, DiskParameters), String> {
        let (profile, parameters) = find(&self.profile)?;
        let Some(bytes) = self.capacity else { return Ok((profile, parameters)) };
        let made = parameters.with_capacity(bytes);
        made.map(|parameters| (profile, parameters)).map_err(|error| error.to_string())
    }
}

fn find(name: &str) -> Result<(Profile, DiskParameters), String> {
    let found = Profile::all().into_iter().find(|profile| profile.name == name);
    match found.map(|profile| (profile.kind.clone(), profile)) {
        Some((Kind::Disk(parameters), profile)) => Ok((profile, *parameters)),
        Some((Kind::Ssd(_), _)) => Err(format!("'{name}' is no disk; write ssd:{name}")),
        None => {
            let all = Profile::all();
            let disks = all.iter().filter(|profile| profile.ssd().is_none());
            let names: Vec<&str> = disks.map(|profile| profile.name).collect();
            Err(format!("there is no disk '{name}'; there are {}", names.join(", ")))
        }
    }
}
