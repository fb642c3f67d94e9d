// Plots on canvases: lines, points and images with axes, in the colours of the page.
"use strict";

const Plots = (() => {
  const FONT = "11px system-ui, sans-serif";
  const MARGIN = { left: 52, right: 10, top: 8, bottom: 26 };

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // Colours of a scale from 0 to 1: dark blue over green to yellow.
  const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

  // Colours of phases from 0 to 1, which are the same.
  const WHEEL = [[170, 122, 20], [214, 90, 66], [221, 68, 150], [168, 98, 226], [74, 137, 214], [30, 155, 160], [60, 155, 90], [128, 142, 20], [170, 122, 20]];
  function between(stops, x) {
    const place = Math.min(Math.max(x, 0), 1) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2), part = place - low;
    return stops[low].map((value, k) => value + part * (stops[low + 1][k] - value));
  }
  const shade = (x) => between(STOPS, x), wheel = (x) => between(WHEEL, x);

  // Distance of ticks: 1, 2 or 5 times a power of ten.
  function step(span, most) {
    const raw = span / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw * 0.999);
  }

  function label(value, size) {
    const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(size) + 1e-9)));
    return Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toFixed(digits);
  }

  // Places and texts of ticks: those of the options, or round numbers.
  function ticks(range, most, words, given) {
    if (given) { return given; }
    const low = Math.min(...range), high = Math.max(...range), size = step(high - low, most), found = [];
    for (let value = Math.ceil(low / size - 1e-9) * size; value <= high + 1e-9 * size; value += size) {
      found.push([value, words ? words(value) : label(value, size)]);
    }
    return found;
  }

  // Prepares a canvas for its size on the screen; returns null while it has none.
  function begin(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (width < 80 || height < 40) { return null; }
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    const area = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.right, h: height - MARGIN.top - MARGIN.bottom };
    return { pen, area };
  }

  // Draws axes around `area` for ranges of x and y; returns functions from values to places.
  function axes({ pen, area }, x, y, options = {}) {
    const atX = (value) => area.x + ((value - x[0]) / (x[1] - x[0])) * area.w;
    const atY = (value) => area.y + area.h - ((value - y[0]) / (y[1] - y[0])) * area.h;
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--soft");
    pen.lineWidth = 1;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const [value, text] of ticks(x, area.w / 90, options.x, options.ticksX)) {
      const place = atX(value), half = pen.measureText(text).width / 2;
      line(pen, place, area.y + area.h, place, area.y + area.h + 4);
      pen.fillText(text, Math.min(place, area.x + area.w + MARGIN.right - half), area.y + area.h + 7);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const [value, text] of ticks(y, Math.max(1.5, area.h / 32), options.y, options.ticksY)) {
      line(pen, area.x - 4, atY(value), options.grid === false ? area.x : area.x + area.w, atY(value));
      pen.fillText(text, area.x - 7, atY(value));
    }
    pen.strokeStyle = colour("--line");
    pen.strokeRect(area.x + 0.5, area.y + 0.5, area.w - 1, area.h - 1);
    return { atX, atY };
  }

  // Writes the units of the axes within the area, on a ground of their own.
  function units({ pen, area }, options) {
    const unit = (text, x, y, align) => {
      if (!text) { return; }
      const width = pen.measureText(text).width;
      pen.fillStyle = colour("--panel");
      pen.globalAlpha = 0.75;
      pen.fillRect(align === "left" ? x - 4 : x - width - 4, y - 3, width + 8, 17);
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--soft");
      pen.textAlign = align;
      pen.textBaseline = "top";
      pen.fillText(text, x, y);
    };
    unit(options.unitY, area.x + 6, area.y + 5, "left");
    unit(options.unitX, area.x + area.w - 6, area.y + area.h - 18, "right");
  }

  function line(pen, x0, y0, x1, y1) {
    pen.beginPath();
    pen.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
    pen.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    pen.stroke();
  }

  function range(values, fallback) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    if (low > high) { return fallback; }
    const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    return [low - pad, high + pad];
  }

  // Widens the narrower of two ranges, until both have the same scale in an area.
  function equal(x, y, area) {
    const scale = Math.max((x[1] - x[0]) / area.w, (y[1] - y[0]) / area.h);
    const wide = ([low, high], length) => [(low + high - scale * length) / 2, (low + high + scale * length) / 2];
    return [wide(x, area.w), wide(y, area.h)];
  }

  // Draws axes, then calls draw(pen, atX, atY), clipped to their area.
  function plot(canvas, x, y, options, draw) {
    const drawn = begin(canvas);
    if (!drawn) { return; }
    if (options.equal) { [x, y] = equal(x, y, drawn.area); }
    if (options.bar) { drawn.area.w -= 46; bar(drawn.pen, drawn.area, options.bar, options.colours); }
    const { atX, atY } = axes(drawn, x, y, options);
    const { pen, area } = drawn;
    pen.save();
    pen.beginPath();
    pen.rect(area.x, area.y, area.w, area.h);
    pen.clip();
    draw(pen, atX, atY);
    pen.restore();
    units(drawn, options);
  }

  // Draws series of [x, y] as lines or dots: {points, colour, dots, dashed}.
  function strokes(pen, atX, atY, series) {
    for (const one of series) {
      pen.strokeStyle = pen.fillStyle = one.colour;
      pen.lineWidth = 1.3;
      pen.setLineDash(one.dashed ? [5, 3] : []);
      pen.beginPath();
      const size = one.dots || 0;
      let before = null;
      for (const [px, py] of one.points) {
        if (!Number.isFinite(py)) { before = null; continue; }
        if (size) { pen.fillRect(atX(px) - size / 2, atY(py) - size / 2, size, size); continue; }
        if (before === null) { pen.moveTo(atX(px), atY(py)); } else { pen.lineTo(atX(px), atY(py)); }
        before = px;
      }
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  function lines(canvas, series, x, y, options = {}) {
    plot(canvas, x, y, options, (pen, atX, atY) => strokes(pen, atX, atY, series));
  }

  // Draws bars {first, width, heights} from the lower end of y, and series over them.
  function bars(canvas, { first, width, heights }, series, x, y, options = {}) {
    plot(canvas, x, y, options, (pen, atX, atY) => {
      pen.fillStyle = colour("--mark");
      heights.forEach((height, bin) => {
        const left = atX(first + bin * width), right = atX(first + (bin + 1) * width), top = atY(height);
        if (height > y[0]) { pen.fillRect(left, top, Math.max(1, right - left - 1), atY(y[0]) - top); }
      });
      strokes(pen, atX, atY, series);
    });
  }

  // Draws points {x, y, size, colour, hollow, name}, lines between the places of two of them, and below them cells
  // {x, y, width, height, value} with colours for the logarithm of their values, whose name is the option `label`.
  function points(canvas, list, x, y, options = {}) {
    const cells = options.cells || [];
    const [low, high] = cells.reduce(([a, b], { value }) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    const span = Math.log(Math.max(high / low, 1.5));
    // The darkest colours would be lost on a dark ground.
    const colours = (part) => shade(0.2 + 0.8 * part), shadeOf = (value) => colours(Math.log(value / low) / span);
    if (cells.length > 0) { options = { ...options, colours, bar: { low, high: low * Math.exp(span), text: options.label } }; }
    plot(canvas, x, y, options, (pen, atX, atY) => {
      for (const one of cells) {
        pen.fillStyle = `rgb(${shadeOf(one.value).map(Math.round).join(",")})`;
        const left = atX(one.x), top = atY(one.y + one.height);
        pen.fillRect(left, top, Math.max(1.5, atX(one.x + one.width) - left), Math.max(1.5, atY(one.y) - top));
      }
      pen.strokeStyle = colour("--mark2");
      for (const [a, b] of options.lines || []) {
        pen.beginPath();
        pen.moveTo(atX(list[a].x), atY(list[a].y));
        pen.lineTo(atX(list[b].x), atY(list[b].y));
        pen.stroke();
      }
      for (const one of list) {
        pen.beginPath();
        pen.arc(atX(one.x), atY(one.y), one.size, 0, 2 * Math.PI);
        pen.strokeStyle = pen.fillStyle = one.colour;
        pen.globalAlpha = one.hollow ? 1 : 0.75;
        if (one.hollow) { pen.lineWidth = 1.5; pen.stroke(); } else { pen.fill(); }
      }
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--ink");
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      for (const one of list) {
        if (one.name) { pen.fillText(one.name, atX(one.x) + one.size + 3, atY(one.y)); }
      }
    });
  }

  // Draws the colours of an image at the right of an area, with the ends of its values.
  function bar(pen, area, { low, high, text }, colours) {
    const left = area.x + area.w + 8;
    for (let row = 0; row < area.h; row++) {
      pen.fillStyle = `rgb(${colours(1 - (row + 0.5) / area.h).map(Math.round).join(",")})`;
      pen.fillRect(left, area.y + row, 9, 1.5);
    }
    const size = step(high - low, 2);
    pen.fillStyle = colour("--soft");
    pen.textAlign = "left";
    pen.textBaseline = "top";
    pen.fillText(label(high, size), left + 13, area.y);
    pen.textBaseline = "bottom";
    pen.fillText(label(low, size), left + 13, area.y + area.h);
    pen.save();
    pen.translate(left + 17, area.y + area.h / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.fillText(text, 0, 0);
    pen.restore();
  }

  // Draws rows of values as an image, the first row at the left, the first value at the bottom; null is blank. The option
  // `bar` has {low, high, text} of a bar of its colours, `colours` is a function of values from 0 to 1.
  function image(canvas, rows, limits, x, y, options = {}) {
    const drawn = begin(canvas);
    if (!drawn) { return; }
    const { pen, area } = drawn, colours = options.colours || shade;
    if (options.bar) { area.w -= 46; bar(pen, area, options.bar, colours); }
    const height = rows.reduce((most, row) => Math.max(most, row ? row.length : 0), 0);
    if (rows.length > 0 && height > 0) {
      const pixels = new ImageData(rows.length, height);
      rows.forEach((row, column) => {
        for (let k = 0; k < height; k++) {
          const at = 4 * ((height - 1 - k) * rows.length + column);
          const value = row ? row[k] : null;
          if (value === null || !Number.isFinite(value)) { continue; }
          const [r, g, b] = colours((value - limits[0]) / (limits[1] - limits[0]));
          pixels.data[at] = r; pixels.data[at + 1] = g; pixels.data[at + 2] = b; pixels.data[at + 3] = 255;
        }
      });
      const copy = document.createElement("canvas");
      copy.width = rows.length;
      copy.height = height;
      copy.getContext("2d").putImageData(pixels, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(copy, area.x, area.y, area.w, area.h);
    }
    axes(drawn, x, y, { ...options, grid: false });
    units(drawn, options);
  }

  return { colour, wheel, range, lines, bars, points, image };
})();
