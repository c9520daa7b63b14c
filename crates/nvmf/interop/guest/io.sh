# Discover by the announced address, connect with several queues, file systems, trim.
set -e; . ./lib.sh
nvme discover -t tcp -a $HOST -s $PORT | tee /tmp/d
grep -q "traddr: *$HOST" /tmp/d; grep -q "subnqn: *$SUB" /tmp/d
nvme connect-all -t tcp -a $HOST -s $PORT -i 2
d=$(first_disk)
dmesg | grep 'creating 2 I/O queues'
mkdir /m /tree
for n in $(seq 60); do head -c $((n * 7919)) /dev/urandom > /tree/$n; done
for fs in ext4 xfs; do
  case $fs in ext4) mkfs.ext4 -q $d ;; xfs) mkfs.xfs -q -f $d ;; esac
  mount -t $fs $d /m
  cp -r /tree /m/; sync; umount /m; echo 3 > /proc/sys/vm/drop_caches; mount -t $fs $d /m
  diff -r /tree /m/tree
  rm -r /m/tree; sync; fstrim -v /m; umount /m
done
nvme disconnect-all
