//! Where a store under test writes: a namespace of a drive that only counts, or any device.
//!
//! A store names the range of each write, and the stream that it belongs to. Which reclaim unit handle a stream has is
//! the drive's matter: with none, everything shares one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_device::fdp::{Isolation, Statistics};
use esker_device::{DataPlacement, Device, Geometry, PlacementId, Port};
use esker_flash::ftl::{Cleaning, CleaningPace, Counting, Frontier, Ftl, FtlOptions, LogicalPage};

use crate::LabError;

/// Target of a store's writes: the bytes of one namespace.
pub trait Sink {
    /// Writes `bytes` bytes from `offset` on, which belong to the store's stream of this number.
    ///
    /// # Errors
    /// When the range is not aligned, or the device fails.
    fn write(&mut self, offset: u64, bytes: u64, stream: u16) -> Result<(), LabError>;

    /// Says that `bytes` bytes from `offset` on are no longer needed.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn discard(&mut self, offset: u64, bytes: u64) -> Result<(), LabError>;

    /// Bytes it has.
    fn bytes(&self) -> u64;
}

/// Bytes written, as a drive counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// By the host.
    pub host_bytes: u128,
    /// To the media: the host's, and the copies of cleaning.
    pub media_bytes: u128,
}

impl Written {
    /// Returns the bytes written since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Written) -> Written {
        Written {
            host_bytes: self.host_bytes - earlier.host_bytes,
            media_bytes: self.media_bytes - earlier.media_bytes,
        }
    }

    /// The write amplification factor; 1 before anything is written.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a ratio of counters
    pub fn write_amplification(&self) -> f64 {
        if self.host_bytes == 0 { 1.0 } else { self.media_bytes as f64 / self.host_bytes as f64 }
    }
}

/// A drive with namespaces, one for each store.
pub trait Drive {
    /// The namespace of this index.
    fn namespace(&mut self, index: usize) -> &mut dyn Sink;

    /// How many namespaces there are.
    fn namespaces(&self) -> usize;

    /// Bytes written so far.
    ///
    /// # Errors
    /// When the drive does not tell.
    fn written(&self) -> Result<Written, LabError>;

    /// Bytes written so far by the host, which may be known without asking the drive.
    fn host_bytes(&self) -> u128;
}

// ---- counting ------------------------------------------------------------------------------------

/// Parameters of a drive that only counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveModel {
    /// Bytes the host can address, in all namespaces.
    pub bytes: u64,
    /// Bytes per page of the mapping.
    pub page_bytes: u32,
    /// Reclaim units that hold as much as the host can address.
    pub units: u32,
    /// Media in use beyond the bytes that the host can address, as a share of them: 0.145 is 14.5 %.
    pub over_provisioning: f64,
    /// Which unit is cleaned.
    pub cleaning: Cleaning,
    /// Where cleaning copies to.
    pub frontier: Frontier,
    /// When it does.
    pub pace: CleaningPace,
    /// Whether cleaning keeps the data of different handles apart.
    pub isolation: Isolation,
}

impl DriveModel {
    /// Bytes per reclaim unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        let pages = self.bytes / u64::from(self.page_bytes);
        pages.div_ceil(u64::from(self.units)) * u64::from(self.page_bytes)
    }

    /// The translation layer of such a drive with so many equal namespaces, and so many handles for each. With none
    /// there is one handle, which all share.
    ///
    /// # Errors
    /// When it has more pages than it can count.
    pub fn translation(&self, namespaces: u16, handles_each: u16) -> Result<FtlOptions, LabError> {
        let page_bytes = u64::from(self.page_bytes.max(1));
        let pages = self.bytes / page_bytes / u64::from(namespaces.max(1));
        let narrow = |value: u64| {
            u32::try_from(value).map_err(|_| {
                LabError::Invalid(format!(
                    "{} bytes have too many pages: use larger ones",
                    self.bytes
                ))
            })
        };
        let options = FtlOptions {
            logical_pages: narrow(pages * u64::from(namespaces))?,
            unit_pages: narrow(self.unit_bytes() / page_bytes)?,
            units: 0,
            groups: 1,
            handles: vec![self.isolation; usize::from(namespaces * handles_each).max(1)],
            cleaning: self.cleaning,
            frontier: self.frontier,
            pace: self.pace,
            wear_spread: None,
            seed: 1,
        };
        Ok(options.with_over_provisioning(self.over_provisioning))
    }
}

