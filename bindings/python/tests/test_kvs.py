"""A KVS is an ordered map of bytes to bytes."""

import array
import time

import pytest

import esker


def test_value_is_read_as_it_was_put(kvs):
    kvs[b"k"] = b"v"
    assert kvs[b"k"] == b"v" and type(kvs[b"k"]) is bytes
    assert kvs.get(b"k") == b"v"
    assert kvs.get(b"none") is None
    default = object()
    assert kvs.get(b"none", default) is default
    assert b"k" in kvs and b"none" not in kvs


def test_missing_key_raises_key_error_with_the_key(kvs):
    with pytest.raises(KeyError) as raised:
        kvs[b"none"]
    assert raised.value.args == (b"none",)


def test_delete_needs_no_key(kvs):
    kvs[b"k"] = b"v"
    del kvs[b"k"]
    assert b"k" not in kvs
    del kvs[b"k"]
    kvs.delete(b"k")


@pytest.mark.parametrize("key", [b"", b"\0", b"\xff" * 1344, b"k"])
@pytest.mark.parametrize("value", [b"", b"\0" * 17, bytes(range(256)) * 4096])
def test_bytes_of_all_lengths_come_back(kvs, key, value):
    kvs.put(key, value)
    assert kvs[key] == value
    assert kvs.get_many([key]) == [value]
    assert list(kvs.items()) == [(key, value)]


@pytest.mark.parametrize("make", [
    bytes, bytearray, memoryview, lambda data: memoryview(data + b"rest")[:len(data)],
    lambda data: memoryview(bytes(x for b in data for x in (b, 0)))[::2],
    lambda data: array.array("b", data),
])
def test_bytes_like_objects_are_keys_and_values(kvs, make):
    kvs[make(b"key")] = make(b"value")
    assert kvs[b"key"] == b"value"
    assert kvs[make(b"key")] == b"value"
    assert kvs.get_many([make(b"key"), b"none"]) == [b"value", None]
    assert make(b"key") in kvs
    assert list(kvs.items(make(b"k"), make(b"l"))) == [(b"key", b"value")]
    kvs.update([(make(b"other"), make(b"one"))])
    assert kvs[b"other"] == b"one"


@pytest.mark.parametrize("call", [
    lambda kvs: kvs["key"], lambda kvs: kvs.put("key", b""), lambda kvs: kvs.put(b"key", "value"),
    lambda kvs: kvs.get(None), lambda kvs: kvs.get_many([b"a", "b"]), lambda kvs: kvs.update([("a", b"")]),
    lambda kvs: kvs.items("a"), lambda kvs: 7 in kvs, lambda kvs: kvs.delete_prefix(7),
])
def test_other_types_are_refused_with_advice(kvs, call):
    with pytest.raises(TypeError, match="bytes-like"):
        call(kvs)
    with pytest.raises(TypeError, match=r"encode it first"):
        kvs.get("text")


def test_length_is_refused_because_it_would_be_a_scan(kvs):
    with pytest.raises(TypeError, match="len"):
        len(kvs)
    assert kvs, "a KVS is true, empty or not"


def test_many_values_come_in_the_order_of_their_keys(kvs):
    kvs.update((b"%d" % n, b"v%d" % n) for n in range(3000))
    keys = [b"2999", b"none", b"0", b"2999"]
    assert kvs.get_many(keys) == [b"v2999", None, b"v0", b"v2999"]
    assert kvs.get_many(iter(keys)) == kvs.get_many(tuple(keys)) == kvs.get_many(keys)
    assert kvs.get_many([]) == []
    with pytest.raises(TypeError):
        kvs.get_many(7)


