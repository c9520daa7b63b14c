"""Programs with and without `esker run` see the same signals, and are seen the same: signals.py ESKER DIRECTORY DAEMON.

Each case runs twice, and both outcomes are compared; then daemons are looked at. DAEMON is daemon.c, built."""
import contextlib
import glob
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.abspath(__file__)
PATIENCE = 40
# What a user may send or ignore. SIGKILL and SIGSTOP can only be sent.
CATCHABLE = [s for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]
ENDING = [s for s in CATCHABLE if s not in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH,
                                            signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)]


def until(holds, what):
    end = time.time() + PATIENCE
    while not holds():
        assert time.time() < end, f"it did not come: {what}"
        time.sleep(0.02)


# ---- the program: it counts signals, and ends at SIGALRM with 3 ----

def program(log):
    seen = []
    memory = bytearray(b"\x11" * (8 << 20))

    def note(number, _):
        seen.append(number)
        with open(log + ".new", "w") as file:
            json.dump(seen, file)
        os.rename(log + ".new", log)

    # numbers of the standard library's own threads are left out
    for number in CATCHABLE:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, note)
    if "+tstp" in sys.argv:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    with open(log + ".ready", "w") as file:
        file.write(str(os.getpid()))
    while signal.SIGALRM not in seen:
        signal.pause()
        assert memory[4 << 20] == 0x11
    sys.exit(3)


def seen(log):
    with contextlib.suppress(OSError, ValueError), open(log) as file:
        return json.load(file)
    return []


class Run:
    """The program, started."""

    def __init__(self, prefix, log, before=(), **how):
        self.log = log
        for name in glob.glob(log + "*"):
            os.remove(name)
        command = [*before, *prefix, sys.executable, HERE, "--program", log]
        self.child = subprocess.Popen(command, stderr=subprocess.DEVNULL, **how)
        until(lambda: os.path.exists(log + ".ready") and open(log + ".ready").read(), "the program")
        self.pid = int(open(log + ".ready").read())

    def send(self, number, to=None):
        """Sends a signal, and waits until it has arrived."""
        count = len(seen(self.log))
        (to or (lambda n: os.kill(self.child.pid, n)))(number)
        until(lambda: len(seen(self.log)) > count, f"signal {number}")

    def end(self):
        time.sleep(0.2)  # a signal that comes twice comes soon
        os.kill(self.pid, signal.SIGALRM)
        return self.child.wait(PATIENCE), seen(self.log)


# ---- cases: each gives an outcome that can be compared ----

def outcome(prefix, command, **how):
    return subprocess.run([*prefix, *command], capture_output=True, text=True, timeout=PATIENCE, **how)


def exit_codes(prefix, _):
    return [outcome(prefix, ["sh", "-c", f"exit {code}"]).returncode for code in (0, 1, 7, 126, 127, 128, 200, 255)]


def deaths(prefix, _):
    script = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), int(sys.argv[1]))"
    deadly = [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV, signal.SIGABRT, signal.SIGUSR1,
              signal.SIGRTMIN + 3]
    return [outcome(prefix, [sys.executable, "-c", script, str(int(number))]).returncode for number in deadly]


def shell_sees_deaths(prefix, _):
    words = " ".join(f"'{word}'" for word in prefix)
    return outcome([], ["sh", "-c", f"{words} sh -c 'kill -TERM $$'; echo $?"]).stdout


def every_signal(prefix, log):
    run = Run(prefix, log)
    for number in CATCHABLE:
        if number != signal.SIGALRM:
            run.send(number)
    return run.end()


def group(prefix, log):
    run = Run(prefix, log, process_group=0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1):
        run.send(number, lambda n: os.killpg(run.child.pid, n))
    return run.end()


def stopped(prefix, log):
    run = Run(prefix, log)
    os.kill(run.child.pid, signal.SIGSTOP)
    _, status = os.waitpid(run.child.pid, os.WUNTRACED)
    was_stopped = os.WIFSTOPPED(status)
    run.send(signal.SIGCONT)
    return was_stopped, run.end()


def dispositions(prefix, _):
    found = []
    for number in CATCHABLE:
        def ignore():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_IGN)
        ran = outcome(prefix, ["grep", "^Sig[IB]", "/proc/self/status"], preexec_fn=ignore,
                      restore_signals=False)
        found.append((number, ran.returncode, ran.stdout))
    return found


def nohup(prefix, _):
    ran = outcome(["nohup", *prefix], ["sh", "-c", "kill -HUP $$; grep ^SigI /proc/self/status; exit 4"])
    return ran.returncode, ran.stdout


