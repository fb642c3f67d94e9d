"""Arguments of any kind: a result or a clear exception, never a panic or a crash."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sidereal_dsp as sd

#: A panic would be a `PanicException`, which is none of these.
ALLOWED = (sd.SiderealError, TypeError, OverflowError, MemoryError)

DTYPES = st.one_of(
    st.sampled_from(["u1", "i1", "u2", "i2", "i4", "f4", "f8", "c8", "c16", "?", ">f4", ">c8", "O", "S3", "U2"]),
    st.sampled_from([[("re", "i1"), ("im", "i1")], [("re", "i2"), ("im", "i1")], [("x", "f4")]]),
).map(np.dtype)


@st.composite
def arrays(draw):
    """Draw an array of any type and up to six axes, with any strides, contiguous or not, writable or not."""
    dtype = draw(DTYPES)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=9))
    array = np.zeros(shape, dtype)
    if dtype.kind in "uif":
        with np.errstate(all="ignore"):
            array = np.asarray(np.random.default_rng(3).normal(0, 40, shape)).astype(dtype)
    if draw(st.booleans()) and array.ndim:
        step = draw(st.sampled_from([-2, -1, 2]))
        array = array[::step]
    if draw(st.booleans()):
        array = array.T
    if draw(st.booleans()):
        array = np.broadcast_to(array, (3, *array.shape))
    if draw(st.integers(0, 4)) == 0:
        array.flags.writeable = False
    return array


NUMBERS = st.one_of(
    st.integers(-2, 40),
    st.sampled_from([2**31, 2**63 - 1, 2**63, 2**70, -(2**40)]),
    st.floats(),
    st.none(),
    st.sampled_from(["", "x", b"1", [], [1.0, 2.0], {}, object()]),
)
COUNTS = st.one_of(st.integers(-2, 40), NUMBERS)
LISTS = st.one_of(st.lists(st.floats(0, 2000), max_size=9), st.lists(NUMBERS, max_size=3), NUMBERS, arrays())
WORDS = st.one_of(st.sampled_from(["power", "I", "IQUV", "hann", "int8_pair", "complex4", "cpu", "cuda:7"]), NUMBERS)


def attempt(function, *arguments, **options):
    """Call a function; return its result, or None after an exception that it may raise."""
    try:
        return function(*arguments, **options)
    except ALLOWED as error:
        assert str(error)
        return None


fuzzed = settings(deadline=None, max_examples=150, derandomize=True)


@fuzzed
@given(arrays(), COUNTS, COUNTS, WORDS, COUNTS, WORDS, st.one_of(st.none(), arrays()))
def test_channelize(x, channels, taps, detect, integrate, encoding, out):
    attempt(sd.channelize, x, channels)
    attempt(sd.channelize, x, 2, taps=taps, detect=detect, integrate=integrate)
    attempt(sd.channelize, x, 2, taps=1, encoding=encoding, out=out)
    attempt(sd.channelize, x, 2, taps=1, window=x, device=detect, threads=integrate)


@fuzzed
@given(arrays(), COUNTS, COUNTS, WORDS, arrays())
def test_channelizer(x, antennas, pols, encoding, out):
    bank = attempt(sd.Channelizer, 2, 2, encoding=encoding, antennas=antennas, pols=pols)
    for bank in [bank, sd.Channelizer(2, 2, encoding="float32", pols=2)]:
        if bank is not None:
            attempt(bank.push, x)
            attempt(bank.push, x, out=out)
            attempt(bank.frequencies, antennas, pols)
            bank.flush()


@fuzzed
@given(arrays(), LISTS, NUMBERS, LISTS, COUNTS, LISTS, st.one_of(st.none(), arrays()))
def test_dedisperse(x, freqs, tsamp, dms, downsample, zap, out):
    attempt(sd.dedisperse, x, freqs, tsamp, dms, downsample=downsample, zap_channels=zap)
    channels = x.shape[-1] if x.ndim else 3
    band = 1500.0 - np.arange(channels)
    attempt(sd.dedisperse, x, band, 1e-3, [0.0, 1.0], out=out)
    attempt(sd.dedisperse, x, band, 1e-3, dms)
    attempt(sd.dedisperse, x, band, 1e-3, [2.0], zap_channels=zap, return_valid=True)
    attempt(sd.find_pulses, x, tsamp, snr=downsample)
    attempt(sd.find_pulses, x, 1e-3, max_width=tsamp)
    attempt(sd.find_pulses, x, 1e-3, valid=zap)
    attempt(sd.dm_plan, freqs, tsamp, downsample)


@fuzzed
@given(arrays(), LISTS, NUMBERS, NUMBERS, LISTS)
def test_search(x, freqs, tsamp, dm_max, zap):
    attempt(sd.search, x, freqs=freqs, tsamp=tsamp, dm_max=10)
    channels = x.shape[-1] if x.ndim else 3
    band = 1500.0 - np.arange(channels)
    attempt(sd.search, x, freqs=band, tsamp=1e-3, dm_max=5)
    attempt(sd.search, x, freqs=band, tsamp=1e-3, dm_max=dm_max, dm_step=1, zap_channels=zap)
    attempt(sd.search, dm_max, dm_max=5)
    attempt(sd.search, x, freqs=band, tsamp=1e-3, dm_max=5, time_range=zap)
    attempt(sd.open_filterbank, zap)


@fuzzed
@given(arrays(), WORDS, COUNTS, COUNTS)
def test_correlate(x, encoding, antennas, channels):
    attempt(sd.correlate, x)
    attempt(sd.correlate, x, encoding=encoding)
    sizes = x.shape[1:4] if x.ndim >= 4 else (2, 1, 3)
    correlator = attempt(sd.Correlator, sizes[0], sizes[2], pols=sizes[1], encoding=encoding)
    if correlator is not None:
        attempt(correlator.push, x)
        correlator.read()
    if not (isinstance(antennas, int) and isinstance(channels, int) and antennas * channels > 2000):
        attempt(sd.Correlator, antennas, channels)


@fuzzed
@given(arrays(), NUMBERS, NUMBERS, LISTS)
def test_strain(x, rate, segment, densities):
    attempt(sd.estimate_psd, x, rate, segment=segment)
    attempt(sd.estimate_psd, np.ones(4000), 64, valid=x)
    psd = attempt(sd.Psd, segment, densities)
    for psd in [psd, sd.Psd(1.0, np.ones(40))]:
        if psd is not None:
            attempt(sd.whiten, x, 64, psd, f_low=rate)


@fuzzed
@given(arrays(), NUMBERS, NUMBERS, LISTS, COUNTS)
def test_binaries(x, rate, start, templates, slides):
    strain = [attempt(sd.Strain, "H1", x, rate, start), attempt(sd.Strain, start, x, 64, 1e9)]
    noise = np.random.default_rng(4).normal(size=64 * 40)
    strain = [one for one in strain if one is not None] + [sd.Strain("L1", noise, 64, 1e9)]
    attempt(sd.search_strain, strain, templates=templates)
    attempt(sd.search_strain, strain[-1:], templates=[(30, 30)], f_low=rate, slides=slides)
    attempt(sd.search_strain, strain, masses=slides)
    attempt(sd.search_strain, strain, masses=[10.0] * (len(x.shape) + 3), segment=start)
    attempt(sd.search_strain, x, templates=[(30, 30)])


PSD = sd.Psd(4.0, np.full(129, 1e-46))
BANK = sd.design([sd.inspiral(30, 30, sample_rate=1024, f_low=30)], PSD, f_low=30)


@fuzzed
@given(arrays(), NUMBERS, NUMBERS, NUMBERS, st.one_of(st.none(), arrays()))
def test_spiir(x, mass, rate, start, out):
    attempt(sd.inspiral, mass, rate, spin1z=start)
    attempt(sd.inspiral, 30, 30, sample_rate=mass if mass != 1 else rate, approximant=start)
    attempt(sd.Waveform, start, x, rate)
    attempt(sd.Waveform, "x", x, 1024)
    attempt(sd.design, x, PSD)
    spiir = sd.Spiir(BANK)
    attempt(spiir.push, x)
    attempt(spiir.push, x, out=out)
    attempt(sd.find_triggers, x, BANK, start)
    attempt(sd.find_triggers, np.ones((1, 50), np.complex64), BANK, 0, valid=x, threshold=rate, window=mass)
    attempt(sd.coincide, {"H1": x, "L1": x}, {"H1": x, "L1": out})
    attempt(sd.coincide, mass, x)


class Tensor:
    """Array of another library in the host's memory, by DLPack."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options) if isinstance(self.array, np.ndarray) else self.array


