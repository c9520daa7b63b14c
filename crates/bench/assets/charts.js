// What the scripts of all reports share: the report itself, colours, axes, and charts that follow the window and
// the colour scheme.
"use strict";
const esker = (() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const stroke = (index) => color(`--series-${(index % 6) + 1}`);
  const dash = (index) => [[], [8, 4], [2, 3]][Math.floor(index / 6) % 3];
  const or = (format) => (_, value) => (value == null ? "–" : format(value));

  const axis = (label, format, more) => ({
    label,
    labelSize: 22,
    labelFont: "13px system-ui, sans-serif",
    font: "12px system-ui, sans-serif",
    stroke: color("--quiet"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 },
    values: (_, splits) => splits.map((split) => (split == null ? null : format(split))),
    ...more,
  });

  // Draws charts, each with its data, its options and its host, and draws them again as need be.
  const draw = (charts, height, padding) => {
    const widthOf = (host) => Math.max(240, host.clientWidth);
    const build = (chart) => {
      chart.plot?.destroy();
      const options = { padding, width: widthOf(chart.host), height, ...chart.options() };
      chart.plot = new uPlot(options, chart.data, chart.host);
    };
    charts.forEach(build);
    const resized = new ResizeObserver((entries) => {
      for (const { target } of entries) {
        const chart = charts.find(({ host }) => host === target);
        const width = widthOf(target);
        if (chart.plot.width !== width) chart.plot.setSize({ width, height });
      }
    });
    charts.forEach(({ host }) => resized.observe(host));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(build));
  };

  return { report, color, stroke, dash, or, axis, draw };
})();
