"""Forks, exits and kills: a child gets errors and ends cleanly, and no acknowledged write is lost."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import esker

FILLED = """
    import os, sys, threading
    import esker
    db = esker.open(sys.argv[1])
    kvs = db.kvs_or_create("rows")
    kvs.update((b"%06d" % n, b"v") for n in range(5000))
"""


def rows(path):
    with esker.open(path, "open") as db:
        return dict(db.kvs("rows").items())


def test_forked_child_gets_errors_from_every_call_and_ends_cleanly(path, run):
    out = run(FILLED + """
    snapshot, txn, batch, walk, fresh = db.snapshot(), db.transaction(), db.batch(), kvs.items(), kvs.keys()
    next(walk)
    txn.put(kvs, b"k", b"txn")
    batch.put(kvs, b"k", b"batch")
    calls = [
        lambda: kvs[b"k"], lambda: kvs.get(b"k"), lambda: b"k" in kvs, lambda: kvs.put(b"k", b""), lambda: kvs.delete(b"k"),
        lambda: kvs.get_many([b"k"]), kvs.items, lambda: iter(kvs), lambda: kvs.update({b"k": b""}), kvs.clear,
        kvs.options, kvs.metadata, kvs.first, kvs.is_empty, lambda: kvs.set_policy("auto"),
        lambda: kvs.compare_and_set(b"k", None, b""), kvs.delete_range, lambda: kvs.delete_prefix(b"k"),
        lambda: snapshot.get(kvs, b"k"), lambda: snapshot.items(kvs), lambda: txn.get(kvs, b"k"),
        lambda: txn.put(kvs, b"k", b""), txn.commit, batch.write, lambda: batch.put(kvs, b"k", b""), lambda: len(batch),
        db.snapshot, db.transaction, db.batch, db.sync, db.stats, db.remarks, db.kvs_names, lambda: db.kvs("rows"),
        lambda: db.create_kvs("x"), lambda: db.kvs_or_create("x"), lambda: db.drop_kvs("rows"), db.compact, db.settle,
        db.compact_status, db.cancel_compact, db.ingest, db.format_version, db.upgrade,
        lambda: db.backup(sys.argv[1] + "-copy"), lambda: db.add_staging(True), db.remove_staging,
        lambda: next(walk), lambda: next(fresh), db.close,
    ]
    pid = os.fork()
    if pid == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except esker.ClosedError as error:
                assert "fork first" in str(error), error
                refused += 1
        snapshot.close(), txn.rollback(), walk.close()
        print("refused", refused, "of", len(calls), flush=True)
        sys.exit(7)
    _, status = os.waitpid(pid, 0)
    print("child", os.waitstatus_to_exitcode(status))
    txn.commit()
    print(kvs[b"k"], len(list(walk)))
    db.close()
    """, path)
    lines = out.splitlines()
    words = lines[0].split()
    assert words[1] == words[3] and int(words[1]) > 45, lines
    assert lines[1:] == ["child 7", "b'txn' 4999"]


def test_child_forked_beside_busy_threads_ends_cleanly(path, run):
    out = run(FILLED + """
    import gc
    stop = threading.Event()
    def work(seed):
        walk = kvs.items()
        while not stop.is_set():
            for n in range(100):
                kvs.put(b"%d-%d" % (seed, n), b"x" * 1000)
                next(walk, None)
            walk = kvs.items()
            with db.transaction() as txn:
                txn.put(kvs, b"%d" % seed, b"")
            shared.put(kvs, b"k", b"v")
            next(everyone, None)
    shared, everyone = db.batch(), kvs.items()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads: thread.start()
    codes = []
    for n in range(20):
        pid = os.fork()
        if pid == 0:
            for call in (lambda: kvs[b"k"], lambda: next(everyone), lambda: shared.put(kvs, b"k", b""), db.close):
                try:
                    call()
                    os._exit(9)
                except esker.ClosedError:
                    pass
            if n % 2:
                del shared, everyone, kvs, db
                gc.collect()
            sys.exit(0)
        codes.append(os.waitpid(pid, 0)[1])
    stop.set()
    for thread in threads: thread.join()
    db.close()
    print(codes.count(0))
    """, path)
    assert out == "20\n"


FORKS = int(os.environ.get("ESKER_FORKS", "60"))


def test_child_forked_beside_calls_of_all_kinds_opens_its_own_and_never_hangs(path, run):
    out = run(FILLED + """
    import signal
    stop = threading.Event()
    shared, everyone, view, open_txn = db.batch(), kvs.items(), db.snapshot(), db.transaction()
    def write(seed):
        while not stop.is_set():
            for n in range(200): kvs.put(b"%d-%d" % (seed, n), b"x" * 1000, durable=n % 100 == 0)
    def read(seed):
        while not stop.is_set():
            kvs.get_many([b"%06d" % n for n in range(100)])
            for _ in kvs.items(limit=300): pass
            next(everyone, None)
            shared.put(kvs, b"k", b"v"), shared.clear()
            view.get(kvs, b"000001")
            try: open_txn.get(kvs, b"000001")
            except esker.TransactionError: pass
            with db.transaction() as txn: txn.put(kvs, b"%d" % seed, b"")
    def open_others(seed):
        while not stop.is_set():
            with esker.open(f"{sys.argv[1]}-{seed}", memory_bytes=16 << 20) as other:
                other.kvs_or_create("rows")[b"k"] = b"v"
    jobs = [write, write, read, read, open_others, open_others]
    threads = [threading.Thread(target=job, args=(n,)) for n, job in enumerate(jobs)]
    for thread in threads: thread.start()
    forks, bad = int(sys.argv[2]), []
    for n in range(forks):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            for call in (lambda: kvs[b"k"], lambda: next(everyone), lambda: shared.put(kvs, b"k", b""), db.close,
                         lambda: view.get(kvs, b"k"), lambda: open_txn.put(kvs, b"k", b""), db.stats, db.remarks):
                try:
                    call()
                    os._exit(9)
                except esker.ClosedError:
                    pass
            if n % 2:
                del shared, everyone, view, open_txn, kvs, db
            own = esker.open(f"{sys.argv[1]}-child-{n}", memory_bytes=16 << 20)
            rows = own.kvs_or_create("rows")
            rows.update((b"%03d" % m, b"v" * 500) for m in range(300))
            rows.put(b"d", b"", durable=True)
            own.ingest()
            assert len(list(rows.items())) == 301
            if n % 3: own.close()
            sys.exit(0)
        code = os.waitpid(pid, 0)[1]
        if code: bad.append((n, code))
        esker.destroy(f"{sys.argv[1]}-child-{n}")
    stop.set()
    for thread in threads: thread.join()
    db.close()
    print(bad)
    """, path, FORKS, timeout=60 + 5 * FORKS)
    assert out == "[]\n"


def test_child_leaves_with_blocks_with_its_own_exit_code(path, run):
    out = run("""
    import os, sys
    import esker
    pid = None
    with esker.open(sys.argv[1]) as db:
        kvs = db.kvs_or_create("rows")
        with db.transaction() as txn, db.snapshot(), kvs.items():
            txn.put(kvs, b"k", b"v")
            pid = os.fork()
            if pid == 0:
                sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), kvs[b"k"])
    """, path)
    assert out == "5 b'v'\n"
    assert rows(path) == {b"k": b"v"}


def test_child_opens_the_kvdb_after_the_parent_has_closed_it(path, run):
    out = run(FILLED + """
    pid = os.fork()
    if pid == 0:
        try:
            esker.open(sys.argv[1])
        except esker.InUseError:
            sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    db.close()
    pid = os.fork()
    if pid == 0:
        with esker.open(sys.argv[1]) as db:
            db.kvs("rows")[b"child"] = b"v"
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(esker.open(sys.argv[1]).kvs("rows")[b"child"])
    """, path)
    assert out == "3\n0\nb'v'\n"


def worker(path, number):
    with esker.open(f"{path}-{number}") as db:
        db.kvs_or_create("rows")[b"n"] = b"%d" % number
    return number


def inherited(number):
    try:
        return INHERITED.get(b"k")
    except esker.ClosedError:
        return "refused"


INHERITED = None


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_in_each_way(db, kvs, path, method):
    global INHERITED
    kvs[b"k"] = b"v"
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.starmap(worker, [(path, n) for n in range(4)], 1) == [0, 1, 2, 3]
    for number in range(4):
        assert rows(f"{path}-{number}") == {b"n": b"%d" % number}
    if method == "fork":
        INHERITED = kvs
        with context.Pool(2) as pool:
            assert pool.map(inherited, range(4), 1) == ["refused"] * 4
        INHERITED = None
    assert kvs[b"k"] == b"v"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_beside_busy_threads(db, kvs, path, method):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            for n in range(100):
                kvs[b"%d" % n] = b"v" * 1000
            list(kvs.items())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        context = multiprocessing.get_context(method)
        for turn in range(3):
            with context.Pool(3) as pool:
                names = [(f"{path}-{turn}", n) for n in range(6)]
                assert pool.starmap_async(worker, names, 1).get(60) == list(range(6))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_handles_are_not_pickled(db, kvs):
    import pickle

    for handle in (db, kvs, db.snapshot(), db.batch(), db.transaction(), kvs.items()):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(handle)


@pytest.mark.parametrize("end", [
    "pass", "sys.exit(0)", "del db", "import gc; gc.collect()", "loop = [db, kvs]; loop.append(loop); del db, kvs",
    "class Late:\n        def __del__(self, kvs=kvs): kvs.get(b'000001')\n    late = Late()",
])
def test_exit_without_close_keeps_acknowledged_writes(path, run, end):
    run(FILLED + f"""
    walk, txn, snapshot = kvs.items(), db.transaction(), db.snapshot()
    next(walk)
    kvs[b"last"] = b"v"
    {end}
    """, path)
    assert len(rows(path)) == 5001


def test_exit_with_daemon_threads_in_calls_is_clean(path, run):
    for _ in range(10):
        run("""
        import sys, threading, time
        import esker
        db = esker.open(sys.argv[1])
        kvs = db.kvs_or_create("rows")
        def work(seed):
            n = 0
            while True:
                kvs[b"%d-%d" % (seed, n)] = b"x" * 1000
                n += 1
                for _ in kvs.items(limit=100): pass
                kvs.get_many([b"a", b"b"])
                kvs.update((b"%d" % n, b"") for n in range(100))
                kvs.get_many(b"%d" % n for n in range(100))
                try: kvs.put(bytes(2000), b"")
                except esker.InvalidError: pass
        def maintain():
            while True:
                db.compact(on_progress=lambda *progress: None)
                db.sync(), db.stats()
        for target in (*[lambda seed=seed: work(seed) for seed in range(4)], maintain):
            threading.Thread(target=target, daemon=True).start()
        time.sleep(0.2)
        kvs[b"last"] = b"v"
        """, path)
        assert rows(path)[b"last"] == b"v"


def test_killed_process_loses_no_acknowledged_write(path):
    program = textwrap.dedent("""
    import sys
    import esker
    kvs = esker.open(sys.argv[1]).kvs_or_create("rows")
    n = 0
    while True:
        kvs[b"%08d" % n] = b"x" * 500
        print(n, flush=True)
        n += 1
    """)
    last = -1
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True)
        for _ in range(2000):
            last = max(last, int(child.stdout.readline()))
        child.send_signal(signal.SIGKILL)
        told = child.stdout.read().splitlines()
        last = max([last, *map(int, [line for line in told if line.isdigit()][:-1])])
        child.wait()
        held = rows(path)
        assert all(b"%08d" % n in held for n in range(last + 1))


# ---- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [
    "kvs.update((b'%09d' % n, b'x' * 100) for n in range(1 << 60))",
    "kvs.update(itertools.repeat((b'k', b'v')))",
    "collections.deque((row for _ in itertools.count() for row in kvs.items()), maxlen=0)",
    "while True: kvs.get(b'000001')",
    "while True: kvs.put(b'k', b'v' * 1000, durable=True)",
    "while True: kvs.get_many(keys)",
    "while True: db.compact(); kvs[b'k'] = b''",
    "while True: shutil.rmtree(copy, ignore_errors=True); db.backup(copy)",
])
def test_keyboard_interrupt_ends_long_work(path, work):
    # In CPython 3.11 an interrupt at the jump back to the first statement of a `try` is not caught by it.
    program = textwrap.dedent(FILLED) + textwrap.dedent("""
    import collections, itertools, shutil
    print("ready", flush=True)
    try:
        keys, copy = [b"%06d" % n for n in range(5000)], sys.argv[1] + "-copy"
        {}
    except KeyboardInterrupt:
        print("interrupted", kvs[b"000001"], flush=True)
    db.close()
    """).format(work)
    child = subprocess.Popen(
        [sys.executable, "-c", program, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=30)
    finally:
        child.kill()
    assert (out, errors, child.returncode) == ("interrupted b'v'\n", "", 0)
    assert len(rows(path)) >= 5000


def test_signal_handler_uses_the_kvdb_that_it_interrupts(path, run):
    out = run(FILLED + """
    import signal
    seen = []
    def handle(number, frame):
        kvs[b"signal"] = b"%d" % len(seen)
        seen.append(len(list(kvs.items(limit=10))))
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while len(seen) < 200:
        for _ in kvs.items(): pass
        with db.transaction() as txn: txn.put(kvs, b"k", b"v")
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(min(seen))
    db.close()
    """, path)
    assert out == "10\n"


@pytest.mark.parametrize("work, was_called_off", [
    ("db.compact()", "db.compact_status()['cancelled']"),
    ("db.backup(copy)", "not os.path.exists(os.path.join(copy, 'manifest.esker'))"),
])
def test_signal_calls_long_work_off(path, run, work, was_called_off):
    out = run(FILLED + f"""
    import shutil, signal
    copy = sys.argv[1] + "-copy"
    def handle(number, frame):
        raise InterruptedError
    signal.signal(signal.SIGALRM, handle)
    for turn in range(60):
        kvs.update((b"%d-%06d" % (turn, n), b"v" * 500) for n in range(20000))
        db.ingest()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.003)
            {work}
            signal.setitimer(signal.ITIMER_REAL, 0)
        except InterruptedError:
            if {was_called_off}:
                print("called off")
                break
        shutil.rmtree(copy, ignore_errors=True)
    """, path)
    assert out == "called off\n"


def test_signal_interrupts_a_loop_in_c_over_a_walk(path, run):
    out = run(FILLED + """
    import collections, signal
    kvs.update((b"%09d" % n, b"v" * 100) for n in range(200_000))
    walk = kvs.items()
    def handle(number, frame):
        next(walk)
        raise InterruptedError
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.005)
    try:
        collections.deque(walk, 0)
    except InterruptedError:
        print(len(list(walk)) > 0)
    """, path)
    assert out == "True\n"


def test_no_signal_handler_is_installed(run, tmp_path):
    out = run("""
    import signal, sys
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    def caught():
        masks = [line.split() for line in open("/proc/self/status") if line[:6] in ("SigCgt", "SigIgn", "SigBlk")]
        # The C library's own signals for threads are 32 and 33.
        return [(name, int(mask, 16) & ~(3 << 31)) for name, mask in masks]
    kernel = caught()
    import esker
    with esker.open(sys.argv[1]) as db: db.kvs_or_create("rows")[b"k"] = b"v"
    assert before == {number: signal.getsignal(number) for number in signal.valid_signals()}
    assert caught() == kernel
    print("same")
    """, tmp_path / "db")
    assert out == "same\n"


@pytest.mark.parametrize("work, call", [
    ("db.compact()", "db.close()"), ("db.compact()", "db.sync()"), ("db.compact()", "db.drop_kvs('rows')"),
    ("db.compact()", "db.backup(copy)"), ("db.compact()", "db.settle()"), ("db.backup(copy)", "db.sync()"),
    ("db.backup(copy)", "db.drop_kvs('rows')"), ("db.backup(copy)", "db.backup(copy + '2')"),
    ("db.backup(copy)", "db.settle()"),
])
def test_signal_handler_during_long_work_may_call_the_same_kvdb(path, run, work, call):
    out = run(FILLED + f"""
    import shutil, signal
    copy, called = sys.argv[1] + "-copy", []
    def handle(number, frame):
        called.append(1)
        {call}
        raise InterruptedError
    for _ in range(30):
        kvs.update((b"%06d" % n, b"v" * 500) for n in range(20000))
        db.ingest()
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        try:
            {work}
        except (InterruptedError, esker.ClosedError, esker.NotFoundError):
            pass
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        shutil.rmtree(copy, ignore_errors=True)
        if called:
            break
    print(len(called))
    """, path)
    assert out == "1\n"


def test_observer_may_call_the_same_kvdb(path, run):
    out = run(FILLED + """
    seen = []
    def observe(phase, done, total):
        if not seen:
            seen.append(1)
            db.settle(), db.sync(), db.stats(), db.close()
    for work in (lambda: db.backup(sys.argv[1] + "-copy", on_progress=observe), lambda: db.compact(on_progress=observe)):
        try:
            work()
        except esker.ClosedError:
            pass
    print(db.closed)
    """, path)
    assert out == "True\n"
