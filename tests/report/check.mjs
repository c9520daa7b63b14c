// Opens reports in a headless browser, and says of each what holds: see `run`.
//
//   node check.mjs CHROMIUM SHOTS|- PAGE...
//
// Pictures go to the folder SHOTS. Prints a line for each check, and ends with an error if one failed.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { brokenLinks, inaccessible, misplaced, undrawn, unfold } from "./inside.mjs";

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
