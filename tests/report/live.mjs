// Opens the page of a run that goes on, and says what holds: see `run`.
//
//   node live.mjs CHROMIUM SHOTS|- NAME URL
//
// Prints a line for each check, and ends with an error if one failed. The run has to go on for a while, and to end.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { inaccessible, misplaced, undrawn, unfold } from "./inside.mjs";

const require = createRequire(join(process.cwd(), "/"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core"), "utf8");

const [chromium, shots, name, url] = process.argv.slice(2);
// How long something may take to appear.
const PATIENCE_MS = 60_000;

let passed = 0;
let failed = 0;
const say = (what, findings) => {
  findings.length === 0 ? (passed += 1) : (failed += 1);
  console.log(`${findings.length === 0 ? "ok     " : "FAILED "} live ${name}: ${what}`);
  findings.slice(0, 8).forEach((one) => console.log(`        ${one}`));
};
const shoot = async (tab, moment) => {
  if (shots === "-") return;
  mkdirSync(shots, { recursive: true });
  await tab.screenshot({ path: join(shots, `live-${name}-${moment}.png`), fullPage: true });
};

// ---- what runs in the page ----

// The section that goes on, or that of an id: how many points its first chart has, and what the headline says.
const seen = (id) => {
  const figure = document.querySelector(id ? `#${id} figure.chart` : "section figure.chart");
  return {
    id: figure?.closest("section").id ?? "",
    points: figure?.querySelectorAll("details.data table tbody tr").length ?? 0,
    headline: document.querySelector(".headline")?.textContent ?? "",
    isUnfolded: figure?.querySelector("details.data")?.open ?? false,
  };
};
const isDrawn = () => [...document.querySelectorAll(".plot canvas")].some((canvas) => {
  if (canvas.width === 0 || canvas.height === 0) return false;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let at = 0; at < data.length && colours.size < 3; at += 4) {
    if (data[at + 3] > 200) colours.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
  }
  return colours.size >= 3;
});
const hasGrown = (before) => {
  const rows = document.querySelectorAll(`#${before.id} figure.chart:first-of-type details.data table tbody tr`).length;
  return rows > before.points && document.querySelector(".headline").textContent !== before.headline;
};
const hasEnded = () => document.getElementById("live") == null && document.querySelectorAll("figure.chart").length >= 2;

// ---- what is asked ----

// Without the token, with a wrong one, and with all but its last digit.
const refusals = async () => {
  const { origin, pathname } = new URL(url);
  const token = pathname.split("/")[1];
  const paths = ["/", "/state", `/${"0".repeat(token.length)}/`, `/${token.slice(0, -1)}/`, `/${token.slice(0, -1)}/state`];
  const findings = [];
  for (const path of paths) {
    const answer = await fetch(origin + path);
    const text = await answer.text();
    if (answer.status !== 403) findings.push(`${path}: ${answer.status}`);
    if (/YCSB|load on/.test(text)) findings.push(`${path}: it tells what runs`);
  }
  return findings;
};

const within = async (tab, condition, argument) => {
  try {
    await tab.waitForFunction(condition, { timeout: PATIENCE_MS, polling: 100 }, argument);
    return [];
  } catch {
    return [`not within ${PATIENCE_MS / 1000} s; it shows ${JSON.stringify(await tab.evaluate(seen))}`];
  }
};

const browser = await puppeteer.launch({
  executablePath: chromium, headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"],
});
try {
  say("nothing is told without the token", await refusals());
  const tab = await browser.newPage();
  const errors = [];
  const { origin } = new URL(url);
  tab.on("pageerror", (error) => errors.push(String(error)));
  tab.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  tab.on("request", (request) => {
    const asked = request.url();
    if (!asked.startsWith(`${origin}/`) && !asked.startsWith("data:")) errors.push(`asks for ${asked}`);
  });
  await tab.setViewport({ width: 390, height: 900, deviceScaleFactor: 1 });
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await tab.goto(url, { waitUntil: "load" });
  say("charts are drawn while the run goes on", await within(tab, isDrawn));
  await tab.evaluate(unfold);
  const before = await tab.evaluate(seen);
  await shoot(tab, "begun");
  say("charts and headline change with the run", await within(tab, hasGrown, before));
  const after = await tab.evaluate(seen, before.id);
  say("sections that were unfolded stay so", before.isUnfolded && after.isUnfolded ? [] : [JSON.stringify({ before, after })]);
  say("390 px, nothing is cut off or lies over another", await tab.evaluate(misplaced));
  await tab.evaluate(axe);
  say("dark, contrast and labels", await tab.evaluate(inaccessible));
  await shoot(tab, "running");
  say("the end is shown: the page becomes the report", await within(tab, hasEnded));
  say("every chart of the report is drawn and has a table", await within(tab, isDrawn).then(async (late) => {
    await tab.evaluate(unfold);
    await new Promise((done) => setTimeout(done, 500));
    return [...late, ...await tab.evaluate(undrawn)];
  }));
  await shoot(tab, "ended");
  say("no error of a script, and no request to others", errors);
} catch (error) {
  say("could be looked at", [String(error)]);
} finally {
  await browser.close();
}
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exitCode = failed > 0 ? 1 : 0;
