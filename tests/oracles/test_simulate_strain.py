"""Simulated strain against gwpy and PyCBC: the files open, the noise has its spectrum, injections are projected as
PyCBC's Detector projects them, and its matched filter finds them when and as strong as the truth file says."""

import json

import numpy
import pytest
from conftest import client, sidereal

gwpy_timeseries = client("gwpy.timeseries")
h5py = client("h5py")
client("pycbc")

import pycbc.filter  # noqa: E402
import pycbc.psd  # noqa: E402
import pycbc.types  # noqa: E402
from gwpy.time import from_gps  # noqa: E402
from pycbc.detector import Detector  # noqa: E402

START, LENGTH, RATE = 1400000000, 64, 4096
EVENT = START + 40.25
PLACE = "m1=30,m2=25,distance=600,ra=1.2,dec=-0.4,polarization=0.9"
BINARY = f"{PLACE},inclination=0.6,phase=0.3"
EDGE_ON = f"{PLACE},inclination={numpy.pi / 2}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strain")
    sidereal(
        *("simulate", "strain", folder / "a.hdf5", "--detectors", "H1,L1,V1", "--start", START),
        *("--length", LENGTH, "--rate", RATE, "--seed", 3, "--inject", f"{BINARY},time={EVENT}"),
        *("--f-low", 20, "--bad-seconds", "H1:3:5", "--gap-seconds", "L1:10:12"),
    )
    return folder


def quiet(folder, binary=BINARY):
    """An event without noise."""
    sidereal(
        *("simulate", "strain", folder / "quiet.hdf5", "--detectors", "H1,L1,V1", "--start", START),
        *("--length", LENGTH, "--rate", RATE, "--f-low", 20, "--no-noise"),
        *("--inject", f"{binary},time={EVENT}"),
    )
    return {name: strain(folder, "quiet", name) for name in ["H1", "L1", "V1"]}


def strain(folder, stem, name):
    return gwpy_timeseries.TimeSeries.read(folder / f"{stem}_{name}.hdf5", format="hdf5.gwosc")


def truth(folder, stem="a"):
    return json.loads((folder / f"{stem}.hdf5.truth.json").read_text())


def test_gwpy_reads_samples_times_and_bits(made):
    series = strain(made, "a", "L1")
    with h5py.File(made / "a_L1.hdf5") as file:
        samples = file["strain/Strain"][()]
        assert file["meta/GPSstart"][()] == START and file["meta/Duration"][()] == LENGTH
        assert file["meta/UTCstart"][()].decode() == f"{from_gps(START):%Y-%m-%dT%H:%M:%S}"
    assert len(series) == LENGTH * RATE and series.t0.value == START
    assert series.sample_rate.value == RATE and series.name.startswith("L1:")
    assert numpy.array_equal(series.value, samples, equal_nan=True)
    gap = numpy.isnan(samples)
    assert gap[10 * RATE : 12 * RATE].all() and gap.sum() == 2 * RATE
    bits = gwpy_timeseries.StateVector.read(made / "a_L1.hdf5", format="hdf5.gwosc")
    expected = numpy.full(LENGTH, 127)
    expected[10:12] = 0
    assert numpy.array_equal(bits.value, expected) and bits.t0.value == START
    assert list(bits.bits)[:2] == ["data present", "passes cbc CAT1 test"]
    expected = numpy.full(LENGTH, 127)
    expected[3:5] = 1
    bits = gwpy_timeseries.StateVector.read(made / "a_H1.hdf5", format="hdf5.gwosc")
    assert numpy.array_equal(bits.value, expected)
    injections = gwpy_timeseries.StateVector.read(
        *(made / "a_L1.hdf5", "quality/injections"),
        format="hdf5.gwosc", value_dataset="Injmask", bits_dataset="InjDescriptions",
    )
    expected = numpy.full(LENGTH, 31)
    expected[10:12] = 0
    assert numpy.array_equal(injections.value, expected)


