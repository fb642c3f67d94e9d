"""Our spectra against SciPy's windows and NumPy's Fourier transforms in double precision.

Bound: 2^-24 (taps + 8 log2 2N) times the largest sample times the sum of the coefficients' magnitudes,
N the points of the transform.
"""

import numpy
import pytest
import scipy.signal
from conftest import BUILT, call

COMPLEX = ["complex4", "complex8", "complexoffset8", "complex16", "complexf32"]
REAL = ["real2", "real4", "real8", "realoffset8", "real16", "realf32"]
WINDOWS = ["hann", "hamming", "blackman", "kaiser:55", "kaiser:90", "rectangular", "text", "npy"]
# Channels, taps, oversampling.
BANKS = [
    (64, 8, (1, 1)),
    (64, 4, (4, 3)),
    (256, 8, (32, 27)),
    (1024, 4, (1, 1)),
    (48, 16, (2, 1)),
    (27, 3, (9, 8)),
    (127, 5, (1, 1)),
    (2, 4, (1, 1)),
    (4096, 2, (1, 1)),
]


def points_of(encoding, channels):
    return channels if encoding in COMPLEX else 2 * channels


def decode(encoding, raw):
    """Samples of a stream's bytes, without any code of ours."""
    if encoding == "real2":
        levels = numpy.array([-3.316505, -1, 1, 3.316505], "f4").astype(float)
        return levels[(raw[:, None] >> numpy.array([0, 2, 4, 6])) & 3].ravel()
    if encoding in ("real4", "complex4"):
        low, high = (((raw.astype(int) >> shift & 15) ^ 8) - 8 for shift in (0, 4))
        return high + 1j * low if encoding == "complex4" else numpy.stack([low, high], 1).ravel()
    kind = encoding.removeprefix("complex").removeprefix("real")
    types = {"8": "i1", "offset8": "u1", "16": "<i2", "f32": "<f4"}
    x = raw.view(types[kind]).astype(float) - (128 if kind == "offset8" else 0)
    return x[0::2] + 1j * x[1::2] if encoding in COMPLEX else x