/// A translation layer and no data: its counts are exact, and it is fast.
pub struct CountingDrive {
    ftl: Rc<RefCell<Ftl>>,
    page_bytes: u32,
    namespaces: Vec<CountingNamespace>,
}

/// A namespace of a [`CountingDrive`].
struct CountingNamespace {
    ftl: Rc<RefCell<Ftl>>,
    page_bytes: u64,
    first: u64,
    pages: u64,
    /// The handle of each stream; the last one serves all streams beyond.
    handles: Vec<u16>,
}

impl CountingDrive {
    /// A drive that was never written, divided into equal namespaces, with so many handles for
    /// each. With none there is one handle, which all share.
    ///
    /// # Errors
    /// When the model's figures do not fit each other.
    pub fn new(
        model: &DriveModel,
        namespaces: u16,
        handles_each: u16,
    ) -> Result<CountingDrive, LabError> {
        let page_bytes = u64::from(model.page_bytes.max(1));
        let options = model.translation(namespaces, handles_each)?;
        let each = u64::from(options.logical_pages / u32::from(namespaces.max(1)));
        let ftl = Ftl::new(options)?;
        let ftl = Rc::new(RefCell::new(ftl));
        let namespace = |index: u16| CountingNamespace {
            ftl: ftl.clone(),
            page_bytes,
            first: u64::from(index) * each,
            pages: each,
            handles: match handles_each {
                0 => vec![0],
                _ => (index * handles_each..(index + 1) * handles_each).collect(),
            },
        };
        let namespaces = (0..namespaces).map(namespace).collect();
        Ok(CountingDrive { ftl, page_bytes: model.page_bytes, namespaces })
    }
}

impl Drive for CountingDrive {
    fn namespace(&mut self, index: usize) -> &mut dyn Sink {
        &mut self.namespaces[index]
    }

    fn namespaces(&self) -> usize {
        self.namespaces.len()
    }

    fn written(&self) -> Result<Written, LabError> {
        let counts = self.ftl.borrow().counts();
        let bytes = |pages: u64| u128::from(pages) * u128::from(self.page_bytes);
        Ok(Written { host_bytes: bytes(counts.host), media_bytes: bytes(counts.media()) })
    }

    fn host_bytes(&self) -> u128 {
        u128::from(self.ftl.borrow().counts().host) * u128::from(self.page_bytes)
    }
}

impl CountingNamespace {
    /// The pages of a range of bytes: the first one, and how many.
    fn pages(&self, offset: u64, bytes: u64) -> Result<(LogicalPage, u32), LabError> {
        let (first, count) = (offset / self.page_bytes, bytes / self.page_bytes);
        let is_aligned =
            offset.is_multiple_of(self.page_bytes) && bytes.is_multiple_of(self.page_bytes);
        if !is_aligned || first.saturating_add(count) > self.pages {
            return Err(LabError::Invalid(format!(
                "{bytes} bytes at {offset} are not pages of {} bytes of a namespace of {}",
                self.page_bytes, self.pages
            )));
        }
        let narrow = |page: u64| u32::try_from(page).expect("the drive's pages fit 32 bits");
        Ok((LogicalPage(narrow(self.first + first)), narrow(count)))
    }
}

impl Sink for CountingNamespace {
    fn write(&mut self, offset: u64, bytes: u64, stream: u16) -> Result<(), LabError> {
        let (first, count) = self.pages(offset, bytes)?;
        let last = self.handles.len() - 1;
        let handle = self.handles[usize::from(stream).min(last)];
        self.ftl.borrow_mut().write(first, count, handle, &mut Counting);
        Ok(())
    }

    fn discard(&mut self, offset: u64, bytes: u64) -> Result<(), LabError> {
        let (first, count) = self.pages(offset, bytes)?;
        self.ftl.borrow_mut().trim(first, count);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.pages * self.page_bytes
    }
}

// ---- devices -------------------------------------------------------------------------------------

/// Devices that are the namespaces of one drive, local or remote; or one device, of which each namespace is a part.
pub struct DeviceDrive {
    devices: Vec<Arc<dyn Device>>,
    namespaces: Vec<DeviceNamespace>,
    source: MediaCount,
    /// Bytes that the host had written before the devices were opened.
    before: u128,
}

