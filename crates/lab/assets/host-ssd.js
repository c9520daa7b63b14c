// Draws the cumulative distribution of read latency at each depth: the share of reads over microseconds.
"use strict";
(() => {
  const { report, stroke, dash, or, axis } = esker;
  const HEIGHT = 260;
  const percent = (value) => `${Number(value.toFixed(1))} %`;
  const micros = (value) => `${value} µs`;
  const SERIES = [
    ["conventional", "conventional"],
    ["host, as they come", "in_order"],
    ["window, from submission", "submission"],
    ["window, from issue", "issue"],
  ];
  const line = (label, index) => ({
    label, stroke: stroke(index), dash: dash(index), width: 2, value: or(percent), points: { show: false },
  });
  const charts = [];
  for (const host of document.querySelectorAll(".chart[data-depth]")) {
    const depth = report.depths[Number(host.dataset.depth)];
    charts.push({
      host,
      data: [report.grid_us, ...SERIES.map(([, key]) => depth[key].cumulative.map((share) => share * 100))],
      options: () => ({
        title: `${depth.depth} at a time`,
        scales: { x: { time: false }, y: { range: () => [0, 102] } },
        axes: [axis("latency", micros, { size: 30 }), axis("reads that took no longer", percent, { size: 74 })],
        series: [{ label: "latency", value: or(micros) }, ...SERIES.map(([label], index) => line(label, index))],
      }),
    });
  }
  esker.draw(charts, HEIGHT, [8, 28, 0, 0]);
})();
