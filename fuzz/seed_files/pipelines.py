"""Options and data of pipelines, and coefficients of filter banks."""

import io
import random

import numpy

from seed_files.common import save


def pipelines():
    noise = random.Random(17)
    burst = bytearray(min(255, max(0, round(noise.gauss(96, 9)))) for _ in range(16 * 600))
    for channel in range(16):
        for time in range(300, 304):
            burst[16 * (time + channel // 4) + channel] = 180
    # Encoding, channels, step, sampling time, trials, flags, S/N, widths, baseline, gulp, and what flags add.
    save("search", "valid_burst.bin", bytes([3, 1, 0, 0, 20, 2, 3, 15, 100, 32]) + burst)
    save("search", "valid_options.bin", bytes([3, 1, 2, 3, 90, 15, 2, 7, 60, 99, 5]) + burst)
    save("search", "valid_bits.bin", bytes([0, 3, 1, 0, 20, 0, 3, 15, 100, 16]) + burst[:2400])
    floats = numpy.frombuffer(bytes(burst), "u1").astype("<f4")[:4800].tobytes()
    save("search", "valid_floats.bin", bytes([7, 1, 0, 1, 20, 3, 3, 15, 100, 40]) + floats)
    save("search", "broken_no_rows.bin", bytes([3, 1, 0, 0, 20, 2, 3, 15, 100, 32]))
    voltages = noise.randbytes(4096)
    # Antennas, encoding, recorded channels, flags, scale, channels, taps, oversampling, products, feed, sums, ...
    save("channelize", "valid_complex.bin", bytes([0, 1, 1, 2, 0, 4, 2, 0, 2, 1, 2]) + bytes(8) + voltages)
    save("channelize", "valid_over.bin", bytes([1, 7, 0, 3, 1, 2, 3, 1, 0, 0, 0, 0, 1, 0, 1, 0, 7, 1]) + voltages)
    save("channelize", "valid_coherent.bin", bytes([0, 4, 1, 0, 0, 5, 3, 0, 0, 0, 0, 0, 0, 1]) + bytes(4) + voltages * 4)
    # Encoding, recorded channels, flags, scale, antennas, channels, flags, taps, bank, bits, gains, integration, ...
    save("correlate", "valid_drift.bin", bytes([1, 1, 2, 0, 0, 3, 0, 3, 0, 0, 0, 20, 0, 5]) + voltages)
    save("correlate", "valid_tracked.bin", bytes([7, 0, 1, 0, 1, 2, 14, 1, 1, 1, 1, 9, 1, 0]) + voltages)
    save("correlate", "valid_floats.bin", bytes([4, 0, 0, 2, 0, 1, 1, 1, 2, 2, 0, 9, 0, 9]) + numpy.arange(2048, dtype="<f4").tobytes())
    strain = bytes(round(noise.gauss(0, 16)) % 256 for _ in range(4096))
    save("spiir_filter", "valid_noise.bin", bytes([0, 200, 0]) + strain)
    save("spiir_filter", "valid_minimum_phase.bin", bytes([1, 30, 0]) + strain)
    bad = bytearray(strain)
    bad[1000:1010] = b"\x7f" * 10
    bad[2000], bad[3000] = 0x80, 126
    save("spiir_filter", "valid_not_finite.bin", bytes([0, 77, 1]) + bad)



def kept():
    """Changes of what interrupted runs leave: where (in words), how (0 cut, 1 flip, 2 great, 3 small), with what."""
    save("saved_state", "valid_unchanged.bin", bytes(8))
    save("saved_state", "valid_flag.bin", bytes([3, 0, 1, 0]))
    save("saved_state", "broken_short.bin", bytes([40, 0, 0, 1]))
    save("saved_state", "broken_count.bin", bytes([1, 0, 2, 4]))
    # First, which checkpoint.
    for target in ("saved_search", "saved_series"):
        save(target, "valid_first.bin", bytes([0]))
        save(target, "valid_last.bin", bytes([22]))
        save(target, "valid_looks_back.bin", bytes([13]))
        save(target, "broken_short.bin", bytes([8, 1, 0, 0, 1]))
        save(target, "broken_rows.bin", bytes([8, 0, 0, 2, 0]))
    save("saved_search", "broken_candidates.bin", bytes([8, 1, 0, 2, 0]))
    save("saved_search", "broken_window.bin", bytes([8, 5, 0, 2, 0]))
    save("saved_series", "broken_times.bin", bytes([8, 2, 0, 2, 0]))
    save("saved_series", "valid_flagged.bin", bytes([8, 1, 0, 3, 9]))


def windows():
    coefficients = numpy.hanning(18)[1:-1]
    text = "# 2 taps, 8 points\n" + "\n".join(f"{value:.6f}" for value in coefficients)
    save("window_file", "valid_hann.txt", text.encode())
    out = io.BytesIO()
    numpy.save(out, coefficients)
    save("window_file", "valid_hann.npy", out.getvalue())
    save("window_file", "broken_count.txt", text.encode()[:-9])
    save("window_file", "broken_word.txt", text.replace("0.0", "O.0").encode())
    save("window_file", "broken_zeros.txt", b"0\n" * 16)
    save("window_file", "broken_infinite.txt", b"1e999\n" * 16)
    save("window_file", "broken_shape.npy", out.getvalue().replace(b"(16,)", b"(4,4)"))
