//! Writers to a drive: stores, each with a namespace of its own, that take turns.

use super::sink::{Drive, Sink};
use super::turns::Turns;
use crate::LabError;

/// Something that writes blocks.
pub trait Writer {
    /// Serves its client until it has written a block for it, and does the work that follows from
    /// that. Returns how many bytes of the client it wrote.
    ///
    /// # Errors
    /// The sink's, or when the writer has no place left.
    fn turn(&mut self, sink: &mut dyn Sink) -> Result<u64, LabError>;

    /// Whether it still writes the data that its client has before it begins.
    fn is_loading(&self) -> bool {
        false
    }
}

/// Writers that take turns, each on the namespace of its index.
pub struct Writers {
    writers: Vec<Box<dyn Writer>>,
    turns: Turns,
}

impl Writers {
    /// As many writers as there are weights in `turns`.
    #[must_use]
    pub fn new(writers: Vec<Box<dyn Writer>>, turns: Turns) -> Writers {
        Writers { writers, turns }
    }

    /// Gives turns to those that are still loading, at equal rates, until none is; `each` is called after each turn.
    ///
    /// # Errors
    /// A writer's, and those of `each`.
    pub fn load(
        &mut self,
        drive: &mut dyn Drive,
        each: &mut dyn FnMut(&dyn Drive) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let mut bytes = vec![0; self.writers.len()];
        while let Some(index) = (0..bytes.len())
            .filter(|&index| self.writers[index].is_loading())
            .min_by_key(|&index| bytes[index])
        {
            bytes[index] += self.writers[index].turn(drive.namespace(index))?;
            each(drive)?;
        }
        Ok(())
    }

    /// Gives a turn to one of them.
    ///
    /// # Errors
    /// The writer's.
    pub fn turn(&mut self, drive: &mut dyn Drive) -> Result<(), LabError> {
        let index = self.turns.next_index();
        self.writers[index].turn(drive.namespace(index)).map(drop)
    }
}
