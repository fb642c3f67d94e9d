"""GUPPI raw and PSRDADA."""

from seed_files.common import save
from seed_files.filterbanks import cards


def guppi(packets, **more):
    fields = {
        "OBSFREQ": 1400.0, "OBSBW": -3.0, "OBSNCHAN": 3, "NPOL": 4, "NBITS": 8, "TBIN": 1e-6,
        "STT_IMJD": 60000, "STT_SMJD": 3600, "STT_OFFS": 0.5, "BLOCSIZE": 120, "PKTSIZE": 12,
        "OVERLAP": 0, "SRC_NAME": "J0000+00", "RA_STR": "05:34:31.9", "FD_POLN": "LIN",
    }  # fmt: skip
    out = b""
    for packet in packets:
        pairs = (fields | more | {"PKTIDX": packet}).items()
        header = cards(pairs).rstrip() + b" " * 77
        if more.get("DIRECTIO"):
            header += b" " * (-len(header) % 512)
        size = min(int((fields | more)["BLOCSIZE"]), 4096)
        out += header + bytes(k * 7 % 256 for k in range(size))
    return out


def dada(size=120, mark=True, **more):
    fields = {
        "HEADER": "DADA", "HDR_SIZE": 1024, "SOURCE": "J0000+00", "RA": "05:34:31.9", "FREQ": 1400.0,
        "BW": 3.0, "TSAMP": 1.0, "NBIT": 8, "NDIM": 2, "NPOL": 2, "NCHAN": 3, "OBS_OFFSET": 1200,
        "UTC_START": "2023-02-25-01:00:00.5", "MJD_START": "60000.04167245370", "FILE_SIZE": size,
    }  # fmt: skip
    text = "".join(f"{key} {value}\n" for key, value in (fields | more).items() if value is not None)
    text += "# end of header\n" if mark else ""
    return text.encode().ljust(1024, b"\0") + bytes(k * 7 % 256 for k in range(size))


def voltages():
    save("guppi", "valid_plain.raw", guppi([0, 10]))
    save("guppi", "valid_gap.raw", guppi([5, 15, 45]))
    save("guppi", "valid_overlap.raw", guppi([0, 8], OVERLAP=2))
    save("guppi", "valid_bits_4.raw", guppi([0], NBITS=4, PKTSIZE=6))
    save("guppi", "valid_bits_16.raw", guppi([0, 5], NBITS="16", PKTSIZE=24))
    save("guppi", "valid_directio.raw", guppi([0, 10], DIRECTIO="1"))
    save("guppi", "valid_antennas.raw", guppi([0, 1], NANTS=3, NPOL=1, PIPERBLK=1))
    save("guppi", "valid_synctime.raw", guppi([99, 109], SYNCTIME=1677283200, PKTSTART=89, NTVALID=9))
    save("guppi", "valid_real.raw", guppi([0], OBSNCHAN=1, NPOL=2, OBSBW=0.5))
    save("guppi", "valid_simple.raw", guppi([0], PKTFMT="SIMPLE", PFB_NCHN=64, PFB_NTAP=8, PFB_OVER="4/3"))
    save("guppi", "broken_huge.raw", guppi([2**63, 2**64 - 1], OBSNCHAN=2**40, NANTS=2**40, BLOCSIZE=2**62))
    save("guppi", "broken_far.raw", guppi([0, 2**62], TBIN=1e300, STT_SMJD=1e9))
    save("guppi", "cut_block.raw", guppi([0, 10])[:2800])
    save("dada", "valid_plain.dada", dada())
    save("dada", "valid_joined.dada", dada() + dada(OBS_OFFSET=1440))
    save("dada", "valid_bare.dada", dada(HEADER=None, mark=False, ENCODING="OFFSETBINARY", BW=-3.0))
    save("dada", "valid_meerkat.dada", dada(3072, HEADER=None, INSTRUMENT="MKBF", NCHAN=3))
    save("dada", "valid_heaps.dada", dada(ORDER="TAFTP", NANT=2, NCHAN=1, NPOL=1, RESOLUTION=20))
    save("dada", "valid_order.dada", dada(ORDER="TPF", NBIT=4))
    save("dada", "valid_real.dada", dada(NDIM=1, NBIT=16, ENDIAN="LITTLE"))
    save("dada", "valid_float.dada", dada(480, NBIT=32, PICOSECONDS=1234))
    save("dada", "cut_sample.dada", dada()[:-5])
    save("dada", "cut_file_size.dada", dada(FILE_SIZE=480))
    save("dada", "broken_huge.dada", dada(NCHAN=2**20, NANT=2**20, ORDER="TFAP", FILE_SIZE=2**64 - 1))
    save("dada", "broken_far.dada", dada(OBS_OFFSET=2**64 - 1, TSAMP=1e300))
    save("dada", "broken_cut.dada", dada()[:300])
