"""tests/fetch_data.py against a server of our own: whole files, cut ones, servers with and without ranges, wrong sums."""

import hashlib
import http.server
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "fetch_data.py"
NAME = "frb/one.fil"
PATH = "some/where/0123456789ab/data/one.fil"
CONTENT = bytes((7 * i + i // 251) % 256 for i in range(300_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Origin:
    """A server of one file: what it serves, how many answers it cuts and where, and the ranges it was asked for."""

    def __init__(self):
        self.content = CONTENT
        self.cuts = []
        self.has_ranges = True
        self.status = None
        self.asked = []
        origin = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                origin.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler):
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        if self.status or handler.path != f"/{PATH}":
            handler.send_error(self.status or 404)
            return
        start = 0
        if wanted and self.has_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            handler.send_response(206)
            end = len(self.content)
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        else:
            handler.send_response(200)
        body = self.content[start:]
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.cuts.pop(0)] if self.cuts else body)


@pytest.fixture
def origin():
    origin = Origin()
    yield origin
    origin.server.shutdown()
    origin.server.server_close()


@pytest.fixture
def fetch(origin, tmp_path):
    """Runs the script into tmp_path/data; returns its exit code, what it printed, and its errors."""

    def call(*options, sha256=SHA256):
        table = tmp_path / "data.md"
        row = f"| {NAME} | {len(CONTENT)} | some/where, 0123456789ab, data/one.fil | MIT | `{sha256}` |"
        table.write_text(f"# List\n\n| file | bytes | origin | licence | sha256 |\n|---|---|---|---|---|\n{row}\n")
        command = [sys.executable, str(SCRIPT), "--table", str(table), "--origin", origin.url, *options]
        environment = {**os.environ, "SIDEREAL_DATA": str(tmp_path / "data"), "no_proxy": "127.0.0.1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        return done.returncode, done.stdout, done.stderr

    return call


def files(tmp_path):
    return {path.name: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}


def test_a_file_is_fetched_once(fetch, origin, tmp_path):
    code, out, _ = fetch()
    assert code == 0 and f"{NAME}: fetched" in out
    assert files(tmp_path) == {"one.fil": CONTENT}
    code, out, _ = fetch()
    assert code == 0 and f"{NAME}: present" in out
    assert origin.asked == [None]


def test_a_cut_file_is_continued_in_the_same_run(fetch, origin, tmp_path):
    origin.cuts = [100_000, 50_000]
    assert fetch()[0] == 0
    assert files(tmp_path) == {"one.fil": CONTENT}
    assert origin.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_cut_file_is_continued_by_the_next_run(fetch, origin, tmp_path):
    origin.cuts = [100_000, 1, 1]
    code, _, errors = fetch()
    assert code == 1 and f"{NAME}: " in errors and f"100002 of {len(CONTENT)} bytes" in errors
    assert files(tmp_path) == {"one.fil.part": CONTENT[:100_002]}
    assert fetch()[0] == 0
    assert origin.asked[-1] == "bytes=100002-"
    assert files(tmp_path) == {"one.fil": CONTENT}


def test_a_server_without_ranges_sends_the_file_again(fetch, origin, tmp_path):
    origin.has_ranges = False
    origin.cuts = [100_000]
    assert fetch()[0] == 0
    assert files(tmp_path) == {"one.fil": CONTENT}
    assert origin.asked == [None, "bytes=100000-"]


def test_a_wrong_sum_names_the_file_and_both_sums_and_leaves_nothing(fetch, origin, tmp_path):
    origin.content = CONTENT[:-1] + b"?"
    code, _, errors = fetch()
    assert code == 1
    found = hashlib.sha256(origin.content).hexdigest()
    assert NAME in errors and SHA256 in errors and found in errors
    assert files(tmp_path) == {}


@pytest.mark.parametrize("length", [len(CONTENT) - 1, len(CONTENT) + 5])
def test_a_file_of_another_length_is_refused(fetch, origin, tmp_path, length):
    origin.content = (CONTENT * 2)[:length]
    code, _, errors = fetch()
    assert code == 1 and NAME in errors and str(len(CONTENT)) in errors
    assert "one.fil" not in files(tmp_path)


def test_a_part_of_another_file_is_fetched_anew(fetch, origin, tmp_path):
    part = tmp_path / "data" / f"{NAME}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * 1000)
    assert fetch()[0] == 0
    assert origin.asked == ["bytes=1000-", None]
    assert files(tmp_path) == {"one.fil": CONTENT}


def test_a_whole_part_gets_its_name_without_a_request(fetch, origin, tmp_path):
    part = tmp_path / "data" / f"{NAME}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT)
    assert fetch()[0] == 0
    assert origin.asked == []
    assert files(tmp_path) == {"one.fil": CONTENT}


def test_an_existing_file_with_a_wrong_sum_is_named_and_kept(fetch, origin, tmp_path):
    file = tmp_path / "data" / NAME
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT[::-1])
    code, _, errors = fetch()
    assert code == 1 and str(file) in errors and SHA256 in errors
    assert origin.asked == [] and file.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("status, requests", [(404, 1), (503, 3)])
def test_an_error_of_the_server_is_reported(fetch, origin, tmp_path, status, requests):
    origin.status = status
    code, _, errors = fetch()
    assert code == 1 and f"HTTP {status}" in errors and NAME in errors
    assert len(origin.asked) == requests and files(tmp_path) == {}


def test_a_damaged_list_is_an_error(fetch, tmp_path):
    code, _, errors = fetch(sha256="12")
    assert code == 1 and "data.md:5" in errors


def test_the_list_of_the_repository_can_be_read():
    done = subprocess.run([sys.executable, str(SCRIPT), "--list"], capture_output=True, text=True, check=True)
    rows = done.stdout.splitlines()
    assert len(rows) >= 28
    assert all(re.fullmatch(r"\S+  \d+  https://\S+/[0-9a-f]{12}/\S+", row) for row in rows)
