"""Random mappings, resized, moved, dropped, unmapped, used by system calls and forks, against a copy.

mappings.py STEPS SEED. Finds its own mistakes too when it is run without a pager."""
import ctypes
import os
import random
import sys

PAGE = 4096
RW, PRIVATE_ANONYMOUS, MAYMOVE, DONTNEED, FREE = 3, 0x22, 1, 4, 8
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
FAILED = ctypes.c_void_p(-1).value


class Mapping:
    def __init__(self, pages):
        self.size = pages * PAGE
        self.addr = libc.mmap(None, self.size, RW, PRIVATE_ANONYMOUS, -1, 0)
        assert self.addr != FAILED, ctypes.get_errno()
        self.copy = bytearray(self.size)

    def write(self, at, data):
        ctypes.memmove(self.addr + at, data, len(data))
        self.copy[at:at + len(data)] = data

    def check(self, at, size):
        found, expected = ctypes.string_at(self.addr + at, size), bytes(self.copy[at:at + size])
        if found != expected:
            wrong = next(n for n in range(size) if found[n] != expected[n])
            raise AssertionError(f"{self.addr + at + wrong:#x}: {found[wrong]} and not {expected[wrong]}")

    def resize(self, pages):
        size = pages * PAGE
        addr = libc.mremap(self.addr, self.size, size, MAYMOVE)
        assert addr != FAILED, ctypes.get_errno()
        self.copy = self.copy[:size] + bytearray(max(0, size - self.size))
        self.addr, self.size = addr, size

    def drop(self, at, size):
        assert libc.madvise(self.addr + at, size, DONTNEED) == 0
        self.copy[at:at + size] = bytes(size)

    def unmap(self):
        assert libc.munmap(self.addr, self.size) == 0


def main():
    steps, seed = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    mappings, reader_writer, children = [], os.pipe(), []
    for _ in range(steps):
        kind = rng.randrange(100)
        if kind < 12 and sum(m.size for m in mappings) < 48 << 20 or not mappings:
            mappings.append(Mapping(rng.randrange(16, 1200)))
            continue
        m = rng.choice(mappings)
        at = rng.randrange(m.size)
        size = min(1 + rng.randrange(3 * PAGE), m.size - at)
        if kind < 40:
            m.write(at, rng.randbytes(size))
        elif kind < 65:
            m.check(at, size)
        elif kind < 70:
            for page in range(0, m.size, PAGE):
                m.check(page, PAGE)
        elif kind < 78:
            m.resize(rng.randrange(16, 1500))
        elif kind < 84:
            first = at // PAGE * PAGE
            m.drop(first, rng.randrange(1, (m.size - first) // PAGE + 1) * PAGE)
        elif kind < 89:
            mappings.remove(m)
            m.unmap()
        elif kind < 97:
            size = min(size, PAGE)
            other = rng.choice(mappings)
            to = rng.randrange(other.size)
            size = min(size, other.size - to)
            assert libc.write(reader_writer[1], ctypes.c_void_p(m.addr + at), size) == size
            data = bytes(m.copy[at:at + size])
            assert libc.read(reader_writer[0], ctypes.c_void_p(other.addr + to), size) == size
            other.copy[to:to + size] = data
        elif kind < 98 and len(children) < 2:
            pid = os.fork()
            if pid == 0:
                try:
                    for m in mappings:
                        m.check(0, m.size)
                        m.write(0, b"child" * 1000)
                        m.check(0, m.size)
                    m = Mapping(300)
                    m.write(5, b"new")
                    m.check(0, m.size)
                    mappings[0].resize(mappings[0].size // PAGE + 100)
                    mappings[0].check(0, mappings[0].size)
                    os._exit(0)
                except BaseException as error:
                    print("child:", error, flush=True)
                    os._exit(1)
            children.append(pid)
        else:
            for child in children:
                assert os.waitpid(child, 0)[1] == 0
            children.clear()
    for m in mappings:
        m.check(0, m.size)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    print(f"{steps} steps of seed {seed}")


main()
