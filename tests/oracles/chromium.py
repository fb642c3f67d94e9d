"""Chromium without a window, driven over a pipe by the DevTools protocol."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

LIMIT = 60


def program():
    """The path of Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A browser with one page; faults of the page are in `faults`."""

    def __init__(self, width=1280, height=900, dark=False, ratio=1, mobile=False):
        self.home = tempfile.mkdtemp()
        (theirs_in, self.to), (self.of, theirs_out) = os.pipe(), os.pipe()
        # The protocol's descriptors are 3 and 4.
        shell = f"exec \"$@\" 3<&{theirs_in} 4>&{theirs_out}"
        options = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        options += ["--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.home}"]
        words = ["bash", "-c", shell, "chromium", program(), *options, "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.child = subprocess.Popen(words, pass_fds=(theirs_in, theirs_out), **quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.pending, self.faults = 0, b"", []
        found = self.call("Target.getTargets", {}, own=False)["targetInfos"]
        target = next(one["targetId"] for one in found if one["type"] == "page")
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, own=False)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": ratio, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})

    def call(self, method, options=None, own=True):
        """Calls a method of the protocol, and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": options or {}}
        if own:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + LIMIT
        while True:
            answer = self.next(end)
            assert answer is not None, f"{method}: no answer"
            if answer.get("id") == message["id"]:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def next(self, end):
        """The next message until a time; notes faults of the page."""
        while b"\0" not in self.pending:
            if not select.select([self.of], [], [], max(0, end - time.monotonic()))[0]:
                return None
            read = os.read(self.of, 1 << 20)
            assert read, "Chromium has ended"
            self.pending += read
        text, self.pending = self.pending.split(b"\0", 1)
        message = json.loads(text)
        method, about = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.faults.append(about["exceptionDetails"].get("exception", {}).get("description", "exception"))
        if method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.faults.append(str([one.get("value", one.get("description")) for one in about["args"]]))
        if method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.faults.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        return message

    def evaluate(self, script):
        """The value of an expression in the page, whose promise is waited for."""
        options = {"expression": script, "returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", options)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, address):
        self.call("Page.navigate", {"url": address})

    def wait(self, script, limit=LIMIT):
        """Waits until an expression is true."""
        end = time.monotonic() + limit
        while True:
            try:
                if self.evaluate(script):
                    return
            except AssertionError as error:
                # The page may be loading.
                if time.monotonic() > end:
                    raise error
            assert time.monotonic() < end, f"not true: {script}"
            time.sleep(0.05)

    def screenshot(self, path, whole=False):
        options = {"format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options |= {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", options)["data"]))

    def close(self):
        self.child.terminate()
        self.child.wait()
        os.close(self.to)
        os.close(self.of)
        shutil.rmtree(self.home, ignore_errors=True)
