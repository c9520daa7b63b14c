"""A table with popular and unpopular rows, and transactions on it: see `database`.

make FILE          makes the table
run FILE SECONDS   four processes run transactions; prints transactions a second, the 99th percentile in
                   milliseconds, and the count
"""

import bisect
import itertools
import multiprocessing
import random
import sqlite3
import sys
import time

ROWS = 1_500_000
FILLING = 380
PROCESSES = 4
# Popularity: the exponent of Zipf's law, over groups of rows that lie apart.
THETA = 0.99
GROUPS = 20_000


def make(path):
    db = sqlite3.connect(path)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = off")
    db.execute("create table t (id integer primary key, changes integer, filling blob)")
    fillings = (random.Random(1).randbytes(FILLING) for _ in range(ROWS))
    db.executemany("insert into t values (?, 0, ?)", ((n, f) for n, f in zip(range(ROWS), fillings)))
    db.commit()
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()


def keys(seed):
    """Keys by Zipf's law, whose popular ones lie all over the table."""
    rng = random.Random(seed)
    weights = list(itertools.accumulate(1 / rank**THETA for rank in range(1, GROUPS + 1)))
    while True:
        rank = bisect.bisect_left(weights, rng.random() * weights[-1])
        group = (rank * 7919 + 12345) % GROUPS
        yield group * (ROWS // GROUPS) + rng.randrange(ROWS // GROUPS)


def work(path, seed, end, answers):
    db = sqlite3.connect(path, timeout=120, isolation_level=None)
    db.execute("pragma synchronous = full")
    db.execute("pragma cache_size = -4000")
    key = keys(seed)
    spans = []
    while time.monotonic() < end:
        begin = time.monotonic()
        for _ in range(3):
            db.execute("select filling from t where id = ?", (next(key),)).fetchone()
        db.execute("update t set changes = changes + 1 where id = ?", (next(key),))
        spans.append(time.monotonic() - begin)
    answers.put(spans)


def run(path, seconds):
    answers = multiprocessing.Queue()
    seed = time.time_ns()
    begin = time.monotonic()
    processes = [
        multiprocessing.Process(target=work, args=(path, seed + n, begin + seconds, answers))
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    spans = sorted(span for _ in processes for span in answers.get())
    elapsed = time.monotonic() - begin
    for process in processes:
        process.join()
    p99 = spans[min(len(spans) - 1, len(spans) * 99 // 100)]
    print(f"{len(spans) / elapsed:.1f} {p99 * 1000:.1f} {len(spans)}")


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    run(sys.argv[2], float(sys.argv[3]))
