"""The page of a live run in Chromium, and its numbers by promtool."""

import re
import shutil
import subprocess

import chromium
import pytest
from chromium import Browser
from conftest import ROOT, sidereal
from live_page import FAINT, Search, recording, renamed

TITLE = "<script>alert(1)</script>"
BURST = ("--burst", "dm=60,time=3,width=0.005,snr=25", "--burst", "dm=350,time=6,width=0.005,snr=30")


@pytest.fixture(scope="module")
def browsers():
    if chromium.program() is None:
        pytest.skip("Chromium is not installed")


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """A search that has had an observation, whose source has a name of markup."""
    folder = tmp_path_factory.mktemp("page")
    path = recording(folder, 40, *BURST)
    renamed(path, TITLE)
    search = Search(folder)
    search.path = path
    assert search.send(path, "--rate", 4).wait() == 0
    search.wait(lambda status: status["observations"] == 1)
    yield search
    search.stop()


def promtool(*words, **options):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_finds_no_fault_in_the_numbers(search):
    metrics = search.get("/metrics")
    assert 'sidereal_packets_total{stream="' in metrics and "sidereal_stage_seconds_total" in metrics
    assert promtool("check", "metrics", input=metrics).strip() == ""


def test_promtool_finds_no_fault_in_the_rules(search):
    folder = ROOT / "docs" / "operations"
    assert "rules found" in promtool("check", "config", str(folder / "prometheus.yml"))
    # Each number in a rule is one of the page.
    known = {line.split()[2] for line in search.get("/metrics").splitlines() if line.startswith("# TYPE")}
    known |= {"sidereal_packet_age_seconds", "sidereal_candidate_latency_seconds"}
    text = (folder / "alerts.yml").read_text()
    used = {word for word in re.split(r"[\s(){}\[\]]", text) if word.startswith("sidereal_")}
    assert used and used <= known, used - known


@pytest.mark.parametrize("dark,mobile", [(False, False), (True, True)])
def test_the_page_is_readable(browsers, search, dark, mobile):
    browser = Browser(390 if mobile else 1280, 844, dark=dark, mobile=mobile)
    try:
        browser.open(search.page)
        browser.wait("document.querySelectorAll('#candidates img').length >= 2")
        text = browser.evaluate("document.body.innerText")
        for words in ("sidereal live search", "Waiting for an observation", "1 observation ended", search.stream, "dedisperse", "final"):
            assert words in text, text
        # Nothing is wider than the screen.
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        blank = "const blank = document.createElement('canvas'); blank.width = one.width; blank.height = one.height;"
        is_drawn = f"(one) => {{ {blank} return one.clientWidth > 0 && one.toDataURL() !== blank.toDataURL(); }}"
        browser.wait(f"[...document.querySelectorAll('canvas')].filter({is_drawn}).length >= 4")
        for name in ("label-dialog", "token-dialog", None):
            if name:
                browser.evaluate(f"document.getElementById('{name}').showModal()")
            contrast = browser.evaluate(FAINT)
            assert contrast["seen"] > 30 and not contrast["faint"], contrast
            if name:
                browser.evaluate(f"document.getElementById('{name}').close()")
        assert not browser.faults, browser.faults
    finally:
        browser.close()


def test_markup_of_headers_is_text_and_the_page_comes_back_after_a_restart(browsers, search):
    browser = Browser()
    try:
        browser.open(search.page)
        browser.wait("document.getElementById('state').textContent === 'Waiting for an observation'")
        sender = search.send(search.path)
        browser.wait(f"document.getElementById('about').textContent.includes({TITLE!r})")
        assert browser.evaluate("document.querySelectorAll('#about *').length") == 0
        assert browser.evaluate("document.getElementById('state').textContent") == "Receiving"
        sender.kill()
        sender.wait()
        assert not browser.faults, browser.faults
        search.stop()
        browser.wait("document.getElementById('state').textContent.startsWith('No connection')")
        search.start()
        browser.wait("document.getElementById('state').textContent === 'Waiting for an observation'")
        # Candidates of the earlier run are there.
        browser.wait("document.querySelectorAll('#candidates tbody tr').length >= 2")
        assert all("alert" not in fault for fault in browser.faults), browser.faults
    finally:
        browser.close()


def test_a_candidate_is_labelled(browsers, search):
    browser = Browser()
    try:
        browser.open(search.page)
        browser.wait("document.querySelectorAll('#candidates button.label').length >= 2")
        browser.evaluate("document.querySelector('#candidates button.label').click()")
        browser.evaluate("document.querySelector('[data-label=astrophysical]').click()")
        browser.evaluate("document.getElementById('label-name').value = 'A. Person'")
        browser.evaluate("document.querySelector('#label-form .primary').click()")
        browser.wait("document.getElementById('token-dialog').open")
        browser.evaluate(f"document.getElementById('token').value = '{search.token}'")
        browser.evaluate("document.querySelector('#token-form .primary').click()")
        browser.wait("document.querySelector('#candidates button.label').textContent === 'astrophysical'")
        assert "A. Person" in (search.folder / "found" / "labels.ndjson").read_text()
        assert browser.evaluate("document.cookie") == ""
        assert not browser.faults, browser.faults
    finally:
        browser.close()


def test_a_report_is_readable(browsers, search):
    sidereal("report", search.folder / "found", "--overwrite")
    browser = Browser()
    try:
        browser.open(f"file://{search.folder}/found/report.html")
        browser.wait("document.querySelectorAll('table.sorted tbody tr').length >= 2")
        browser.wait("[...document.images].every((one) => one.complete && one.naturalWidth > 0)")
        assert browser.evaluate("document.images.length") >= 2
        first = "Number(document.querySelector('table.sorted tbody tr').cells[snr].dataset.value)"
        column = "const snr = [...document.querySelector('table.sorted thead tr').cells].findIndex((one) => one.textContent === 'snr');"
        click = "document.querySelector('table.sorted thead tr').cells[snr].querySelector('button').click();"
        most, least = (browser.evaluate(f"(() => {{ {column} {click} return {first}; }})()") for _ in range(2))
        assert most > least > 0
        contrast = browser.evaluate(FAINT)
        assert contrast["seen"] > 30 and not contrast["faint"], contrast
        assert not browser.faults, browser.faults
    finally:
        browser.close()
