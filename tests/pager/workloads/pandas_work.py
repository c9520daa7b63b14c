"""Tables that are grouped, joined, sorted and pivoted."""
import numpy
import pandas

rng = numpy.random.default_rng(5)
count = 2_000_000
rows = pandas.DataFrame({"key": rng.integers(0, 50_000, count), "value": rng.integers(0, 1000, count),
                         "name": numpy.array(["a", "bb", "ccc", "dddd"])[rng.integers(0, 4, count)]})
names = pandas.DataFrame({"key": numpy.arange(50_000), "factor": numpy.arange(50_000) % 7})
joined = rows.merge(names, on="key")
joined["product"] = joined["value"] * joined["factor"]
print(joined.groupby("name")["product"].agg(["sum", "max", "count"]).to_csv())
print(joined.groupby("key")["value"].sum().sort_values(kind="stable").tail(3).to_csv())
print(rows.sort_values(["value", "key"], kind="stable")["key"].iloc[::99_991].sum())
