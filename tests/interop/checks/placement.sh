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
