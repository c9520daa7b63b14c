// Draws one chart for each workload: operations a second over time, a line for each engine.
"use strict";
(() => {
  const { report, stroke, dash, or, axis } = esker;
  const plain = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  const seconds = (value) => plain(value) + " s";
  const fromZero = (_, min, max) => [0, (max > 0 ? max : 1) * 1.06];

  const place = document.querySelector(".charts");
  const charts = report.map(({ workload, lines }) => {
    const host = document.createElement("div");
    host.className = "chart";
    const heading = document.createElement("h3");
    heading.textContent = workload;
    host.append(heading);
    place.append(host);
    // Engines tick at times of their own: each line has gaps where the others have points.
    const times = [...new Set(lines.flatMap(({ points }) => points.map(([at]) => at)))].sort((a, b) => a - b);
    const columns = lines.map(({ points }) => {
      const values = new Map(points);
      return times.map((time) => values.get(time) ?? null);
    });
    return {
      host,
      data: [times, ...columns],
      options: () => ({
        scales: { x: { time: false }, y: { range: fromZero } },
        axes: [axis("seconds", plain, { size: 30 }), axis("operations a second", plain, { size: 74 })],
        series: [
          { label: "time", value: or(seconds) },
          ...lines.map(({ engine }, index) => ({
            label: engine, stroke: stroke(index), dash: dash(index), width: 2, spanGaps: true,
            value: or(plain), points: { show: false },
          })),
        ],
      }),
    };
  });
  esker.draw(charts, 250, [8, 34, 0, 0]);
})();
