#!/bin/sh
# Eight small tools in a row.
set -e
seq 1 600000 | awk '{ print $1 * 7919 % 600011 }' | sed 's/1/x/' | tr 2 y | sort -S 24M | uniq -c | cut -c 4- | tee lines.count |
    tail -n 1000
wc -l < lines.count
