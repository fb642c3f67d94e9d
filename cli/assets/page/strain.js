// Page of a live search of strain: takes the events of the server and shows them.
"use strict";

const MOST_TRACKS = 600, MOST_EVENTS = 200, MOST_SHOWN = 100, COLOURS = 8;

const run = { status: null, spectra: [], tracks: [], events: new Map(), map: null };

// ---------------------------------------------------------------- status

const shade = (k) => Plots.colour(`--c${k % COLOURS}`);
const names = () => (run.status && run.status.strain ? run.status.strain.detectors.map((one) => one.name) : []);

function showStatus(status) {
  run.status = status;
  const strain = status.strain;
  setState(status.health.ok ? "Searching" : strain ? "Needs attention" : "Waiting for frames", status.health.ok && strain ? "good" : strain ? "bad" : "idle");
  if (status.health.ok && !strain) { setState("Waiting for frames", "idle"); }
  find("trouble").hidden = status.health.ok;
  find("trouble").textContent = status.health.reasons.join(" ");
  find("disk").textContent = `${bytes(status.disk_free_bytes)} free in ${status.output}`;
  if (strain) {
    showDetectors(strain);
    showLatency(strain);
    showGaps(strain);
    find("counts").textContent = `${count(strain.found)} final, ${count(strain.retracted)} retracted`;
  }
  draw();
}

function showDetectors(strain) {
  const end = Math.max(...strain.detectors.map((one) => one.next_gps));
  const parts = [`${count(strain.rate_hz)} Hz`, `strain up to GPS ${fixed(end, 2)}`, strain.has_background ? "" : "no background yet"];
  find("about").textContent = parts.filter((part) => part).join(" · ");
  const rows = strain.detectors.map((one) => {
    const age = one.last_sample_age_s;
    const last = age === undefined ? "none yet" : Math.abs(age) < 86400 ? `${seconds(age)} ago` : `frame ${seconds(one.since_frame_s)} ago`;
    const horizon = one.horizon_mpc === undefined ? "–" : `${fixed(one.horizon_mpc, one.horizon_mpc < 10 ? 2 : 0)} Mpc`;
    const warm = element("td", `${count(one.warm)} of ${count(one.templates)}`, one.warm < one.templates ? "lost" : "");
    return row([
      one.name, last, count(one.frames), `${fixed((100 * one.valid_s) / Math.max(one.duration_s, 1e-9), 1)} %`, loss(one.late), count(one.repeated),
      horizon, warm, count(one.restarts), count(one.triggers)]);
  });
  find("detectors").tBodies[0].replaceChildren(...rows);
  const cold = strain.detectors.filter((one) => one.warm < one.templates);
  const words = (few) => (few === 1 ? "1 template is" : `${count(few)} templates are`);
  find("warming").textContent = cold.map((one) => `${one.name}: ${words(one.templates - one.warm)} not warm yet; the longest needs ${seconds(one.warm_after_s)} of strain.`).join(" ");
  if (find("key").textContent !== names().map((name) => `■ ${name}`).join("")) {
    find("key").replaceChildren(...names().map((name, k) => element("li", `■ ${name}`, `c${k % COLOURS}`)));
  }
}

function showLatency(strain) {
  const rows = strain.detectors.map(({ name, latency_s: one }) => row([
    name, `0 to ${seconds(one.frame)}`, Math.abs(one.delivery) < 86400 ? seconds(one.delivery) : "a recording", seconds(one.waiting), seconds(one.algorithms),
    seconds(one.computing)]));
  find("latency").tBodies[0].replaceChildren(...rows);
  const latency = strain.event_latency_s, list = [];
  if (latency !== undefined) {
    list.push(element("dt", "last event"), element("dd", Math.abs(latency) < 86400 ? `${seconds(latency)} after its time` : "of a recording"));
  }
  find("ages").replaceChildren(...list);
}

function showGaps(strain) {
  const rows = [];
  for (const one of strain.detectors) {
    for (const [reason, gap] of Object.entries(one.gaps)) {
      rows.push(row([one.name, reason.replace("_", " "), count(gap.gaps), seconds(gap.seconds)]));
    }
  }
  find("gaps").tBodies[0].replaceChildren(...rows);
  find("gaps").hidden = rows.length === 0;
  find("no-gaps").hidden = rows.length > 0;
}

// ---------------------------------------------------------------- events

