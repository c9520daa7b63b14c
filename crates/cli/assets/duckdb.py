"""Scans and lookups of DuckDB in a table in memory: name, seconds and answer of each, told apart by tabs."""
import hashlib
import sys
import time

import duckdb

rows = int(sys.argv[1])
# Its own limit is far away: what pages is the machine, or the pager, and not DuckDB.
db = duckdb.connect(":memory:", config={"threads": 2, "memory_limit": "64GB"})
# A query that lasts for more than two seconds would print its progress among the answers.
db.execute("set enable_progress_bar = false")


def timed(name, work):
    began = time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - began
    print(name, seconds, hashlib.sha256(repr(answer).encode()).hexdigest(), sep="\t", flush=True)


def query(text):
    return lambda: db.execute(text).fetchall()


timed("load", query(
    "create table t as select range as id, hash(range) % 1000 as k, md5(range::varchar) as v, "
    f"repeat(md5((range * 7)::varchar), 2) as w from range({rows})"))
timed("scan of all columns", query("select count(*), sum(id), min(v), max(w) from t"))
timed("scan of one column", query("select sum(k) from t where id % 3 = 0"))
db.execute("create index i on t (id)")
timed("300 lookups by index", lambda: [
    db.execute(f"select v, w from t where id = {n * 6661 % rows}").fetchall() for n in range(300)])
