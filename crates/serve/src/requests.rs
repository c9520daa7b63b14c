//! Requests to a process that serves: a table of routes, their description, and their way over HTTP.
//!
//! | module | content |
//! | --- | --- |
//! | `body`, [`answer`] | bodies that all servers have |
//! | [`changes`] | changes that were made, by their ids |
//! | `route` | a route, and how requests run |
//! | `openapi` | the description of routes |
//! | `api` | requests over HTTP |

pub mod answer;
pub(crate) mod api;
pub(crate) mod body;
pub mod changes;
pub(crate) mod openapi;
pub(crate) mod route;
