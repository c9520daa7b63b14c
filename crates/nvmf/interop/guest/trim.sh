# 200 MiB are written to a file system, removed, and trimmed.
set -e; . ./lib.sh
connect; d=$(first_disk); mkdir /m
mkfs.ext4 -q $d; mount -t ext4 $d /m
dd if=/dev/urandom of=/m/file bs=1M count=200 conv=fsync 2> /dev/null
rm /m/file; sync; fstrim -v /m; umount /m
nvme disconnect-all
