//! Remarks for the program that has the KVDB open: each is told once, when it is new
//! ([`Options::on_remark`](crate::Options::on_remark)).

use std::time::Duration;

use crate::engine::shared::Engine;
use crate::types::error::KvError;
use crate::types::remark::RemarkLevel;

/// New ones are looked for this often.
const APART: Duration = Duration::from_secs(1);

impl Engine {
    /// Remarks about how its devices were opened.
    pub(crate) fn device_remarks(&self) -> Vec<String> {
        let all = self.classes.all();
        all.iter().flat_map(|media| media.device().remarks()).collect()
    }

    /// The remark about readers that keep much space for long.
    pub(crate) fn readers_remark(&self) -> Option<String> {
        self.reader_stats(self.pinned_bytes().iter().sum()).remark()
    }

    /// Tells remarks that are new, if somebody wants them and some time has passed.
    pub(crate) fn tell_in_time(&self) {
        if self.options.remarks.is_wanted() {
            let (now, last) = (self.options.clock.now(), self.told.lock().last);
            if last.is_none_or(|last| now.since(last) >= APART) {
                self.tell_remarks(Vec::new());
            }
        }
    }

    /// Tells remarks that are new, and those of the opening that the engine does not know.
    pub(crate) fn tell_remarks(&self, opening: Vec<String>) {
        let receiver = &self.options.remarks;
        if !receiver.is_wanted() {
            return;
        }
        let stopped = self.life.stopped().filter(|cause| !matches!(***cause, KvError::Exiting));
        let warnings = opening.into_iter().chain(self.device_remarks());
        let errors = self.damages().into_iter();
        let errors = errors.chain(stopped.map(|cause| KvError::since(cause).to_string()));
        let all = warnings
            .map(|remark| (RemarkLevel::Warning, remark))
            .chain(errors.map(|remark| (RemarkLevel::Error, remark)));
        let readers = self.readers_remark();
        let new: Vec<(RemarkLevel, String)> = {
            let mut told = self.told.lock();
            told.last = Some(self.options.clock.now());
            let of_readers = readers.is_some() && !told.readers;
            told.readers = readers.is_some();
            let mut new: Vec<_> =
                all.filter(|(_, remark)| told.texts.insert(remark.clone())).collect();
            new.extend(readers.filter(|_| of_readers).map(|told| (RemarkLevel::Warning, told)));
            new
        };
        // Without the lock: the receiver may read the KVDB.
        new.iter().for_each(|(level, remark)| receiver.tell(*level, remark));
    }
}
