"""What a program can notice of its pager, and what it may do to itself: unnoticed.py ESKER DIRECTORY.

The cases run in programs of their own, each with a third of its memory."""
import contextlib
import ctypes
import mmap
import os
import platform
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.abspath(__file__)
WALL = 0x40000000
PAGE = 4096
# All programs of a test have it in their environment.
MARK = "ESKER_UNNOTICED"
libc = ctypes.CDLL(None, use_errno=True)


class Memory:
    """Memory whose content is known."""

    def __init__(self, mib):
        self.bytes = bytearray(mib << 20)
        self.write(0)

    def write(self, shift):
        self.shift = shift
        for at in range(0, len(self.bytes), PAGE):
            self.bytes[at] = (at // PAGE + shift) % 251

    def check(self):
        for at in range(0, len(self.bytes), PAGE):
            assert self.bytes[at] == (at // PAGE + self.shift) % 251, hex(at)


def status(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)


def helpers():
    """Processes that share memory with a program of this test, with their state."""
    found, mark = {}, f"{MARK}={os.environ[MARK]}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            known = status(pid)
            if known["Name"] == "esker-helper" and known["State"][0] != "Z":
                found[int(pid)] = known
    return found


# ---- cases: each is a program ----

def case_same():
    # The same threads, descriptors and children as without a pager.
    memory = Memory(48)
    assert len(os.listdir("/proc/self/task")) == 1
    assert status("self")["Threads"] == "1"
    fds = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd > "2"
           if os.path.exists(f"/proc/self/fd/{fd}")}
    assert not [one for one in fds if "userfaultfd" in one or "socket" in one], fds
    try:
        os.waitpid(-1, os.WNOHANG | WALL)
        raise AssertionError("there is a child")
    except ChildProcessError:
        pass
    memory.check()


def case_closes_all():
    memory = Memory(48)
    os.closerange(3, 4096)
    assert libc.syscall(436, 3, 0xFFFFFFFF, 0) == 0
    memory.write(3)
    memory.check()
    if os.fork() == 0:
        memory.check()
        memory.write(5)
        memory.check()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    memory.check()


def case_drops_rights():
    memory = Memory(48)
    os.setgid(65534)
    os.setuid(65534)
    memory.write(9)
    memory.check()
    for pid, known in helpers().items():
        assert int(known["CapEff"], 16) == 0, (pid, known)
        assert int(known["CapPrm"], 16) == 0 and known["NoNewPrivs"] == "1", (pid, known)
        assert known["Seccomp"] == "2", (pid, known)
    # Needs a process of one thread.
    assert libc.unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())
    memory.write(11)
    memory.check()


def case_execs():
    # The memory of a program that has become another one is given back soon.
    if sys.argv[3:] == ["again"]:
        before = int(os.environ["BEFORE"])
        end = time.time() + 0.1
        while before in helpers():
            assert time.time() < end, "the former helper holds the memory"
            time.sleep(0.005)
        return
    Memory(48)
    mine = [pid for pid in helpers() if same_memory(pid)]
    assert len(mine) == 1, mine
    os.environ["BEFORE"] = str(mine[0])
    os.execv(sys.executable, [sys.executable, HERE, "--case", "case_execs", "again"])


def same_memory(pid):
    return libc.syscall(312, os.getpid(), pid, 1, 0, 0) == 0


def case_first_thread_ends():
    # The others go on, and have the memory.
    memory = Memory(40)

    def work():
        time.sleep(0.3)
        assert status("self")["State"][0] == "Z"
        memory.check()
        memory.write(1)
        memory.check()
        print("the others go on", flush=True)
        os._exit(0)

    threading.Thread(target=work).start()
    libc.syscall(60, 0)


def case_forks_by_itself():
    # A child that no handler of the C library's has seen: its own memory, and new memory, are right.
    memory = Memory(30)
    pid = libc.syscall(57)
    if pid == 0:
        memory.check()
        memory.write(3)
        more = [bytearray(1 << 20) for _ in range(40)]
        memory.check()
        del more
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    memory.check()


def case_forks_much():
    memory = Memory(24)
    for _ in range(100):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    end = time.time() + 5
    while len(helpers()) > 1:
        assert time.time() < end, helpers().keys()
        time.sleep(0.01)
    memory.check()


