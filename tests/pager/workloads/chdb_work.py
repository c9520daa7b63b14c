"""ClickHouse in this process: a table in memory that is grouped, joined and sorted."""
from chdb import session

base = session.Session()
base.query("create database d")
base.query("create table d.rows engine = Memory as select number as id, number * 7919 % 500009 as key, "
           "concat('row ', toString(number % 100003)) as text from numbers(1500000)")
for query in ("select count(), sum(id), sum(key) from d.rows",
              "select count(), sum(n), max(total) from (select key, count() n, sum(id) total from d.rows group by key)",
              "select text, count(), sum(key) s from d.rows group by text order by s desc, text limit 3",
              "select key, id from d.rows order by key, id limit 3 offset 700000",
              "select sum(a.id * b.key % 997) from d.rows a join d.rows b on a.key = b.id"):
    print(base.query(query, "CSV"), flush=True)
