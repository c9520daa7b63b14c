"""Makes the rows of tables in the documents of what commands have printed.

A function of this module is what a marker names (see `run`): it takes the commands' standard output and the path of
the file that they may have written, and returns rows of cells as they stand in the document, without emphasis.
A row may be shorter than the document's: what is not made is not compared.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """Something that a table needs was not printed."""


def find(what, name, of=None):
    """The value of a name."""
    try:
        return what[name]
    except (KeyError, IndexError):
        raise Missing(f"nothing was printed of “{name}”{f' in “{of}”' if of else ''}") from None


def line_of(text, beginning):
    """What follows the beginning of the only line that begins so."""
    found = [line[len(beginning):] for line in text.splitlines() if line.startswith(beginning)]
    if len(found) != 1:
        raise Missing(f"{len(found)} lines begin with “{beginning}”")
    return found[0].strip()


def documents(text):
    """JSON documents, one after the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def share(value):
    """A share of one as in `.125`, or `1.000`."""
    return f"{value:.3f}".removeprefix("0")


def percent(value):
    """Percent with its sign."""
    return f"{100 * value:+.0f}"


# docs/flash.md


def fdp(_, out):
    """The placement experiment."""
    report = json.loads(out.read_text())
    chapters = {chapter["name"]: chapter for chapter in report["chapters"]}

    def factors(chapter, *names):
        runs = {run["name"]: run["measured"] for run in find(chapters, chapter)["runs"]}
        runs |= {one["name"]: one for one in chapters[chapter]["derived"]}
        return " / ".join(f"{find(runs, name, chapter)['write_amplification']:.3f}" for name in names)

    circular = "Circular writers"
    stores = "Aerospike-like stores, uniform keys, fresh drive"
    zipfian = "Aerospike-like stores, zipfian keys of the whole table, fresh drive"
    engine = "Esker's engine: four KVDBs"
    ways = ["no placement", "a handle each"]
    mean = find([one["name"] for one in find(chapters, stores)["derived"]], 0, stores)
    kvdbs = [f"KVDBs at 1:2:4:8, {way}" for way in [*ways, "2 handles each", "5 handles each"]]
    return [
        ["circular writers, equal rates, no placement", factors(circular, "equal rates, no placement (control)")],
        *[[f"circular writers at {rates}, no placement / a handle each",
           factors(circular, *[f"{rates}, {way}" for way in ways])] for rates in ["1:2:4:8", "1:4:16:64"]],
        ["Aerospike-like stores alone, mean of four", factors(stores, mean)],
        ["together at 1:2:4:8, no placement / a handle each", factors(stores, *[f"1:2:4:8, {way}" for way in ways])],
        ["together at equal rates, no placement", factors(stores, "equal rates, no placement (control)")],
        ["zipfian keys, a handle each / two",
         factors(zipfian, "1:2:4:8, a handle each", "1:2:4:8, two handles each")],
        ["four KVDBs of Esker, no placement / a handle each / two / five", factors(engine, *kvdbs)],
    ]


def fdp_network(_, out):
    """The placement experiment in process and over the network: its pairs stand two by two."""
    pairs = json.loads(out.read_text())["pairs"]
    names = [
        "circular writers at 1:2:4:8, no placement / a handle each",
        "Aerospike-like stores at 1:2:4:8, no placement / a handle each",
        "four KVDBs of Esker, no placement / five handles each",
    ]
    if len(pairs) != 2 * len(names):
        raise Missing(f"{len(pairs)} workloads were measured, not {2 * len(names)}")

    def cell(two, side):
        return " / ".join(f"{pair[side]['write_amplification']:.3f}" for pair in two)

    twos = [pairs[at : at + 2] for at in range(0, len(pairs), 2)]
    return [[name, cell(two, "in_process"), cell(two, "over_network")] for name, two in zip(names, twos)]


# docs/bench.md, README.md