/// Where the bytes come from that a [`DeviceDrive`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaCount {
    /// The drive's statistics of data placement (log page 22h), in bytes.
    Statistics,
    /// The drive's endurance group log (09h), which may count in units of a billion bytes.
    Endurance,
    /// The devices' own counters: the drive tells nothing.
    Devices,
}

impl MediaCount {
    /// The source of a device's figures.
    #[must_use]
    pub fn of(device: &dyn Device) -> MediaCount {
        match device.data_placement().map(DataPlacement::statistics) {
            Some(Ok(_)) => MediaCount::Statistics,
            // Placement is disabled, most likely.
            Some(Err(_)) => MediaCount::Endurance,
            None => MediaCount::Devices,
        }
    }

    /// Bytes that the drive of these devices has written, as one of them tells.
    fn written(self, devices: &[Arc<dyn Device>]) -> Result<Written, LabError> {
        let placement = devices.first().and_then(|device| device.data_placement());
        match (self, placement) {
            (MediaCount::Statistics, Some(placement)) => {
                let statistics = placement.statistics().map_err(|error| {
                    let why = format!("the drive no longer tells what it writes: {error}");
                    LabError::Invalid(why)
                })?;
                let Statistics { host_bytes, media_bytes, .. } = statistics;
                Ok(Written { host_bytes, media_bytes })
            }
            (MediaCount::Endurance, Some(placement)) => {
                let endurance = placement.endurance();
                Ok(Written {
                    host_bytes: endurance.host_written_bytes,
                    media_bytes: endurance.media_written_bytes,
                })
            }
            _ => {
                let mut written = Written::default();
                for stats in devices.iter().map(|device| device.stats()) {
                    written.host_bytes += u128::from(stats.written_bytes);
                    written.media_bytes += u128::from(stats.media_written_bytes);
                }
                Ok(written)
            }
        }
    }
}

/// A namespace of a [`DeviceDrive`]: a range of a device.
struct DeviceNamespace {
    geometry: Geometry,
    port: Rc<RefCell<Port>>,
    first: Lba,
    count: LbaCount,
    /// The placement id of each stream; the last one serves all streams beyond. With none, writes carry none.
    placements: Vec<PlacementId>,
    /// Buffer that is written; its content does not matter. Absent only after an error.
    buf: Option<AlignedBuf>,
    /// Fills the buffer, where the device may store zeroes as nothing.
    rng: Option<Rng>,
}

impl DeviceDrive {
    /// A drive of these namespaces. Streams carry the placement ids that each one offers.
    ///
    /// # Errors
    /// A device's, when it has no queue pair to give.
    pub fn new(devices: Vec<Arc<dyn Device>>) -> Result<DeviceDrive, LabError> {
        let namespace = |device: &Arc<dyn Device>| {
            let geometry = device.geometry();
            Ok(DeviceNamespace {
                geometry,
                port: Rc::new(RefCell::new(Port::open(&**device, 1)?)),
                first: Lba(0),
                count: geometry.capacity,
                placements: (0..geometry.placement_handles).map(PlacementId).collect(),
                buf: None,
                rng: None,
            })
        };
        let namespaces = devices.iter().map(namespace).collect::<Result<_, LabError>>()?;
        DeviceDrive::over(devices, namespaces)
    }

    /// A drive that is one device: each namespace is an equal part of it, and has so many of its placement ids. With
    /// none, writes carry none. Writes are of random data, and the queue pair is one for all.
    ///
    /// # Errors
    /// When the device has fewer placement handles, or no queue pair to give.
    pub fn divided(
        device: Arc<dyn Device>,
        parts: u16,
        handles_each: u16,
    ) -> Result<DeviceDrive, LabError> {
        let geometry = device.geometry();
        enough_handles(device.name(), geometry.placement_handles, parts.into(), handles_each)?;
        let count = part_of(&geometry, parts);
        let port = Rc::new(RefCell::new(Port::open(&*device, 1)?));
        let namespace = |index: u16| DeviceNamespace {
            geometry,
            port: port.clone(),
            first: Lba(u64::from(index) * count.0),
            count,
            placements: (index * handles_each..(index + 1) * handles_each)
                .map(PlacementId)
                .collect(),
            buf: None,
            rng: Some(Rng::new(index.into())),
        };
        DeviceDrive::over(vec![device], (0..parts).map(namespace).collect())
    }

