"""OpenBLAS's cherk beside the X-engine, for `sidereal bench correlate --scipy PYTHON`.

Reads lines "INPUTS TIMES SECONDS", and answers each with the best rate in 10^9 operations a second: 8 for a
complex multiply-add, INPUTS x (INPUTS + 1) / 2 sums over TIMES. One thread, complex64, one triangle, into a
matrix that is there; whichever order of the samples is faster. Ends with its input.
"""

import os
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
from scipy.linalg.blas import cherk


def best(call, seconds):
    """The fewest seconds of all calls."""
    fewest, start = float("inf"), time.perf_counter()
    while fewest == float("inf") or time.perf_counter() - start < seconds:
        began = time.perf_counter()
        call()
        fewest = min(fewest, time.perf_counter() - began)
    return fewest


def main():
    generator = np.random.default_rng(1)
    shapes = {}
    for line in sys.stdin:
        inputs, times, seconds = line.split()
        inputs, times = int(inputs), int(times)
        if (inputs, times) not in shapes:
            numbers = generator.standard_normal((times, 2 * inputs), dtype=np.float32)
            samples = numbers.view(np.complex64)
            sums = np.zeros((inputs, inputs), dtype=np.complex64, order="F")
            columns = np.asfortranarray(samples)
            expected = samples[:, 0] @ samples[:, -1].conj()
            found = cherk(1.0, samples.T, lower=1, c=sums, overwrite_c=1)
            assert found is sums and abs(found[-1, 0].conj() - expected) < 1e-3 * times
            shapes[inputs, times] = (samples.T, columns, sums)
        rows, columns, sums = shapes[inputs, times]
        half = float(seconds) / 2
        fewest = min(
            best(lambda: cherk(1.0, rows, lower=1, c=sums, overwrite_c=1), half),
            best(lambda: cherk(1.0, columns, trans=2, lower=1, c=sums, overwrite_c=1), half),
        )
        print(8 * inputs * (inputs + 1) / 2 * times / fewest * 1e-9, flush=True)


if __name__ == "__main__":
    main()
