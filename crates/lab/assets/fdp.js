// Draws a chart for each chapter of a placement report from the JSON in the page: write
// amplification over drive writes, a line for each run, a mark for each published figure.
"use strict";
(() => {
  const { report, color, stroke, dash, or, axis } = esker;
  const HEIGHT = 320;
  const plain = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  const factor = (value) => value.toFixed(3);

  // Runs begin and end at different drive writes: one axis holds the points of all.
  const chartOf = (chapter) => {
    const runs = chapter.runs.filter((run) => run.measured.points.length > 0);
    if (runs.length === 0) return null;
    const points = runs.map((run) => run.measured.points);
    const x = [...new Set(points.flatMap((of) => of.map((point) => point.drive_writes)))].sort((a, b) => a - b);
    const end = x[x.length - 1];
    const lines = points.map((of) => {
      const values = new Map(of.map((point) => [point.drive_writes, point.write_amplification]));
      return x.map((at) => values.get(at) ?? null);
    });
    // Marks stand at the right edge, each in the colour of the run it is compared with.
    const marks = [];
    for (const [index, run] of runs.entries()) {
      if (run.published) marks.push({ figure: run.published.figure, index, name: run.name });
    }
    for (const derived of chapter.derived) {
      if (derived.published) marks.push({ figure: derived.published.figure, index: null, name: derived.name });
    }
    const most = Math.max(...points.flatMap((of) => of.map((point) => point.write_amplification)),
      ...marks.map((mark) => mark.figure));
    const inkOf = (mark) => (mark.index == null ? color("--ink") : stroke(mark.index));
    return {
      data: [x, ...lines, ...marks.map((mark) => x.map((at) => (at === end ? mark.figure : null)))],
      options: () => ({
        scales: {
          x: { time: false, range: () => [0, end * 1.02] },
          y: { range: () => [0.95, Math.max(1.1, most * 1.04)] },
        },
        axes: [
          axis("drive writes", plain, { size: 30 }),
          axis("write amplification", (value) => plain(value), { size: 60 }),
        ],
        series: [
          { label: "drive writes", value: or(plain) },
          ...runs.map((run, index) => ({
            label: run.name, stroke: stroke(index), dash: dash(index), width: 2, spanGaps: true,
            value: or(factor), points: { show: false },
          })),
          ...marks.map((mark) => ({
            label: `published, ${mark.name}`, stroke: inkOf(mark), width: 0,
            value: () => String(mark.figure),
            points: { show: true, size: 12, width: 2, stroke: inkOf(mark), fill: color("--paper") },
          })),
        ],
      }),
    };
  };

  const charts = [];
  for (const host of document.querySelectorAll(".chart[data-chapter]")) {
    const chart = chartOf(report.chapters[Number(host.dataset.chapter)]);
    if (chart) charts.push({ ...chart, host });
  }
  esker.draw(charts, HEIGHT, [8, 16, 0, 0]);
})();
