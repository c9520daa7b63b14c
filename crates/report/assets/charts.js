// Draws the charts of a report from the JSON in the page: panels over time with uPlot, everything on other axes with
// ECharts. Each figure of the page has plots that say which chart, and which panel of it, they are for.
"use strict";
(() => {
  let charts = JSON.parse(document.getElementById("charts").textContent);
  const root = document.documentElement;
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const series = (index) => color(`--series-${(index % 6) + 1}`);
  const dashes = (index) => [[], [8, 4], [2, 3]][Math.floor(index / 6) % 3];
  const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

  // ---- figures, written as the tables of the page write them ----

  const plain = (value, decimals) => value.toLocaleString("en-US", { maximumFractionDigits: decimals });
  const digits = (value) => plain(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
  const steps = (value, units, base) => {
    let rest = Math.abs(value);
    let unit = 0;
    while (rest >= base * 0.9995 && unit + 1 < units.length) { rest /= base; unit += 1; }
    return (value < 0 ? "-" : "") + digits(rest) + units[unit];
  };
  const FORMATS = {
    plain: (value) => plain(value, 3),
    count: (value) => steps(value, ["", " k", " M", " G", " T"], 1000),
    rate: (value) => steps(value, ["/s", " k/s", " M/s", " G/s", " T/s"], 1000),
    bytes: (value) => steps(value, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024),
    bytes_rate: (value) => steps(value, [" B/s", " KiB/s", " MiB/s", " GiB/s", " TiB/s"], 1024),
    nanoseconds: (value) =>
      value >= 1e9 ? `${digits(value / 1e9)} s` : steps(value, [" ns", " µs", " ms"], 1000),
    seconds: (value) => `${plain(value, 3)} s`,
    percent: (value) => `${plain(value, 1)} %`,
    factor: (value) => value.toFixed(2),
    fine_factor: (value) => value.toFixed(3),
  };
  const percentile = (oneIn) => {
    const nines = Math.max(0, Math.ceil(Math.log10(oneIn) - 1e-3) - 2);
    return `${Number((100 * (1 - 1 / Math.max(1, oneIn))).toFixed(nines + 1))} %`;
  };

  // ---- axes ----

  // Every power of ten in a range, with 2 and 5 between them where few powers are.
  const decades = (least, most) => {
    const first = Math.floor(Math.log10(least) + 1e-9);
    const last = Math.ceil(Math.log10(most) - 1e-9);
    const all = [];
    for (let power = first; power <= last; power += 1) {
      for (const digit of last - first <= 2 ? [1, 2, 5] : [1]) {
        const at = digit * 10 ** power;
        if (at >= least * 0.999 && at <= most * 1.001) all.push(at);
      }
    }
    return all;
  };
  const decadeRange = (least, most) => {
    if (!(least > 0)) return [1, 10];
    const low = 10 ** Math.floor(Math.log10(least) + 1e-9);
    const high = 10 ** Math.ceil(Math.log10(most) - 1e-9);
    return [low, high > low ? high : low * 10];
  };
  const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power);
  const isBytes = (unit) => unit === "bytes" || unit === "bytes_rate";

  // A range is a word or { fixed }, and words have methods of that name.
  const fixed = (axis) => (typeof axis.range === "object" ? axis.range.fixed : null);
  const rangeOf = (axis, least, most) => {
    if (fixed(axis)) return fixed(axis);
    const [low, high] = least <= most ? [least, most] : [0, 1];
    if (axis.range === "data") return high > low ? [low, high] : [low - 0.5, high + 0.5];
    return [Math.min(0, low), (high > 0 ? high : 1) * 1.06];
  };

  // ---- panels, by uPlot ----

  const PANEL_HEIGHT = 150;
  const shade = (ink, share) => `color-mix(in srgb, ${ink} ${share}%, transparent)`;

  const drawPanel = (host, chart, index) => {
    const panel = chart.panels[index];
    const format = FORMATS[panel.y.unit];
    const isLog = panel.y.scale === "log";
    const length = panel.at.length;
    // A step holds until the next point, and the last one until the end of the axis.
    const padded = (line) => {
      const values = line.values.slice(0, length);
      while (values.length < length) values.push(line.is_step ? values[values.length - 1] ?? null : null);
      return values;
    };
    const data = [panel.at, ...panel.lines.map(padded)];
    const ink = (line, at) => series(line.colour ?? at);
    const points = chart.panels.flatMap((one) => [one.at[0], one.at[one.at.length - 1]]).filter((at) => at != null);
    const ends = rangeOf(chart.x, Math.min(...points), Math.max(...points));
    const axis = (more) => ({
      font: FONT, stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 },
      ticks: { stroke: color("--line"), width: 1, size: 4 }, gap: 4, ...more,
    });
    const isLast = index === chart.panels.length - 1;
    const spans = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.fillStyle = color("--span");
      for (const { from, to } of panel.spans) {
        const left = plot.valToPos(from, "x", true);
        const right = Math.max(left + 2, plot.valToPos(to, "x", true));
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
      }
      ctx.restore();
    };
    const outputs = [...legendOf(host).querySelectorAll("b")];
    const read = (plot) => {
      const at = plot.cursor.idx;
      outputs.forEach((output, line) => {
        const value = at == null ? null : plot.data[line + 1]?.[at];
        output.textContent = value == null ? "" : format(value);
      });
    };
    return new uPlot({
      width: host.clientWidth,
      height: PANEL_HEIGHT + (isLast ? 14 : 0),
      padding: [8, 18, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: `chart-${host.dataset.chart}`, scales: ["x", null] }, y: false, points: { size: 6 } },
      scales: {
        x: { time: false, range: () => ends },
        y: isLog
          ? { distr: 3, range: (_, least, most) => decadeRange(least, most) }
          : { range: (_, least, most) => rangeOf(panel.y, least ?? 0, most ?? 1) },
      },
      axes: [
        axis({
          size: isLast ? 28 : 8, space: 60,
          values: (_, splits) => splits.map((at) => (isLast ? FORMATS[chart.x.unit](at) : "")),
        }),
        axis({
          size: 72, values: (_, splits) => splits.map((at) => (at == null ? "" : format(at))),
          ...(isLog ? { splits: (_, __, least, most) => decades(least, most), filter: (_, all) => all } : { space: 32 }),
          ...(isBytes(panel.y.unit) ? { incrs: BINARY } : {}),
        }),
      ],
      series: [
        {},
        ...panel.lines.map((line, at) => ({
          label: line.name, stroke: ink(line, at), dash: dashes(line.colour ?? at), spanGaps: true,
          width: length > 1000 ? 1 : 1.75,
          paths: line.is_step ? uPlot.paths.stepped({ align: 1 }) : undefined,
          // A line of one point cannot be seen.
          points: { show: line.values.filter((value) => value != null).length < 2, size: 7, fill: ink(line, at) },
        })),
      ],
      bands: panel.bands.map(([upper, lower]) => ({
        series: [upper + 1, lower + 1], fill: shade(ink(panel.lines[upper], upper), 14),
      })),
      hooks: { drawClear: [spans], setCursor: [read] },
    }, data, host);
  };

  // ---- everything else, by ECharts ----

  const legendOf = (host) => host.previousElementSibling;
  const isLogScale = (scale) => scale !== "linear";

  // Round steps over a range, six at most.
  const evenly = (from, to, unit) => {
    const span = to - from || 1;
    const base = isBytes(unit) ? 2 : 10;
    const power = base ** Math.floor(Math.log(span / 6) / Math.log(base));
    const step = (base === 2 ? [1, 2] : [1, 2, 5, 10]).map((digit) => digit * power).find((one) => span / one <= 6);
    const all = [];
    for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + step * 1e-6; at += step) {
      all.push(Math.abs(at) < step * 1e-6 ? 0 : at);
    }
    return all;
  };

  // ECharts' axes all run evenly: values are put on them by `put`, and have labels at `ticks` only.
  const placing = (axis, values) => {
    const finite = values.filter((value) => Number.isFinite(value) && (axis.scale === "linear" || value > 0));
    const [least, most] = finite.length ? [Math.min(...finite), Math.max(...finite)] : [1, 10];
    const show = FORMATS[axis.unit];
    if (axis.scale === "log") {
      const [from, to] = fixed(axis) ?? decadeRange(least, most);
      return { put: Math.log10, from, to, ticks: decades(from, to), show };
    }
    if (axis.scale === "log2") {
      const [from, to] = fixed(axis) ?? [least, most > least ? most : least * 2];
      const all = BINARY.filter((at) => at >= from * 0.999 && at <= to * 1.001);
      const every = Math.ceil(all.length / 10);
      const ticks = all.filter((at) => Math.round(Math.log2(at)) % every === 0);
      return { put: Math.log2, from, to, ticks, show };
    }
    if (axis.scale === "percentile") {
      const to = 10 ** Math.max(1, Math.ceil(Math.log10(most) - 1e-6));
      const tens = Array.from({ length: Math.round(Math.log10(to)) }, (_, power) => 10 ** (power + 1));
      return { put: Math.log10, from: 2, to, ticks: [2, ...tens], show: percentile };
    }
    const [from, to] = rangeOf(axis, least, most);
    return { put: (value) => value, from, to, ticks: evenly(from, to, axis.unit), show };
  };

  const ruler = document.createElement("canvas").getContext("2d");
  const widthOf = (text) => {
    ruler.font = FONT;
    return ruler.measureText(text).width;
  };
  const widest = (texts) => Math.ceil(Math.max(0, ...texts.map(widthOf)));

  // Labels that have room: every tick's, every second one's, and so on.
  const fitting = (placed, width) => {
    const scale = width / (placed.put(placed.to) - placed.put(placed.from));
    const boxes = placed.ticks.map((tick) => {
      const middle = (placed.put(tick) - placed.put(placed.from)) * scale;
      return { tick, middle, half: widthOf(placed.show(tick)) / 2 + 4 };
    });
    for (let every = 1; every < boxes.length; every += 1) {
      const kept = boxes.filter((_, at) => at % every === 0);
      const fits = kept.every(({ middle, half }, at) => at === 0 || middle - half > kept[at - 1].middle + kept[at - 1].half);
      if (fits) return kept.map(({ tick }) => tick);
    }
    return placed.ticks.slice(0, 1);
  };

  const styleOf = (placed, labelled, more) => {
    const ticks = placed.ticks.map(placed.put);
    const label = (at) => {
      const tick = placed.ticks[ticks.findIndex((one) => Math.abs(one - at) < 1e-9 * Math.max(1, Math.abs(one)))];
      return tick != null && labelled.includes(tick) ? placed.show(tick) : "";
    };
    const line = { color: color("--line") };
    return {
      type: "value", min: placed.put(placed.from), max: placed.put(placed.to),
      axisLine: { show: true, lineStyle: line }, splitLine: { show: true, lineStyle: line },
      axisTick: { show: true, lineStyle: line, customValues: ticks },
      axisLabel: { color: color("--quiet"), fontSize: 12, formatter: label, customValues: ticks },
      ...more,
    };
  };

  const BOTTOM = 24;
  // Two axes with labels, and the room that these take.
  const plane = (host, x, y) => {
    const left = widest(y.ticks.map(y.show)) + 10;
    const right = Math.max(14, Math.ceil(widthOf(x.show(x.ticks.length ? Math.max(...x.ticks) : 0)) / 2) + 2);
    return {
      grid: { left, right, top: 10, bottom: BOTTOM },
      xAxis: styleOf(x, fitting(x, host.clientWidth - left - right)),
      yAxis: styleOf(y, y.ticks),
    };
  };

  const frame = (host, options) => {
    const plot = echarts.init(host, null, { renderer: "svg" });
    plot.setOption({ animation: false, textStyle: { fontFamily: FONT.replace("12px ", "") }, ...options });
    return plot;
  };

  const MARK_DASHES = [[1, 3], [6, 2, 1, 2], [10, 4]];

  const drawCurves = (host, chart) => {
    const all = chart.curves.flatMap((curve) => curve.points);
    const x = placing(chart.x, [...all.map(([at]) => at), ...chart.marks.map((mark) => mark.at)]);
    const y = placing(chart.y, [...all.map(([, value]) => value), ...chart.curves.flatMap((curve) => curve.band.flat())]);
    const put = ([at, value]) => [x.put(at), y.put(chart.y.scale === "linear" ? value : Math.max(value, y.from))];
    const inside = ([at]) => at >= x.from * 0.999999;
    const base = { type: "line", silent: true, clip: false, emphasis: { disabled: true }, animation: false };
    const lines = chart.curves.flatMap((curve, index) => {
      const ink = series(curve.colour ?? index);
      const isPoints = curve.draw === "marks" || curve.draw === "hollow";
      const few = curve.points.length < 2;
      const line = {
        ...base, name: curve.name, data: curve.points.filter(inside).map(put),
        showSymbol: isPoints || few || curve.draw === "points", symbol: curve.draw === "hollow" ? "emptyCircle" : "circle",
        symbolSize: isPoints || few ? 9 : 6, step: curve.draw === "step" ? "end" : false,
        lineStyle: {
          width: isPoints ? 0 : 2, color: ink,
          type: curve.draw === "dashed" ? [6, 3] : dashes(curve.colour ?? index),
        },
        itemStyle: { color: ink, borderWidth: 2 },
      };
      if (line.lineStyle.type.length === 0) line.lineStyle.type = "solid";
      if (curve.band.length === 0) return [line];
      const edge = (side) => curve.points.map(([at], point) => [x.put(at), y.put(curve.band[point][side])]);
      const corners = [...edge(0), ...edge(1).reverse()];
      const area = (_, api) => ({
        type: "polygon", shape: { points: corners.map((corner) => api.coord(corner)) },
        style: { fill: ink, opacity: 0.18 },
      });
      return [{ type: "custom", silent: true, renderItem: area, data: [corners[0]] }, line];
    });
    const marks = chart.marks.map((mark, index) => ({
      ...base, showSymbol: false, data: [[x.put(mark.at), y.put(y.from)], [x.put(mark.at), y.put(y.to)]],
      lineStyle: { width: 1.5, color: color("--ink"), type: MARK_DASHES[index % 3] },
    }));
    const plot = frame(host, {
      ...plane(host, x, y), series: [...lines, ...marks],
    });
    follow(host, plot, chart, x);
    return plot;
  };

  // A line under the pointer, and the figures there in the legend.
  const follow = (host, plot, chart, x) => {
    const outputs = [...legendOf(host).querySelectorAll("b")];
    const cross = document.createElement("div");
    cross.className = "cross";
    const hide = () => {
      cross.remove();
      outputs.forEach((output) => { output.textContent = ""; });
    };
    plot.getZr().on("mousemove", ({ offsetX, offsetY }) => {
      if (!plot.containPixel("grid", [offsetX, offsetY])) return hide();
      const [at] = plot.convertFromPixel("grid", [offsetX, offsetY]);
      Object.assign(cross.style, { left: `${offsetX}px`, top: "10px", bottom: `${BOTTOM}px` });
      host.append(cross);
      chart.curves.forEach((curve, index) => {
        let nearest = null;
        for (const point of curve.points) {
          if (nearest == null || Math.abs(x.put(point[0]) - at) < Math.abs(x.put(nearest[0]) - at)) nearest = point;
        }
        if (outputs[index]) outputs[index].textContent = nearest ? FORMATS[chart.y.unit](nearest[1]) : "";
      });
      return undefined;
    });
    plot.getZr().on("globalout", hide);
  };

  const isNarrow = (host) => host.clientWidth < 560;

  // Names of rows: beside them, or above them where there is no room.
  const categories = (names, narrow) => ({
    type: "category", inverse: true, data: names, axisTick: { show: false }, axisLine: { show: false },
    axisLabel: { show: !narrow, color: color("--ink"), fontSize: 12, interval: 0 },
  });
  const above = (names, x) => ({
    type: "custom", silent: true, clip: false, z: 4, data: names.map((_, row) => [x, row]),
    renderItem: (item, api) => {
      const [, middle] = api.coord([x, item.dataIndex]);
      const top = middle - api.size([0, 1])[1] / 2;
      const style = { text: names[item.dataIndex], x: 0, y: top + 3, fill: color("--ink"), font: FONT };
      return { type: "text", style: { ...style, verticalAlign: "top" } };
    },
  });

  const drawBars = (host, chart) => {
    const narrow = isNarrow(host);
    const sums = chart.bars.map(([, values]) => values.reduce((sum, value) => sum + value, 0));
    const x = placing(chart.axis, sums);
    const names = chart.bars.map(([name]) => name);
    host.style.height = `${names.length * (narrow ? 46 : 30) + BOTTOM + 8}px`;
    const format = FORMATS[chart.axis.unit];
    const left = narrow ? widthOf(format(0)) / 2 + 2 : widest(names) + 12;
    const right = widest(sums.map(format)) + 12;
    const last = chart.parts.length - 1;
    return frame(host, {
      grid: { left, right, top: 4, bottom: BOTTOM },
      xAxis: styleOf(x, fitting(x, host.clientWidth - left - right)),
      yAxis: categories(names, narrow),
      series: [
        ...chart.parts.map((part, index) => ({
          type: "bar", name: part, stack: "all", barWidth: narrow ? 16 : 18, silent: true,
          itemStyle: { color: series(index), borderColor: color("--paper"), borderWidth: index > 0 ? 1 : 0 },
          data: chart.bars.map(([, values]) => values[index] ?? 0),
          label: {
            show: index === last, position: "right", color: color("--ink"), fontSize: 12,
            formatter: ({ dataIndex }) => format(sums[dataIndex]),
          },
        })),
        ...(narrow ? [above(names, x.from)] : []),
      ],
    });
  };

  const channels = (text) => text.match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const readable = (rgb) => (luminance(rgb) > 0.18 ? "#000000" : "#ffffff");

  const drawHeat = (host, chart) => {
    const narrow = isNarrow(host);
    const known = chart.values.flat().filter((value) => value != null);
    const [least, most] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    const [from, to] = [channels(color("--heat-0")), channels(color("--heat-1"))];
    const shadeOf = (value) => {
      const share = most > least ? (value - least) / (most - least) : 0.5;
      return from.map((part, at) => Math.round(part + (to[at] - part) * share));
    };
    host.style.height = `${chart.rows.length * (narrow ? 48 : 28) + BOTTOM + 2}px`;
    const cells = chart.values.flatMap((values, y) => values.map((value, x) => [x, y, value]));
    const draw = (_, api) => {
      const [x, y, value] = cells[api.value(2)];
      if (value == null) return undefined;
      const [left, top] = api.coord([x, y]);
      const [width, height] = api.size([1, 1]);
      const rgb = shadeOf(value);
      const used = narrow ? 26 : height - 2;
      const upper = top - height / 2 + (narrow ? 20 : 1);
      return {
        type: "group",
        children: [
          {
            type: "rect", shape: { x: left - width / 2 + 1, y: upper, width: width - 2, height: used },
            style: { fill: `rgb(${rgb.join(",")})` },
          },
          {
            type: "text",
            style: {
              text: FORMATS[chart.unit](value), x: left, y: upper + used / 2, align: "center", verticalAlign: "middle",
              fill: readable(rgb), font: FONT,
            },
          },
        ],
      };
    };
    return frame(host, {
      grid: { left: narrow ? 0 : widest(chart.rows) + 10, right: 0, top: 0, bottom: BOTTOM },
      xAxis: {
        type: "category", data: chart.columns, axisTick: { show: false }, axisLine: { show: false },
        axisLabel: { color: color("--quiet"), fontSize: 12, interval: 0 },
      },
      yAxis: categories(chart.rows, narrow),
      series: [
        { type: "custom", renderItem: draw, silent: true, clip: false, data: cells.map(([x, y], index) => [x, y, index]) },
        ...(narrow ? [above(chart.rows, 0)] : []),
      ],
    });
  };

  // ---- drawing, and drawing again ----

  const DRAW = { curves: drawCurves, bars: drawBars, heat_map: drawHeat };
  const hosts = () => [...document.querySelectorAll(".plot[data-chart]")];
  const undrawn = (host) => ({ host, drawn: null, width: 0 });
  let plots = hosts().map(undrawn);

  const draw = (plot) => {
    const { host } = plot;
    if (host.clientWidth === 0) return;
    clear(plot);
    const chart = charts[Number(host.dataset.chart)];
    plot.width = host.clientWidth;
    plot.drawn = chart.kind === "panels"
      ? drawPanel(host, chart, Number(host.dataset.panel))
      : DRAW[chart.kind](host, chart);
  };
  const clear = (plot) => {
    (plot.drawn?.destroy ?? plot.drawn?.dispose)?.call(plot.drawn);
    plot.drawn = null;
    plot.host.replaceChildren();
  };
  const drawAll = () => plots.forEach(draw);

  drawAll();
  // What is folded away has no width, and is drawn when it has one.
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.find(({ host }) => host === target);
      if (target.clientWidth !== plot.width && target.clientWidth > 0) draw(plot);
    }
  });
  plots.forEach(({ host }) => resized.observe(host));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  // A live page has replaced some of its figures: these are drawn, and the others stay.
  document.addEventListener("charts", ({ detail }) => {
    charts = detail;
    for (const plot of plots.filter(({ host }) => !host.isConnected)) {
      resized.unobserve(plot.host);
      clear(plot);
    }
    const known = plots;
    plots = hosts().map((host) => known.find((plot) => plot.host === host) ?? undrawn(host));
    for (const plot of plots.filter(({ host }) => !known.some((one) => one.host === host))) {
      draw(plot);
      resized.observe(plot.host);
    }
  });

  // On paper everything is unfolded, light, and as wide as a sheet.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((one) => { one.open = true; });
    root.classList.add("paper");
    drawAll();
  });
  addEventListener("afterprint", () => {
    folded.forEach((one) => { one.open = false; });
    root.classList.remove("paper");
    drawAll();
  });
})();
