//! The superblock of a new cache, and whether devices are large enough for one that is there.

use esker_base::units::round_down;
use esker_device::Device;

use crate::CacheError;
use crate::layout::{LARGEST_SET, Layout};
use crate::mapping::{Mapping, Placement};
use crate::omf::{BLOCK, DETACHED, Origin, Superblock, VERSION};
use crate::options::{CreateOptions, Division};

/// The most slots of a set of a new cache, which may grow.
pub(super) const MOST_NEW_SLOTS: u32 = 32_768;

/// The superblock of a new cache.
pub(super) fn plan(
    origin: &dyn Device,
    flash: &dyn Device,
    options: &CreateOptions,
) -> Result<Superblock, CacheError> {
    let invalid = |why: String| Err(CacheError::Invalid(why));
    let bytes_of = |device: &dyn Device| {
        let geometry = device.geometry();
        geometry.capacity.bytes(geometry.lba_size)
    };
    let (origin_bytes, has) = (round_down(bytes_of(origin), BLOCK), bytes_of(flash));
    let flash_bytes = round_down(options.flash_bytes.unwrap_or(has), BLOCK);
    if flash_bytes > has {
        let name = flash.name();
        return invalid(format!("{name} has {has} bytes, not {flash_bytes}"));
    }
    if origin_bytes == 0 {
        return invalid(format!("{} has no whole block of 4 KiB", origin.name()));
    }
    let (outer, inner) = (origin.geometry().lba_size, flash.geometry().lba_size);
    if inner < outer && u64::from(outer) != BLOCK {
        return invalid(format!(
            "an origin with LBAs of {outer} bytes needs a flash device with LBAs as large; {} has \
             {inner}",
            flash.name()
        ));
    }
    let is_single = options.division == Division::Single;
    let most = if is_single { LARGEST_SET } else { MOST_NEW_SLOTS };
    let slots = u32::try_from(options.set_bytes / BLOCK).unwrap_or(u32::MAX);
    if !is_single && !(8..=most).contains(&slots) {
        return invalid("a set has from 32 KiB to 128 MiB".to_owned());
    }
    let run_blocks = u32::try_from(options.run_bytes / BLOCK).unwrap_or(u32::MAX);
    if !(1..=slots.max(1)).contains(&run_blocks) {
        return invalid("a run has at least 4 KiB, and is no larger than a set".to_owned());
    }
    let too_small = || {
        let why = format!("{flash_bytes} bytes are too few for a cache; it needs 1 MiB at least");
        CacheError::Invalid(why)
    };
    let slots = slots.clamp(1, most);
    let layout = Layout::planned(flash_bytes, slots, options.area_bytes, is_single);
    let layout = layout.ok_or_else(too_small)?;
    if layout.set_slots < 8 {
        return Err(too_small());
    }
    if layout.least_area_bytes(1) > layout.area_bytes {
        let set_bytes = u64::from(slots) * BLOCK;
        return invalid(format!(
            "sets of {set_bytes} bytes are too small for {flash_bytes} bytes of {}: there are more \
             of them than a journal has room for; take larger ones, 16 MiB are usual",
            flash.name()
        ));
    }
    Ok(Superblock {
        version: VERSION,
        mode: options.mode.number(),
        state: 0,
        mapping: options.division.number(),
        generation: 1,
        id: options.id,
        origin_bytes,
        flash_bytes,
        set_slots: layout.set_slots,
        rows: layout.rows(),
        run_blocks,
        sets: layout.sets,
        clean_epoch: 1,
        area_bytes: layout.area_bytes,
        origin: Origin::default(),
    })
}

pub(crate) fn mapping_of(superblock: &Superblock) -> Result<Mapping, CacheError> {
    let placement = match superblock.mapping {
        0 => Placement::Hashed,
        _ => Placement::Linear,
    };
    let (blocks, seed) = (superblock.origin_bytes / BLOCK, superblock.id);
    Mapping::new(placement, blocks, superblock.sets, superblock.run_blocks, seed)
}

/// An error unless the cache is attached, and both devices are large enough for it.
pub(crate) fn check_sizes(
    superblock: &Superblock,
    origin: &dyn Device,
    flash: &dyn Device,
) -> Result<(), CacheError> {
    if superblock.state == DETACHED {
        return Err(CacheError::Detached { device: flash.name().to_owned() });
    }
    let fits = |device: &dyn Device, needed: u64, what: &str| {
        let geometry = device.geometry();
        let has = geometry.capacity.bytes(geometry.lba_size);
        match has >= needed {
            true => Ok(()),
            false => Err(CacheError::Invalid(format!(
                "{} has {has} bytes, and the cache was made for {what} of {needed}",
                device.name()
            ))),
        }
    };
    fits(origin, superblock.origin_bytes, "an origin")?;
    fits(flash, superblock.flash_bytes, "a flash device")?;
    fits(flash, Layout::of(superblock).least_end(), "a flash device")
}
