"""Round trips of arrays between this package, CuPy and PyTorch on a GPU, and pointers that are not the device's.

    python python/tests/gpu_round_trip.py

It needs a GPU, and CuPy or PyTorch; it prints a line for each check, and names what it left out. Its exit code is 1
after a failure.
"""

import importlib
import sys
import traceback

import numpy as np

import sidereal_dsp as sd

RANDOM = np.random.default_rng(6)
FREQS = 1500.0 - np.arange(64)
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def noise(*shape):
    parts = RANDOM.normal(size=(*shape, 2)).astype(np.float32)
    return np.ascontiguousarray(parts).view(np.complex64)[..., 0]


class CuPy:
    """Arrays of CuPy."""

    name = "cupy"

    def __init__(self, module):
        self.module = module

    def put(self, array):
        return self.module.asarray(array)

    def get(self, array):
        return self.module.asnumpy(array)

    def by_interface(self, array):
        return self.module.asarray(array)

    def by_dlpack(self, array):
        return self.module.from_dlpack(array)

    def address(self, array):
        return array.data.ptr

    def stream(self):
        return self.module.cuda.Stream(non_blocking=True)

    def empty(self, shape):
        return self.module.empty(shape, dtype=self.module.complex64)


class PyTorch:
    """Tensors of PyTorch."""

    name = "torch"

    def __init__(self, module):
        self.module = module

    def put(self, array):
        return self.module.from_numpy(array).cuda()

    def get(self, array):
        return array.cpu().numpy()

    def by_interface(self, array):
        return self.module.as_tensor(array, device="cuda")

    def by_dlpack(self, array):
        return self.module.from_dlpack(array)

    def address(self, array):
        return array.data_ptr()

    def stream(self):
        return self.module.cuda.stream(self.module.cuda.Stream())

    def empty(self, shape):
        return self.module.empty(shape, dtype=self.module.complex64, device="cuda")


@check
def voltages_go_in_and_spectra_come_out(library):
    x = noise(2, 1024 * 64)
    wanted = sd.channelize(x, 1024, device="cuda")
    spectra = sd.channelize(library.put(x), 1024)
    address = spectra.__cuda_array_interface__["data"][0]
    for view in [library.by_interface(spectra), library.by_dlpack(spectra)]:
        assert library.address(view) == address, "a view was copied"
        np.testing.assert_array_equal(library.get(view), wanted)
    np.testing.assert_allclose(wanted, sd.channelize(x, 1024), rtol=1e-3, atol=1e-3)


@check
def views_keep_the_memory(library):
    x = noise(1024 * 64)
    view = library.by_dlpack(sd.channelize(library.put(x), 1024))
    again = [sd.channelize(library.put(noise(1024 * 64)), 1024) for _ in range(20)]
    np.testing.assert_array_equal(library.get(view), sd.channelize(x, 1024, device="cuda"))
    del again


@check
def out_is_written_in_place(library):
    x = noise(1024 * 64)
    out = library.empty((57, 1024))
    before = library.address(out)
    assert sd.channelize(library.put(x), 1024, out=out) is out
    assert library.address(out) == before
    np.testing.assert_array_equal(library.get(out), sd.channelize(x, 1024, device="cuda"))


@check
def results_follow_the_work_of_another_stream(library):
    x = noise(2, 2, 1 << 20)
    wanted = sd.channelize(x, 256, device="cuda")
    with library.stream():
        there = library.put(x)
        for _ in range(50):
            there = there * 2
        for _ in range(50):
            there = there * 0.5
        got = sd.channelize(there, 256)
    np.testing.assert_array_equal(got.to_host(), wanted)


@check
def samples_are_dedispersed(library):
    x = RANDOM.integers(0, 255, size=(20000, 64), dtype=np.uint8)
    dms = np.linspace(0, 200, 50)
    series = sd.dedisperse(library.put(x), FREQS, 1e-3, dms)
    np.testing.assert_array_equal(library.get(library.by_dlpack(series)), sd.dedisperse(x, FREQS, 1e-3, dms))
    dedisperser = sd.Dedisperser(FREQS, 1e-3, dms, np.uint8, device="cuda")
    parts = [dedisperser.push(library.put(part)) for part in np.split(x, [1, 777, 15000])]
    parts = [part.to_host() for part in [*parts, dedisperser.flush()]]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), series.to_host())


