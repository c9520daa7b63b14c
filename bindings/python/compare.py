#!/usr/bin/env python3
"""Esker, RocksDB (rocksdict) and LevelDB (plyvel) from Python: the same loads, by one thread.

    compare.py [--rows N] [--rounds N] [--memory MIB] [--seconds S] [--dir DIRECTORY]

    pip install ./bindings/python rocksdict plyvel

Rows have keys of 16 bytes and incompressible values of 1,000 bytes. Each engine runs in a process of its own, and engines
take turns in each round; medians of the rounds are shown, in thousand rows a second (scans: thousand scans of 50 rows).
Between loads an engine may finish the maintenance that is due.

    load      puts in random order
    batches   puts in atomic batches of 100
    A         half reads, half updates, keys Zipf-distributed (0.99)
    C         reads, keys Zipf-distributed
    multi-get reads of 100 uniform keys at a time; LevelDB has no such call, so it reads one by one
    scans     50 rows each, from uniform keys

Memory: Esker's budget covers everything. RocksDB has three quarters of it as block cache and two write buffers of 64 MiB;
LevelDB three quarters as block cache and a write buffer of 64 MiB. Both read through the page cache, which is beyond that.
Compression is off. Nobody waits for the device: RocksDB and LevelDB write their logs without a sync, and Esker makes writes
durable within 100 ms.
"""

import argparse
import bisect
import itertools
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENGINES = ["esker", "rocksdict", "plyvel"]
LOADS = ["load", "batches", "A", "C", "multi-get", "scans"]
BATCH, SCAN = 100, 50


def key_of(number):
    return b"user%012d" % number


def zipf(rng, count, samples, theta=0.99):
    """Numbers below `count`, of which the first ones are frequent, spread over all keys."""
    total, sums = 0.0, []
    for rank in range(1, count + 1):
        total += rank ** -theta
        sums.append(total)
    return [bisect.bisect_left(sums, rng.random() * total) * 7919 % count for _ in range(samples)]


class Esker:
    def __init__(self, path, memory):
        import esker

        self.db = esker.open(path, memory_bytes=memory)
        self.kvs = self.db.kvs_or_create("rows")
        self.get, self.put, self.multi_get = self.kvs.get, self.kvs.put, self.kvs.get_many

    def write_batch(self, rows):
        with self.db.batch() as batch:
            put, kvs = batch.put, self.kvs
            for key, value in rows:
                put(kvs, key, value)

    def scan(self, start):
        return list(self.kvs.items(start, limit=SCAN))

    def settle(self):
        self.db.settle()

    def close(self):
        self.db.close()


