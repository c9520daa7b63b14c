# The server is killed under load.
# shellcheck shell=bash disable=SC2154

# commits DATABASE: a transaction for each number, and the number noted once it is committed. With a journal
# that is deleted, synchronous=full does not say that the deletion is durable; with a log it says that the
# commit is (sqlite.org/pragma.html).
commits() {
    local n=0
    sqlite3 "$1" 'pragma journal_mode = wal; create table if not exists t (n integer primary key, filling blob);' > /dev/null
    while :; do
        n=$((n + 1))
        sqlite3 -cmd 'pragma synchronous = full' "$1" "insert into t values ($n, randomblob(3000));" || return 0
        echo "$n" >> "$check/committed"
    done
}

# writes DIRECTORY: files that come and go.
writes() {
    local n=0
    while :; do
        n=$((n + 1))
        head -c $((n * 7919 % 300000)) /dev/urandom > "$1/f$((n % 40))" || return 0
        [ $((n % 10)) != 0 ] || sync -f "$1" || return 0
    done
}

committed() { # committed COUNT: whether so many transactions are
    [ "$(wc -l < "$check/committed")" -ge "$1" ]
}

# sound ext4|xfs: the file system on $loop is, and the database has every committed transaction.
sound() {
    # Mounting replays the journal; after that nothing may be wrong.
    mount_fs "$loop"
    umount_fs
    examine "$1" "$loop"
    mount_fs "$loop"
    local last
    last=$(tail -n 1 "$check/committed")
    [ "$(sqlite3 "$check/files/db" 'pragma integrity_check')" = ok ]
    [ "$(sqlite3 "$check/files/db" "select count(*) from t where n <= $last")" = "$last" ] ||
        die "of $last committed transactions some are gone"
    umount_fs
}

# survives SPEC ext4|xfs
survives() {
    local round
    attach "$1" --loop
    make_fs "$2" "$loop"
    for round in 1 2; do
        mount_fs "$loop"
        rm -f "$check/files/db"*
        : > "$check/committed"
        commits "$check/files/db" > /dev/null 2>&1 &
        local committing=$!
        writes "$check/files" > /dev/null 2>&1 &
        local writing=$!
        until_true 'transactions are committed' committed $((40 * round))
        crash "$committing" "$writing"
        attach "$1" --loop
        sound "$2"
        echo "round $round: $(wc -l < "$check/committed") transactions"
    done
    detach
}

check_ext4_and_sqlite_survive_a_killed_server() {
    sparse 512m
    survives "$check/disk" ext4
    e2fsck -fn "$check/disk"
}

check_xfs_and_sqlite_survive_a_killed_server() {
    sparse 512m
    survives "$check/disk" xfs
    xfs_repair -n "$check/disk"
}
