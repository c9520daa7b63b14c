"""Remarks of the engine go to the logger `esker`: from calls, never from threads of the engine."""

import textwrap

import pytest

# A process in which io_uring is refused, so that an opening has a remark.
REFUSED = textwrap.dedent("""
    import ctypes, errno, logging, os, platform, struct, sys, threading
    import esker
    assert "logging.handlers" not in sys.modules

    def refuse():
        libc = ctypes.CDLL(None, use_errno=True)
        instructions = [(0x20, 0, 0, 0), (0x35, 0, 2, 425), (0x25, 1, 0, 427), (0x06, 0, 0, 0x50000 | errno.EPERM),
                        (0x06, 0, 0, 0x7FFF0000)]
        code = b"".join(struct.pack("HBBI", *one) for one in instructions)
        class Program(ctypes.Structure):
            _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]
        program = Program(len(instructions), code)
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()

    class Seen(logging.Handler):
        def __init__(self):
            super().__init__()
            self.records = []
        def emit(self, record):
            self.records.append(record)

    seen = Seen()
    log = logging.getLogger("esker")
""")


def test_opening_tells_a_warning_and_prints_nothing_by_itself(path, run):
    out = run(REFUSED + textwrap.dedent("""
    refuse()
    with esker.open(sys.argv[1] + "-quiet"): pass
    log.addHandler(seen)
    with esker.open(sys.argv[1]) as db:
        told = [record for record in seen.records if "io_uring is refused" in record.getMessage()]
        print(len(told) > 0, {record.levelname for record in told}, {record.name for record in told})
        count = len(seen.records)
        db.kvs_or_create("rows")[b"k"] = b"v"
        db.sync()
        print(len(seen.records) == count)
    """), path)
    assert out == "True {'WARNING'} {'esker'}\nTrue\n"


def test_failure_in_the_background_is_told_as_an_error_by_a_later_call(path, run):
    out = run(REFUSED + textwrap.dedent("""
    import resource, time
    log.addHandler(seen)
    db = esker.open(sys.argv[1], memory_bytes=64 << 20)
    kvs = db.kvs_or_create("rows")
    main = threading.get_ident()
    # The files may not grow any more, wherever the engine writes next.
    size = max(entry.stat().st_size for entry in os.scandir(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    end = time.monotonic() + 60
    while not any(record.levelno == logging.ERROR for record in seen.records) and time.monotonic() < end:
        try:
            kvs.put(b"k%d" % len(seen.records), b"x" * 100_000, durable=True)
        except esker.EskerError:
            time.sleep(0.05)
    errors = [record for record in seen.records if record.levelno == logging.ERROR]
    print(len(errors), {record.thread == main for record in errors})
    """), path)
    assert out == "1 {True}\n"


def test_handler_that_raises_spoils_no_call(path, run):
    out = run(REFUSED + textwrap.dedent("""
    class Raises(logging.Handler):
        def emit(self, record):
            raise ValueError("of the handler")
    class Ends(logging.Handler):
        def emit(self, record):
            raise KeyboardInterrupt
    lost = []
    sys.unraisablehook = lambda told: lost.append(type(told.exc_value).__name__)
    refuse()
    log.addHandler(Raises())
    with esker.open(sys.argv[1]) as db:
        db.kvs_or_create("rows")[b"k"] = b"v"
    print(set(lost))
    log.handlers[:] = [Ends()]
    try:
        esker.open(sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted")
    log.handlers[:] = []
    with esker.open(sys.argv[1]) as db:
        print(db.kvs("rows")[b"k"])
    """), path)
    assert out == "{'ValueError'}\ninterrupted\nb'v'\n"


def test_handler_may_call_the_engine(path, run):
    out = run(REFUSED + textwrap.dedent("""
    class Stores(logging.Handler):
        def emit(self, record):
            kvs[b"%d" % len(kept)] = record.getMessage().encode()
            kept.append(list(kvs.items()))
            with db.transaction() as txn: txn.put(kvs, b"txn", b"")
            db.stats(), db.remarks()
    kept = []
    refuse()
    db = esker.open(sys.argv[1] + "-log")
    kvs = db.kvs_or_create("log")
    log.addHandler(Stores())
    with esker.open(sys.argv[1]) as other: other.kvs_or_create("rows")[b"k"] = b"v"
    print(len(kept) > 0, all(b"io_uring" in value for key, value in kvs.items() if key != b"txn"))
    db.close()
    """), path)
    assert out == "True True\n"


@pytest.mark.parametrize("end", [
    "pass", "sys.exit(0)", "os._exit(0)", "del db",
    "import atexit; atexit.register(lambda: esker.open(sys.argv[1] + '-late'))",
])
def test_interpreter_exit_beside_remarks_is_clean(path, run, end):
    run(REFUSED + textwrap.dedent(f"""
    refuse()
    log.addHandler(seen)
    def opens(n):
        while True:
            with esker.open(f"{{sys.argv[1]}}-{{n}}") as own: own.kvs_or_create("rows")[b"k"] = b"v"
    for n in range(3): threading.Thread(target=opens, args=(n,), daemon=True).start()
    db = esker.open(sys.argv[1])
    import time
    time.sleep(0.3)
    {end}
    """), path)


def test_forked_child_logs_its_own_remarks(path, run):
    out = run(REFUSED + textwrap.dedent("""
    refuse()
    log.addHandler(seen)
    stop = threading.Event()
    def opens():
        while not stop.is_set():
            with esker.open(sys.argv[1] + "-parent"): pass
    thread = threading.Thread(target=opens)
    thread.start()
    codes = []
    for n in range(10):
        pid = os.fork()
        if pid == 0:
            seen.records.clear()
            with esker.open(f"{sys.argv[1]}-{n}"): pass
            os._exit(0 if seen.records else 1)
        codes.append(os.waitpid(pid, 0)[1])
    stop.set()
    thread.join()
    print(codes.count(0))
    """), path)
    assert out == "10\n"
