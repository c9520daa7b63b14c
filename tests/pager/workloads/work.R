# Vectors that are sorted, grouped and looked up at random.
set.seed(11)
n <- 5e6
x <- as.integer(runif(n) * 1e9)
g <- x %% 1000L
sums <- rowsum(as.numeric(x), g)
o <- order(x)
sorted <- x[o]
picked <- x[as.integer(runif(1e6) * n) + 1L]
m <- matrix(as.numeric(x[1:4000000]), 2000)
cat(sprintf("%.0f %.0f %d %.0f\n", sum(sums), sum(as.numeric(picked)), sorted[n %/% 2], sum(colSums(m))))
strings <- paste0("row", x[1:300000])
cat(length(unique(strings)), sum(nchar(strings)), "\n")
