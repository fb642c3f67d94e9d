"""The page of the demo in Chromium, on a desk and on a telephone."""

import chromium
import pytest
from chromium import Browser
from conftest import sidereal
from live_page import FAINT

# Part of its width to which a picture may be shrunk: its labels are 22 to 26 dots high.
READABLE = 0.45


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a demo."""
    if chromium.program() is None:
        pytest.skip("Chromium is not installed")
    folder = tmp_path_factory.mktemp("demo") / "out"
    sidereal("demo", "-o", folder, "-q")
    return folder / "index.html"


@pytest.mark.parametrize("width,mobile", [(1280, False), (360, True)])
def test_pictures_are_readable_and_the_page_is_not_wider_than_the_screen(page, width, mobile):
    browser = Browser(width, 740, mobile=mobile)
    try:
        browser.open(f"file://{page}")
        browser.wait("document.readyState === 'complete' && document.images.length > 10")
        browser.evaluate("[...document.images].forEach((one) => { one.loading = 'eager'; })")
        browser.wait("[...document.images].every((one) => one.complete && one.naturalWidth > 0)")
        sizes = browser.evaluate("[...document.images].map((one) => one.clientWidth / one.naturalWidth)")
        assert min(sizes) > READABLE, sizes
        assert browser.evaluate("innerWidth") == width
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        # A picture that is wider than the screen moves by itself.
        moved = browser.evaluate(
            "[...document.querySelectorAll('figure a')].map((one) => { one.scrollLeft = 1e4; return [one.scrollLeft, one.scrollWidth - one.clientWidth]; })"
        )
        assert all(abs(left - most) <= 1 for left, most in moved), moved
        assert all((most > 0) == mobile for _, most in moved), moved
        alts = browser.evaluate("[...document.images].map((one) => [one.alt, one.closest('figure').querySelector('figcaption').textContent])")
        assert all(len(alt) > 40 and alt != caption for alt, caption in alts), alts
        contrast = browser.evaluate(FAINT)
        assert contrast["seen"] > 30 and not contrast["faint"], contrast
        assert not browser.faults, browser.faults
    finally:
        browser.close()
