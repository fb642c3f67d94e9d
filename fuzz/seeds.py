"""Writes the seed corpus: small valid files of each format, and some that are broken by hand.

    target/oracles/<hash>/bin/python fuzz/seeds.py

Needs NumPy, h5py and hdf5plugin (the oracle tests' environment has them). Inputs that once were
findings lie beside these under names that begin with `found_`; they are kept by hand.
"""

import gzip
import io
import pathlib
import random
import struct

import h5py
import hdf5plugin
import numpy

SEEDS = pathlib.Path(__file__).resolve().parent / "seeds"


def save(target, name, content):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def word(text):
    return struct.pack("<i", len(text)) + text.encode()


def sigproc(fields, data, table=()):
    out = word("HEADER_START")
    for key, value in fields.items():
        out += word(key)
        if isinstance(value, str):
            out += word(value)
        elif isinstance(value, bytes):
            out += value
        else:
            out += struct.pack("<i" if isinstance(value, int) else "<d", value)
    if len(table):
        out += word("FREQUENCY_START")
        out += b"".join(word("fchannel") + struct.pack("<d", mhz) for mhz in table)
        out += word("FREQUENCY_END")
    return out + word("HEADER_END") + data


def filterbanks():
    fields = {
        "telescope_id": 4, "machine_id": 0, "data_type": 1, "source_name": "J0000+00",
        "src_raj": 53431.9, "src_dej": -220052.0, "tstart": 58543.5, "tsamp": 1e-3,
        "fch1": 1500.0, "foff": -1.0, "nchans": 8, "nbits": 8, "nifs": 1,
    }  # fmt: skip
    data = bytes(range(96))
    for bits in (1, 2, 4, 8, 16, 32):
        save("sigproc", f"bits_{bits}.fil", sigproc(fields | {"nbits": bits}, data))
    save("sigproc", "signed.fil", sigproc(fields | {"signed": b"\1"}, data))
    save("sigproc", "two_ifs.fil", sigproc(fields | {"nifs": 2}, data))
    save("sigproc", "ascending.fil", sigproc(fields | {"foff": 1.0}, data))
    save("sigproc", "odd_end.fil", sigproc(fields, data[:-3]))
    save("sigproc", "no_data.fil", sigproc(fields, b""))
    save("sigproc", "huge.fil", sigproc(fields | {"nchans": 2**31 - 1}, data))
    save("sigproc", "nan.fil", sigproc(fields | {"fch1": float("nan"), "tsamp": -1.0}, data))
    save("sigproc", "cut.fil", sigproc(fields, data)[:150])
    bare = {key: value for key, value in fields.items() if key not in ("fch1", "foff")}
    table = [1500.0 - c for c in range(8)]
    save("sigproc", "table.fil", sigproc(bare, data, table))
    save("sigproc", "empty.fil", b"")
    series = {
        "telescope_id": 6, "data_type": 2, "source_name": "B0833-45", "refdm": 67.99,
        "tstart": 58543.5, "tsamp": 1e-3, "fch1": 1500.0, "foff": -1.0, "nchans": 1,
        "nbits": 32, "nifs": 1, "barycentric": 0,
    }  # fmt: skip
    floats = numpy.arange(20, dtype="<f4").tobytes()
    save("tim", "float.tim", sigproc(series, floats))
    save("tim", "byte.tim", sigproc(series | {"nbits": 8, "signed": b"\1"}, floats))
    save("tim", "unsigned.tim", sigproc(series | {"nbits": 8, "signed": b"\0"}, floats))
    save("tim", "wide.tim", sigproc(series | {"nbits": 16}, floats[:-1]))
    save("tim", "cut.tim", sigproc(series, floats)[:200])


INF = """ Data file name without suffix          =  series
 Telescope used                         =  GBT
 Instrument used                        =  VEGAS
 Object being observed                  =  J1807-0847
 J2000 Right Ascension (hh:mm:ss.ssss)  =  18:07:38.0000
 J2000 Declination     (dd:mm:ss.ssss)  =  -08:47:43.0000
 Data observed by                       =  Unknown
 Epoch of observation (MJD)             =  58543.500000000000000
 Barycentered?           (1 yes, 0 no)  =  0
 Number of bins in the time series      =  5
 Width of each time series bin (sec)    =  0.00016384
 Any breaks in the data? (1 yes, 0 no)  =  %s
 Type of observation (EM band)          =  Radio
 Beam diameter (arcsec)                 =  981
 Dispersion measure (cm-3 pc)           =  112.3802
 Central freq of low channel (Mhz)      =  1100.0
 Total bandwidth (Mhz)                  =  800
 Number of channels                     =  2048
 Channel bandwidth (Mhz)                =  0.390625
 Data analyzed by                       =  someone
 Any additional notes:
    Project ID unset.
"""


