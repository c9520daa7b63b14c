"""One big transaction of LMDB, whose changed pages are in memory, and reads at random."""
import hashlib
import random
import tempfile

import lmdb

with tempfile.TemporaryDirectory(dir=".") as directory:
    base = lmdb.open(directory, map_size=2 << 30, sync=False)
    rng = random.Random(9)
    with base.begin(write=True) as change:
        for n in range(50_000):
            change.put(b"%08x" % rng.getrandbits(32), (b"%08d" % n) * 110)
        for key, _ in list(change.cursor().iternext(values=True))[::7]:
            change.delete(key)
    total = hashlib.sha256()
    with base.begin() as view:
        for key, value in view.cursor():
            total.update(key + value)
        print(view.stat()["entries"], total.hexdigest())
