# The kernel's target, for the initiator outside: RAM, or with FDP=1 QEMU's drive passed through.
set -e; . ./lib.sh
if [ -n "$FDP" ]; then modprobe -q nvme || true; wait_dev /dev/nvme0n1; passthru /dev/nvme0; else target 64; fi
[ -z "$KEY" ] || allow_host $HOSTNQN "$KEY" "$CTRL"
echo READY
# Ends when an initiator was there and is gone.
busy() { netstat -tn | grep -q ':4420 .*ESTABLISHED'; }
until_true busy
idle=0
for _ in $(seq 1200); do
  if busy; then idle=0; else idle=$((idle + 1)); fi
  [ $idle -lt 20 ] || exit 0
  sleep 0.1
done
exit 1
