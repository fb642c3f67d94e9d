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

const plane = document.getElementById("plane");
const listed = JSON.parse((document.getElementById("points") || { textContent: "[]" }).textContent);
function drawPlane() {
  if (!plane || listed.length === 0) { return; }
  const x = Plots.range(listed.map((one) => one.x), [0, 1]), [, high] = Plots.range(listed.map((one) => one.dm), [0, 100]);
  const points = listed.map((one) => ({ x: one.x, y: one.dm, size: 2 + Math.min(9, Math.sqrt(one.snr)), colour: Plots.colour("--mark") }));
  Plots.points(plane, points, x, [0, Math.max(high, 10)], { unitX: plane.dataset.unit, unitY: "DM (pc/cm³)" });
}
drawPlane();
window.addEventListener("resize", drawPlane);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawPlane);
