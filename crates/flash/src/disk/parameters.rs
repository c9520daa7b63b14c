//! Parameters of a disk, and profiles of real ones. A figure without a source is an assumption and
//! listed as such.

use super::seek::SeekCurve;
use crate::FlashError;

/// The published seek times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekFigures {
    /// To the next cylinder.
    pub track_ns: u64,
    /// On average over all pairs of cylinders.
    pub average_ns: u64,
    /// From the first cylinder to the last.
    pub full_ns: u64,
}

/// The parameters of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskParameters {
    /// Maker, series and model of the disk.
    pub model: &'static str,
    /// Bytes per LBA, and per sector.
    pub lba_size: u32,
    /// Rotations per minute.
    pub rpm: u32,
    /// Surfaces with a head each.
    pub heads: u32,
    /// Tracks per surface.
    pub cylinders: u32,
    /// Zones: all tracks of a zone have the same number of sectors, which falls evenly from the
    /// first zone to the last.
    pub zones: u32,
    /// Sectors on a track of the first zone, at the outer edge.
    pub outer_sectors: u32,
    /// Sectors on a track of the last zone.
    pub inner_sectors: u32,
    /// From the end of a track to the start of the next one, on the next surface or cylinder.
    /// Tracks are skewed by this.
    pub switch_ns: u64,
    /// Seeks before reads.
    pub read_seek: SeekFigures,
    /// Seeks before writes, which need to settle more exactly.
    pub write_seek: SeekFigures,
    /// Time that the controller takes for a command before the mechanism can move. It works on
    /// waiting commands while the mechanism is busy.
    pub overhead_ns: u64,
    /// Bandwidth of the interface.
    pub interface_bytes_per_s: u64,
    /// How many commands the disk sees at once and may reorder; 1 is first come, first served.
    pub queue_depth: u32,
    /// How many younger commands may go before a command.
    pub patience: u32,
    /// How far the disk goes on reading after a read while nothing else is to be done; zero is not
    /// at all. One stream is followed.
    pub read_ahead_bytes: u32,
    /// How much written data the disk acknowledges before it is on the platters; zero is a write
    /// cache that is off, as databases ask for.
    pub write_cache_bytes: u32,
    /// Where the figures are from.
    pub sources: Vec<&'static str>,
    /// The figures that no source says.
    pub assumptions: Vec<&'static str>,
}

impl DiskParameters {
    /// A 4 TB disk of 7,200 rotations per minute with a SATA interface.
    #[must_use]
    pub fn sata_7200() -> DiskParameters {
        let seek = |track_ns| SeekFigures { track_ns, average_ns: 8_200_000, full_ns: 16_400_000 };
        DiskParameters {
            model: "7.2k SATA 4 TB (HGST Ultrastar 7K4000 class)",
            lba_size: 512,
            rpm: 7200,
            heads: 10,
            cylinders: 320_800,
            zones: 24,
            outer_sectors: 3303,
            inner_sectors: 1566,
            switch_ns: 1_330_000,
            read_seek: seek(230_000),
            write_seek: seek(320_000),
            overhead_ns: 200_000,
            interface_bytes_per_s: 600_000_000,
            queue_depth: 32,
            patience: 256,
            read_ahead_bytes: 1 << 20,
            write_cache_bytes: 0,
            sources: vec![
                "average seek 8.2 ms for reads and writes, 7,200 rpm: HGST Ultrastar 7K4000 \
                 specification, section 4.4.1",
                "10 heads, 320,800 tracks a surface, sustained 83 to 175 MB/s: Seagate \
                 Constellation ES.3 SAS product manual, rev. B, section 4.1 (4 TB)",
                "next track 0.23 ms for reads, 0.32 ms for writes: Western Digital Ultrastar DC \
                 HC310 specification, section 4.5.1.2",
            ],
            assumptions: vec![
                "the figures of three 7.2k disks of 4 TB describe one disk",
                "full stroke 16.4 ms, twice the average",
                "sectors a track and the 1.33 ms between tracks: those with which the published \
                 capacity, heads, tracks and sustained rates agree",
                "24 zones of equal width",
                "0.2 ms of controller overhead a command, 1 MiB of read-ahead for one stream",
            ],
        }
    }

