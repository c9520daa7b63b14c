//! Failures: the problem, the remedy, and the exit code that says the same to a script.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use esker_attach::AttachError;
use esker_base::ErrorKind;
use esker_bench::BenchError;
use esker_cache::CacheError;
use esker_kv::KvError;
use esker_nvmf::NvmfError;
use esker_pager::PagerError;
use esker_serve::ServeError;
use esker_stack::StackError;
use esker_trace::TraceError;

use crate::stderr::complain;

/// The result of a command.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Why a command ended before its work was done.
#[derive(Debug)]
pub(crate) struct Failure {
    /// `None`: the reader of the output has read enough, and nothing is wrong.
    message: Option<String>,
    code: u8,
}

impl Failure {
    /// A failure of this kind; `message` names the problem, its object, and the remedy.
    pub(crate) fn new(kind: ErrorKind, message: impl fmt::Display) -> Failure {
        Failure::coded(kind.exit_code(), message)
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::Invalid, message)
    }

    /// A failure with an exit code that is no kind's.
    pub(crate) fn coded(code: u8, message: impl fmt::Display) -> Failure {
        let message = Some(message.to_string());
        Failure { message, code }
    }

    /// The file system refused something; `advice` says the remedy.
    pub(crate) fn file(path: &Path, error: &io::Error, advice: &str) -> Failure {
        let message = format!("{}: {error}; {advice}", path.display());
        match error.kind() {
            // A file of text that is none.
            io::ErrorKind::InvalidData => Failure::usage(message),
            _ => Failure::new(ErrorKind::from(error), message),
        }
    }

    /// The same failure, with something to know after it.
    pub(crate) fn and(mut self, more: impl fmt::Display) -> Failure {
        if let Some(message) = &mut self.message {
            message.push_str(&format!("; {more}"));
        }
        self
    }

    /// Fails if either has, and says both.
    pub(crate) fn of_both<T>(outcome: Result<T>, closed: Result) -> Result<T> {
        match (outcome, closed) {
            (Err(failure), Err(more)) => Err(failure.and(more.message())),
            (outcome, closed) => outcome.and_then(|done| closed.map(|()| done)),
        }
    }

    /// The same failure, with where it happened before it.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Failure {
        if let Some(message) = &mut self.message {
            *message = format!("{place}: {message}");
        }
        self
    }

    /// Returns the message; empty for none.
    pub(crate) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints the message on standard error, and gives the exit code.
    pub(crate) fn exit(self) -> ExitCode {
        if let Some(message) = self.message {
            complain!("esker: {message}");
        }
        ExitCode::from(self.code)
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Failure {
        let failure = Failure::new(error.kind(), &error);
        match error {
            KvError::File { .. } => failure.and("check the path and its permissions"),
            KvError::KvsExists(_) => {
                failure.and("choose another name, or drop it first with `esker kv drop-kvs`")
            }
            KvError::Device(cause) if cause.kind() == ErrorKind::NoSpace => {
                failure.and("free space on its file system, then try again")
            }
            KvError::StagingExists(_) => failure.and("it can have one only, and keeps it"),
            _ => failure,
        }
    }
}

/// Errors whose message says all.
macro_rules! whole {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::new(error.kind(), error)
            }
        }
    )*};
}

whole!(CacheError, NvmfError, AttachError, PagerError, ServeError, StackError);

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        let failure = Failure::new(error.kind(), &error);
        match error {
            TraceError::File { .. } => failure.and("check the path and its permissions"),
            _ => failure,
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Failure {
        let cause = error.store_error().and_then(|e| e.downcast_ref::<KvError>());
        let kind = cause.map_or(error.kind(), KvError::kind);
        Failure::new(kind, error)
    }
}

/// Errors of standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            let (message, code) = (None, 0);
            return Failure { message, code };
        }
        let kind = ErrorKind::from(&error);
        Failure::new(kind, format!("the output could not be written: {error}"))
    }
}
