"""Our visibilities against NumPy's 64-bit sums: equal where spectra are integers.

Bound for floats: 514.5 * 2^-24 of the sum of the products' magnitudes (runs of at most 256 products in
single precision, each of two terms).
"""

import functools

import numpy
import pytest
from conftest import BUILT, call

PROGRAM = BUILT / "examples" / "correlate"
ENCODINGS = ["complex4", "complex8", "complexf32"]
# Antennas, polarizations, channels, times.
SHAPES = [(1, 1, 1, 1), (5, 2, 3, 700), (17, 1, 4, 333), (33, 2, 2, 129), (70, 2, 1, 1030)]


@functools.cache
def levels():
    """The vector levels of this machine, and the reference."""
    return call(PROGRAM, "levels").split()


def draw(encoding, shape, seed):
    """Samples (antenna, polarization, time, channel) as (real, imaginary), the lowest value often."""
    antennas, polarizations, channels, times = shape
    random = numpy.random.default_rng(seed)
    size = (antennas, polarizations, times, channels, 2)
    if encoding == "complexf32":
        return random.normal(size=size).astype("<f4")
    most = 8 if encoding == "complex4" else 128
    x = random.integers(-most, most, size, "i1")
    x[random.random(size) < 0.2] = -most
    return x


def encode(x, encoding):
    if encoding != "complex4":
        return x
    return ((x[..., 0].astype("u1") << 4) | (x[..., 1].astype("u1") & 15))[..., None]


