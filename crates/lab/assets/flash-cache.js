// Draws the charts of each workload of a report on flash caches: hits and disk time over the size of the cache, a
// line for each version, and hits over the place of insertion, a line for each size.
"use strict";
(() => {
  const { report, stroke, dash, or, axis } = esker;
  const HEIGHT = 300;
  const percent = (value) => `${Number(value.toFixed(1))} %`;
  const seconds = (value) => `${value.toLocaleString("en-US", { maximumFractionDigits: 0 })} s`;
  const line = (label, index, format) => ({
    label, stroke: stroke(index), dash: dash(index), width: 2, value: or(format),
    points: { show: true, size: 6, fill: stroke(index) },
  });
  const fromZero = (_, __, max) => [0, (max > 0 ? max : 1) * 1.06];

  const over = (title, x, xFormat, label, format, series, columns) => ({
    data: [x, ...columns],
    options: () => ({
      title,
      scales: { x: { time: false, range: (_, min, max) => [Math.min(0, min), max * 1.02] }, y: { range: fromZero } },
      axes: [axis(label, xFormat, { size: 30 }), axis(title, format, { size: 74 })],
      series: [{ label, value: or(xFormat) }, ...series.map((name, index) => line(name, index, format))],
    }),
  });

  const chartOf = (workload, kind) => {
    const { sizes } = workload;
    if (kind === "insertion") {
      const x = sizes[0].by_percentile.map((point) => point.percentile);
      const columns = sizes.map((size) => size.by_percentile.map((point) => point.hit_ratio * 100));
      const names = sizes.map((size) => `cache of ${size.percent} %`);
      return over("hits", x, String, "insertion percentile", percent, names, columns);
    }
    const x = sizes.map((size) => size.percent);
    const names = report.versions.map(([name]) => name);
    const figure = kind === "hits" ? (one) => one.hit_ratio * 100 : (one) => one.disk_s;
    const columns = names.map((_, index) => sizes.map((size) => figure(size.versions[index])));
    const [title, format] = kind === "hits" ? ["hits", percent] : ["time on the disk", seconds];
    return over(title, x, percent, "size of the cache, of what is touched", format, names, columns);
  };

  const charts = [];
  for (const host of document.querySelectorAll(".chart[data-workload]")) {
    charts.push({ ...chartOf(report.workloads[Number(host.dataset.workload)], host.dataset.chart), host });
  }
  esker.draw(charts, HEIGHT, [8, 16, 0, 0]);
})();
