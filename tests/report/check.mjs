// Opens reports in a headless browser, and says of each what holds: see `run`.
//
//   node check.mjs CHROMIUM SHOTS|- PAGE...
//
// Pictures go to the folder SHOTS. Prints a line for each check, and ends with an error if one failed.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "/"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core"), "utf8");

const [chromium, shots, ...pages] = process.argv.slice(2);
const WIDTHS = [390, 1280];
const SCHEMES = ["light", "dark"];

let passed = 0;
let failed = 0;
const say = (page, what, findings) => {
  const isGood = findings.length === 0;
  isGood ? (passed += 1) : (failed += 1);
  console.log(`${isGood ? "ok     " : "FAILED "} ${page}: ${what}`);
  findings.slice(0, 8).forEach((one) => console.log(`        ${one}`));
  if (findings.length > 8) console.log(`        and ${findings.length - 8} more`);
};

// ---- what runs in the page ----

const unfold = () => document.querySelectorAll("details").forEach((one) => { one.open = true; });

// Charts that are not drawn: without a canvas with ink or an SVG with shapes.
const undrawn = () => {
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
const misplaced = () => {
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

const inaccessible = async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
  const { violations } = await axe.run(document, { runOnly: { type: "tag", values: tags } });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 120)} ${failureSummary.split("\n")[1] ?? ""}`));
};

// Links within the page, and those that save CSV.
const brokenLinks = () => {
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

// ---- what a browser is asked ----

const settle = (tab) => tab.evaluate(() => new Promise((done) => {
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 120)));
}));

const shoot = async (tab, name) => {
  if (shots === "-") return;
  mkdirSync(shots, { recursive: true });
  await tab.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
};

const check = async (browser, path) => {
  const name = basename(path, ".html");
  const tab = await browser.newPage();
  const errors = [];
  tab.on("pageerror", (error) => errors.push(String(error)));
  tab.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  const url = pathToFileURL(resolve(path)).href;
  tab.on("request", (request) => {
    if (request.url() !== url && !request.url().startsWith("data:")) errors.push(`asks for ${request.url()}`);
  });
  for (const width of WIDTHS) {
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
    await tab.setViewport({ width, height: 900, deviceScaleFactor: 1 });
    await tab.goto(url, { waitUntil: "load" });
    await settle(tab);
    say(name, `${width} px, nothing is cut off or lies over another`, await tab.evaluate(misplaced));
    await shoot(tab, `${name}-${width}`);
    await tab.evaluate(unfold);
    await settle(tab);
    say(name, `${width} px, every chart is drawn and has a table`, await tab.evaluate(undrawn));
    say(name, `${width} px, unfolded, nothing is cut off or lies over another`, await tab.evaluate(misplaced));
    await shoot(tab, `${name}-${width}-unfolded`);
  }
  say(name, "links lead somewhere", await tab.evaluate(brokenLinks));
  await tab.evaluate(axe);
  for (const scheme of SCHEMES) {
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await settle(tab);
    say(name, `${scheme}, contrast and labels`, await tab.evaluate(inaccessible));
    say(name, `${scheme}, every chart is drawn`, await tab.evaluate(undrawn));
    if (scheme === "dark") await shoot(tab, `${name}-dark`);
  }
  await printed(tab, url, name);
  say(name, "no error of a script, and no request", errors);
  await tab.close();
};

// As on paper: unfolded, light, and no wider than the sheet.
const printed = async (tab, url, name) => {
  await tab.setViewport({ width: 1280, height: 900, deviceScaleFactor: 1 });
  await tab.goto(url, { waitUntil: "load" });
  await settle(tab);
  const folded = await tab.evaluate(() => document.querySelectorAll("details:not([open])").length);
  const pdf = await tab.pdf({
    format: "a4", printBackground: true, preferCSSPageSize: false,
    ...(shots === "-" ? {} : { path: join(shots, `${name}.pdf`) }),
  });
  const sheets = (Buffer.from(pdf).toString("latin1").match(/\/Type\s*\/Page\b/g) ?? []).length;
  say(name, `prints to PDF, ${sheets} pages`, sheets > 0 ? [] : ["no page"]);
  const after = await tab.evaluate(() => document.querySelectorAll("details:not([open])").length);
  say(name, "after printing it is as before", folded === after ? [] : [`${folded} folded before, ${after} after`]);
  await tab.setViewport({ width: 704, height: 1000, deviceScaleFactor: 1 });
  await tab.emulateMediaType("print");
  await tab.evaluate(() => dispatchEvent(new Event("beforeprint")));
  await settle(tab);
  const lost = await tab.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const findings = [...document.querySelectorAll("details:not([open])")].map((one) => `folded: ${one.textContent.slice(0, 50)}`);
    for (const cell of document.querySelectorAll("th, td, .plot, canvas, pre")) {
      const box = cell.getBoundingClientRect();
      if (box.right > width + 1) findings.push(`beyond the sheet: ${cell.tagName} "${cell.textContent.slice(0, 40)}"`);
    }
    return findings;
  });
  say(name, "on paper everything is unfolded and no column is lost", lost);
  say(name, "on paper every chart is drawn", await tab.evaluate(undrawn));
  await shoot(tab, `${name}-paper`);
  await tab.emulateMediaType(null);
};

const browser = await puppeteer.launch({
  executablePath: chromium, headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"],
});
try {
  for (const page of pages) {
    try {
      await check(browser, page);
    } catch (error) {
      say(basename(page, ".html"), "could be looked at", [String(error)]);
    }
  }
} finally {
  await browser.close();
}
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exitCode = failed > 0 ? 1 : 0;
