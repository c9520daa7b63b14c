"""Scans, sums and lookups of DuckDB in a table in memory, each with its time."""
import hashlib
import time

import duckdb

# Without this, DuckDB keeps below the limit of a memory cgroup by itself, and writes files of its own.
db = duckdb.connect(":memory:", config={"threads": 2, "memory_limit": "64GB"})
# A query that lasts for more than two seconds would print its progress among the answers.
db.execute("set enable_progress_bar = false")
began = time.time()


def run(name, query):
    global began
    began = time.time()
    answer = db.execute(query).fetchall()
    print(f"{name}\t{time.time() - began}\t{answer}", flush=True)


run("DuckDB load, s", "create table t as select range as id, hash(range) % 1000 as k, "
    "md5(range::varchar) as v, repeat(md5((range * 7)::varchar), 2) as w from range(2000000)")
run("DuckDB scan of all columns, s", "select count(*), sum(id), min(v), max(w) from t")
run("DuckDB scan of one column, s", "select sum(k) from t where id % 3 = 0")
run("DuckDB scan of two columns, s", "select count(*), max(length(v)) from t where w > 'f'")
run("DuckDB group, s", "select k, count(*), max(v) from t group by k order by k limit 5")
db.execute("create index i on t (id)")
began = time.time()
answers = [db.execute(f"select v, w from t where id = {n * 6661 % 2000000}").fetchall() for n in range(300)]
digest = hashlib.sha256(repr(answers).encode()).hexdigest()
print(f"DuckDB 300 lookups by index, s\t{time.time() - began}\t{digest}")
