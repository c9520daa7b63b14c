"""A daemon: forks twice, leaves its session, and goes on with the memory of the first process once that has ended."""
import array
import os
import random

SIZE = 20_000_000
data = array.array("q", range(SIZE))
is_gone, is_there = os.pipe()
child = os.fork()
if child != 0:
    _, status = os.waitpid(child, 0)
    raise SystemExit(os.waitstatus_to_exitcode(status))
os.setsid()
if os.fork() != 0:
    os._exit(0)
# Its end comes when those who have the other end are gone.
os.close(is_there)
os.read(is_gone, 1)
rng = random.Random(4)
for _ in range(15_000):
    place = rng.randrange(SIZE)
    data[place] = data[place] * 3 + 1
print(sum(data), len(data), flush=True)
