"""A table in memory that is joined, grouped by many keys, sorted and updated."""
import duckdb

base = duckdb.connect(config={"threads": 2, "memory_limit": "4GB"})
base.execute("create table rows as select i as id, i * 7919 % 500009 as key, 'row ' || (i * 31 % 100003) as text, "
             "hash(i) as noise from range(3000000) t(i)")
base.execute("update rows set id = id + 1 where key % 10 = 0")
for query in ("select count(*), sum(id), sum(noise % 1009) from rows",
              "select count(*), sum(n), max(total) from (select key, count(*) n, sum(id) total from rows group by key)",
              "select text, count(*), sum(key) from rows group by text order by 3 desc, 1 limit 3",
              "select sum(a.id * b.key % 997) from rows a join rows b on a.key = b.id",
              "select id, key from rows order by noise limit 3 offset 1500000"):
    print(base.execute(query).fetchall())
