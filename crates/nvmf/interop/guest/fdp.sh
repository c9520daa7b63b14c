# Every "nvme fdp" command against a namespace with data placement.
set -e; . ./lib.sh
connect; c=/dev/nvme0 n=/dev/nvme0n1; wait_dev $n
dmesg | grep -iE 'fdp|placement' || true
nvme fdp configs $c -e 1; nvme fdp configs $c -e 1 | grep -q 'Placement Handles\|NRUH\|Reclaim Unit Handles'
nvme fdp usage $c -e 1; nvme fdp stats $c -e 1
nvme fdp status $n; nvme fdp status $n | grep -q 'Placement Identifier 3'
head -c 8192 /dev/urandom > /tmp/w
nvme write $n -s 0 -c 1 -z 8192 -d /tmp/w --dir-type=2 --dir-spec=1
nvme fdp status $n | sed -n '/Placement Identifier 1/,/Placement Identifier 2/p' | grep -q '(RUAMW): 254'
nvme fdp set-events $n -n 1 -p 1 --event-types=0 -e; nvme fdp update $n -p 1
nvme fdp events $c -e 1 --host-events; nvme fdp events $c -e 1 --host-events | grep -qi 'not fully written'
nvme fdp status $n | sed -n '/Placement Identifier 1/,/Placement Identifier 2/p' | grep -q '(RUAMW): 256'
refused nvme fdp update $n -p 0,9
nvme fdp feature $c -e 1 || [ "$(nvme version | head -1 | cut -d' ' -f3)" = 2.3 ]
nvme endurance-log $c -g 1 | head -5
nvme disconnect-all