def workloads(_, out):
    """What the workloads of the laboratory are made of."""
    names = {"read": "read", "update": "update", "scan": "scan", "insert": "insert",
             "read_modify_write": "read-modify-write"}
    found = []
    for run in json.loads(out.read_text())["runs"]:
        one = run["workload"]

        def part(kind):
            what = names[kind]
            if kind == "scan":
                what += f" of {one['min_scan_length']} to {one['max_scan_length']} records (uniform)"
            return f"{100 * one[kind]:.0f} % {what}"

        mix = ", ".join(part(kind) for kind in names if one[kind] > 0)
        row = [one["name"], mix]
        if one["name"] != "load":
            request = one["request"]
            kind = next(iter(request)) if isinstance(request, dict) else request
            row.append({"scrambled_zipfian": "zipfian"}.get(kind, kind))
        found.append(row)
    return found


def demo_rates(_, out):
    """What the demonstration measured of each workload."""
    labels = {"load": "load", "A": "A, 50 % update", "B": "B, 5 % update", "C": "C, read only", "D": "D, read latest",
              "E": "E, scans of 50", "F": "F, read-modify-write"}
    found = []
    for run in json.loads(out.read_text())["runs"]:
        # Nothing is measured of a kind that no operation was of.
        kinds = [one for one in run["by_operation"] if one["latency"]]

        def latencies(of):
            return ", ".join(f"{one['operation']} {one['latency'][of] / 1e3:.1f}" for one in kinds)

        rate = f"{run['ops_per_s'] / 1e3:.1f} k"
        name = find(labels, run["workload"]["name"])
        found.append([name, rate, latencies("p50_ns"), latencies("p99_ns"), latencies("p999_ns")])
    return found


def demo_bytes(printed, _):
    """Bytes that the demonstration's load wrote for each of the user."""
    names = ["in all", "to capacity"]
    ours = [line_of(printed, f"  {name} ").split() for name in names]
    return [[name, *figures[:2]] for name, figures in zip(["to all devices", "to capacity"], ours)]


# docs/flash-cache.md


def lab_of(out):
    """Of `esker lab flash-cache`: (workload, percent) -> version -> figures."""
    report = json.loads(out.read_text())
    return {(one["name"], size["percent"]): {version["name"]: version for version in size["versions"]}
            for one in report["workloads"] for size in one["sizes"]}


def replays(printed):
    """Of several `esker trace replay --json`, each with the name of its trace and what it was asked in a line before:
    (trace, what) -> the caches."""
    found = {}
    for block in printed.split("== ")[1:]:
        head, _, rest = block.partition("\n")
        trace, _, what = head.partition(" ")
        found[trace, what] = documents(rest)[0]["caches"]
    return found


def flash_cache(_, out):
    """What earlier versions of flash caches and Esker's give on traces."""
    cases = [("mixed-xfs", 40), ("cloudphysics-w106", 10), ("cloudphysics-w106", 20), ("arc-P6", 20),
             ("arc-OLTP", 20), ("cloudphysics-w", 20), ("cloudphysics-w", 40), ("msps-dtrs", 20)]
    lab, found = lab_of(out), []
    for trace, size in cases:
        versions = find(lab, (trace, size))
        first, y2013, lru, esker, unaged = [
            versions[name] for name in ["first, FIFO", "2013", "LRU", "Esker", "Esker, unaged"]]
        halves = [f"{100 * one['busier_half']:.0f}, {100 * one['busier_half_of_accesses']:.0f}"
                  for one in [first, esker]]
        misses = [share(1 - one["hit_ratio"]) for one in [first, y2013, lru, esker]]
        fewer = " / ".join(percent(one["reads_saved"]) for one in [y2013, esker])
        writes, blocks = "no writes", percent(esker["read_blocks_saved"])
        if first["disk_writes"] > 0:
            writes = " / ".join(percent(one["writes_saved"]) for one in [y2013, unaged, esker])
            blocks += ", " + " / ".join(percent(one["written_blocks_saved"]) for one in [unaged, esker])
        found.append([f"{trace}, {size} %", " / ".join(halves), " / ".join(misses), fewer, writes, blocks])
    return found


