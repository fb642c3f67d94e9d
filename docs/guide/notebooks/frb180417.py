# needs: frb
# %% [markdown]
# # A real burst: FRB 180417
#
# A fast radio burst lasts some thousandths of a second and comes from another galaxy. On its way, free electrons delay it: low
# frequencies arrive after high ones. The *dispersion measure* (DM, in pc cm⁻³) is the number of electrons along the
# way, and the delay is proportional to it.
#
# This notebook searches a recording of FRB 180417, which the Australian SKA Pathfinder (ASKAP) detected on 17 April
# 2018. The recording, of antenna 28, is public; `tests/fetch_data.py` of the repository fetches it. `SIDEREAL_DATA` is the folder that it was
# fetched into.

# %%
import json
import os
import pathlib
import subprocess

import matplotlib.pyplot as plt
import numpy as np
import sidereal_dsp as sd

plt.rcParams.update({"figure.dpi": 72, "figure.figsize": (8, 3.6), "image.cmap": "magma"})
path = pathlib.Path(os.environ["SIDEREAL_DATA"]) / "frb" / "FRB180417_askap_28.fil"

# %% [markdown]
# ## The recording
#
# `open_filterbank` reads the header, `read` the samples: an array of power with the axes time and channel. The header's names of
# telescope and source are not those of the observation; the band and the sampling time are.

# %%
recording = sd.open_filterbank(path)
header, samples = recording.header, recording.read()
print(f"{header.nsamples} spectra of {header.nchans} channels, {header.nbits} bit, every {header.tsamp * 1e3:.3f} ms")
print(f"{header.freqs.min():.0f} to {header.freqs.max():.0f} MHz")
print(samples.shape, samples.dtype)

# %% [markdown]
# No burst is seen in the 6.5 s as they were recorded. What comes and goes at 1280 MHz is interference. Each channel is shown
# less its mean, in units of its standard deviation:

# %%
level, deviation = samples.mean(axis=0), samples.std(axis=0)
flat = (samples - level) / np.where(deviation > 0, deviation, 1)
extent = (0, header.nsamples * header.tsamp, header.freqs[-1], header.freqs[0])
fig, ax = plt.subplots()
# Means of 10 spectra and 4 channels: a picture has fewer dots than the recording has samples.
ax.imshow(flat[:5120].reshape(512, 10, 84, 4).mean(axis=(1, 3)).T, aspect="auto", extent=extent, vmin=-1, vmax=1)
ax.set(xlabel="time (s)", ylabel="frequency (MHz)", title="as recorded")
plt.show()

# %% [markdown]
# ## The search
#
# The DM is unknown, so the search tries many: for each, it shifts the channels by the delays and adds them to one series in time. In
# each series it looks for pulses of many widths. Detections of the same burst at neighbouring DMs, times and widths become one
# *candidate*, with the values of the best of them. Interference is removed first, by default.

# %%
found = sd.search(path, dm_max=1000)
for candidate in found:
    print(
        f"S/N {candidate.snr:5.2f}   DM {candidate.dm:6.1f}   {candidate.time:.4f} s   "
        f"{candidate.width * 1e3:.2f} ms wide   {candidate.members} detections"
    )
print(f"{len(found.dms)} DMs were tried; channels left out: {found.masked_channels}")

# %% [markdown]
# Published values of this antenna are a DM of 475.3 and an S/N of 16.8 (Heimdall, in the package `your`). The search above finds the
# nearest DM that it tried.
#
# ## The burst
#
# With the channels shifted by the delay of that DM, the burst is a vertical line over the whole band:

# %%
best = found[0]
# Delay of each channel against the highest, in samples. The constant is 4148.808 s MHz² per pc cm⁻³.
delays = 4148.808 * best.dm * (header.freqs**-2 - header.freqs.max() ** -2) / header.tsamp
begin, length = int(best.time / header.tsamp) - 60, 120
rows = begin + np.arange(length)[:, np.newaxis] + np.round(delays).astype(int)
aligned = flat[rows, np.arange(header.nchans)]
times = (begin + np.arange(length)) * header.tsamp

fig, (top, bottom) = plt.subplots(2, sharex=True, figsize=(8, 4.5), height_ratios=[1, 2])
top.step(times, aligned.mean(axis=1) * np.sqrt(header.nchans), where="mid")
top.set(ylabel="sum (S/N)", title=f"dedispersed at DM {best.dm:.1f}")
band = aligned.reshape(length, 42, 8).mean(axis=2).T
bottom.imshow(band, aspect="auto", extent=(times[0], times[-1], header.freqs[-1], header.freqs[0]), vmin=-1, vmax=1.5)
bottom.set(xlabel="time (s)", ylabel="frequency (MHz)")
plt.show()

# %% [markdown]
# A burst from the sky has its maximum at the DM of its way and is weaker at others. With steps of 1 in DM, and one series each, that
# is seen directly. Interference from Earth has its maximum at DM 0.

# %%
dms = np.arange(425, 526)
# The last second is left out: there the delays reach beyond the end of the data.
series = sd.dedisperse(samples, header.freqs, header.tsamp, dms)[:, : round(5.5 / header.tsamp)]
noise = 1.4826 * np.median(np.abs(series - np.median(series, axis=1, keepdims=True)), axis=1, keepdims=True)
near = ((series - np.median(series, axis=1, keepdims=True)) / noise)[:, begin : begin + length]
fig, ax = plt.subplots()
picture = ax.imshow(near, aspect="auto", origin="lower", extent=(times[0], times[-1], dms[0], dms[-1]))
fig.colorbar(picture, label="S/N of one sample")
ax.set(xlabel="time (s)", ylabel="DM (pc cm⁻³)")
plt.show()

# %% [markdown]
# ## The same from the command line
#
# `sidereal search` has the same candidates in its JSON document, whose numbers have nine decimal places. Rounded in the same
# way, every number is equal to the last bit.

# %%
command = ["sidereal", "search", path, "-o", "found", "--dm-max", "1000", "--no-plots", "--json"]
document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
names = {"dm": "dm", "time": "time_s", "snr": "snr", "width": "width_s", "members": "members"}
assert len(document["candidates"]) == len(found)
for ours, theirs in zip(found, document["candidates"]):
    for attribute, key in names.items():
        assert round(getattr(ours, attribute), 9) == theirs[key], (attribute, ours, theirs)
assert document["masked_channels"] == found.masked_channels
print("equal:", ", ".join(names.values()), "of", len(found), "candidates")

# %% [markdown]
# From here: [a first burst](../src/first_burst.md) and [interference](../src/interference.md) of the guide.
