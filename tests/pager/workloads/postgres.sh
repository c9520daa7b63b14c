#!/usr/bin/env bash
# A server of PostgreSQL with small shared buffers and much work_mem, which sorts, hashes and joins: postgres.sh DIRECTORY.
# It listens on a socket in the directory. As its user; root is refused by initdb.

set -euo pipefail
directory=$1/$$
bin=$(pg_config --bindir 2> /dev/null || dirname "$(readlink -f "$(command -v postgres)")")
mkdir "$directory"
trap 'rm -rf "$directory"' EXIT
"$bin/initdb" --no-sync -A trust -U postgres -E UTF8 --locale C -D "$directory/data" > "$directory/initdb.log"
"$bin/pg_ctl" -D "$directory/data" -l "$directory/log" -w -s -o "-c listen_addresses= -k $directory -c shared_buffers=8MB \
    -c work_mem=1GB -c maintenance_work_mem=256MB -c fsync=off -c max_parallel_workers_per_gather=0 -c jit=off" start
trap '"$bin/pg_ctl" -D "$directory/data" -s -m immediate stop || true; rm -rf "$directory"' EXIT
"$bin/psql" -h "$directory" -U postgres -X -q -A -t -v ON_ERROR_STOP=1 postgres << 'QUERIES'
create unlogged table rows as select i as id, i::bigint * 7919 % 500009 as key,
    repeat('x', 280 + i % 40) || i as text from generate_series(1, 400000) i;
set hash_mem_multiplier = 4;
select count(*), sum(length(text)), max(text) from (select text from rows order by id + key % 1000 offset 10) t;
select count(*), sum(n), max(total) from (select key % 20011, count(*) n, sum(id) total from rows group by 1) t;
select sum(a.id::bigint * b.key % 997) from rows a join rows b on a.key = b.id where b.id < 100000;
create index by_text on rows (text, id);
select count(*), sum(place * id % 1009) from (select id, row_number() over (order by key % 7, id) place from rows) t;
QUERIES
"$bin/pg_ctl" -D "$directory/data" -s -m fast stop
