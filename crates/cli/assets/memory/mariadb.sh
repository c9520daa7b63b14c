# MariaDB with direct I/O in this folder: mariadb.sh prepare|renew|run POOL. The buffer pool has POOL; `run` prints sums of rows.
set -eu
step=$1 pool=$2
here=$PWD
ask() { mariadb --no-defaults --user=root --socket="$here/maria" -N -e "$1"; }
start() {
    mariadbd --no-defaults --user=root --datadir="$here/$1" --socket="$here/maria" --skip-networking \
        --innodb-flush-method=O_DIRECT --innodb-buffer-pool-size="$pool" --innodb-log-file-size=64M \
        --innodb-buffer-pool-load-at-startup=0 --innodb-buffer-pool-dump-at-shutdown=0 > maria.log 2>&1 &
    server=$!
    until ask 'select 1' > /dev/null 2>&1; do
        kill -0 $server 2> /dev/null || { tail -5 maria.log >&2; exit 1; }
        sleep 0.05
    done
}
stop() {
    ask shutdown
    wait $server
}
case $step in
prepare)
    rm -rf loaded
    mariadb-install-db --no-defaults --auth-root-authentication-method=normal --user=root --datadir="$here/loaded" \
        > install.log 2>&1
    start loaded
    ask "create database d; use d;
        create table t (n int primary key, k int, body varchar(900), key (k)) engine=innodb;
        insert into t select seq, seq * 7919 % 100003, repeat(md5(seq), 25) from seq_1_to_180000"
    stop
    ;;
renew)
    rm -rf data
    cp -a loaded data
    ;;
run)
    start data
    ask "use d;
        select count(*), sum(crc32(body)), sum(k) from t;
        select sum(crc32(t.body)) from seq_1_to_60000 s straight_join t on t.n = s.seq * 7919 % 179999 + 1;
        update t set k = k + 1 where n % 9 = 1;
        select count(*), sum(n) from t where k between 1000 and 3000;
        select sum(crc32(body)) from t where n % 7 = 3"
    stop
    ;;
esac
