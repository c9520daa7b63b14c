# Who reaches what, which way, and what of changes: the kernel's host with Esker's target.
# shellcheck shell=bash disable=SC2154 # variables of run

check_discover() {
    serve
    guest << 'E'
nvme discover -t tcp -a 10.0.2.2 -s $PORT | tee /tmp/log
grep -q "subnqn: *$NQN" /tmp/log
grep -q "traddr: *10.0.2.2" /tmp/log
grep -q "trsvcid: *$PORT" /tmp/log
! grep -q 127.0.0.1 /tmp/log || fail "an address is announced that the host cannot reach"
nvme connect-all -t tcp -a 10.0.2.2 -s $PORT
until_true test -b /dev/nvme1n1 # the connection to the discovery service was nvme0
# A persistent connection to the discovery service.
nvme discover -t tcp -a 10.0.2.2 -s $PORT -p > /dev/null
grep discovery /sys/class/nvme/nvme*/subsysnqn
grep live /sys/class/nvme/nvme0/state
E
}

check_access() {
    serve "host=nqn.2026-01.io.esker:friend"
    guest << 'E'
nvme discover -t tcp -a 10.0.2.2 -s $PORT | tee /tmp/log
! grep -q "$NQN" /tmp/log || fail "a host that may not connect sees the subsystem"
refused nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
refused nvme connect -t tcp -a 10.0.2.2 -s $PORT -n nqn.2026-01.io.esker:nothing
dmesg | grep -i connect | tail -n 4
uuid=11111111-2222-4333-8444-555555555555
friend="-q nqn.2026-01.io.esker:friend -I $uuid"
nvme discover -t tcp -a 10.0.2.2 -s $PORT $friend | grep "$NQN"
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN $friend
until_true test -b /dev/nvme0n1
E
}

# Keys as nvme gen-dhchap-key writes them: the host's, the controller's, and one of neither.
host_key=DHHC-1:00:aG9zdCdzIGtleSBmb3IgdGVzdHMsIDMyIGJ5dGVzLi4KdqpX:
controller_key=DHHC-1:00:Y29udHJvbGxlcidzIGtleSBmb3IgdGVzdHMsIHRoaXMgb25lIG9mIDQ4IGJ5dGVzNrtRlg==:
wrong_key=DHHC-1:00:YSBrZXkgdGhhdCBpcyBub3QgdGhlIGhvc3QncyBvbmXJhhRG:

needs_auth() {
    [ "$kernel" != bookworm ] || skip "Linux 6.1 of Debian has no DH-HMAC-CHAP"
}

check_authentication() {
    needs_auth
    serve "host=$host_nqn,$host_key"
    guest -c 2 -e "KEY=$host_key" -e "WRONG=$wrong_key" << 'E'
connect="nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN"
refused $connect
refused $connect --dhchap-secret=$WRONG
[ ! -b /dev/nvme0n1 ] || fail "there is a namespace without the key"
$connect --dhchap-secret=$KEY
until_true test -b /dev/nvme0n1
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=16 iflag=direct
dmesg | grep -i authenticated
E
}

check_authentication_both_ways() {
    needs_auth
    serve "host=$host_nqn,$host_key,$controller_key"
    guest -c 2 -e "KEY=$host_key" -e "CONTROLLER=$controller_key" -e "WRONG=$wrong_key" << 'E'
connect="nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN"
refused $connect --dhchap-secret=$WRONG --dhchap-ctrl-secret=$CONTROLLER
refused $connect --dhchap-secret=$KEY --dhchap-ctrl-secret=$WRONG
[ ! -b /dev/nvme0n1 ] || fail "there is a namespace without the keys"
$connect --dhchap-secret=$KEY --dhchap-ctrl-secret=$CONTROLLER
until_true test -b /dev/nvme0n1
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=16 iflag=direct
dmesg | grep -i authenticated
E
}