def read_ahead(printed, out):
    """What reading ahead saves against the first version, by `esker trace replay`."""
    lab, asked = lab_of(out), replays(printed)
    cases = [
        ("mixed-xfs", 40, ["no, no", "128 KiB, no", "256 KiB, no", "512 KiB, no", "1 MiB, no", "no, 1 MiB",
                           "512 KiB, 1 MiB"]),
        ("msps-dtrs", 20, ["no, no", "512 KiB, no", "512 KiB, 1 MiB"]),
        *[(trace, 20, ["no, no", "512 KiB, no"])
          for trace in ["cloudphysics-w106", "arc-P6", "cloudphysics-w", "pgbench-ext4"]],
    ]
    found = []
    for trace, size, ways in cases:
        versions = find(lab, (trace, size))
        (plain,) = find(asked, (trace, f"{size} % no, no"))
        reads = versions["first, FIFO"]["disk_reads"]
        blocks = plain["disk"]["blocks"]["reads"] / (1 - versions["Esker"]["read_blocks_saved"])
        for way in ways:
            (one,) = find(asked, (trace, f"{size} % {way}"))
            row = [f"{trace}, {size} %" if way == "no, no" else "", way]
            row.append(f"{100 * (1 - one['disk']['operations']['reads'] / reads):+.1f} %")
            row.append(f"{100 * (1 - one['disk']['blocks']['reads'] / blocks):+.1f} %")
            more = one["flash_blocks_written"] / plain["flash_blocks_written"] - 1
            row.append("" if way == "no, no" else f"{100 * more:+.1f} %")
            found.append(row)
    return found


def admission(printed, _):
    """Blocks written to the flash as a share of LRU's, and misses, by what is let in."""
    asked = replays(printed)
    cases = [("msps-dtrs", 10), ("msps-dtrs", 20), ("msps-dtrs", 40), ("arc-P6", 10), ("cloudphysics-w", 20),
             ("cloudphysics-w", 40), ("arc-OLTP", 20), ("cloudphysics-w106", 10), ("mixed-xfs", 40),
             ("pgbench-ext4", 20)]
    found = []
    for trace, size in cases:
        def cache(admit, policy):
            caches = find(asked, (trace, f"{size} % {admit}"))
            return find({one["policy"]: one for one in caches}, policy)

        base = cache("all", "lru")["flash_blocks_written"]
        row = [f"{trace}, {size} %"]
        for admit, policy in [("all", "lru"), ("all", "adaptive"), ("auto", "adaptive"), ("again", "adaptive"),
                              ("again", "lru")]:
            one = cache(admit, policy)
            row.append(f"{100 * one['flash_blocks_written'] / base:.0f}, {share(one['miss_ratio'])}")
        found.append(row)
    return found


def database(printed, _):
    """SQLite on a modelled disk, and with a cache before it."""
    found = []
    for name, way in [("the disk alone", "bare"), ("with the cache", "cached")]:
        figures = re.fullmatch(r"([\d.]+) transactions a second, 99 % within +([\d.]+) ms; detached: (.*)",
                               line_of(printed, way))
        if not figures:
            raise Missing(f"nothing was printed of “{way}”")
        # How many there were is not printed: it follows from the seconds.
        found.append([name, figures[1], figures[1], f"{figures[2]} ms", figures[3]])
    return found


# docs/policies.md


POLICIES = {"adaptive": "adaptive", "S3-FIFO": "s3-fifo", "LIRS": "lirs", "W-TinyLFU": "w-tinylfu", "ARC": "arc",
            "mid-75": "mid-75", "2Q": "2q", "SIEVE": "sieve", "LRU": "lru"}


