"""Recorded strain, its spectrum and its whitening, against gwpy, SciPy and PyCBC."""

import shutil

import h5py
import numpy
import pytest
from conftest import BUILT, call, client

gwpy = client("gwpy.timeseries")
signal = client("scipy.signal")

RATE = 4096


@pytest.fixture
def strain(tmp_path):
    """`strain(command, path, *more)` is what the example writes, as bytes."""

    def run(command, path, *more):
        out = tmp_path / "out.bin"
        call(BUILT / "examples" / "strain", command, path, out, *more)
        return out.read_bytes()

    return run


@pytest.fixture(params=["H", "L"])
def detection(request, recording):
    site = request.param
    return recording(f"gw/{site}-{site}1_LOSC_4_V2-1126259446-32.hdf5")


def samples_and_flags(content):
    times = len(content) // 9
    samples = numpy.frombuffer(content[: 8 * times], "<f8")
    return samples, numpy.frombuffer(content[8 * times :], "u1").astype(bool)


def test_gwosc_samples_are_those_of_gwpy(detection, strain):
    samples, valid = samples_and_flags(strain("read", detection))
    expected = gwpy.TimeSeries.read(detection, format="hdf5.gwosc")
    assert valid.all()
    assert numpy.array_equal(samples, expected.value)


def test_quality_bits_are_those_of_gwpy(detection, strain, tmp_path):
    path = tmp_path / detection.name
    shutil.copy(detection, path)
    path.chmod(0o644)
    generator = numpy.random.default_rng(1)
    with h5py.File(path, "r+") as file:
        mask = generator.integers(0, 128, 32).astype("u4")
        mask[:4] = [127, 126, 125, 123]
        file["quality/simple/DQmask"][...] = mask
        file["strain/Strain"][3000:9000] = numpy.nan
        names = file["quality/simple/DQShortnames"][()].astype(str).tolist()
    state = gwpy.StateVector.read(path, format="hdf5.gwosc")
    finite = numpy.isfinite(gwpy.TimeSeries.read(path, format="hdf5.gwosc").value)
    for bits in [None, ["DATA"], ["CBC_CAT2", "BURST_CAT1"], names]:
        wanted = bits or ["DATA", "CBC_CAT1"]
        seconds = numpy.ones(32, bool)
        for name in wanted:
            place = names.index(name)
            seconds &= (state.value.astype("u4") >> place & 1).astype(bool)
        _, valid = samples_and_flags(strain("read", path, *([",".join(bits)] if bits else [])))
        assert numpy.array_equal(valid, numpy.repeat(seconds, RATE) & finite), bits


def test_files_of_gwpy_are_read(strain, tmp_path):
    path = tmp_path / "strain.h5"
    values = numpy.random.default_rng(2).normal(size=5000)
    series = gwpy.TimeSeries(values, t0=1187008882.5, sample_rate=512, channel="L1:STRAIN")
    series.write(path, format="hdf5", path="strain")
    samples, valid = samples_and_flags(strain("read", path))
    assert valid.all() and numpy.array_equal(samples, values)


def test_the_spectrum_is_welchs(detection, strain):
    found = numpy.frombuffer(strain("welch", detection), "<f8")
    series = gwpy.TimeSeries.read(detection, format="hdf5.gwosc")
    inside = series.value[2 * RATE : -2 * RATE]
    frequencies, expected = signal.welch(
        *(inside, RATE, "hann", 4 * RATE), detrend=False, average="median"
    )
    assert numpy.abs(found / expected - 1).max() < 1e-9
    band = (frequencies > 20) & (frequencies < 1700)
    theirs = series.crop(1126259448, 1126259476).psd(4, 2, window="hann", method="median").value
    assert numpy.abs(found / theirs - 1)[band].max() < 0.1


def test_the_spectrum_is_that_of_pycbc(detection, strain):
    pycbc_psd = client("pycbc.psd")
    types = client("pycbc.types")
    found = numpy.frombuffer(strain("welch", detection), "<f8")
    series = gwpy.TimeSeries.read(detection, format="hdf5.gwosc").value[2 * RATE : -2 * RATE]
    series = types.TimeSeries(series, delta_t=1 / RATE)
    theirs = pycbc_psd.welch(series, 4 * RATE, 2 * RATE, avg_method="median")
    difference = numpy.abs(found / theirs.numpy() - 1)[20 * 4 : 1700 * 4]
    # Its Hann window is the symmetric one, which shows beside lines.
    assert numpy.median(difference) < 1e-3
    assert difference.max() < 0.05


def test_whitened_strain_is_that_of_gwpy(detection, strain):
    found = numpy.frombuffer(strain("whiten", detection, "overlap"), "<f4")
    series = gwpy.TimeSeries.read(detection, format="hdf5.gwosc")
    asd = series.crop(1126259448, 1126259476).asd(4, 2, window="hann", method="median")
    theirs = series.whiten(4, 2, asd=asd, fduration=4)
    off = slice(4 * RATE, 28 * RATE)
    ours, theirs = (
        signal.sosfiltfilt(signal.butter(8, [30, 1600], "bandpass", fs=RATE, output="sos"), values)[off]
        for values in (found.astype(float), theirs.value)
    )
    correlation = ours @ theirs / numpy.sqrt((ours @ ours) * (theirs @ theirs))
    assert correlation > 0.99
    assert abs(numpy.sqrt((ours @ ours) / (theirs @ theirs)) - 1) < 0.05


@pytest.mark.parametrize("method", ["overlap", "minimum"])
def test_whitened_strain_is_white(detection, strain, method):
    found = numpy.frombuffer(strain("whiten", detection, method), "<f4").astype(float)
    off = numpy.concatenate([found[3 * RATE : 15 * RATE], found[18 * RATE : 29 * RATE]])
    frequencies, density = signal.welch(off, RATE, "hann", RATE, detrend=False)
    band = (frequencies > 20) & (frequencies < 1900)
    level = density * RATE / 2
    assert abs(level[band].mean() - 1) < 0.1
    assert level[band].max() < 3
    assert level[frequencies < 11].max() < 0.05