def packed(x, encoding, block):
    """Blocks: channel, panel of 16 inputs, pair of times, input, time of the pair, (re, im)."""
    antennas, polarizations, times, channels, _ = x.shape
    inputs = antennas * polarizations
    rows = encode(x, encoding).reshape(inputs, times, channels, -1)
    parts = []
    for first in range(0, times, block):
        own = rows[:, first : first + block]
        group = 1 if encoding == "complexf32" else 2
        fill = [(0, -inputs % 16), (0, -own.shape[1] % group), (0, 0), (0, 0)]
        own = numpy.pad(own, fill, constant_values=77).transpose(2, 0, 1, 3)
        own = own.reshape(channels, own.shape[1] // 16, 16, -1, group, own.shape[3])
        axes = (0, 1, 3, 4, 5, 2) if encoding == "complexf32" else (0, 1, 3, 2, 4, 5)
        parts.append(numpy.ascontiguousarray(own.transpose(axes)).tobytes())
    return b"".join(parts)


def missing(kind, shape, seed):
    """Valid samples (channel, antenna, time)."""
    antennas, _, channels, times = shape
    random = numpy.random.default_rng(seed)
    valid = numpy.ones((channels, antennas, times), bool)
    if kind == "sparse":
        valid = random.random(valid.shape) > 0.07
    elif kind == "antennas":
        valid[:, random.random(antennas) < 0.4] = False
    elif kind == "tails":
        valid[..., times // 3 :] = random.random((channels, antennas, 1)) < 0.5
    elif kind == "all":
        valid[:] = False
    return valid


def expected(x, valid):
    """Sums and counts in 64-bit integers (or double precision); channel, baseline, pair."""
    kind = numpy.float64 if x.dtype.kind == "f" else numpy.int64
    x = x.astype(kind) * valid.transpose(1, 2, 0)[:, None, :, :, None]
    re, im = x[..., 0], x[..., 1]

    def products(a, b):
        return numpy.einsum("iptc,jqtc->cijpq", a, b, optimize=kind is numpy.float64)

    real = products(re, re) + products(im, im)
    imaginary = products(im, re) - products(re, im)
    magnitudes = [products(abs(a), abs(b)) + products(abs(c), abs(d)) for a, b, c, d in
                  ([re, re, im, im], [im, re, re, im])] if kind is numpy.float64 else [real, real]
    counts = numpy.einsum("cit,cjt->cij", valid.astype("i8"), valid.astype("i8"))
    i, j = numpy.tril_indices(len(x))

    def triangle(sums):
        return sums[:, i, j].reshape(sums.shape[0], len(i), -1)

    return triangle(real), triangle(imaginary), counts[:, i, j], [triangle(m) for m in magnitudes]


def ours(folder, spectra, shape, encoding, valid, *words):
    antennas, polarizations, channels, times = shape
    (folder / "spectra").write_bytes(spectra)
    words = [f"antennas={antennas}", f"polarizations={polarizations}", f"channels={channels}",
             f"encoding={encoding}", *words]
    if not valid.all():
        (folder / "mask").write_bytes(valid.astype("u1").tobytes())
        words.append(f"mask={folder / 'mask'}")
    call(PROGRAM, folder / "spectra", folder / "out", *words)
    raw = (folder / "out").read_bytes()
    baselines = antennas * (antennas + 1) // 2
    cells = channels * baselines
    kind = "<f8" if encoding == "complexf32" else "<i8"
    sums = numpy.frombuffer(raw[: -cells * 8], kind)
    sums = sums.reshape(channels, baselines, polarizations**2, 2)
    counts = numpy.frombuffer(raw[-cells * 8 :], "<u8").reshape(channels, baselines)
    return sums[..., 0], sums[..., 1], counts


def same(found, truth, encoding, repeat=1):
    real, imaginary, counts, magnitudes = truth
    numpy.testing.assert_array_equal(found[2], counts * repeat)
    for sums, plain, magnitude in zip(found, (real, imaginary), magnitudes):
        if encoding == "complexf32":
            assert (abs(sums - plain) <= 514.5 * 2.0**-24 * magnitude).all()
        else:
            assert sums.dtype == plain.dtype
            numpy.testing.assert_array_equal(sums, plain * repeat)


def check(folder, encoding, shape, kind, seed, words):
    x, valid = draw(encoding, shape, seed), missing(kind, shape, seed)
    order = next((word[6:] for word in words if word.startswith("order=")), "rows")
    block = next((int(word[6:]) for word in words if word.startswith("block=")), 4096)
    if order == "packed":
        spectra, words = packed(x, encoding, block), [*words, f"times={shape[3]}"]
    elif order == "streams":
        spectra = numpy.ascontiguousarray(encode(x, encoding).transpose(0, 3, 1, 2, 4)).tobytes()
    else:
        spectra = numpy.ascontiguousarray(encode(x, encoding)).tobytes()
    truth = expected(x, valid)
    for level in levels():
        found = ours(folder, spectra, shape, encoding, valid, *words, f"level={level}")
        same(found, truth, encoding)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("order", ["rows", "streams", "packed"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_level_encoding_and_order(tmp_path, encoding, order, shape):
    block = [4096, 100, 33, 7, 64][SHAPES.index(shape)]
    kind = ["none", "sparse", "antennas", "tails", "sparse"][SHAPES.index(shape)]
    check(tmp_path, encoding, shape, kind, len(order), [f"order={order}", f"block={block}"])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kind", ["none", "sparse", "antennas", "tails", "all"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_mask_and_number_of_threads(tmp_path, encoding, kind, threads):
    shape = (11, 2, 3, 317)
    check(tmp_path, encoding, shape, kind, threads, [f"threads={threads}", "block=130"])


@pytest.mark.parametrize("encoding, repeat", [("complex8", 3), ("complex4", 480)])
@pytest.mark.parametrize("kind", ["none", "sparse"])
def test_more_samples_than_32_bits_hold(tmp_path, encoding, repeat, kind):
    shape = (3, 1, 1, 40_001)
    x, valid = draw(encoding, shape, 1), missing(kind, shape, 2)
    # The lowest values throughout: autocorrelations pass 2^31.
    x[:2] = -8 if encoding == "complex4" else -128
    spectra = numpy.ascontiguousarray(encode(x, encoding)).tobytes()
    truth = expected(x, valid)
    assert (truth[0] * repeat).max() > 2**31
    # So many samples of 4 bits take the plainest level a while.
    for level in levels()[1:] if encoding == "complex8" else levels()[-1:]:
        words = [f"repeat={repeat}", "block=9999", "threads=1", f"level={level}"]
        same(ours(tmp_path, spectra, shape, encoding, valid, *words), truth, encoding, repeat)


def tbx(path):
    """Real voltages of 64 stands: samples (antenna, polarization, time, channel, 2), channels' numbers."""
    raw, at, frames, numbers = numpy.fromfile(path, "u1"), 0, [], []
    while at + 28 <= len(raw):
        assert raw[at : at + 5].tobytes().hex() == "dec0de5c08"
        first, stands, channels = (int.from_bytes(raw[at + a : at + b].tobytes(), "big")
                                   for a, b in [(12, 16), (16, 18), (18, 20)])
        size = 28 + stands * channels * 2
        if at + size > len(raw):
            break
        frames.append(raw[at + 28 : at + size].reshape(channels, stands, 2))
        numbers += range(first, first + channels)
        at += size
    codes = numpy.stack(frames).astype("i1")
    # Real part in the high nibble; frame, channel, stand, polarization.
    return numpy.stack([codes >> 4, (codes << 4) >> 4], -1), numbers


def test_real_voltages_of_64_stands(tmp_path, recording):
    x, numbers = tbx(recording("baseband/lsl_tbx-test.dat"))
    assert numbers == list(range(2176, 2176 + 26 * 12)) and x.shape == (26, 12, 64, 2, 2)
    # One spectrum of 312 channels, as recorded; and the frames as if they were 26 spectra.
    whole = x.reshape(1, 312, 64, 2, 2).transpose(2, 3, 0, 1, 4)
    frames = x.transpose(2, 3, 0, 1, 4)
    for x, kind in [(whole, "none"), (frames, "none"), (frames, "sparse")]:
        shape = (64, 2, x.shape[3], x.shape[2])
        valid = missing(kind, shape, 1)
        truth = expected(x, valid)
        for encoding in ["complex4", "complex8"]:
            spectra = numpy.ascontiguousarray(encode(x, encoding)).tobytes()
            for level in levels() if encoding == "complex4" else levels()[-1:]:
                found = ours(tmp_path, spectra, shape, encoding, valid, "block=10", f"level={level}")
                same(found, truth, encoding)
