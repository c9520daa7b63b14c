"""Opening, closing, copying and maintaining a KVDB, and its errors."""

import os
import pathlib
import re

import pytest

import esker

MEMORY = 64 << 20


def fill(db, rows=2000):
    kvs = db.kvs_or_create("rows")
    kvs.update((b"%06d" % n, b"v%d" % n) for n in range(rows))
    return kvs


# ---- opening and closing ---------------------------------------------------------------------------------------------


def test_modes_open_and_create(path):
    with pytest.raises(esker.NotFoundError):
        esker.open(path, "open")
    with esker.open(path, "create", memory_bytes=MEMORY, durability_ms=0, space_amplification=1.5) as db:
        fill(db)
        assert db.path == str(path) and repr(db) == f"<esker.Kvdb '{path}'>"
    with pytest.raises(esker.ExistsError):
        esker.open(path, "create")
    with esker.open(str(path), "open") as db:
        assert db.kvs("rows")[b"000007"] == b"v7"
        with pytest.raises(esker.InUseError, match="this process"):
            esker.open(path)
    with esker.open(path, mode="read-only") as db:
        kvs = db.kvs("rows")
        assert kvs[b"000007"] == b"v7"
        with pytest.raises(esker.ReadOnlyError):
            kvs[b"k"] = b"v"
    esker.destroy(path)
    with pytest.raises(esker.NotFoundError):
        esker.destroy(path)


@pytest.mark.parametrize("wrong", [
    {"mode": "rw"}, {"memory_bytes": 1 << 20}, {"space_amplification": 0.5}, {"durability_bytes": 1 << 40},
])
def test_options_that_cannot_be_are_invalid(path, wrong):
    with pytest.raises(esker.InvalidError) as raised:
        esker.open(path, **wrong)
    assert isinstance(raised.value, ValueError) and raised.value.code == 4
    assert not path.exists()


def test_arguments_of_a_wrong_type_are_refused(path):
    for wrong in ({"memory_bytes": "much"}, {"memory_bytes": -1}, {"staging": 7}, {"unknown": 1}):
        with pytest.raises((TypeError, OverflowError)):
            esker.open(path, **wrong)
    for wrong in (None, 7, b"bytes\0"):
        with pytest.raises((TypeError, ValueError, esker.EskerError)):
            esker.open(wrong)
    for made in (esker.Kvdb, esker.Kvs, esker.Batch, esker.Snapshot, esker.Transaction, esker.Items):
        with pytest.raises(TypeError):
            made()
        with pytest.raises(TypeError):
            type("Mine", (made,), {})


def test_closed_kvdb_refuses_calls_of_all_handles(path):
    db = esker.open(path)
    kvs = fill(db)
    snapshot, txn, batch = db.snapshot(), db.transaction(), db.batch()
    batch.put(kvs, b"k", b"v")
    assert not db.closed
    db.close()
    assert db.closed and repr(db).endswith("closed>")
    db.close()
    calls = [
        lambda: kvs[b"k"], lambda: kvs.get(b"k"), lambda: b"k" in kvs, lambda: kvs.put(b"k", b""), lambda: kvs.delete(b"k"),
        lambda: kvs.get_many([b"k"]), lambda: kvs.items(), lambda: iter(kvs), lambda: kvs.update({b"k": b""}), kvs.clear,
        kvs.options, kvs.metadata, kvs.first, kvs.is_empty, lambda: kvs.set_policy("auto"), lambda: kvs.set_ttl_ms(5),
        lambda: kvs.compare_and_set(b"k", None, b""), lambda: kvs.delete_range(), lambda: kvs.delete_prefix(b"k"),
        lambda: snapshot.get(kvs, b"k"), lambda: snapshot.items(kvs), lambda: txn.get(kvs, b"k"),
        lambda: txn.put(kvs, b"k", b""), txn.commit, batch.write, lambda: batch.put(kvs, b"k", b""), lambda: len(batch),
        db.snapshot, db.transaction, db.batch, db.sync, db.stats, db.remarks, db.kvs_names, lambda: db.kvs("rows"),
        lambda: db.create_kvs("x"), lambda: db.kvs_or_create("x"), lambda: db.drop_kvs("rows"), db.compact, db.settle,
        db.compact_status, db.cancel_compact, db.ingest, db.format_version, db.upgrade,
        lambda: db.backup(path.with_name("copy")), lambda: db.add_staging(True), db.remove_staging,
    ]
    for number, call in enumerate(calls):
        with pytest.raises(esker.ClosedError):
            call()
            pytest.fail(f"call {number} of a closed KVDB")
    snapshot.close()
    txn.rollback()
    with esker.open(path) as again:
        assert len(list(again.kvs("rows"))) == 2000


def test_children_keep_a_kvdb_open(path):
    kvs = esker.open(path).kvs_or_create("rows")
    kvs[b"k"] = b"v"
    walk = kvs.items()
    del kvs
    assert list(walk) == [(b"k", b"v")]
    with pytest.raises(esker.InUseError):
        esker.open(path)
    del walk
    with esker.open(path) as db:
        assert db.kvs("rows")[b"k"] == b"v"


def test_with_block_closes_after_an_error_too(path):
    with pytest.raises(ZeroDivisionError):
        with esker.open(path) as db:
            fill(db, 10)
            1 / 0
    assert db.closed
    esker.open(path, "open").close()


# ---- classes, copies, maintenance ------------------------------------------------------------------------------------


