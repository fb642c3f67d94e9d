"""Rates of a polyphase filter bank made with SciPy and NumPy, for `sidereal bench channelize --scipy FILE`.

    python benches/channelize_scipy.py [OUT.json]

One thread, 1024 channels, single-precision complex samples in and spectra out: the windowed sums as one sum
over the taps of whole arrays, and scipy.fft. Prints, and writes, the best rate of each number of taps in 10^6
samples a second.
"""

import json
import os
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import scipy.fft

CHANNELS = 1024
SPECTRA = 8192
SECONDS = 3.0


def prototype(taps):
    """sinc x symmetric Hann with sum 1, by tap and channel."""
    n = np.arange(taps * CHANNELS) - (taps * CHANNELS - 1) / 2
    window = np.sinc(n / CHANNELS) * np.hanning(taps * CHANNELS)
    return (window / window.sum()).astype(np.float32).reshape(taps, CHANNELS)


def channelize(samples, window):
    """All spectra of the samples, in the order of the transform."""
    taps = len(window)
    rows = samples.reshape(-1, CHANNELS)
    spectra = len(rows) - taps + 1
    sums = rows[:spectra] * window[0]
    for tap in range(1, taps):
        sums += rows[tap : tap + spectra] * window[tap]
    return scipy.fft.fft(sums, axis=1, overwrite_x=True, workers=1)


def main():
    generator = np.random.default_rng(1)
    rates = []
    for taps in (4, 8, 16, 32):
        count = 2 * (SPECTRA + taps - 1) * CHANNELS
        samples = generator.standard_normal(count, dtype=np.float32).view(np.complex64)
        window = prototype(taps)
        best, start = float("inf"), time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            began = time.perf_counter()
            spectra = channelize(samples, window)
            best = min(best, time.perf_counter() - began)
        row = np.fft.fft((samples.reshape(-1, CHANNELS)[:taps] * window).sum(axis=0))
        assert np.abs(spectra[0] - row).max() < 1e-5
        rates.append((taps, SPECTRA * CHANNELS / best * 1e-6))
        print(f"{CHANNELS} channels, {taps} taps: {rates[-1][1]:.1f} Msample/s")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump({"channels": CHANNELS, "rates": rates}, file)


if __name__ == "__main__":
    main()