def draw(encoding, samples, seed):
    """Random bytes: every code, -128 and -8 among them."""
    random = numpy.random.default_rng(seed)
    if encoding.endswith("f32"):
        count = samples * (2 if encoding in COMPLEX else 1)
        return random.normal(size=count).astype("<f4").view("u1")
    bits = {"complex4": 8, "real2": 2, "real4": 4, "real8": 8, "realoffset8": 8, "real16": 16}
    raw = random.integers(0, 256, samples * bits.get(encoding, 0) // 8, "u1")
    if encoding in ("complex8", "complexoffset8"):
        raw = random.integers(0, 256, samples * 2, "u1")
    elif encoding == "complex16":
        raw = random.integers(0, 256, samples * 4, "u1")
    return raw


def window(name, taps, points, folder):
    """The word for our program, and SciPy's coefficients."""
    length = taps * points
    if name == "rectangular":
        return name, scipy.signal.get_window("boxcar", length) / length
    if name in ("text", "npy"):
        own = numpy.random.default_rng(length).normal(size=length) / length
        path = folder / f"window.{name}"
        if name == "npy":
            numpy.save(path, own)
        else:
            numpy.savetxt(path, own, header="of our own")
        return path, own
    if name.startswith("kaiser"):
        shape = ("kaiser", scipy.signal.kaiser_beta(float(name.split(":")[1])))
    else:
        shape = name
    return name, scipy.signal.firwin(length, 1 / points, window=shape, scale=True)


def filter_bank(x, coefficients, points, oversampling):
    """The equation by NumPy; bins in natural order, phases from the first sample on."""
    p, q = oversampling
    hop = points * q // p
    frames = numpy.lib.stride_tricks.sliding_window_view(x, len(coefficients))[::hop]
    rows = (frames * coefficients).reshape(len(frames), -1, points)
    sums = numpy.einsum("stc->sc", rows)
    turned = numpy.stack([numpy.roll(y, s * hop % points) for s, y in enumerate(sums)])
    return numpy.fft.fft(turned, axis=1)


def ordered(bins, encoding, channels, order):
    if encoding in REAL:
        bins = bins[:, :channels]
    elif order != "natural":
        bins = numpy.fft.fftshift(bins, axes=1)
    return bins[:, ::-1] if order == "descending" else bins


def bound(x, coefficients, taps, points):
    steps = taps + 8 * numpy.log2(2 * points)
    return 2.0**-24 * steps * numpy.abs(x).max() * numpy.abs(coefficients).sum()


def ours(folder, raw, *words):
    (folder / "voltages").write_bytes(raw.tobytes())
    program = BUILT / "examples" / "channelize"
    call(program, folder / "voltages", folder / "out", *words)
    return numpy.fromfile(folder / "out", "<f4")


def check_spectra(folder, encoding, bank, name, order):
    channels, taps, oversampling = bank
    taps = 1 if name == "rectangular" else taps
    points = points_of(encoding, channels)
    if channels == 2 and oversampling != (1, 1):
        oversampling = (1, 1)
    word, coefficients = window(name, taps, points, folder)
    samples = (len(coefficients) + 37 * points + 5) // 4 * 4
    raw = draw(encoding, samples, seed=len(coefficients))
    x = decode(encoding, raw)
    assert len(x) == samples
    expected = filter_bank(x, coefficients, points, oversampling)
    expected = ordered(expected, encoding, channels, order)
    found = ours(
        folder,
        raw,
        f"encoding={encoding}",
        f"channels={channels}",
        f"taps={taps}",
        f"window={word}",
        f"oversample={oversampling[0]}/{oversampling[1]}",
        f"order={order}",
    )
    found = found.view("<c8").reshape(-1, channels)
    assert found.shape == expected.shape
    error = numpy.abs(found - expected).max()
    assert error <= bound(x, coefficients, taps, points)


@pytest.mark.parametrize("bank", BANKS, ids=lambda bank: "x".join(map(str, bank[:2])))
@pytest.mark.parametrize("encoding", COMPLEX + REAL)
def test_every_encoding_and_bank(tmp_path, encoding, bank):
    order = ["ascending", "natural", "descending"][BANKS.index(bank) % 3]
    check_spectra(tmp_path, encoding, bank, "hann", order)


@pytest.mark.parametrize("order", ["natural", "ascending", "descending"])
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("encoding", ["complex8", "complexf32", "real4", "realf32"])
def test_every_window_and_order(tmp_path, encoding, name, order):
    for bank in [(32, 6, (1, 1)), (60, 4, (4, 3))]:
        check_spectra(tmp_path, encoding, bank, name, order)


def detect(x, y, products, feed):
    xx, yy, xy = abs(x) ** 2, abs(y) ** 2, x * y.conj()
    if products == "power":
        return [xx, yy]
    if products == "I":
        return [xx + yy]
    if products == "AABBCRCI":
        return [xx, yy, xy.real, xy.imag]
    linear = [xx + yy, xx - yy, 2 * xy.real, 2 * xy.imag]
    return linear if feed == "linear" else [linear[0], linear[2], linear[3], linear[1]]


@pytest.mark.parametrize("feed", ["linear", "circular"])
@pytest.mark.parametrize("products", ["power", "I", "IQUV", "AABBCRCI"])
@pytest.mark.parametrize("encoding", ["complex4", "complex16", "real8"])
def test_detection_and_integration(tmp_path, encoding, products, feed):
    channels, taps, integrate = 40, 4, 7
    points = points_of(encoding, channels)
    _, coefficients = window("hamming", taps, points, tmp_path)
    samples = len(coefficients) + 50 * points
    streams = [draw(encoding, samples, seed) for seed in (1, 2)]
    volts = [decode(encoding, raw) for raw in streams]
    spectra = [filter_bank(x, coefficients, points, (1, 1)) for x in volts]
    x, y = (ordered(bins, encoding, channels, "ascending") for bins in spectra)
    rows = len(x) // integrate

    def integrated(values):
        return values[: rows * integrate].reshape(rows, integrate, channels).sum(axis=1)

    expected = numpy.stack([integrated(p) for p in detect(x, y, products, feed)], axis=1)
    found = ours(
        tmp_path,
        numpy.concatenate(streams),
        *(f"encoding={encoding}", f"channels={channels}", f"taps={taps}", "window=hamming"),
        *("polarizations=2", f"products={products}", f"feed={feed}", f"integrate={integrate}"),
    )
    found = found.reshape(expected.shape)
    off = sum(bound(x, coefficients, taps, points) for x in volts)
    power = integrated(abs(x) ** 2 + abs(y) ** 2)
    amplitude = integrated(abs(x) + abs(y))
    limit = 2 * amplitude * off + 2 * integrate * off**2 + (8 + integrate) * 2.0**-24 * power
    assert (numpy.abs(found - expected) <= limit[:, None, :]).all()