class Rocksdict:
    def __init__(self, path, memory):
        import rocksdict

        self.module = rocksdict
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(memory * 3 // 4))
        table.set_bloom_filter(10, False)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        options.set_write_buffer_size(64 << 20)
        options.set_max_background_jobs(2)
        self.db = rocksdict.Rdict(str(path), options)
        self.get, self.put, self.multi_get = self.db.get, self.db.put, self.db.get

    def write_batch(self, rows):
        batch = self.module.WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self.db.write(batch)

    def scan(self, start):
        return list(itertools.islice(self.db.items(from_key=start), SCAN))

    def settle(self):
        while any(self.db.property_int_value(f"rocksdb.{what}") for what in (
            "mem-table-flush-pending", "num-running-flushes", "compaction-pending", "num-running-compactions",
        )):
            time.sleep(0.05)

    def close(self):
        self.db.close()


class Plyvel:
    def __init__(self, path, memory):
        import plyvel

        self.db = plyvel.DB(
            str(path), create_if_missing=True, compression=None, lru_cache_size=memory * 3 // 4,
            write_buffer_size=64 << 20, bloom_filter_bits=10, max_open_files=4000,
        )
        self.get, self.put = self.db.get, self.db.put

    def multi_get(self, keys):
        get = self.db.get
        return [get(key) for key in keys]

    def write_batch(self, rows):
        with self.db.write_batch() as batch:
            for key, value in rows:
                batch.put(key, value)

    def scan(self, start):
        with self.db.iterator(start=start) as iterator:
            return list(itertools.islice(iterator, SCAN))

    def settle(self):
        # It does not tell whether it compacts: time enough for what is due after such a load.
        time.sleep(3)

    def close(self):
        self.db.close()


def rate(work, things, seconds):
    """Things a second of a loop over them, which ends after some seconds."""
    began, done, clock = time.perf_counter(), 0, time.perf_counter
    for thing in things:
        work(thing)
        done += 1
        if done % 64 == 0 and clock() - began > seconds:
            break
    return done / (clock() - began)


def run(name, path, rows, memory, seconds):
    """One round of an engine, in this process: prints its figures."""
    rng = random.Random(1)
    values = [rng.randbytes(1000) for _ in range(1000)]
    order = list(range(rows))
    rng.shuffle(order)
    # No load is longer than that.
    many = min(int(400_000 * seconds), 4_000_000)
    frequent = [key_of(number) for number in zipf(rng, rows, min(many, 400_000))]
    uniform = [key_of(rng.randrange(rows)) for _ in range(min(many, 400_000))]
    engine, figures = {"esker": Esker, "rocksdict": Rocksdict, "plyvel": Plyvel}[name](path, memory), {}
    try:
        put, get = engine.put, engine.get

        def put_one(number):
            put(key_of(number), values[number % 1000])

        figures["load"] = rate(put_one, order, float("inf"))
        engine.settle()

        def read(key):
            if get(key) is None:
                sys.exit(f"{name} lost {key}")

        def read_or_update(turn):
            if turn[0]:
                read(turn[1])
            else:
                put(turn[1], values[7])

        turns = [(rng.random() < 0.5, key) for key in frequent]
        # Warm caches, as a program that runs for long has them.
        rate(read, [key_of(number) for number in order], 3 * seconds)
        figures["C"] = rate(read, itertools.cycle(frequent), seconds)
        figures["A"] = rate(read_or_update, itertools.cycle(turns), seconds)
        engine.settle()

        parts = [uniform[at:at + BATCH] for at in range(0, len(uniform), BATCH)]

        def read_many(keys):
            if None in engine.multi_get(keys):
                sys.exit(f"{name} lost a key")

        figures["multi-get"] = BATCH * rate(read_many, itertools.cycle(parts), seconds)

        def scan(start):
            engine.scan(start)

        figures["scans"] = rate(scan, itertools.cycle(uniform), seconds)
        batches = [[(key, values[n]) for n, key in enumerate(part)] for part in parts]
        figures["batches"] = BATCH * rate(engine.write_batch, itertools.cycle(batches), seconds)
    finally:
        engine.close()
    figures["resident"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps(figures))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=1024, help="in MiB")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load but the first")
    parser.add_argument("--dir", help="where databases lie; default: the system's directory for temporary files")
    parser.add_argument("--run", nargs=2, metavar=("ENGINE", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    memory = arguments.memory << 20
    if arguments.run:
        run(arguments.run[0], Path(arguments.run[1]), arguments.rows, memory, arguments.seconds)
        return
    scratch = Path(tempfile.mkdtemp(prefix="esker-compare.", dir=arguments.dir))
    rounds = {name: [] for name in ENGINES}
    try:
        for number, name in itertools.product(range(arguments.rounds), ENGINES):
            path = scratch / f"{name}-{number}"
            command = [sys.executable, __file__, "--run", name, str(path)]
            for option in ("rows", "memory", "seconds"):
                command += [f"--{option}", str(getattr(arguments, option))]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(f"{name}: exit code {done.returncode}; install what is missing: pip install rocksdict plyvel")
            rounds[name].append(json.loads(done.stdout))
            shutil.rmtree(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("| | Esker | rocksdict | plyvel |")
    print("| --- | ---: | ---: | ---: |")
    for load in LOADS:
        cells = [f"{statistics.median(one[load] for one in rounds[name]) / 1000:.3g}" for name in ENGINES]
        print(f"| {load} | {' | '.join(cells)} |")
    cells = [f"{statistics.median(one['resident'] for one in rounds[name]):.0f}" for name in ENGINES]
    print(f"| most resident memory, MiB | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
