"""Compare `channelize` with `out=` from Python with the library's own call, on the same arrays.

    python python/benches/channelize.py [--mib 64] [--channels 1024] [--rounds 30] [--threads 0]

Both calls write to one array in one process, and begin in turn; the first of each is not counted. The library's call
is timed in Rust, and includes the plan, the filter bank and the end of both, as `channelize` does.
"""

import argparse
import statistics
import time

import numpy as np

import sidereal_dsp as sd
from sidereal_dsp import _sidereal


def measure(mib: int, channels: int, rounds: int, threads: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each call from Python, and of each call in Rust."""
    times = mib * 2**20 // (2 * 8)
    random = np.random.default_rng(1)
    x = random.normal(size=(2, times, 2)).astype(np.float32).view(np.complex64)[..., 0]
    expected = sd.channelize(x, channels, threads=threads)
    out = np.zeros_like(expected)
    python, rust = [], []

    def call_python() -> None:
        begin = time.perf_counter()
        sd.channelize(x, channels, out=out, threads=threads)
        python.append(time.perf_counter() - begin)

    def call_rust() -> None:
        rust.append(_sidereal._time_channelize(x, channels, out, threads))

    for number in range(rounds + 1):
        for call in (call_python, call_rust) if number % 2 == 0 else (call_rust, call_python):
            out[:] = 0
            call()
            np.testing.assert_array_equal(out, expected)
    return python[1:], rust[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="MiB of samples")
    parser.add_argument("--channels", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    python, rust = measure(**vars(arguments))
    for name, seconds in [("Python", python), ("Rust", rust)]:
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{name:7} median {1e3 * middle:8.2f} ms, least {1e3 * low:8.2f} ms, most {1e3 * high:8.2f} ms")
    print(f"ratio of the medians {statistics.median(python) / statistics.median(rust):.4f}")
    pairs = [ours / theirs for ours, theirs in zip(python, rust, strict=True)]
    print(f"median of the ratios {statistics.median(pairs):.4f}")


if __name__ == "__main__":
    main()
