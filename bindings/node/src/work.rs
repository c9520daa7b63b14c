//! Calls that run on the thread pool of Node.js, and settle a promise.

use std::panic::{AssertUnwindSafe, catch_unwind};

use napi::bindgen_prelude::AsyncTask;
use napi::{Env, Task};

use crate::error::{JsError, of, panicked};
use crate::js::Made;
use esker_kv::KvError;

type Compute<T> = Box<dyn FnOnce() -> Result<T, KvError> + Send>;
type Convert<T> = Box<dyn FnOnce(&Env, T) -> napi::Result<Made> + Send>;

/// Work on the pool, and what makes a value of JavaScript of its result.
pub(crate) struct Work<T: Send + 'static> {
    compute: Option<Compute<T>>,
    convert: Option<Convert<T>>,
}

/// The promise of some work: an error of the engine is resolved as an object of type `Error`, which JavaScript throws.
pub(crate) type Promised<T> = AsyncTask<Work<T>>;

/// Does work on the pool.
pub(crate) fn promised<T: Send + 'static>(
    compute: impl FnOnce() -> Result<T, KvError> + Send + 'static,
    convert: impl FnOnce(&Env, T) -> napi::Result<Made> + Send + 'static,
) -> Promised<T> {
    AsyncTask::new(Work { compute: Some(Box::new(compute)), convert: Some(Box::new(convert)) })
}

impl<T: Send + 'static> Task for Work<T> {
    type Output = Result<T, JsError>;
    type JsValue = Made;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let Some(compute) = self.compute.take() else { return Ok(Err(panicked())) };
        let done = catch_unwind(AssertUnwindSafe(compute));
        Ok(done.map_or_else(|_| Err(panicked()), |done| done.map_err(|error| of(&error))))
    }

    fn resolve(&mut self, env: Env, output: Self::Output) -> napi::Result<Made> {
        match (output, self.convert.take()) {
            (Ok(value), Some(convert)) => convert(&env, value),
            (Ok(_), None) => Ok(Made::error(&env, panicked())),
            (Err(error), _) => Ok(Made::error(&env, error)),
        }
    }
}