def test_tensors_of_the_host_are_taken_without_a_copy():
    x = np.random.default_rng(1).integers(0, 255, size=(300, 8), dtype=np.uint8)
    freqs = 1500.0 - np.arange(8)
    wanted = sd.dedisperse(x, freqs, 1e-3, [0.0, 3.0])
    np.testing.assert_array_equal(sd.dedisperse(Tensor(x), freqs, 1e-3, [0.0, 3.0]), wanted)
    z = np.random.default_rng(1).normal(size=(2, 640)).astype(np.float32).view(np.complex64)
    np.testing.assert_array_equal(sd.channelize(Tensor(z), 16), sd.channelize(z, 16))
    y = sd.channelize(z.reshape(1, 2, -1), 16)
    np.testing.assert_array_equal(sd.correlate(Tensor(y)).sums, sd.correlate(y).sums)
    with pytest.raises(sd.ParameterError, match="contiguous"):
        sd.channelize(Tensor(z[:, ::2]), 16)
    with pytest.raises(sd.ParameterError, match="NumPy"):
        sd.channelize(z, 16, out=Tensor(np.empty((13, 2, 16), np.complex64)))


@fuzzed
@given(
    st.one_of(arrays(), NUMBERS),
    st.one_of(st.tuples(st.integers(-2, 20), st.integers(-2, 3)), NUMBERS),
)
def test_tensors_of_any_kind(array, device):
    tensor = Tensor(array, device)
    attempt(sd.channelize, tensor, 4)
    attempt(sd.dedisperse, tensor, [1500.0, 1400.0], 1e-3, [1.0])
    attempt(sd.correlate, tensor)
    attempt(sd.find_pulses, tensor, 1e-3)
    attempt(sd.Spiir(BANK).push, tensor)
    attempt(sd.search, tensor, freqs=[1500.0, 1400.0], tsamp=1e-3, dm_max=5)
    attempt(sd.estimate_psd, tensor, 64)
    attempt(sd.to_device, tensor)


