# Data placement: the same questions and commands for Esker's drive over the network and for the drive
# that QEMU emulates, whose answers have to agree.
# shellcheck shell=bash disable=SC2154 # variables of run

check_placement() {
    serve fdp=1
    guest -F 256 << 'E'
modprobe -q nvme || true # or it is built in
until_true test -b /dev/nvme0n1
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
until_true test -b /dev/nvme1n1
theirs=/dev/nvme0 ours=/dev/nvme1
dd if=/dev/urandom of=/tmp/a bs=4k count=16 2> /dev/null

# both WHAT COMMAND...: @ stands for the controller; what is left of the answers by the function
# `part` has to agree.
both() {
    what=$1
    shift
    echo "+ $*"
    for drive in $ours $theirs; do
        rc=0
        $(echo "$*" | sed "s,@,$drive,g") > /tmp/out 2>&1 || rc=$?
        part < /tmp/out > /tmp/part.$(basename $drive)
        [ $rc = 0 ] || echo refused >> /tmp/part.$(basename $drive)
        sed "s,^,    $(basename $drive): ," < /tmp/part.$(basename $drive)
    done
    cmp -s /tmp/part.nvme0 /tmp/part.nvme1 || { cat /tmp/out; fail "they do not agree on $what"; }
}

# Configurations: what the drive is made of, but for what only one of them has.
nvme fdp configs $ours -e 1 -H
nvme fdp configs $theirs -e 1 -H
part() { sed -n 's/^ *\(Number of Reclaim Groups\|Number of Reclaim Unit Handles\|Nominal.*\|Reclaim Unit Handle Type.*\)/\1/Ip'; }
both "configurations" nvme fdp configs @ -e 1

# Usage: the namespace named four of the eight handles.
part() { sed 's/^ *//; /^$/d'; }
both "usage" nvme fdp usage @ -e 1

# Status: the handles of the namespace, and how much each reclaim unit takes.
both "status" nvme fdp status @n1
both "statistics" nvme fdp stats @ -e 1

# Writes go to the handle they name, and the first without one.
both "a write" nvme write @n1 -s 0 -c 15 -z 65536 -d /tmp/a -T 2 -S 1
both "a write" nvme write @n1 -s 64 -c 15 -z 65536 -d /tmp/a -T 2 -S 3
both "a write" nvme write @n1 -s 128 -c 0 -z 4096 -d /tmp/a
both "status" nvme fdp status @n1
both "statistics" nvme fdp stats @ -e 1

# Events: kinds are chosen, and a unit left before it was full is one.
both "choice" nvme fdp set-events @n1 -n 1 -p 1 -t 0,3 -s 1
both "update" nvme fdp update @n1 -p 1,3
both "status" nvme fdp status @n1
both "the end of an update" nvme fdp update @n1 -p 9
part() { grep -E 'Event Type|Event\[|PID|Placement Identifier' | sed 's/^ *//'; }
both "events of the host" nvme fdp events @ -e 1 -E
both "events of the drive" nvme fdp events @ -e 1
nvme fdp events $ours -e 1 -E
nvme fdp events $theirs -e 1 -E
if [ $SUITE != bookworm ]; then
    part() { sed 's/^ *//; /^$/d'; }
    both "the feature" nvme fdp feature @ -e 1
fi
both "no such group" nvme fdp stats @ -e 7

# The data is what was written, wherever it went.
dd if=/dev/nvme1n1 bs=4k count=16 iflag=direct 2> /dev/null | cmp - /tmp/a
dd if=/dev/nvme1n1 bs=4k count=16 skip=64 iflag=direct 2> /dev/null | cmp - /tmp/a
E
}

# Data placement of a drive in the machine: Esker's file device on the block device of the drive that
# QEMU emulates, judged by nvme-cli; then Esker's target over it, and Esker's initiator.
check_drive() {
    # The program with the libraries it is linked to here.
    mkdir "$check/esker"
    strip -o "$check/esker/interop" "$program" 2> /dev/null || cp "$program" "$check/esker/interop"
    ldd "$program" | awk '$2 == "=>" { print $3 } $1 ~ "^/" { print $1 }' |
        xargs -r cp -L -t "$check/esker"
    guest -F 256 -i "$check/esker" << 'E'
modprobe -q nvme || true # or it is built in
until_true test -b /dev/nvme0n1
esker() { ./esker/ld-linux-*.so.* --library-path ./esker ./esker/interop "$@"; }
if [ ! -e /sys/block/nvme0n1/queue/max_write_streams ]; then
    refused esker drive /dev/nvme0n1 | tee /tmp/why
    grep -q 'no placement ids: .* Linux 6.16 and later' /tmp/why || fail "nobody said why"
    exit
fi
echo "write streams: $(cat /sys/block/nvme0n1/queue/max_write_streams)"

# The handle of placement id 2 has less room after 64 KiB, and no other: nvme-cli says so.
room() { nvme fdp status /dev/nvme0n1 | sed -n 's/.*Available Media Writes.*: *\([0-9]*\).*/\1/p'; }
bytes() { nvme fdp stats /dev/nvme0 -e 1 | sed -n 's/.*Host Bytes.*: *\([0-9]*\).*/\1/p'; }
nvme fdp status /dev/nvme0n1
nvme fdp stats /dev/nvme0 -e 1
before=$(bytes)
esker drive /dev/nvme0n1
[ "$(bytes)" -ge $((before + 65536)) ] || fail "the drive has not counted what was written"
room > /tmp/before
esker write /dev/nvme0n1 3 16
room > /tmp/after
nvme fdp status /dev/nvme0n1
expect "handles" "$(wc -l < /tmp/after)" 4
for id in 0 1 2 3; do
    line=$((id + 1)) used=0
    [ $id != 3 ] || used=16
    expect "room of the handle of id $id" "$(sed -n ${line}p /tmp/after)" \
        $(($(sed -n ${line}p /tmp/before) - used))
done

# Through the network: the target hands the drive's placement on.
esker target 127.0.0.1:4420 drive=/dev/nvme0n1 < /dev/zero > /tmp/target 2>&1 &
until_true grep -q serving /tmp/target
esker placement nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.esker:vol1
E
}
