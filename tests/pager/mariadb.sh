#!/usr/bin/env bash
# MariaDB with direct I/O into a buffer pool of one and a half times its memory, which its heap needs too: mariadb.sh ESKER DIRECTORY.
#
# Every page that is read has a checksum, which MariaDB checks; sums of all rows are compared too.
set -euo pipefail
esker=$1 work=$2
data=$work/data socket=$work/socket
# Its own user: as root it demands --user.
chmod 777 "$work"
mariadb-install-db --no-defaults --auth-root-authentication-method=normal --user=root --datadir="$data" \
    > "$work/install" 2>&1
server=(mariadbd --no-defaults --user=root --datadir="$data" --socket="$socket" --skip-networking
    --innodb-flush-method=O_DIRECT --innodb-buffer-pool-size=48M --innodb-log-file-size=32M
    --innodb-buffer-pool-load-at-startup=0 --innodb-buffer-pool-dump-at-shutdown=0)
ask() { mariadb --no-defaults --socket="$socket" -N -e "$1"; }
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2> /dev/null || true' EXIT
start() {
    "$@" > "$work/log" 2>&1 &
    pid=$!
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        ! ask 'select 1' > /dev/null 2>&1 || return 0
        kill -0 "$pid" 2> /dev/null || break
        sleep 0.1
    done
    cat "$work/log"
    exit 1
}
stop() {
    ask 'shutdown'
    wait "$pid"
    pid=
}
sums='select count(*), sum(crc32(body)), sum(n) from d.t; select sum(crc32(body)) from d.t where n % 7 = 3'
start "${server[@]}"
ask "create database d; create table d.t (n int primary key, k int, body varchar(900), key (k)) engine=innodb;
    insert into d.t select seq, seq * 7919 % 100003, repeat(md5(seq), 25) from d.seq_1_to_50000" 2> /dev/null ||
    ask "create table d.t (n int primary key, k int, body varchar(900), key (k)) engine=innodb;
    insert into d.t select seq, seq * 7919 % 100003, repeat(md5(seq), 25) from seq_1_to_50000" 2> /dev/null ||
    ask "use d; insert into d.t select seq, seq * 7919 % 100003, repeat(md5(seq), 25) from seq_1_to_50000"
ask "$sums" > "$work/expected"
stop
start "$esker" run --memory 32MiB --swap temp:1GiB -- "${server[@]}"
for round in 1 2; do
    ask "$sums" > "$work/found"
    cmp "$work/expected" "$work/found"
    ask "update d.t set k = k + 1 where n % 3 = $round; select sum(k) from d.t where k between 1000 and 5000" > /dev/null
done
ask 'check table d.t extended' | tee "$work/check"
grep -q 'status.*OK' "$work/check"
stop
! grep -iE 'corrupt|checksum' "$work/log"
grep -E '[1-9][0-9.]* [MG]iB evicted' "$work/log"