def timeouts(prefix, _):
    ways = ([], ["-s", "KILL"], ["-s", "INT"], ["--foreground"])
    return [outcome(["timeout", *way, "3", *prefix], ["sleep", "60"]).returncode for way in ways]


def sessions(prefix, _):
    ran = outcome(["setsid", "-w", *prefix], ["sh", "-c", "set -- $(cat /proc/$$/stat); [ $1 = $5 ] && [ $1 = $6 ] && exit 5"])
    return ran.returncode


def pipes(prefix, _):
    writer = subprocess.Popen([*prefix, "yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    writer.stdout.readline()
    writer.stdout.close()
    return writer.wait(PATIENCE)


def family(prefix, _):
    script = """
import os, sys
try:
    os.wait()
    print("a child that it has not got")
except ChildProcessError:
    print("no child")
print(os.getppid() == int(sys.argv[1]), os.getpgrp() == int(sys.argv[2]))
"""
    child = subprocess.Popen([*prefix, sys.executable, "-c", script, str(os.getpid()), str(os.getpgrp())],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    pid = child.pid
    text = child.communicate(timeout=PATIENCE)[0]
    own = subprocess.Popen([*prefix, "sh", "-c", "echo $$"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return pid > 0, text, own.communicate(timeout=PATIENCE)[0].strip() == str(own.pid)


def closed(prefix, _):
    words = " ".join(f"'{word}'" for word in prefix)
    script = f"exec {words} sh -c '[ -e /proc/$$/fd/0 ]; echo $?' <&-"
    return outcome([], ["sh", "-c", script]).stdout


def terminal(prefix, log):
    """Keys on a terminal, under a shell that has jobs."""
    for name in glob.glob(log + "*"):
        os.remove(name)
    pid, master = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, HERE, "--shell", log + ".shell", *prefix, sys.executable, HERE, "--program",
                                  log, "+tstp"])
    try:
        os.set_blocking(master, False)

        def drain():
            with contextlib.suppress(OSError):
                while os.read(master, 4096):
                    pass
            return True

        until(lambda: drain() and os.path.exists(log + ".ready") and open(log + ".ready").read(), "the program")
        for key in (b"\x03", b"\x1c", b"\x03"):
            count = len(seen(log))
            os.write(master, key)
            until(lambda: drain() and len(seen(log)) > count, f"key {key}")
        os.write(master, b"\x1a")
        # The shell continues it in the foreground; then it is ended.
        until(lambda: drain() and signal.SIGCONT in seen(log), "the program to go on")
        count = len(seen(log))
        os.write(master, b"\x03")
        until(lambda: drain() and len(seen(log)) > count, "a key after fg")
        time.sleep(0.2)
        os.kill(int(open(log + ".ready").read()), signal.SIGALRM)
        until(lambda: drain() and os.path.exists(log + ".shell"), "the shell")
        return seen(log), open(log + ".shell").read()
    finally:
        os.close(master)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def shell(log, command):
    """A shell with one job: puts it into the foreground, continues it when it stops, writes how it ended."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    tty, events = os.open("/dev/tty", os.O_RDWR), []
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(tty, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        events.append(f"stopped by {os.WSTOPSIG(status)}")
        os.tcsetpgrp(tty, os.getpgrp())
        time.sleep(0.2)
        os.tcsetpgrp(tty, os.getpgid(pid))
        os.killpg(pid, signal.SIGCONT)
    events.append(f"ended with {os.waitstatus_to_exitcode(status)}")
    with open(log + ".new", "w") as file:
        file.write("; ".join(events))
    os.rename(log + ".new", log)
    time.sleep(PATIENCE)


CASES = [exit_codes, deaths, shell_sees_deaths, every_signal, group, stopped, dispositions, nohup, timeouts, sessions, pipes,
         family, closed, terminal]


# ---- daemons ----

def pagers(marker):
    """Processes that serve programs whose command line has the marker."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            words = file.read().split(b"\0")
            if os.path.basename(words[0]) == b"esker" and any(marker.encode() in word for word in words):
                found.append(int(path.split("/")[2]))
    return found


def daemon(esker, directory, binary):
    """Six times its budget, read back after the parent has returned and been forgotten."""
    home = f"{directory}/daemon"
    os.mkdir(home)
    prefix = [esker, "run", "--memory", "16MiB", "--swap", "temp:768MiB", "--"]
    # With captured output: its end must not wait for the daemon.
    ran = subprocess.run([*prefix, binary, "96", home], capture_output=True, timeout=PATIENCE)
    assert ran.returncode == 42, ran
    until(lambda: os.path.exists(f"{home}/pid"), "the daemon")
    assert len(pagers(home)) == 1, pagers(home)
    pager = pagers(home)[0]
    # Signals that end most processes do not end the pager under the daemon.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(pager, number)
    open(f"{home}/go", "w").close()
    until(lambda: os.path.exists(f"{home}/right") or os.path.exists(f"{home}/wrong"), "the daemon's verdict")
    assert os.path.exists(f"{home}/right")
    until(lambda: not pagers(home), "the end of the pager")


def job(esker, directory):
    """A shell's background job, which outlives the shell. Descriptors that it has closed are closed."""
    home = f"{directory}/job"
    os.mkdir(home)
    script = ("import os, sys, time; x = bytearray(b'\\x77' * (64 << 20))\n"
              "while not os.path.exists(sys.argv[1] + '/go'): time.sleep(0.02)\n"
              "open(sys.argv[1] + '/out', 'w').write('right' if x.count(b'\\x77') == 64 << 20 else 'wrong')")
    prefix = [esker, "run", "--memory", "16MiB", "--swap", "temp:512MiB", "--"]
    command = f"{sys.executable} -c \"{script}\" {home} > /dev/null 2>&1 3>&- & exit 6"
    # The captured output is descriptor 3, too: its end must not wait for the pager.
    ran = subprocess.run(["sh", "-c", '"$@" 3>&1', "sh", *prefix, "sh", "-c", command], capture_output=True, timeout=PATIENCE)
    assert ran.returncode == 6, ran
    assert len(pagers(home)) == 1, pagers(home)
    open(f"{home}/go", "w").close()
    until(lambda: os.path.exists(f"{home}/out") and open(f"{home}/out").read(), "the job")
    assert open(f"{home}/out").read() == "right"
    until(lambda: not pagers(home), "the end of the pager")


def redis(esker, directory):
    """A server that puts itself into the background, with three times its budget."""
    home = f"{directory}/redis"
    os.mkdir(home)
    prefix = [esker, "run", "--memory", "16MiB", "--swap", "temp:512MiB", "--"]
    command = ["redis-server", "--port", "0", "--unixsocket", f"{home}/socket", "--daemonize", "yes", "--pidfile",
               f"{home}/pid", "--save", "", "--dir", home]
    ran = subprocess.run([*prefix, *command], capture_output=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran
    sys.path.insert(0, os.path.dirname(HERE))
    import servers
    server = servers.Redis(home)

    def answers():
        with contextlib.suppress(OSError, RuntimeError):
            server.connect()
            return True
        return False

    until(answers, "redis")
    for first in range(0, 48000, 100):
        server.put(range(first, first + 100))
    for first in range(0, 48000, 100):
        servers.check(server, range(first, first + 100))
    os.kill(int(open(f"{home}/pid").read()), signal.SIGTERM)
    until(lambda: not pagers(home), "the end of the pager")


def killed_pager(esker, directory, binary):
    """A daemon whose pager is killed does not go on with other data."""
    home = f"{directory}/killed"
    os.mkdir(home)
    prefix = [esker, "run", "--memory", "16MiB", "--swap", "temp:768MiB", "--"]
    assert subprocess.run([*prefix, binary, "96", home], timeout=PATIENCE).returncode == 42
    until(lambda: os.path.exists(f"{home}/pid"), "the daemon")
    pid = int(open(f"{home}/pid").read())
    os.kill(pagers(home)[0], signal.SIGKILL)
    time.sleep(0.5)
    open(f"{home}/go", "w").close()

    def is_gone():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
        return True

    until(is_gone, "the end of the daemon")
    assert not os.path.exists(f"{home}/right")


def main():
    esker, directory, binary = sys.argv[1:4]
    chosen = sys.argv[4:]
    prefix = [esker, "run", "--memory", "16MiB", "--swap", "temp:256MiB", "--"]
    wrong = 0
    for case in CASES:
        if chosen and case.__name__ not in chosen:
            continue
        plain = case([], f"{directory}/plain")
        try:
            paged = case(prefix, f"{directory}/paged")
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            paged = error
        print("same  " if plain == paged else "DIFFER", case.__name__, flush=True)
        if plain != paged:
            wrong += 1
            print(f"  without: {plain}\n  with:    {paged!r}")
    daemons = [(daemon, (binary,)), (job, ()), (killed_pager, (binary,))]
    if shutil.which("redis-server"):
        daemons.append((redis, ()))
    for check, more in daemons:
        if chosen and check.__name__ not in chosen:
            continue
        try:
            check(esker, directory, *more)
            print("right ", check.__name__, flush=True)
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            wrong += 1
            print("WRONG ", check.__name__, repr(error), flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--program":
        program(sys.argv[2])
    elif sys.argv[1] == "--shell":
        shell(sys.argv[2], sys.argv[3:])
    else:
        main()
