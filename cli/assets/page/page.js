// Page of a live run: takes the events of the server and shows them. Every text is set as text, never as markup.
"use strict";

const MOST_SHOWN = 200, MOST_SOURCES = 32, MOST_STAGES = 8, MOST_INTEGRATIONS = 600, MOST_DUMPS = 200, COLOURS = 8;
// As many candidates and labels as the server keeps.
const MOST_CANDIDATES = 1000, MOST_LABELS = 2000;
const WATERFALL_S = 60, ROW_S = 0.25, HELD = 4, PLANE_S = 600, RATE_S = 300;

const run = { begun: null, status: null, rows: [], bandpass: null, rates: [], candidates: new Map(), labels: [], dumps: [], clock: 0, visibilities: [], plane: null };

const ofMjd = (mjd) => (mjd - 40587) * 86400;
const now = () => Date.now() / 1000 + run.clock;

// ---------------------------------------------------------------- status

function showStatus(status) {
  run.status = status;
  run.clock = status.now_unix_s - Date.now() / 1000;
  find("verb").textContent = `sidereal ${status.verb}`;
  const stream = status.streams.find((one) => one.observation) || status.streams[0];
  const states = status.streams.map((one) => one.state);
  const state = ["receiving", "waiting", "ended"].find((one) => states.includes(one)) || "waiting";
  const words = { receiving: "Receiving", ended: "Writing the products", waiting: "Waiting for an observation" };
  setState(status.health.ok ? words[state] : "Needs attention", status.health.ok ? (state === "receiving" ? "good" : "idle") : "bad");
  find("trouble").hidden = status.health.ok;
  find("trouble").textContent = status.health.reasons.join(" ");
  find("about").textContent = about(status, stream);
  showStreams(status.streams);
  // Other verbs have neither rows nor candidates.
  for (const name of ["bandpass", "waterfall", "plane", "candidates"]) { find(`${name}-section`).hidden = status.verb !== "live search"; }
  showLatency(status, stream);
  const found = status.candidates;
  find("counts").textContent = `${count(found.final)} final, ${count(found.provisional)} announced, ${count(found.retracted)} retracted since the start`;
  find("disk").textContent = `${bytes(status.disk_free_bytes)} free in ${status.output}`;
  run.rates.push([status.now_unix_s, status.streams.reduce((sum, one) => sum + one.packets_per_s, 0)]);
  while (run.rates.length > 0 && run.rates[0][0] < status.now_unix_s - RATE_S) { run.rates.shift(); }
  draw();
}

function about(status, stream) {
  const parts = [];
  const one = stream && stream.observation;
  if (one) {
    parts.push(one.source || "source unknown", one.telescope);
    const [low, high] = [fixed(one.lowest_mhz, 1), fixed(one.highest_mhz, 1)];
    if (one.highest_mhz > 0) { parts.push(low === high ? `${low} MHz` : `${low} to ${high} MHz`); }
    parts.push(`${count(one.channels)} ${one.channels === 1 ? "channel" : "channels"}`);
    if (one.antennas > 1) { parts.push(`${one.antennas} antennas`); }
    parts.push(`samples of ${seconds(one.tsamp_s)}`, `${seconds(one.data_s)} of ${one.content} read`);
    if (one.start_mjd) { parts.push(`from ${utc(ofMjd(one.start_mjd)).slice(0, 19)} UTC`); }
  }
  parts.push(`${count(status.observations)} ${status.observations === 1 ? "observation" : "observations"} ended`);
  return parts.filter((part) => part).join(" · ");
}

function showStreams(streams) {
  const rows = [];
  for (const one of streams) {
    rows.push(row([
      one.address, count(one.packets_per_s), count(one.received), loss(one.missing_blocks), loss(one.late), count(one.duplicate),
      loss(one.wrong_length), loss(one.wrong_source), loss(one.overrun), loss(one.dropped_by_kernel)]));
    if (one.header_error) { rows.push(row([`header: ${one.header_error}`], "source")); }
    if (one.sources.length < 2) { continue; }
    for (const source of one.sources.slice(0, MOST_SOURCES)) {
      rows.push(row([
        `source ${source.source}`, count(source.packets_per_s), count(source.received), loss(source.missing_blocks), loss(source.late),
        count(source.duplicate), loss(source.wrong_length), "", loss(source.overrun), ""], "source"));
    }
    if (one.sources.length > MOST_SOURCES) { rows.push(row([`and ${one.sources.length - MOST_SOURCES} more in /status`], "source")); }
  }
  find("streams").tBodies[0].replaceChildren(...rows);
}