    fn over(
        devices: Vec<Arc<dyn Device>>,
        namespaces: Vec<DeviceNamespace>,
    ) -> Result<DeviceDrive, LabError> {
        let source =
            devices.first().map_or(MediaCount::Devices, |device| MediaCount::of(&**device));
        let mut drive = DeviceDrive { devices, namespaces, source, before: 0 };
        drive.before = drive.written()?.host_bytes.saturating_sub(drive.passed());
        Ok(drive)
    }

    /// Bytes that were written through the devices since they were opened.
    fn passed(&self) -> u128 {
        self.devices.iter().map(|device| u128::from(device.stats().written_bytes)).sum()
    }
}

/// Makes sure that a device has handles for so many stores.
pub(super) fn enough_handles(
    name: &str,
    has: u16,
    stores: usize,
    each: u16,
) -> Result<(), LabError> {
    let needed = stores * usize::from(each);
    if needed <= has.into() {
        return Ok(());
    }
    Err(LabError::Invalid(format!(
        "{name}: it has {has} placement handles, and {each} for each of {stores} stores are {needed}; name fewer \
         handles or stores"
    )))
}

/// Parts of a device begin at multiples of this, in bytes: so they share no page of its mapping.
pub(super) const PART_ALIGNMENT: u64 = 1 << 20;

/// LBAs of each of so many equal parts.
fn part_of(geometry: &Geometry, parts: u16) -> LbaCount {
    let aligned = PART_ALIGNMENT / u64::from(geometry.lba_size);
    let each = geometry.capacity.0 / u64::from(parts.max(1));
    LbaCount(each / aligned * aligned)
}

impl Drive for DeviceDrive {
    fn namespace(&mut self, index: usize) -> &mut dyn Sink {
        &mut self.namespaces[index]
    }

    fn namespaces(&self) -> usize {
        self.namespaces.len()
    }

    /// As the drive tells; where it tells nothing, as its devices count.
    fn written(&self) -> Result<Written, LabError> {
        self.source.written(&self.devices)
    }

    fn host_bytes(&self) -> u128 {
        self.before + self.passed()
    }
}

impl DeviceNamespace {
    /// The LBAs of a range of bytes.
    fn lbas(&self, offset: u64, bytes: u64) -> Result<(Lba, LbaCount), LabError> {
        let lba_size = u64::from(self.geometry.lba_size);
        let (first, count) = (offset / lba_size, bytes / lba_size);
        let is_aligned = offset.is_multiple_of(lba_size) && bytes.is_multiple_of(lba_size);
        if is_aligned && first.saturating_add(count) <= self.count.0 {
            return Ok((Lba(self.first.0 + first), LbaCount(count)));
        }
        Err(LabError::Invalid(format!(
            "{bytes} bytes at {offset} are not LBAs of {lba_size} bytes of a namespace of {}",
            self.count.0
        )))
    }

    /// The buffer, with so many bytes.
    fn buf(&mut self, size: usize) -> AlignedBuf {
        let fits = self.buf.take().filter(|buf| buf.capacity() >= size);
        let mut buf = fits.unwrap_or_else(|| {
            let mut buf = AlignedBuf::zeroed(size);
            if let Some(rng) = &mut self.rng {
                rng.fill(&mut buf);
            }
            buf
        });
        buf.set_len(size);
        buf
    }
}

impl Sink for DeviceNamespace {
    fn write(&mut self, offset: u64, bytes: u64, stream: u16) -> Result<(), LabError> {
        let (mut lba, _) = self.lbas(offset, bytes)?;
        let last = self.placements.len().saturating_sub(1);
        let placement = self.placements.get(usize::from(stream).min(last)).copied();
        let mut left = bytes;
        while left > 0 {
            let part = left.min(u64::from(self.geometry.max_transfer_size));
            let buf = self.buf(to_usize(part));
            self.buf = Some(self.port.borrow_mut().write(lba, buf, placement)?);
            lba.0 += part / u64::from(self.geometry.lba_size);
            left -= part;
        }
        Ok(())
    }

    fn discard(&mut self, offset: u64, bytes: u64) -> Result<(), LabError> {
        let (lba, count) = self.lbas(offset, bytes)?;
        Ok(self.port.borrow_mut().discard(lba, count)?)
    }

    fn bytes(&self) -> u64 {
        self.count.bytes(self.geometry.lba_size)
    }
}
