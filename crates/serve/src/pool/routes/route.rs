//! A route of a pool.

use crate::pool::opening::{Found, Opened};
use crate::pool::operations::Goal;
use crate::pool::served::Served;
use crate::requests::route;

/// The outcome of a change.
pub(super) type Outcome<T> = route::Outcome<T, Goal>;
/// A request as a route sees it.
pub(super) type Call<'a> = route::Call<'a, Served>;
/// A request that is known.
pub(super) type Route = route::Route<Served>;

impl Call<'_> {
    /// The device that was opened for it.
    pub(super) fn opened(&self) -> Found {
        let mut opened = self.opened.borrow_mut();
        let opened: &mut Opened = opened.as_mut().expect("a route that opens a device");
        opened.take()
    }
}
