# needs: gw
# %% [markdown]
# # GW150914: from strain to an event
#
# On 14 September 2015 the two LIGO detectors measured the merger of two black holes. *Strain* is the relative change of length of
# a detector's arms, 10⁻²¹ for this event, recorded 4096 times a second. This notebook finds the event in the public recordings of
# the Gravitational Wave Open Science Center; `tests/fetch_data.py` of the repository fetches them.

# %%
import json
import os
import pathlib
import subprocess

import matplotlib.pyplot as plt
import numpy as np
import sidereal_dsp as sd

plt.rcParams.update({"figure.dpi": 72, "figure.figsize": (8, 3.6)})
folder = pathlib.Path(os.environ["SIDEREAL_DATA"]) / "gw"
paths = [folder / "H-H1_LOSC_4_V2-1126259446-32.hdf5", folder / "L-L1_LOSC_4_V2-1126259446-32.hdf5"]

# %% [markdown]
# ## The strain
#
# H1 is the detector in Hanford, L1 that in Livingston. GPS time counts seconds since 1980.

# %%
strain = [sd.read_strain(path) for path in paths]
for one in strain:
    print(f"{one.detector}: {len(one) / one.sample_rate:.0f} s from GPS {one.t0:.0f}, {one.sample_rate} Hz, {one.valid.mean():.0%} valid")

# %% [markdown]
# ## The noise
#
# The noise is far from equal at all frequencies: seismic below 20 Hz, lines of the mains and of the mirrors' suspensions, quantum
# noise above. Its power spectrum is the median of many short pieces, which a signal hardly moves.

# %%
psds = {one.detector: sd.estimate_psd(one.samples, one.sample_rate) for one in strain}
fig, ax = plt.subplots()
for name, psd in psds.items():
    ax.loglog(psd.frequencies[60:], np.sqrt(psd.densities[60:]), linewidth=0.8, label=name)
ax.set(xlim=(15, 2048), ylim=(1e-24, 1e-19), xlabel="frequency (Hz)", ylabel="amplitude (strain per √Hz)")
ax.legend()
plt.show()

# %% [markdown]
# ## White strain
#
# Dividing each frequency by its noise makes the noise white, with variance 1 in each sample. A filter from 43 to 300 Hz, made in NumPy for
# the picture alone, leaves what the eye can see: a wave whose frequency rises for a fifth of a second. Livingston saw it 7 ms before Hanford, and
# upside down, because of the directions of the arms.

# %%
def between(samples, rate, low, high):
    """Returns the part of a series between two frequencies."""
    spectrum, frequencies = np.fft.rfft(samples), np.fft.rfftfreq(len(samples), 1 / rate)
    spectrum[(frequencies < low) | (frequencies > high)] = 0
    return np.fft.irfft(spectrum, len(samples))


event = 1126259462.42
fig, ax = plt.subplots()
for one, sign in zip(strain, (1, -1)):
    white, _ = sd.whiten(one.samples, one.sample_rate, psds[one.detector], f_low=20)
    shown = between(white, one.sample_rate, 43, 300)
    begin = round((event - 0.2 - one.t0) * one.sample_rate)
    # Livingston is shown later by 7 ms.
    times = np.arange(-0.2, 0.1, 1 / one.sample_rate) + (0.007 if one.detector == "L1" else 0)
    ax.plot(times, sign * shown[begin : begin + len(times)], linewidth=1, label=one.detector if sign > 0 else f"−{one.detector}, 7 ms later")
ax.set(xlabel=f"time from GPS {event} (s)", ylabel="whitened strain")
ax.legend()
plt.show()

# %% [markdown]
# ## The search
#
# The search filters the strain of each detector with the waves of many binaries (*templates*), which it places between two masses; these are
# masses in the frame of the detector, larger than those of the source by the redshift. The signal-to-noise ratio (SNR) of both detectors at
# nearly the same time makes an event. To measure how often noise does the same, the search shifts the detectors in time
# against each other, 100 times.

# %%
events = sd.search_strain(strain, masses=(25, 50))
loudest = events[0]
print(f"GPS {loudest.gps:.3f}, network SNR {loudest.network_snr:.1f}")
print(f"template of {loudest.masses[0]:.1f} and {loudest.masses[1]:.1f} solar masses")
for name, trigger in loudest.triggers.items():
    print(f"{name}: SNR {trigger.snr:.1f}, {(trigger.gps - loudest.triggers['L1'].gps) * 1e3:.1f} ms after L1, xi-squared {trigger.xi2:.2f}")
print(f"false-alarm rate: {loudest.far_hz * 3600:.1f} per hour, and {events.background_time:.0f} s of shifted time")

# %% [markdown]
# Xi-squared tests whether the signal follows the template over time, and has a mean of 1 in noise. Half a minute is too short for a small
# false-alarm rate: one event in all of the shifted time is the least that can be measured. The LIGO and Virgo collaborations published
# an SNR of 23.7, detector-frame masses of about 39 and 32, and a delay of 6.9 ms.
#
# ## The same from the command line
#
# `sidereal spiir search` has the same events in its JSON document: every number is equal, to the last bit.

# %%
command = ["sidereal", "spiir", "search", *paths, "--masses", "25:50", "-o", "events", "--no-plots", "--json", "--quiet"]
document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
assert len(document["events"]) == len(events)
for ours, theirs in zip(events, document["events"]):
    for key in ("gps", "network_snr", "ranking", "far_hz", "template"):
        assert getattr(ours, key) == theirs[key], (key, ours, theirs)
    assert set(ours.triggers) == set(theirs["detectors"])
    for name, trigger in ours.triggers.items():
        for key in ("gps", "snr", "phase", "xi2"):
            assert getattr(trigger, key) == theirs["detectors"][name][key], (name, key)
print("equal:", len(events), "events")

# %% [markdown]
# From here: [a first binary](../src/first_binary.md) makes a sky map, [your own strain](../src/strain.md) is about templates and recordings.
