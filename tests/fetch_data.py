#!/usr/bin/env python3
"""Fetches the real recordings that tests/data.md lists from the repositories that publish them.

    tests/fetch_data.py                   all recordings, into $SIDEREAL_DATA (by default ../shared/data)
    tests/fetch_data.py --only 'frb/*'    those whose names match
    tests/fetch_data.py --list            names, sizes and addresses; fetches nothing

A file gets its name once its size and SHA-256 are those of the list. Until then it is NAME.part, which the next run
continues. A file that exists is compared with the list and never replaced. The exit code is 1 if a file is missing at the end.
"""

import argparse
import dataclasses
import fnmatch
import hashlib
import http.client
import os
import pathlib
import re
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "data.md"
ORIGIN = "https://raw.githubusercontent.com"
TIMEOUT_S = 60
# Requests for one file, of which each continues where the connection before it ended.
TRIES = 3
CHUNK = 1 << 16


class Failure(Exception):
    """A file that was not fetched, with the reason."""


@dataclasses.dataclass(frozen=True)
class Recording:
    """A row of the list: the file's name below the folder, its size in bytes, its SHA-256, and its path at the origin."""

    name: str
    size: int
    sha256: str
    path: str

    def check(self, file):
        """Raises Failure if the file's size or sum differs from the list."""
        size = file.stat().st_size
        if size != self.size:
            raise Failure(f"{file}: expected {self.size} bytes, found {size}")
        with open(file, "rb") as source:
            found = hashlib.file_digest(source, "sha256").hexdigest()
        if found != self.sha256:
            raise Failure(f"{file}: expected SHA-256 {self.sha256}, found {found}")


def recordings(text):
    """Returns the rows of the table in tests/data.md; raises Failure for one that cannot be read."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or cells[0] == "file" or set(cells[0]) == {"-"}:
            continue
        if len(cells) != 5:
            raise Failure(f"tests/data.md:{number}: expected 5 cells, found {len(cells)}")
        name, size, origin, sha256 = cells[0], cells[1], cells[2].split(", "), cells[4].strip("`")
        parts = pathlib.PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] == "/":
            raise Failure(f"tests/data.md:{number}: {name!r} is no name below the folder")
        if not size.isdecimal() or len(origin) != 3 or not re.fullmatch("[0-9a-f]{64}", sha256):
            raise Failure(
                f"tests/data.md:{number}: expected bytes, `repository, commit, path` and a SHA-256, found {line!r}"
            )
        found.append(Recording(name, int(size), sha256, "/".join(origin)))
    return found


def receive(recording, part, origin):
    """Makes one request for what `part` lacks; returns whether the file continues an earlier request."""
    have = part.stat().st_size if part.exists() else 0
    if have >= recording.size:
        # Nothing is left to ask for; the caller compares the sum.
        return have > 0
    request = urllib.request.Request(f"{origin}/{recording.path}")
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        continues = response.status == 206
        if continues:
            stated = response.headers.get("Content-Range", "")
            if not stated.startswith(f"bytes {have}-"):
                raise Failure(f"{recording.name}: expected a range from byte {have}, found {stated!r}")
        left = recording.size - (have if continues else 0)
        with open(part, "ab" if continues else "wb") as out:
            while chunk := response.read(CHUNK):
                if len(chunk) > left:
                    out.write(chunk[: left + 1])
                    break
                out.write(chunk)
                left -= len(chunk)
    return continues


def fetch(recording, folder, origin):
    """Fetches a file, or compares the one that exists; returns which of the two. Raises Failure."""
    file = folder / recording.name
    if file.exists():
        try:
            recording.check(file)
        except Failure as error:
            raise Failure(f"{error}; remove it to fetch it again") from None
        return "present"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    for left in reversed(range(TRIES)):
        continues = False
        try:
            continues = receive(recording, part, origin)
            reason = None
        except urllib.error.HTTPError as error:
            if error.code == 416:
                part.unlink(missing_ok=True)
            elif error.code < 500:
                raise Failure(f"{recording.name}: {error.url}: HTTP {error.code} {error.reason}") from None
            reason = f"HTTP {error.code} {error.reason}"
        except (http.client.HTTPException, OSError) as error:
            reason = str(error) or type(error).__name__
        have = part.stat().st_size if part.exists() else 0
        if reason is None and have >= recording.size:
            try:
                recording.check(part)
            except Failure as error:
                part.unlink()
                # The earlier part may have been of another file.
                if continues and left:
                    continue
                raise Failure(str(error).removeprefix(str(folder) + os.sep)) from None
            part.rename(file)
            return "fetched"
        if not left:
            reason = reason or "the connection ended"
            raise Failure(
                f"{recording.name}: {reason} after {have} of {recording.size} bytes; another run continues"
            )


def main():
    default = os.environ.get("SIDEREAL_DATA") or ROOT / ".." / "shared" / "data"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(default))
    parser.add_argument("--only", metavar="PATTERN", default="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--origin", metavar="URL", default=ORIGIN, help="a mirror of the origin")
    parser.add_argument("--table", metavar="FILE", type=pathlib.Path, default=LIST, help=argparse.SUPPRESS)
    options = parser.parse_args()
    origin = options.origin.rstrip("/")

    try:
        listed = recordings(options.table.read_text(encoding="utf-8"))
    except Failure as error:
        sys.exit(f"error: {error}")
    wanted = [row for row in listed if fnmatch.fnmatch(row.name, options.only)]
    if not wanted:
        sys.exit(f"error: no recording of {options.table} matches {options.only!r}")
    failed = 0
    for row in wanted:
        if options.list:
            print(f"{row.name}  {row.size}  {origin}/{row.path}")
            continue
        try:
            print(f"{row.name}: {fetch(row, options.folder, origin)}", flush=True)
        except (Failure, OSError) as error:
            failed += 1
            print(f"error: {error}", file=sys.stderr)
    if not options.list:
        print(f"{len(wanted) - failed} of {len(wanted)} recordings are in {options.folder}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
