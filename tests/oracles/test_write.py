"""What we write opens in other programs, with equal values and headers."""

import json

import numpy
import pytest
from conftest import client, sidereal


def same_header(bits, foff, theirs):
    fch1, step, tsamp, channels = theirs
    assert channels == 64
    assert tsamp == 1e-3
    assert step == foff
    assert fch1 == (1500.0 if foff < 0 else 1437.0)


@pytest.mark.parametrize("foff", [-1.0, 1.0])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16, 32])
def test_sigpyproc_opens_our_filterbanks(simulated, unpack, bits, foff):
    path = simulated(bits, foff)
    theirs = client("sigpyproc.readers").FilReader(str(path))
    header = theirs.header
    same_header(bits, foff, (header.fch1, header.foff, header.tsamp, header.nchans))
    assert header.nbits == bits
    block = theirs.read_block(0, header.nsamples).data
    assert block.shape == (64, 2000)
    numpy.testing.assert_array_equal(unpack(path), block.T)


@pytest.mark.parametrize("foff", [-1.0, 1.0])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_your_opens_our_filterbanks(simulated, unpack, bits, foff):
    """`your` refuses 2 bits, and holds 1 and 4 for 8."""
    path = simulated(bits, foff)
    theirs = client("your").Your(str(path))
    header = theirs.your_header
    same_header(bits, foff, (header.fch1, header.foff, header.tsamp, header.nchans))
    samples = theirs.get_data(0, header.nspectra)
    assert samples.shape == (2000, 64)
    numpy.testing.assert_array_equal(unpack(path), samples)


@pytest.mark.parametrize("foff", [-1.0, 1.0])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_blimpy_opens_our_filterbanks(simulated, unpack, bits, foff):
    """blimpy unpacks 2 bits to levels of its own and knows neither 1 nor 4."""
    path = simulated(bits, foff)
    theirs = client("blimpy").Waterfall(str(path))
    header = theirs.header
    same_header(bits, foff, (header["fch1"], header["foff"], header["tsamp"], header["nchans"]))
    assert theirs.data.shape == (2000, 1, 64)
    numpy.testing.assert_array_equal(unpack(path), theirs.data[:, 0, :])


@pytest.fixture(scope="module")
def series(simulated, tmp_path_factory):
    """Dedispersed series of one file as arrays, with the folders of the .dat and .tim of the same."""
    folder = tmp_path_factory.mktemp("series")
    for form in ("npy", "dat", "tim"):
        options = ("--dm-min", 0, "--dm-max", 60, "--dm-step", 25, "--format", form)
        sidereal("dedisperse", simulated(8), "-o", folder / form, *options)
    plane = numpy.load(folder / "npy" / "dedispersed.npy")
    about = json.loads((folder / "npy" / "dedispersed.json").read_text())
    assert about["dms"] == [0.0, 25.0, 50.0]
    assert about["tsamp_s"] == 1e-3
    return folder, plane, about["dms"]


def rows(series, end):
    """Each trial's file, its DM and the samples that it should hold."""
    folder, plane, dms = series
    for row, dm in zip(plane, dms):
        found = [path for path in (folder / end).iterdir() if path.name.endswith(f"_DM{dm:.2f}.{end}")]
        assert len(found) == 1, f"DM {dm} in {sorted(folder.rglob('*'))}"
        yield found[0], dm, row


def same_series(samples, row):
    """A trial's own length is that of its samples without void ones; the plane's is the longest."""
    assert 0 < len(samples) <= len(row)
    numpy.testing.assert_array_equal(numpy.asarray(samples, "f4"), row[: len(samples)])


def test_riptide_opens_our_presto_series(series):
    riptide = client("riptide")
    for path, dm, row in rows(series, "dat"):
        theirs = riptide.TimeSeries.from_presto_inf(str(path.with_suffix(".inf")))
        assert theirs.metadata["dm"] == pytest.approx(dm)
        assert theirs.tsamp == pytest.approx(1e-3)
        same_series(theirs.data, row)


def test_sigpyproc_opens_our_presto_series(series):
    timeseries = client("sigpyproc.timeseries")
    for path, dm, row in rows(series, "dat"):
        theirs = timeseries.TimeSeries.from_dat(str(path))
        assert theirs.header.dm == pytest.approx(dm)
        assert theirs.header.tsamp == pytest.approx(1e-3)
        same_series(theirs.data, row)


def test_riptide_and_sigpyproc_open_our_sigproc_series(series):
    riptide = client("riptide")
    timeseries = client("sigpyproc.timeseries")
    for path, dm, row in rows(series, "tim"):
        theirs = riptide.TimeSeries.from_sigproc(str(path))
        assert theirs.metadata["dm"] == pytest.approx(dm)
        same_series(theirs.data, row)
        theirs = timeseries.TimeSeries.from_tim(str(path))
        assert theirs.header.dm == pytest.approx(dm)
        same_series(theirs.data, row)