function putEvent(entry) {
  // The latest is the last of the map.
  run.events.delete(entry.number);
  run.events.set(entry.number, entry);
  if (run.events.size > MOST_EVENTS) { run.events.delete(run.events.keys().next().value); }
}

let tablePending = false;
function showEvents() {
  if (tablePending) { return; }
  tablePending = true;
  requestAnimationFrame(() => { tablePending = false; fillEvents(); });
}

function fillEvents() {
  const withRetracted = find("retracted").checked;
  const all = [...run.events.values()].filter((one) => withRetracted || one.state !== "retracted").sort((a, b) => b.gps - a.gps);
  find("events").tBodies[0].replaceChildren(...all.slice(0, MOST_SHOWN).map(eventRow));
  find("events").hidden = all.length === 0;
  find("no-events").hidden = all.length > 0;
}

function eventRow(one) {
  const detectors = Object.entries(one.detectors).map(([name, trigger]) => `${name} ${fixed(trigger.snr, 1)}`).join(", ");
  const binary = one.binary ? `${fixed(one.binary.mass1, 1)} + ${fixed(one.binary.mass2, 1)}` : one.template;
  const rate = one.far_per_year === null || one.far_per_year === undefined ? "–" : `${one.far_per_year.toPrecision(2)} a year`;
  const states = element("td", one.history.map((step) => step.state).join(" → "));
  states.title = one.history.map((step) => `${step.state} ${utc(step.written_unix_s).slice(0, 19)} UTC`).join(", ");
  const map = element("td");
  if (one.maps.length > 0) {
    const open = element("button", "map", "label");
    open.type = "button";
    open.addEventListener("click", () => showMaps(one));
    map.append(open);
  }
  return row([String(one.number), fixed(one.gps, 3), fixed(one.network_snr, 1), detectors, binary, rate, states, map], one.state);
}

