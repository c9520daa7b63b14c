"""A database in memory, about 60 MB of it."""
import hashlib
import random
import sqlite3

random.seed(7)
db = sqlite3.connect(":memory:")
db.execute("create table t (id integer primary key, k integer, v blob)")
rows = ((n, random.randrange(1000), random.randbytes(900)) for n in range(60_000))
db.executemany("insert into t values (?, ?, ?)", rows)
db.execute("create index i on t (k)")
digest = hashlib.sha256()
for n in (random.randrange(60_000) for _ in range(3000)):
    digest.update(db.execute("select v from t where id = ?", (n,)).fetchone()[0])
print("random", digest.hexdigest())
db.execute("update t set v = cast(substr(v, 2) as blob) where id % 7 = 0")
digest = hashlib.sha256()
for row in db.execute("select id, k, v from t order by id"):
    digest.update(repr(row).encode())
print("all", digest.hexdigest())
print(db.execute("select count(*), sum(k), sum(length(v)) from t where k < 100").fetchone())
print(db.execute("pragma integrity_check").fetchone()[0])
