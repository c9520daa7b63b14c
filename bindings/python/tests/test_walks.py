"""Walks go both ways over ranges and prefixes, as the KVS was when they began."""

import random
import threading

import pytest

import esker


@pytest.fixture
def letters(kvs):
    kvs.update({bytes([letter]): b"v" + bytes([letter]) for letter in b"abcdefgh"})
    return kvs


@pytest.mark.parametrize("bounds, keys", [
    ({}, b"abcdefgh"), ({"start": b"c"}, b"cdefgh"), ({"stop": b"c"}, b"ab"), ({"start": b"c", "stop": b"e"}, b"cd"),
    ({"start": b"c", "stop": b"c"}, b""), ({"start": b"e", "stop": b"c"}, b""), ({"start": b"c\0"}, b"defgh"),
    ({"prefix": b"d"}, b"d"), ({"prefix": b""}, b"abcdefgh"), ({"prefix": b"x"}, b""), ({"limit": 3}, b"abc"),
    ({"limit": 0}, b""), ({"start": b"g", "limit": 99}, b"gh"),
])
def test_range_or_prefix_has_its_keys_both_ways(letters, bounds, keys):
    wanted = [bytes([key]) for key in keys]
    rows = [(key, b"v" + key) for key in wanted]
    assert list(letters.items(**bounds)) == rows
    assert list(letters.keys(**bounds)) == wanted
    assert list(letters.values(**bounds)) == [value for _, value in rows]
    limit = bounds.get("limit")
    whole = dict(bounds)
    whole.pop("limit", None)
    backwards = [key for key, _ in letters.items(**whole)][::-1][:limit]
    assert list(letters.keys(**bounds, reverse=True)) == backwards
    assert [key for key, _ in letters.items(**bounds, reverse=True)] == backwards
    assert [value[1:] for value in letters.values(**bounds, reverse=True)] == backwards


def test_iteration_is_over_keys(letters):
    assert list(letters) == [bytes([key]) for key in b"abcdefgh"]
    assert list(reversed(letters)) == list(letters)[::-1]


def test_prefix_and_bounds_exclude_each_other(letters):
    with pytest.raises(ValueError, match="either a prefix or bounds"):
        letters.items(b"a", prefix=b"a")
    with pytest.raises(TypeError):
        letters.items(b"a", b"b", b"c")
    with pytest.raises(OverflowError):
        letters.items(limit=-1)


def test_walks_agree_with_a_sorted_dict(db):
    rng, kvs, oracle = random.Random(1), db.kvs_or_create("oracle"), {}
    for n in range(20_000):
        key = rng.randbytes(rng.randrange(1, 4))
        if rng.random() < 0.3:
            kvs.delete(key)
            oracle.pop(key, None)
        else:
            kvs[key] = oracle[key] = rng.randbytes(rng.randrange(200))
        if n % 7000 == 6999:
            db.ingest()
    rows = sorted(oracle.items())
    assert list(kvs.items()) == rows
    assert list(kvs.items(reverse=True)) == rows[::-1]
    for _ in range(200):
        start, stop = sorted(rng.randbytes(2) for _ in range(2))
        wanted = [row for row in rows if start <= row[0] < stop]
        assert list(kvs.items(start, stop)) == wanted
        assert list(kvs.items(start, stop, reverse=True, limit=7)) == wanted[::-1][:7]
        assert list(kvs.keys(prefix=start[:1])) == [key for key, _ in rows if key[:1] == start[:1]]


def test_rows_longer_than_what_is_read_at_once(kvs):
    rows = [(b"%03d" % n, bytes([n]) * 300_000) for n in range(20)]
    kvs.update(rows)
    assert list(kvs.items()) == rows
    assert list(kvs.items(reverse=True)) == rows[::-1]


def test_walk_sees_the_moment_of_its_beginning(letters):
    walk = letters.items()
    letters.clear()
    letters[b"z"] = b"new"
    assert len(list(walk)) == 8
    assert list(letters) == [b"z"]


def test_walk_ends_once_and_for_all(letters):
    walk = letters.keys(limit=2)
    assert iter(walk) is walk
    assert list(walk) == [b"a", b"b"]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(walk)


def test_closed_walk_has_no_rows_and_keeps_no_data(db, letters):
    letters.update((b"more%d" % n, b"") for n in range(100))
    with letters.items() as walk:
        next(walk)
        assert db.stats()["readers"]["cursors"]["open"] == 1
    assert list(walk) == []
    assert db.stats()["readers"]["cursors"]["open"] == 0
    walk.close()
    walk = letters.items()
    list(walk)
    assert db.stats()["readers"]["cursors"]["open"] == 0, "a walk that has ended keeps nothing"


def test_threads_share_a_walk(db):
    kvs = db.kvs_or_create("shared")
    kvs.update((b"%06d" % n, bytes(100)) for n in range(50_000))
    walk, taken = kvs.keys(), [[] for _ in range(4)]

    def take(mine):
        mine.extend(walk)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key for mine in taken for key in mine) == [b"%06d" % n for n in range(50_000)]
    assert all(mine == sorted(mine) for mine in taken)


def test_walk_of_a_closed_kvdb_is_refused(path):
    db = esker.open(path)
    kvs = db.kvs_or_create("rows")
    kvs.update((b"%03d" % n, b"") for n in range(100))
    walk = kvs.items()
    next(walk)
    db.close()
    for _ in range(2):
        with pytest.raises(esker.ClosedError):
            next(walk), "rows that were read ahead are no exception"
    with pytest.raises(esker.ClosedError):
        kvs.items()
