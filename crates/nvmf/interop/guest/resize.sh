# The namespace grows, and another is added and removed, while the host is connected.
set -e; . ./lib.sh
connect; wait_dev /dev/nvme0n1
[ "$(cat /sys/block/nvme0n1/size)" = $((512 * 2048)) ]
tell grow 640
until_true sh -c '[ "$(cat /sys/block/nvme0n1/size)" = $((640 * 2048)) ]'
tell add 2 64; until_true [ -b /dev/nvme0n2 ]
tell remove 2; until_true [ ! -b /dev/nvme0n2 ]
nvme disconnect-all
