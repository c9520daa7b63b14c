"""A database in memory with an index that is built late, joins, updates and sorting."""
import sqlite3

base = sqlite3.connect(":memory:")
base.execute("create table rows (id integer primary key, key integer, text text)")
base.execute("""with recursive n(i) as (select 1 union all select i + 1 from n where i < 250000)
    insert into rows select i, i * 7919 % 1000003, printf('%.*c %d', 240 + i % 100, 'x', i) from n""")
base.execute("create index by_key on rows (key)")
base.execute("update rows set text = text || '-changed' where key % 5 = 0")
base.execute("delete from rows where key % 11 = 0")
for query in ("select count(*), sum(length(text)), sum(key * id % 1009) from rows",
              "select sum(a.key * b.id % 997) from rows a join rows b on b.key = a.key + 1",
              "select key, id from rows order by key limit 3 offset 100000",
              "select count(distinct substr(text, -6)) from rows"):
    print(base.execute(query).fetchall())
