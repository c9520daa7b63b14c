# What nvme-cli asks: what is supported succeeds, the rest is refused with a status.
set -e; . ./lib.sh
connect; c=/dev/nvme0 n=/dev/nvme0n1; wait_dev $n
for a in list 'list -v' "id-ctrl $c" "id-ns $n" "ns-descs $n" "list-ns $c" "list-ctrl $c" "smart-log $c" "error-log $c" \
  "ana-log $c" "effects-log $c" "supported-log-pages $c" "fw-log $c" "get-feature $c -f 0xf" "get-feature $c -f 7" \
  "nvm-id-ctrl $c" "id-iocs $c" "cmdset-ind-id-ns $c -n 1" "changed-ns-list-log $c" "flush $n" \
  "write-zeroes $n -s 0 -c 7" "dsm $n -d -s 0 -b 8" "verify $n -s 0 -c 0" "get-log $c -i 0x02 -l 512" "ns-rescan $c"; do
  # The oldest nvme-cli does not know all of them.
  nvme $a > /tmp/o 2>&1 || grep -qE "Invalid sub-command|ERROR: Invalid" /tmp/o || { echo "failed: nvme $a"; cat /tmp/o; exit 1; }
done
# nvme-cli 2.3 cannot show the registers of any fabrics controller, but single ones.
nvme show-regs $c > /tmp/o 2>&1 || nvme get-property $c -o 0
head -c 4096 /dev/zero > /tmp/z; nvme write-zeroes $n -s 0 -c 0
nvme compare $n -s 0 -c 0 -z 4096 -d /tmp/z
head -c 4096 /dev/urandom > /tmp/r; refused nvme compare $n -s 0 -c 0 -z 4096 -d /tmp/r
for a in "list-ns -a $c" "write-uncor $n -s 0 -c 0" "copy $n -d 8 -s 0 -b 0" "dir-receive $n -D 0 -O 1" "format $n -f" \
  "persistent-event-log $c -a 0" "lba-status-log $c" "sanitize-log $c" "self-test-log $c" "boot-part-log $c -f /tmp/y" \
  "endurance-log $c -g 1" "primary-ctrl-caps $c" "id-domain $c" "fdp status $n" "fdp configs $c -e 1"; do
  refused nvme $a > /tmp/o 2>&1 || { echo "nvme $a: not refused"; cat /tmp/o; exit 1; }
done
nvme reset $c; until_true dd if=$n of=/dev/null bs=4k count=1 iflag=direct 2> /dev/null
nvme disconnect-all
