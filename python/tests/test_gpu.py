"""Arrays on a GPU: the same results as on the host, without copies there and back, and clear errors."""

import copy
import gc
import os
import pickle

import gpu
import numpy as np
import pytest
from gpu import KINDS, Interface, OldTensor, Tensor
from hypothesis import given, settings
from hypothesis import strategies as st

import sidereal_dsp as sd

gpu.needed()

RANDOM = np.random.default_rng(6)
FREQS = 1500.0 - np.arange(24)
TYPES = ["uint8", "int8", "uint16", "int16", "int32", "float32", "complex64"]


def noise(*shape):
    return (RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)).astype(np.complex64)


def address(array):
    return array.__cuda_array_interface__["data"][0]


@pytest.mark.parametrize("kind", TYPES)
def test_arrays_come_back(kind):
    x = RANDOM.integers(0, 100, size=(3, 5, 7)).astype(kind)
    there = sd.to_device(x)
    assert there.shape == x.shape and there.dtype == x.dtype and there.nbytes == x.nbytes
    assert there.device == "cuda:0" and len(there) == 3
    back = there.to_host()
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)


def test_an_array_is_not_pickled():
    there = sd.to_device(np.zeros(5, "f4"))
    for store in [pickle.dumps, copy.copy, copy.deepcopy]:
        with pytest.raises(TypeError, match="DeviceArray is neither pickled nor copied; `to_host`"):
            store(there)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"detect": "IQUV", "integrate": 3}])
def test_channelize(kind, options):
    x = noise(2, 64 * 40)
    wanted = sd.channelize(x, 64, device="cuda", **options)
    got = sd.channelize(kind(sd.to_device(x)), 64, **options)
    assert isinstance(got, sd.DeviceArray) and got.dtype == wanted.dtype
    np.testing.assert_array_equal(got.to_host(), wanted)
    np.testing.assert_allclose(wanted, sd.channelize(x, 64, **options), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_out_on_the_gpu_is_written_in_place(kind):
    x = noise(64 * 20)
    memory = sd.to_device(np.zeros((13, 64), np.complex64))
    out = kind(memory)
    assert sd.channelize(sd.to_device(x), 64, out=out) is out
    np.testing.assert_array_equal(memory.to_host(), sd.channelize(x, 64, device="cuda"))


def test_a_stream_of_voltages_mixes_both_memories():
    parts = np.split(noise(2, 64 * 40), [100, 900, 1000, 2000], axis=1)
    bank = sd.Channelizer(64, encoding="complex64", pols=2, device="cuda")
    whole = sd.channelize(np.concatenate(parts, axis=1), 64, device="cuda")
    rows = []
    for at, part in enumerate(parts):
        part = np.ascontiguousarray(part)
        rows.append(bank.push(part) if at % 2 else bank.push(sd.to_device(part)).to_host())
    np.testing.assert_array_equal(np.concatenate(rows), whole)


@pytest.mark.parametrize("options", [{}, {"detect": "IQUV", "integrate": 3}, {"bits": 8}, {"bits": 4}])
def test_a_stream_of_voltages_ends_where_its_samples_are(options):
    x = noise(2, 64 * 20)
    bank = sd.Channelizer(64, encoding="complex64", pols=2, device="cuda", **options)
    rows = bank.push(sd.to_device(x))
    rest = bank.flush()
    assert isinstance(rest, sd.DeviceArray) and rest.device == rows.device
    assert rest.shape == (0, *rows.shape[1:]) and rest.dtype == rows.dtype
    assert rest.to_host().shape == rest.shape
    # After samples of the host, and of a stream without any, the end is there.
    for part in [x, None]:
        if part is not None:
            np.testing.assert_array_equal(bank.push(part), rows.to_host())
        end = bank.flush()
        assert isinstance(end, np.ndarray) and end.shape == rest.shape and end.dtype == rest.dtype
    np.testing.assert_array_equal(bank.push(sd.to_device(x)).to_host(), rows.to_host())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("samples", ["uint8", "int16", "float32"])
def test_dedisperse(kind, samples):
    x = RANDOM.integers(0, 200, size=(900, 24)).astype(samples)
    dms = [0.0, 3.0, 11.0, 40.0]
    wanted, lengths = sd.dedisperse(x, FREQS, 1e-3, dms, downsample=2, return_valid=True)
    options = {"downsample": 2, "return_valid": True}
    got, valid = sd.dedisperse(kind(sd.to_device(x)), FREQS, 1e-3, dms, **options)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_array_equal(valid, lengths)
    np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-6)
    out = sd.to_device(np.full(wanted.shape, 7, wanted.dtype))
    assert sd.dedisperse(sd.to_device(x), FREQS, 1e-3, dms, downsample=2, out=out) is out
    np.testing.assert_array_equal(out.to_host(), got.to_host())


