"""Reads paged memory for ever: endless.py PIDFILE WRONGFILE."""
import os
import sys

memory = bytearray(b"\x55" * (100 << 20))
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    for at in range(0, len(memory), 4096):
        if memory[at] != 0x55:
            open(sys.argv[2], "w").close()
            os._exit(1)
