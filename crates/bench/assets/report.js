// Draws the charts of a benchmark report from the JSON in the page. Times on the x axis are
// seconds since the end of the warm-up.
"use strict";
(() => {
  const { report, stroke, dash, or, axis } = esker;
  const HEIGHT = 250;
  const UNIT_TITLES = { bytes: "Bytes", count: "Counts", nanoseconds: "Time", ratio: "Ratios" };

  const short = (value, units, base) => {
    let unit = 0;
    let rest = Math.abs(value);
    while (rest >= base && unit + 1 < units.length) { rest /= base; unit += 1; }
    const digits = rest >= 100 || Number.isInteger(rest) ? 0 : rest >= 10 ? 1 : 2;
    return (value < 0 ? "-" : "") + Number(rest.toFixed(digits)) + units[unit];
  };
  const count = (value) => short(value, ["", " k", " M", " G", " T"], 1000);
  const bytes = (value) => short(value, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024);
  const micros = (value) => {
    if (value >= 1e9) return plain(Math.round(value / 1e6)) + " s";
    if (value >= 1e6) return Number((value / 1e6).toPrecision(3)) + " s";
    if (value >= 1e3) return Number((value / 1e3).toPrecision(3)) + " ms";
    return Number(value.toPrecision(3)) + " µs";
  };
  const nanos = (value) => micros(value / 1e3);
  const plain = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 3 });
  const seconds = (value) => plain(value) + " s";
  const FORMATS = { bytes, count, nanoseconds: nanos, ratio: (v) => String(Number(v.toPrecision(4))) };

  // Thousands of points leave no room for dashes.
  const many = (values) => values.length > 1000;

  // Binary steps for bytes, so that labels are round; uPlot's own for everything else.
  const binary = Array.from({ length: 60 }, (_, power) => 2 ** power);

  const line = (label, index, format, more) => ({
    label, stroke: stroke(index), dash: dash(index), width: 2, spanGaps: true,
    value: or(format), points: { show: false }, ...more,
  });
  // A line of one point cannot be seen: show the point.
  const visible = (series, values) =>
    values.filter((value) => value != null).length < 2
      ? { ...series, points: { show: true, size: 8, fill: series.stroke } }
      : series;

  // The factors of ten in a logarithmic range, thinned to what fits, or with 2 and 5 between
  // them where there is room.
  const decades = (_, __, min, max) => {
    const first = Math.floor(Math.log10(min));
    const last = Math.ceil(Math.log10(max));
    const step = Math.max(1, Math.ceil((last - first) / 7));
    const splits = [];
    const between = last - first <= 2 ? [1, 2, 5] : [1];
    for (let power = first; power <= last; power += step) {
      for (const digit of between) {
        const split = digit * 10 ** power;
        if (split <= max * 1.001) splits.push(split);
      }
    }
    return splits;
  };
  const percentiles = (_, __, min, max) => {
    const splits = [];
    for (let oneIn = min; oneIn <= max * 1.001; oneIn *= 10) splits.push(oneIn);
    return splits;
  };
  const decadeRange = (_, min, max) => {
    if (min == null || max == null) return [1, 10];
    const low = 10 ** Math.floor(Math.log10(min));
    const high = 10 ** Math.ceil(Math.log10(max) - 1e-9);
    return [low, high > low ? high : low * 10];
  };

  const fromZero = (_, min, max) => [Math.min(0, min ?? 0), (max > 0 ? max : 1) * 1.06];

  // Throughput and p99 of each interval, drawn at the interval's middle.
  const overTime = (run) => {
    const intervals = run.intervals.filter((interval) => interval.end_ns > interval.start_ns);
    if (intervals.length === 0) return null;
    const middle = intervals.map((interval) => (interval.start_ns + interval.end_ns) / 2e9);
    const rate = intervals.map((interval) => interval.ops_per_s);
    const p99 = intervals.map((interval) => (interval.p99_ns == null ? null : interval.p99_ns / 1e3));
    const end = Math.max(...intervals.map((interval) => interval.end_ns)) / 1e9;
    return {
      title: "Throughput and 99th percentile latency over time",
      data: [middle, rate, p99],
      options: () => ({
        scales: {
          x: { time: false, range: () => [0, end] },
          rate: { range: fromZero },
          p99: { distr: 3, range: decadeRange },
        },
        axes: [
          axis("seconds", plain, { size: 30 }),
          axis("operations per second", count, { scale: "rate", size: 64 }),
          axis("p99 latency (log)", micros, {
            scale: "p99", side: 1, size: 70, grid: { show: false }, splits: decades,
          }),
        ],
        series: [
          { label: "time", value: or(seconds) },
          visible(line("ops/s", 0, count, { scale: "rate", width: many(rate) ? 1 : 2 }), rate),
          visible(line("p99", 1, micros, {
            scale: "p99", width: many(p99) ? 1 : 2, dash: many(p99) ? [] : [6, 3],
          }), p99),
        ],
      }),
    };
  };

  // Latency by percentile: x is "one operation in so many took longer", on a log axis. An
  // operation has one colour; a dashed line counts from the intended start.
  const byPercentile = (run) => {
    const lines = [];
    for (const [at, operation] of run.by_operation.entries()) {
      const name = operation.operation.replaceAll("_", "-");
      if (operation.latency) lines.push([name, operation.latency, at, []]);
      if (operation.intended_latency) {
        lines.push([`${name}, from intended start`, operation.intended_latency, at, [6, 3]]);
      }
    }
    if (lines.length === 0) return null;
    const longest = lines.reduce((a, b) => (b[1].by_percentile.length > a[1].by_percentile.length ? b : a));
    const x = longest[1].by_percentile.map((point) => point.one_in);
    const columns = lines.map(([, latency]) =>
      x.map((_, at) => (at < latency.by_percentile.length ? latency.by_percentile[at].latency_ns / 1e3 : null)));
    const percent = (oneIn) => {
      const nines = Math.max(0, Math.round(Math.log10(oneIn)) - 2);
      const percentile = 100 * (1 - 1 / oneIn);
      return `${Number(percentile.toFixed(Math.max(1, nines + 1)))} %`;
    };
    return {
      title: "Latency by percentile",
      data: [x, ...columns],
      options: () => ({
        scales: {
          x: { time: false, distr: 3, range: () => decadeRange(null, 1, x[x.length - 1]) },
          y: { distr: 3, range: decadeRange },
        },
        axes: [
          axis("percentile of operations (log of 1 / (1 - p))", percent, { splits: percentiles, size: 30 }),
          axis("latency (log)", micros, { size: 70, splits: decades }),
        ],
        series: [
          { label: "percentile", value: or(percent) },
          ...lines.map(([name, , index, dashes], at) =>
            visible(line(name, index, micros, { dash: dashes }), columns[at])),
        ],
      }),
    };
  };

  // What the store says about itself: a chart for each unit, counters counted from the start.
  const sampled = (run, unit, counter) => {
    // A series that says nothing is left out: one counter that never moved among many hides the rest.
    const moves = (series) => series.points.some((point) => point.value !== series.points[0].value);
    const says = (series) => moves(series) || (!counter && series.points.some((point) => point.value !== 0));
    const chosen = run.series.filter(
      (series) => series.unit === unit && series.counter === counter && says(series),
    );
    if (chosen.length === 0) return null;
    const times = [...new Set(chosen.flatMap((series) => series.points.map((p) => p.at_ns)))].sort((a, b) => a - b);
    const columns = chosen.map((series) => {
      const base = counter ? series.points[0].value : 0;
      const values = new Map(series.points.map((point) => [point.at_ns, point.value - base]));
      return times.map((time) => values.get(time) ?? null);
    });
    const format = FORMATS[unit];
    const title = UNIT_TITLES[unit];
    return {
      title: counter ? `${title} since the start of the run, by kind` : `${title} over time`,
      data: [times.map((time) => time / 1e9), ...columns],
      options: () => ({
        scales: {
          x: { time: false, range: () => [0, Math.max(run.elapsed_ns, ...times.slice(-1)) / 1e9 || 1] },
          y: { range: fromZero },
        },
        axes: [
          axis("seconds", plain, { size: 30 }),
          axis(title.toLowerCase(), format, { size: 74, ...(unit === "bytes" ? { incrs: binary } : {}) }),
        ],
        series: [
          { label: "time", value: or(seconds) },
          ...chosen.map((series, at) => visible(line(series.name, at, format), columns[at])),
        ],
      }),
    };
  };

  const charts = [];
  for (const place of document.querySelectorAll(".charts")) {
    const run = report.runs[Number(place.dataset.run)];
    const wanted = [overTime(run), byPercentile(run)];
    for (const unit of Object.keys(UNIT_TITLES)) {
      for (const counter of [true, false]) wanted.push(sampled(run, unit, counter));
    }
    for (const chart of wanted.filter(Boolean)) {
      const host = document.createElement("div");
      host.className = "chart";
      const heading = document.createElement("h3");
      heading.textContent = chart.title;
      host.append(heading);
      place.append(host);
      charts.push({ ...chart, host });
    }
    if (place.childElementCount === 0) {
      const nothing = document.createElement("p");
      nothing.textContent = "No operation was measured.";
      place.append(nothing);
    }
  }
  // Room on the right for the half of the last label that leaves the plot.
  esker.draw(charts, HEIGHT, [8, 34, 0, 0]);
})();