    /// A 73 GB disk of 10,000 rotations per minute with a SAS interface.
    #[must_use]
    pub fn sas_10k() -> DiskParameters {
        DiskParameters {
            model: "10k SAS 73 GB (Seagate Savvio SAS)",
            lba_size: 512,
            rpm: 10_000,
            heads: 4,
            cylinders: 51_052,
            zones: 16,
            outer_sectors: 840,
            inner_sectors: 564,
            switch_ns: 600_000,
            read_seek: SeekFigures { track_ns: 200_000, average_ns: 4_000_000, full_ns: 8_100_000 },
            write_seek: SeekFigures {
                track_ns: 600_000,
                average_ns: 4_400_000,
                full_ns: 8_600_000,
            },
            overhead_ns: 200_000,
            interface_bytes_per_s: 300_000_000,
            queue_depth: 32,
            patience: 256,
            read_ahead_bytes: 1 << 20,
            write_cache_bytes: 0,
            sources: vec![
                "4 heads, 51,052 tracks a surface, 73.4 GB, 506 to 753 Mb/s internally, seeks, \
                 0.2 ms of controller overhead, 10,000 rpm: Seagate Savvio SAS product manual, \
                 rev. D, sections 4.1 and 4.2",
            ],
            assumptions: vec![
                "sectors a track: the published capacity, in the proportion of the published \
                 internal rates",
                "0.6 ms between tracks, as long as a seek to the next track before a write",
                "16 zones of equal width",
                "a queue of 32 commands, 1 MiB of read-ahead for one stream, an interface of 3 \
                 Gb/s",
            ],
        }
    }

    /// The same disk with another capacity: the number of cylinders changes. The time of a seek
    /// over the same part of the disk does not.
    ///
    /// # Errors
    /// When that leaves fewer cylinders than zones, or more than there can be.
    pub fn with_capacity(mut self, bytes: u64) -> Result<DiskParameters, FlashError> {
        let sectors = u64::from(self.outer_sectors + self.inner_sectors).div_ceil(2);
        let cylinder = sectors * u64::from(self.heads) * u64::from(self.lba_size);
        let cylinders = bytes.div_ceil(cylinder.max(1)).max(u64::from(self.zones) * 2);
        self.cylinders = u32::try_from(cylinders)
            .map_err(|_| FlashError::Invalid(format!("a disk of {bytes} bytes is too large")))?;
        self.check()?;
        Ok(self)
    }

    /// One rotation, in nanoseconds.
    #[must_use]
    pub fn rotation_ns(&self) -> u64 {
        60_000_000_000 / u64::from(self.rpm)
    }

    /// Checks that there can be such a disk.
    ///
    /// # Errors
    /// The problem, and a remedy.
    pub fn check(&self) -> Result<(), FlashError> {
        let refuse = |why: String| Err(FlashError::Invalid(why));
        if !self.lba_size.is_power_of_two() || !(512..=4096).contains(&self.lba_size) {
            return refuse("an LBA has 512 to 4,096 bytes, a power of two".into());
        }
        if !(60..=100_000).contains(&self.rpm) || self.heads == 0 || self.queue_depth == 0 {
            return refuse("a disk turns, has a head, and sees at least one command".into());
        }
        if self.zones == 0 || self.cylinders < 2 * self.zones {
            let (zones, cylinders) = (self.zones, self.cylinders);
            return refuse(format!("{cylinders} cylinders for {zones} zones: at least two each"));
        }
        if self.inner_sectors == 0 || self.inner_sectors > self.outer_sectors {
            return refuse("tracks have sectors, outer ones at least as many as inner ones".into());
        }
        if self.rotation_ns() < u64::from(self.outer_sectors) {
            return refuse("a sector takes at least a nanosecond to pass".into());
        }
        if self.interface_bytes_per_s == 0 {
            return refuse("an interface carries at least one byte a second".into());
        }
        for figures in [self.read_seek, self.write_seek] {
            if figures.track_ns > self.switch_ns {
                return refuse("tracks are skewed by at least a seek to the next".into());
            }
            SeekCurve::fit(&figures, self.cylinders)?;
        }
        Ok(())
    }
}
