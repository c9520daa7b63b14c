# Two hosts, one after the other, and a reservation: register, acquire, conflict, preempt, release.
set -e; . ./lib.sh
n=/dev/nvme0n1
as() { # as A|B: connects as that host only
  nvme disconnect-all
  case $1 in
    A) connect ;;
    B) connect -q nqn.2014-08.org.nvmexpress:uuid:e5c0ffee-0000-4000-8000-00000000000b -I e5c0ffee-0000-4000-8000-00000000000b ;;
  esac
  until_true [ -b $n ]
}
write() { dd if=/dev/zero of=$n bs=4k count=1 oflag=direct 2> /dev/null; }
read_it() { dd if=$n of=/dev/null bs=4k count=1 iflag=direct 2> /dev/null; }
as A; nvme resv-register $n --nrkey=1 --rrega=0; nvme resv-acquire $n --crkey=1 --rtype=1 --racqa=0; write
as B; read_it; refused write
nvme resv-register $n --nrkey=2 --rrega=0; nvme resv-report $n --eds; nvme resv-report $n --eds | grep -q 'regctl *: 2'
refused nvme resv-acquire $n --crkey=2 --rtype=1 --racqa=0; refused write
nvme resv-acquire $n --crkey=2 --prkey=1 --rtype=1 --racqa=1; write
as A; refused write; read_it
as B; nvme resv-release $n --crkey=2 --rtype=1 --rrela=0
as A; write
nvme disconnect-all
