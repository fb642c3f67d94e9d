"""A live search with a page and a sender for it; as a program: makes the pictures of the page in the guide.

    python3 tests/oracles/live_page.py

makes docs/guide/src/pictures/live_page.png (light) and live_page_phone.png (dark, a telephone).
"""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

from chromium import Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "sidereal"

LIMIT = 60

# Text and contrast ratio of each element whose text has a contrast ratio below 4.5 to its background.
FAINT = """(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (parts) => {
    const [r, g, b] = parts.slice(0, 3).map((x) => x / 255).map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const parts = numbers(getComputedStyle(at).backgroundColor);
      if (parts.length < 4 || parts[3] > 0) { return parts; }
    }
    return [255, 255, 255];
  };
  const faint = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
    if (!text || element.getClientRects().length === 0) { continue; }
    seen += 1;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) { faint.push(`${text.slice(0, 40)}: ${contrast.toFixed(2)}`); }
  }
  return { seen, faint };
})()"""


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Search:
    """A live search in a folder; the page keeps its port over a restart."""

    def __init__(self, folder, options=()):
        self.folder, self.options = pathlib.Path(folder), list(map(str, options))
        self.port, self.stream = free_port(), f"spead://127.0.0.1:{free_port(socket.SOCK_DGRAM)}"
        self.page = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        words = [PROGRAM, "live", "search", self.stream, "-o", "found", "--dm-max", "600", "--page", str(self.port)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.child = subprocess.Popen([*map(str, words), *self.options], cwd=self.folder, **quiet)
        line = self.child.stderr.readline()
        assert "page: http" in line, line
        self.token = (self.folder / "found" / "page-token").read_text().strip()
        # Its socket is open once the status has a stream.
        self.wait(lambda status: status["streams"])

    def send(self, path, *options):
        words = [PROGRAM, "send", path, self.stream, "-q", *options]
        return subprocess.Popen(list(map(str, words)), cwd=self.folder)

    def get(self, path):
        with urllib.request.urlopen(self.page + path, timeout=LIMIT) as answer:
            return answer.read().decode()

    def wait(self, is_so):
        end = time.monotonic() + LIMIT
        while True:
            status = json.loads(self.get("/status"))
            if is_so(status):
                return status
            assert time.monotonic() < end, status
            time.sleep(0.1)

    def stop(self):
        self.child.terminate()
        told = self.child.communicate(timeout=LIMIT)[1]
        assert "panicked" not in told, told


def renamed(path, source):
    """Replaces the name of the source in a filterbank's header."""
    whole = path.read_bytes()
    at = whole.index(b"source_name") + len(b"source_name")
    length = int.from_bytes(whole[at : at + 4], "little")
    name = source.encode()
    path.write_bytes(whole[:at] + len(name).to_bytes(4, "little") + name + whole[at + 4 + length :])


def recording(folder, seconds, *options):
    """Makes a filterbank with bursts and interference."""
    path = pathlib.Path(folder) / "sky.fil"
    words = [PROGRAM, "simulate", "burst", path, "-q", "--fch1", 1500, "--foff", -1, "--channels", 256, "--tsamp", 5e-4]
    words += ["--duration", seconds, "--seed", 3, "--rfi-narrow", 6, "--rfi-broad", 0.2, *options]
    subprocess.run(list(map(str, words)), check=True)
    return path


def pictures():
    """Makes the pictures in the guide."""
    with tempfile.TemporaryDirectory() as folder:
        bursts = ((60, 8, 25), (350, 15, 30), (120, 25, 18), (233, 38, 14), (480, 46, 22), (61, 52, 12))
        options = [word for dm, at, snr in bursts for word in ("--burst", f"dm={dm},time={at},width=0.005,snr={snr}")]
        path = recording(folder, 90, *options)
        renamed(path, "FRB field 7")
        search = Search(folder)
        browsers = [Browser(1280, 900), Browser(390, 844, dark=True, ratio=1, mobile=True)]
        for browser in browsers:
            browser.open(search.page)
        sender = search.send(path, "--loss", 0.001, "--seed", 1)
        time.sleep(70)
        for browser, name in zip(browsers, ("live_page.png", "live_page_phone.png")):
            browser.wait("document.querySelectorAll('#candidates img').length >= 5")
            browser.screenshot(ROOT / "docs/guide/src/pictures" / name, whole=True)
            assert not browser.faults, browser.faults
            browser.close()
        sender.kill()
        sender.wait()
        search.stop()


if __name__ == "__main__":
    pictures()