def test_parts_of_an_array_need_no_copy():
    """Samples that begin anywhere in an allocation, as slices of other libraries do."""
    x = RANDOM.integers(0, 255, size=(600, 23), dtype=np.uint8)
    there, freqs, dms = sd.to_device(x), 1500.0 - np.arange(23), [0.0, 7.0]
    z = noise(64 * 21)
    voltages = sd.to_device(z)
    for first in range(6):
        rest = x[first:]
        part = Interface(there, shape=rest.shape, data=(address(there) + first * 23, False))
        got = sd.dedisperse(part, freqs, 1e-3, dms)
        np.testing.assert_array_equal(got.to_host(), sd.dedisperse(rest, freqs, 1e-3, dms))
        data = (address(voltages) + 8 * first, False)
        got = sd.channelize(Interface(voltages, shape=(64 * 20,), data=data), 64)
        wanted = sd.channelize(z[first : first + 64 * 20], 64, device="cuda")
        np.testing.assert_array_equal(got.to_host(), wanted)


def test_a_stream_of_samples_in_any_split():
    x = RANDOM.integers(0, 255, size=(700, 24), dtype=np.uint8)
    dms = [0.0, 5.0, 30.0]
    whole = sd.dedisperse(x, FREQS, 1e-3, dms)
    dedisperser = sd.Dedisperser(FREQS, 1e-3, dms, np.uint8, device="cuda")
    for _ in range(2):
        parts = [dedisperser.push(sd.to_device(part)) for part in np.split(x, [1, 2, 300, 300, 650])]
        parts = [part.to_host() for part in [*parts, dedisperser.flush()]]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pols", [1, 2])
def test_correlate_spectra_as_the_filter_bank_gives_them(kind, pols):
    x = noise(77, 5, pols, 9)
    wanted = sd.correlate(x, device="cuda")
    got = sd.correlate(kind(sd.to_device(x)))
    assert (got.counts == 77).all() and got.spectra == 77
    np.testing.assert_allclose(got.sums, wanted.sums, rtol=1e-5, atol=1e-4)
    spectra = sd.channelize(sd.to_device(noise(3, 2, 32 * 30)), 32)
    assert sd.correlate(spectra).sums.shape == (32, 6, 4)


def test_correlate_spectra_in_the_order_of_the_engine():
    times, antennas, pols, channels = 48, 3, 2, 5
    natural = RANDOM.integers(-128, 128, size=(channels, antennas, pols, times, 2), dtype=np.int8)
    x = natural.transpose(3, 1, 2, 0, 4)
    wanted = sd.correlate(np.ascontiguousarray(x), encoding="int8_pair")
    there = Interface(sd.to_device(natural), shape=x.shape, strides=x.strides)
    correlator = sd.Correlator(antennas, channels, pols=pols, encoding="int8_pair", device="cuda")
    correlator.push(there)
    np.testing.assert_array_equal(correlator.read().sums, wanted.sums)
    with pytest.raises(ValueError, match="order channel, antenna"):
        correlator.push(sd.to_device(np.ascontiguousarray(x)))


def test_spiir():
    rate = 1024
    psd = sd.Psd(1.0, np.full(513, 1e-46))
    bank = sd.design([sd.inspiral(m, m, sample_rate=rate, f_low=30) for m in (20, 30)], psd, f_low=30)
    x = RANDOM.normal(size=4096).astype(np.float32)
    host = sd.Spiir(bank, device="cuda")
    wanted = np.concatenate([host.push(x), host.flush()], axis=1)
    filters = sd.Spiir(bank, device="cuda")
    parts = [filters.push(sd.to_device(part)) for part in np.split(x, [10, 500, 3000])]
    parts = [part.to_host() for part in [*parts, filters.flush()]]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), wanted)


