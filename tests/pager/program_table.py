"""The programs of `programs`, with what they need: their sources are in workloads."""
import dataclasses
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

INSTALL_S = 400


class Missing(Exception):
    """A program cannot be had here."""


@dataclasses.dataclass
class Place:
    """Where things are: the directory for what is made, and the one of this file."""

    work: Path
    here: Path
    short: bool

    @property
    def python(self):
        return str(self.work / "venv/bin/python")

    def fill(self, text):
        return text.format(work=self.work, here=self.here, workloads=self.here / "workloads", python=self.python,
                           system_python=sys.executable)


def quietly(command, why, place, limit_s=INSTALL_S, **options):
    try:
        done = subprocess.run(command, cwd=place.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=limit_s, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{why}: {error}") from None
    if done.returncode != 0:
        raise Missing(f"{why}: {' '.join(done.stdout.split()[-20:]) or done.returncode}")


updated = False


def install(packages, place):
    global updated
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if not updated:
        quietly(["apt-get", "-qq", "update"], "apt-get update", place, env=environment)
        updated = True
    quietly(["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages],
            f"install {' '.join(packages)} first", place, env=environment)


@dataclasses.dataclass
class Program:
    name: str
    command: str
    tools: tuple = ()  # executables or files that must be there
    apt: tuple = ()  # Debian's packages that have them
    pip: tuple = ()
    makes: tuple = ()  # commands before the first run
    input: object = None  # a function that makes a file
    variables: dict = dataclasses.field(default_factory=dict)
    user: str = ""  # `esker run` and all below it run as this user
    code: int = 0
    share: float = 0.3  # the budget, of what the program takes plain
    budget_mib: int = 0  # instead of a share
    swap: str = "8GiB"
    options: tuple = ()  # of `esker run`
    limit_s: int = 60
    typical_s: int = 5
    short: bool = False

    def line(self, place):
        words = shlex.split(place.fill(self.command))
        return [*as_user(self.user), *words] if self.user else words

    def around(self, place):
        """What stands before `esker run`, and after it."""
        words = shlex.split(place.fill(self.command))
        return (as_user(self.user), words) if self.user else ([], words)

    def environment(self, place):
        return {"LC_ALL": "C.UTF-8", **{name: place.fill(value) for name, value in self.variables.items()}}

    def prepare(self, place):
        there = [tool if "/" in tool else shutil.which(tool) for tool in self.tools]
        if not all(path and os.path.exists(path) for path in there):
            if not self.apt:
                raise Missing(f"{' and '.join(self.tools)} is not here, and Debian has no package of it")
            install(self.apt, place)
            if absent := [tool for tool in self.tools if not (os.path.exists(tool) or shutil.which(tool))]:
                raise Missing(f"{absent[0]} is not there, even with {' '.join(self.apt)}")
        if self.pip:
            if not os.path.exists(place.python):
                quietly([sys.executable, "-m", "venv", str(place.work / "venv")], "a virtual environment", place)
            for package in self.pip:
                if subprocess.run([place.python, "-c", f"import {package}"], stderr=subprocess.DEVNULL).returncode:
                    quietly([place.python, "-m", "pip", "install", "-q", package], f"pip install {package}", place)
        if self.input:
            self.input(place.work)
        for make in self.makes:
            quietly(["sh", "-c", place.fill(make)], f"'{make}' failed", place)


def as_user(user):
    """Another user with the privilege that the pager needs."""
    return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps", "+sys_ptrace",
            "--ambient-caps", "+sys_ptrace"]


def make_file(path, lines):
    if not path.exists():
        part = path.with_suffix(".part")
        with open(part, "w") as file:
            file.writelines(lines)
        part.rename(path)


def lines(work):
    """Lines nearly in order: merging them goes through memory in a few streams."""
    rng = random.Random(1)
    make_file(work / "lines.txt",
              (f"{n * 16 + rng.getrandbits(16):016x} {n} {'x' * (n % 60)}\n" for n in range(1_600_000)))


def keys(work):
    """Keys with long texts."""
    rng = random.Random(2)
    make_file(work / "keys.txt",
              (f"key{n * 7919 % 200_003} {rng.randrange(1000)} {'abcdefgh' * 60}{n}\n" for n in range(180_000)))


def records(work):
    rng = random.Random(3)

    def text():
        yield "["
        for n in range(160_000):
            row = {"id": rng.randrange(1 << 40), "tags": [f"t{rng.randrange(99)}"], "v": [n % 7, n % 11, n % 13]}
            yield ("," if n else "") + json.dumps(row) + "\n"
        yield "]\n"

    make_file(work / "records.json", text())


def templates(work):
    make_file(work / "templates.cc", ["""#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct Row {
    std::map<std::string, std::variant<int, std::string, std::array<int, N + 1>>> cells;
    std::unordered_map<int, std::vector<std::tuple<int, double, std::string>>> more;
    int sum(std::function<int(int)> f) {
        int total = N;
        std::vector<std::pair<int, std::string>> sorted;
        for (auto &[key, cell] : cells)
            total += std::visit([&](auto &x) -> int { sorted.emplace_back(sizeof x, key); return f(sizeof x); }, cell);
        std::stable_sort(sorted.begin(), sorted.end());
        for (auto &[key, rows] : more) total += key + rows.size();
        return total + (N % 8 ? 0 : std::regex_match(std::to_string(total), std::regex("[0-9]+")));
    }
};
int main() { return Row<7>().sum([](int x) { return x; }) & 1; }
"""] + [f"template struct Row<{n}>;\n" for n in range(24) if n != 7])


ALLOCATIONS = "gcc -O2 -Wall -Wextra -Werror -o {work}/allocations%s {workloads}/allocations.c %s -lpthread"
LIBRARIES = "/usr/lib/x86_64-linux-gnu" if os.uname().machine == "x86_64" else "/usr/lib/aarch64-linux-gnu"
JAVAC = "[ -e {work}/Work.class ] || javac -d {work} {workloads}/Work.java"
JDK = ("openjdk-17-jdk-headless",)


def c_program(name, suffix, link, library=None, package=None, **more):
    return Program(name, "{work}/allocations%s 4" % suffix, tools=("gcc",) + ((library,) if library else ()),
                   apt=("gcc", "libc6-dev") + ((package,) if package else ()), makes=(ALLOCATIONS % (suffix, link),),
                   **more)


def python_program(name, file, *packages, **more):
    return Program(name, "{python} {workloads}/%s" % file, pip=packages, **more)


def java(collector, label=None, **more):
    command = "java -Xms64m -Xmx640m -XX:+Use%sGC -cp {work} Work 900000" % collector
    return Program(f"Java, {label or collector}", command, tools=("java", "javac"), apt=JDK, makes=(JAVAC,),
                   limit_s=90, typical_s=15, **more)


PROGRAMS = [
    c_program("C library's allocator", "", "", short=True),
    c_program("static C program", "_static", "-static", short=True),
    Program("sort", "sort -S 300M --parallel=2 lines.txt", tools=("sort",), input=lines, short=True,
            variables={"LC_ALL": "C"}),
    Program("mawk", "mawk -f {workloads}/work.awk keys.txt", tools=("mawk",), apt=("mawk",), input=keys, short=True),
    Program("gawk", "gawk -f {workloads}/work.awk keys.txt", tools=("gawk",), apt=("gawk",), input=keys, short=True),
    Program("jq", "jq -c '([.[].id]|sort|.[80000]),(map(.v|add)|add)' records.json", tools=("jq",), apt=("jq",),
            input=records, short=True),
    Program("perl", "perl {workloads}/work.pl", tools=("perl",), apt=("perl",), short=True),
    Program("pipeline of eight tools", "sh {workloads}/pipeline.sh", tools=("mawk",), apt=("mawk",), short=True,
            budget_mib=16, swap="64MiB"),
    Program("daemon that forks twice", "{system_python} {workloads}/daemon.py", short=True),
    java("Serial", short=True),
    Program("node", "node --max-old-space-size=1024 {workloads}/work.js", tools=("node",), apt=("nodejs",), short=True),
    Program("Go", "{work}/work-go", tools=("go",), apt=("golang-go",), short=True, typical_s=8,
            makes=("[ -e {work}/work-go ] || GOFLAGS=-mod=mod GO111MODULE=off GOCACHE={work}/go-cache go build -o "
                   "{work}/work-go {workloads}/work.go",)),
    Program("SQLite in memory", "{system_python} {workloads}/sqlite_work.py", short=True),
    Program("g++, templates", "sh -c 'g++ -std=c++17 -O1 -c -o templates.o templates.cc && sha256sum < templates.o'",
            tools=("g++",), apt=("g++",), input=templates, share=0.4, short=True, typical_s=12, limit_s=90),
    java("Parallel"),
    java("G1"),
    java("Z", label="ZGC: shared memory, not paged"),
    python_program("numpy", "numpy_work.py", "numpy"),
    python_program("pandas", "pandas_work.py", "numpy", "pandas"),
    python_program("polars", "polars_work.py", "polars"),
    python_program("DuckDB", "duckdb_work.py", "duckdb"),
    python_program("LMDB", "lmdb_work.py", "lmdb"),
    python_program("chdb", "chdb_work.py", "chdb", limit_s=90),
    python_program("chdb, --allocator own", "chdb_work.py", "chdb", limit_s=90, share=0.5,
                   options=("--allocator", "own")),
    Program("ripgrep", "rg --no-mmap -U -c --text '[0-9a-f]+ 12345[0-9]* x+\\n' lines.txt", tools=("rg",),
            apt=("ripgrep",), input=lines),
    Program("ruby", "ruby {workloads}/work.rb", tools=("ruby",), apt=("ruby",)),
    Program("R", "Rscript --vanilla {workloads}/work.R", tools=("Rscript",), apt=("r-base-core",)),
    Program("PostgreSQL", "bash {workloads}/postgres.sh {work}/postgres", tools=("postgres",), apt=("postgresql",),
            makes=("mkdir -p {work}/postgres && chown postgres {work}/postgres && chmod 755 {work}",), user="postgres",
            limit_s=90, typical_s=20),
    c_program("tcmalloc, linked", "_tcmalloc", "-ltcmalloc", f"{LIBRARIES}/libtcmalloc.so", "libgoogle-perftools-dev"),
    c_program("tcmalloc, preloaded", "", "", f"{LIBRARIES}/libtcmalloc.so.4", "libgoogle-perftools-dev",
              variables={"LD_PRELOAD": f"{LIBRARIES}/libtcmalloc.so.4"}),
    Program("tcmalloc, preloaded by env", "env LD_PRELOAD=%s/libtcmalloc.so.4 {work}/allocations 4" % LIBRARIES,
            tools=("gcc", f"{LIBRARIES}/libtcmalloc.so.4"), apt=("gcc", "libc6-dev", "libgoogle-perftools-dev"),
            makes=(ALLOCATIONS % ("", ""),)),
    c_program("jemalloc, linked", "_jemalloc", "-ljemalloc", f"{LIBRARIES}/libjemalloc.so", "libjemalloc-dev"),
    c_program("jemalloc, static program", "_jemalloc_static", "-static -ljemalloc -lm -ldl -lstdc++",
              f"{LIBRARIES}/libjemalloc.a", "libjemalloc-dev"),
    c_program("mimalloc, linked", "_mimalloc", "-lmimalloc", f"{LIBRARIES}/libmimalloc.so", "libmimalloc-dev"),
    # Debian has the library without this file.
    c_program("mimalloc, static program", "_mimalloc_static",
              f"-static -Wl,--whole-archive {LIBRARIES}/libmimalloc.a -Wl,--no-whole-archive",
              f"{LIBRARIES}/libmimalloc.a", "libmimalloc-dev"),
    Program(".NET", "dotnet --version", tools=("dotnet",)),
    Program("valkey", "valkey-server --version", tools=("valkey-server",)),
]