# A key as nvme gen-tls-key writes it.
tls_key=NVMeTLSkey-1:01:YSBrZXkgb2YgRXNrZXIgZm9yIHRlc3RzIG9mIFRMUyFd+/bd:

# The kernel's TLS, with tlshd for the handshake. Without the key, with that of another host, and without
# TLS the target lets nobody in.
check_tls() {
    [ -n "$tls" ] || skip "this build has no TLS: libssl-dev is missing"
    [ "$kernel" = sid ] || skip "with the newest kernel and nvme-cli only"
    serve "tls=$host_nqn,$tls_key" mib=64
    guest -e "KEY=$tls_key" << 'E'
modprobe -q tls || true
printf '[debug]\nloglevel=1\ntls=0\nnl=0\n[authenticate]\nkeyrings=.nvme\n' > /tmp/tlshd.conf
tlshd -s -c /tmp/tlshd.conf > /tmp/tlshd.log 2>&1 &
sleep 1
connect="nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN"
host=$(cat /etc/nvme/hostnqn)
other=nqn.2026-01.io.esker:other
insert() { nvme check-tls-key -d "$KEY" -n "$1" -c $NQN -I 1 -i; }
refused timeout 30 $connect
refused timeout 30 $connect --tls
insert $other
refused timeout 30 $connect --tls -q $other -I 11111111-2222-4333-8444-555555555555
insert "$host"
if ! timeout 60 $connect --tls; then
    cat /tmp/tlshd.log
    dmesg | tail -n 20
    cat /proc/keys
    fail "the right key is refused"
fi
until_true test -b /dev/nvme0n1
dd if=/dev/urandom of=/tmp/a bs=1M count=8 2> /dev/null
dd if=/tmp/a of=/dev/nvme0n1 bs=256k oflag=direct
dd if=/dev/nvme0n1 bs=256k count=32 iflag=direct | cmp - /tmp/a
cat /sys/class/nvme/nvme0/tls_key || true
E
}

# A timeout of a quarter of an hour, and one that is no whole number of seconds.
check_keep_alive() {
    serve
    guest << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN --keep-alive-tmo=800
until_true test -b /dev/nvme0n1
nvme get-feature /dev/nvme0 -f 0xf | tee /tmp/log
grep -q 'Current value:0x0*c3500' /tmp/log # 800 s
nvme set-feature /dev/nvme0 -f 0xf --value=1500
nvme get-feature /dev/nvme0 -f 0xf | tee /tmp/log
grep -q 'Current value:0x0*7d0' /tmp/log # 2 s
E
}

# Two portals, both in use; the way to one dies under load.
check_multipath() {
    serve "file=$check/disk" mib=512 "second=127.0.0.1:$((port + 1))"
    relay 2 "$port"
    relay 3 "$((port + 1))"
    sleep 0.5
    guest << 'E'
for n in 2 3; do
    nvme connect -t tcp -a 10.0.2.2 -s $((PORT + n)) -n $NQN --reconnect-delay=1 \
        --ctrl-loss-tmo=60 --keep-alive-tmo=5
done
until_true test -b /dev/nvme0n1
subsystem=/sys/class/nvme-subsystem/nvme-subsys0
expect "paths" "$(ls -d $subsystem/nvme[0-9] | wc -l)" 2
echo round-robin > $subsystem/iopolicy
start_writing 8 64k
expect "stop" "$(ask stop relay2)" done
finish_writing 8
cat /sys/class/nvme/nvme*/state | sort | tr '\n' ' ' > /tmp/states
expect "paths" "$(cat /tmp/states)" "connecting live "
E
}