@pytest.mark.parametrize("old", [False, True])
def test_a_capsule_keeps_the_memory(old):
    array = sd.to_device(np.arange(64, dtype=np.float32))
    capsule = array.__dlpack__() if old else array.__dlpack__(max_version=(1, 0))

    class Left:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **options):
            return capsule

    del array
    gc.collect()
    tensor = Left()
    x = sd.channelize(tensor, 8, taps=1, window="rectangular")
    wanted = sd.channelize(np.arange(64, dtype=np.float32), 8, taps=1, window="rectangular", device="cuda")
    np.testing.assert_array_equal(x.to_host(), wanted)


def test_memory_is_freed():
    """Make more arrays and capsules, one after another, than the memory holds."""
    big = np.zeros(1 << 26, np.uint8)
    memory = sd.devices()[1].memory_bytes
    rounds = 2 * memory // big.nbytes if memory < 8 << 30 else 20
    for at in range(rounds):
        array = sd.to_device(big)
        capsule = array.__dlpack__(max_version=(1, 0) if at % 2 else None)
        del array, capsule


WRONG = [
    ({"data": (0, False)}, "address 0"),
    ({"data": (123, False)}, "multiples"),
    ({"data": (128, False)}, "CUDA device"),
    ({"data": None}, "data"),
    ({"data": (1.5, False)}, "data"),
    ({"data": (-4, False)}, "data"),
    ({"data": (1 << 70, False)}, "data"),
    ({"shape": (640, -1)}, "negative"),
    ({"shape": (1 << 62, 1 << 62)}, "fit a memory"),
    ({"shape": (1 << 40,)}, "CUDA device"),
    ({"shape": 5}, "shape"),
    ({"shape": None}, "shape"),
    ({"strides": (-8,)}, "above 0"),
    ({"strides": (0,)}, "above 0"),
    ({"strides": (16,)}, "CUDA device|contiguous"),
    ({"strides": (1 << 61,)}, "within a memory"),
    ({"strides": (8, 8)}, "1 axes"),
    ({"strides": "8"}, "strides"),
    ({"typestr": ">c8"}, "byte order"),
    ({"typestr": "<c16"}, "types on a GPU"),
    ({"typestr": "|V8"}, "types on a GPU"),
    ({"typestr": ""}, "types on a GPU"),
    ({"typestr": 3}, "typestr"),
    ({"mask": object()}, "mask"),
    ({"stream": 0}, "stream"),
    ({"stream": "x"}, "stream"),
    ({"version": 0}, "version"),
    ({"version": "3"}, "version"),
]


