"""All sorts of calls and errors, for a run under AddressSanitizer and LeakSanitizer: see `check`.

    leaks.py DIRECTORY [plant]

With `plant` a forked child drops handles of its parent, whose memory it leaves: a leak that has to be found.
"""

import gc
import os
import sys
import threading
import time

import esker


def refused(call, *errors):
    try:
        call()
    except errors:
        return
    raise AssertionError("it is not refused")


def use(path):
    with esker.open(path, memory_bytes=16 << 20) as db:
        kvs = db.kvs_or_create("rows")
        kvs.update((b"%04d" % n, b"v" * n) for n in range(500))
        assert kvs[b"0007"] == b"v" * 7 and kvs.get(b"none", 7) == 7 and b"0001" in kvs
        assert len(kvs.get_many([b"0001", bytearray(b"0002"), b"none"])) == 3
        walks = [kvs.items(b"0100", reverse=True), kvs.keys(prefix=b"01"), kvs.values(limit=9)]
        for walk in walks:
            next(walk)
        with db.snapshot() as snapshot, db.batch() as batch:
            batch.put(kvs, b"b", memoryview(b"batch"))
            batch.delete_prefix(kvs, b"02")
            snapshot.get(kvs, b"0001"), list(snapshot.items(kvs, limit=3))
        with db.transaction() as txn:
            txn.put(kvs, b"t", b"txn"), txn.get_for_update(kvs, b"0001"), list(txn.keys(kvs))
        one, other = db.transaction(), db.transaction()
        one.put(kvs, b"t", b"1"), other.put(kvs, b"t", b"2")
        one.commit(), refused(other.commit, esker.TransactionConflictError)
        refused(lambda: kvs[b"none"], KeyError)
        refused(lambda: kvs.put("text", b""), TypeError)
        refused(lambda: kvs.put(bytes(2000), b""), esker.InvalidError)
        refused(lambda: kvs.get_many([b"a", 7]), TypeError)
        refused(lambda: kvs.update([(b"a", b"b"), 7]), TypeError)
        refused(lambda: db.kvs("none"), esker.NotFoundError)
        refused(lambda: esker.open(path), esker.InUseError)
        refused(lambda: db.compact(on_progress=lambda *told: 1 / 0), ZeroDivisionError)
        threads = [threading.Thread(target=lambda: [list(kvs.items()) for _ in range(5)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        db.compact(), db.stats(), db.remarks(), db.sync(), kvs.options()
        left = kvs.items()
        next(left)
    refused(lambda: next(left), esker.ClosedError)
    refused(lambda: kvs.get(b"k"), esker.ClosedError)
    db.close()
    assert not esker.check(path)["findings"]


def main():
    path = os.path.join(sys.argv[1], "db")
    for _ in range(3):
        use(path)
    refused(lambda: esker.open(path + "-none", "open"), esker.NotFoundError)
    refused(lambda: esker.open(path, memory_bytes=1), esker.InvalidError)
    if sys.argv[2:] == ["plant"]:
        db = esker.open(path)
        # The sanitizer's allocator has locks, which a fork leaves held where another thread is in it.
        time.sleep(1)
        pid = os.fork()
        if pid == 0:
            del db
            sys.exit(0)
        os.waitpid(pid, 0)
        db.close()
    esker.destroy(path)
    gc.collect()


main()
