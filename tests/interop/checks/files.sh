# Data: the kernel's host writes to Esker's target.
# shellcheck shell=bash disable=SC2154 # variables of run

# In the guest: copies a tree to a new file system, and compares it when it was mounted anew.
copy_a_tree='
copy_and_compare() { # copy_and_compare DEVICE
    mkdir -p /m /tmp/tree
    dd if=/dev/urandom of=/tmp/tree/random bs=1M count=8 2> /dev/null
    cp -r /bin /lib/modules /tmp/tree/
    (cd /tmp/tree && find . -type f -exec md5sum {} +) > /tmp/sums
    mount $1 /m
    cp -r /tmp/tree /m/
    umount /m
    echo 3 > /proc/sys/vm/drop_caches
    mount $1 /m
    (cd /m/tree && md5sum -c -s /tmp/sums)
    echo "$(wc -l < /tmp/sums) files are what they were"
}
'

check_queues() {
    serve workers=2
    guest -c 2 << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN -i 2
until_true test -b /dev/nvme0n1
expect "queues" "$(cat /sys/class/nvme/nvme0/queue_count)" 3
dd if=/dev/urandom of=/tmp/a bs=1M count=16 2> /dev/null
# Two writers on two CPUs, small and large commands.
taskset 1 dd if=/tmp/a of=/dev/nvme0n1 bs=1M oflag=direct 2> /dev/null &
taskset 2 dd if=/tmp/a of=/dev/nvme0n1 bs=16k seek=2048 oflag=direct 2> /dev/null &
wait
dd if=/dev/nvme0n1 bs=1M count=16 iflag=direct 2> /dev/null | cmp - /tmp/a
dd if=/dev/nvme0n1 bs=4k skip=8192 count=4096 iflag=direct 2> /dev/null | cmp - /tmp/a
nvme disconnect -n $NQN
E
}

# A file system on a file, and what it frees.
file_system() { # file_system MAKE CHECK
    serve "file=$check/disk" mib=512
    guest -e "MAKE=$1" -e "CHECK=$2" << E
$copy_a_tree
nvme connect -t tcp -a 10.0.2.2 -s \$PORT -n \$NQN
until_true test -b /dev/nvme0n1
modprobe -q xfs || true
\$MAKE /dev/nvme0n1
copy_and_compare /dev/nvme0n1
sync
full=\$(ask usage)
size=\$(du -sk /m/tree | cut -f 1)
rm -r /m/tree
sync
df /m > /dev/null # XFS frees in the background; who asks how much is free has it finished
sync
fstrim -v /m
empty=\$(ask usage)
echo "\$full bytes used before fstrim, \$empty after"
[ \$((full - empty)) -gt \$((size * 1024 * 9 / 10)) ] || fail "\$size KiB were to be freed"
umount /m
\$CHECK /dev/nvme0n1
nvme disconnect -n \$NQN
E
}

check_ext4() { file_system 'mkfs.ext4 -q' 'e2fsck -fn'; }
check_xfs() { file_system 'mkfs.xfs -q' 'xfs_repair -n'; }

check_sectors_of_512() {
    serve lba=512
    guest << E
$copy_a_tree
nvme connect -t tcp -a 10.0.2.2 -s \$PORT -n \$NQN
until_true test -b /dev/nvme0n1
expect "sector" "\$(cat /sys/block/nvme0n1/queue/logical_block_size)" 512
mkfs.ext4 -q /dev/nvme0n1
copy_and_compare /dev/nvme0n1
umount /m
E
}

check_digests() {
    serve
    guest << 'E'
dd if=/dev/urandom of=/tmp/a bs=1M count=4 2> /dev/null
for options in --hdr-digest --data-digest '--hdr-digest --data-digest'; do
    nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN $options
    until_true test -b /dev/nvme0n1
    dd if=/tmp/a of=/dev/nvme0n1 bs=256k oflag=direct 2> /dev/null
    dd if=/tmp/a of=/dev/nvme0n1 bs=4k count=64 seek=4096 oflag=direct 2> /dev/null
    dd if=/dev/nvme0n1 bs=256k count=16 iflag=direct 2> /dev/null | cmp - /tmp/a
    dd if=/dev/nvme0n1 bs=4k count=64 skip=4096 iflag=direct of=/tmp/b 2> /dev/null
    cmp -n 262144 /tmp/a /tmp/b
    nvme disconnect -n $NQN
    ! dmesg | grep -i 'digest error' || fail "digests do not match"
done
E
}

# The target ends and is started again while files are written: the host goes on.
check_restart() {
    serve "file=$check/disk" mib=256
    guest << 'E'
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN --reconnect-delay=1 --ctrl-loss-tmo=60 \
    --keep-alive-tmo=5
until_true test -b /dev/nvme0n1
start_writing 6 256k
expect "restart" "$(ask restart 1)" done
finish_writing 6
dmesg | grep "nvme nvme0"
E
}