@pytest.mark.parametrize(("fields", "words"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_wrong_interfaces_are_named(fields, words):
    array = sd.to_device(noise(640))
    with pytest.raises(ValueError, match=words) as raised:
        sd.channelize(Interface(array, **fields), 16)
    assert isinstance(raised.value, sd.SiderealError)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, h: sd.channelize(Interface(x, "shape"), 16), "shape"),
        (lambda x, h: sd.channelize(Interface(x, data=(h.ctypes.data, False)), 16), "CUDA device"),
        (lambda x, h: sd.channelize(Interface(x, data=(address(x) + 8, False)), 16), "CUDA device"),
        (lambda x, h: sd.channelize(Interface(x, data=(address(x) + 3, False), shape=(9,)), 16, taps=1), "multiples"),
        (lambda x, h: sd.channelize(x, 16, out=np.empty((33, 16), np.complex64)), "cuda:0"),
        (lambda x, h: sd.channelize(x, 16, out=sd.to_device(np.empty((3, 16), np.complex64))), "shape"),
        (lambda x, h: sd.channelize(x, 16, out=sd.to_device(np.empty((33, 16), np.float32))), "complex64"),
        (lambda x, h: sd.channelize(x, 16, out=Interface(x, shape=(33, 16))), "overlaps"),
        (lambda x, h: sd.channelize(x, 16, out=Interface(blank(), data=(address(blank()), True))), "CUDA|read-only"),
        (lambda x, h: sd.channelize(h, 16, out=sd.to_device(np.empty((33, 16), np.complex64))), "host|NumPy"),
        (lambda x, h: sd.channelize(x, 16, device="cpu"), "bound to the host"),
        (lambda x, h: sd.channelize(x, 16, device="reference"), "bound to the host"),
        (lambda x, h: sd.Channelizer(16, encoding="complex64").push(x), "bound to the host"),
        (lambda x, h: sd.Dedisperser(FREQS, 1e-3, [1.0], np.uint8).push(x), "bound to the host"),
        (lambda x, h: sd.Correlator(2, 4).push(x), "bound to the host"),
        (lambda x, h: sd.Channelizer(16, encoding="float32", device="cuda").push(x), "float32"),
        (lambda x, h: sd.dedisperse(x, FREQS, 1e-3, [1.0]), "uint8"),
        (lambda x, h: sd.correlate(x), "axes"),
        (lambda x, h: sd.find_pulses(x, 1e-3), "host"),
        (lambda x, h: sd.estimate_psd(Interface(x), 1024), "host"),
        (lambda x, h: sd.to_device(h, device="cpu"), "device"),
        (lambda x, h: sd.to_device(h.astype(np.complex128)), "complex128"),
        (lambda x, h: sd.channelize(Tensor(x, device=(7, 0)), 16), "kind 7"),
        (lambda x, h: sd.channelize(Tensor(x, device=(2,)), 16), "kind and the number"),
        (lambda x, h: sd.channelize(Tensor(x, device=None), 16), "kind and the number"),
        (lambda x, h: x.__dlpack__(stream=0), "stream"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    x, host = sd.to_device(noise(640)), noise(640)
    with pytest.raises(ValueError, match=words) as raised:
        make(x, host)
    assert isinstance(raised.value, sd.SiderealError)


def blank():
    return sd.to_device(np.empty((33, 16), np.complex64))


def test_a_read_only_array_is_not_written():
    x, out = sd.to_device(noise(640)), blank()
    with pytest.raises(sd.ParameterError, match="read-only"):
        sd.channelize(x, 16, out=Interface(out, data=(address(out), True)))


def test_memory_that_was_freed_is_refused():
    array = sd.to_device(noise(1 << 20))
    gone = Interface(array)
    gone.array = None
    # A driver may keep freed memory mapped; the emulated one does not.
    if "Emulated" in sd.devices()[1].description:
        del array
        with pytest.raises(sd.ParameterError, match="CUDA device"):
            sd.channelize(gone, 16)


class Capsules:
    """Object with DLPack that returns anything."""

    def __init__(self, returned, device=(2, 0)):
        self.returned, self.device = returned, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


@pytest.mark.parametrize("returned", [None, 3, "dltensor", object(), ValueError("no"), TypeError("never")])
@pytest.mark.parametrize("device", [(2, 0), (1, 0), (13, 0), (2, 9)])
def test_other_objects_than_capsules_are_refused(returned, device):
    with pytest.raises(sd.ParameterError):
        sd.channelize(Capsules(returned, device), 16)


def test_a_capsule_of_another_device_is_refused():
    array = sd.to_device(noise(640))
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)
    assert array.__dlpack_device__() == (2, 0)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.integers(-9, 2**63), max_size=3),
    st.tuples(st.integers(-9, 2**64), st.booleans()),
)
FIELDS = st.dictionaries(
    st.sampled_from(["shape", "typestr", "data", "strides", "stream", "version", "mask", "descr"]),
    st.one_of(
        ANYTHING,
        st.sampled_from(["<c8", "|u1", "<f4", "=i2", "<i4", (640,), (16, 40), (40, 8), (8,), (0,), (0, 5), ()]),
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=int(os.environ.get("EXAMPLES", "300")), derandomize=True)
@given(FIELDS, st.sampled_from(["shape", "typestr", "data", "version", "x"]), st.integers(-64, 6000))
def test_any_interface_is_used_or_refused(fields, without, shift):
    memory = sd.to_device(noise(640))
    if isinstance(fields.get("data"), tuple) and len(fields["data"]) == 2:
        fields["data"] = (address(memory) + shift, fields["data"][1])
    array = Interface(memory, without, **fields)
    for call in [
        lambda: sd.channelize(array, 16, taps=2, encoding="complex64"),
        lambda: sd.channelize(array, 4, taps=1),
        lambda: sd.dedisperse(array, 1500.0 - np.arange(8), 1e-3, [0.0, 1.0]),
        lambda: sd.correlate(array),
        lambda: sd.channelize(memory, 16, out=array),
        lambda: sd.Channelizer(16, encoding="complex64", pols=2, device="cuda").push(array),
    ]:
        try:
            call()
        except (sd.SiderealError, MemoryError) as error:
            assert str(error)


def test_old_tensors_are_taken():
    x = noise(640)
    got = sd.channelize(OldTensor(sd.to_device(x)), 16)
    np.testing.assert_array_equal(got.to_host(), sd.channelize(x, 16, device="cuda"))
