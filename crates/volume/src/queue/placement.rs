//! Data placement of a volume: its handles are classes of segments, which the drives keep apart as far as they can. A
//! handle's reclaim unit is the open segment of its class.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::LbaCount;
use esker_base::units::to_u64;
use esker_device::fdp::{
    Configuration, Endurance, Event, EventType, FdpError, HandleStatus, HandleUse, Isolation,
    Reporter, Statistics,
};
use esker_device::{DataPlacement, PlacementId};

use crate::keep::output;
use crate::queue::Volume;
use crate::space::{Class, HANDLES};
use crate::types::BLOCK;
use crate::types::error::VolumeError;

/// Volumes that may use the handles: any number, as far as hosts can tell.
const NAMESPACES_MAX: u32 = 1024;

fn class_of(handle: u8) -> Class {
    if handle == 0 { Class::Fresh } else { Class::Stream(handle) }
}

impl Volume {
    /// Bytes of data of a segment as they are allocated now.
    fn segment_bytes(&self) -> u64 {
        let shared = &self.shared;
        let (width, parity) = shared.shape_now(&shared.core.lock().space);
        shared.fleet.layout.data_bytes(usize::from(width.saturating_sub(parity.into())).max(1))
    }

    fn check_id(id: PlacementId) -> Result<u8, FdpError> {
        let handle = u8::try_from(id.0).ok().filter(|handle| *handle < HANDLES);
        handle.ok_or(FdpError::InvalidId { id: id.0, count: HANDLES.into() })
    }
}

impl DataPlacement for Volume {
    fn drive(&self) -> &str {
        &self.shared.name
    }

    fn configurations(&self) -> Vec<Configuration> {
        vec![Configuration {
            reclaim_groups: 1,
            group_bits: 0,
            handles: vec![Isolation::Initially; HANDLES.into()],
            max_placement_ids: HANDLES.into(),
            max_namespaces: NAMESPACES_MAX,
            reclaim_unit_bytes: self.segment_bytes(),
            time_limit_s: 0,
            volatile_write_cache: false,
            is_valid: true,
        }]
    }

    fn enabled(&self) -> Option<usize> {
        Some(0)
    }

    fn enable(&self, configuration: Option<usize>) -> Result<(), FdpError> {
        match configuration {
            Some(0) => Ok(()),
            _ => Err(FdpError::Sequence("a pool always has its placement handles".to_owned())),
        }
    }

    fn usage(&self) -> Result<Vec<HandleUse>, FdpError> {
        Ok(vec![HandleUse::Host; HANDLES.into()])
    }

    fn statistics(&self) -> Result<Statistics, FdpError> {
        let counts = &self.shared.counts;
        let get = |counter: &AtomicU64| u128::from(counter.load(Ordering::Relaxed));
        Ok(Statistics {
            host_bytes: get(&counts.user_written),
            media_bytes: get(&counts.destaged) + get(&counts.cleaned) + get(&counts.metadata),
            erased_bytes: get(&counts.erased),
        })
    }

    fn events(&self, _reporter: Reporter) -> Result<Vec<Event>, FdpError> {
        Ok(Vec::new())
    }

    fn endurance(&self) -> Endurance {
        let stats = self.counters.snapshot(&self.name);
        let counts = &self.shared.counts;
        let get = |counter: &AtomicU64| u128::from(counter.load(Ordering::Relaxed));
        let core = self.shared.core.lock();
        let (usable, _) = self.shared.usable(&core);
        let live = core.space.live_blocks();
        Endurance {
            used_percent: 0,
            spare_percent: 100,
            host_read_bytes: stats.read_bytes.into(),
            host_written_bytes: get(&counts.user_written),
            media_written_bytes: get(&counts.destaged)
                + get(&counts.cleaned)
                + get(&counts.metadata),
            host_reads: stats.reads.into(),
            host_writes: stats.writes.into(),
            capacity_bytes: usable.into(),
            unallocated_bytes: usable.saturating_sub(live).into(),
        }
    }

    fn handles(&self) -> Result<Vec<HandleStatus>, FdpError> {
        let whole = self.segment_bytes();
        let layout = self.shared.fleet.layout;
        let core = self.shared.core.lock();
        let status = |handle: u8| {
            let is_it = |s: &&crate::space::Segment| s.is_open && s.class == class_of(handle);
            let left = core.space.segments().find(is_it).map(|segment| {
                let rows = layout.rows.saturating_sub(segment.row.rows);
                u64::from(rows) * to_u64(layout.row_bytes(segment.data_chunks()))
            });
            HandleStatus {
                placement: PlacementId(handle.into()),
                handle: handle.into(),
                time_left_s: 0,
                writable: LbaCount(left.unwrap_or(whole) / BLOCK),
            }
        };
        Ok((0..HANDLES).map(status).collect())
    }

    fn update(&self, ids: &[PlacementId]) -> Result<(), FdpError> {
        let handles = ids.iter().map(|id| Volume::check_id(*id));
        let handles = handles.collect::<Result<Vec<u8>, FdpError>>()?;
        let shared = &self.shared;
        let failed = |error: VolumeError| FdpError::Sequence(error.to_string());
        let mut keeper = shared.keep().map_err(failed)?;
        let mut io = shared.ios.take();
        for handle in handles {
            let closed = output::close(shared, &mut keeper, &mut io, class_of(handle));
            closed.map_err(failed)?;
        }
        Ok(())
    }

    fn reported_events(&self, id: PlacementId) -> Result<Vec<(EventType, bool)>, FdpError> {
        Volume::check_id(id).map(|_| Vec::new())
    }

    fn report_events(
        &self,
        id: PlacementId,
        _events: &[EventType],
        _enable: bool,
    ) -> Result<(), FdpError> {
        Volume::check_id(id).map(drop)
    }
}
