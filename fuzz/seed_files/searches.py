"""What searches are told and leave behind."""

import io
import struct

import numpy

from seed_files.common import save

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
    save("inf", "valid_plain.inf", (INF % "0").encode())
    save("inf", "valid_breaks.inf", (INF % breaks).encode())
    save("inf", "broken_cut.inf", (INF % "0").encode()[:400])
    save("inf", "broken_absurd.inf", (INF % "0").replace("=  5", "=  -99999999999999999999").encode())
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
        save("npy", f"{'broken' if name == 'scalar' else 'valid'}_{name}.npy", out.getvalue())
    out = io.BytesIO()
    numpy.lib.format.write_array(out, numpy.arange(4, dtype="<f4"), version=(2, 0))
    save("npy", "valid_version_2.npy", out.getvalue())
    save("npy", "broken_huge.npy", out.getvalue().replace(b"(4,)", b"(9999999999999999999,)"))


def masks():
    def mask(intervals, channels, zapped_channels=(), zapped_intervals=(), cells=None, counts=None):
        out = struct.pack("<6d", 10.0, 4.0, 58543.5, 1.5, 1100.0, 0.4)
        out += struct.pack("<3i", channels, intervals, 1024)
        for zapped in (zapped_channels, zapped_intervals):
            out += struct.pack(f"<{len(zapped) + 1}i", len(zapped), *zapped)
        cells = cells or [()] * intervals
        out += struct.pack(f"<{intervals}i", *(counts or map(len, cells)))
        return out + b"".join(struct.pack(f"<{len(cell)}i", *cell) for cell in cells)

    # An interval whose every channel is zapped has the count but no list.
    save("mask", "valid_empty.mask", mask(3, 16))
    save("mask", "valid_plain.mask", mask(3, 16, [2, 3], [1], [(2, 3), (), (2, 3, 9)], counts=[2, 16, 3]))
    save("mask", "broken_outside.mask", mask(1, 16, [99], [-1], [(2, 77)]))
    save("mask", "broken_huge.mask", mask(3, 16)[:48] + struct.pack("<4i", 2**31 - 1, 2**31 - 1, 1, 2**30))
    save("mask", "broken_cut.mask", mask(3, 16, [2, 3])[:70])


def texts():
    line = "12.5\t2041\t2.585\t1\t120\t475.284\t5\t2040\t2043"
    save("cand", "valid_one.cand", f"{line}\n".encode())
    save("cand", "valid_beams.cand", f"{line}\t1\t1\t3\t12.5\n".encode())
    save("cand", "broken_two.cand", f"# a comment\n{line}\n\n{line}\r\n".encode())
    save("cand", "broken_odd.cand", b"12.5 x nan\n-1\t99999999999999999999\t1e999\t-5\t0\t0\t0\t0\t0\n")
    numbers = (1400.0, 300.0, 64e-6, 0.0, 500.0, 0.1, 1.25, 64.0, 1024.0)
    save("dm_plan", "valid_paper.bin", struct.pack("<9d", *numbers))
    save("dm_plan", "valid_low.bin", struct.pack("<9d", 140.0, 80.0, 1e-3, 0.0, 100.0, 0.01, 1.1, 5.0, 64.0))
    save("dm_plan", "broken_odd.bin", struct.pack("<9d", 1400, 300, -1, 5, -5, 0, float("nan"), 1e300, -1))