def cases_of(printed):
    """(trace, sets, percent) -> policy -> the share of misses."""
    found, trace = {}, None
    for line in printed.splitlines():
        if head := re.fullmatch(r"(\S+): \d+ references, \d+ blocks", line):
            trace = head[1]
        elif case := re.fullmatch(r"  (one set|sets of 16 MiB), (\d+) %: (.* 0\.\d+.*)", line):
            words = case[3].split()
            found[trace, case[1], int(case[2])] = {
                name: float(ratio) for name, ratio in zip(words[::2], words[1::2])}
    return found


def regrets(cases, sets, policy):
    """How far a policy is above the best fixed one in each case, the most first."""
    fixed = [name for name in POLICIES.values() if name not in ("adaptive", "mid-75")]
    of = [ratios for (_, one, _), ratios in cases.items() if one == sets]
    return sorted((find(ratios, policy) - min(ratios[name] for name in fixed) for ratios in of), reverse=True)


def gaps(printed, _):
    """Which share of the gap between LRU and the optimum policies close, and how far they fall behind."""
    cases, found = cases_of(printed), []
    whole = re.search(r"^one set, chosen on, \d+ cases: .*\n((?:  .*\n)*)", printed, re.M)
    closed = dict(re.findall(r"^  (\S+) +([\d.]+) %$", whole[1] if whole else "", re.M))
    for label, policy in POLICIES.items():
        most = share(regrets(cases, "one set", policy)[0])
        if policy == "adaptive":
            worst, *rest = [share(one) for one in regrets(cases, "sets of 16 MiB", policy)[:3]]
            most += f" (in sets of 16 MiB {worst}, next {', '.join(rest)})"
        found.append([label, f"{float(find(closed, policy)):.0f} %", most])
    return found


def savings(printed, _):
    """How many misses in a hundred references the default saves against LRU, in sets of 16 MiB."""
    cases = cases_of(printed)
    traces = sorted({trace for trace, _, _ in cases})

    def saved(trace, size):
        ratios = cases[trace, "sets of 16 MiB", size]
        return re.sub(r"^(-?)0\.", r"\1.", f"{100 * (ratios['lru'] - ratios['adaptive']):.1f}")

    return [[trace, *[saved(trace, size) for size in [5, 10, 20, 40]]] for trace in traces]


def closed(printed, _):
    """Which share of the gap between LRU and the optimum the default and S3-FIFO close, in sets of 16 MiB."""
    found, trace, sets = {}, None, None
    for line in printed.splitlines():
        if head := re.fullmatch(r"(\S+): \d+ references, \d+ blocks", line):
            trace = head[1]
        elif case := re.match(r"  (one set|sets of 16 MiB), \d+ %: \S+ 0\.", line):
            sets = case[1]
        elif shares := re.fullmatch(r"    of a gap of ([\d.]+), adaptive (\S+) %, s3-fifo (\S+) %", line):
            if sets == "sets of 16 MiB":
                cell = f"{shares[2]}, {shares[3]}" if float(shares[1]) >= 0.01 else "-"
                found.setdefault(trace, []).append(cell)
    return [[trace, *cells] for trace, cells in sorted(found.items()) if set(cells) != {"-"}]


# docs/device.md, docs/nvmf.md, docs/attach.md, docs/trace.md


def seam(printed, _):
    """What a command costs at the seam, and its allocations."""
    found = []
    for depth in ["1", "32"]:
        row, allocations = [depth], set()
        for kind in ["write", "read"]:
            figures = re.fullmatch(r"([\d.]+) ns per command, (\d+) allocations in \d+ commands",
                                   line_of(printed, f"{kind:<5} depth {depth:>2}:"))
            row.append(f"{float(figures[1]):.0f} ns")
            allocations.add(figures[2])
        found.append([*row, ", ".join(sorted(allocations))])
    return found


def file_vs_fio(printed, _):
    """The file device beside fio."""
    names = ["4 KiB random read, depth 1", "4 KiB random read, depth 32", "1 MiB sequential write, depth 4"]
    return [[name, *line_of(printed, f"{name} ").split()] for name in names]