async function showMaps(one) {
  const answers = await Promise.all(one.maps.map((name) => fetch(`/map/${one.number}/${name}`)));
  const maps = await Promise.all(answers.filter((answer) => answer.ok).map((answer) => answer.json()));
  run.map = { maps };
  find("map-title").textContent = `event ${one.number}, seconds from GPS ${fixed(one.gps, 3)}`;
  find("maps-section").hidden = maps.length === 0;
  find("maps").replaceChildren(...maps.map(({ detector }) => {
    const figure = element("figure"), canvas = element("canvas", undefined, "plot");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Energy of the whitened strain of ${detector} by time and frequency`);
    figure.append(element("figcaption", detector), canvas);
    return figure;
  }));
  drawMaps();
}

// ---------------------------------------------------------------- plots

let drawPending = false;
function draw() {
  if (drawPending || document.hidden) { return; }
  drawPending = true;
  requestAnimationFrame(() => { drawPending = false; drawSpectra(); drawTracks(); drawBackground(); });
}

function show(name, isThere) {
  find(name).hidden = !isThere;
  find(`no-${name}`).hidden = isThere;
}

// Ticks of a logarithmic axis: powers of ten, and of few of them twice and five times these.
function decades([low, high], text) {
  const found = [], wide = high - low > 2.5;
  if (!Number.isFinite(low + high)) { return found; }
  for (let power = Math.floor(low); power <= high; power++) {
    for (const digit of wide ? [1] : [1, 2, 5]) {
      const place = power + Math.log10(digit);
      if (place >= low && place <= high) { found.push([place, text(digit, power)]); }
    }
  }
  return found;
}

function drawSpectra() {
  show("spectra", run.spectra.length > 0);
  if (run.spectra.length === 0) { return; }
  const order = names();
  const series = run.spectra.map(({ detector, hz, asd }) => ({
    points: hz.map((value, k) => [Math.log10(value), asd[k] > 0 ? Math.log10(asd[k]) : NaN]), colour: shade(Math.max(0, order.indexOf(detector))) }));
  const all = series.flatMap((one) => one.points), sorted = all.map(([, y]) => y).filter(Number.isFinite).sort((a, b) => a - b);
  const x = [all[0][0], all[all.length - 1][0]];
  // The few lowest frequencies would leave little room for the rest.
  const y = [sorted[0] - 0.1, sorted[Math.floor(0.97 * (sorted.length - 1))] + 0.3];
  const plain = (digit, power) => String(digit * 10 ** power), exponent = (digit, power) => `${digit}e${power}`;
  Plots.lines(find("spectra"), series, x, y, { ticksX: decades(x, plain), ticksY: decades(y, exponent), unitX: "Hz", unitY: "strain/√Hz" });
}

function drawTracks() {
  show("tracks", run.tracks.length > 0);
  if (run.tracks.length === 0) { return; }
  const end = run.tracks[run.tracks.length - 1].second + 1, order = names();
  const series = order.map((_, k) => ({ points: run.tracks.map(({ second, snr }) => [second - end, snr[k] === null ? NaN : snr[k]]), colour: shade(k), dots: 3 }));
  const values = series.flatMap((one) => one.points.map(([, y]) => y));
  const [, high] = Plots.range(values, [0, 10]), low = Math.min(...values.filter(Number.isFinite));
  const span = Math.min(MOST_TRACKS, Math.max(30, end - run.tracks[0].second));
  Plots.lines(find("tracks"), series, [-span, 0], [Math.floor(low), Math.max(high, low + 1)], { x: ago("s"), unitY: "S/N" });
}

// Slides give the rate down to that of a few of their events; the rates of events follow from likelihood ratios and reach further.
function drawBackground() {
  const all_slid = run.status && run.status.strain ? run.status.strain.background : [];
  const slid = all_slid.filter((one) => one.per_year > 0);
  show("background", slid.length > 1);
  if (slid.length < 2) { return; }
  const rated = [...run.events.values()].filter((one) => one.state === "final" && one.far_per_year > 0);
  const curve = slid.map((one) => [one.ranking, Math.log10(one.per_year)]), dots = rated.map((one) => [one.ranking, Math.log10(one.far_per_year)]);
  const all = [...curve, ...dots];
  const least = (k) => Math.min(...all.map((point) => point[k])), most = (k) => Math.max(...all.map((point) => point[k]));
  const x = [Math.floor(least(0)), Math.ceil(most(0) + 0.1)], y = [Math.floor(least(1) - 0.1), Math.ceil(most(1) + 0.5)];
  const series = [{ points: curve, colour: shade(0) }, { points: dots, colour: shade(1), dots: 4 }];
  Plots.lines(find("background"), series, x, y, { ticksY: decades(y, (digit, power) => `${digit}e${power}`), unitX: "ranking", unitY: "a year" });
}

function drawMaps() {
  if (!run.map) { return; }
  const canvases = find("maps").querySelectorAll("canvas");
  run.map.maps.forEach(({ seconds: span, hz, columns }, k) => {
    const most = Math.max(8, ...columns.flat().filter(Number.isFinite)), y = hz.map(Math.log10);
    const options = {
      unitX: "s", unitY: "Hz", ticksY: decades(y, (digit, power) => String(digit * 10 ** power)), bar: { low: 0, high: most, text: "energy (noise: 1)" } };
    Plots.image(canvases[k], columns, [0, most], span, y, options);
  });
}

window.addEventListener("resize", () => { draw(); drawMaps(); });
document.addEventListener("visibilitychange", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); drawMaps(); });
find("retracted").addEventListener("change", showEvents);

// ---------------------------------------------------------------- messages of the server

function putTracks(lines) {
  for (const line of lines) {
    const place = run.tracks.findLastIndex((one) => one.second <= line.second);
    if (place >= 0 && run.tracks[place].second === line.second) { run.tracks[place] = line; } else { run.tracks.splice(place + 1, 0, line); }
  }
  if (run.tracks.length > MOST_TRACKS) { run.tracks.splice(0, run.tracks.length - MOST_TRACKS); }
}

function takeWhole(strain) {
  run.spectra = strain ? strain.spectra : [];
  run.tracks = strain ? strain.tracks : [];
  run.events.clear();
  for (const entry of strain ? strain.events : []) { putEvent(entry); }
  showEvents();
  draw();
}

function connect() {
  const events = new EventSource("/events");
  const on = (name, take) => events.addEventListener(name, (event) => take(JSON.parse(event.data)));
  on("hello", (hello) => {
    find("version").textContent = `sidereal ${hello.version}`;
    takeWhole(hello.strain);
  });
  on("status", showStatus);
  on("spectra", (lines) => { run.spectra = lines; draw(); });
  on("tracks", (lines) => { putTracks(lines); draw(); });
  on("event", (entry) => { putEvent(entry); showEvents(); draw(); });
  on("missed", () => { events.close(); connect(); });
  events.onerror = () => reconnect(events);
}

connect();
