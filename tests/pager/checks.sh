# The checks. Sourced by run, with $here and $root set; $check is the directory of the present check.
# shellcheck shell=bash

skip() {
    echo "$*" > "$check/skipped"
    exit "$SKIPPED"
}

die() {
    echo "$*" >&2
    exit 1
}

# paged BUDGET SLOW PROGRAM...: runs a program with that much memory.
paged() {
    local budget=$1 slow=$2
    shift 2
    "$BIN/esker" run --memory "$budget" --swap "temp:$slow" -- "$@"
}

# need TOOL PACKAGE: installs a tool if it can.
need() {
    command -v "$1" > /dev/null && return
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
        --no-install-recommends "$2"; } > /dev/null 2>&1 < /dev/null || skip "install $2 first"
}

# refused TEXT COMMAND...: the command fails with a message that has the text.
refused() {
    local text=$1 message
    shift
    message=$("$@" 2>&1) && die "it was not refused: $*"
    grep -qF -- "$text" <<< "$message" || die "'$text' is not in: $message"
}

check_refusals() {
    refused 'does-not-exist' "$BIN/esker" run --memory 64MiB --swap "$check/does-not-exist" -- true
    [ ! -e "$check/does-not-exist" ] || die 'a device was made'
    refused 'give 4MiB or more' paged 1MiB 64MiB true
    refused 'no such program' paged 64MiB 256MiB no-such-program-here
    cp /bin/true "$check/setuid"
    chmod u+s "$check/setuid"
    refused 'setuid' paged 64MiB 256MiB "$check/setuid"
    local status=0
    paged 64MiB 256MiB sh -c 'exit 7' || status=$?
    [ "$status" = 7 ] || die "the exit code was $status"
    # Without the privilege: the reason and the cure.
    if [ "$(cat /proc/sys/vm/unprivileged_userfaultfd)" = 0 ] && command -v setpriv > /dev/null; then
        chmod 755 "$check"
        refused 'CAP_SYS_PTRACE' setpriv --reuid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
            "$BIN/esker" run --memory 64MiB --swap temp:256MiB -- true
    fi
}

# The program ends as it would; the failure of its swap is said all the same.
check_swap_that_cannot_be_closed() {
    ln -s /dev/full "$check/trace"
    "$BIN/esker" run --quiet --memory 64MiB --swap "traced:(mem:256MiB)?to=$check/trace&if-exists=replace" -- \
        sh -c 'exit 7' 2> "$check/said" && die 'the exit code is not the program'"'"'s'
    local tries
    for tries in $(seq 50); do
        ! grep -q 'No space left' "$check/said" || return 0
        sleep 0.1
    done
    die "after $tries looks it had said: $(cat "$check/said")"
}

check_signals() {
    command -v gcc > /dev/null || need gcc gcc
    gcc -Wall -Wextra -Werror -O1 -o "$check/daemon-program" "$here/daemon.c"
    python3 "$here/signals.py" "$BIN/esker" "$check" "$check/daemon-program"
}

check_mappings() {
    # Only the mappings are paged, not the copies.
    "$BIN/esker" run --memory 12MiB --swap temp:1GiB --allocator own -- \
        python3 "$here/mappings.py" "${STEPS:-800}" "${SEED:-1}"
    # The same without a pager, so that the program itself is known to be right.
    python3 "$here/mappings.py" 300 1
}

# Random calls that change memory, made without the C library; then the same in a program that loads no libraries.
check_calls() {
    command -v gcc > /dev/null || need gcc gcc
    local seed linked
    gcc -Wall -Wextra -Werror -O1 -o "$check/calls" "$here/calls.c"
    gcc -Wall -Wextra -Werror -O1 -static -o "$check/calls-static" "$here/calls.c"
    # Without a pager, so that the program itself is known to be right.
    "$check/calls" 4000 1
    for ((seed = ${SEED:-1}; seed < ${SEED:-1} + ${SEEDS:-2}; seed++)); do
        for linked in calls calls-static; do
            paged "$((8 + seed * 7 % 40))MiB" 1GiB "$check/$linked" "${STEPS:-2000}" "$seed"
        done
    done
}

check_arena() {
    command -v gcc > /dev/null || need gcc gcc
    gcc -Wall -Wextra -Werror -I "$root/bindings/c/include" -o "$check/arena" "$here/arena.c" "$BIN/libesker.a" -lm
    truncate -s 64M "$check/device"
    "$check/arena" "$check/device"
}

check_redis() {
    need redis-server redis-server
    python3 "$here/servers.py" redis "$BIN/esker" "$check" 64 "${RECORDS:-200000}"
}

check_memcached() {
    need memcached memcached
    python3 "$here/servers.py" memcached "$BIN/esker" "$check" 64 "${RECORDS:-200000}"
}

check_sqlite() {
    python3 "$here/sqlite.py" > "$check/plain"
    paged 12MiB 1GiB python3 "$here/sqlite.py" > "$check/paged"
    cat "$check/paged"
    cmp "$check/plain" "$check/paged"
}