class Fields:
    """Object with the array interface of a GPU and any fields."""

    def __init__(self, fields):
        self.__cuda_array_interface__ = fields


@fuzzed
@given(
    st.one_of(
        NUMBERS,
        st.dictionaries(
            st.sampled_from(["shape", "typestr", "data", "strides", "stream", "version", "mask"]),
            st.one_of(NUMBERS, st.tuples(st.integers(-9, 2**64), st.booleans()), st.just("<f4"), st.just((3, 4))),
        ),
    )
)
def test_interfaces_of_a_gpu_without_one(fields):
    array = Fields(fields)
    for call in [
        lambda: sd.channelize(array, 4),
        lambda: sd.correlate(array),
        lambda: sd.dedisperse(array, [1500.0, 1400.0], 1e-3, [1.0]),
        lambda: sd.channelize(np.zeros(64, np.float32), 4, out=array),
        lambda: sd.find_pulses(array, 1e-3),
        lambda: sd.Spiir(BANK).push(array),
    ]:
        with pytest.raises((sd.SiderealError, TypeError)):
            call()


@pytest.mark.parametrize(
    "make",
    [
        lambda: sd.Channelizer(2**20, 8, encoding="complex64", antennas=2**16, pols=2),
        lambda: sd.Channelizer(2**20, 8, encoding="int8", coarse_channels=2**20),
        lambda: sd.Dedisperser(1500.0 - 0.01 * np.arange(4096), 1e-6, [1e6], np.uint8),
        lambda: sd.find_pulses(np.zeros((10**7, 1), np.float32), 1e-9, baseline_length=0.06),
        lambda: sd.Correlator(4096, 2**20),
        lambda: sd.search(np.zeros((4, 2), np.uint8), freqs=[1.0, 2.0], tsamp=1e-9, dm_max=1e6, dm_step=1e3),
    ],
)
def test_more_than_the_memory_is_refused(make):
    with pytest.raises((sd.SiderealError, MemoryError)):
        make()
