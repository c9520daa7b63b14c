"""The processes that come from one command, with what they take: for programs."""
import collections
import ctypes
import os
import re
import signal
import time

PAGE = os.sysconf("SC_PAGESIZE")
PR_SET_CHILD_SUBREAPER = 36
C = ctypes.CDLL(None, use_errno=True)
KCMP = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine, -1)
KCMP_VM = 1
SAMPLE_S = 0.01
# Looking at each mapping stops a program for a moment, so it is done less often.
MAPPINGS_S = 0.25
SMALL = 64 * 1024
HELPER = "esker-helper"
# How long descendants may take once nothing but the pager is left.
PAGER_ENDS_S = 10

Watched = collections.namedtuple("Watched", "wall_s cpu_s code")


def adopt_orphans():
    """Descendants whose parent ends become children of this process: daemons, and the pager."""
    if C.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except (OSError, ProcessLookupError):
        return ""


def descendants(root):
    """All live descendants of a process."""
    found, left = [], [root]
    while left:
        pid = left.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        children = [int(child) for task in tasks for child in read(f"/proc/{pid}/task/{task}/children").split()]
        found += children
        left += children
    return found


def end_all():
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def stack_pointers(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            words = read(f"/proc/{pid}/task/{task}/syscall").split()
            if len(words) > 2:
                found.append(int(words[-2], 16))
    except OSError:
        pass
    return found


MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) *(.*)$")


def outside(pid):
    """Bytes of anonymous memory that docs/memory.md has outside of the budget."""
    found, stacks = 0, stack_pointers(pid)
    start = end = inode = anonymous = 0
    name = ""
    for line in read(f"/proc/{pid}/smaps").splitlines():
        if line.startswith("Anonymous:"):
            anonymous = int(line.split()[1]) * 1024
        elif line.startswith("VmFlags:"):
            paged = " um" in line or " uw" in line
            stack = name == "[stack]" or any(start <= pointer < end for pointer in stacks)
            if not paged and (inode or stack or end - start < SMALL):
                found += anonymous
        elif match := MAPPING.match(line):
            start, end, inode, name = int(match[1], 16), int(match[2], 16), int(match[3]), match[4]
    return found


def same_memory(one, other):
    return C.syscall(KCMP, one, other, KCMP_VM, 0, 0) == 0


def shared_once(pids):
    """Anonymous bytes of processes, where a page that several share counts once: after fork, and during vfork."""
    found, counted = 0, []
    for pid in pids:
        match = re.search(r"^Pss_Anon: +([0-9]+) kB", read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE)
        if match and not any(same_memory(pid, other) for other in counted):
            counted.append(pid)
            found += int(match[1]) * 1024
    return found


class Tree:
    """What the descendants of this process take together; the pager, whose program is `esker`, and helpers apart."""

    def __init__(self, esker):
        self.esker = os.path.realpath(esker)
        self.anonymous = self.outside = self.files = 0
        self.programs, self.all = [], []

    def look(self, thorough):
        self.all = descendants(os.getpid())
        self.programs = []
        anonymous = files = outside_bytes = 0
        for pid in self.all:
            try:
                if os.readlink(f"/proc/{pid}/exe") == self.esker:
                    continue
            except OSError:
                continue
            if read(f"/proc/{pid}/comm").strip() == HELPER:
                continue
            self.programs.append(pid)
            words = read(f"/proc/{pid}/statm").split()
            if len(words) < 3:
                continue
            anonymous += (int(words[1]) - int(words[2])) * PAGE
            files += int(words[2]) * PAGE
            if thorough:
                outside_bytes += outside(pid)
        if anonymous > self.anonymous and len(self.programs) > 1:
            anonymous = min(anonymous, shared_once(self.programs))
        self.anonymous, self.files = max(self.anonymous, anonymous), max(self.files, files)
        self.outside = max(self.outside, outside_bytes)

    def watch(self, child, deadline):
        """Samples until all processes have ended, or ends them at the deadline: (if they ended, Watched)."""
        began, wall_s, cpu_s, code, ended = time.monotonic(), None, 0.0, None, True
        next_mappings, alone_since = began, None
        while True:
            while True:
                try:
                    pid, status, usage = os.wait4(-1, os.WNOHANG)
                except ChildProcessError:
                    if code is None:
                        raise RuntimeError("the program was waited for by another") from None
                    return ended, Watched(wall_s, cpu_s, code)
                if pid == 0:
                    break
                cpu_s += usage.ru_utime + usage.ru_stime
                if pid == child.pid:
                    code = child.returncode = os.waitstatus_to_exitcode(status)
                    wall_s = time.monotonic() - began
            now = time.monotonic()
            thorough = now >= next_mappings
            if thorough:
                next_mappings = now + MAPPINGS_S
            self.look(thorough)
            if self.programs:
                wall_s = now - began if wall_s is not None else None
                alone_since = None
            alone_since = alone_since or (now if not self.programs else None)
            if now > deadline or (alone_since and now - alone_since > PAGER_ENDS_S):
                ended = False
                wall_s = wall_s or now - began
                end_all()
            time.sleep(SAMPLE_S)
