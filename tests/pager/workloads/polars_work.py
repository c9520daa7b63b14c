"""Tables that are grouped, joined and sorted by several threads."""
import polars

count = 4_000_000
rows = polars.select(polars.int_range(count).alias("id")).with_columns(
    key=(polars.col("id") * 7919) % 200_003, text=polars.format("row {}", polars.col("id") % 100_000))
keys = polars.select(polars.int_range(200_003).alias("key")).with_columns(factor=polars.col("key") % 13)
joined = rows.join(keys, on="key").with_columns(product=polars.col("id") * polars.col("factor"))
print(joined.select(polars.sum("product"), polars.max("product").alias("most")).rows())
print(joined.group_by("key").agg(polars.sum("id")).sort("id", "key").tail(3).rows())
print(joined.group_by("text").agg(polars.len().alias("n"), polars.sum("key")).sort("text").gather_every(9973).rows())
print(joined.sort("product", "id")["id"].gather_every(99_991).sum())
