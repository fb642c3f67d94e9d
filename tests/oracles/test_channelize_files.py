"""The filterbanks that `channelize` writes open in other programs, with NumPy's values in them."""

import json

import numpy
import pytest
from conftest import client, sidereal

CHANNELS, TAPS, COARSE, INTEGRATE = 16, 8, 4, 2
WIDTH_MHZ = 0.25
CENTRES_MHZ = 150 + WIDTH_MHZ * numpy.array([-1.5, -0.5, 0.5, 1.5])
TSAMP = INTEGRATE * CHANNELS / (WIDTH_MHZ * 1e6)
TSTART = 60000 + (TAPS - 1) * CHANNELS / 2 / (WIDTH_MHZ * 1e6) / 86400


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A recording with a polarized tone in it, and its samples by baseband: time, pol, channel."""
    path = tmp_path_factory.mktemp("voltages") / "v.raw"
    sidereal(
        *("simulate", "voltages", path, "--freq", 150, "--bandwidth", 1, "--coarse-channels", COARSE),
        *("--duration", 0.05, "--seed", 5, "--tone", "freq=150.03,amp=0.5,ratio=0.5,delta=70"),
    )
    with client("baseband.guppi").open(str(path), "rs", squeeze=False) as file:
        return path, file.read().astype(complex)


@pytest.fixture(scope="module")
def expected(recording):
    """I, Q, U, V by NumPy: time, product, channel; the highest frequency first."""
    _, voltages = recording
    n = numpy.arange(TAPS * CHANNELS) - (TAPS * CHANNELS - 1) / 2
    window = numpy.sinc(n / CHANNELS) * numpy.hanning(TAPS * CHANNELS)
    window /= window.sum()
    frames = numpy.lib.stride_tricks.sliding_window_view(voltages, len(window), axis=0)[::CHANNELS]
    folded = (frames * window).reshape(*frames.shape[:-1], TAPS, CHANNELS).sum(axis=-2)
    spectra = numpy.fft.fftshift(numpy.fft.fft(folded, axis=-1), axes=-1)
    x, y = (spectra[:, pol].reshape(len(spectra), -1)[:, ::-1] for pol in (0, 1))
    xx, yy, xy = abs(x) ** 2, abs(y) ** 2, x * y.conj()
    stokes = numpy.stack([xx + yy, xx - yy, 2 * xy.real, 2 * xy.imag], axis=1)
    rows = len(stokes) // INTEGRATE
    return stokes[: rows * INTEGRATE].reshape(rows, INTEGRATE, 4, -1).sum(axis=1)


@pytest.fixture(scope="module")
def written(recording, tmp_path_factory):
    """`written(products, bits)` is the path of a filterbank and its document."""
    folder = tmp_path_factory.mktemp("written")
    made = {}

    def path(products, bits):
        if (products, bits) not in made:
            out = folder / f"{products}{bits}.fil"
            sidereal(
                *("channelize", recording[0], "-o", out, "--channels", CHANNELS),
                *("--integrate", INTEGRATE, "--stokes", products, "--nbits", bits),
            )
            made[products, bits] = out, json.loads(out.with_name(out.name + ".json").read_text())
        return made[products, bits]

    return path


def same_header(fch1, foff, tsamp, tstart):
    step = WIDTH_MHZ / CHANNELS
    assert foff == pytest.approx(-step)
    assert fch1 == pytest.approx(CENTRES_MHZ[-1] + (CHANNELS / 2 - 1) * step)
    assert tsamp == pytest.approx(TSAMP)
    assert tstart == pytest.approx(TSTART, abs=1e-10)


def same_values(found, expected, document):
    """Floats to single precision, counts to the scaling that the document tells."""
    assert found.shape == expected.shape
    scaling = document.get("scaling")
    if scaling is None:
        power = expected[:, :1]
        assert (numpy.abs(found - expected) <= 2e-5 * power.max()).all()
        return
    means, gains = (numpy.reshape(scaling[key], expected.shape[1:]) for key in ("means", "gains"))
    counts = numpy.clip(scaling["mean_count"] + gains * (expected - means), 0, 255)
    assert numpy.abs(found - counts).max() <= 0.51
    assert found[..., :].std() == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize("bits", [8, 32])
def test_sigpyproc_opens_total_intensity(written, expected, bits):
    path, document = written("I", bits)
    theirs = client("sigpyproc.readers").FilReader(str(path))
    header = theirs.header
    same_header(header.fch1, header.foff, header.tsamp, header.tstart)
    block = theirs.read_block(0, header.nsamples).data
    same_values(block.T[:, None, :], expected[:, :1], document)


@pytest.mark.parametrize("bits", [8, 32])
def test_your_opens_total_intensity(written, expected, bits):
    path, document = written("I", bits)
    theirs = client("your").Your(str(path))
    header = theirs.your_header
    same_header(header.fch1, header.foff, header.tsamp, header.tstart)
    samples = theirs.get_data(0, header.nspectra)
    same_values(samples[:, None, :], expected[:, :1], document)


@pytest.mark.parametrize("products", ["I", "IQUV"])
@pytest.mark.parametrize("bits", [8, 32])
def test_blimpy_opens_every_product(written, expected, products, bits):
    path, document = written(products, bits)
    theirs = client("blimpy").Waterfall(str(path))
    header = theirs.header
    same_header(header["fch1"], header["foff"], header["tsamp"], header["tstart"])
    same_values(theirs.data.astype(float), expected[:, : len(products)], document)


@pytest.mark.parametrize("bits", [8, 32])
def test_your_opens_every_product(written, expected, bits):
    path, document = written("IQUV", bits)
    theirs = client("your").Your(str(path))
    assert theirs.your_header.npol == 4
    samples = theirs.get_data(0, theirs.your_header.nspectra, npoln=4)
    same_values(samples.astype(float), expected, document)


@pytest.mark.parametrize("name", ["v.raw", "v.dada"])
def test_baseband_opens_voltages_of_more_channels(recording, expected, tmp_path, name):
    """Each channel has the power that NumPy gives it; baseband knows no 4 bits here."""
    out, gain = tmp_path / name, 4
    sidereal("channelize", recording[0], "-o", out, "--channels", CHANNELS, "--gain", gain)
    document = json.loads(out.with_name(out.name + ".json").read_text())
    reader = client("baseband.dada" if name.endswith("dada") else "baseband.guppi")
    with reader.open(str(out), "rs", squeeze=False) as file:
        assert file.sample_rate.to_value("MHz") == pytest.approx(WIDTH_MHZ / CHANNELS)
        assert file.start_time.mjd == pytest.approx(TSTART, abs=1e-9)
        voltages = file.read()
    assert voltages.shape == (document["times"], 2, COARSE * CHANNELS)
    assert document["foff_mhz"] == pytest.approx(WIDTH_MHZ / CHANNELS)
    powers = (numpy.abs(voltages[: len(expected) * INTEGRATE]) ** 2).mean(axis=0)
    stokes = expected.mean(axis=0)[:, ::-1] * gain**2 / INTEGRATE
    both = 0.5 * (stokes[0] + stokes[1]), 0.5 * (stokes[0] - stokes[1])
    # Rounding adds a twelfth in each part.
    numpy.testing.assert_allclose(powers, numpy.stack(both) + 1 / 6, rtol=5e-3)
