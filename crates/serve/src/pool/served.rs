//! A pool that is open in this process and answers requests.

use std::net::SocketAddr;
use std::sync::Arc;

use esker_nvmf::Target;
use esker_stack::{OpenPool, Stack};
use esker_volume::Status;
use parking_lot::Mutex;

use super::export::Exports;
use super::opening::Openings;
use super::operations::Operations;
use super::view::PoolView;
use crate::error::Result;

/// A pool that is open in this process and answers requests.
pub struct Served {
    pub(super) pool: Arc<OpenPool>,
    /// Opens devices that are added.
    pub(super) stack: Arc<Stack>,
    pub(super) exports: Option<Exports>,
    pub(super) operations: Operations,
    /// The newest generation of a volume when the pool was opened: later ones are this process's.
    pub(super) newest_at_open: u64,
    /// Devices that changes open before their turn.
    pub(super) openings: Arc<Openings>,
    /// Held while something is changed.
    pub(super) changing: Mutex<()>,
}

impl Served {
    /// A pool that exports nothing.
    #[must_use]
    pub fn new(stack: Arc<Stack>, pool: Arc<OpenPool>) -> Served {
        let newest_at_open = pool.volumes().iter().map(|one| one.generation).max().unwrap_or(0);
        Served {
            pool,
            stack,
            exports: None,
            operations: Operations::default(),
            newest_at_open,
            openings: Arc::default(),
            changing: Mutex::default(),
        }
    }

    /// A pool whose volumes are exported.
    pub(crate) fn exporting(stack: Arc<Stack>, pool: Arc<OpenPool>, exports: Exports) -> Served {
        Served { exports: Some(exports), ..Served::new(stack, pool) }
    }

    /// Where hosts reach its volumes.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.target().map(Target::addresses).unwrap_or_default()
    }

    /// The target that serves its volumes, if hosts are served.
    pub(crate) fn target(&self) -> Option<&Target> {
        self.exports.as_ref().map(|exports| &**exports.target())
    }

    pub(super) fn status(&self) -> Status {
        self.pool.status()
    }

    /// Returns the state of the pool, with alarms about hosts included.
    pub(crate) fn view(&self) -> PoolView {
        let mut view =
            PoolView::new(&self.status(), self.pool.provisioned_bytes(), self.pool.remarks());
        view.alarms.extend(self.exports.iter().flat_map(Exports::alarms));
        view
    }

    /// Ends exports in order, then closes the pool if nobody else has it.
    ///
    /// # Errors
    /// The target's, or the pool's; it is as after a crash then.
    pub fn close(self) -> Result {
        let Served { pool, exports, .. } = self;
        let ended = exports.map_or(Ok(()), Exports::close);
        let closed = pool.close();
        ended?;
        Ok(closed?)
    }
}
