// Functions that a browser runs within a page to find faults of it. Each stands alone.

export const unfold = () => document.querySelectorAll("details").forEach((one) => { one.open = true; });

// Charts that are not drawn: without a canvas with ink or an SVG with shapes.
export const undrawn = () => {
  const findings = [];
  const charts = JSON.parse(document.getElementById("charts")?.textContent ?? "[]");
  const figures = [...document.querySelectorAll("figure.chart")];
  if (figures.length !== charts.length) findings.push(`${charts.length} charts, ${figures.length} figures`);
  const hasInk = (canvas) => {
    if (canvas.width === 0 || canvas.height === 0) return false;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Set();
    for (let at = 0; at < data.length && colours.size < 3; at += 4) {
      if (data[at + 3] > 200) colours.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
    }
    return colours.size >= 3;
  };
  const isDrawn = (plot) => {
    if (plot.tagName === "svg") return plot.querySelectorAll("circle, rect").length > 0;
    const canvas = plot.querySelector("canvas");
    if (canvas) return hasInk(canvas);
    const svg = plot.querySelector("svg");
    return svg != null && svg.querySelectorAll("path").length > 4 && svg.querySelectorAll("text").length > 1;
  };
  for (const figure of figures) {
    const plots = [...figure.querySelectorAll(".plot")];
    const title = figure.querySelector(".title").textContent;
    if (plots.length === 0) findings.push(`no plot: ${title}`);
    plots.forEach((plot, at) => {
      if (!isDrawn(plot)) findings.push(`not drawn: ${title}, plot ${at + 1}`);
      if (!plot.getAttribute("aria-label")) findings.push(`no label: ${title}`);
    });
    if (!figure.querySelector("details table tbody tr")) findings.push(`no table: ${title}`);
    if (!figure.querySelector("a[download][href^='data:text/csv']")) findings.push(`no CSV: ${title}`);
  }
  return findings;
};

// What is cut off, or lies over something else.
export const misplaced = () => {
  const findings = [];
  const width = document.documentElement.clientWidth;
  const name = (one) => `${one.tagName.toLowerCase()}${one.className && typeof one.className === "string" ? `.${one.className}` : ""} "${one.textContent.trim().slice(0, 50)}"`;
  if (document.scrollingElement.scrollWidth > width) findings.push(`the page is ${document.scrollingElement.scrollWidth} px wide`);
  for (const one of document.body.querySelectorAll("*")) {
    if (one.closest("svg, .uplot, script, thead") || one.parentElement.closest(".wide")) continue;
    const box = one.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    if (box.right > width + 1 || box.left < -1) findings.push(`beyond the edge: ${name(one)}`);
    const { overflowX } = getComputedStyle(one);
    if (overflowX !== "auto" && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 && !one.closest(".plot") &&
        getComputedStyle(one).display !== "inline") {
      findings.push(`wider than its place: ${name(one)}`);
    }
  }
  for (const plot of document.querySelectorAll(".plot")) {
    const outer = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")].filter((text) => text.textContent.trim() !== "");
    const boxes = texts.map((text) => text.getBoundingClientRect());
    boxes.forEach((box, at) => {
      const cut = box.left < outer.left - 1.5 || box.right > outer.right + 1.5 || box.top < outer.top - 2 || box.bottom > outer.bottom + 2;
      if (cut) findings.push(`cut off: "${texts[at].textContent}" in ${plot.getAttribute("aria-label").slice(0, 60)}`);
      for (let other = 0; other < at; other += 1) {
        const over = boxes[other];
        const x = Math.min(box.right, over.right) - Math.max(box.left, over.left);
        const y = Math.min(box.bottom, over.bottom) - Math.max(box.top, over.top);
        if (x > 2 && y > 4) findings.push(`"${texts[at].textContent}" lies over "${texts[other].textContent}" in ${plot.getAttribute("aria-label").slice(0, 60)}`);
      }
    });
  }
  return findings;
};

export const inaccessible = async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
  const { violations } = await axe.run(document, { runOnly: { type: "tag", values: tags } });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 120)} ${failureSummary.split("\n")[1] ?? ""}`));
};

// Links within the page, and those that save CSV.
export const brokenLinks = () => {
  const findings = [];
  for (const link of document.querySelectorAll("a[href]")) {
    const href = link.getAttribute("href");
    if (href.startsWith("#") && !document.getElementById(href.slice(1))) findings.push(`leads nowhere: ${href}`);
    if (!href.startsWith("#") && !href.startsWith("data:text/csv")) findings.push(`leaves the page: ${href.slice(0, 60)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => findings.push(`twice: #${id}`));
  return findings;
};
