# What the checks, the benchmark and the comparison with a database share. Sourced, with $here and $root set.
# shellcheck shell=bash
#
# $check is the directory of the present check: what it starts and mounts is found there again.

SKIPPED=77
state=${ATTACH_STATE:-/tmp/esker-attach-tests.$(id -u)}

skip() {
    echo "$*" > "$check/skipped"
    exit "$SKIPPED"
}

die() {
    echo "$*" >&2
    exit 1
}

# ---- before and after ----

# Says what this machine lacks, after having tried to install it.
what_is_missing() {
    if [ "$(id -u)" != 0 ]; then
        echo 'this needs root'
        return
    fi
    local tool packages=()
    for tool in fio:fio mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs sqlite3:sqlite3 "$@"; do
        command -v "${tool%%:*}" > /dev/null || packages+=("${tool##*:}")
    done
    if [ ${#packages[@]} -gt 0 ]; then
        if ! command -v apt-get > /dev/null ||
            ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
                --no-install-recommends "${packages[@]}"; } > /dev/null 2>&1 < /dev/null; then
            echo "install ${packages[*]} first"
            return
        fi
    fi
    if ! { : <> /dev/fuse; } 2> /dev/null; then
        echo '/dev/fuse cannot be opened'
        return
    fi
    [ -e /dev/loop-control ] || mknod -m 600 /dev/loop-control c 10 237 2> /dev/null || true
    if ! losetup -f > /dev/null 2>&1; then
        echo 'loop devices are not to be had'
        return
    fi
    # Mounting may be forbidden even to root.
    local try
    try=$(mktemp -d)
    if ! mount -t tmpfs none "$try" 2> /dev/null; then
        echo 'mounting is not allowed here'
    else
        umount "$try"
    fi
    rmdir "$try"
}

# Makes $work, after having cleared away what runs that were killed have left; builds $ESKER.
begin_run() {
    mkdir -p "$state"
    local old
    for old in "$state"/run.*; do
        [ -e "$old/pid" ] || continue
        ! is_run "$(cat "$old/pid")" "$old" || continue
        echo "clearing away what an earlier run has left in $old"
        clear_away "$old"
        rm -rf --one-file-system "$old"
    done
    work=$(mktemp -d "$state/run.XXXXXX")
    echo "$$" > "$work/pid"
    # The kernel counts from its start when a process began: a number may have been given again.
    started_at "$$" > "$work/started"
    if [ -z "${ESKER:-}" ]; then
        echo building
        (cd "$root" && cargo build --quiet --locked -p esker-cli ${RELEASE:+--release})
        ESKER=${CARGO_TARGET_DIR:-$root/target}/${RELEASE:+release}
        [ -n "${RELEASE:-}" ] || ESKER=${CARGO_TARGET_DIR:-$root/target}/debug
        ESKER=$ESKER/esker
    fi
    export ESKER work
}

end_run() {
    clear_away "$work" > /dev/null 2>&1 || true
    rm -rf --one-file-system "$work"
    rmdir "$state" 2> /dev/null || true
}

started_at() { # started_at PID
    sed 's/.*) //' "/proc/$1/stat" 2> /dev/null | cut -d ' ' -f 20
}

is_run() { # is_run PID DIRECTORY: whether the run that has made the directory is still there
    [ -n "$(started_at "$1")" ] && [ "$(started_at "$1")" = "$(cat "$2/started" 2> /dev/null)" ]
}

# The mounts below a directory, the last one first.
mounts_below() {
    awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac
}

# Ends everything below a directory, whatever state it is in.
clear_away() {
    local below=$1 at file pid name
    # What was started there, by the number and the beginning that were noted.
    while IFS= read -r file; do
        read -r pid name < "$file" || continue
        if [ -n "$name" ] && [ "$(started_at "$pid")" = "$name" ]; then
            kill -9 "$pid" 2> /dev/null || true
        fi
    done < <(find "$below" -xdev -name '*.process' 2> /dev/null)
    # Requests that nobody will answer any more.
    local connections=/sys/fs/fuse/connections
    mountpoint -q "$connections" || mount -t fusectl none "$connections" 2> /dev/null || true
    while IFS= read -r at; do
        name=$(awk -v at="$at" '$5 == at && / fuse.esker / { split($3, n, ":"); print n[2] }' \
            /proc/self/mountinfo)
        [ -z "$name" ] || echo 1 > "$connections/$name/abort" 2> /dev/null || true
    done < <(mounts_below "$below")
    while IFS= read -r at; do
        timeout 20 umount "$at" 2> /dev/null || timeout 20 umount -l "$at" || true
    done < <(mounts_below "$below")
    for file in /sys/block/loop*/loop/backing_file; do
        [ -e "$file" ] || continue
        case $(cat "$file" 2> /dev/null) in
            "$below"/*)
                name=${file#/sys/block/}
                timeout 20 losetup -d "/dev/${name%%/*}" || true
                ;;
        esac
    done
}

# ---- waiting ----

# until_true WHAT COMMAND...: waits for up to a minute until the command succeeds.
until_true() {
    local what=$1 deadline=$((SECONDS + 60))
    shift
    until "$@"; do
        if [ "$SECONDS" -gt "$deadline" ]; then
            echo "not within a minute: $what" >&2
            return 1
        fi
        sleep 0.05
    done
}

# start NAME COMMAND...: starts a program that ends with the check.
start() {
    local name=$1 pid
    shift
    "$@" > "$check/$name.log" 2>&1 &
    pid=$!
    echo "$pid $(started_at "$pid")" > "$check/$name.process"
    eval "${name}_pid=$pid"
}

# ends PID [CODE]: waits until a program has ended, as it should.
ends() {
    local code=0
    wait "$1" || code=$?
    [ "$code" = "${2:-0}" ] || die "process $1 ended with $code, not ${2:-0}"
}

# ---- attaching ----

# attach SPEC [OPTION...]: attaches at $check/at. The file is $file, the loop device $loop.
attach() {
    mkdir -p "$check/at"
    start server "$ESKER" attach "$@" "$check/at"
    until_true 'the device is attached' is_attached
    file=$(sed -n 's/^file: //p' "$check/server.log")
    loop=$(sed -n 's/^block device: //p' "$check/server.log")
}

is_attached() {
    kill -0 "$server_pid" 2> /dev/null || {
        cat "$check/server.log" >&2
        die 'the server has ended'
    }
    grep -q '^file: ' "$check/server.log" || return 1
    [ "$(grep -c '^block device: ' "$check/server.log")" -ge "$(grep -c -- --loop "/proc/$server_pid/cmdline")" ]
}

detach() {
    timeout 100 "$ESKER" detach "$check/at"
    ends "$server_pid"
    ! is_mounted "$check/at"
}

# crash [PID]...: the server is killed, and the load that these processes made ends; what is mounted on the
# device is lost, and all is cleared away.
crash() {
    kill -9 "$server_pid"
    ends "$server_pid" 137
    kill "$@" 2> /dev/null || true
    wait "$@" 2> /dev/null || true
    if is_mounted "$check/files"; then
        until_true 'the lost file system is unmounted' umount "$check/files"
    fi
    timeout 60 "$ESKER" detach "$check/at"
    until_true 'the loop device is gone' no_loop
}

# A file system that has lost its device answers no question.
is_mounted() {
    awk -v at="$1" '$5 == at { found = 1 } END { exit !found }' /proc/self/mountinfo
}

no_loop() {
    ! grep -qs "^$check/" /sys/block/loop*/loop/backing_file
}

# ---- file systems ----

make_fs() { # make_fs ext4|xfs DEVICE
    case $1 in
        ext4) mkfs.ext4 -q -F -b 4096 "$2" ;;
        xfs) mkfs.xfs -q -f "$2" ;;
    esac
}

mount_fs() { # mount_fs DEVICE [OPTION...]
    mkdir -p "$check/files"
    mount "${@:2}" "$1" "$check/files"
}

umount_fs() {
    until_true 'the file system is unmounted' umount "$check/files"
}

examine() { # examine ext4|xfs DEVICE: fails on any inconsistency
    case $1 in
        ext4) e2fsck -fn "$2" ;;
        xfs) xfs_repair -n "$2" ;;
    esac
}

allocated() { # allocated FILE: bytes that it takes
    echo $(($(stat -c %b "$1") * 512))
}

sparse() { # sparse SIZE [NAME]: a new sparse file
    truncate -s "$1" "$check/${2:-disk}"
}
