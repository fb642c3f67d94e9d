"""A live search of strain with a page, and frames for it; as a program: makes the pictures of the page in the guide.

    python3 tests/oracles/strain_page.py

makes docs/guide/src/pictures/strain_page.png (light) and strain_page_phone.png (dark, a telephone).
"""

import pathlib
import signal
import subprocess
import tempfile
import time

from chromium import Browser
from live_page import LIMIT, PROGRAM, ROOT, Search, free_port

START = 1_400_000_000
BINARIES = "mass1,mass2\n30,30\n20,10\n12,9\n1.4,1.4\n"


class Strain(Search):
    """A live search of strain in a folder; the page keeps its port over a restart."""

    def __init__(self, folder, options=()):
        self.folder, self.options, self.port = pathlib.Path(folder), list(map(str, options)), free_port()
        self.page = f"http://127.0.0.1:{self.port}"
        (self.folder / "binaries.csv").write_text(BINARIES)
        for name in ("H1", "L1", "V1"):
            (self.folder / "live" / name).mkdir(parents=True)
        self.start()

    def start(self):
        frames = [word for name in ("H1", "L1", "V1") for word in ("--frames", f"{name}=live/{name}")]
        words = [PROGRAM, "live", "spiir", *frames, "--rate", "2048", "--templates", "binaries.csv", "--f-low", "30"]
        words += ["-o", "found", "--resume", "--page", str(self.port), *self.options]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.child = subprocess.Popen(list(map(str, words)), cwd=self.folder, **quiet)
        line = self.child.stderr.readline()
        assert "page: http" in line, line
        self.token = (self.folder / "found" / "page-token").read_text().strip()
        self.wait(lambda status: status["verb"] == "live spiir")

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.communicate(timeout=LIMIT)

    def play(self, seconds, *options, start=START):
        words = [PROGRAM, "simulate", "strain", "--live", "live", "--detectors", "H1,L1,V1", "--rate", "2048", "--seed", "3"]
        words += ["--start", start, "--length", seconds, "-q", *options]
        return subprocess.Popen(list(map(str, words)), cwd=self.folder)


def binary(time_gps, distance, m1=30, m2=30):
    fields = f"m1={m1},m2={m2},distance={distance},ra=1.2,dec=-0.4,inclination=0.3,time={time_gps}"
    return ("--inject", fields)


def pictures():
    """Makes the pictures in the guide."""
    with tempfile.TemporaryDirectory() as folder:
        # At five times real time the search has learned its background before the binaries arrive.
        strain = Strain(folder)
        browsers = [Browser(1280, 900), Browser(390, 844, dark=True, ratio=1, mobile=True)]
        for browser in browsers:
            browser.open(strain.page)
        events = [*binary(START + 520.2, 700), *binary(START + 555.6, 500, 20, 10), *binary(START + 581.4, 900)]
        sender = strain.play(900, *events, "--bad-seconds", "V1:540:544", "--gap-seconds", "L1:560:562", "--speed", 5)
        time.sleep(120)
        loudest = "[...document.querySelectorAll('#events tbody tr')].sort((a, b) => Number(b.cells[2].textContent) - Number(a.cells[2].textContent))[0]"
        for browser, name in zip(browsers, ("strain_page.png", "strain_page_phone.png")):
            browser.wait("document.querySelectorAll('#events button').length >= 3")
            browser.evaluate(f"{loudest}.querySelector('button').click()")
            browser.wait("document.querySelectorAll('#maps canvas').length === 3")
            time.sleep(1)
            browser.screenshot(ROOT / "docs/guide/src/pictures" / name, whole=True)
            assert not browser.faults, browser.faults
            browser.close()
        sender.kill()
        sender.wait()
        strain.stop()


if __name__ == "__main__":
    pictures()
