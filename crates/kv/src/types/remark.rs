//! The receiver of remarks, such as the log of the program that has a KVDB open.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Receiver = dyn Fn(RemarkLevel, &str) + Send + Sync;

/// How grave a remark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemarkLevel {
    /// All works, some of it worse than it could.
    Warning,
    /// Data is damaged, or the KVDB takes no more writes.
    Error,
}

/// The receiver of remarks; nobody by default.
#[derive(Clone, Default)]
pub(crate) struct OnRemark(Option<Arc<Receiver>>);

impl OnRemark {
    pub(crate) fn new(receiver: impl Fn(RemarkLevel, &str) + Send + Sync + 'static) -> OnRemark {
        OnRemark(Some(Arc::new(receiver)))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Tells it. A panic of the receiver is its own, and stops nothing here.
    pub(crate) fn tell(&self, level: RemarkLevel, remark: &str) {
        if let Some(receiver) = &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| receiver(level, remark)));
        }
    }
}

impl fmt::Debug for OnRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_wanted() { "OnRemark(somebody)" } else { "OnRemark(nobody)" })
    }
}
