"""Our antenna patterns and delays against PyCBC's Detector (which has LAL's tables of detectors).

PyCBC's default extrapolates the sidereal time from one moment in 2015; with `reference_time=None` it takes
astropy's at each moment. The bounds are 1e-3 and 10 us against the first, 2e-6 and 0.1 us against the second.
"""

import numpy
import pytest
from conftest import BUILT, call, client

client("pycbc")

from pycbc.detector import Detector  # noqa: E402

CASES = 300
# GPS seconds of 2010 January 1 and 2025 January 1.
YEARS = (946339215, 1419724818)
NAMES = ["H1", "L1", "V1", "K1", "G1"]


def draw():
    random = numpy.random.default_rng(20261121)
    ra = random.uniform(0, 2 * numpy.pi, CASES)
    dec = numpy.arcsin(random.uniform(-1, 1, CASES))
    psi = random.uniform(0, numpy.pi, CASES)
    gps = random.uniform(*YEARS, CASES)
    return ra, dec, psi, gps


def ours(name, folder):
    path = folder / f"{name}.txt"
    path.write_text("".join(f"{name} {a!r} {d!r} {p!r} {t!r}\n" for a, d, p, t in zip(*(numbers.tolist() for numbers in draw()))))
    lines = call(BUILT / "examples" / "interferometers", path).splitlines()
    return numpy.array([[float(word) for word in line.split()] for line in lines]).T


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reference", ["default", None])
def test_patterns_and_delays(name, reference, tmp_path):
    detector = Detector(name) if reference else Detector(name, reference_time=None)
    found = ours(name, tmp_path)
    expected = []
    for ra, dec, psi, gps in zip(*draw()):
        plus, cross = detector.antenna_pattern(ra, dec, psi, gps)
        expected.append([plus, cross, detector.time_delay_from_earth_center(ra, dec, gps)])
    off = abs(found - numpy.array(expected).T).max(axis=1)
    pattern, delay = (1e-3, 10e-6) if reference else (2e-6, 1e-7)
    assert off[0] < pattern and off[1] < pattern, off
    assert off[2] < delay, off


def test_light_travels_as_between_pycbcs(tmp_path):
    for first in NAMES:
        for second in NAMES:
            apart = Detector(first).light_travel_time_to_detector(Detector(second))
            positions = [Detector(name).location for name in (first, second)]
            assert abs(apart - numpy.linalg.norm(positions[0] - positions[1]) / 299792458.0) < 1e-9
