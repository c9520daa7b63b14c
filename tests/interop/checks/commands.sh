# What nvme-cli asks and sends, with the answers of Esker's target.
# shellcheck shell=bash disable=SC2154 # variables of run

check_commands() {
    serve mib=64
    guest << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
until_true test -b /dev/nvme0n1
c=/dev/nvme0 n=/dev/nvme0n1
has() { # has PATTERN COMMAND...: what it prints has a line like that
    pattern=$1
    shift
    echo "+ $*"
    "$@" > /tmp/out 2>&1 || { cat /tmp/out; fail "$*"; }
    grep -qE "$pattern" /tmp/out || { cat /tmp/out; fail "no '$pattern': $*"; }
}
has 'nvme0n1.*Esker.*67.11 +MB' nvme list
has 'nqn.2026-01.io.esker:vol1' nvme list-subsys
has '^mn +: Esker' nvme id-ctrl $c -H
has '^subnqn +: nqn.2026-01.io.esker:vol1' nvme id-ctrl $c
has '^nsze +: 0x4000' nvme id-ns $n -H
has 'lbads:12 .*in use' nvme id-ns $n
has 'uuid *: ' nvme ns-descs $n
has '\[ *0\]:0x1' nvme list-ns $c
has '^num of ctrls present: 1' nvme list-ctrl $c
has '^num of ctrls present: 1' nvme list-ctrl $c -n 1
has '^vsl *:' nvme nvm-id-ctrl $c
has '^nstat +: 0x1' nvme cmdset-ind-id-ns $n -n 1
has 'value: (0x)?[1-9]' nvme get-property $c --offset=0
has 'value: (0x)?20[0-9]+' nvme get-property $c --offset=8
has 'value: (0x)?460061' nvme get-property $c --offset=0x14
has 'value: (0x)?1$' nvme get-property $c --offset=0x1c
# Of nvme-cli 2.3, show-regs fails at the first register that there is not, and effects-log prints
# nothing, whatever the target.
if [ $SUITE != bookworm ]; then
    has '^cap +: ' nvme show-regs $c -H
    has 'ACS2 .*Get Log Page' nvme effects-log $c
fi
has '^0000: 00 00 00 00 00 00 00 00 01 00' nvme get-log $c -i 5 -l 64
has '^percentage_used' nvme smart-log $c
has '^percentage_used' nvme smart-log $n
has 'Entry\[ 0\]' nvme error-log $c
has '^frs1 ' nvme fw-log $c
has 'state.*:.*optimized' nvme ana-log $c
has 'LID 0x2 ' nvme supported-log-pages $c
nvme changed-ns-list-log $c
# Features: arbitration, power, temperature, errors, queues, events, keep alive.
for id in 1 2 4 5 7 0xa 0xb 0xf; do
    has 'Current value' nvme get-feature $c -f $id
done
# Its device has no volatile write cache, so there is none to ask about.
refused nvme get-feature $c -f 6
has 'Current value:0x0*1388' nvme get-feature $c -f 0xf # 5 s
# I/O.
dd if=/dev/urandom of=/tmp/a bs=4k count=4 2> /dev/null
has '[Ss]uccess' nvme write $n -s 8 -c 3 -z 16384 -d /tmp/a
has '[Ss]uccess' nvme compare $n -s 8 -c 3 -z 16384 -d /tmp/a
has '[Ss]uccess' nvme read $n -s 8 -c 3 -z 16384 -d /tmp/b
cmp /tmp/a /tmp/b
has '[Ss]uccess' nvme verify $n -s 8 -c 3
has '[Ss]uccess' nvme flush $n -n 1
has '[Ss]uccess' nvme write-zeroes $n -s 9 -c 0
has '[Ss]uccess' nvme dsm $n -n 1 -d -s 10 -b 1
# Two ranges become one, behind each other.
has '[Ss]uccess' nvme copy $n --sdlba=100 --slbs=11,8 --blocks=0,0
dd if=$n bs=4k skip=11 count=1 iflag=direct 2> /dev/null > /tmp/c
dd if=$n bs=4k skip=8 count=1 iflag=direct 2> /dev/null >> /tmp/c
dd if=$n bs=4k skip=100 count=2 iflag=direct 2> /dev/null | cmp - /tmp/c
refused nvme copy $n --sdlba=0x3fff --slbs=8 --blocks=1
refused nvme compare $n -s 8 -c 3 -z 16384 -d /tmp/a | tee /tmp/out
grep -qi 'compare failure' /tmp/out
dd if=$n bs=4k skip=9 count=1 iflag=direct 2> /dev/null | cmp -n 4096 - /dev/zero
refused nvme read $n -s 0x4000 -c 0 -z 4096 -d /tmp/b | tee /tmp/out
grep -qi 'LBA out of range' /tmp/out
# A host may reset its controller, and goes on with it.
nvme reset $c
until_true grep live /sys/class/nvme/nvme0/state
dd if=$n of=/dev/null bs=64k count=4 iflag=direct
has 'Entry\[ 0\]' nvme error-log $c
E
}

