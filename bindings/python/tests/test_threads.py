"""Close, drop and garbage collection while other threads work: an error or a clean end, never a crash."""

import collections
import gc
import sys
import threading
import time
import weakref

import pytest

import esker


def together(works, seconds=None):
    """Runs each work in a thread of its own, and returns what they raised."""
    raised = []

    def caught(work):
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=caught, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    return raised


@pytest.mark.parametrize("attempt", range(5))
def test_close_during_calls_of_other_threads_is_an_error_there(path, attempt):
    db = esker.open(path)
    kvs = db.kvs_or_create("rows")
    kvs.update((b"%06d" % n, bytes(500)) for n in range(5000))
    started, txn, snapshot = threading.Barrier(7), db.transaction(), db.snapshot()

    def scan():
        started.wait()
        while True:
            for _ in kvs.items():
                pass

    def old_walk(walk=None):
        walk = snapshot.items(kvs)
        started.wait()
        while True:
            for _ in walk:
                pass
            walk = snapshot.items(kvs, reverse=True)

    def put():
        started.wait()
        for n in range(1 << 60):
            kvs[b"%d" % n] = b"v" * 100

    def get():
        started.wait()
        while True:
            kvs.get_many([b"000001", b"004999"])
            kvs.get(b"000002")

    def transact():
        started.wait()
        while True:
            txn.put(kvs, b"k", b"v")
            txn.get(kvs, b"k")

    def load():
        started.wait()
        while True:
            kvs.update((b"%d" % n, b"v") for n in range(3000))

    def close():
        started.wait()
        time.sleep(0.05 * attempt)
        db.close()

    raised = together([scan, old_walk, put, get, transact, load, close])
    assert len(raised) == 6, raised
    assert all(isinstance(error, esker.ClosedError) for error in raised), raised
    with esker.open(path, "open") as db:
        assert len(list(db.kvs("rows").keys(prefix=b"00"))) >= 5000


def test_many_threads_close_once(path):
    db = esker.open(path)
    db.kvs_or_create("rows")[b"k"] = b"v"
    assert together([db.close] * 8) == []
    with esker.open(path) as db:
        assert db.kvs("rows")[b"k"] == b"v"


def test_threads_open_one_path_at_once(path):
    esker.open(path).close()
    opened = []
    raised = together([lambda: opened.append(esker.open(path))] * 8)
    assert len(opened) >= 1 and len(opened) + len(raised) == 8
    assert all(isinstance(error, esker.InUseError) for error in raised), raised


def test_drop_of_a_kvs_beside_a_walk(db):
    kvs = db.kvs_or_create("dropped")
    kvs.update((b"%06d" % n, b"v") for n in range(5000))
    walk = kvs.items()
    next(walk)
    db.drop_kvs("dropped")
    assert len(list(walk)) == 4999, "it walks as the KVS was"
    with pytest.raises(esker.ClosedError):
        kvs.items()


def test_garbage_of_any_order_is_collected(path):
    for order in range(24):
        db = esker.open(path, memory_bytes=64 << 20)
        kvs = db.kvs_or_create("rows")
        kvs.update((b"%06d" % n, b"v") for n in range(100))
        walk = kvs.items()
        next(walk)
        handles = {"db": db, "kvs": kvs, "walk": walk, "txn": db.transaction(), "snapshot": db.snapshot()}
        handles["loop"] = handles
        del db, kvs, walk
        names = sorted(set(handles) - {"loop"})
        for turn in range(order % 6):
            handles.pop(names[(turn + order) % len(names)], None)
            gc.collect()
        del handles
        gc.collect()
    with esker.open(path) as db:
        assert len(list(db.kvs("rows"))) == 100


def test_collection_in_the_middle_of_walks_and_writes(db, kvs):
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        kvs.update((b"%04d" % n, b"v") for n in range(500))

        class Node:
            def __init__(self):
                self.me, self.walk = self, kvs.items()
                next(self.walk)

            def __del__(self):
                kvs.get(b"0001"), kvs.get_many([b"0001"]), list(self.walk)

        gone = []
        for key, value in kvs.items():
            gone.append(weakref.ref(Node()))
            assert kvs.get(key) == value
        gc.collect()
        assert all(node() is None for node in gone)
    finally:
        gc.set_threshold(*threshold)


@pytest.mark.parametrize("call", [
    "kvs.put(b'k', value, durable=True)", "db.sync()", "batch.write()", "commit()", "kvs.update(rows)",
    "kvs.get_many(keys)", "collections.deque(kvs.items(), 0)", "snapshot.get_many(kvs, keys)", "db.ingest()",
    "db.compact()", "db.stats(); kvs.put(b'k', value, durable=True)",
])
def test_other_threads_run_during_calls_that_may_wait(db, kvs, call):
    rows = {b"%06d" % n: bytes(200) for n in range(3000)}
    kvs.update(rows)
    batch = db.batch(durable=True)

    def commit():
        with db.transaction(durable=True) as txn:
            txn.put(kvs, b"k", b"v")

    names = {
        "db": db, "kvs": kvs, "rows": rows, "keys": list(rows), "value": bytes(200_000), "batch": batch, "commit": commit,
        "snapshot": db.snapshot(), "collections": collections,
    }
    code, turns, beside, done = compile(call, "call", "exec"), 0, 0, threading.Event()

    def work():
        nonlocal beside
        for _ in range(300):
            batch.put(kvs, b"k", b"v")
            kvs[b"k"] = b"v"
            before = turns
            exec(code, names)
            beside += turns > before
        done.set()

    thread, before = threading.Thread(target=work), sys.getswitchinterval()
    # A thread that does not release the GIL by itself keeps it.
    sys.setswitchinterval(100)
    try:
        thread.start()
        while not done.is_set():
            turns += 1
            time.sleep(0.00005)
    finally:
        sys.setswitchinterval(before)
    thread.join()
    assert beside > 20, f"the other thread had a turn during {beside} of 300 calls"
