"""Redis and memcached with four times their budget: servers.py WHICH ESKER DIRECTORY BUDGET_MIB RECORDS.

Every answer is compared. Resident memory of the server and of the pager is looked at every 10 ms."""
import os
import random
import socket
import subprocess
import sys
import threading
import time

VALUE = 1000
MIB = 1 << 20


def value(n):
    return random.Random(n).randbytes(VALUE)


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


class Sampler(threading.Thread):
    """The most that some processes together have in memory, over what they had at first."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.base, self.most, self.ended = pids, sum(map(resident, pids)), 0, False

    def run(self):
        while not self.ended:
            try:
                self.most = max(self.most, sum(map(resident, self.pids)) - self.base)
            except (OSError, IndexError):
                return
            time.sleep(0.01)


class Redis:
    name = "redis"

    def __init__(self, directory):
        self.path, self.directory = f"{directory}/socket", directory

    def command(self):
        return ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--dir", self.directory,
                "--logfile", f"{self.directory}/log"]

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.path)
        self.file = self.socket.makefile("rb")
        self.call(["PING"])

    def read(self):
        line = self.file.readline()
        if line[:1] == b"$":
            size = int(line[1:])
            return None if size < 0 else self.file.read(size + 2)[:-2]
        if line[:1] == b"-" or not line:
            raise RuntimeError(line)
        return line[1:-2]

    def call(self, *commands):
        data = bytearray()
        for command in commands:
            data += b"*%d\r\n" % len(command)
            for word in command:
                word = word.encode() if isinstance(word, str) else word
                data += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(data)
        return [self.read() for _ in commands]

    def put(self, numbers):
        self.call(*[["SET", f"k{n}", value(n)] for n in numbers])

    def get(self, numbers):
        return self.call(*[["GET", f"k{n}"] for n in numbers])

    def is_saving(self):
        return b"rdb_bgsave_in_progress:1" in self.call(["INFO", "persistence"])[0]

    def extra(self, records):
        """A snapshot while records change, and a restart from it."""
        began, writes = time.time(), 0
        self.call(["BGSAVE"])
        rng = random.Random(3)
        while self.is_saving():
            self.put([rng.randrange(records) for _ in range(10)])
            writes += 10
            time.sleep(0.01)
        figure("BGSAVE", f"{time.time() - began:.1f} s beside {writes} writes")
        assert b"rdb_last_bgsave_status:ok" in self.call(["INFO", "persistence"])[0]

    def stop(self):
        self.socket.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")


class Memcached:
    name = "memcached"

    def __init__(self, directory):
        self.path = f"{directory}/socket"

    def command(self):
        return ["memcached", "-s", self.path, "-m", "2048", "-u", "root", "-t", "2"]

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.path)
        self.file = self.socket.makefile("rb")

    def put(self, numbers):
        numbers = list(numbers)
        self.socket.sendall(b"".join(b"set k%d 0 0 %d\r\n%s\r\n" % (n, VALUE, value(n)) for n in numbers))
        for _ in numbers:
            assert self.file.readline() == b"STORED\r\n"

    def get(self, numbers):
        self.socket.sendall(b"".join(b"get k%d\r\n" % n for n in numbers))
        found = []
        for _ in numbers:
            line = self.file.readline()
            found.append(None)
            if line != b"END\r\n":
                found[-1] = self.file.read(VALUE + 2)[:-2]
                assert self.file.readline() == b"END\r\n"
        return found

    def extra(self, records):
        pass

    def stop(self):
        self.socket.close()
        os.kill(self.pid, 15)


def figure(what, text):
    print(f"{what:8} {text}", flush=True)


def start(server, prefix):
    runner = subprocess.Popen(prefix + server.command(), stdout=subprocess.DEVNULL)
    for _ in range(300):
        try:
            server.connect()
            break
        except (OSError, RuntimeError):  # not there yet, or loading
            time.sleep(0.1)
    server.pid = runner.pid
    return runner


def pager(directory):
    """The process that serves the program of this directory."""
    return int(subprocess.run(["pgrep", "-f", f"esker run .*{directory}"], stdout=subprocess.PIPE).stdout.split()[0])


def check(server, numbers):
    for n, found in zip(numbers, server.get(numbers)):
        assert found == value(n), f"record {n}"


def main():
    which, esker, directory, budget, records = sys.argv[1:6]
    budget, records, slow = int(budget), int(records), 2048
    prefix = [esker, "run", "--memory", f"{budget}MiB", "--swap", os.environ.get("SWAP", f"temp:{slow}MiB"), "--"]
    if os.environ.get("PREFIX"):
        prefix = os.environ["PREFIX"].split()
    server = {"redis": Redis, "memcached": Memcached}[which](directory)
    runner = start(server, prefix)
    sampler = Sampler([pager(directory), server.pid] if prefix else [server.pid])
    sampler.start()
    began = time.time()
    for first in range(0, records, 100):
        server.put(range(first, min(first + 100, records)))
    figure("load", f"{records / (time.time() - began):.0f} records/s")
    rng, gets = random.Random(5), int(os.environ.get("GETS", 4000))
    began = time.time()
    for _ in range(gets):
        check(server, [rng.randrange(records)])
    figure("random", f"{gets / (time.time() - began):.0f} records/s")
    began = time.time()
    for first in range(0, records, 100):
        check(server, range(first, min(first + 100, records)))
    figure("ordered", f"{records / (time.time() - began):.0f} records/s")
    server.extra(records)
    sampler.ended = True
    # Four times the budget, and the budget is kept.
    most, allowed = sampler.most / MIB, budget + slow * 0.0025
    figure("memory", f"{most:.1f} MiB over the beginning, {allowed:.1f} allowed")
    if not os.environ.get("PREFIX"):
        assert most <= allowed
    server.stop()
    assert runner.wait() in (0, -15), runner.returncode
    if which == "redis":
        runner = start(server, prefix)
        assert server.call(["DBSIZE"])[0] == b"%d" % records
        for first in range(0, records, 1000):
            check(server, range(first, min(first + 100, records)))
        figure("restart", "all records are there")
        server.stop()
        assert runner.wait() == 0


if __name__ == "__main__":
    main()