def test_update_takes_mappings_and_pairs(kvs):
    kvs.update({b"a": b"1", b"b": b"2"})
    kvs.update([(b"b", b"3"), (b"c", b"4")])
    kvs.update(kvs.items())
    kvs.update({})
    assert dict(kvs.items()) == {b"a": b"1", b"b": b"3", b"c": b"4"}
    with pytest.raises((TypeError, ValueError)):
        kvs.update([b"ab", b"c"])
    with pytest.raises(ZeroDivisionError):
        kvs.update((b"%d" % (1 // (5 - n)), b"") for n in range(9))


def test_first_and_last(kvs):
    assert kvs.is_empty() and kvs.first() is None and kvs.last() is None
    kvs.update({b"a": b"1", b"c": b"3", b"b": b"2"})
    assert not kvs.is_empty()
    assert kvs.first() == (b"a", b"1") and kvs.last() == (b"c", b"3")


def test_prefixes_and_ranges_are_deleted(kvs):
    rows = {b"%s/%d" % (kind, n): b"" for kind in (b"a", b"b", b"c") for n in range(5)}
    kvs.update(rows)
    kvs.delete_prefix(b"b/")
    assert [key for key in kvs if key.startswith(b"b")] == []
    kvs.delete_range(b"a/1", b"a/4")
    assert list(kvs.keys(prefix=b"a")) == [b"a/0", b"a/4"]
    kvs.delete_range(b"c/3")
    kvs.delete_range(stop=b"a/3")
    assert list(kvs) == [b"a/4", b"c/0", b"c/1", b"c/2"]
    kvs.clear()
    assert kvs.is_empty()


def test_compare_and_set(kvs):
    assert kvs.compare_and_set(b"k", None, b"1")
    assert not kvs.compare_and_set(b"k", None, b"2")
    assert not kvs.compare_and_set(b"k", b"0", b"2")
    assert kvs.compare_and_set(b"k", b"1", bytearray(b"2"))
    assert kvs[b"k"] == b"2"
    assert kvs.compare_and_set(b"k", b"2", None) and b"k" not in kvs


def test_options_of_a_kvs_change(db):
    kvs = db.create_kvs("options", policy="capacity-only", compression="lz4", ttl_ms=60_000)
    options = kvs.options()
    assert options["compression"] == "lz4" and options["ttl_ms"] == 60_000 and options["version"] == 1
    assert options["policy"] == "capacity-only"
    kvs.set_policy("staging-only")
    kvs.set_compression("zstd")
    kvs.set_ttl_ms(None)
    options = db.kvs("options").options()
    assert (options["policy"], options["compression"], options["ttl_ms"]) == ("staging-only", "zstd", None)
    assert kvs.metadata() == b""
    kvs.set_metadata(b"mine")
    assert kvs.metadata() == b"mine"
    for wrong in (
        lambda: kvs.set_policy("fastest"), lambda: kvs.set_compression("zip"), lambda: kvs.set_ttl_ms(0),
        lambda: kvs.set_metadata(bytes(5000)), lambda: db.create_kvs("x", compression="zip"),
    ):
        with pytest.raises(esker.InvalidError):
            wrong()


def test_values_expire(db):
    kvs = db.create_kvs("short", ttl_ms=50)
    kvs[b"k"] = b"v"
    time.sleep(0.1)
    assert b"k" not in kvs


def test_kvss_are_created_found_and_dropped(db):
    with pytest.raises(esker.NotFoundError, match="create it first"):
        db.kvs("users")
    users = db.kvs_or_create("users")
    assert users.name == "users" and repr(users).startswith("<esker.Kvs 'users' of ")
    with pytest.raises(esker.ExistsError):
        db.create_kvs("users")
    with pytest.raises(esker.InvalidError):
        db.create_kvs("a name")
    assert db.kvs_names() == ["users"]
    db.kvs("users")[b"k"] = b"v"
    assert users[b"k"] == b"v"
    db.drop_kvs("users")
    with pytest.raises(esker.ClosedError, match="dropped"):
        users[b"k"]
    with pytest.raises(esker.NotFoundError):
        db.drop_kvs("users")


def test_put_may_be_durable(kvs):
    kvs.put(b"k", b"v", durable=True)
    assert kvs[b"k"] == b"v"


@pytest.mark.parametrize("oversize", [
    lambda kvs: kvs.put(bytes(1345), b""), lambda kvs: kvs.put(b"k", bytes((1 << 20) + 1)),
    lambda kvs: kvs.delete_prefix(b""), lambda kvs: kvs.delete_range(b"b", b"a"),
    lambda kvs: kvs.update({bytes(1345): b""}),
])
def test_oversize_and_contradictions_are_invalid(kvs, oversize):
    with pytest.raises(esker.InvalidError):
        oversize(kvs)
    assert kvs.is_empty()
    assert kvs.get(bytes(5000)) is None, "a key that cannot be is not there"
