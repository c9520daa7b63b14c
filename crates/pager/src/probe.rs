//! Whether memory can be paged on this machine, for this user: some of this process's is, for a moment.

#![allow(unsafe_code)]

use std::sync::Arc;

use esker_base::units::to_u64;
use esker_device::MemoryDevice;

use crate::client::{self, Client};
use crate::raw::Errno;
use crate::server::Pager;
use crate::types::{LEAST_BUDGET, Options, PAGE, PagerError};

/// Bytes that are reserved; half of them are used, twice what may be in memory.
const SLOW: usize = 4 * LEAST_BUDGET;

/// Findings about this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Forked children have paged memory.
    pub has_forks: bool,
    /// Bytes that have left memory and come back as they were.
    pub paged_bytes: u64,
}

/// Pages some memory of this process, to and from other memory.
///
/// # Errors
/// What was refused, and why.
pub fn probe() -> Result<Probe, PagerError> {
    let device = Arc::new(MemoryDevice::new("probe", to_u64(SLOW), 4096));
    let options = Options {
        budget_bytes: LEAST_BUDGET,
        slow_bytes: SLOW,
        read_ahead: false,
        compress: false,
    };
    let pager = Pager::start(device, options)?;
    let failed = |(what, error): (&'static str, Errno)| PagerError::system(what, error.to_io());
    let (name, region) = pager.place();
    let mapped = Client::map(region, name.as_bytes()).map_err(|error| failed(("memory", error)))?;
    let client: &'static Client = Box::leak(Box::new(mapped));
    if let Err(error) = client::open() {
        return Err(PagerError::Refused(error.to_io()));
    }
    client.attach().map_err(failed)?;
    let base = client.reserve(0, SLOW / 2).map_err(|error| failed(("its region", error)))?;
    let pages = SLOW / 2 / PAGE;
    let word = |page: usize| std::ptr::with_exposed_provenance_mut::<usize>(base + page * PAGE);
    // SAFETY: reserved above, and used here alone.
    (0..pages).for_each(|page| unsafe { word(page).write_volatile(page + 1) });
    // SAFETY: as above.
    let is_right = (0..pages).all(|page| unsafe { word(page).read_volatile() } == page + 1);
    let evicted = pager.stats().evicted_pages;
    if !is_right || evicted == 0 {
        let why = format!("of {pages} pages {evicted} left memory, and not all came back right");
        return Err(PagerError::Invalid(why));
    }
    Ok(Probe { has_forks: client.has_forks(), paged_bytes: evicted * to_u64(PAGE) })
}
