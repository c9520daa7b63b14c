//! Makes, finds and checks drives.
//!
//! A drive's name begins with that of its profile, so that an image names the drive that it models:
//! `micron-7450:/data/drive.img`, `micron-7450:NAME`, `micron-7450`, `micron-7450#2`.

use std::path::Path;
use std::sync::Arc;

use esker_base::units::{round_down, to_usize};
use esker_base::{AlignedBuf, Lba, files};
use esker_device::{Create, Device, DeviceError, FileDevice, FileOptions, Port};
use esker_flash::profile::Profile;
use esker_flash::{FlashError, Pace, Ssd};

use crate::StackError;
use crate::spec::{SsdSpec, differs};

/// Bytes at the beginning of a device that are zero where there is neither an image nor anything of
/// others: a btrfs begins with 64 KiB of nothing.
const HEAD_BYTES: u64 = 128 << 10;
/// Bytes read at once.
const STEP_BYTES: u64 = 4096;

/// The profile that the name of a drive begins with, if this program knows it.
pub(crate) fn profile_of(ssd: &Ssd) -> Option<Profile> {
    let named = |profile: &Profile| profile.name == profile_name(ssd.name());
    let profile = Profile::all().into_iter().find(named)?;
    match ssd.parameters().timing.host_queues {
        Some(_) => Some(profile),
        None => Some(profile.in_drive.clone().map_or(profile, |other| *other)),
    }
}

fn profile_name(name: &str) -> &str {
    name.split([':', '#']).next().unwrap_or(name)
}

/// Makes a drive as `spec` says, divided into namespaces: in the file of its image, or in memory.
pub(crate) fn make(spec: &SsdSpec, name: &str, pace: Pace) -> Result<Ssd, StackError> {
    let (_, parameters) = spec.parameters().map_err(|why| StackError::invalid(spec, why))?;
    let namespaces = spec.namespaces.unwrap_or(1);
    if spec.handles.as_ref().is_some_and(|lists| ![1, namespaces].contains(&count(lists))) {
        let why = format!("handles: give one list for all namespaces, or {namespaces} lists");
        return Err(StackError::invalid(spec, why));
    }
    let divided = |ssd: Ssd| divide(spec, &ssd, namespaces).map(|()| ssd);
    let made = match &spec.image {
        None => Ssd::new(name, &parameters, pace).and_then(divided),
        Some(path) => {
            let bytes = Ssd::image_bytes(&parameters);
            let bytes = bytes.map_err(|error| StackError::flash(spec, error))?;
            let device = open_file(
                path,
                FileOptions { capacity_bytes: Some(bytes), ..FileOptions::default() },
            )?;
            let is_new = device.is_new();
            let made = Ssd::create(name, &parameters, Arc::new(device), pace).and_then(divided);
            if made.is_err() && is_new {
                // Half a drive is no use, and the error to be told of is why it is half.
                let _ = std::fs::remove_file(path);
            }
            made
        }
    };
    made.map_err(|error| StackError::flash(spec, error))
}

fn divide(spec: &SsdSpec, ssd: &Ssd, namespaces: u32) -> Result<(), FlashError> {
    let parameters = ssd.parameters();
    let mut handles = 1;
    if let Some(Some(index)) = spec.fdp {
        ssd.enable_placement(Some(index))?;
        let all = parameters.configurations.get(index).map_or(0, |one| one.handles.len());
        handles = u16::try_from(all).unwrap_or(u16::MAX);
    }
    let is_placed = handles > 1 || spec.handles.is_some();
    let each = parameters.capacity / u64::from(namespaces.max(1));
    let bytes = round_down(each, u64::from(parameters.page_size));
    for index in 0..namespaces {
        let own = spec.handles_of(index, namespaces, handles);
        ssd.create_namespace(bytes, is_placed.then_some(&own[..]))?;
    }
    ssd.checkpoint()
}

/// Opens the drive whose image is at `path`.
pub(crate) fn open(spec: &SsdSpec, path: &Path, pace: Pace) -> Result<Ssd, StackError> {
    let device = open_file(path, existing())?;
    Ssd::open(Arc::new(device), pace).map_err(|error| StackError::flash(spec, error))
}

/// Checks that a drive that is there agrees with `spec`.
pub(crate) fn check(spec: &SsdSpec, ssd: &Ssd) -> Result<(), StackError> {
    let (report, parameters) = (ssd.report(), ssd.parameters());
    let namespaces = count(&report.namespaces);
    let place = usize::try_from(spec.nsid.unwrap_or(1) - 1).unwrap_or(usize::MAX);
    let own = report.namespaces.iter().find(|(id, ..)| *id == spec.nsid.unwrap_or(1));
    let asked = spec.handles.as_ref().map(|lists| lists.get(place).unwrap_or(&lists[0]));
    let show = |list: &Vec<u16>| {
        let numbers: Vec<String> = list.iter().map(u16::to_string).collect();
        numbers.join(",")
    };
    let found = spec
        .contradiction(profile_name(ssd.name()), &parameters)
        .or_else(|| differs("namespaces", spec.namespaces, namespaces, |n| n.to_string()))
        .or_else(|| differs("fdp", spec.fdp, report.placement, crate::spec::show_placement))
        .or_else(|| own.and_then(|(_, _, has)| differs("handles", asked, has, show)));
    found.map_or(Ok(()), |why| Err(StackError::contradiction(spec, why)))
}

fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}

/// Opens the file or block device in which an image lies.
pub(crate) fn open_file(path: &Path, options: FileOptions) -> Result<FileDevice, StackError> {
    Ok(FileDevice::open(path, &options)?)
}

/// How an image that is there is opened: it has no size of its own to say.
fn existing() -> FileOptions {
    FileOptions { create: Create::Never, ..FileOptions::default() }
}

/// Whether there is something at `path` already: a file that is not empty, or a block device that
/// does not begin with zeroes.
pub(crate) fn is_there(path: &Path) -> Result<bool, StackError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(found.len() > 0),
        Ok(_) => {
            let device = open_file(path, existing())?;
            Ok(!begins_with_zeroes(&device)?)
        }
        // Opening it reports the fault; under `/dev` nothing is to be made.
        Err(_) if files::is_missing_device(path) => open_file(path, existing()).map(|_| true),
        Err(_) => Ok(false),
    }
}

fn begins_with_zeroes(device: &dyn Device) -> Result<bool, DeviceError> {
    let geometry = device.geometry();
    let size = geometry.capacity.bytes(geometry.lba_size).min(HEAD_BYTES);
    let mut port = Port::open(device, 1)?;
    let mut at = 0;
    while at < size {
        let part = STEP_BYTES.min(size - at);
        let lba = Lba(at / u64::from(geometry.lba_size));
        let part = port.read(lba, AlignedBuf::zeroed(to_usize(part)))?;
        if part.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += STEP_BYTES;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use esker_device::MemoryDevice;

    use super::*;

    #[test]
    fn foreign_content_is_seen_wherever_it_begins() {
        // Partition tables, bcachefs, ZFS, a CD, btrfs.
        for begin in [512, 4096, 16 << 10, 32 << 10, 64 << 10] {
            let device = MemoryDevice::new("memory", 1 << 20, 512);
            assert_eq!(begins_with_zeroes(&device), Ok(true));
            let mark = AlignedBuf::padded(b"mark", 512);
            Port::open(&device, 1).unwrap().write(Lba(begin / 512), mark, None).unwrap();
            assert_eq!(begins_with_zeroes(&device), Ok(false), "at {begin}");
        }
    }
}
