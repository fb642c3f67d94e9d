"""sgn-ligo's fake frames feed `live spiir` in real time, with files removed, delayed, cut and repeated at random.

Every gap must be what was done to the files, frame by frame. SIDEREAL_FRAMES_S is the time in seconds (25); with SIDEREAL_FRAMES_OUT
the result is written to that file.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy
import pytest
from conftest import BUILT, client

LENGTH_S = int(os.environ.get("SIDEREAL_FRAMES_S", 25))
RATE = 2048
IFOS = ("H1", "L1")
WAIT_S = 1.0
# Faults of a file, and the number of later frames of its detector that stay whole, so that no two faults meet.
FAULTS = ("removed", "cut", "delayed", "late", "repeated")
APART = 4
# Whole frames at the start, and before the end.
WHOLE = 4


class Tampering:
    """Hands a detector's frames on, some of them with a fault."""

    def __init__(self, ifo, folder, seed):
        self.made, self.kept, self.live = (folder / name / ifo for name in ("made", "kept", "live"))
        for place in (self.made, self.kept, self.live):
            place.mkdir(parents=True)
        self.random = random.Random(f"{ifo}{seed}")
        self.sizes, self.done, self.faults, self.held = {}, [], {}, []
        self.apart = WHOLE

    def look(self, is_ending):
        """Hands on what is complete."""
        self.release()
        for path in sorted(self.made.glob("*.gwf")):
            size = path.stat().st_size
            # sgn-ligo writes under the final name: a file is complete when it does not grow.
            if size > 0 and self.sizes.get(path) == size:
                self.hand(path, time.monotonic(), is_ending)
            else:
                self.sizes[path] = size

    def release(self):
        """Hands on what was delayed long enough; a late file comes when its time must have passed as a gap."""
        now = time.monotonic()
        for held in list(self.held):
            path, name, due, later = held
            if now >= due and len(self.done) >= later and (later == 0 or now >= self.done[later - 1][1] + 2 * WAIT_S):
                self.put(path, name)
                self.held.remove(held)

    def hand(self, path, now, is_ending):
        second = int(path.stem.split("-")[2])
        taken = self.kept / path.name
        path.rename(taken)
        self.done.append((second, now))
        self.apart -= 1
        fault = None
        if self.apart < 0 and not is_ending and self.random.random() < 0.5:
            fault = self.random.choice(FAULTS)
            self.faults[second] = fault
            self.apart = APART
        if fault == "cut":
            whole = taken.read_bytes()
            taken.write_bytes(whole[: self.random.randrange(1, len(whole))])
        if fault == "repeated":
            copy = self.kept / f"copy-{path.name}"
            shutil.copy(taken, copy)
            self.held.append((copy, path.name.replace("-FAKE-", "-COPY-"), now + self.random.uniform(0, 3), 0))
        if fault == "delayed":
            self.held.append((taken, path.name, now + self.random.uniform(0.1, 0.5), 0))
        elif fault == "late":
            self.held.append((taken, path.name, now, len(self.done) + 1))
        elif fault != "removed":
            self.put(taken, path.name)

    def put(self, path, name):
        path.rename(self.live / name)