check_ana() {
    serve "second=127.0.0.1:$((port + 1))"
    guest << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
nvme connect -t tcp -a 10.0.2.2 -s $((PORT + 1)) -n $NQN
until_true test -b /dev/nvme0n1
is() { [ "$(cat /sys/class/nvme/$1/nvme*c*n1/ana_state)" = "$2" ]; }
until_true is nvme0 optimized
until_true is nvme1 optimized
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2> /dev/null
while read -r portal state controller name; do
    ask tell ana $portal $state
    until_true is $controller $name
    dd if=/tmp/a of=/dev/nvme0n1 bs=256k oflag=direct 2> /dev/null
    dd if=/dev/nvme0n1 bs=256k count=16 iflag=direct 2> /dev/null | cmp - /tmp/a
done << STATES
0 3 nvme0 inaccessible
0 2 nvme0 non-optimized
1 4 nvme1 persistent-loss
0 1 nvme0 optimized
1 15 nvme1 change
1 1 nvme1 optimized
STATES
nvme ana-log /dev/nvme0
E
}

check_resize() {
    serve mib=64
    guest << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
until_true test -b /dev/nvme0n1
mkfs.ext4 -q /dev/nvme0n1
mkdir /m
mount /dev/nvme0n1 /m
echo content > /m/file
has() { [ "$(cat /sys/block/nvme0n1/size)" = $(($1 * 2048)) ]; }
has 64
for mib in 128 192; do
    ask tell resize $mib
    until_true has $mib
done
resize2fs /dev/nvme0n1
dd if=/dev/zero of=/m/large bs=1M count=140
expect "the file" "$(cat /m/file)" content
umount /m
e2fsck -fn /dev/nvme0n1
E
}

check_namespaces_come_and_go() {
    serve
    guest << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
until_true test -b /dev/nvme0n1
for round in 1 2 3; do
    ask tell add 7 $((16 * round))
    until_true test -b /dev/nvme0n2
    expect "size" "$(cat /sys/block/nvme0n2/size)" $((16 * round * 2048))
    dd if=/dev/urandom of=/dev/nvme0n2 bs=4k count=1 oflag=direct
    dd if=/dev/nvme0n2 of=/dev/null bs=64k count=4 iflag=direct
    ask tell remove 7
    until_true test ! -b /dev/nvme0n2
done
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct
E
}

# Two hosts: without multipathing each has a block device of its own. (A second connection to the same
# address is refused by some hosts, so there are two portals.)
check_reservations() {
    serve "second=127.0.0.1:$((port + 1))"
    guest -a nvme_core.multipath=N << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN
nvme connect -t tcp -a 10.0.2.2 -s $((PORT + 1)) -n $NQN -q nqn.2026-01.io.esker:other \
    -I 11111111-2222-4333-8444-555555555555
a=/dev/nvme0n1 b=/dev/nvme1n1
until_true test -b $a
until_true test -b $b
writes() { dd if=/dev/zero of=$1 bs=4k count=1 oflag=direct; }
reads() { dd if=$1 of=/dev/null bs=4k count=1 iflag=direct; }
nvme resv-register $a -n 1 --nrkey=0xa --rrega=0
nvme resv-acquire $a -n 1 --crkey=0xa --rtype=1 --racqa=0
nvme resv-report $a -n 1 --eds
writes $a
reads $b
refused writes $b
refused nvme resv-acquire $b -n 1 --crkey=0xb --rtype=1 --racqa=0
nvme resv-register $b -n 1 --nrkey=0xb --rrega=0
refused writes $b
refused nvme resv-release $b -n 1 --crkey=0xc --rtype=1 --rrela=0
nvme resv-release $a -n 1 --crkey=0xa --rtype=1 --rrela=0
writes $b
nvme resv-acquire $a -n 1 --crkey=0xa --rtype=2 --racqa=0
refused reads $b
# The other host takes it over.
nvme resv-acquire $b -n 1 --crkey=0xb --prkey=0xa --rtype=4 --racqa=1
refused writes $a
writes $b
nvme resv-report $b -n 1 --eds -o json | tee /tmp/report
grep -q '"rtype" *: *4' /tmp/report
grep -q '"regctl" *: *1' /tmp/report
nvme resv-register $b -n 1 --crkey=0xb --rrega=1
writes $a
nvme resv-report $a -n 1 --eds
E
}