function showLatency(status, stream) {
  const list = [];
  const add = (name, ...values) => {
    const value = element("dd");
    value.append(...values);
    list.push(element("dt", name), value);
  };
  if (stream) {
    add("last packet", stream.since_packet_s === undefined ? "none yet" : stream.since_packet_s < 1 ? "now" : `${seconds(stream.since_packet_s)} ago`);
    if (stream.packet_age_s !== undefined) { add("age of packets", seconds(stream.packet_age_s)); }
    const age = stream.observation && stream.observation.last_sample_age_s;
    if (age !== undefined && age !== null) { add("age of the last sample", age < 86400 ? seconds(age) : `${seconds(age)}: a recording is played`); }
    const meter = element("meter"), { used, capacity } = stream.ring;
    meter.max = Math.max(capacity, 1);
    meter.high = 0.7 * meter.max;
    meter.optimum = 0;
    meter.value = used;
    meter.title = "fill of the ring";
    add("ring", meter, capacity > 0 ? `${count(used)} of ${count(capacity)}` : "–");
    if (stream.dropped_s > 0) {
      const slowest = stream.slowest_stage ? `, slowest stage ${stream.slowest_stage}` : "";
      add("dropped", `${seconds(stream.dropped_s)} of data${slowest}`);
    }
  }
  const latency = status.candidates.latency_s;
  if (latency !== undefined && Math.abs(latency) < 86400) { add("last candidate", `${seconds(latency)} after its time`); }
  find("ages").replaceChildren(...list);
  const stages = [...status.stages].sort((a, b) => b.busy_s - a.busy_s).slice(0, MOST_STAGES);
  const rows = stages.map((stage) => row([stage.name, seconds(stage.latency_s), `${fixed(100 * stage.share, 1)} %`]));
  find("stages").hidden = rows.length === 0;
  find("stages").tBodies[0].replaceChildren(...rows);
}

// ---------------------------------------------------------------- candidates

const keyOf = (one) => `${one.observation}\u0000${one.number}`;

function putCandidate(line) {
  const key = keyOf(line), before = run.candidates.get(key);
  run.candidates.set(key, { url: null, ...before, ...line });
  if (run.candidates.size > MOST_CANDIDATES) { run.candidates.delete(run.candidates.keys().next().value); }
}

let tablePending = false;
function showCandidates() {
  if (tablePending) { return; }
  tablePending = true;
  requestAnimationFrame(() => { tablePending = false; fillCandidates(); });
}

function fillCandidates() {
  const withRetracted = find("retracted").checked;
  const all = [...run.candidates.values()].filter((one) => withRetracted || one.state !== "retracted");
  all.sort((a, b) => b.written_unix_s - a.written_unix_s || b.number - a.number);
  const labels = new Map();
  for (const label of run.labels) { labels.set(keyOf(label), label); }
  const rows = all.slice(0, MOST_SHOWN).map((one) => candidateRow(one, labels.get(keyOf(one))));
  find("candidates").tBodies[0].replaceChildren(...rows);
  find("candidates").hidden = rows.length === 0;
  find("no-candidates").hidden = rows.length > 0;
  draw();
}

function candidateRow(one, label) {
  const time = one.mjd === undefined ? `${fixed(one.time_s, 3)} s` : utc(ofMjd(one.mjd));
  const labelled = element("td");
  const button = element("button", label ? label.label : "label", "label");
  button.type = "button";
  if (label && label.name) { button.title = `by ${label.name}, ${utc(label.labelled_unix_s).slice(0, 19)} UTC`; }
  button.addEventListener("click", () => askLabel(one));
  labelled.append(button);
  const picture = element("td");
  if (one.url) {
    const open = element("button", undefined, "thumb"), image = element("img");
    open.type = "button";
    image.src = one.url;
    image.loading = "lazy";
    image.alt = `picture of candidate ${one.number}`;
    open.append(image);
    open.addEventListener("click", () => {
      find("picture").src = one.url;
      find("picture").alt = image.alt;
      find("picture-dialog").showModal();
    });
    picture.append(open);
  }
  const cells = [String(one.number), time, fixed(one.snr, 1), fixed(one.dm, 2), seconds(one.width_s), one.state];
  return row([...cells, labelled, picture], one.state);
}

