// Shared by the pages of live runs: texts of numbers and times, elements, and the token. Every text is set as text, never as markup.
"use strict";

const find = (id) => document.getElementById(id);

// ---------------------------------------------------------------- numbers and times

const count = (value) => Math.round(value).toLocaleString("en-GB");
function fixed(value, digits) { return Number.isFinite(value) ? value.toFixed(digits) : "–"; }
function seconds(value) {
  if (!Number.isFinite(value)) { return "–"; }
  if (value === 0) { return "0 s"; }
  const size = Math.abs(value);
  if (size < 1e-3) { return `${fixed(value * 1e6, 0)} µs`; }
  if (size < 1) { return `${fixed(value * 1e3, size < 0.1 ? 1 : 0)} ms`; }
  if (size < 120) { return `${fixed(value, 1)} s`; }
  if (size < 7200) { return `${fixed(value / 60, 0)} min`; }
  if (size < 172800) { return `${fixed(value / 3600, 0)} h`; }
  return `${count(value / 86400)} d`;
}
function bytes(value) {
  if (!Number.isFinite(value)) { return "unknown"; }
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let k = 0;
  while (value >= 1024 && k + 1 < units.length) { value /= 1024; k += 1; }
  return `${fixed(value, k === 0 ? 0 : 1)} ${units[k]}`;
}
function utc(unix) { return new Date(unix * 1000).toISOString().replace("T", " ").slice(0, 23); }

// ---------------------------------------------------------------- elements

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) { made.textContent = text; }
  if (kind) { made.className = kind; }
  return made;
}
function row(cells, kind) {
  const made = element("tr", undefined, kind);
  for (const cell of cells) { made.append(cell instanceof Node ? cell : element("td", cell)); }
  return made;
}
const loss = (value) => element("td", count(value), value > 0 ? "lost" : "");

function setState(words, kind) {
  find("state").textContent = words;
  find("state").className = `state ${kind}`;
}

// ---------------------------------------------------------------- the token

async function hasToken() {
  const answer = await fetch("/session");
  return answer.ok && (await answer.json()).token;
}

// Asks for the token; returns whether it was right.
function askToken() {
  const dialog = find("token-dialog");
  find("token").value = "";
  find("token-error").textContent = "";
  if (!dialog.open) { dialog.showModal(); }
  return new Promise((done) => {
    find("token-cancel").onclick = () => dialog.close();
    dialog.onclose = () => done(false);
    find("token-form").onsubmit = async (event) => {
      event.preventDefault();
      const answer = await fetch("/login", { method: "POST", body: find("token").value });
      if (!answer.ok) { find("token-error").textContent = (await answer.text()).trim(); return; }
      done(true);
      dialog.close();
    };
  });
}

// The button of the token also reconnects a page that the server has refused.
let needsToken = false;
find("login").addEventListener("click", async () => {
  if ((await askToken()) && needsToken) { needsToken = false; connect(); }
});

// Connects a page again after its messages have ended.
async function reconnect(events) {
  setState("No connection, trying again", "bad");
  if (events.readyState !== EventSource.CLOSED) { return; }
  // The server has refused: without a token, it wants one.
  const session = await fetch("/status").catch(() => null);
  if (session && session.status === 401 && !(await askToken())) {
    setState("Needs the token", "bad");
    needsToken = true;
    return;
  }
  setTimeout(connect, 1000);
}

const ago = (unit) => (value) => (value === 0 ? "now" : `${fixed(-value, 0)} ${unit}`);