def write_through(printed, _):
    """Writes to a device with a volatile cache, by how they are made durable."""
    ways = {"as the file completes them": "as it completes them",
            "with a flush behind each batch of that depth": "a flush behind each batch",
            "write through": "write through"}
    return [[name, *[line_of(printed, f"depth {depth:>2}, {way} ").split()[0] for depth in [1, 32]]]
            for name, way in ways.items()]


def loopback(printed, _):
    """Reads and writes over the loopback, by case: Esker, a bare socket, nbdkit."""
    def cell(case):
        words = line_of(printed, f"{case:<36} ").split()
        return f"{words[0]} {words[1]}"

    depth_1 = [("both spinning", "spinning", "bare socket spinning"),
               ("initiator parked", "initiator parked", "bare socket, client parked"),
               ("both parked", "both parked", "bare socket, both parked")]
    found = [[f"depth 1, {name}, p50", cell(f"depth 1, {ours}"), cell(f"depth 1, {bare}")]
             for name, ours, bare in depth_1]
    for depth in [32, 128]:
        found.append([f"depth {depth}", *[cell(f"depth {depth}{of}") for of in ["", ", bare socket", ", nbdkit"]]])
        if depth == 32:
            found.append(["depth 32, data digest", cell("depth 32, data digest")])
    found.append(["writes, depth 128", cell("depth 128, writes")])
    found.append(["128 KiB, depth 32", *[cell(f"128 KiB, depth 32{of}") for of in ["", ", bare socket"]]])
    found.append(["128 KiB, depth 32, data digest", cell("128 KiB, depth 32, digest")])
    return found


def attached(printed, _):
    """What a request costs on its way through the kernel."""
    def median(kind):
        return line_of(printed, f"{kind:<32}  ").split()[0]

    return [[f"{name}: read, write", *[f"{median(f'{kind} read{how}')}, {median(f'{kind} write{how}')}"
                                       for how in ["", ", kept awake"]]]
            for name, kind in [("file", "file"), ("loop device", "loop")]]


def trace_speed(printed, _):
    """How fast traces are read."""
    found = []
    for line in printed.splitlines():
        figures = re.fullmatch(r"(.+?) +([\d.]+) M events/s +([\d.]+) M requests/s +([\d.]+) bytes a request .*", line)
        if figures:
            found.append([figures[1], figures[2], figures[3], figures[4]])
    return found


# docs/compare.md


def selection(document, rows):
    """Rows of a report in docs/compare that docs/compare.md repeats: (name there, chapter, name in the report)."""
    text = (ROOT / "docs/compare" / document).read_text(encoding="utf-8")
    chapters = {part.partition("**")[0].partition(",")[0]: part for part in text.split("\n**")[1:]}
    found = []
    for name, chapter, of in rows:
        if chapter is None:
            found.append([name])
            continue
        line = line_of(find(chapters, chapter), f"| {of} |")
        found.append([name, *[cell.strip() for cell in line.strip("|").split("|")]])
    return found


THROUGHPUT, CPU = "Throughput", "CPU time"


def beyond_memory(_, __):
    """Throughput and CPU time as the report has them; what was before, and the least of several, has no other place."""
    engines = ["Esker", "RocksDB", "RocksDB, direct I/O", "RocksDB, BlobDB", "fjall", "fjall, separated", "LMDB",
               "Esker ÷ the best"]
    before = ["wanted", "the round before, at d15a5f2, on an EPYC", "before that, at daa567f, on an EPYC",
              "before that, at 48eaa48, on an EPYC", "before that, at 09429e5, on a Xeon",
              "and before that, at c42d57a, on another EPYC"]
    least = ["RocksDB, the least of the three", "Esker, p99.9 of a read or scan, µs", "the least of RocksDB's and fjall's"]
    return selection("beyond-memory.md", [
        *[(name, THROUGHPUT, name) for name in engines], *[(name, None, None) for name in before],
        ("Esker, CPU µs an operation", CPU, "Esker"), *[(name, None, None) for name in least]])


