"""Filterbanks: SIGPROC, PSRFITS, FBH5."""

import io
import struct

import h5py
import hdf5plugin
import numpy

from seed_files.common import save
from seed_files.searches import series


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
        save("sigproc", f"valid_bits_{bits}.fil", sigproc(fields | {"nbits": bits}, data))
    save("sigproc", "valid_signed.fil", sigproc(fields | {"signed": b"\1"}, data))
    save("sigproc", "valid_two_ifs.fil", sigproc(fields | {"nifs": 2}, data))
    save("sigproc", "valid_ascending.fil", sigproc(fields | {"foff": 1.0}, data))
    save("sigproc", "cut_row.fil", sigproc(fields, data[:-3]))
    save("sigproc", "broken_no_data.fil", sigproc(fields, b""))
    save("sigproc", "broken_huge.fil", sigproc(fields | {"nchans": 2**31 - 1}, data))
    save("sigproc", "broken_nan.fil", sigproc(fields | {"fch1": float("nan"), "tsamp": -1.0}, data))
    save("sigproc", "broken_cut.fil", sigproc(fields, data)[:150])
    bare = {key: value for key, value in fields.items() if key not in ("fch1", "foff")}
    table = [1500.0 - c for c in range(8)]
    save("sigproc", "valid_table.fil", sigproc(bare, data, table))
    save("sigproc", "broken_empty.fil", b"")
    series = {
        "telescope_id": 6, "data_type": 2, "source_name": "B0833-45", "refdm": 67.99,
        "tstart": 58543.5, "tsamp": 1e-3, "fch1": 1500.0, "foff": -1.0, "nchans": 1,
        "nbits": 32, "nifs": 1, "barycentric": 0,
    }  # fmt: skip
    floats = numpy.arange(20, dtype="<f4").tobytes()
    save("tim", "valid_float.tim", sigproc(series, floats))
    save("tim", "valid_byte.tim", sigproc(series | {"nbits": 8, "signed": b"\1"}, floats))
    save("tim", "valid_unsigned.tim", sigproc(series | {"nbits": 8, "signed": b"\0"}, floats))
    save("tim", "broken_wide.tim", sigproc(series | {"nbits": 16}, floats[:-1]))
    save("tim", "broken_cut.tim", sigproc(series, floats)[:200])


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


def psrfits(bits=8, channels=4, polarizations=1, times=8, order="AA+BB", rows=3, renamed=(), **more):
    primary = cards([
        ("SIMPLE", True), ("BITPIX", 8), ("NAXIS", 0), ("EXTEND", True), ("FITSTYPE", "PSRFITS"),
        ("OBS_MODE", "SEARCH"), ("TELESCOP", "Parkes"), ("SRC_NAME", "J0000"), ("RA", "05:34:31.9"),
        ("DEC", "+22:00:52"), ("OBSFREQ", 1498.5), ("OBSBW", -4.0), ("OBSNCHAN", channels),
        ("STT_IMJD", 58543), ("STT_SMJD", 43200), ("STT_OFFS", 0.5),
    ])  # fmt: skip
    data = channels * polarizations * times * bits // 8
    both = channels * polarizations
    floats = struct.pack(f">{data // 4}f", *range(data // 4)) if bits == 32 else None
    kind = f"{data // 4}E" if bits == 32 else f"{data}B"
    columns = [
        ("TSUBINT", "1D", struct.pack(">d", times * 1e-3)),
        ("OFFS_SUB", "1D", None),
        ("DAT_FREQ", f"{channels}E", struct.pack(f">{channels}f", *(1500.0 - c for c in range(channels)))),
        ("DAT_WTS", f"{channels}E", struct.pack(f">{channels}f", *[1.0] * channels)),
        ("DAT_OFFS", f"{both}E", struct.pack(f">{both}f", *[0.5] * both)),
        ("DAT_SCL", f"{both}E", struct.pack(f">{both}f", *[2.0] * both)),
        ("DATA", kind, floats or bytes(k % 251 for k in range(data))),
    ]
    middles = [struct.pack(">d", (row + 0.5) * times * 1e-3) for row in range(rows)]
    width = sum(len(content or middles[0]) for _, _, content in columns)
    pairs = [
        ("XTENSION", "BINTABLE"), ("BITPIX", 8), ("NAXIS", 2), ("NAXIS1", width), ("NAXIS2", rows),
        ("PCOUNT", 0), ("GCOUNT", 1), ("TFIELDS", len(columns)), ("EXTNAME", "SUBINT"),
        ("NPOL", polarizations), ("POL_TYPE", order), ("TBIN", 1e-3), ("NBITS", bits),
        ("NCHAN", channels), ("NSBLK", times), ("CHAN_BW", -1.0), ("NSUBOFFS", 0), ("ZERO_OFF", 0.0),
        ("SIGNINT", 0), ("INT_TYPE", "TIME"), ("NCHNOFFS", 0), ("NSTOT", times * rows),
    ]  # fmt: skip
    pairs = [(key, more.get(key, value)) for key, value in pairs]
    for at, (name, form, _) in enumerate(columns, 1):
        pairs += [(f"TTYPE{at}", dict(renamed).get(name, name)), (f"TFORM{at}", form)]
        if name == "DATA":
            pairs.append((f"TDIM{at}", f"({channels},{polarizations},{times * bits // 8 or 1})"))
    table = b"".join(content or middle for middle in middles for _, _, content in columns)
    return primary + cards(pairs) + table + bytes(-len(table) % 2880)


def fits():
    for bits in (1, 2, 4, 8, 16, 32):
        save("psrfits", f"valid_bits_{bits}.fits", psrfits(bits=bits, channels=8))
    save("psrfits", "valid_two_pol.fits", psrfits(polarizations=2, order="AABB"))
    save("psrfits", "valid_stokes.fits", psrfits(polarizations=4, order="IQUV"))
    save("psrfits", "valid_signed.fits", psrfits(SIGNINT=1))
    save("psrfits", "valid_one_row.fits", psrfits(rows=1, times=16))
    whole = psrfits()
    save("psrfits", "cut_row.fits", whole[: whole.index(b"TTYPE1") // 2880 * 2880 + 2880 + 150])
    save("psrfits", "broken_huge.fits", psrfits(NAXIS2=2**62, NCHAN=2**31))
    save("psrfits", "broken_negative.fits", psrfits(NSBLK=-1, TBIN=-1e-3))
    save("psrfits", "broken_cut.fits", psrfits()[:6000])


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
                save("bitshuffle", f"valid_{name}.bin", bytes([data.itemsize]) + chunk)
        save("fbh5", f"valid_{name}.h5", out.getvalue())
    save("bitshuffle", "broken_huge.bin", b"\4" + struct.pack(">QI", 2**40, 8192) + bytes(20))
