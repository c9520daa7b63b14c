// Bundles entry.js with what it needs of Apache ECharts, without what reports never ask for. Called by `build`,
// in a folder that has the packages of package.json.
import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";
import { minify } from "terser";

const [entry, out] = process.argv.slice(2);

// Animation, themes, other languages, patterns, dialogs of loading, tables that transform themselves, and the
// options of versions before 5.
const nothing = "export default function () {}";
const leftOut = {
  "echarts/lib/i18n/langZH.js": "export default {};",
  "echarts/lib/util/decal.js": "export function createOrUpdatePatternFromDecal() {}",
  "echarts/lib/preprocessor/backwardCompat.js": nothing,
  "echarts/lib/visual/decal.js": nothing,
  "echarts/lib/loading/default.js": nothing,
  "echarts/lib/theme/dark.js": "export default {};",
  "echarts/lib/theme/light.js": "export default { color: [] };",
  "echarts/lib/data/helper/transform.js":
    "export function registerExternalTransform() {} export function applyDataTransform() { return []; }",
  "zrender/lib/svg/cssAnimation.js": "export function createCSSAnimation() {}",
  "zrender/lib/svg/cssEmphasis.js": "export function createCSSEmphasis() {}",
  "echarts/lib/chart/line/lineAnimationDiff.js": "export default function () { return []; }",
};

const unused = new Set(Object.keys(leftOut));
const withoutThem = {
  name: "without-them",
  setup(bundle) {
    bundle.onLoad({ filter: /\.js$/ }, ({ path }) => {
      const name = Object.keys(leftOut).find((end) => path.endsWith(`node_modules/${end}`));
      if (!name) return undefined;
      unused.delete(name);
      return { contents: leftOut[name], loader: "js" };
    });
  },
};

const bundled = await build({
  entryPoints: [entry], bundle: true, minify: true, write: false, format: "iife", globalName: "echarts",
  target: "es2020", legalComments: "none", define: { "process.env.NODE_ENV": '"production"' },
  plugins: [withoutThem],
});
if (unused.size > 0) throw new Error(`ECharts no longer has ${[...unused].join(", ")}`);
const { code } = await minify(bundled.outputFiles[0].text, { ecma: 2020, compress: { passes: 3 }, mangle: true });
if (/<\/script|<!--/i.test(code)) throw new Error("the bundle would end the script element that it is put in");
const { version } = JSON.parse(readFileSync("node_modules/echarts/package.json", "utf8"));
writeFileSync(out, `/*! Apache ECharts ${version}, cut down (Apache-2.0) */\n${code}\n`);