def series():
    breaks = "1\n On/Off bin pair # 1                    =  0, 3\n On/Off bin pair # 2 = 4, 4"
    save("inf", "plain.inf", (INF % "0").encode())
    save("inf", "breaks.inf", (INF % breaks).encode())
    save("inf", "cut.inf", (INF % "0").encode()[:400])
    save("inf", "absurd.inf", (INF % "0").replace("=  5", "=  -99999999999999999999").encode())
    for name, array in {
        "plane": numpy.arange(12, dtype="<f4").reshape(3, 4),
        "line": numpy.arange(5, dtype="<f8"),
        "bytes": numpy.arange(6, dtype="u1").reshape(2, 3),
        "fortran": numpy.asfortranarray(numpy.arange(6, dtype="<f4").reshape(2, 3)),
        "scalar": numpy.float32(1),
        "none": numpy.zeros((0, 3), "<f4"),
    }.items():
        out = io.BytesIO()
        numpy.save(out, array)
        save("npy", f"{name}.npy", out.getvalue())
    out = io.BytesIO()
    numpy.lib.format.write_array(out, numpy.arange(4, dtype="<f4"), version=(2, 0))
    save("npy", "version_2.npy", out.getvalue())
    save("npy", "huge.npy", out.getvalue().replace(b"(4,)", b"(9999999999999999999,)"))


def masks():
    def mask(intervals, channels, zapped_channels=(), zapped_intervals=(), cells=None):
        out = struct.pack("<6d", 10.0, 4.0, 58543.5, 1.5, 1100.0, 0.4)
        out += struct.pack("<3i", channels, intervals, 1024)
        for zapped in (zapped_channels, zapped_intervals):
            out += struct.pack(f"<{len(zapped) + 1}i", len(zapped), *zapped)
        cells = cells or [()] * intervals
        out += struct.pack(f"<{intervals}i", *map(len, cells))
        return out + b"".join(struct.pack(f"<{len(cell)}i", *cell) for cell in cells)

    save("mask", "empty.mask", mask(3, 16))
    save("mask", "plain.mask", mask(3, 16, [2, 3], [1], [(2, 3), tuple(range(16)), (2, 3, 9)]))
    save("mask", "outside.mask", mask(1, 16, [99], [-1], [(2, 77)]))
    save("mask", "huge.mask", mask(3, 16)[:48] + struct.pack("<4i", 2**31 - 1, 2**31 - 1, 1, 2**30))
    save("mask", "cut.mask", mask(3, 16, [2, 3])[:70])


def cards(pairs):
    out = ""
    for key, value in pairs:
        if isinstance(value, bool):
            text = f"{'T' if value else 'F':>20}"
        elif isinstance(value, str):
            text = f"'{value:<8}'"
        else:
            text = f"{value:>20}"
        out += f"{key:<8}= {text}".ljust(80)
    out += "END".ljust(80)
    return (out + " " * (-len(out) % 2880)).encode()