def memory_mib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    psd = client("sgnligo.psd").fake_gwdata_psd(["H1"])["H1"]
    folder = tmp_path_factory.mktemp("sgn")
    density = psd.data.data[1 : int(RATE / psd.deltaF)]
    numpy.savetxt(folder / "psd.txt", numpy.column_stack([psd.deltaF * numpy.arange(1, len(density) + 1), density]))
    (folder / "state.txt").write_text("0 2000000000 3\n")
    (folder / "binaries.csv").write_text("mass1,mass2\n30,30\n20,20\n40,25\n")
    tamperings = {ifo: Tampering(ifo, folder, LENGTH_S) for ifo in IFOS}
    words = ["--psd", "psd.txt", "--templates", "binaries.csv", "--f-low", 30, "--rate", RATE, "--threshold", 3.5, "--wait", WAIT_S, "-o", "found"]
    words += [word for ifo in IFOS for word in ("--frames", f"{ifo}={folder / 'live' / ifo}")]
    search = subprocess.Popen(
        [str(word) for word in (BUILT / "sidereal", "--no-progress", "live", "spiir", *words, "-q")],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    program = pathlib.Path(sys.executable).with_name("sgn-ligo-fake-frames")
    sources = []
    for ifo in IFOS:
        channels = ("--strain-channel", f"{ifo}:GDS-CALIB_STRAIN", "--state-channel", f"{ifo}:GDS-CALIB_STATE_VECTOR")
        out = tamperings[ifo].made / "{instruments}-{description}-{gps_start_time}-{duration}.gwf"
        rates = ("--strain-sample-rate", str(RATE), "--frame-duration", "1", "--state-file", "state.txt", "--description", "FAKE")
        command = [program, *channels, *rates, "--output-path", out, "--real-time"]
        sources.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    memory = []
    try:
        begin = None
        while begin is None or time.monotonic() < begin + LENGTH_S:
            assert search.poll() is None, search.stderr.read()
            assert all(source.poll() is None for source in sources), "sgn-ligo ended"
            left = None if begin is None else begin + LENGTH_S - time.monotonic()
            for tampering in tamperings.values():
                tampering.look(left is not None and left < WHOLE + 2)
            if begin is None and all(len(tampering.done) > 1 for tampering in tamperings.values()):
                begin = time.monotonic()
            if begin is not None and time.monotonic() - begin > len(memory):
                memory.append(memory_mib(search))
            time.sleep(0.02)
        for source in sources:
            source.kill()
        # Frames that wait are handed on, and the search has time for them.
        end = time.monotonic() + 4 * WAIT_S
        while time.monotonic() < end or any(tampering.held for tampering in tamperings.values()):
            for tampering in tamperings.values():
                tampering.release()
            time.sleep(0.02)
        search.send_signal(signal.SIGTERM)
        assert search.wait(60) == 130, search.stderr.read()
    finally:
        for process in (search, *sources):
            if process.poll() is None:
                process.kill()
            process.wait()
    found = folder / "found"
    (document,) = [json.loads(path.read_text()) for path in found.glob("*/events.json")]
    lines = {name: [json.loads(line) for line in (found / f"{name}.ndjson").read_text().splitlines()] for name in ("events", "gaps")}
    return tamperings, document.get("document", document), lines, memory


def test_every_gap_is_what_was_done_to_the_files(run):
    tamperings, document, lines, memory = run
    reasons = {"removed": "missing", "late": "missing", "cut": "damaged"}
    faults = {ifo: [fault for fault in tampering.faults.values()] for ifo, tampering in tamperings.items()}
    assert sum(map(len, faults.values())) >= LENGTH_S // 8, faults
    expected = {
        (ifo, second, reasons[fault])
        for ifo, tampering in tamperings.items()
        for second, fault in tampering.faults.items()
        if fault in reasons
    }  # fmt: skip
    # One source begins before the other: its first seconds are the other one's gap.
    start = min(tampering.done[0][0] for tampering in tamperings.values())
    found = set()
    for gap in lines["gaps"]:
        own = tamperings[gap["detector"]].done
        if gap["start_gps"] == start < own[0][0] and gap["end_gps"] == own[0][0]:
            continue
        if gap["reason"] == "stopped" and gap["start_gps"] > own[-1][0]:
            continue
        assert gap["end_gps"] - gap["start_gps"] == gap["seconds"] == 1.0, gap
        found.add((gap["detector"], int(gap["start_gps"]), gap["reason"]))
    assert found == expected
    for row in document["detectors"]:
        own = faults[row["name"]]
        assert row["late"] == own.count("late"), row
        assert row["repeated"] == own.count("repeated"), row
        assert row["frames"] == len(tamperings[row["name"]].done) - sum(fault in reasons for fault in own), row
    edges = numpy.array([time for gap in lines["gaps"] for time in (gap["start_gps"], gap["end_gps"])])
    finals = [event for event in lines["events"] if event["state"] == "final"]
    near = [event for event in finals if abs(edges - event["gps"]).min() < 0.5]
    if out := os.environ.get("SIDEREAL_FRAMES_OUT"):
        loudest = [max((event["network_snr"] for event in some), default=None) for some in (finals, near)]
        result = dict(
            length_s=LENGTH_S, frames={ifo: len(one.done) for ifo, one in tamperings.items()}, faults=faults, events=len(finals),
            events_near=len(near), loudest=loudest[0], loudest_near=loudest[1], edges=len(edges), memory_mib=memory,
        )  # fmt: skip
        pathlib.Path(out).write_text(json.dumps(result))


def test_no_event_comes_from_the_edge_of_a_gap(run):
    _, document, lines, _ = run
    # Noise alone, of two detectors and three templates: an event as loud as this comes once in many hours.
    assert [event for event in lines["events"] if event["network_snr"] > 8] == []
    triggers = [row["triggers"] for row in document["detectors"]]
    # An edge that rings would have triggers in every template at each of its gaps.
    assert max(triggers) < 3 * 2 * LENGTH_S, triggers


def test_memory_stays_flat(run):
    *_, memory = run
    half = len(memory) // 2
    first, last = numpy.mean(memory[half : half + 5]), numpy.mean(memory[-5:])
    assert last < first * 1.02 + 4, memory
