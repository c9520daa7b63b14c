// Draws a miss-ratio curve from the JSON in the page: misses over the cache's size, which stands on a
// logarithmic axis.
"use strict";
(() => {
  const { report, stroke, or, axis } = esker;
  const HEIGHT = 380;

  const bytes = (value) => {
    const units = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];
    let unit = 0;
    let rest = value;
    while (rest >= 1024 && unit + 1 < units.length) { rest /= 1024; unit += 1; }
    return Number(rest.toPrecision(3)) + units[unit];
  };
  const ratio = (value) => String(Number(value.toPrecision(4)));

  // Powers of four, so that labels are round and have room.
  const powers = (_, __, min, max) => {
    const splits = [];
    for (let at = 4096; at <= max * 1.001; at *= 4) if (at >= min * 0.999) splits.push(at);
    return splits;
  };

  const points = report.lru;
  const optimum = new Map(report.optimum.map((point) => [point.bytes, point.miss_ratio]));
  const x = points.map((point) => point.bytes);
  const lines = [
    { label: "LRU", values: points.map((point) => point.miss_ratio), index: 0 },
  ];
  if (report.sampling_rate != null) {
    lines.push({ label: "95 %, low", values: points.map((p) => Math.max(0, p.miss_ratio - p.error)), index: 0, dash: [3, 4], width: 1 });
    lines.push({ label: "95 %, high", values: points.map((p) => Math.min(1, p.miss_ratio + p.error)), index: 0, dash: [3, 4], width: 1 });
  }
  if (optimum.size > 0) {
    lines.push({ label: "optimum", values: x.map((at) => optimum.get(at) ?? null), index: 1 });
  }
  if (points.length === 0) return;

  const host = document.createElement("div");
  host.className = "chart";
  document.querySelector(".charts").append(host);
  const options = () => ({
    scales: {
      x: { time: false, distr: 3, log: 2, range: () => [x[0], Math.max(x[x.length - 1], x[0] * 2)] },
      y: { range: () => [0, 1] },
    },
    axes: [
      axis("size of the cache (log)", bytes, { size: 30, splits: powers }),
      axis("misses by references", ratio, { size: 56 }),
    ],
    series: [
      { label: "cache", value: or(bytes) },
      ...lines.map((line) => ({
        label: line.label, stroke: stroke(line.index), dash: line.dash, width: line.width ?? 2,
        spanGaps: true, value: or(ratio), points: { show: points.length < 2 },
      })),
    ],
  });
  const data = [x, ...lines.map((line) => line.values)];
  esker.draw([{ host, data, options }], HEIGHT, [8, 34, 0, 0]);
})();