def design(rate, length):
    return pycbc.psd.aLIGOZeroDetHighPower(length * rate // 2 + 1, 1 / length, 10.0)


def test_the_noise_has_advanced_ligos_design(tmp_path):
    out = tmp_path / "noise.hdf5"
    sidereal("simulate", "strain", out, "--detectors", "V1", "--length", 512, "--seed", 9)
    found = strain(tmp_path, "noise", "V1").psd(fftlength=8, overlap=4, method="welch", window="hann")
    expected = numpy.array(design(RATE, 8))
    for low, high in [(11, 20), (20, 40), (40, 100), (100, 300), (300, 900), (900, 1843)]:
        bins = slice(low * 8, high * 8)
        assert abs((found.value[bins] / expected[bins]).mean() - 1) < 0.03, low


def test_injections_are_projected_as_pycbc_does(tmp_path):
    h = quiet(tmp_path)
    event = truth(tmp_path, "quiet")["events"][0]
    ra, dec, inclination, polarization = 1.2, -0.4, 0.6, 0.9
    for name in h:
        detector = Detector(name)
        plus, cross = detector.antenna_pattern(ra, dec, polarization, EVENT)
        delay = detector.time_delay_from_earth_center(ra, dec, EVENT)
        arrival = event["detectors"][name]
        assert abs(arrival["f_plus"] - plus) < 1e-3 and abs(arrival["f_cross"] - cross) < 1e-3
        assert abs(arrival["gps"] - EVENT - delay) < 1e-5
        distance = detector.effective_distance(600, ra, dec, polarization, EVENT, inclination)
        assert abs(arrival["effective_distance_mpc"] / distance - 1) < 2e-3


@pytest.mark.parametrize("binary, bound_s", [(BINARY, 1e-4), (EDGE_ON, 1e-5)])
def test_pycbcs_matched_filter_finds_the_truth(tmp_path, binary, bound_s):
    """With h_plus as its template PyCBC gives time, SNR and phase.

    Seen edge on, a wave is h_plus alone. Otherwise h_cross takes part, which is not quite a quarter of a turn behind
    h_plus where the inspiral ends, and moves the peak by some ten microseconds.
    """
    h = quiet(tmp_path, binary)
    truths = truth(tmp_path, "quiet")["events"][0]["detectors"]
    psd = design(RATE, LENGTH)
    template = plus_of(tmp_path)
    for name, series in h.items():
        data = pycbc.types.TimeSeries(series.value, delta_t=1 / RATE, epoch=0)
        snr = pycbc.filter.matched_filter(template, data, psd=psd, low_frequency_cutoff=10.0)
        values = numpy.array(snr)
        peak = abs(values).argmax()
        near = abs(values[peak - 1 : peak + 2])
        offset = 0.5 * (near[0] - near[2]) / (near[0] - 2 * near[1] + near[2])
        highest = near[1] - 0.25 * (near[0] - near[2]) * offset
        arrival = truths[name]
        assert abs(highest / arrival["snr"] - 1) < 0.005, (name, highest, arrival["snr"])
        gps = START + (peak + offset) / RATE
        assert abs(gps - arrival["gps"]) < bound_s, (name, gps, arrival["gps"])
        step = numpy.angle(values[peak + 1] / values[peak - 1]) / 2
        phase = numpy.angle(values[peak]) + step * offset
        off = numpy.angle(numpy.exp(1j * (phase - arrival["phase"])))
        assert abs(off) < 0.02, (name, phase, arrival["phase"])


def plus_of(folder):
    """h_plus of the binary with its peak at sample 0 (the front wraps to the end), solved from two detectors."""
    # s = F+ (1 + cos^2 i)/2 h+ + Fx cos i hx: face on, two polarization angles give both.
    out = {}
    for angle in (0.0, 0.4):
        name = folder / f"face_{angle}.hdf5"
        sidereal(
            *("simulate", "strain", name, "--detectors", "H1", "--start", START, "--length", LENGTH),
            *("--rate", RATE, "--no-noise", "--f-low", 20),
            *("--inject", f"m1=30,m2=25,distance=1,ra=1.2,dec=-0.4,polarization={angle},time={EVENT}"),
        )
        arrival = truth(folder, f"face_{angle}")["events"][0]["detectors"]["H1"]
        out[angle] = (strain(folder, f"face_{angle}", "H1").value, arrival)
    (first, one), (second, two) = out[0.0], out[0.4]
    determinant = one["f_plus"] * two["f_cross"] - two["f_plus"] * one["f_cross"]
    plus = (two["f_cross"] * first - one["f_cross"] * second) / determinant
    series = pycbc.types.TimeSeries(plus, delta_t=1 / RATE, epoch=0)
    spectrum = series.to_frequencyseries()
    shift = numpy.exp(2j * numpy.pi * numpy.array(spectrum.sample_frequencies) * (one["gps"] - START))
    return pycbc.types.FrequencySeries(numpy.array(spectrum) * shift, delta_f=spectrum.delta_f)
