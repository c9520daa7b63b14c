# Functions for the scripts of this folder, which run in the guest. HOST and PORT are the target's.
. ./kernel-target.sh
SUB=${SUB:-nqn.2026-01.io.esker:vol1}
HOST=${HOST:-10.0.2.2}
PORT=${PORT:-4420}

# connect [ARGUMENTS]: to the target's subsystem.
connect() { nvme connect -t tcp -a $HOST -s $PORT -n $SUB "$@"; }
# tell WORDS: has the program that started the guest tell the target something.
tell() { echo "HOST: $*"; }
# until COMMAND...: waits until it succeeds, at most 20 s.
until_true() { for _ in $(seq 200); do "$@" && return; sleep 0.1; done; echo "never: $*" >&2; return 1; }
# refused COMMAND...: succeeds if the command fails.
refused() { if "$@"; then echo "not refused: $*" >&2; return 1; fi; }
# first_disk: waits for a namespace of any controller and says its name.
first_disk() { until_true sh -c 'ls /dev/nvme?n1' > /dev/null 2>&1; ls /dev/nvme?n1 | head -1; }
