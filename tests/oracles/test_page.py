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
        # The plane has the cell of each burst: 64 rows up to DM 600.
        rows = browser.evaluate("[...run.plane.cells.keys()].map((place) => place % run.plane.rows)")
        assert {int(dm / 600 * 64) for dm in (60, 350)} <= set(rows), rows
        assert browser.evaluate(f"({is_drawn})(document.getElementById('plane'))")
        best = browser.evaluate("Math.max(...run.plane.cells.values())")
        assert best > 15, best
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


def test_candidates_are_bounded_as_in_the_server(browsers, search):
    browser = Browser()
    try:
        browser.open(search.page)
        browser.wait("document.querySelectorAll('#candidates tbody tr').length >= 2")
        line = "{ ...[...run.candidates.values()][0], observation: 'many', number: k }"
        browser.evaluate(f"for (let k = 0; k < 1500; k++) {{ putCandidate({line}); }}")
        assert browser.evaluate("run.candidates.size") == 1000
        assert browser.evaluate("[...run.candidates.values()].every((one) => one.number >= 500)")
    finally:
        browser.close()


@pytest.fixture(scope="module")
def products(tmp_path_factory):
    """A folder with a search, a correlation, and a search of strain, all without pictures."""
    folder = tmp_path_factory.mktemp("products")
    recording(folder, 12, *BURST)
    sidereal("search", folder / "sky.fil", "-o", folder / "found", "--dm-max", 600, "--no-plots", "-q")
    band = ("--freq", 150, "--bandwidth", 1, "--seconds", 0.25, "--start", "2025-01-01T00:00:00", "--seed", 5)
    sky = ("--layout", "4,300", "--source", "140,-20,200,Spot", "--sefd", 100)
    sidereal("simulate", "array", "-o", folder / "array", "-q", *sky, *band)
    files = sorted((folder / "array").glob("*.dada"))
    csv = folder / "array" / "antennas.csv"
    options = ("--channels", 64, "--integration", 0.05, "--no-plots", "-q")
    sidereal("correlate", *files, "-o", folder / "sky.uvh5", "--antennas", csv, *options)
    binary = "m1=30,m2=30,distance=600,ra=1.2,dec=-0.4,inclination=0.3,time=1000000020"
    span = ("--start", 1000000000, "--length", 40)
    sidereal("simulate", "strain", folder / "bbh.hdf5", *span, "--inject", binary, "-q")
    strain = [folder / f"bbh_{name}.hdf5" for name in ("H1", "L1")]
    search = ("--masses", "29:31", "--f-low", 25, "-o", folder / "events", "--no-plots", "-q")
    sidereal("spiir", "search", *strain, *search)
    sidereal("report", folder, "-q", "--baselines", "ant00-ant02,ant01-ant03")
    return folder / "report.html"


@pytest.mark.parametrize("dark,mobile", [(False, False), (True, True)])
def test_a_report_draws_all_products_without_pictures(browsers, products, dark, mobile):
    browser = Browser(390 if mobile else 1280, 844, dark=dark, mobile=mobile)
    try:
        browser.open(f"file://{products}")
        browser.wait("document.querySelectorAll('figure.drawn canvas').length > 20")
        captions = browser.evaluate("[...document.querySelectorAll('figure.drawn figcaption')].map((one) => one.textContent)")
        for words in (
            "Candidates by time and DM", "Candidates by S/N", "Candidates by DM", "Autocorrelations, XX", "Antennas",
            "ant00 – ant02", "ant01 – ant03", ": amplitude", ": phase", ": fringe", "phase of XX by time",
            "Event 1, H1: S/N", "Event 1, L1: whitened strain", "Event 1, L1: energy", "time slides by ranking",
        ):  # fmt: skip
            assert any(words in caption for caption in captions), (words, captions)
        # Each canvas has colours of data beside those of its axes.
        colours = (
            "(one) => { const { data } = one.getContext('2d').getImageData(0, 0, one.width, one.height), seen = new Set();"
            "for (let k = 0; k < data.length; k += 4) { if (data[k + 3] === 255) { seen.add(data[k] << 16 | data[k + 1] << 8 | data[k + 2]); } }"
            "return seen.size; }"
        )
        counts = browser.evaluate(f"[...document.querySelectorAll('figure.drawn canvas')].map({colours})")
        assert min(counts) > 2, list(zip(captions, counts))
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        contrast = browser.evaluate(FAINT)
        assert contrast["seen"] > 30 and not contrast["faint"], contrast
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
        assert browser.evaluate("document.images.length") >= 1
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
