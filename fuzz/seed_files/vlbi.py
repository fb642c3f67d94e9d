"""VDIF and Mark 5B."""

import random
import struct

from seed_files.common import save


def vlbi():
    noise = bytes(random.Random(3).randbytes(20000))

    def frame(number, thread=0, second=1000, bits=2, channels=0, is_complex=0, **more):
        edv = more.get("extended")
        header = struct.pack(
            "<4I",
            more.get("invalid", 0) << 31 | (edv is None) << 30 | second,
            40 << 24 | number,
            1 << 29 | channels << 24 | (64 + (16 if edv is None else 32)) // 8,
            is_complex << 31 | (bits - 1) << 26 | thread << 16 | more.get("station", 0x4161),
        )
        start = 64 * (number * 7 + thread)
        return header + (struct.pack("<4I", *edv) if edv else b"") + noise[start : start + 64]

    def frames(threads=1, count=6, **fields):
        each = ((number, thread) for number in range(count) for thread in range(threads))
        return [frame(number, thread, **fields) for number, thread in each]

    plain, sync = (0, 0, 0, 0), 0xACABFEED
    for name, extended in {
        "legacy": None, "edv_0": plain, "edv_1": (1 << 24 | 320, sync, 7, 8),
        "edv_2": (2 << 24 | 0xA5EA5 << 4, 0, 5, 0), "edv_3": (3 << 24 | 1 << 23 | 16, sync, 1, 2),
        "edv_4": (4 << 24 | 2 << 16, sync, 0xFFFFFFFF, 0xFFFFFFFF), "edv_ab": (0xABADDEED, 0, 0x82119801, 0),
    }.items():  # fmt: skip
        channels = 1 if name == "edv_4" else 0
        save("vdif", f"valid_{name}.vdif", b"".join(frames(extended=extended, channels=channels)))
    for bits in (1, 3, 4, 8, 12, 16):
        for kind, is_complex in (("real", 0), ("complex", 1)):
            made = frames(bits=bits, is_complex=is_complex, extended=plain)
            save("vdif", f"valid_{kind}_{bits}.vdif", b"".join(made))
    pair = frames(threads=2, bits=4, channels=2, is_complex=1, extended=plain)
    save("vdif", "valid_polarizations.vdif", b"".join(pair))
    save("vdif", "valid_missing.vdif", b"".join(pair[:3] + pair[5:8] + pair[9:]))
    save("vdif", "valid_shuffled.vdif", b"".join(random.Random(1).sample(pair, len(pair))))
    save("vdif", "broken_twice.vdif", b"".join(pair + pair[:1]))
    save("vdif", "cut_frame.vdif", b"".join(pair)[:-30])
    invalid = [frame(k, invalid=k % 2, extended=plain) for k in range(6)]
    save("vdif", "valid_invalid.vdif", b"".join(invalid))
    seconds = [frame(k % 4, second=1000 + k // 4, extended=plain) for k in range(10)]
    save("vdif", "valid_seconds.vdif", b"".join(seconds))
    stations = [frame(k // 2, station=700 + k % 2, extended=plain) for k in range(8)]
    save("vdif", "valid_stations.vdif", b"".join(stations))
    save("vdif", "broken_far.vdif", frame(0, extended=plain) + frame(0, second=2**30 - 1, extended=plain))
    save("vdif", "broken_unknown.vdif", b"".join(frames(extended=(9 << 24, 0, 0, 0))))
    save("vdif", "broken_huge.vdif", struct.pack("<8I", 0, 0, 31 << 24 | 0xFFFFFF, 0, *plain) + noise[:64])
    save("vdif", "broken_empty.vdif", b"")

    def mark5b(number, second=0x19801, payload=noise[:10000], fraction=0):
        words = (0xABADDEED, number, 0x821 << 20 | second, fraction << 16)
        return struct.pack("<4I", *words) + payload

    fill = struct.pack("<I", 0x11223344) * 2500
    save("mark5b", "valid_plain.m5b", mark5b(0) + mark5b(1, fraction=1) + mark5b(2, fraction=3))
    save("mark5b", "valid_gap.m5b", mark5b(0) + mark5b(2, payload=fill) + mark5b(3, fraction=4))
    save("mark5b", "valid_seconds.m5b", mark5b(9) + mark5b(0, 0x19802))
    save("mark5b", "cut_lost.m5b", mark5b(0)[300:] + b"stray" + mark5b(1) + mark5b(2)[:5000])
    save("mark5b", "cut_frame.m5b", mark5b(0) + mark5b(1) + mark5b(2)[:5000])
    save("mark5b", "broken_syncs.m5b", struct.pack("<I", 0xABADDEED) * 5100)
    save("mark5b", "broken_digits.m5b", mark5b(0, 0xFFFFF))
    save("mark5b", "broken_empty.m5b", b"")