# What the target has not: refused with the status that the specification names.
check_refusals() {
    serve mib=64
    guest << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
until_true test -b /dev/nvme0n1
c=/dev/nvme0 n=/dev/nvme0n1
is() { # is STATUS COMMAND...
    status=$1
    shift
    echo "+ $*"
    refused "$@" > /tmp/out
    grep -qiE "$status" /tmp/out || { cat /tmp/out; fail "not '$status': $*"; }
}
opcode='Invalid Command Opcode|INVALID_OPCODE|\(0x4?001\)'
field='Invalid Field|INVALID_FIELD|\(0x4?002\)'
log='Invalid Log Page|INVALID_LOG_PAGE|\(0x4?109\)'
admin() { nvme admin-passthru $c --opcode="$@"; }
io() { nvme io-passthru $n --namespace-id=1 --opcode="$@"; }
# Admin: firmware, self-test, namespace management, format, sanitize, security, directives, virtual
# resources, NVMe-MI, doorbells, a vendor's.
for code in 0x10 0x11 0x14 0x0d 0x15 0x80 0x84 0x81 0x82 0x19 0x1a 0x1c 0x1d 0x1e 0x7c 0x86 0xc0; do
    is "$opcode" admin $code
done
# I/O: write uncorrectable, zone management, a vendor's.
for code in 0x04 0x79 0x7a 0x7d 0x80; do is "$opcode" io $code; done
# Log pages: self-test, telemetry, endurance without groups, predictable latency, LBA status, ...
for page in 0x06 0x07 0x08 0x09 0x0a 0x0b 0x0d 0x0e 0x0f 0x13 0x20 0x21 0x22 0x23 0x70 0x81 0xc0; do
    is "$log" nvme get-log $c -i $page -l 512
done
# Identify: a namespace of another command set, UUIDs, domains, no such structure.
for cns in 0x04 0x10 0x11 0x14 0x15 0x17 0x18 0x1a 0xff; do
    is "$field" admin 6 --data-len=4096 --read --cdw10=$cns
done
# Features: power states, host memory buffer, temperature management, sanitize, ...
for id in 0x03 0x08 0x09 0x10 0x11 0x17 0x1d 0xc0; do
    is "$field" admin 0x0a --cdw10=$id
    is "$field" admin 0x09 --cdw10=$id
done
is "$field" admin 0x0a --cdw10=0x0d # that nobody sets it, the newest kernel sees to itself
# A namespace that is not there.
is 'Invalid Namespace|INVALID_NS|\(0x4?00b\)' nvme ns-descs $c -n 99
nvme id-ns $c -n 99 | grep -q '^nsze *: *0$'
# None of it did any harm.
dd if=$n of=/dev/null bs=64k count=4 iflag=direct
E
}
