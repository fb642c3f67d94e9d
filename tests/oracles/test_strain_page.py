"""The page of a live search of strain in Chromium, and its numbers by promtool."""

import json
import shutil
import subprocess
import time

import chromium
import pytest
from chromium import Browser
from live_page import FAINT
from strain_page import START, Strain, binary


@pytest.fixture(scope="module")
def browsers():
    if chromium.program() is None:
        pytest.skip("Chromium is not installed")


@pytest.fixture(scope="module")
def strain(tmp_path_factory):
    """A search that has had 40 seconds of strain with a binary, and a gap."""
    strain = Strain(tmp_path_factory.mktemp("strain"), ("--wait", 1))
    injected = binary(START + 20.6, 700)
    assert strain.play(40, *injected, "--bad-seconds", "V1:30:33", "--speed", 8).wait() == 0
    strain.wait(lambda status: status.get("strain", {}).get("found", 0) >= 1)
    strain.wait(lambda status: all(one["duration_s"] >= 40 for one in status["strain"]["detectors"]))
    yield strain
    strain.stop()


def test_the_status_has_each_detector(strain):
    status = json.loads(strain.get("/status"))["strain"]
    assert [one["name"] for one in status["detectors"]] == ["H1", "L1", "V1"]
    for one in status["detectors"]:
        # Advanced LIGO's design from 30 Hz; noise of 40 s moves it little.
        assert 300 < one["horizon_mpc"] < 500, one
        assert one["frames"] == 40 and one["templates"] == 4, one
        stages = one["latency_s"]
        assert stages["frame"] == 1 and 0.05 < stages["algorithms"] < 0.5 and 0 < stages["computing"] < 5, stages
        assert one["warm_after_s"] > 1, one
    assert status["detectors"][2]["gaps"]["state"]["seconds"] == 3, status
    assert strain.get("/healthz") == "ok\n"


def test_promtool_finds_no_fault_in_the_numbers(strain):
    metrics = strain.get("/metrics")
    assert 'sidereal_last_sample_age_seconds{stream="H1"}' in metrics, metrics
    for line in ('sidereal_frames_total{detector="H1"} 40', 'sidereal_gap_seconds_total{detector="V1",reason="state"} 3', 'sidereal_templates{detector="L1"} 4'):
        assert line in metrics.splitlines(), metrics
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("dark,mobile", [(False, False), (True, True)])
def test_the_page_is_readable(browsers, strain, dark, mobile):
    browser = Browser(390 if mobile else 1280, 844, dark=dark, mobile=mobile)
    try:
        browser.open(strain.page)
        browser.wait("document.querySelectorAll('#events tbody tr').length >= 1")
        browser.wait("document.querySelectorAll('#detectors tbody tr').length === 3")
        text = browser.evaluate("document.body.innerText")
        for words in ("sidereal live spiir", "2,048 Hz", "H1", "Mpc", "state", "first", "final", "30.0 + 30.0", "algorithms"):
            assert words in text, text
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        loudest = browser.evaluate("Math.max(...[...run.events.values()].map((one) => one.network_snr))")
        assert loudest > 15, loudest
        # The map of the loudest event has its energy at the event, and little before.
        row = "[...document.querySelectorAll('#events tbody tr')].find((one) => Number(one.cells[2].textContent) > 15)"
        browser.evaluate(f"{row}.querySelector('button').click()")
        browser.wait("document.querySelectorAll('#maps canvas').length === 3")
        most = "((columns) => Math.max(...columns.flat().filter(Number.isFinite)))"
        early, late = (browser.evaluate(f"{most}(run.map.maps[0].columns.slice({part}))") for part in ("0, 60", "75, 110"))
        assert late > 20 and late > 2 * early, (early, late)
        blank = "const blank = document.createElement('canvas'); blank.width = one.width; blank.height = one.height;"
        is_drawn = f"(one) => {{ {blank} return one.clientWidth > 0 && one.toDataURL() !== blank.toDataURL(); }}"
        browser.wait(f"[...document.querySelectorAll('canvas')].filter({is_drawn}).length === 6")
        contrast = browser.evaluate(FAINT)
        assert contrast["seen"] > 30 and not contrast["faint"], contrast
        assert browser.evaluate("run.spectra.length") == 3
        assert browser.evaluate("run.tracks.length") > 20
        assert not browser.faults, browser.faults
    finally:
        browser.close()


def test_a_killed_search_is_not_warm_and_says_so(browsers, strain):
    browser = Browser()
    try:
        browser.open(strain.page)
        browser.wait("document.querySelectorAll('#detectors tbody tr').length === 3")
        before = json.loads(strain.get("/status"))["strain"]
        assert before["detectors"][0]["warm"] < 4
        browser.wait("document.getElementById('warming').textContent.includes('not warm yet')")
        shown = browser.evaluate("[...run.events.values()].map((one) => [one.number, one.gps, one.history.length])")
        assert shown
        time.sleep(10.5)
        strain.kill()
        browser.wait("document.getElementById('state').textContent.startsWith('No connection')")
        strain.start()
        # The events are there again, with their states.
        browser.wait(f"run.status && run.events.size >= {len(shown)}")
        assert browser.evaluate("[...run.events.values()].map((one) => [one.number, one.gps, one.history.length])") == shown
        # The next frame lets it continue where it was.
        assert strain.play(10, "--speed", 0, start=START + 40).wait() == 0
        status = strain.wait(lambda status: status.get("strain", {}).get("detectors", [{}])[0].get("duration_s", 0) >= 50)
        assert status["strain"]["detectors"][0]["frames"] == 50, status
        assert status["strain"]["found"] >= before["found"]
        browser.wait("document.querySelectorAll('#detectors tbody tr').length === 3")
        browser.wait("document.getElementById('about').textContent.includes('1400000050')")
        # Only the lost connection is a fault.
        assert all("ERR_CONNECTION" in fault or "ERR_INCOMPLETE" in fault for fault in browser.faults), browser.faults
    finally:
        browser.close()
