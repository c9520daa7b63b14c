"""An open KVDB with a KVS in it, and programs of their own processes."""

import subprocess
import sys
import textwrap

import pytest

import esker

MEMORY = 64 << 20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with esker.open(path, memory_bytes=MEMORY) as db:
        yield db


@pytest.fixture
def kvs(db):
    return db.kvs_or_create("rows")


@pytest.fixture
def run():
    """Runs a program of Python in a process of its own, and returns what it printed."""

    def run(program, *arguments, expect=0, timeout=120):
        done = subprocess.run(
            # From 3.12 on, a fork beside threads warns.
            [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program),
             *map(str, arguments)],
            capture_output=True, text=True, timeout=timeout,
        )
        assert done.returncode == expect, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert expect or not done.stderr, done.stderr
        return done.stdout

    return run
