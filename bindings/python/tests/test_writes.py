"""Batches and transactions happen all or not at all; snapshots stand still."""

import threading

import pytest

import esker


@pytest.fixture
def pair(db):
    return db.kvs_or_create("users"), db.kvs_or_create("names")


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_batch_is_written_at_the_end_of_its_block(db, pair):
    users, names = pair
    with db.batch(durable=True) as batch:
        batch.put(users, b"42", b"Ada")
        batch.put(names, b"Ada", b"42")
        batch.delete(users, b"41")
        assert len(batch) == 3
        assert b"42" not in users, "not before the end"
    assert users[b"42"] == b"Ada" and names[b"Ada"] == b"42"
    assert len(batch) == 0


def test_batch_whose_block_raises_is_forgotten(db, pair):
    users, _ = pair
    with pytest.raises(ZeroDivisionError):
        with db.batch() as batch:
            batch.put(users, b"k", b"v")
            1 / 0
    assert users.is_empty() and len(batch) == 0


def test_batch_deletes_prefixes_and_ranges(db, pair):
    users, _ = pair
    users.update({b"a1": b"", b"a2": b"", b"b1": b"", b"c1": b""})
    batch = db.batch()
    batch.delete_prefix(users, b"a")
    batch.delete_range(users, b"c", b"d")
    batch.put(users, b"a3", b"after")
    batch.write()
    assert list(users) == [b"a3", b"b1"]
    batch.write()
    batch.delete(users, b"b1")
    batch.clear()
    batch.write()
    assert b"b1" in users


def test_refused_batch_writes_nothing_and_keeps_its_writes(db, pair, tmp_path):
    users, _ = pair
    batch = db.batch()
    batch.put(users, b"k", b"v")
    batch.put(users, bytes(2000), b"too long")
    with pytest.raises(esker.InvalidError, match="1344"):
        batch.write()
    assert users.is_empty() and len(batch) == 2
    with esker.open(tmp_path / "other") as other:
        batch = db.batch()
        batch.put(other.kvs_or_create("users"), b"k", b"v")
        with pytest.raises(esker.InvalidError, match="another KVDB"):
            batch.write()
    batch = db.batch()
    for n in range(70):
        batch.put(users, b"%d" % n, bytes(1 << 20))
    with pytest.raises(esker.InvalidError, match="split it"):
        batch.write()


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_transaction_is_committed_at_the_end_of_its_block(db, pair):
    users, names = pair
    users[b"1"] = b"one"
    with db.transaction(durable=True) as txn:
        assert txn.get(users, b"1") == b"one"
        txn.put(users, b"2", b"two")
        txn.put(names, b"two", b"2")
        txn.delete(users, b"1")
        assert txn.get(users, b"2") == b"two" and txn.get(users, b"1", b"gone") == b"gone"
        assert txn.get_many(users, [b"1", b"2"]) == [None, b"two"]
        assert txn.contains(users, b"2") and not txn.contains(users, b"1")
        assert list(txn.items(users)) == [(b"2", b"two")]
        assert list(txn.keys(users, reverse=True)) == [b"2"]
        assert list(txn.values(users, prefix=b"2", limit=1)) == [b"two"]
        assert b"2" not in users, "nobody else sees it"
    assert users[b"2"] == b"two" and names[b"two"] == b"2" and b"1" not in users


def test_transaction_whose_block_raises_is_rolled_back(db, pair):
    users, _ = pair
    with pytest.raises(ZeroDivisionError):
        with db.transaction() as txn:
            txn.put(users, b"k", b"v")
            1 / 0
    assert users.is_empty()
    assert db.stats()["transactions"]["open"] == 0


def test_of_two_transactions_with_one_key_the_first_to_commit_wins(db, pair):
    users, _ = pair
    first, second = db.transaction(), db.transaction()
    first.put(users, b"k", b"1")
    second.put(users, b"k", b"2")
    assert not second.is_changed(users, b"k")
    first.commit()
    assert second.is_changed(users, b"k")
    with pytest.raises(esker.TransactionConflictError) as raised:
        second.commit()
    assert raised.value.retryable and isinstance(raised.value, esker.TransactionError)
    assert users[b"k"] == b"1"


