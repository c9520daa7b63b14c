//! Which track and which sector an LBA is. LBAs fill a track, then the track of the next surface,
//! then the next cylinder, from the outer edge inwards.

use esker_base::LbaCount;

use super::DiskParameters;

/// A place on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sector {
    /// Of all tracks, in the order of LBAs.
    pub(super) track: u64,
    /// Within the track.
    pub(super) index: u32,
    /// How many the track has.
    pub(super) of: u32,
}

pub(super) struct Layout {
    heads: u64,
    zones: Vec<Zone>,
    end: u64,
}

#[derive(Clone, Copy)]
struct Zone {
    first_lba: u64,
    first_track: u64,
    sectors: u32,
}

impl Layout {
    pub(super) fn new(parameters: &DiskParameters) -> Layout {
        let heads = u64::from(parameters.heads);
        let (outer, inner) = (parameters.outer_sectors, parameters.inner_sectors);
        let last = u64::from(parameters.zones).max(2) - 1;
        let cylinder_of =
            |zone: u64| u64::from(parameters.cylinders) * zone / u64::from(parameters.zones);
        let (mut zones, mut end) = (Vec::new(), 0);
        for zone in 0..u64::from(parameters.zones) {
            let less = (u64::from(outer - inner) * zone + last / 2) / last;
            let sectors = outer - u32::try_from(less).expect("no more than the outer ones");
            zones.push(Zone { first_lba: end, first_track: cylinder_of(zone) * heads, sectors });
            let tracks = (cylinder_of(zone + 1) - cylinder_of(zone)) * heads;
            end += tracks * u64::from(sectors);
        }
        Layout { heads, zones, end }
    }

    pub(super) fn capacity(&self) -> LbaCount {
        LbaCount(self.end)
    }

    /// The sector of an LBA; the end of the disk counts as a sector of a further track.
    pub(super) fn sector(&self, lba: u64) -> Sector {
        let zone = self.zones.partition_point(|zone| zone.first_lba <= lba) - 1;
        let Zone { first_lba, first_track, sectors } = self.zones[zone];
        let (within, of) = (lba - first_lba, u64::from(sectors));
        let index = u32::try_from(within % of).expect("less than a track has");
        Sector { track: first_track + within / of, index, of: sectors }
    }

    pub(super) fn cylinder(&self, track: u64) -> u32 {
        u32::try_from(track / self.heads).expect("made from a u32")
    }

    /// Whether two tracks are on one surface.
    pub(super) fn is_same_head(&self, one: u64, other: u64) -> bool {
        one % self.heads == other % self.heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_the_published_capacity_and_every_lba_its_own_sector() {
        for (parameters, bytes) in
            [(DiskParameters::sata_7200(), 4.0e12), (DiskParameters::sas_10k(), 73.4e9)]
        {
            let layout = Layout::new(&parameters);
            #[allow(clippy::cast_precision_loss)]
            let capacity = layout.capacity().bytes(parameters.lba_size) as f64;
            assert!((capacity / bytes - 1.0).abs() < 0.005, "{capacity}");
            assert_eq!(layout.zones[0].sectors, parameters.outer_sectors);
            assert_eq!(layout.zones.last().unwrap().sectors, parameters.inner_sectors);
        }
        let small = DiskParameters::sas_10k().with_capacity(20 << 20).unwrap();
        let layout = Layout::new(&small);
        let (mut track, mut index) = (0, 0);
        for lba in 0..layout.capacity().0 {
            let sector = layout.sector(lba);
            assert_eq!((sector.track, sector.index), (track, index), "LBA {lba}");
            index += 1;
            if index == sector.of {
                (track, index) = (track + 1, 0);
            }
        }
        assert_eq!(track, u64::from(small.cylinders * small.heads));
    }
}
