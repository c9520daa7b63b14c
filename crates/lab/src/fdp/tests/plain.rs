//! A drive written as plainly as can be, to judge the translation layer's drives by: no data
//! structure but arrays, the unit to clean found by looking at all of them.

use esker_flash::ftl::CleaningPace;

use crate::LabError;
use crate::fdp::sink::{Drive, DriveModel, Sink, Written};

const NOWHERE: usize = usize::MAX;

/// A unit being written, and its next page.
#[derive(Clone, Copy)]
struct Open {
    unit: usize,
    next: usize,
}

#[derive(Clone, Copy)]
struct Job {
    unit: usize,
    next: usize,
    valid: usize,
    copied: usize,
    paid: usize,
}

struct Layer {
    pages: usize,
    map: Vec<usize>,
    content: Vec<usize>,
    valid: Vec<usize>,
    is_closed: Vec<bool>,
    free: Vec<usize>,
    host: Open,
    copies: Open,
    job: Option<Job>,
    pace: CleaningPace,
    host_pages: u128,
    copied_pages: u128,
}

/// Erased units while nothing has to be cleaned: one to open for the host, one for copies, one more.
const RESERVE: usize = 3;

impl Layer {
    fn close_full(&mut self, open: Open) -> bool {
        if open.unit != NOWHERE && open.next == self.pages {
            self.is_closed[open.unit] = true;
        }
        open.unit == NOWHERE || open.next == self.pages
    }

    fn put(&mut self, page: usize, open: Open) {
        let old = std::mem::replace(&mut self.map[page], open.unit * self.pages + open.next);
        if old != NOWHERE {
            self.valid[old / self.pages] -= 1;
        }
        self.content[open.unit * self.pages + open.next] = page;
        self.valid[open.unit] += 1;
    }

    fn write(&mut self, page: usize) {
        if self.host.next == self.pages {
            self.close_full(self.host);
            match self.pace {
                CleaningPace::WhenNeeded => {
                    while self.free.len() < RESERVE {
                        self.clean(usize::MAX);
                    }
                }
                CleaningPace::Steady => {
                    while self.free.len() < RESERVE - 1 {
                        self.clean(usize::MAX);
                    }
                }
            }
            self.host = Open { unit: self.free.remove(0), next: 0 };
        }
        self.put(page, self.host);
        self.host.next += 1;
        self.host_pages += 1;
        if self.pace == CleaningPace::Steady && (self.job.is_some() || self.free.len() < RESERVE) {
            self.clean(1);
        }
    }

    /// Cleans a unit as far as so many pages of the host pay for.
    fn clean(&mut self, paid: usize) {
        let mut job = self.job.take().unwrap_or_else(|| {
            let closed = (0..self.valid.len()).filter(|&unit| self.is_closed[unit]);
            let unit = closed.min_by_key(|&unit| self.valid[unit]).unwrap();
            self.is_closed[unit] = false;
            Job { unit, next: 0, valid: self.valid[unit], copied: 0, paid: 0 }
        });
        let gain = self.pages - job.valid;
        job.paid = job.paid.saturating_add(paid).min(gain);
        while job.next < self.pages
            && (job.paid == gain || job.copied * gain < job.valid * job.paid)
        {
            let at = job.unit * self.pages + job.next;
            job.next += 1;
            let page = self.content[at];
            if page == NOWHERE || self.map[page] != at {
                continue;
            }
            if self.close_full(self.copies) {
                self.copies = Open { unit: self.free.remove(0), next: 0 };
            }
            self.put(page, self.copies);
            self.copies.next += 1;
            job.copied += 1;
            self.copied_pages += 1;
        }
        if job.next < self.pages || job.paid < gain {
            self.job = Some(job);
        } else {
            self.free.push(job.unit);
        }
    }
}

/// Such a drive, without placement.
pub(super) struct PlainDrive {
    layer: Layer,
    page_bytes: u64,
    namespaces: usize,
    namespace_pages: usize,
    /// The namespace that was asked for last.
    current: usize,
}

impl PlainDrive {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(super) fn new(model: &DriveModel, namespaces: usize) -> PlainDrive {
        let page_bytes = u64::from(model.page_bytes);
        let logical = (model.bytes / page_bytes) as usize;
        let pages = (model.unit_bytes() / page_bytes) as usize;
        let in_use = logical as f64 * (1.0 + model.over_provisioning) / pages as f64;
        let units = in_use.round() as usize + RESERVE;
        let layer = Layer {
            pages,
            map: vec![NOWHERE; logical],
            content: vec![NOWHERE; units * pages],
            valid: vec![0; units],
            is_closed: vec![false; units],
            free: (0..units).collect(),
            host: Open { unit: NOWHERE, next: pages },
            copies: Open { unit: NOWHERE, next: pages },
            job: None,
            pace: model.pace,
            host_pages: 0,
            copied_pages: 0,
        };
        let namespace_pages = logical / namespaces;
        PlainDrive { layer, page_bytes, namespaces, namespace_pages, current: 0 }
    }
}

impl Drive for PlainDrive {
    fn namespace(&mut self, index: usize) -> &mut dyn Sink {
        self.current = index;
        self
    }

    fn namespaces(&self) -> usize {
        self.namespaces
    }

    fn written(&self) -> Result<Written, LabError> {
        let bytes = |pages: u128| pages * u128::from(self.page_bytes);
        let (host, copied) = (self.layer.host_pages, self.layer.copied_pages);
        Ok(Written { host_bytes: bytes(host), media_bytes: bytes(host + copied) })
    }

    fn host_bytes(&self) -> u128 {
        self.layer.host_pages * u128::from(self.page_bytes)
    }
}

impl Sink for PlainDrive {
    #[allow(clippy::cast_possible_truncation)]
    fn write(&mut self, offset: u64, bytes: u64, _: u16) -> Result<(), LabError> {
        let first = self.current * self.namespace_pages + (offset / self.page_bytes) as usize;
        for page in first..first + (bytes / self.page_bytes) as usize {
            self.layer.write(page);
        }
        Ok(())
    }

    fn discard(&mut self, _: u64, _: u64) -> Result<(), LabError> {
        Err(LabError::Invalid("no store under test discards".into()))
    }

    fn bytes(&self) -> u64 {
        self.namespace_pages as u64 * self.page_bytes
    }
}
