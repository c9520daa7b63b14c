//! The log of a peer that keeps it in memory, made durable every so often.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use esker_base::thread;
use esker_bench::BoxError;

/// Between two syncs. A record that just missed one waits for so long, then for its own; with
/// syncs of up to 25 ms that is within the tenth of a second that Esker takes.
pub(super) const EVERY: Duration = Duration::from_millis(50);

/// A thread that syncs; ended when dropped, which has to be before the database is closed.
pub(super) struct LogSyncs {
    failed: Arc<Mutex<Option<BoxError>>>,
    /// Nothing is sent: it hangs up.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LogSyncs {
    /// Calls `sync` over and over until it fails.
    pub(super) fn start(
        sync: impl Fn() -> Result<(), BoxError> + Send + 'static,
    ) -> Result<LogSyncs, BoxError> {
        let failed = Arc::new(Mutex::new(None));
        let (end, ended) = mpsc::channel::<()>();
        let failure = Arc::clone(&failed);
        let thread = thread::spawn("log-syncs", move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = sync() {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        })?;
        Ok(LogSyncs { failed, end: Some(end), thread: Some(thread) })
    }

    /// The error that ended the thread.
    pub(super) fn check(&self) -> Result<(), BoxError> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(format!("a sync of the log failed: {error}").into()),
            None => Ok(()),
        }
    }
}

impl Drop for LogSyncs {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Clock;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn wait_until(what: impl Fn() -> bool) {
        let clock = Clock::real();
        let end = clock.now() + Duration::from_secs(20);
        while !what() {
            assert!(clock.now() < end, "it takes too long");
            clock.sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_log_is_synced_until_the_store_is_closed() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let syncs = LogSyncs::start(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let syncs = syncs.unwrap();
        wait_until(|| calls.load(Ordering::Relaxed) >= 3);
        syncs.check().unwrap();
        drop(syncs);
        assert_eq!(Arc::strong_count(&calls), 1, "the thread has ended");
    }

    #[test]
    fn a_sync_that_failed_is_told_ever_after() {
        let syncs = LogSyncs::start(|| Err("the disk is gone".into())).unwrap();
        wait_until(|| syncs.check().is_err());
        let error = syncs.check().unwrap_err().to_string();
        assert_eq!(error, "a sync of the log failed: the disk is gone");
    }
}
