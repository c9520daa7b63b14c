"""Arrays that are sorted, gathered at random, scattered to and reduced."""
import numpy

rng = numpy.random.default_rng(3)
data = rng.integers(0, 1 << 40, 24_000_000)
picks = rng.integers(0, data.size, 15_000)
print(int(data.sum()), int(data[picks].sum()))
data[picks] += 17
part = data[:8_000_000]
part.sort()
print(int(part[::1009].sum()), int((data % 1013).sum()), int(numpy.bincount(data % 977).argmax()))
square = data[: 2400 * 2400].reshape(2400, 2400) % 1000
print(int((square @ square[:, :8]).sum()), int(square.T.copy()[5].sum()))
