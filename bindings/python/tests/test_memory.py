"""Opening, closing and failing over and over takes constant memory. ESKER_ROUNDS says how often; a million is meant."""

import gc
import os

import pytest

import esker

ROUNDS = int(os.environ.get("ESKER_ROUNDS", "20000"))


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(work, rounds):
    """How much resident memory grows in the later three quarters of the rounds, and how many descriptors.

    Threads of the engine open a few when they work first.
    """
    for _ in range(rounds // 4):
        work()
    gc.collect()
    before, files = resident(), len(os.listdir("/proc/self/fd"))
    for _ in range(rounds - rounds // 4):
        work()
    gc.collect()
    return resident() - before, len(os.listdir("/proc/self/fd")) - files


def refused(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError("it is not refused")


def test_error_paths_take_constant_memory(db, kvs, tmp_path):
    kvs.update({b"a": b"1", b"b": b"2"})
    closed = esker.open(tmp_path / "closed")
    gone = closed.kvs_or_create("rows")
    closed.close()
    txn = db.transaction()
    txn.rollback()

    def work():
        refused(lambda: kvs[b"none"], KeyError)
        refused(lambda: kvs["text"], TypeError)
        refused(lambda: kvs.put(bytes(2000), b""), esker.InvalidError)
        refused(lambda: gone.get(b"k"), esker.ClosedError)
        refused(lambda: db.kvs("none"), esker.NotFoundError)
        refused(lambda: txn.get(kvs, b"k"), esker.TransactionExpiredError)
        refused(lambda: kvs.get_many([b"a", 7]), TypeError)
        refused(lambda: kvs.set_policy("none"), esker.InvalidError)

    memory, files = grown(work, ROUNDS)
    assert files < 10 and memory < 4 << 20, f"{memory} bytes in {ROUNDS} rounds"


def test_children_that_come_and_go_take_constant_memory(db, kvs):
    kvs.update((b"%03d" % n, b"v") for n in range(100))

    def work():
        next(kvs.items())
        with db.snapshot() as snapshot:
            snapshot.get(kvs, b"001")
        with db.transaction() as txn:
            txn.get(kvs, b"001")
        db.batch().put(kvs, b"k", b"v")
        kvs.get_many([b"001", b"002"])
        db.kvs("rows").get(bytearray(b"001"))

    memory, files = grown(work, ROUNDS)
    assert files < 10 and memory < 4 << 20, f"{memory} bytes in {ROUNDS} rounds"


@pytest.mark.parametrize("way", ["close", "drop", "refuse"])
def test_opening_takes_constant_memory(path, way):
    rounds = max(ROUNDS // 100, 40)
    with esker.open(path, memory_bytes=16 << 20) as db:
        db.kvs_or_create("rows")[b"k"] = b"v"

    def work():
        if way == "refuse":
            refused(lambda: esker.open(path.with_name("none"), "open"), esker.NotFoundError)
            refused(lambda: esker.open(path, memory_bytes=1), esker.InvalidError)
            return
        db = esker.open(path, "open", memory_bytes=16 << 20)
        assert db.kvs("rows")[b"k"] == b"v"
        if way == "close":
            db.close()

    memory, files = grown(work, rounds)
    assert files < 10 and memory < 16 << 20, f"{memory} bytes in {rounds} rounds"
