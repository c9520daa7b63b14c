# Esker's initiator with the kernel's target.
# shellcheck shell=bash disable=SC2154 # variables of run

# kernel_target [OPTION...]: boots the guest as a target, whose script is on the standard input.
kernel_target() {
    start_guest -f "$port:4420" -e NQN=nqn.2026-01.io.esker:kernel "$@"
    until_logged guest '^READY'
}

# The guest ends when it is told to, with what happened in it.
end_of_guest() {
    local status=0 pid
    pid=$(cat "$check/guest.pid")
    echo > "$check/done"
    wait "$pid" || status=$?
    rm -f "$check/guest.pid"
    cat "$check/guest.log"
    return "$status"
}

check_initiator() {
    kernel_target << 'E'
target 64
echo READY
until_asked_to_end
dmesg | grep nvmet | tail -n 5
E
    initiator check '?nsid=1'
    initiator check '?nsid=1&hdgst=1'
    initiator check '?nsid=1&ddgst=1'
    initiator check '?nsid=1&hdgst=1&ddgst=1'
    end_of_guest
}

# The target's port goes away and comes back, three times.
check_initiator_reconnects() {
    kernel_target << 'E'
target 64
echo READY
sleep 2
for round in 1 2 3; do
    unlisten
    sleep 1
    listen
    sleep 3
done
until_asked_to_end
E
    initiator rewrite '?nsid=1' 15
    end_of_guest
}

check_initiator_authenticates() {
    needs_auth
    echo "$host_key" > "$check/host-key"
    echo "$controller_key" > "$check/controller-key"
    echo "$wrong_key" > "$check/wrong-key"
    chmod 600 "$check"/*-key
    local me=nqn.2026-01.io.esker:initiator
    kernel_target -e "ME=$me" -e "KEY=$host_key" -e "CONTROLLER=$controller_key" << 'E'
target 64
allow_host $ME $KEY $CONTROLLER
echo READY
until_asked_to_end
dmesg | grep nvmet | tail -n 5
E
    initiator check "?hostnqn=$me&key-file=$check/host-key"
    initiator check "?hostnqn=$me&key-file=$check/host-key&controller-key-file=$check/controller-key"
    ! initiator check "?hostnqn=$me" || return 1
    ! initiator check "?hostnqn=$me&key-file=$check/wrong-key" || return 1
    ! initiator check \
        "?hostnqn=$me&key-file=$check/host-key&controller-key-file=$check/wrong-key" || return 1
    ! initiator check "?key-file=$check/host-key" || return 1
    end_of_guest
}

check_initiator_placement() {
    [ "$kernel" != bookworm ] || skip "the target of Linux 6.1 in Debian passes no controller on"
    kernel_target -F 256 << 'E'
modprobe -q nvme || true # or it is built in
until_true test -b /dev/nvme0n1
passthru /dev/nvme0
echo READY
until_asked_to_end
E
    initiator placement '?nsid=1'
    end_of_guest
}
