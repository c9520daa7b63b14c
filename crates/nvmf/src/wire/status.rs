//! Status codes (Base 2.1, 4.2.3; NVM Command Set 1.1, 3.2).

use std::fmt;

use esker_base::ErrorKind;

/// The status of a completed command: SC (7:0), SCT (10:8), CRD (12:11), MORE (13), DNR (14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($(#[$about:meta])* $name:ident = $value:literal, $kind:ident, $text:literal;)*) => {
        impl Status {
            $($(#[$about])* pub const $name: Status = Status($value);)*

            /// The remedy for callers.
            #[must_use]
            pub fn kind(self) -> ErrorKind {
                match self.code() {
                    $($value => ErrorKind::$kind,)*
                    _ if self.may_retry() => ErrorKind::Retry,
                    _ => ErrorKind::Io,
                }
            }

            fn words(self) -> Option<&'static str> {
                match self.code() {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// It worked.
    SUCCESS = 0x000, Retry, "success";
    /// No such opcode.
    INVALID_OPCODE = 0x001, Unsupported, "invalid command opcode";
    /// A field of the command is wrong or not supported.
    INVALID_FIELD = 0x002, Invalid, "invalid field in command";
    /// The identifier is that of a command that is still in progress.
    ID_CONFLICT = 0x003, Conflict, "command identifier conflict";
    /// The data could not be transferred.
    DATA_TRANSFER = 0x004, Retry, "data transfer error";
    /// The controller failed.
    INTERNAL = 0x006, Io, "internal error";
    /// Aborted by an Abort command.
    ABORTED = 0x007, Retry, "command abort requested";
    /// No such namespace.
    INVALID_NAMESPACE = 0x00b, NotFound, "invalid namespace or format";
    /// Not at this point.
    SEQUENCE = 0x00c, Conflict, "command sequence error";
    /// The SGL has not the length that the command needs.
    DATA_LENGTH = 0x00f, Invalid, "data SGL length invalid";
    /// The SGL is of a kind that is not supported.
    SGL_TYPE = 0x011, Invalid, "SGL descriptor type invalid";
    /// The offset of a capsule's SGL is not supported.
    SGL_OFFSET = 0x016, Invalid, "SGL offset invalid";
    /// No two host identifiers here.
    HOST_ID_INCONSISTENT = 0x018, Conflict, "host identifier inconsistent format";
    /// The transport lost something: try again.
    TRANSIENT_TRANSPORT = 0x022, Retry, "transient transport error";
    /// Data placement is disabled.
    FDP_DISABLED = 0x029, Unsupported, "FDP disabled";
    /// Beyond the end of the namespace.
    LBA_RANGE = 0x080, Invalid, "LBA out of range";
    /// No space is left.
    CAPACITY = 0x081, NoSpace, "capacity exceeded";
    /// Not now: try again.
    NOT_READY = 0x082, Retry, "namespace not ready";
    /// Another host's reservation.
    RESERVATION_CONFLICT = 0x083, Conflict, "reservation conflict";
    /// Too many Abort commands at once.
    ABORT_LIMIT = 0x103, Retry, "abort command limit exceeded";
    /// Too many Asynchronous Event Requests.
    EVENT_LIMIT = 0x105, Invalid, "asynchronous event request limit exceeded";
    /// No such log page.
    INVALID_LOG = 0x109, Unsupported, "invalid log page";
    /// The feature cannot be saved.
    NOT_SAVEABLE = 0x10d, Unsupported, "feature identifier not saveable";
    /// The feature cannot be changed.
    NOT_CHANGEABLE = 0x10e, Unsupported, "feature not changeable";
    /// Connect: the format of the record is not supported.
    CONNECT_FORMAT = 0x180, Unsupported, "connect incompatible format";
    /// Connect: the controller is in use.
    CONNECT_BUSY = 0x181, Retry, "controller busy";
    /// Connect: a parameter is wrong; the result says which.
    CONNECT_INVALID = 0x182, NotFound, "connect invalid parameters";
    /// More than the namespace copies with one command (of fabrics commands: restart discovery).
    SIZE_LIMIT = 0x183, Invalid, "command size limit exceeded";
    /// Connect: this host may not.
    CONNECT_HOST = 0x184, NotFound, "connect invalid host";
    /// The source of a copy overlaps its target.
    OVERLAP = 0x187, Invalid, "overlapping I/O range";
    /// The queue is not authenticated yet.
    AUTHENTICATION_REQUIRED = 0x191, Conflict, "authentication required";
    /// The medium did not take a write.
    WRITE_FAULT = 0x280, Io, "write fault";
    /// The medium could not be read.
    READ_ERROR = 0x281, Io, "unrecovered read error";
    /// The data compared is different.
    COMPARE = 0x285, Conflict, "compare failure";
    /// The path has internal trouble.
    PATH_INTERNAL = 0x300, Retry, "internal path error";
    /// The group cannot be reached this way, ever.
    ANA_LOST = 0x301, Retry, "asymmetric access persistent loss";
    /// The group cannot be reached this way.
    ANA_INACCESSIBLE = 0x302, Retry, "asymmetric access inaccessible";
    /// The group changes its state.
    ANA_TRANSITION = 0x303, Retry, "asymmetric access transition";
}

impl Status {
    /// Do not retry.
    pub const DNR: u16 = 0x4000;

    /// The same status, with the advice not to try again.
    #[must_use]
    pub const fn final_(self) -> Status {
        Status(self.0 | Status::DNR)
    }

    /// Status code and type, without the flags.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Whether it may succeed when tried again.
    #[must_use]
    pub const fn may_retry(self) -> bool {
        self.0 & Status::DNR == 0
    }

    /// Whether another path may do better.
    #[must_use]
    pub const fn is_path_error(self) -> bool {
        self.code() >> 8 == 3
    }
}

impl From<ErrorKind> for Status {
    /// The status that asks for the same remedy as this kind: the caller at the other end gets a
    /// kind with that remedy.
    fn from(kind: ErrorKind) -> Status {
        match kind {
            ErrorKind::Retry => Status::NOT_READY,
            ErrorKind::NoSpace => Status::CAPACITY.final_(),
            ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Exists => {
                Status::INVALID_FIELD.final_()
            }
            ErrorKind::Unsupported => Status::INVALID_OPCODE.final_(),
            ErrorKind::Conflict => Status::SEQUENCE.final_(),
            _ => Status::INTERNAL.final_(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = if self.may_retry() || self.is_success() { "" } else { ", do not retry" };
        match self.words() {
            Some(words) => write!(f, "{words} ({:#05x}{retry})", self.code()),
            None => write!(f, "status {:#05x}{retry}", self.code()),
        }
    }
}
