#!/usr/bin/env python3
"""Checks endpoints, documents and the dashboard while processes run: see `run`.

    check.py --prometheus URL --promtool PATH --root REPOSITORY --texts DIRECTORY NAME=ADDRESS…

Prints a line for each check, and one with the sums.
"""

import argparse
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

# Scrapes that rates are computed of.
SCRAPES = 8
# How long Prometheus may take to have them, in seconds.
PATIENCE = 60
# Values for the variables of Grafana.
VARIABLES = {"$__rate_interval": "10s", "$__interval": "5s", "$__range": "1m", "$job": ".+", "$instance": ".+"}
# Metrics whose process may be impossible on a machine, with the endpoint that tells them.
OPTIONAL = {"esker_pager_": "pager"}

passed = failed = skipped = 0


def say(what, findings):
    """One check: it holds if there are no findings."""
    global passed, failed
    if findings:
        failed += 1
    else:
        passed += 1
    print(f"{'FAILED ' if findings else 'ok     '} {what}", flush=True)
    for one in findings[:12]:
        print(f"        {one}", flush=True)
    if len(findings) > 12:
        print(f"        and {len(findings) - 12} more")


def get(url):
    """The text at a URL; that of an error, too."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def families(text):
    """Of each metric of an endpoint its type and the names of its labels."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found[name] = (kind, set())
        elif line and not line.startswith("#"):
            name, labels = re.match(r"([a-zA-Z_:][\w:]*)(\{.*\})? ", line).groups()
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            family = found.get(name) or found[base]
            names = re.findall(r'[{,](\w+)="(?:[^"\\]|\\.)*"', labels or "")
            family[1].update(set(names) - {"le"})
    return found


def documented(path):
    """Of each metric in the tables of the document its type and labels."""
    found = {}
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 5:
            continue
        name = cells[0].strip("`")
        found[name] = (cells[1], set(re.findall(r"`(\w+)`", cells[2])))
    return found


def expressions(dashboard):
    """Each panel's title and expression."""
    for panel in dashboard["panels"]:
        for inner in panel.get("panels", []):
            yield from expressions({"panels": [inner]})
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def filled(expression):
    """An expression without Grafana's variables."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def evaluate(prometheus, expression):
    """The series of an expression; an error is told as text."""
    query = urllib.parse.urlencode({"query": expression})
    answer = json.loads(get(f"{prometheus}/api/v1/query?{query}"))
    if answer["status"] != "success":
        return answer["error"]
    return answer["data"]["result"]


def wait_for_scrapes(prometheus, names):
    """Waits until Prometheus has scraped each endpoint several times; says what it lacks."""
    end = time.monotonic() + PATIENCE
    lacking = names
    while time.monotonic() < end and lacking:
        time.sleep(1)
        try:
            series = evaluate(prometheus, "count_over_time(up[5m])")
            healthy = evaluate(prometheus, "up == 1")
        except (OSError, ValueError):
            continue
        if isinstance(series, str) or isinstance(healthy, str):
            continue
        counts = {one["metric"]["job"]: int(one["value"][1]) for one in series}
        well = {one["metric"]["job"] for one in healthy}
        lacking = [name for name in names if counts.get(name, 0) < SCRAPES or name not in well]
    if not lacking:
        return []
    state = json.loads(get(f"{prometheus}/api/v1/targets"))
    errors = [f"{one['labels']['job']}: {one['lastError']}" for one in state["data"]["activeTargets"]]
    return [f"not scraped: {', '.join(lacking)}", *errors]


def main():
    """Checks everything."""
    global skipped
    parser = argparse.ArgumentParser()
    for name in ["prometheus", "promtool", "root", "texts"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("endpoints", nargs="+")
    args = parser.parse_args()
    root = Path(args.root)
    endpoints = dict(one.split("=", 1) for one in args.endpoints)

    say("Prometheus scrapes every process", wait_for_scrapes(args.prometheus, list(endpoints)))

    told = {}
    for name, address in endpoints.items():
        text = get(f"http://{address}/metrics")
        (Path(args.texts) / f"{name}.txt").write_text(text)
        checked = subprocess.run([args.promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        lines = (checked.stdout + checked.stderr).splitlines()
        findings = lines if checked.returncode or lines else []
        say(f"{name}: promtool finds nothing wrong with {len(families(text))} metrics", findings)
        for metric, (kind, labels) in families(text).items():
            other = told.setdefault(metric, (kind, set()))
            other[1].update(labels)
            if other[0] != kind:
                findings.append(f"{metric} is a {kind} in {name}, and a {other[0]} elsewhere")

    listed = documented(root / "docs/metrics.md")
    impossible = [start for start, name in OPTIONAL.items() if name not in endpoints]
    is_impossible = lambda metric: any(start in metric for start in impossible)  # noqa: E731
    lost = [f"{one}: no process tells it" for one in listed if one not in told and not is_impossible(one)]
    say(f"every metric of docs/metrics.md ({len(listed)}) is told by a process", lost)
    unknown = [f"{one}: docs/metrics.md does not list it" for one in told if one not in listed]
    say(f"every metric of a process ({len(told)}) is in docs/metrics.md", unknown)
    wrong = [
        f"{one}: documented as {listed[one][0]} by {sorted(listed[one][1])}, told as {kind} by {sorted(labels)}"
        for one, (kind, labels) in told.items()
        if one in listed and listed[one] != (kind, labels)
    ]
    say("types and labels are as documented", wrong)

    dashboard = json.loads((root / "docs/metrics/esker.dashboard.json").read_text())
    findings, count = [], 0
    for title, expression in expressions(dashboard):
        if is_impossible(expression):
            skipped += 1
            continue
        count += 1
        series = evaluate(args.prometheus, filled(expression))
        if isinstance(series, str):
            findings.append(f"{title}: {expression}: {series}")
        elif not series:
            findings.append(f"{title}: {expression}: no series")
    say(f"every expression of the dashboard ({count}) gives series", findings)
    units = [one["title"] for one in dashboard["panels"]
             if one["type"] != "row" and not one["fieldConfig"]["defaults"].get("unit")]
    say("every panel of the dashboard has a unit", units)

    rules = json.loads(get(f"{args.prometheus}/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in rules for rule in group["rules"]]
    unwell = [f"{rule['name']}: {rule.get('lastError') or rule['health']}" for rule in rules if rule["health"] == "err"]
    say(f"Prometheus evaluates every alert ({len(rules)})", unwell if rules else ["there is none"])
    named = {name for rule in rules for name in re.findall(r"\besker_\w+", rule["query"])}
    known = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    say("alerts are about metrics that there are", sorted(known - set(listed)))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # A check that cannot be made has failed.
        say("the checks come to an end", [f"{type(error).__name__}: {error}"])
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed > 0)
