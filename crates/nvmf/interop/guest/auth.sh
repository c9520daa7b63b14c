# DH-HMAC-CHAP one way and both ways; wrong keys are refused.
set -e; . ./lib.sh
refused connect
refused connect --dhchap-secret="$OTHER"
connect --dhchap-secret="$KEY"; wait_dev /dev/nvme0n1; dmesg | grep -i 'authenticated'; nvme disconnect-all
connect --dhchap-secret="$KEY" --dhchap-ctrl-secret="$CTRL" -i 2; wait_dev /dev/nvme0n1
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2> /dev/null; nvme disconnect-all
refused connect --dhchap-secret="$KEY" --dhchap-ctrl-secret="$OTHER"
refused connect -q nqn.2014-08.org.nvmexpress:uuid:e5c0ffee-0000-4000-8000-0000000000aa --dhchap-secret="$KEY"
