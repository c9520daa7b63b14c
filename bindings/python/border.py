#!/usr/bin/env python3
"""What a call from Python costs beside the same call in Rust: on one KVS in the same process, by one thread.

    border.py [--rows N] [--rounds N] [--dir DIRECTORY]

Rows have keys of 12 bytes and values of 1,000 bytes, and lie in DRAM. Rounds take turns, Rust first. Of the rounds the
lower quartile is shown, in nanoseconds for each row, for other programs of the machine only add to it. A round in Python
counts its own loop. The module has to be built with the feature `measure`: `bindings/python/measure border` does all.
"""

import argparse
import collections
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import esker
from esker import _esker

MANY = 100
LIMITS = {"get": 300, "put": 200, "get_many": 400, "items": 400}


def timed(work):
    began = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - began


def consume(iterator):
    collections.deque(iterator, maxlen=0)


def gets(kvs, keys):
    get = kvs.get
    for key in keys:
        get(key)


def puts(kvs, keys, value):
    put = kvs.put
    for key in keys:
        put(key, value)


def many(kvs, keys):
    get_many = kvs.get_many
    for at in range(0, len(keys), MANY):
        get_many(keys[at:at + MANY])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--dir", help="where the KVDB lies; default: the system's directory for temporary files")
    arguments = parser.parse_args()
    if not hasattr(_esker, "measure_get"):
        sys.exit("the module lacks the loops in Rust: build it with `maturin develop --release --features measure`")
    scratch = Path(tempfile.mkdtemp(prefix="esker-border.", dir=arguments.dir))
    try:
        with esker.open(scratch / "db") as db:
            missed = measure(db, arguments)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if missed:
        sys.exit(f"over its limit: {', '.join(missed)}")


def measure(db, arguments):
    """Prints the table, and returns the operations that are over their limits."""
    kvs, written = db.kvs_or_create("rows"), db.kvs_or_create("written")
    value = random.Random(1).randbytes(1000)
    keys = [b"key%09d" % n for n in range(arguments.rows)]
    kvs.update((key, value) for key in keys)
    # A round is short, so that both languages meet the same load of the machine; all puts fit into one memtable.
    part = random.Random(2).sample(keys, min(len(keys), 2000))
    few = part[:400]
    rounds = {
        "get": (part, lambda: _esker.measure_get(kvs, part), lambda: timed(lambda: gets(kvs, part))),
        "put": (few, lambda: _esker.measure_put(written, few, value), lambda: timed(lambda: puts(written, few, value))),
        "get_many": (part, lambda: _esker.measure_get_many(kvs, part, MANY), lambda: timed(lambda: many(kvs, part))),
        "items": (keys, lambda: _esker.measure_scan(kvs)[0], lambda: timed(lambda: consume(kvs.items()))),
    }
    loop = min(timed(lambda: [None for _ in keys]) for _ in range(5)) / len(keys)
    print("| operation | Rust, ns | Python, ns | over Rust, ns | limit, ns |")
    print("| --- | ---: | ---: | ---: | ---: |")
    missed = []
    for name, (rows, rust, python) in rounds.items():
        took = [[], []]
        for _ in range(arguments.rounds):
            took[0].append(rust() / len(rows))
            took[1].append(python() / len(rows))
        rust_ns, python_ns = (statistics.quantiles(one, n=4)[0] for one in took)
        over = python_ns - rust_ns
        print(f"| `{name}` | {rust_ns:.0f} | {python_ns:.0f} | {over:.0f} | {LIMITS[name]} |")
        if over > LIMITS[name]:
            missed.append(name)
    release = min(_esker.measure_release(100_000) for _ in range(5)) / 100_000
    print(f"\nAn empty loop of Python takes {loop:.0f} ns, a release of the GIL {release:.0f} ns.")
    return missed


if __name__ == "__main__":
    main()
