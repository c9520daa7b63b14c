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
