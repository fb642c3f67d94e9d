"""PRESTO: its Python's headers are read, and the series that we write keep the rules of its programs.

PRESTO's programs in C are not to be had as a package, so its rules stand here: the labels and the format of
`infodata.py`, what `readinf` asks of the pairs of bins, and the lengths that `prepsubband` chooses and `realfft` and
`accelsearch` take.
"""

import json

import numpy
import pytest
from conftest import client, sidereal

# Beginnings of the lines that infodata.py knows, with the type of each value.
LABELS = {
    " Data file name": str,
    " Telescope": str,
    " Instrument": str,
    " Object being observed": str,
    " J2000 Right Ascension": str,
    " J2000 Declination": str,
    " Data observed by": str,
    " Epoch": float,
    " Barycentered?": int,
    " Number of bins": int,
    " Width of each time series bin": float,
    " Any breaks in the data?": int,
    " On/Off bin pair": str,
    " Type of observation": str,
    " Beam diameter": float,
    " Dispersion measure": float,
    " Central freq of low channel": float,
    " Total bandwidth": float,
    " Number of channels": int,
    " Channel bandwidth": float,
    " Data analyzed by": str,
}

# A line as infodata.to_file writes each: the text before =, which is in column 41, and the value.
FROM_PYTHON = [
    ("Data file name without suffix", "x_DM62.00"),
    ("Telescope used", "GBT"),
    ("Instrument used", "BCPM1"),
    ("Object being observed", "Mystery_PSR"),
    ("J2000 Right Ascension (hh:mm:ss.ssss)", "16:43:38.1000"),
    ("J2000 Declination     (dd:mm:ss.ssss)", "-12:24:58.7000"),
    ("Data observed by", "Unknown"),
    ("Epoch of observation (MJD)", "53010.484826388892543"),
    ("Barycentered?           (1=yes, 0=no)", "1"),
    ("Number of bins in the time series", "%-11.0f" % 1000),
    ("Width of each time series bin (sec)", "7.2e-05"),
    ("Any breaks in the data? (1 yes, 0 no)", "1"),
    ("On/Off bin pair #  1", "%-11.0f, %-11.0f" % (0, 899)),
    ("On/Off bin pair #  2", "%-11.0f, %-11.0f" % (999, 999)),
    ("Dispersion measure (cm-3 pc)", "62"),
    ("Central freq of low channel (Mhz)", "1352.5"),
    ("Total bandwidth (Mhz)", "96"),
    ("Number of channels", "96"),
    ("Channel bandwidth (Mhz)", "1"),
    ("Data analyzed by", "ransom"),
    ("Orbit removed?          (1=yes, 0=no)", "1"),
]


def labelled(path):
    """The values of a header's lines, as infodata.py finds them: behind the last =, by the line's beginning."""
    found = {}
    for line in path.read_text(encoding="latin-1").split(" Any additional notes")[0].splitlines():
        label = next(label for label in LABELS if line.startswith(label))
        value = LABELS[label](line.split("=")[-1].strip())
        found.setdefault(label, []).append(value)
    return found


def test_a_header_of_prestos_python_is_read(tmp_path):
    lines = [f" {label:<39}=  {value}\n" for label, value in FROM_PYTHON]
    assert all(line[40] == "=" for line in lines)
    notes = " Any additional notes:\n    Made by hand.\n"
    (tmp_path / "x_DM62.00.inf").write_text("".join(lines) + notes)
    numpy.arange(1000, dtype="<f4").tofile(tmp_path / "x_DM62.00.dat")
    said = json.loads(sidereal("info", tmp_path / "x_DM62.00.dat", "--json"))
    assert (said["telescope"], said["source"], said["dm"]) == ("GBT", "Mystery_PSR", 62.0)
    assert (said["tsamp_s"], said["times"]) == (7.2e-5, 1000)
    assert said["tstart_mjd"] == pytest.approx(53010.484826388892543, abs=1e-11)


def chosen(samples):
    """The length that prepsubband makes of a number of samples: see `choose_good_N`."""

    def smooth(number):
        for prime in (2, 3, 5, 7, 11):
            while number % prime == 0:
                number //= prime
        return number == 1

    good = [n for n in range(1000, 10001) if smooth(n) and (n % 16 == 0 or n == 1000)]
    assert len(good) == 114
    scaled = min(n * 10**k for n in good for k in range(14) if n * 10**k >= samples)
    return min(scaled, 1 << max(samples - 1, 1).bit_length())


@pytest.mark.parametrize("length", [2.0, 3.137])
def test_series_have_the_length_that_prepsubband_gives_them(simulated, tmp_path, length):
    path = simulated(8, length=length)
    options = ("--dm-min", 0, "--dm-max", 300, "--dm-step", 15, "--format", "dat")
    sidereal("dedisperse", path, "-o", tmp_path / "out", *options)
    about = json.loads((tmp_path / "out" / "dedispersed.json").read_text())
    files = sorted((tmp_path / "out").glob("*.dat"))
    assert len(files) == 21 and about["dms"][-1] == 300.0
    expected = chosen(round(length / 1e-3))
    riptide = client("riptide")
    for file in files:
        samples = numpy.fromfile(file, "<f4")
        # realfft and accelsearch refuse odd lengths.
        assert len(samples) == expected and expected % 2 == 0
        found = labelled(file.with_suffix(".inf"))
        assert found.keys() >= LABELS.keys() - {" On/Off bin pair"}
        assert found[" Number of bins"] == [expected]
        own = about["times"][about["dms"].index(found[" Dispersion measure"][0])]
        pairs = [tuple(map(int, pair.split(","))) for pair in found.get(" On/Off bin pair", [])]
        # readinf takes pairs until one ends with the last bin.
        assert pairs == ([(0, own - 1), (expected - 1, expected - 1)] if own < expected else [])
        assert found[" Any breaks in the data?"] == [int(own < expected)]
        mean = numpy.float32(samples[:own].astype("f8").mean())
        numpy.testing.assert_allclose(samples[own:], mean, rtol=1e-7)
        theirs = riptide.TimeSeries.from_presto_inf(str(file.with_suffix(".inf")))
        numpy.testing.assert_array_equal(theirs.data, samples)


def test_planes_end_in_each_rows_mean(simulated, tmp_path):
    options = ("--dm-min", 0, "--dm-max", 300, "--dm-step", 60)
    sidereal("dedisperse", simulated(8), "-o", tmp_path / "out", *options)
    about = json.loads((tmp_path / "out" / "dedispersed.json").read_text())
    plane = numpy.load(tmp_path / "out" / "dedispersed.npy")
    for row, own in zip(plane, about["times"]):
        numpy.testing.assert_allclose(row[own:], row[:own].astype("f8").mean(), rtol=1e-7)
