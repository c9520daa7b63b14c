# Functions for scripts that run in the guest (". ./guest-lib.sh"): requests to this side, waiting,
# and a target of the kernel on port 4420.
NQN=${NQN:-nqn.2026-01.io.esker:kernel}
config=/sys/kernel/config/nvmet

# ask WORDS...: has the command of "run -x" act on them, prints the answer; fails if that is empty.
ask() {
    ask_answer=$(echo "$*" | timeout 30 nc 10.0.2.100 1)
    echo "$ask_answer"
    [ -n "$ask_answer" ]
}

# fail WORDS...: ends the script.
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# until_true COMMAND...: for at most 20 s.
until_true() {
    for _ in $(seq 200); do
        "$@" > /dev/null 2>&1 && return
        sleep 0.1
    done
    fail "not within 20 s: $*"
}

# refused COMMAND...: it must fail; prints what it said.
refused() {
    if "$@" > /tmp/refused 2>&1; then
        cat /tmp/refused
        fail "was not refused: $*"
    fi
    cat /tmp/refused
}

# expect WHAT GOT EXPECTED
expect() {
    [ "$2" = "$3" ] || fail "$1: got '$2', not '$3'"
}

# start_writing FILES BLOCK: makes a file system on /dev/nvme0n1 and begins to write files to it, in
# writes of that size; returns when it is under way.
start_writing() {
    mkfs.ext4 -q /dev/nvme0n1
    mkdir /m
    mount /dev/nvme0n1 /m
    dd if=/dev/urandom of=/tmp/a bs=1M count=24 2> /dev/null
    for n in $(seq "$1"); do
        dd if=/tmp/a of="/m/f$n" bs="$2" conv=fsync 2> /dev/null || echo failed > /tmp/failed
    done &
    writer=$!
    sleep 1
}

# finish_writing FILES: waits for them; no write may have failed, and all must read back.
finish_writing() {
    wait $writer
    [ ! -e /tmp/failed ] || fail "a write failed"
    umount /m
    echo 3 > /proc/sys/vm/drop_caches
    mount /dev/nvme0n1 /m
    for n in $(seq "$1"); do cmp /tmp/a "/m/f$n"; done
    umount /m
    e2fsck -fn /dev/nvme0n1
}

# until_asked_to_end: for at most 100 s.
until_asked_to_end() {
    for _ in $(seq 200); do
        [ "$(ask end)" = yes ] && return
        sleep 0.5
    done
    fail "nobody asked for the end"
}

# ---- the kernel's target ----

# listen: on port 4420, for the subsystem.
listen() {
    mkdir -p $config/ports/1
    echo ipv4 > $config/ports/1/addr_adrfam
    echo tcp > $config/ports/1/addr_trtype
    echo 0.0.0.0 > $config/ports/1/addr_traddr
    echo 4420 > $config/ports/1/addr_trsvcid
    ln -s $config/subsystems/$NQN $config/ports/1/subsystems/esker
}

# unlisten: what is connected is cut off.
unlisten() {
    rm $config/ports/1/subsystems/esker
    rmdir $config/ports/1
}

# target MIB: namespace 1 in memory with LBAs of 4 KiB, for any host.
target() {
    disk=/sys/kernel/config/nullb/nullb9
    mkdir $disk
    echo "$1" > $disk/size
    echo 1 > $disk/memory_backed
    echo 4096 > $disk/blocksize
    echo 1 > $disk/discard
    echo 1 > $disk/power
    mkdir $config/subsystems/$NQN $config/subsystems/$NQN/namespaces/1
    echo 1 > $config/subsystems/$NQN/attr_allow_any_host
    printf /dev/nullb9 > $config/subsystems/$NQN/namespaces/1/device_path
    echo 1 > $config/subsystems/$NQN/namespaces/1/enable
    listen
}

# passthru CONTROLLER: exports a whole local controller, its data placement included.
passthru() {
    mkdir $config/subsystems/$NQN
    echo 1 > $config/subsystems/$NQN/attr_allow_any_host
    printf '%s' "$1" > $config/subsystems/$NQN/passthru/device_path
    echo 1 > $config/subsystems/$NQN/passthru/enable
    listen
}

# allow_host HOSTNQN [KEY [CONTROLLER-KEY]]: from now on only the hosts named so.
allow_host() {
    mkdir $config/hosts/$1
    [ -z "$2" ] || echo "$2" > $config/hosts/$1/dhchap_key
    [ -z "$3" ] || echo "$3" > $config/hosts/$1/dhchap_ctrl_key
    echo 0 > $config/subsystems/$NQN/attr_allow_any_host
    ln -s $config/hosts/$1 $config/subsystems/$NQN/allowed_hosts/$1
}
