"""Filter bank: equation, encodings, axes, `out`, and any split of a stream."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidereal_dsp as sd

RANDOM = np.random.default_rng(5)


def noise(*shape):
    return (RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)).astype(np.complex64)


def expected(x, channels, window, taps):
    """Compute the equation of a filter bank with NumPy, in ascending frequency."""
    spectra = len(x) // channels - taps + 1
    rows = [x[s * channels : (s + taps) * channels] * window for s in range(spectra)]
    folded = np.array(rows).reshape(spectra, taps, channels).sum(axis=1)
    return np.fft.fftshift(np.fft.fft(folded, axis=-1), axes=-1)


def test_it_computes_the_equation():
    x, window = noise(64 * 20), RANDOM.normal(size=4 * 64)
    y = sd.channelize(x, 64, taps=4, window=window)
    assert y.dtype == np.complex64
    np.testing.assert_allclose(y, expected(x, 64, window, 4), rtol=1e-4, atol=1e-4)


def test_detected_spectra_are_sums_of_powers():
    x = noise(2, 64 * 40)
    y = sd.channelize(x, 64)
    assert y.shape == (33, 2, 64)
    power = sd.channelize(x, 64, detect="power", integrate=3)
    assert power.shape == (11, 2, 64) and power.dtype == np.float32
    np.testing.assert_allclose(power[0], (np.abs(y[:3]) ** 2).sum(axis=0), rtol=1e-4)
    stokes = sd.channelize(x, 64, detect="IQUV")
    cross = 2 * y[:, 0] * y[:, 1].conj()
    assert stokes.shape == (33, 4, 64)
    np.testing.assert_allclose(stokes[:, 2], cross.real, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(stokes[:, 3], cross.imag, rtol=1e-3, atol=1e-3)


def test_axes_of_antennas_and_recorded_channels_are_kept():
    x = noise(3, 2, 2, 32 * 12)
    y = sd.channelize(x, 32)
    assert y.shape == (5, 3, 2, 64)
    one = sd.channelize(np.ascontiguousarray(x[1, 1, 0]), 32)
    np.testing.assert_array_equal(y[:, 1, 0, 32:], one)


def test_integers_give_what_floats_give():
    parts = RANDOM.integers(-100, 100, size=(64 * 12, 2), dtype=np.int8)
    floats = parts.astype(np.float32).view(np.complex64)[:, 0]
    wanted = sd.channelize(floats, 64)
    pairs = np.dtype([("re", "i1"), ("im", "i1")])
    np.testing.assert_array_equal(sd.channelize(parts.view(pairs)[:, 0], 64), wanted)
    np.testing.assert_array_equal(sd.channelize(parts, 64, encoding="int8_pair"), wanted)
    wide = np.ascontiguousarray(parts.astype(np.int16))
    np.testing.assert_array_equal(sd.channelize(wide, 64, encoding="int16_pair"), wanted)
    nibbles = parts % 8
    packed = ((nibbles[:, 0].astype(np.uint8) << 4) | nibbles[:, 1].astype(np.uint8)).astype(np.uint8)
    floats = nibbles.astype(np.float32).view(np.complex64)[:, 0]
    packed = sd.channelize(packed, 64, encoding="complex4")
    np.testing.assert_array_equal(packed, sd.channelize(floats, 64))


def test_a_tone_lies_at_its_frequency():
    for encoding, tone in [
        ("complex64", np.exp(2j * np.pi * 9 * np.arange(64 * 16) / 64).astype(np.complex64)),
        ("float32", np.cos(2 * np.pi * 9.0 * np.arange(128 * 16) / 128).astype(np.float32)),
    ]:
        bank = sd.Channelizer(64, encoding=encoding)
        strongest = int(np.abs(bank.push(tone)[0]).argmax())
        start = 1400.0 if encoding == "complex64" else 1400.0 - 32.0
        assert bank.frequencies(1400.0, 64.0)[strongest] == pytest.approx(start + 9)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.lists(st.integers(0, 700), min_size=1, max_size=6), st.integers(1, 3))
def test_any_split_of_a_stream_gives_the_whole(lengths, integrate):
    x = noise(2, sum(lengths))
    options = {"detect": "I", "integrate": integrate, "taps": 4}
    whole = sd.channelize(x, 32, **options)
    bank = sd.Channelizer(32, encoding="complex64", pols=2, **options)
    ends = np.cumsum(lengths)[:-1]
    for _ in range(2):
        parts = [bank.push(np.ascontiguousarray(part)) for part in np.split(x, ends, axis=1)]
        np.testing.assert_array_equal(np.concatenate([*parts, bank.flush()]), whole)


def test_out_is_written_in_place():
    x = noise(64 * 20)
    wanted = sd.channelize(x, 64)
    memory = np.full((30, 64), np.nan, dtype=np.complex64)
    out = memory[5:18]
    y = sd.channelize(x, 64, out=out)
    assert y is out and np.shares_memory(y, memory)
    np.testing.assert_array_equal(memory[5:18], wanted)
    assert np.isnan(memory[:5]).all() and np.isnan(memory[18:]).all()


def test_results_do_not_depend_on_threads():
    x = noise(2, 64 * 500)
    one = sd.channelize(x, 64, threads=1)
    np.testing.assert_array_equal(one, sd.channelize(x, 64, threads=3))
    reference = sd.channelize(x, 64, device="reference")
    np.testing.assert_allclose(one, reference, rtol=1e-4, atol=1e-4)


def test_integers_are_rounded_spectra():
    x = noise(3, 2, 64 * 20)
    y = sd.channelize(x, 64) * 30
    eight = sd.channelize(x, 64, bits=8, gain=30)
    assert eight.shape == (13, 3, 2, 64, 2) and eight.dtype == np.int8
    wanted = np.clip(np.stack([y.real, y.imag], axis=-1), -128, 127)
    assert np.abs(eight - wanted).max() <= 0.5 + 1e-4
    visibilities = sd.correlate(eight, encoding="int8_pair")
    z = eight[..., 0] + 1j * eight[..., 1]
    np.testing.assert_array_equal(visibilities.matrix()[:, 1, 0, 0, 1], (z[:, 1, 0] * z[:, 0, 1].conj()).sum(axis=0))
    four = sd.channelize(x, 64, bits=4, gain=2)
    assert four.shape == (13, 3, 2, 64) and four.dtype == np.uint8
    real = four.view(np.int8) >> 4
    assert np.abs(real - np.clip(y.real / 15, -8, 7)).max() <= 0.5 + 1e-4
    assert sd.correlate(four, encoding="complex4").sums.shape == (64, 6, 4)
    bank = sd.Channelizer(64, encoding="complex64", antennas=3, pols=2, bits=8, gain=30)
    out = np.empty_like(eight)
    assert bank.push(x, out=out) is out
    np.testing.assert_array_equal(out, eight)
    assert bank.flush().shape == (0, 3, 2, 64, 2) and bank.flush().dtype == np.int8


def test_the_prototype_is_the_window_of_the_filter_bank():
    x = noise(64 * 20)
    filter = sd.prototype(64)
    assert filter.shape == (512,) and filter.sum() == pytest.approx(1)
    np.testing.assert_array_equal(sd.channelize(x, 64, window=filter), sd.channelize(x, 64))
    n = np.arange(512) - 255.5
    wanted = np.sinc(n / 64) * np.hanning(512)
    np.testing.assert_allclose(filter, wanted / wanted.sum(), atol=1e-12)
    assert sd.prototype(64, 4, "kaiser:80", real=True).shape == (512,)
    for wrong in [(1,), (64, 0), (64, 8, "x")]:
        with pytest.raises(sd.ParameterError):
            sd.prototype(*wrong)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: sd.channelize(x, 16, bits=5), "bits"),
        (lambda x: sd.channelize(x, 16, bits=8, detect="power"), "bits"),
        (lambda x: sd.channelize(x, 16, bits=8, gain=float("nan")), "gain"),
        (lambda x: sd.channelize(x[::2], 16), "contiguous"),
        (lambda x: sd.channelize(x.astype(np.complex128), 16), "complex128"),
        (lambda x: sd.channelize(x.astype(">c8"), 16), "byte order"),
        (lambda x: sd.channelize(list(x), 16), "list"),
        (lambda x: sd.channelize(x, 1), "channels"),
        (lambda x: sd.channelize(x, -3), "negative"),
        (lambda x: sd.channelize(x, 16, taps=0), "taps"),
        (lambda x: sd.channelize(x, 16, window="square"), "window"),
        (lambda x: sd.channelize(x, 16, window=[1.0, 2.0]), "window .taps x points"),
        (lambda x: sd.channelize(x, 16, integrate=2), "detect"),
        (lambda x: sd.channelize(x, 16, detect="IQUV"), "two polarizations"),
        (lambda x: sd.channelize(x, 16, encoding="int8"), "int8"),
        (lambda x: sd.channelize(x, 16, oversampling=(3, 4)), "oversampling"),
        (lambda x: sd.channelize(x, 16, device="gpu"), "device"),
        (lambda x: sd.channelize(x, 16, threads=-1), "threads"),
        (lambda x: sd.channelize(x.reshape(3, 100), 16), "polarizations"),
        (lambda x: sd.channelize(x.view(np.uint8), 16), "encoding"),
        (lambda x: sd.channelize(x, 16, out=np.empty((3, 16), np.complex64)), "shape"),
        (lambda x: sd.channelize(x, 16, out=np.empty((11, 16), np.complex128)), "complex128"),
        (lambda x: sd.channelize(x, 16, out=frozen((11, 16))), "read-only"),
        (lambda x: sd.channelize(x, 16, out=x[: 11 * 16].reshape(11, 16)), "in use"),
        (lambda x: sd.channelize(np.frombuffer(bytes(97), np.uint8)[1:].view(np.complex64), 16), "align"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words) as raised:
        make(noise(300))
    assert isinstance(raised.value, sd.SiderealError)


def frozen(shape):
    array = np.empty(shape, np.complex64)
    array.flags.writeable = False
    return array
