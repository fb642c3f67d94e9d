# %% [markdown]
# # A GPU
#
# The functions have an argument `device`: the name of a processor or of a GPU of NVIDIA, as `devices` lists them. This notebook runs the same
# steps on the processor and on the first GPU, compares the results, and takes the time. Where there is no GPU, or a library of CUDA is missing, each
# step says what it skips. It needs no recording.

# %% varies
import time

import numpy as np
import sidereal_dsp as sd

for device in sd.devices():
    print(f"{device.name}: {device.description}")
gpus = [device.name for device in sd.devices() if device.name.startswith("cuda")]
gpu = gpus[0] if gpus else None
if gpu is None:
    print("no GPU is usable here; `sidereal devices` says what is missing. The steps below run on the processor alone")

# %%
def compare(name, step, is_same):
    """Runs a step on the processor and on the GPU, the second time of each being timed; returns the processor's result."""
    results = []
    for device in filter(None, ("cpu", gpu)):
        step(device)
        begun = time.perf_counter()
        results.append(step(device))
        print(f"{name}: {(time.perf_counter() - begun) * 1e3:.1f} ms on {device}")
    if gpu is None:
        print(f"{name}: skipped on the GPU, since there is none")
    else:
        assert is_same(*results), name
        print(f"{name}: both agree")
    return results[0]


random = np.random.default_rng(1)

# %% [markdown]
# ## Dedispersion and the search for bursts
#
# One second of 1024 channels of 8 bit at 64 µs, with a pulse of DM 400, at 500 trial DMs. Sums of integers do not depend on their order, so that
# both devices give the same bits:

# %% varies
freqs, tsamp = 1500 - 0.25 * np.arange(1024), 64e-6
samples = random.normal(100, 10, size=(16384, 1024))
delays = np.round(4148.808 * 400 * (freqs**-2 - freqs[0] ** -2) / tsamp).astype(int)
samples[3000 + delays[np.newaxis] + np.arange(16)[:, np.newaxis], np.arange(1024)] += 10
samples = samples.clip(0, 255).astype(np.uint8)
dms = np.arange(0, 500, 1.0)
series = compare("dedispersion", lambda device: sd.dedisperse(samples, freqs, tsamp, dms, device=device), np.array_equal)

# %%
row, column = np.unravel_index(series.argmax(), series.shape)
print(f"{series.shape[0]} series of {series.shape[1]} sums ({series.dtype}); the largest is at DM {dms[row]:.0f}, sample {column}")

# %% [markdown]
# A search removes interference before and groups detections afterwards. Sums of floating-point numbers depend on their order in the last bits:
# both devices find the same DM, time and width, and the same S/N to a part in ten thousand.

# %% varies
def is_found_by_both(ours, theirs):
    same = [(a.dm, a.time, a.width) for a in ours] == [(b.dm, b.time, b.width) for b in theirs]
    return same and np.allclose([a.snr for a in ours], [b.snr for b in theirs], rtol=1e-4)


options = {"freqs": freqs, "tsamp": tsamp, "dm_max": 500}
found = compare("search", lambda device: sd.search(samples, device=device, **options), is_found_by_both)

# %%
best = found[0]
print(f"best candidate: DM {best.dm:.1f} at {best.time:.4f} s, {best.width * 1e3:.2f} ms wide, S/N {best.snr:.1f}")

# %% [markdown]
# ## Spectra and visibilities
#
# The voltages of 16 antennas with 2 polarizations become spectra of 256 channels, and these the products of all pairs. These are sums of
# floating-point numbers, whose order differs: both results agree to a few parts in a million of the largest value.

# %% varies
shape = (16, 2, 1 << 17, 2)
voltages = random.integers(-60, 61, size=shape, dtype=np.int8).astype(np.float32).view(np.complex64)[..., 0]


def is_near(ours, theirs):
    return np.abs(ours - theirs).max() < 1e-5 * np.abs(ours).max()


spectra = compare("filter bank", lambda device: sd.channelize(voltages, 256, taps=8, device=device), is_near)
visibilities = compare(
    "correlation", lambda device: sd.correlate(spectra, device=device), lambda ours, theirs: is_near(ours.sums, theirs.sums)
)

# %%
print("spectra:", spectra.shape, "time, antenna, polarization, channel")
print("visibilities:", visibilities.sums.shape, "channel, pair of antennas, pair of polarizations")

# %% [markdown]
# The first call on a GPU compiles its kernels and keeps them in a cache, which is why each step runs twice here. Arrays travel from the memory of
# the host to the GPU and back in each call, and the times have this in them, so that small inputs are faster on the processor. The output kept here
# is of an H200 with 16 cores of its host and a build for tests: [performance](../src/performance.md) has the speed of a release.
#
# From here: [GPUs](../src/gpus.md) of the guide.