@check
def spectra_are_correlated(library):
    spectra = sd.channelize(library.put(noise(8, 2, 64 * 600)), 64)
    wanted = sd.correlate(spectra.to_host(), device="cuda")
    for array in [spectra, library.by_interface(spectra)]:
        np.testing.assert_allclose(sd.correlate(array).sums, wanted.sums, rtol=1e-4, atol=1e-2)
    natural = RANDOM.integers(-128, 128, size=(16, 8, 2, 480, 2), dtype=np.int8)
    order = (3, 1, 2, 0, 4)
    there = library.put(natural)
    there = there.permute(order) if library.name == "torch" else there.transpose(order)
    correlator = sd.Correlator(8, 16, encoding="int8_pair", device="cuda")
    correlator.push(there)
    exact = sd.correlate(np.ascontiguousarray(natural.transpose(order)), encoding="int8_pair")
    np.testing.assert_array_equal(correlator.read().sums, exact.sums)


@check
def strain_is_filtered(library):
    psd = sd.Psd(1.0, np.full(1025, 1e-46))
    bank = sd.design([sd.inspiral(m, m, sample_rate=2048, f_low=20) for m in (20, 30, 40)], psd)
    x = RANDOM.normal(size=1 << 15).astype(np.float32)
    spiir = sd.Spiir(bank, device="cuda")
    parts = [spiir.push(library.put(part)) for part in np.split(x, [100, 5000])]
    parts = [part.to_host() for part in [*parts, spiir.flush()]]
    host = sd.Spiir(bank, device="cuda")
    wanted = np.concatenate([host.push(x), host.flush()], axis=1)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), wanted)


@check
def strides_and_types_are_checked(library):
    there = library.put(noise(64, 64))
    for wrong in [there[:, ::2], there.T, there.real]:
        refused(lambda wrong=wrong: sd.channelize(wrong, 16))


class Pointer:
    """Array interface of any address."""

    def __init__(self, address, items=640):
        self.__cuda_array_interface__ = {
            "shape": (items,),
            "typestr": "<c8",
            "data": (address, False),
            "version": 3,
            "stream": None,
        }


def refused(call):
    try:
        call()
    except sd.SiderealError as error:
        assert isinstance(error, ValueError), error
        return str(error)
    raise AssertionError("it was not refused")


@check
def pointers_that_are_not_the_devices_are_refused(library):
    host = noise(640)
    there = library.put(host)
    own = sd.to_device(host)
    end = own.__cuda_array_interface__["data"][0] + own.nbytes
    for address in [0, 8, host.ctypes.data, 1 << 47, 2**64 - 8]:
        refused(lambda address=address: sd.channelize(Pointer(address), 16))
    # An allocation of this package is as long as its array; that of a library's pool may be longer.
    refused(lambda: sd.channelize(Pointer(end - 640 * 4, 1 << 28), 16))
    refused(lambda: sd.channelize(host, 16, out=Pointer(host.ctypes.data)))
    refused(lambda: sd.channelize(there, 16, out=host))
    sd.channelize(Pointer(library.address(there)), 16)


@check
def the_memory_of_another_gpu_is_refused(library):
    gpus = sd.devices()[1:]
    if len(gpus) < 2:
        print("       (one GPU: the others are not tried)")
        return
    x = noise(1024 * 16)
    other = sd.to_device(x, device=gpus[1].name)
    assert sd.channelize(other, 64).device == gpus[1].name
    refused(lambda: sd.channelize(other, 64, device=gpus[0].name))


def main() -> int:
    if len(sd.devices()) < 2:
        print("no GPU: nothing is checked")
        return 1
    print(f"sidereal_dsp {sd.__version__} on {sd.devices()[1].description}")
    failures = tried = 0
    for kind in [CuPy, PyTorch]:
        try:
            library = kind(importlib.import_module(kind.name))
        except ImportError as error:
            print(f"left out: {kind.name} ({error})")
            continue
        for function in CHECKS:
            name = function.__name__.replace("_", " ")
            tried += 1
            try:
                function(library)
                print(f"ok     {kind.name}: {name}")
            except Exception:
                failures += 1
                print(f"FAILED {kind.name}: {name}")
                traceback.print_exc()
    print(f"{tried - failures} of {tried} checks passed")
    return 1 if failures or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