check_duckdb() {
    local venv=${DUCKDB_VENV:-$check/venv}
    if [ ! -x "$venv/bin/python" ]; then
        { python3 -m venv "$venv" && timeout 100 "$venv/bin/pip" install -q duckdb; } > /dev/null 2>&1 ||
            skip 'DuckDB cannot be installed here'
    fi
    "$venv/bin/python" "$here/duck.py" > "$check/plain"
    paged 64MiB 2GiB "$venv/bin/python" "$here/duck.py" > "$check/paged"
    cat "$check/paged"
    cmp "$check/plain" "$check/paged"
}

# The command says if paging works here, without a program and with one.
check_check() {
    "$BIN/esker" run --check true > "$check/said"
    grep -q '^paging .*works' "$check/said" || die "$(cat "$check/said")"
    grep -q '^program .*/true: runs' "$check/said" || die "$(cat "$check/said")"
    refused 'no such program' "$BIN/esker" run --check no-such-program-here
    if command -v setpriv > /dev/null && [ "$(cat /proc/sys/vm/unprivileged_userfaultfd)" = 0 ]; then
        refused 'CAP_SYS_PTRACE' setpriv --reuid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
            "$BIN/esker" run --check
    fi
}

check_unnoticed() {
    need strace strace
    python3 "$here/unnoticed.py" "$BIN/esker" "$check"
}

check_kills() {
    local before after pid tries
    before=$(ls -A /var/tmp; losetup -a 2> /dev/null || true)
    # The program is killed: the pager ends.
    local status=0
    paged 16MiB 1GiB python3 -c 'import os; x = bytearray(100 << 20); os.kill(os.getpid(), 9)' "$check" || status=$?
    [ "$status" = 137 ] || die "the exit code was $status"
    for ((tries = 0; tries < 50; tries++)); do
        pgrep -f "esker run .*$check" > /dev/null || break
        sleep 0.1
    done
    ! pgrep -f "esker run .*$check" || die 'the pager goes on without its program'
    # The pager is killed: the program does not go on with zeroes.
    paged 16MiB 1GiB python3 "$here/endless.py" "$check/pid" "$check/wrong" 2> "$check/said" &
    for ((tries = 0; tries < 100; tries++)); do
        [ ! -s "$check/pid" ] || break
        sleep 0.1
    done
    pid=$(cat "$check/pid")
    sleep 1
    # Its own command line is the program's by now.
    kill -9 "$(pgrep -f "esker run .*$check/pid")"
    for ((tries = 0; tries < 50; tries++)); do
        kill -0 "$pid" 2> /dev/null || break
        sleep 0.1
    done
    ! kill -0 "$pid" 2> /dev/null || die 'the program goes on without its pager'
    [ ! -e "$check/wrong" ] || die 'the program has seen zeroes'
    grep -q 'the pager has ended' "$check/said" || die "the program ended without a word: $(cat "$check/said")"
    after=$(ls -A /var/tmp; losetup -a 2> /dev/null || true)
    [ "$before" = "$after" ] || die "something was left behind: $after"
}

# Memory that stays outside is told; that of a program that is paged is not.
check_outside() {
    local program='
import mmap, time
x = mmap.mmap(-1, 100 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FLAG)
x.write(b"1" * len(x))
time.sleep(1)'
    paged 16MiB 512MiB python3 -c "${program/FLAG/mmap.MAP_STACK}" 2> "$check/said"
    grep -q 'of its memory are not paged' "$check/said" || die "it was not said: $(cat "$check/said")"
    grep -q 'were not paged' "$check/said" || die "it was not said at the end: $(cat "$check/said")"
    paged 16MiB 512MiB python3 -c "${program/FLAG/0}" 2> "$check/said"
    ! grep 'not paged' "$check/said" || die 'it is paged'
}

# The swap file has holes that its file system has no room for: it is said at the start, and when that is so. What the
# program has is right.
check_full_file_system() {
    local place=$check/place tries
    mkdir "$place"
    mount -t tmpfs -o size=48m none "$place" || skip 'a file system cannot be mounted here'
    # shellcheck disable=SC2064
    trap "umount -l '$place'" EXIT
    truncate -s 1G "$place/swap"
    : > "$check/said"
    "$BIN/esker" run --memory 16MiB --swap "$place/swap" -- python3 -c '
import os, time
x = bytearray(os.urandom(1 << 20)) * 90
time.sleep(12)
' 2> "$check/said" &
    for ((tries = 0; tries < 150; tries++)); do
        [ "$(grep -c 'it is tried again' "$check/said")" -lt 2 ] || break
        sleep 0.1
    done
    kill "$!"
    cat "$check/said"
    grep -q 'has room for' "$check/said" || die 'it was not said at the start'
    [ "$(grep -c 'it is tried again' "$check/said")" -ge 2 ] || die 'it was not said again'
}

# A database that reads its files into pinned memory.
check_mariadb() {
    need mariadbd mariadb-server
    command -v mariadb-install-db > /dev/null || skip 'install mariadb-server first'
    bash "$here/mariadb.sh" "$BIN/esker" "$check"
}
