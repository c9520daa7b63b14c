"""Esker: an embedded, ordered key-value store for flash.

    import esker

    with esker.open("app.db") as db:
        users = db.kvs_or_create("users")
        users[b"42"] = b"Ada"
        for key, value in users.items(b"40", b"50"):
            print(key, value)
"""

from ._errors import (
    BusyError,
    CancelledError,
    ClassMissingError,
    ClosedError,
    DamagedError,
    EskerError,
    ExistsError,
    InUseError,
    InvalidError,
    IoError,
    NoSpaceError,
    NotFoundError,
    PanickedError,
    ReadOnlyError,
    StoppedError,
    TransactionConflictError,
    TransactionError,
    TransactionExpiredError,
    UnsupportedError,
)
from ._esker import (
    Batch,
    Items,
    Keys,
    Kvdb,
    Kvs,
    Snapshot,
    Transaction,
    Values,
    __version__,
    check,
    destroy,
    open,
    repair,
)

__all__ = [
    "Batch",
    "BusyError",
    "CancelledError",
    "ClassMissingError",
    "ClosedError",
    "DamagedError",
    "EskerError",
    "ExistsError",
    "InUseError",
    "InvalidError",
    "IoError",
    "Items",
    "Keys",
    "Kvdb",
    "Kvs",
    "NoSpaceError",
    "NotFoundError",
    "PanickedError",
    "ReadOnlyError",
    "Snapshot",
    "StoppedError",
    "Transaction",
    "TransactionConflictError",
    "TransactionError",
    "TransactionExpiredError",
    "UnsupportedError",
    "Values",
    "__version__",
    "check",
    "destroy",
    "open",
    "repair",
]
