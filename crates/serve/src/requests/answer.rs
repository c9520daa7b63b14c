//! Answers that all servers have.

#![allow(missing_docs)] // a comment on a field becomes its description in the description of all requests

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request that is known.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RouteView {
    pub(crate) method: String,
    /// With names in braces.
    pub(crate) path: String,
    pub(crate) about: String,
}

/// A change that would be made; nothing was changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WouldView {
    pub dry_run: bool,
    pub would: String,
}

/// Why a request was refused; nothing was changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RefusedView {
    pub(crate) error: ErrorView,
}

/// A fault, and the cure.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorView {
    /// For ever the same, for programs.
    pub(crate) code: String,
    pub(crate) message: String,
}
