"""Queries of DuckDB on tables in memory."""
import duckdb

db = duckdb.connect(":memory:", config={"threads": 2})
# A query that lasts for more than two seconds would print its progress among the answers.
db.execute("set enable_progress_bar = false")
db.execute("create table t as select range as id, hash(range) % 1000 as k, "
           "md5(range::varchar) as v, repeat(md5((range * 7)::varchar), 2) as w from range(2000000)")
for query in [
    "select count(*), sum(id), min(v), max(w) from t",
    "select k, count(*), max(v) from t group by k order by k limit 5",
    "select count(*) from t a join t b on a.id = b.id + 1 where a.k = b.k",
    "select id, v from t order by v limit 5",
]:
    print(db.execute(query).fetchall())