async function loadCandidates() {
  const answer = await fetch("/candidates");
  if (!answer.ok) { return; }
  const found = await answer.json();
  run.candidates.clear();
  for (const line of found.candidates.reverse()) { putCandidate(line); }
  run.labels = found.labels;
  showCandidates();
}

// ---------------------------------------------------------------- labels and the token

let labelled = null;
function askLabel(one) {
  labelled = one;
  find("label-title").textContent = `Candidate ${one.number}: DM ${fixed(one.dm, 2)}, S/N ${fixed(one.snr, 1)}`;
  find("label-text").value = "";
  find("label-name").value = localStorage.getItem("sidereal-name") || "";
  find("label-error").textContent = "";
  find("label-dialog").showModal();
}

async function saveLabel() {
  const label = find("label-text").value.trim(), name = find("label-name").value.trim();
  localStorage.setItem("sidereal-name", name);
  const body = JSON.stringify({ observation: labelled.observation, number: labelled.number, label, name });
  const send = () => fetch("/label", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (!(await hasToken()) && !(await askToken())) { return; }
  const answer = await send();
  if (answer.ok) { find("label-dialog").close(); } else { find("label-error").textContent = (await answer.text()).trim(); }
}

find("retracted").addEventListener("change", showCandidates);
find("label-cancel").addEventListener("click", () => find("label-dialog").close());
find("label-form").addEventListener("submit", (event) => { event.preventDefault(); saveLabel(); });
for (const button of find("choices").children) {
  button.addEventListener("click", () => { find("label-text").value = button.dataset.label; });
}

// ---------------------------------------------------------------- dumps

function showDumps() {
  find("dumps-section").hidden = run.dumps.length === 0;
  const rows = [...run.dumps].reverse().map((one) => row([
    one.id, one.state, one.tstart_mjd ? utc(ofMjd(one.tstart_mjd)) : "", `${fixed(one.dms[0], 1)} to ${fixed(one.dms[1], 1)}`,
    `${fixed(one.seconds, 2)} s`, [one.file, one.reason, one.triggers.join(", ")].filter((text) => text).join("; ")]));
  find("dumps").tBodies[0].replaceChildren(...rows);
}

// ---------------------------------------------------------------- plots

let drawn = 0, drawPending = false;
function draw() {
  if (drawPending || document.hidden) { return; }
  drawPending = true;
  setTimeout(() => requestAnimationFrame(() => { drawPending = false; drawn = performance.now(); drawAll(); }), Math.max(0, 240 - (performance.now() - drawn)));
}

function drawAll() {
  drawRate();
  drawBandpass();
  drawWaterfall();
  drawPlane();
  drawBaselines();
}

function show(name, isThere, words) {
  find(name).hidden = !isThere;
  find(`no-${name}`).textContent = isThere ? "" : words;
}

function drawRate() {
  const at = now(), points = run.rates.map(([time, rate]) => [time - at, rate]);
  const high = Math.max(1, ...points.map(([, rate]) => rate)) * 1.1;
  Plots.lines(find("rate"), [{ points, colour: Plots.colour("--mark") }], [-RATE_S, 0], [0, high], { x: ago("s"), unitY: "packets/s" });
}

function whyNoRows() {
  return (run.status && run.status.rows.none) || "No row has come yet.";
}

function drawBandpass() {
  const line = run.bandpass;
  show("bandpass", line !== null && line.values.length > 0, whyNoRows());
  if (!line || line.values.length === 0) { return; }
  const { lowest_mhz: low, highest_mhz: high } = run.status.rows;
  const mhz = (k) => low + ((k + 0.5) / line.values.length) * (high - low);
  const masked = new Set(line.masked);
  const points = line.values.map((value, k) => [mhz(k), masked.has(k) ? NaN : value]);
  const y = Plots.range(points.map(([, value]) => value), [0, 1]);
  const left = line.masked.map((k) => [mhz(k), y[0] + 0.03 * (y[1] - y[0])]);
  find("masked").textContent = line.masked.length > 0 ? "· dots at the bottom are masked" : "";
  const series = [{ points, colour: Plots.colour("--mark") }, { points: left, colour: Plots.colour("--mark2"), dots: 2.5 }];
  Plots.lines(find("bandpass"), series, [low, high], y, { unitX: "MHz" });
}

function drawWaterfall() {
  show("waterfall", run.rows.length > 0, whyNoRows());
  if (run.rows.length === 0) { return; }
  const columns = Math.round(WATERFALL_S / ROW_S), end = Math.max(run.rows[run.rows.length - 1].unix_s, now() - 1);
  const placed = new Array(columns).fill(null);
  const channels = run.rows[0].values.length, sum = new Float64Array(channels), squares = new Float64Array(channels);
  let rows = 0;
  for (const { unix_s: time, values } of run.rows) {
    const column = columns - 1 - Math.floor((end - time) / ROW_S);
    if (column < 0 || column >= columns || values.length !== channels) { continue; }
    placed[column] = values;
    // A row has the data since the one before.
    for (let k = column - 1; k >= Math.max(0, column - HELD) && placed[k] === null; k--) { placed[k] = values; }
    rows += 1;
    values.forEach((value, k) => { sum[k] += value; squares[k] += value * value; });
  }
  const mean = sum.map((value) => value / Math.max(rows, 1));
  const spread = squares.map((value, k) => Math.sqrt(Math.max(0, value / Math.max(rows, 1) - mean[k] ** 2)));
  const middle = [...spread].sort((a, b) => a - b)[channels >> 1] || 1e-12;
  const shown = placed.map((values) => values && values.map((value, k) => (value - mean[k]) / Math.max(middle, 0.5 * spread[k])));
  const { lowest_mhz: low, highest_mhz: high } = run.status ? run.status.rows : { lowest_mhz: 0, highest_mhz: 1 };
  Plots.image(find("waterfall"), shown, [-2.5, 4], [-WATERFALL_S, 0], [low, Math.max(high, low + 1e-6)], { x: ago("s"), unitY: "MHz" });
}

// Takes the plane: all of its cells, or those that changed; columns that have left the picture are forgotten.
function takePlane(line, isWhole) {
  if (!line) { return; }
  const known = !isWhole && run.plane && run.plane.observation === line.observation ? run.plane.cells : new Map();
  for (const [column, row, snr] of line.cells) { known.set(column * line.rows + row, snr); }
  const oldest = Math.floor((line.end_s - PLANE_S) / line.step_s) * line.rows;
  for (const place of known.keys()) { if (place < oldest) { known.delete(place); } }
  run.plane = { ...line, cells: known };
}

function drawPlane() {
  const at = now(), list = [], plane = run.plane, cells = [];
  // Seconds from now of a time in the data that were searched.
  const since = (time) => time - plane.end_s + plane.unix_s - at;
  for (const one of run.candidates.values()) {
    const x = plane && one.observation === plane.observation ? since(one.time_s - plane.first_s) : one.written_unix_s - at;
    if (x < -PLANE_S || one.state === "retracted") { continue; }
    list.push({ x: x / 60, y: one.dm, size: 3 + Math.min(9, Math.sqrt(one.snr)), hollow: true, colour: Plots.colour(one.state === "final" ? "--mark2" : "--soft") });
  }
  if (plane) {
    const high = plane.highest_dm / plane.rows;
    for (const [place, snr] of plane.cells) {
      const left = since(Math.floor(place / plane.rows) * plane.step_s), row = place % plane.rows;
      if (left > -PLANE_S) { cells.push({ x: left / 60, y: row * high, width: plane.step_s / 60, height: high, value: snr }); }
    }
  }
  show("plane", list.length + cells.length > 0, "No detection in the last ten minutes.");
  if (list.length + cells.length === 0) { return; }
  const [, high] = Plots.range(list.map((one) => one.y), [0, 10]);
  Plots.points(find("plane"), list, [-PLANE_S / 60, 0], [0, Math.max(high, plane ? plane.highest_dm : 10)], { x: ago("min"), unitY: "DM (pc/cm³)", cells, label: "S/N" });
}

function drawBaselines() {
  find("baselines-section").hidden = run.visibilities.length === 0;
  if (run.visibilities.length === 0) { return; }
  const at = now(), amplitudes = new Map(), phases = new Map();
  const span = Math.min(600, Math.max(30, at - run.visibilities[0].unix_s));
  for (const { unix_s: time, baselines } of run.visibilities) {
    for (const { name, amplitude, phase_deg: phase } of baselines) {
      if (!amplitudes.has(name)) { amplitudes.set(name, []); phases.set(name, []); }
      amplitudes.get(name).push([time - at, amplitude]);
      phases.get(name).push([time - at, amplitude > 0 ? phase : NaN]);
    }
  }
  const names = [...amplitudes.keys()], shade = (k) => Plots.colour(`--c${k % COLOURS}`);
  const series = (map, dots) => names.map((name, k) => ({ points: map.get(name), colour: shade(k), dots }));
  const high = 1.1 * Math.max(1e-12, ...[...amplitudes.values()].flat().map(([, value]) => value));
  Plots.lines(find("amplitude"), series(amplitudes, 0), [-span, 0], [0, high], { x: ago("s"), unitY: "amplitude" });
  Plots.lines(find("phase"), series(phases, 2.5), [-span, 0], [-180, 180], { x: ago("s"), unitY: "phase (degrees)" });
  if (find("baselines").textContent !== names.map((name) => `■ ${name}`).join("")) {
    find("baselines").replaceChildren(...names.map((name, k) => element("li", `■ ${name}`, `c${k % COLOURS}`)));
  }
}

window.addEventListener("resize", draw);
document.addEventListener("visibilitychange", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

// ---------------------------------------------------------------- events

function connect() {
  const events = new EventSource("/events");
  const on = (name, take) => events.addEventListener(name, (event) => take(JSON.parse(event.data)));
  on("hello", (hello) => {
    if (run.begun !== null && run.begun !== hello.begun_unix_s) { run.rates = []; run.bandpass = null; }
    run.begun = hello.begun_unix_s;
    run.rows = hello.rows;
    if (hello.bandpass.values.length > 0) { run.bandpass = hello.bandpass; }
    run.dumps = hello.dumps;
    run.visibilities = hello.visibilities;
    takePlane(hello.plane, true);
    find("version").textContent = `sidereal ${hello.version}`;
    showDumps();
    loadCandidates();
  });
  on("status", showStatus);
  on("row", (line) => {
    const last = run.rows[run.rows.length - 1];
    if (last && last.values.length !== line.values.length) { run.rows = []; }
    run.rows.push(line);
    if (run.rows.length > WATERFALL_S / ROW_S) { run.rows.shift(); }
    draw();
  });
  on("bandpass", (line) => { run.bandpass = line; draw(); });
  on("candidate", (line) => { putCandidate(line); showCandidates(); });
  on("picture", (line) => { putCandidate(line); showCandidates(); });
  on("label", (line) => {
    run.labels.push(line);
    if (run.labels.length > MOST_LABELS) { run.labels.shift(); }
    showCandidates();
  });
  on("plane", (line) => { takePlane(line, false); draw(); });
  on("dump", (line) => {
    const place = run.dumps.findIndex((one) => one.id === line.id);
    if (place < 0) { run.dumps.push(line); } else { run.dumps[place] = line; }
    if (run.dumps.length > MOST_DUMPS) { run.dumps.shift(); }
    showDumps();
  });
  on("visibilities", (line) => {
    run.visibilities.push(line);
    if (run.visibilities.length > MOST_INTEGRATIONS) { run.visibilities.shift(); }
    draw();
  });
  on("missed", async () => {
    loadCandidates();
    try {
      run.dumps = await (await fetch("/dumps")).json();
      showDumps();
      takePlane(await (await fetch("/plane")).json(), true);
    } catch { /* The connection is lost, and the next one begins with all of them. */ }
  });
  events.onerror = () => reconnect(events);
}

connect();
