// Sorts the tables of a report by a click on a column.
"use strict";

function value(row, column) {
  const cell = row.cells[column], number = Number(cell.dataset.value);
  return cell.dataset.value === undefined || Number.isNaN(number) ? cell.textContent : number;
}

for (const table of document.querySelectorAll("table.sorted")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      for (const other of table.tHead.rows[0].cells) { other.removeAttribute("aria-sort"); }
      head.setAttribute("aria-sort", order > 0 ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        const isLess = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return order * isLess;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

// ---------------------------------------------------------------- plots

const FINE = 1e-9;

// Ticks of a logarithmic axis: powers of ten, and between few of them 2 and 5 times those.
function decades(low, high) {
  const found = [], digits = Math.log10(high / low) > 3 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(Math.log10(high / low) / 8));
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + FINE; power++) {
    if (power % every !== 0) { continue; }
    for (const digit of digits) {
      const value = digit * 10 ** power;
      const text = Math.abs(power) > 3 ? value.toExponential(0) : String(Number(value.toPrecision(1)));
      if (value >= low * (1 - FINE) && value <= high * (1 + FINE)) { found.push([Math.log10(value), text]); }
    }
  }
  return found;
}

const logs = (value) => (value === null || value <= 0 ? NaN : Math.log10(value));

// Columns of values from 0 to 1 of an image's bytes, with blanks.
function columns({ columns: count, rows, cells }) {
  const bytes = atob(cells), found = [];
  for (let column = 0; column < count; column++) {
    const values = new Array(rows);
    for (let row = 0; row < rows; row++) {
      const byte = bytes.charCodeAt(column * rows + row);
      values[row] = byte === 255 ? null : byte / 254;
    }
    found.push(values);
  }
  return found;
}

function drawPlot(canvas, plot) {
  const ends = ({ from, to, log }) => (log ? [Math.log10(from), Math.log10(to)] : [from, to]);
  const x = ends(plot.x), y = ends(plot.y);
  const options = { unitX: plot.x.label, unitY: plot.y.label };
  if (plot.x.log) { options.ticksX = decades(plot.x.from, plot.x.to); }
  if (plot.y.log) { options.ticksY = decades(plot.y.from, plot.y.to); }
  const series = (plot.series || []).map((one) => ({
    colour: Plots.colour(`--c${one.colour % 8}`), dots: one.dots ? (plot.kind === "bars" ? 7 : 2.5) : 0, dashed: one.dashed,
    points: plot.y.log ? one.points.map(([at, value]) => [at, logs(value)]) : one.points }));
  if (plot.kind === "lines") { Plots.lines(canvas, series, x, y, options); }
  if (plot.kind === "bars") {
    const heights = plot.counts.map((count) => (plot.y.log ? (count > 0 ? Math.log10(count) : -Infinity) : count));
    Plots.bars(canvas, { first: plot.first, width: plot.width, heights }, series, x, y, options);
  }
  if (plot.kind === "points") {
    const list = plot.points.map((one) => ({ ...one, colour: Plots.colour("--mark") }));
    Plots.points(canvas, list, x, y, { ...options, lines: plot.lines, equal: plot.equal });
  }
  if (plot.kind === "image") {
    const bar = { low: plot.low, high: plot.high, text: plot.label };
    const colours = plot.wheel ? Plots.wheel : undefined;
    Plots.image(canvas, plot.drawn, [0, 1], x, y, { ...options, bar, colours });
  }
}

const plots = [...document.querySelectorAll("figure.drawn")].map((figure) => {
  const plot = JSON.parse(figure.querySelector("script").textContent);
  if (plot.kind === "image") { plot.drawn = columns(plot); }
  return [figure.querySelector("canvas"), plot];
});
function drawPlots() { for (const [canvas, plot] of plots) { drawPlot(canvas, plot); } }
drawPlots();
window.addEventListener("resize", drawPlots);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawPlots);
