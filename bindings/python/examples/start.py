#!/usr/bin/env python3
"""Stores users, finds them by name and by range, and moves money between them.

    start.py [DIRECTORY]    the KVDB's place; default: people.db in the current directory

Run it as often as you like: it goes on with the content that is there.
"""

import sys

import esker


def main(path: str) -> None:
    with esker.open(path, memory_bytes=64 << 20) as db:
        users = db.kvs_or_create("users")
        names = db.kvs_or_create("names")
        balances = db.kvs_or_create("balances")

        # A batch is written whole or not at all, across KVSs.
        with db.batch() as batch:
            for number, name in ((b"41", b"Grace"), (b"42", b"Ada"), (b"51", b"Barbara")):
                batch.put(users, number, name)
                batch.put(names, name, number)

        number = names[b"Ada"]
        print(f"Ada has number {number.decode()}")
        for number, name in users.items(b"40", b"50"):
            print(f"{number.decode()} is {name.decode()}")
        print("from the end:", b", ".join(users.values(reverse=True)).decode())

        # A transaction that loses against another one is begun again.
        while True:
            try:
                with db.transaction() as txn:
                    ada = int(txn.get(balances, b"42", b"100"))
                    grace = int(txn.get(balances, b"41", b"100"))
                    txn.put(balances, b"42", b"%d" % (ada - 10))
                    txn.put(balances, b"41", b"%d" % (grace + 10))
                break
            except esker.TransactionConflictError:
                pass
        total = sum(int(value) for value in balances.values())
        print(f"{total} in all, whoever has it")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "people.db")