def test_key_read_for_update_is_guarded(db, pair):
    users, _ = pair
    users[b"read"] = b"1"
    txn = db.transaction()
    assert txn.get_for_update(users, b"read") == b"1"
    assert txn.get_for_update(users, b"none", 7) == 7
    txn.put(users, b"written", b"")
    users[b"read"] = b"2"
    with pytest.raises(esker.TransactionConflictError):
        txn.commit()


def test_transaction_deletes_prefixes_and_ranges(db, pair):
    users, _ = pair
    users.update({b"a1": b"", b"a2": b"", b"b1": b"", b"c1": b""})
    with db.transaction() as txn:
        txn.delete_prefix(users, b"a")
        txn.delete_range(users, b"c")
    assert list(users) == [b"b1"]


def test_ended_transaction_refuses_calls(db, pair):
    users, _ = pair
    for end in ("commit", "rollback"):
        txn = db.transaction()
        txn.put(users, b"k", b"v")
        getattr(txn, end)()
        for call in (
            lambda: txn.get(users, b"k"), lambda: txn.put(users, b"k", b""), txn.commit, lambda: txn.items(users),
            lambda: txn.get_many(users, [b"k"]),
        ):
            with pytest.raises(esker.TransactionExpiredError):
                call()
        txn.rollback()


def test_block_may_end_its_transaction_itself(db, pair):
    users, _ = pair
    with db.transaction() as txn:
        txn.put(users, b"k", b"v")
        txn.commit()
    with db.transaction() as txn:
        txn.delete(users, b"k")
        txn.rollback()
    assert users[b"k"] == b"v"


def test_transaction_expires(path):
    with esker.open(path, transaction_ms=50) as db:
        users = db.kvs_or_create("users")
        txn = db.transaction()
        threading.Event().wait(0.7)
        db.transaction().rollback()
        with pytest.raises(esker.TransactionExpiredError):
            txn.put(users, b"k", b"v")


def test_transfers_of_many_threads_keep_the_sum(db):
    accounts = db.kvs_or_create("accounts")
    accounts.update((b"%d" % n, b"100") for n in range(10))

    def transfer(seed):
        for n in range(200):
            source, target = b"%d" % ((n * seed) % 10), b"%d" % ((n + seed) % 10)
            while source != target:
                try:
                    with db.transaction() as txn:
                        held = int(txn.get(accounts, source))
                        txn.put(accounts, source, b"%d" % (held - 1))
                        txn.put(accounts, target, b"%d" % (int(txn.get(accounts, target)) + 1))
                    break
                except esker.TransactionConflictError:
                    pass

    threads = [threading.Thread(target=transfer, args=(seed,)) for seed in (1, 3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(int, accounts.values())) == 1000


# ---- snapshots -------------------------------------------------------------------------------------------------------


def test_snapshot_stands_still(db, pair):
    users, names = pair
    users[b"k"] = b"before"
    with db.snapshot() as snapshot:
        users[b"k"] = b"after"
        names[b"new"] = b""
        assert snapshot.get(users, b"k") == b"before"
        assert snapshot.get(users, b"none", 1) == 1
        assert snapshot.get_many(users, [b"k", b"none"]) == [b"before", None]
        assert snapshot.contains(users, b"k") and not snapshot.contains(names, b"new")
        assert list(snapshot.items(users)) == [(b"k", b"before")]
        assert list(snapshot.keys(names)) == []
        assert list(snapshot.values(users, b"a", b"z", reverse=True)) == [b"before"]
        db.create_kvs("later")
        with pytest.raises(esker.NotFoundError, match="begin another one"):
            snapshot.get(db.kvs("later"), b"k")
        assert db.stats()["readers"]["snapshots"]["open"] == 1
    assert db.stats()["readers"]["snapshots"]["open"] == 0
    with pytest.raises(esker.ClosedError):
        snapshot.get(users, b"k")
    snapshot.close()


def test_handles_of_another_kvdb_are_refused(db, tmp_path):
    with esker.open(tmp_path / "other") as other:
        foreign = other.kvs_or_create("rows")
        for call in (
            lambda: db.snapshot().get(foreign, b"k"), lambda: db.transaction().put(foreign, b"k", b"v"),
            lambda: db.snapshot().items(foreign), lambda: db.transaction().get(foreign, b"k"),
        ):
            with pytest.raises(esker.InvalidError, match="another KVDB"):
                call()
        for wrong in (None, b"rows", db):
            with pytest.raises(TypeError):
                db.transaction().put(wrong, b"k", b"v")
