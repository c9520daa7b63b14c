"""The engine's errors as exceptions. Each class has the stable code of the engine's `ErrorCode`."""


class EskerError(Exception):
    """Any error of the engine: the message says what happened, to which object, and what to do."""

    code: int = 0
    #: Whether the same work may succeed if it is begun again at once.
    retryable: bool = False
    #: The system's error number, where a device or file system gave one.
    errno: int | None = None
    #: The class without room, cut short or missing: "staging" or "capacity".
    media_class: str | None = None
    #: The device or file with damage, and where the damage begins there, in logical blocks.
    device: str | None = None
    lba: int | None = None


class IoError(EskerError):
    """A device or file system failed."""

    code = 1


class NotFoundError(EskerError):
    """The KVDB, KVS, file or device named is not there."""

    code = 2


class ExistsError(EskerError):
    """It is there already."""

    code = 3


class InvalidError(EskerError, ValueError):
    """A key, a value, a batch, a name, an option or a location cannot be."""

    code = 4


class UnsupportedError(EskerError):
    """This build, device or file system cannot do it."""

    code = 5


class NoSpaceError(EskerError):
    """A class or its file system is full."""

    code = 6


class DamagedError(EskerError):
    """A medium returned other data than was written."""

    code = 7


class ReadOnlyError(EskerError):
    """The KVDB, or these keys of it, take no writes."""

    code = 8


class TransactionError(EskerError):
    """A transaction cannot go on: begin it again."""

    retryable = True


class TransactionConflictError(TransactionError):
    """Someone else wrote a key of the transaction since it began."""

    code = 9


class TransactionExpiredError(TransactionError):
    """The transaction was open for too long, or it was committed or rolled back before."""

    code = 10


class BusyError(EskerError):
    """Work or readers of this same process have to end first."""

    code = 11


class InUseError(EskerError):
    """Another process, or another opening in this one, has the KVDB or a device of it."""

    code = 12


class CancelledError(EskerError):
    """The work was called off."""

    code = 13


class ClosedError(EskerError):
    """The KVDB is closed, the KVS dropped, or this is a forked child."""

    code = 14


class StoppedError(EskerError):
    """An earlier failure stopped writes: open the KVDB again."""

    code = 15


class PanickedError(EskerError):
    """A thread of the engine panicked."""

    code = 16


class ClassMissingError(EskerError):
    """The KVDB is there, and the file or block device of one of its classes is not."""

    code = 17


#: The class of each code; 0 stands for those of a later release.
OF_CODE: dict[int, type[EskerError]] = {
    error.code: error
    for error in (
        EskerError, IoError, NotFoundError, ExistsError, InvalidError, UnsupportedError, NoSpaceError, DamagedError,
        ReadOnlyError, TransactionConflictError, TransactionExpiredError, BusyError, InUseError, CancelledError,
        ClosedError, StoppedError, PanickedError, ClassMissingError,
    )
}

for _error in (TransactionError, *OF_CODE.values()):
    _error.__module__ = "esker"