def in_dram(_, __):
    """The same with all records in DRAM."""
    engines = ["Esker", "RocksDB", "fjall", "LMDB", "Esker ÷ the best"]
    before = ["wanted", "the round before, at f77f052, on an EPYC with others", "before that, at 2f4d867, on an EPYC",
              "before that, at 4d2d234, on an EPYC that changed its speed", "and before that, at 09429e5, on a Xeon"]
    cpu = [("Esker, CPU µs an operation", "Esker"), ("RocksDB, the same", "RocksDB"), ("LMDB, the same", "LMDB")]
    return selection("in-dram.md", [
        *[(name, THROUGHPUT, name) for name in engines], *[(name, None, None) for name in before],
        *[(name, CPU, of) for name, of in cpu]])


# README.md


def readme_peers(_, __):
    """Esker and its peers: of the report beyond memory, and of docs/compare.md where there are 32 threads."""
    engines = ["Esker", "RocksDB, direct I/O", "RocksDB, BlobDB", "fjall", "LMDB"]
    report = (ROOT / "docs/compare/beyond-memory.md").read_text(encoding="utf-8")
    many = (ROOT / "docs/compare.md").read_text(encoding="utf-8").partition("### With 32 client threads")[2]
    many = many.partition("\n### ")[0]

    def row(name, text, chapter, column, best):
        part = text.partition(f"**{chapter}")[2] if chapter else text
        cells = []
        for engine in engines:
            found = re.search(rf"^\| {re.escape(engine)} \|(.*)\|$", part.partition("\n**")[0], re.M)
            cells.append(found[1].split("|")[column].strip() if found else "–")
        figures = [float(cell.replace(",", "")) for cell in cells if cell != "–"]
        wins = best(figures)
        return [name, *[f"**{cell}**" if cell != "–" and float(cell.replace(",", "")) == wins else cell
                        for cell in cells]]

    rates, cpu = "Throughput", "CPU time, µs per operation"
    rest, tails = "After the load, until maintenance is at rest", "Latency, p99.9"
    return [
        row("load, 2 threads", report, rates, 0, max), row("A, half updates, 2 threads", report, rates, 1, max),
        row("C, reads, 2 threads", report, rates, 3, max), row("E, scans, 2 threads", report, rates, 6, max),
        row("A, 32 threads", many, None, 1, max), row("C, 32 threads", many, None, 2, max),
        row("load, bytes written for each user byte", report, rest, 4, min),
        row("C, processor µs for each read", report, cpu, 3, min),
        row("B, p99.9 of a read, µs", report, tails, 3, min)]


# docs/host-ssd.md


def quantiles(latency):
    """The quantiles of a distribution in a cell."""
    return " / ".join(f"{latency[name]:.1f}" for name in ["p50_us", "p80_us", "p99_us", "p999_us"])


def host_ssd_latency(_, out):
    """Read latencies by depth."""
    sides = ["conventional", "in_order", "submission", "issue"]
    return [[str(one["depth"]), *[quantiles(one[side]) for side in sides]]
            for one in json.loads(out.read_text())["depths"]]


def host_ssd_bounded(_, out):
    """The same where the number of reads at the dies is bounded."""
    sides = ["bounded_in_order", "bounded_submission", "bounded_issue"]
    return [[str(one["depth"]), *[quantiles(one[side]) for side in sides]]
            for one in json.loads(out.read_text())["depths"]]


def host_ssd_account(_, out):
    """What each step is worth to lookups and scans."""
    def scan(one):
        bytes_per_s = 4096 * 1e9 * one["threads"] / one["scan"]["operation_ns"]
        return f"{bytes_per_s / 1e6:.0f} ({one['scan_factor']:.2f})"

    def lookup(one):
        return f"{one['lookups']['operation_ns'] / 1000:.1f} ({one['lookup_factor']:.2f})"

    return [[step["name"], *[lookup(one) for one in step["by_threads"]], *[scan(one) for one in step["by_threads"]]]
            for step in json.loads(out.read_text())["account"]]


