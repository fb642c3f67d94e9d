# needs: baseband
# %% [markdown]
# # Voltages: spectra, and dispersion removed before detection
#
# A receiver can record voltages in place of powers. They keep the phase of the waves, so that the channels, the products of polarizations
# and the removal of dispersion can be chosen afterwards. This notebook divides a recording of the Arecibo telescope into channels,
# and then shows with a simulated pulse what *coherent dedispersion* gains.
#
# The recording is a sample of the pulsar backend PUPPI in GUPPI raw format. It is public; `tests/fetch_data.py` of the repository
# fetches it.

# %%
import os
import pathlib
import subprocess

import matplotlib.pyplot as plt
import numpy as np
import sidereal_dsp as sd

plt.rcParams.update({"figure.dpi": 72, "figure.figsize": (8, 3.4), "image.cmap": "magma"})
path = pathlib.Path(os.environ["SIDEREAL_DATA"]) / "baseband" / "sample_puppi.raw"


def sidereal(*words):
    """Runs a verb of the command line, which the package has too; returns what it prints."""
    return subprocess.run(["sidereal", *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


print(sidereal("info", path).partition("\n")[2])

# %% [markdown]
# ## Samples in an array
#
# The file has blocks, each with a header of lines of 80 characters. Samples are complex, one byte for the real and one for the imaginary
# part; the axes of a block are recorded channel, time and polarization. Neighbouring blocks overlap by 64 samples, which are left out here:

# %%
def blocks(path):
    """Yields the samples of each block without the overlap; axes: recorded channel, time, polarization, real and imaginary part."""
    with open(path, "rb") as file:
        while line := file.read(80).decode():
            header = {}
            while not line.startswith("END"):
                key, value = line.split("=", 1)
                header[key.strip()] = value.strip().strip("'").strip()
                line = file.read(80).decode()
            samples = np.frombuffer(file.read(int(header["BLOCSIZE"])), dtype=np.int8)
            samples = samples.reshape(int(header["OBSNCHAN"]), -1, 2, 2)
            yield samples[:, : samples.shape[1] - int(header["OVERLAP"])]


samples = np.concatenate(list(blocks(path)), axis=1)
# The bank wants the axes antenna, recorded channel, polarization and time.
voltages = samples.transpose(0, 2, 1, 3).astype(np.float32).view(np.complex64)[np.newaxis, ..., 0]
voltages = np.ascontiguousarray(voltages)
print(voltages.shape, voltages.dtype)

# %% [markdown]
# ## Spectra
#
# A polyphase filter bank divides each of the 4 recorded channels into 16. `detect="IQUV"` gives the Stokes parameters: the total power I, the
# linear polarization Q and U, and the circular one V. Eight spectra are added to one.

# %%
stokes = sd.channelize(voltages, 16, taps=4, detect="IQUV", integrate=8)
print(stokes.shape, "time, antenna, product, channel")
mean = stokes[:, 0].mean(axis=0)
fig, ax = plt.subplots()
for name, spectrum in zip("IQUV", mean):
    ax.step(np.arange(64), spectrum, where="mid", label=name)
ax.set(xlabel="channel", ylabel="power (counts²)", title="mean spectrum of the recording")
ax.legend(ncols=4)
plt.show()
assert np.all(mean[0] ** 2 >= (mean[1:] ** 2).sum(axis=0))

# %% [markdown]
# The filters of the telescope's own bank show: each recorded channel (16 new ones) is weak at its edges. The squares of Q, U and V add up to at most
# that of I.
#
# The command line makes the same of the file, and writes it as a filterbank that other pulsar programs read. It has read the header, so
# that it knows the frequencies:

# %%
options = ("--channels", 16, "--taps", 4, "--integrate", 8, "--stokes", "IQUV")
sidereal("channelize", path, "-o", "puppi.fil", *options)
header = sd.open_filterbank("puppi.fil").header
print(f"{header.source_name}: {header.nchans} channels, {header.freqs.min():.6f} to {header.freqs.max():.6f} MHz, every {header.tsamp} s")

# %% [markdown]
# ## Coherent dedispersion
#
# Dispersion delays low frequencies also *within* a channel, and no shift of channels after detection removes this smearing. While the phase
# is there, a filter removes it completely, for one DM: the inverse of the response of the interstellar medium. At 356 MHz and 250 Hz
# per channel the smearing is shorter than a sample of the recording above, so a simulated pulse shows it: 0.2 ms wide, at 430 MHz, DM 60.

# %%
pulse = "dm=60,time=0.4,width=0.0002,snr=40"
band = ("--freq", 430, "--bandwidth", 4, "--coarse-channels", 4, "--duration", 1)
sidereal("simulate", "voltages", "antenna.raw", *band, "--pulse", pulse, "--seed", 1)
sidereal("channelize", "antenna.raw", "-o", "blurred.fil", "--channels", 16, "--integrate", 8)
sidereal("channelize", "antenna.raw", "-o", "sharp.fil", "--channels", 16, "--integrate", 8, "--coherent-dm", 60)

blurred, sharp = sd.open_filterbank("blurred.fil"), sd.open_filterbank("sharp.fil")
header = sharp.header
low, width = header.freqs.min(), abs(header.freqs[1] - header.freqs[0])
smearing = 4148.808 * 60 * ((low - width / 2) ** -2 - (low + width / 2) ** -2)
print(f"{header.nchans} channels of {width * 1e3:.1f} kHz, every {header.tsamp * 1e6:.0f} µs")
print(f"smearing of DM 60 in the lowest channel: {smearing * 1e3:.2f} ms")

# %% [markdown]
# The same series, dedispersed between the channels, with and without the filter within them:

# %%
series = {}
for name, recording in (("after detection alone", blurred), ("within channels, too", sharp)):
    # The last 0.2 s are left out: there the delays reach beyond the end of the data.
    sum_of_channels = sd.dedisperse(recording.read(), header.freqs, header.tsamp, [60.0])[0, : round(0.8 / header.tsamp)]
    level = np.median(sum_of_channels)
    series[name] = (sum_of_channels - level) / (1.4826 * np.median(np.abs(sum_of_channels - level)))

fig, ax = plt.subplots()
for name, values in series.items():
    peak = values.argmax()
    ax.step((np.arange(peak - 20, peak + 21) - peak) * header.tsamp * 1e3, values[peak - 20 : peak + 21], where="mid", label=name)
ax.set(xlabel="time from the maximum (ms)", ylabel="deviations of the noise", title="one pulse, DM 60")
ax.legend()
plt.show()
blurred_peak, sharp_peak = (values.max() for values in series.values())
print(f"maximum: {blurred_peak:.1f} after detection alone, {sharp_peak:.1f} within channels, too")
assert sharp_peak > 1.3 * blurred_peak

# %% [markdown]
# A search does both at once. It reads voltages, divides them into channels, and removes the dispersion within these at one DM:

# %%
for name, more in (("without", ()), ("with   ", ("--coherent-dm", 60))):
    options = ("--channels", 16, "--integrate", 8, "--dm-max", 120, "--no-plots", "--overwrite", *more)
    sidereal("search", "antenna.raw", "-o", "found", *options)
    best = np.genfromtxt("found/candidates.csv", delimiter=",", names=True, dtype=None, encoding=None, ndmin=1)[0]
    print(f"{name} --coherent-dm: S/N {best['snr']:.1f} at DM {best['dm']:.1f}")

# %% [markdown]
# The S/N of the search grows less than the maximum, since without the filter a wider boxcar collects the smeared pulse. Widths, shapes and
# arrival times of pulses gain more.
#
# From here: [voltages](../src/first_burst.md#voltages) in the guide.
