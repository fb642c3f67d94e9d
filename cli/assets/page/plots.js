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
  function shade(x) {
    const place = Math.min(Math.max(x, 0), 1) * (STOPS.length - 1);
    const low = Math.min(Math.floor(place), STOPS.length - 2), part = place - low;
    return STOPS[low].map((value, k) => value + part * (STOPS[low + 1][k] - value));
  }

  // Distance of ticks: 1, 2 or 5 times a power of ten.
  function step(span, most) {
    const raw = span / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw * 0.999);
  }

  function label(value, size) {
    const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(size) + 1e-9)));
    return Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toFixed(digits);
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
    const sizeX = step(x[1] - x[0], area.w / 90), sizeY = step(y[1] - y[0], Math.max(1.5, area.h / 32));
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (let value = Math.ceil(x[0] / sizeX) * sizeX; value <= x[1] + 1e-9 * sizeX; value += sizeX) {
      const place = atX(value), text = options.x ? options.x(value) : label(value, sizeX);
      const half = pen.measureText(text).width / 2;
      line(pen, place, area.y + area.h, place, area.y + area.h + 4);
      pen.fillText(text, Math.min(place, area.x + area.w + MARGIN.right - half), area.y + area.h + 7);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (let value = Math.ceil(y[0] / sizeY) * sizeY; value <= y[1] + 1e-9 * sizeY; value += sizeY) {
      line(pen, area.x - 4, atY(value), options.grid === false ? area.x : area.x + area.w, atY(value));
      pen.fillText(label(value, sizeY), area.x - 7, atY(value));
    }
    if (options.unitY) { unit(pen, options.unitY, area.x + 6, area.y + 5, "left", "top", options.boxed); }
    if (options.unitX) { unit(pen, options.unitX, area.x + area.w - 6, area.y + area.h - 5, "right", "bottom", options.boxed); }
    pen.strokeStyle = colour("--line");
    pen.strokeRect(area.x + 0.5, area.y + 0.5, area.w - 1, area.h - 1);
    return { atX, atY };
  }

  // Writes the unit of an axis within the area; on an image it has a ground.
  function unit(pen, text, x, y, align, base, boxed) {
    pen.textAlign = align;
    pen.textBaseline = base;
    if (boxed) {
      pen.fillStyle = colour("--panel");
      pen.fillRect(x - 4, y - 3, pen.measureText(text).width + 8, 17);
    }
    pen.fillStyle = colour("--soft");
    pen.fillText(text, x, y);
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

  // Draws axes, then calls draw(pen, atX, atY), clipped to their area.
  function plot(canvas, x, y, options, draw) {
    const drawn = begin(canvas);
    if (!drawn) { return; }
    const { atX, atY } = axes(drawn, x, y, options);
    const { pen, area } = drawn;
    pen.save();
    pen.beginPath();
    pen.rect(area.x, area.y, area.w, area.h);
    pen.clip();
    draw(pen, atX, atY);
    pen.restore();
  }

  // Draws series of [x, y] as lines: {points, colour}.
  function lines(canvas, series, x, y, options = {}) {
    plot(canvas, x, y, options, (pen, atX, atY) => {
      for (const one of series) {
        pen.strokeStyle = pen.fillStyle = one.colour;
        pen.lineWidth = 1.3;
        pen.beginPath();
        let before = null;
        for (const [px, py] of one.points) {
          if (!Number.isFinite(py)) { before = null; continue; }
          if (one.dots) { pen.fillRect(atX(px) - 1, atY(py) - 1, 2.5, 2.5); continue; }
          if (before === null) { pen.moveTo(atX(px), atY(py)); } else { pen.lineTo(atX(px), atY(py)); }
          before = px;
        }
        pen.stroke();
      }
    });
  }

  // Draws points {x, y, size, shade, hollow}.
  function points(canvas, list, x, y, options = {}) {
    plot(canvas, x, y, options, (pen, atX, atY) => {
      for (const one of list) {
        pen.beginPath();
        pen.arc(atX(one.x), atY(one.y), one.size, 0, 2 * Math.PI);
        pen.strokeStyle = pen.fillStyle = one.colour;
        pen.globalAlpha = one.hollow ? 1 : 0.75;
        if (one.hollow) { pen.lineWidth = 1.5; pen.stroke(); } else { pen.fill(); }
      }
    });
  }

  // Draws rows of values as an image, the first row at the left, the first value at the bottom; null is blank.
  function image(canvas, rows, limits, x, y, options = {}) {
    const drawn = begin(canvas);
    if (!drawn) { return; }
    const { pen, area } = drawn;
    const height = rows.reduce((most, row) => Math.max(most, row ? row.length : 0), 0);
    if (rows.length > 0 && height > 0) {
      const pixels = new ImageData(rows.length, height);
      rows.forEach((row, column) => {
        for (let k = 0; k < height; k++) {
          const at = 4 * ((height - 1 - k) * rows.length + column);
          const value = row ? row[k] : null;
          if (value === null || !Number.isFinite(value)) { continue; }
          const [r, g, b] = shade((value - limits[0]) / (limits[1] - limits[0]));
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
  }

  return { colour, shade, range, lines, points, image };
})();