def test_staging_class_comes_and_goes(path, tmp_path):
    with esker.open(path, memory_bytes=MEMORY, staging=tmp_path / "fast", capacity=True) as db:
        fill(db)
        db.ingest()
        assert {place["class"] for place in db.stats()["classes"]} == {"staging", "capacity"}
        db.remove_staging()
        assert [place["class"] for place in db.stats()["classes"]] == ["capacity"]
        with pytest.raises(esker.NotFoundError):
            db.remove_staging()
        with pytest.raises(esker.InvalidError):
            db.add_staging(False)
        db.add_staging(True)
        with pytest.raises(esker.ExistsError):
            db.add_staging(tmp_path / "faster")
        assert len(list(db.kvs("rows"))) == 2000


def test_missing_class_is_told_apart(path, tmp_path):
    with esker.open(path, memory_bytes=MEMORY, staging=tmp_path / "fast") as db:
        fill(db)
    (tmp_path / "fast").rename(tmp_path / "away")
    with pytest.raises(esker.ClassMissingError) as raised:
        esker.open(path)
    assert raised.value.media_class == "staging" and not isinstance(raised.value, esker.NotFoundError)


def test_backup_is_a_kvdb_of_its_own(db, tmp_path):
    kvs, copy = fill(db), tmp_path / "copy"
    told = []
    report = db.backup(copy, on_progress=lambda phase, done, total: told.append((phase, done, total)))
    kvs.clear()
    assert report["version"] == 1 and report["kvss"] == 1 and report["copied_bytes"] > 0
    assert told and all(isinstance(phase, str) and done >= 0 for phase, done, _ in told)
    with esker.open(copy, "read-only") as copied:
        assert copied.kvs("rows")[b"000042"] == b"v42"
    with pytest.raises(esker.ExistsError):
        db.backup(copy)


def test_observer_that_raises_calls_the_work_off(db, tmp_path):
    fill(db)

    def stop(phase, done, total):
        raise LookupError("enough")

    for work in (lambda: db.backup(tmp_path / "copy", on_progress=stop), lambda: db.compact(on_progress=stop)):
        with pytest.raises(LookupError, match="enough"):
            work()
    assert not (tmp_path / "copy").exists()
    db.compact()
    assert len(list(db.kvs("rows"))) == 2000


def test_check_finds_damage_and_repair_salvages(path, tmp_path):
    with esker.open(path, memory_bytes=MEMORY) as db:
        fill(db)
        db.kvs("rows")[b"000007"] = b"a value of its own, of some length"
    report = esker.check(path)
    assert report["findings"] == [] and report["entries"] == 2000 and report["version"] == 1
    capacity = path / "capacity.esker"
    content = capacity.read_bytes()
    assert b"a value of its own" in content
    capacity.write_bytes(content.replace(b"a value of its own", b"a value of no sort"))
    assert esker.check(path)["findings"]
    repaired = esker.repair(path, tmp_path / "repaired", memory_bytes=MEMORY)
    assert repaired["findings"]
    with esker.open(tmp_path / "repaired", "open") as db:
        kept = list(db.kvs("rows"))
        assert len(kept) == 1999 and b"000007" not in kept
    with esker.open(path, "open") as db:
        with pytest.raises(esker.DamagedError) as raised:
            list(db.kvs("rows").items())
        assert raised.value.device and raised.value.lba is not None


def test_compaction_erases_and_tells_its_status(db):
    kvs = fill(db)
    kvs.delete_prefix(b"0000")
    status = db.compact(scrub=True)
    assert not status["active"] and not status["cancelled"] and status["version"] == 1
    assert db.compact(space_amplification=3.0)["cancelled"] is False
    assert db.compact_status()["active"] is False
    with pytest.raises(esker.InvalidError):
        db.compact(scrub=True, space_amplification=2.0)
    with pytest.raises(esker.InvalidError):
        db.compact(space_amplification=0.5)
    db.cancel_compact()
    db.settle()
    assert len(list(kvs)) == 1900


def test_figures(db):
    kvs = fill(db)
    kvs.get(b"000001")
    db.sync()
    stats = db.stats()
    assert stats["version"] == 1 and stats["operations"]["gets"] == 1 and stats["operations"]["syncs"] == 1
    assert [kvs["name"] for kvs in stats["kvss"]] == ["rows"]
    assert all(isinstance(remark, str) for remark in db.remarks())
    assert db.upgrade() <= db.format_version()


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_each_error_has_a_class_and_a_code():
    errors = [
        value for value in vars(esker).values()
        if isinstance(value, type) and issubclass(value, esker.EskerError)
    ]
    by_code = {error.code: error for error in errors if error.code}
    assert sorted(by_code) == list(range(1, 18))
    assert all(error.__module__ == "esker" and error.__doc__ for error in errors)
    assert {error for error in errors if not error.code} == {esker.EskerError, esker.TransactionError}
    assert {code for code, error in by_code.items() if error.retryable} == {9, 10}


def test_codes_are_those_of_the_engine():
    root = pathlib.Path(os.environ.get("ESKER_ROOT", pathlib.Path(__file__).parents[3]))
    source = root / "crates/kv/src/types/error.rs"
    if not source.exists():
        pytest.skip("the engine's source is not there")
    body = re.search(r"pub enum ErrorCode \{(.*?)\n\}", source.read_text(), re.S)[1]
    codes = {name: int(code) for name, code in re.findall(r"^    (\w+) = (\d+),", body, re.M)}
    assert codes
    for name, code in codes.items():
        assert getattr(esker, f"{name}Error").code == code


def test_system_error_number_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(esker.EskerError) as raised:
        esker.open(tmp_path / "file" / "db")
    assert raised.value.errno == 20, "ENOTDIR"
    with pytest.raises(esker.EskerError) as raised:
        esker.open("/proc/no/such")
    assert raised.value.args[0].startswith("/proc")
