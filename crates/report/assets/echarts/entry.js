// What reports draw with: curves, bars and cells, on axes, as SVG.
export { init } from "echarts/lib/core/echarts.js";
import { use } from "echarts/lib/extension.js";
import { install as line } from "echarts/lib/chart/line/install.js";
import { install as bar } from "echarts/lib/chart/bar/install.js";
import { install as custom } from "echarts/lib/chart/custom/install.js";
import { install as grid } from "echarts/lib/component/grid/installSimple.js";
import { install as svg } from "echarts/lib/renderer/installSVGRenderer.js";
use([line, bar, custom, grid, svg]);
