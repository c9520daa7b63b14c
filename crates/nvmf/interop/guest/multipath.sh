# Two portals; the ANA state of one changes, then the other is closed, under load.
set -e; . ./lib.sh
connect -i 1; nvme connect -t tcp -a $HOST -s $SECOND -n $SUB -i 1; wait_dev /dev/nvme0n1
load() { while [ ! -e /tmp/stop ]; do dd if=/tmp/a of=/dev/nvme0n1 bs=64k oflag=direct 2> /tmp/err || { echo LOST; cat /tmp/err; exit 1; }; done; }
dd if=/dev/urandom of=/tmp/a bs=1M count=2 2> /dev/null
load & pid=$!
sleep 1; tell ana 0 3; until_true grep -q inaccessible /sys/class/nvme/nvme*/nvme*c*n1/ana_state
sleep 1; tell ana 0 1; until_true sh -c '! grep -q inaccessible /sys/class/nvme/nvme*/nvme*c*n1/ana_state'
sleep 1; tell close 0; sleep 4; touch /tmp/stop; wait $pid
dd if=/dev/nvme0n1 of=/tmp/b bs=64k count=32 iflag=direct 2> /dev/null; cmp /tmp/a /tmp/b
dmesg | grep -E 'starting error recovery|Failed reconnect|reconnect' | head -3
nvme disconnect-all