def psrfits(bits=8, channels=4, polarizations=1, times=8, order="AA+BB", rows=2, **more):
    primary = cards([
        ("SIMPLE", True), ("BITPIX", 8), ("NAXIS", 0), ("EXTEND", True), ("FITSTYPE", "PSRFITS"),
        ("OBS_MODE", "SEARCH"), ("TELESCOP", "Parkes"), ("SRC_NAME", "J0000"), ("RA", "05:34:31.9"),
        ("DEC", "+22:00:52"), ("OBSFREQ", 1498.5), ("OBSBW", -4.0), ("OBSNCHAN", channels),
        ("STT_IMJD", 58543), ("STT_SMJD", 43200), ("STT_OFFS", 0.5),
    ])  # fmt: skip
    data = channels * polarizations * times * bits // 8
    both = channels * polarizations
    columns = [
        ("TSUBINT", "1D", struct.pack(">d", times * 1e-3)),
        ("OFFS_SUB", "1D", struct.pack(">d", times * 0.5e-3)),
        ("DAT_FREQ", f"{channels}E", struct.pack(f">{channels}f", *(1500.0 - c for c in range(channels)))),
        ("DAT_WTS", f"{channels}E", struct.pack(f">{channels}f", *[1.0] * channels)),
        ("DAT_OFFS", f"{both}E", struct.pack(f">{both}f", *[0.5] * both)),
        ("DAT_SCL", f"{both}E", struct.pack(f">{both}f", *[2.0] * both)),
        ("DATA", f"{data}B", bytes(k % 251 for k in range(data))),
    ]
    width = sum(len(content) for _, _, content in columns)
    pairs = [
        ("XTENSION", "BINTABLE"), ("BITPIX", 8), ("NAXIS", 2), ("NAXIS1", width), ("NAXIS2", rows),
        ("PCOUNT", 0), ("GCOUNT", 1), ("TFIELDS", len(columns)), ("EXTNAME", "SUBINT"),
        ("NPOL", polarizations), ("POL_TYPE", order), ("TBIN", 1e-3), ("NBITS", bits),
        ("NCHAN", channels), ("NSBLK", times), ("CHAN_BW", -1.0), ("NSUBOFFS", 0), ("ZERO_OFF", 0.0),
        ("SIGNINT", 0), ("INT_TYPE", "TIME"), ("NCHNOFFS", 0), ("NSTOT", times * rows),
    ]  # fmt: skip
    pairs = [(key, more.get(key, value)) for key, value in pairs]
    for at, (name, form, _) in enumerate(columns, 1):
        pairs += [(f"TTYPE{at}", name), (f"TFORM{at}", form)]
        if name == "DATA":
            pairs.append((f"TDIM{at}", f"({channels},{polarizations},{times * bits // 8 or 1})"))
    table = b"".join(content for _, _, content in columns) * rows
    return primary + cards(pairs) + table + bytes(-len(table) % 2880)


def fits():
    for bits in (1, 2, 4, 8, 16, 32):
        save("psrfits", f"bits_{bits}.fits", psrfits(bits=bits, channels=8))
    save("psrfits", "two_pol.fits", psrfits(polarizations=2, order="AABB"))
    save("psrfits", "stokes.fits", psrfits(polarizations=4, order="IQUV"))
    save("psrfits", "signed.fits", psrfits(SIGNINT=1))
    save("psrfits", "huge.fits", psrfits(NAXIS2=2**62, NCHAN=2**31))
    save("psrfits", "negative.fits", psrfits(NSBLK=-1, TBIN=-1e-3))
    save("psrfits", "cut.fits", psrfits()[:6000])


def hdf5():
    for name, options in {
        "plain": {},
        "bitshuffle": hdf5plugin.Bitshuffle(nelems=0, cname="lz4"),
        "bitshuffle_bytes": hdf5plugin.Bitshuffle(nelems=0, cname="lz4"),
        "gzip": {"compression": "gzip"},
    }.items():
        kind = "u1" if name == "bitshuffle_bytes" else "<f4"
        data = numpy.arange(32 * 16).reshape(32, 1, 16).astype(kind)
        out = io.BytesIO()
        with h5py.File(out, "w") as file:
            file.attrs["CLASS"] = "FILTERBANK"
            file.attrs["VERSION"] = "1.0"
            chunks = {} if name == "plain" else {"chunks": (16, 1, 16)}
            made = file.create_dataset("data", data=data, **chunks, **options)
            for key, value in {
                "fch1": 1500.0, "foff": -1.0, "nchans": 16, "nifs": 1, "nbits": 8 * data.itemsize,
                "tsamp": 1e-3, "tstart": 58543.5, "source_name": "J0000", "telescope_id": 6,
                "src_raj": 5.5, "src_dej": 22.0, "machine_id": 20, "data_type": 1,
            }.items():  # fmt: skip
                made.attrs[key] = value
            file.create_dataset("mask", data=numpy.zeros((32, 1, 16), "u1"))
            if name.startswith("bitshuffle"):
                chunk = made.id.read_direct_chunk((0, 0, 0))[1]
                save("bitshuffle", f"{name}.bin", bytes([data.itemsize]) + chunk)
        save("fbh5", f"{name}.h5", out.getvalue())
    save("bitshuffle", "huge.bin", b"\4" + struct.pack(">QI", 2**40, 8192) + bytes(20))


