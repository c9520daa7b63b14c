# The target is killed and started again under load: the host goes on by itself.
set -e; . ./lib.sh
connect -i 2 -c 1; wait_dev /dev/nvme0n1
dd if=/dev/urandom of=/tmp/a bs=1M count=2 2> /dev/null
tell restart
dd if=/tmp/a of=/dev/nvme0n1 bs=4k oflag=direct conv=fsync 2> /dev/null
sleep 1; tell restart; sleep 0.3
dd if=/dev/nvme0n1 of=/tmp/b bs=4k count=512 iflag=direct 2> /dev/null; cmp /tmp/a /tmp/b
nvme disconnect-all