def case_fills_device():
    # The snapshot for which there is no room is killed, whatever number it calls itself.
    memory = Memory(140)
    bystander = subprocess.Popen(["sleep", "60"])
    pid = os.fork()
    if pid == 0:
        for shift in range(1, 8):
            memory.write(shift)
        os._exit(0)
    for shift in range(30, 37):
        memory.write(shift)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    memory.check()
    assert bystander.poll() is None
    bystander.kill()
    print("the snapshot was killed" if code else "there was room")


def case_stops():
    memory = Memory(40)
    print("filled", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    memory.check()
    memory.write(1)
    memory.check()


# ---- the other side ----

def run(esker, case, *, swap="temp:512MiB", before=(), **how):
    command = [esker, "run", "--memory", "16MiB", "--swap", swap, "--", *before, sys.executable, HERE, "--case", case]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how)


def passes(esker, case, **how):
    process = run(esker, case, **how)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, (case, process.returncode, said)
    print("ok", case, how or "")
    return said


def stopped(esker):
    # Programs that are stopped give their memory to one that runs.
    script = " & ".join([f"{sys.executable} {HERE} --case case_stops"] * 2) + " & sleep 4; " + \
        f"{sys.executable} {HERE} --case case_closes_all || exit 9; kill -CONT $(jobs -p); " + \
        "for one in $(jobs -p); do wait $one || exit 8; done"
    command = [esker, "run", "--memory", "16MiB", "--swap", "temp:512MiB", "--", "bash", "-c", script]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=80)
    assert process.returncode == 0, process
    print("ok stopped")


def shell(esker):
    # A shell's descriptors are its own; nothing of a file is eaten, after a stop either.
    lines = os.path.join(sys.argv[2], "lines")
    with open(lines, "w") as file:
        file.write("one\ntwo\nthree\n")
    script = f"exec 3<{lines}; read a <&3; (sleep .3; kill -CONT $$) & kill -STOP $$; read b <&3; exec 3<&-; echo $a $b"
    command = [esker, "run", "--memory", "16MiB", "--swap", "temp:64MiB", "--", "bash", "-c", script]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60).stdout
    assert said == "one two\n", said
    print("ok shell")


def pipeline(esker):
    # Small programs reserve more than they use. When all of them use it, one of them has to end, and the others go on.
    script = "seq 200000 | " + "sort -R | " * 8 + "sort -n | md5sum"
    command = [esker, "run", "--memory", "16MiB", "--swap", "temp:64MiB", "--", "bash", "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
    plain = subprocess.run(["bash", "-c", "seq 200000 | md5sum"], stdout=subprocess.PIPE, text=True).stdout
    assert done.stdout == plain, done
    script = f"for n in 1 2 3; do {sys.executable} {HERE} --case case_takes & done; " + \
        "for job in $(jobs -p); do wait $job; echo $?; done"
    command = [esker, "run", "--memory", "16MiB", "--swap", "temp:96MiB", "--allocator", "own", "--", "bash", "-c",
               script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
    codes = sorted(done.stdout.split())
    assert set(codes) == {"0", "137"}, done
    assert "no space is left" in done.stderr, done
    print("ok pipeline", codes)


def case_takes():
    # Less than what is not counted.
    memory = mmap.mmap(-1, 56 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(memory), PAGE):
        memory[at] = 1 + at // PAGE % 251
    time.sleep(3)
    assert all(memory[at] == 1 + at // PAGE % 251 for at in range(0, len(memory), PAGE))


def main(esker):
    os.environ[MARK] = str(os.getpid())
    for case in ["case_same", "case_closes_all", "case_drops_rights", "case_execs", "case_forks_much"]:
        passes(esker, case)
    if platform.machine() == "x86_64":
        passes(esker, "case_first_thread_ends")
        passes(esker, "case_forks_by_itself")
    passes(esker, "case_same", before=("env",))
    passes(esker, "case_fills_device", swap="temp:256MiB")
    passes(esker, "case_fills_device", swap="temp:256MiB", before=("unshare", "-pf"))
    for tracer in (["strace", "-f", "-o", "/dev/null"], ["strace", "-o", "/dev/null"]):
        passes(esker, "case_closes_all", before=tracer)
    stopped(esker)
    shell(esker)
    pipeline(esker)
    end = time.time() + 2
    while helpers():
        assert time.time() < end, helpers()
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "--case":
        globals()[sys.argv[2]]()
    else:
        main(sys.argv[1])