def host_ssd_sensitivity(_, out):
    """The factors where single figures are others."""
    return [[one["name"], f"{one['lookup_factor']:.2f}", f"{one['scan_factor']:.2f}"]
            for one in json.loads(out.read_text())["sensitivity"]]


def host_ssd_installed(_, out):
    """Ways to page on this machine: lookups a second, MiB a second of a scan, MiB of memory."""
    def median(spread):
        return "" if spread is None else f"{spread['median']:.0f}"

    return [[one["name"], median(one["lookups_per_s"]), median(one["scan_mib_per_s"]),
             "" if one["peak_mib"] is None else f"{one['peak_mib']['most']:.0f}"]
            for one in json.loads(out.read_text())["installed"]["ways"]]


def host_ssd_duckdb(_, out):
    """DuckDB with paged memory and on swap: seconds of each, and their ratio."""
    return [[one["name"], f"{one['paged_s']['median']:.2f}", f"{one['swap_s']['median']:.2f}",
             f"{one['swap_s']['median'] / one['paged_s']['median']:.2f}"]
            for one in json.loads(out.read_text())["installed"]["queries"]]


def pooled_loads(_, out):
    """Cassandra on local drives and on a pool: operations a second; reads and updates, mean and 99.9 %, in ms."""
    def row(one):
        load = "unlimited" if one["rate"] is None else str(one["rate"])
        latencies = [one[name]["median"] / 1e3
                     for name in ("read_mean_us", "read_p999_us", "update_mean_us", "update_p999_us")]
        name = one["arm"].replace("-", " ")
        return [f"{name}, {load}", f"{one['ops_per_s']['median']:.0f}"] + [f"{ms:.1f}" for ms in latencies]

    return [row(one) for one in json.loads(out.read_text())["loads"]]


def pooled_survival(_, out):
    """Writes that a client's log has, when the node was killed and the drive failed, and those that were lost."""
    survival = json.loads(out.read_text())["survival"]
    names = {"acknowledged": "acknowledged", "at_kill": "of these before the node was killed",
             "at_drive": "of these before the drive failed", "refused": "refused", "missing": "missing", "wrong": "wrong"}
    return [[name, str(survival[key])] for key, name in names.items()]


def memory(_, out):
    """Programs on each side: seconds; MiB read back and processor seconds of Esker, in multiples of the faster swap's."""
    def cell(side):
        bad = [next(iter(run)) if isinstance(run, dict) else run for run in side["runs"]
               if not (isinstance(run, dict) and "ran" in run)]
        return bad[0].replace("full", "does not fit") if bad else f"{side['wall_s']['median']:.1f}"

    def part(side, name):
        found = [one for one in side["phases"] if one["name"] == name]
        return found[0]["seconds"]["median"] if found else None

    rows = []
    for one in json.loads(out.read_text())["programs"]:
        sides = {side["side"]: side for side in one["sides"]}
        swaps = [side for name, side in sides.items() if name.startswith("swap") and side["wall_s"]]
        esker = sides["esker"]

        def times(of):
            ours, theirs = of(esker), [of(side) for side in swaps if of(side) is not None]
            return f"{min(theirs) / ours:.2f}" if ours and theirs else "-"

        def cost(key):
            if not swaps or not esker[key]:
                return "-"
            faster = min(swaps, key=lambda side: side["wall_s"]["median"])
            return f"{esker[key]['median'] / max(faster[key]['median'], 0.001):.2f}"

        rows.append([one["program"], str(one["limit_mib"]), f"{one['plain']['wall_s']:.1f}", *map(cell, sides.values()),
                     times(lambda side: side["wall_s"] and side["wall_s"]["median"]), cost("read_mib"), cost("cpu_s")])
        for phase in one["plain"]["phases"]:
            name = phase["name"]
            cells = ["-" if part(side, name) is None else f"{part(side, name):.1f}" for side in sides.values()]
            rows.append([f"{one['program']}, {name}", "-", f"{phase['seconds']:.1f}", *cells,
                         times(lambda side: part(side, name)), "-", "-"])
    return rows