def texts():
    line = "12.5\t2041\t2.585\t1\t120\t475.284\t5\t2040\t2043"
    save("cand", "one.cand", f"{line}\n".encode())
    save("cand", "beams.cand", f"{line}\t1\t1\t3\t12.5\n".encode())
    save("cand", "two.cand", f"# a comment\n{line}\n\n{line}\r\n".encode())
    save("cand", "odd.cand", b"12.5 x nan\n-1\t99999999999999999999\t1e999\t-5\t0\t0\t0\t0\t0\n")
    numbers = (1400.0, 300.0, 64e-6, 0.0, 500.0, 0.1, 1.25, 64.0, 1024.0)
    save("dm_plan", "paper.bin", struct.pack("<9d", *numbers))
    save("dm_plan", "low.bin", struct.pack("<9d", 140.0, 80.0, 1e-3, 0.0, 100.0, 0.01, 1.1, 5.0, 64.0))
    save("dm_plan", "odd.bin", struct.pack("<9d", 1400, 300, -1, 5, -5, 0, float("nan"), 1e300, -1))


def antennas():
    place = "# telescope=Small\n# longitude_deg=21.4439\n# latitude_deg=-30.7130\n# height_m=1053\n"
    enu = "name,east,north,up,number,diameter,delay_ns\n"
    rows = 'a,-8.264,-207.29,8.6,0,13.5,-1.5\n"b, ""c""",1.25,171.7,8.4,7,,\nd,0,0,0\n'
    save("antennas", "enu.csv", f"{place}{enu}{rows}".encode())
    save("antennas", "no_place.csv", f"{enu}{rows}".encode())
    vla = "name,x,y,z\nea01,-1601188.99,-5042000.49,3554843.43\nea02,-1601225.23,-5041980.39,3554855.71\n"
    save("antennas", "itrf.csv", vla.encode())
    save("antennas", "itrf_place.csv", f"\ufeff{place}# a remark\r\n\r\n{vla}".encode())
    save("antennas", "local_as_itrf.csv", b"name,x,y,z\na,1,2,3\n")
    save("antennas", "quotes.csv", b'name,x,y,z\n"a,1,2,3\n"b"c,1,2,3\n')
    save("antennas", "huge.csv", b"name,east,north,up,number,delay_ns\na,1e999,-nan,inf,99999999999999999999,1e308\n")
    save("antennas", "twice.csv", f"{enu}a,1,2,3,0,,\na,1,2,3,0,,\n".encode())
    save("antennas", "cut.csv", f"{place}name,east,nor".encode())
    save("antennas", "empty.csv", b"")


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
        "edv_4": (4 << 24 | 2 << 16, sync, 1, 0), "edv_ab": (0xABADDEED, 0, 0x82119801, 0),
    }.items():  # fmt: skip
        channels = 1 if name == "edv_4" else 0
        save("vdif", f"{name}.vdif", b"".join(frames(extended=extended, channels=channels)))
    for bits in (1, 3, 4, 8, 12, 16):
        for kind, is_complex in (("real", 0), ("complex", 1)):
            made = frames(bits=bits, is_complex=is_complex, extended=plain)
            save("vdif", f"{kind}_{bits}.vdif", b"".join(made))
    pair = frames(threads=2, bits=4, channels=2, is_complex=1, extended=plain)
    save("vdif", "polarizations.vdif", b"".join(pair))
    save("vdif", "missing.vdif", b"".join(pair[:3] + pair[5:8] + pair[9:]))
    save("vdif", "shuffled.vdif", b"".join(random.Random(1).sample(pair, len(pair))))
    save("vdif", "twice.vdif", b"".join(pair + pair[:1]))
    save("vdif", "cut.vdif", b"".join(pair)[:-30])
    invalid = [frame(k, invalid=k % 2, extended=plain) for k in range(6)]
    save("vdif", "invalid.vdif", b"".join(invalid))
    seconds = [frame(k % 4, second=1000 + k // 4, extended=plain) for k in range(10)]
    save("vdif", "seconds.vdif", b"".join(seconds))
    stations = [frame(k // 2, station=700 + k % 2, extended=plain) for k in range(8)]
    save("vdif", "stations.vdif", b"".join(stations))
    save("vdif", "far.vdif", frame(0, extended=plain) + frame(0, second=2**30 - 1, extended=plain))
    save("vdif", "unknown.vdif", b"".join(frames(extended=(9 << 24, 0, 0, 0))))
    save("vdif", "huge.vdif", struct.pack("<8I", 0, 0, 31 << 24 | 0xFFFFFF, 0, *plain) + noise[:64])
    save("vdif", "empty.vdif", b"")

    def mark5b(number, second=0x19801, payload=noise[:10000], fraction=0):
        words = (0xABADDEED, number, 0x821 << 20 | second, fraction << 16)
        return struct.pack("<4I", *words) + payload

    fill = struct.pack("<I", 0x11223344) * 2500
    save("mark5b", "plain.m5b", mark5b(0) + mark5b(1, fraction=1) + mark5b(2, fraction=3))
    save("mark5b", "gap.m5b", mark5b(0) + mark5b(2, payload=fill) + mark5b(3, fraction=4))
    save("mark5b", "seconds.m5b", mark5b(9) + mark5b(0, 0x19802))
    save("mark5b", "lost.m5b", mark5b(0)[300:] + b"stray" + mark5b(1) + mark5b(2)[:5000])
    save("mark5b", "syncs.m5b", struct.pack("<I", 0xABADDEED) * 5100)
    save("mark5b", "digits.m5b", mark5b(0, 0xFFFFF))
    save("mark5b", "empty.m5b", b"")


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
    save("guppi", "plain.raw", guppi([0, 10]))
    save("guppi", "gap.raw", guppi([5, 15, 45]))
    save("guppi", "overlap.raw", guppi([0, 8], OVERLAP=2))
    save("guppi", "bits_4.raw", guppi([0], NBITS=4, PKTSIZE=6))
    save("guppi", "bits_16.raw", guppi([0, 5], NBITS="16", PKTSIZE=24))
    save("guppi", "directio.raw", guppi([0, 10], DIRECTIO="1"))
    save("guppi", "antennas.raw", guppi([0, 1], NANTS=3, NPOL=1, PIPERBLK=1))
    save("guppi", "synctime.raw", guppi([99, 109], SYNCTIME=1677283200, PKTSTART=89, NTVALID=9))
    save("guppi", "real.raw", guppi([0], OBSNCHAN=1, NPOL=2, OBSBW=0.5))
    save("guppi", "simple.raw", guppi([0], PKTFMT="SIMPLE", PFB_NCHN=64, PFB_NTAP=8, PFB_OVER="4/3"))
    save("guppi", "huge.raw", guppi([2**63, 2**64 - 1], OBSNCHAN=2**40, NANTS=2**40, BLOCSIZE=2**62))
    save("guppi", "far.raw", guppi([0, 2**62], TBIN=1e300, STT_SMJD=1e9))
    save("guppi", "cut.raw", guppi([0, 10])[:2800])
    save("dada", "plain.dada", dada())
    save("dada", "joined.dada", dada() + dada(OBS_OFFSET=1440))
    save("dada", "bare.dada", dada(HEADER=None, mark=False, ENCODING="OFFSETBINARY", BW=-3.0))
    save("dada", "meerkat.dada", dada(3072, HEADER=None, INSTRUMENT="MKBF", NCHAN=3))
    save("dada", "heaps.dada", dada(ORDER="TAFTP", NANT=2, NCHAN=1, NPOL=1, RESOLUTION=20))
    save("dada", "order.dada", dada(ORDER="TPF", NBIT=4))
    save("dada", "real.dada", dada(NDIM=1, NBIT=16, ENDIAN="LITTLE"))
    save("dada", "float.dada", dada(240, NBIT=32, PICOSECONDS=1234))
    save("dada", "huge.dada", dada(NCHAN=2**20, NANT=2**20, ORDER="TFAP", FILE_SIZE=2**64 - 1))
    save("dada", "far.dada", dada(OBS_OFFSET=2**64 - 1, TSAMP=1e300))
    save("dada", "cut.dada", dada()[:300])


def uvh5(**changes):
    """The smallest file of visibilities: two antennas, two channels, one row."""
    header = {
        "Nblts": 1, "Nfreqs": 2, "Nants_data": 2, "Nbls": 1, "Ntimes": 1, "longitude": 21.4,
        "latitude": -30.7, "altitude": 1050.0, "antenna_names": numpy.array([b"a", b"b"]),
        "freq_array": numpy.array([1e9, 2e9]), "channel_width": numpy.array([1e9, 1e9]),
        "polarization_array": numpy.array([-5], "i4"), "integration_time": numpy.array([2.0]),
        "time_array": numpy.array([2460000.5]), "telescope_name": numpy.bytes_("house"),
        "version": numpy.bytes_("1.2"), "phase_center_catalog/0/cat_type": numpy.bytes_("sidereal"),
        "phase_center_catalog/0/cat_name": numpy.bytes_("x"),
        "phase_center_catalog/0/cat_lon": 1.0, "phase_center_catalog/0/cat_lat": 0.5,
    }  # fmt: skip
    out = io.BytesIO()
    with h5py.File(out, "w", libver=changes.pop("libver", None)) as file:
        file["Data/visdata"] = numpy.zeros(changes.pop("shape", (1, 2, 1)), "c8")
        for name, value in (header | changes).items():
            if value is not None:
                file[f"Header/{name}"] = value
    return out.getvalue()


def uvh5_files():
    save("uvh5", "plain.uvh5", uvh5())
    save("uvh5", "latest.uvh5", uvh5(libver="latest"))
    old = {"shape": (1, 1, 2, 1), "freq_array": numpy.array([[1e9, 2e9]]), "channel_width": 1e9}
    save("uvh5", "version_1.uvh5", uvh5(**old))
    save("uvh5", "texts.uvh5", uvh5(telescope_name="house", antenna_names=["a", "b"]))
    save("uvh5", "bare.uvh5", uvh5(antenna_names=None))
    save("uvh5", "huge.uvh5", uvh5(Nbls=2**63 - 1, time_array=numpy.array([1e300])))
    save("uvh5", "cut.uvh5", uvh5()[:3000])


def ligolw(rows, columns, table="sngl_inspiral:table", head="<?xml version='1.0' encoding='utf-8'?>"):
    """A LIGO_LW document with one table of (name, type) columns."""
    fields = "".join(f'<Column Name="{name}" Type="{kind}"/>\n' for name, kind in columns)
    stream = f'<Stream Name="{table}" Type="Local" Delimiter=",">\n{rows}\n</Stream>'
    text = f'{head}\n<LIGO_LW>\n<Table Name="{table}">\n{fields}{stream}\n</Table>\n</LIGO_LW>\n'
    return text.encode()


def ligolw_files():
    new = [("sngl_inspiral:event_id", "int_8s"), ("ifo", "lstring"), ("mass1", "real_4")]
    rows = '0,"H1",1.4,\n1,"L\\"1&amp;&#65;\\\\",1e1'
    plain = ligolw(rows, new)
    save("ligolw", "plain.xml", plain)
    save("ligolw", "plain.xml.gz", gzip.compress(plain, mtime=0))
    save("ligolw", "cut.xml.gz", gzip.compress(plain, mtime=0)[:120])
    old = [("sngl_inspiralgroup:sngl_inspiral:event_id", "ilwd:char"), ("mass1", "real_8"), ("end_time", "int_4s")]
    name = "sngl_inspiralgroup:sngl_inspiral:table"
    save("ligolw", "old.xml", ligolw('"sngl_inspiral:event_id:0",inf,-5', old, name))
    save("ligolw", "empty_cells.xml", ligolw(",,1,\n7,\"\",", new))
    save("ligolw", "no_rows.xml", ligolw("", new))
    save("ligolw", "no_columns.xml", ligolw("1,2", []))
    save("ligolw", "short_row.xml", ligolw('0,"H1",1.4,1', new))
    save("ligolw", "open_quote.xml", ligolw('0,"H1,1.4', new))
    save("ligolw", "odd_type.xml", ligolw("1", [("a", "complex_16")]))
    laugh = '<!DOCTYPE LIGO_LW [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    save("ligolw", "entities.xml", ligolw("&b;", [("a", "lstring")], head=laugh))
    save("ligolw", "deep.xml", b"<LIGO_LW>" * 2000)
    save("ligolw", "bomb.xml.gz", gzip.compress(ligolw("," * (1 << 24), new), mtime=0))


def gwosc(times=640, rate=64, chunks=(100,), **changes):
    """The smallest file of strain in GWOSC's layout."""
    out = io.BytesIO()
    with h5py.File(out, "w", libver=changes.pop("libver", None)) as file:
        values = numpy.arange(times) * 1e-21
        packing = {"chunks": chunks, "compression": "gzip", "fletcher32": True} if chunks else {}
        series = file.create_dataset("strain/Strain", data=values, **packing)
        series.attrs["Xstart"] = changes.pop("start", 1126259446)
        series.attrs["Xspacing"] = changes.pop("spacing", 1 / rate)
        for group, name, bits in [("simple", "DQ", b"DATA CBC_CAT1"), ("injections", "Inj", b"NO_CBC_HW_INJ")]:
            mask = numpy.full(changes.get("seconds", times // rate), 3, "u4")
            mask[1:2] = 0
            file[f"quality/{group}/{name}mask"] = mask
            file[f"quality/{group}/{name}Shortnames"] = numpy.array(bits.split())
        file["meta/Detector"] = "H1"
        file["meta/GPSstart"] = 1126259446
    return out.getvalue()


def strain():
    save("strain", "gwosc.hdf5", gwosc())
    save("strain", "one_piece.hdf5", gwosc(chunks=None))
    save("strain", "latest.hdf5", gwosc(libver="latest"))
    save("strain", "short_mask.hdf5", gwosc(seconds=2))
    save("strain", "spacing.hdf5", gwosc(spacing=1e-300))
    save("strain", "start.hdf5", gwosc(start=2**62))
    save("strain", "cut.hdf5", gwosc()[:5000])
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file["strain"] = numpy.arange(100.0)
        file["strain"].attrs.update(x0=1e9, dx=0.25, channel="L1:STRAIN")
    save("strain", "gwpy.h5", out.getvalue())
    out = io.BytesIO()
    numpy.save(out, numpy.array([1.0, numpy.nan, numpy.inf, -1.0]))
    save("strain", "raw.npy", out.getvalue())
    save("strain", "raw_cut.npy", out.getvalue()[:-3])


def hdf5_of(datasets, attributes=None, **options):
    """An HDF5 file of data sets, with attributes by the path of what has them."""
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        for name, value in datasets.items():
            file[name] = value
        for path, found in (attributes or {}).items():
            file.require_group(path) if path not in file else None
            file[path].attrs.update(found)
    return out.getvalue()


def template_files():
    wave = numpy.sin(numpy.arange(40.0))
    rate = {"meta": {"fs": 4096, "m1": 30.0, "m2": 25.0}}
    rows = numpy.array([wave, wave[::-1]])
    save("templates", "two_rows.h5", hdf5_of({"template": rows.astype("f4")}, rate))
    save("templates", "pair.h5", hdf5_of({"a/plus": wave, "a/cross": wave}, {"a/plus": {"dt": 1 / 2048}}))
    save("templates", "pairs.h5", hdf5_of({"hp": rows, "hc": rows}, {"/": {"sample_rate": 512}}))
    save("templates", "complex.h5", hdf5_of({"h": rows.astype("c8"), "g": wave.astype("c16")}, libver="latest"))
    save("templates", "lonely.h5", hdf5_of({"plus": wave}))
    save("templates", "nothing.h5", hdf5_of({"data": wave.astype("i4")}))
    save("templates", "not_finite.h5", hdf5_of({"plus": wave, "cross": wave * numpy.nan}))
    bank = {"mass1": [30.0, 1.4], "mass2": [25.0, 1.4], "spin1z": [0.1, 0.0], "template_hash": [7, -7]}
    save("templates", "bank.hdf", hdf5_of(bank))
    save("templates", "bank_short.hdf", hdf5_of(bank | {"spin1z": [0.1]}))
    save("templates", "bank_across.hdf", hdf5_of(bank | {"spin1x": [0.1, 0.0]}))
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.create_dataset("template", data=rows, chunks=(1, 16), compression="gzip", shuffle=True)
        file["template"].attrs["rate"] = 4096
    save("templates", "chunks.h5", out.getvalue())
    save("templates", "chunks_cut.h5", out.getvalue()[:-200])
    save("templates", "masses.csv", b"# a bank\nname,mass1,mass2,spin1z\n\"a, b\",5,1.4,-0.5\n,3,2,\n")
    save("templates", "bad.csv", b"mass1,mass2\n1.4,1e5\n")
    columns = [("event_id", "int_8s"), ("mass1", "real_4"), ("mass2", "real_4"), ("spin1z", "real_4")]
    save("templates", "table.xml", ligolw("0,1.4,1.3,0.1,\n1,30,20,0", columns))
    old = [("sngl_inspiral:event_id", "ilwd:char"), ("mass1", "real_4"), ("mass2", "real_4")]
    save("templates", "old.xml.gz", gzip.compress(ligolw('"sngl_inspiral:event_id:3",1.4,1.3', old), mtime=0))


def psd_files():
    save("psd", "uniform.txt", b"# f S\n0 0\n0.5 1e-46\n1 2e-46\n")
    save("psd", "points.txt", b"10,1e-22\n% a remark\n20.5\t3e-23\n1000 4e-24")
    save("psd", "bad.txt", b"10 1e-22\n9 1e-22\n")
    save("psd", "close.txt", b"1 1\n1.0000000001 1\n1e300 1\n")
    save("psd", "huge.txt", b"0 1e300\n1e-300 1e-300\n")
    for name, array in (("columns", numpy.array([[0, 1.0], [1, 2], [2, 3]])), ("rows", numpy.array([[0, 1.0, 2], [1, 2, 3]]))):
        out = io.BytesIO()
        numpy.save(out, array)
        save("psd", f"{name}.npy", out.getvalue())


def bank_h5(**changes):
    """A filter bank of two templates; `changes` are data sets by name, without one for None."""
    out = io.BytesIO()
    scalars = ("fit", "placement_fit", "epsilon", "sigma_1mpc", "horizon_mpc", "peak_offset_s",
               "duration_s", "f_low_hz", "f_final_hz", "mass1_msun", "mass2_msun", "spin1z", "spin2z")  # fmt: skip
    sets = {f"templates/{name}": numpy.array([0.5, 2.0]) for name in scalars} | {
        "templates/name": numpy.array(["a", "b"], h5py.string_dtype()),
        "templates/autocorrelation_norm": numpy.ones(2, "f4"),
        "psd/densities": numpy.array([1e-46, 2e-46, 3e-46]),
        "filters/offset": numpy.array([0, 2, 3], "u8"),
        "filters/halvings": numpy.array([0, 1, 0], "u4"),
        "filters/delay": numpy.array([0, 7, 9], "u4"),
        "filters/a": numpy.full(3, 0.5 + 0.25j, "c8"),
        "filters/b": numpy.full(3, 1 - 1j, "c8"),
        "autocorrelation/offset": numpy.array([0, 1, 4], "u8"),
        "autocorrelation/values": numpy.ones(4, "c8"),
        "whitened/offset": numpy.zeros(3, "u8"),
        "options/name": numpy.array(["epsilon"], h5py.string_dtype()),
        "options/value": numpy.array([0.02]),
        "resampler/down": numpy.ones(3, "f4"),
    }
    with h5py.File(out, "w", libver=changes.pop("libver", None)) as file:
        file.attrs.update({"format": "sidereal filter bank", "version": changes.pop("version", 1), "rate_hz": 4096})
        for name, value in (sets | changes).items():
            if value is not None:
                file[name] = value
        file["psd"].attrs["spacing_hz"] = 0.25
        file["resampler"].attrs.update({"down_delay": 1, "up_delay": 0})
    return out.getvalue()


def bank_h5_files():
    save("bank_h5", "plain.h5", bank_h5())
    save("bank_h5", "latest.h5", bank_h5(libver="latest"))
    save("bank_h5", "version_9.h5", bank_h5(version=9))
    save("bank_h5", "cut.h5", bank_h5()[:5000])
    save("bank_h5", "falling.h5", bank_h5(**{"filters/offset": numpy.array([0, 3, 2], "u8")}))
    save("bank_h5", "far.h5", bank_h5(**{"whitened/offset": numpy.array([0, 0, 2**63], "u8")}))
    save("bank_h5", "short.h5", bank_h5(**{"filters/a": numpy.ones(2, "c8")}))
    save("bank_h5", "missing.h5", bank_h5(**{"templates/fit": None}))
    save("bank_h5", "not_finite.h5", bank_h5(**{"templates/fit": numpy.array([numpy.nan, 1])}))


if __name__ == "__main__":
    bank_h5_files()
    template_files()
    psd_files()
    ligolw_files()
    strain()
    uvh5_files()
    voltages()
    filterbanks()
    series()
    masks()
    fits()
    hdf5()
    texts()
    vlbi()
    antennas()