def hse(_, out):
    """With staging over without: throughput, the drives' rates alone, tails, bytes to capacity."""
    runs = [run for run in json.loads(out.read_text())["runs"] if run["round"] == 0]
    arms = {run["arm"]: {phase["workload"]: phase for phase in run["phases"]} for run in runs}
    published = {"load": "4", "A": "2.3", "F": "2.1"}

    def needs(phase):
        return max(drive["needs_s"] for drive in phase["drives"])

    def tail(phase):
        return next((one["p999_us"] for one in phase["latencies"] if one["operation"] == "read"), 0)

    def capacity(phase):
        return sum(drive["written_bytes"] for drive in phase["drives"] if drive["class"] == "capacity")

    def ratio(name, of, turned=False):
        without, staged = (of(arms[arm][name]) for arm in ("capacity", "staged"))
        above, below = (without, staged) if turned else (staged, without)
        return f"{above / below:.2f}" if below else ""

    return [[name, published.get(name, ""), ratio(name, lambda phase: phase["ops_per_s"]), ratio(name, needs, True),
             ratio(name, tail), ratio(name, capacity)]
            for name in arms["staged"]]


def hse_rocksdb(_, out):
    """Esker over RocksDB, without staging and with: throughput and tails where drives decided, bytes written."""
    report = json.loads(out.read_text())
    arms = {}
    for one in report["beside"]:
        arms.setdefault(one["workload"], {})[one["arm"]] = one

    def both(name, figure):
        pair = [arms[name][arm] for arm in ("capacity", "staged")]
        is_said = [figure == "written" or one["is_comparable"] for one in pair]
        said = [f"{one[figure]:.2f}" if is_it else "–" for one, is_it in zip(pair, is_said) if one[figure] is not None]
        return ", ".join(said)

    return [[name, *(both(name, figure) for figure in ("throughput", "read_p999", "written"))] for name in arms]


def plan_years(years):
    """A life in words, as the table of a plan has it."""
    if years is None:
        return ""
    if years < 0.1:
        return f"{years * 365.25:.1f} days"
    return f"{years:.1f} years" if years < 100 else "over 100 years"


def plan_money(report, amount):
    """A price, as the table of a plan has it."""
    return "" if amount is None else f"{report['currency']}{amount:.2f}"


def plan_bytes(_, out):
    """A plan: amplification above drives, in them and in all, life, cost a year and a drive-year."""
    report = json.loads(out.read_text())

    def row(case):
        measured = case["measured"]
        drives = [one for one in measured["devices"] if one["is_drive"]]
        given = sum(one["written_bytes"] for one in drives)
        media, user = sum(one["passed_bytes"] for one in drives), measured["user_written_bytes"]
        return [case["name"], f"{given / user:.2f}", f"{media / given:.2f}", f"{media / user:.2f}",
                plan_years(case["life_years"]), plan_money(report, case["cost_per_year"]),
                plan_money(report, case["cost_per_drive_year"])]

    return [row(case) for case in report["cases"]]


def plan_rates(_, out):
    """A plan: requests a second, hits, the share of reads below, life, cost a year."""
    report = json.loads(out.read_text())

    def row(case):
        measured = case["measured"]
        read = next(one for one in measured["latencies"] if one["kind"] == "read")
        hits = measured["hit_ratio"]
        return [case["name"], f"{measured['ops_per_s']:.0f}", "" if hits is None else f"{100 * hits:.0f} %",
                f"{read['p50_us'] / 1e3:.1f} ms", f"{read['p999_us'] / 1e3:.0f} ms", plan_years(case["life_years"]),
                plan_money(report, case["cost_per_year"])]

    return [row(case) for case in report["cases"]]
