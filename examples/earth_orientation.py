"""Makes src/geometry/earth_orientation.bin from the IERS's finals2000A.all.

    python examples/earth_orientation.py FINALS2000A.ALL DATE src/geometry/earth_orientation.bin

DATE is the day of the file, as in 2026-11-02. The file comes from the IERS
(https://datacenter.iers.org/data/9/finals2000A.all) or from the package astropy-iers-data. Bulletin B's
values are taken where there are any, else Bulletin A's, predictions at the end.

Out: one line of text, then 8 bytes a day, little endian: UT1 - TAI in 0.1 microseconds (i32), the
pole's x and y in 20 microarcseconds (i16).
"""

import pathlib
import struct
import sys

# Day (MJD) from which TAI - UTC is so many seconds; the IERS's Leap_Second.dat.
LEAPS = [
    (41683, 12), (42048, 13), (42413, 14), (42778, 15), (43144, 16), (43509, 17), (43874, 18),
    (44239, 19), (44786, 20), (45151, 21), (45516, 22), (46247, 23), (47161, 24), (47892, 25),
    (48257, 26), (48804, 27), (49169, 28), (49534, 29), (50083, 30), (50630, 31), (51179, 32),
    (53736, 33), (54832, 34), (56109, 35), (57204, 36), (57754, 37),
]  # fmt: skip


def days(text):
    """(MJD, whether measured, UT1 - UTC in s, x and y in arcseconds) of each day that has values."""
    for line in text.splitlines():
        if not line[58:68].strip():
            continue
        bulletin_b = line[154:165].strip()
        x, y = (line[134:144], line[144:154]) if bulletin_b else (line[18:27], line[37:46])
        yield int(float(line[7:15])), line[57] == "I", float(bulletin_b or line[58:68]), float(x), float(y)


def main(source, date, output):
    rows = list(days(pathlib.Path(source).read_text()))
    first, last = rows[0][0], rows[-1][0]
    assert [row[0] for row in rows] == list(range(first, last + 1))
    measured = max(row[0] for row in rows if row[1])
    out = (
        f"IERS finals2000A of {date}: UT1-TAI and the pole, MJD {first} to {last}, "
        f"predicted after {measured}\n"
    ).encode()
    for day, _, ut1_utc, x, y in rows:
        leap = max(seconds for start, seconds in LEAPS if start <= day)
        ut1_tai = round((ut1_utc - leap) * 1e7)
        out += struct.pack("<ihh", ut1_tai, round(x / 20e-6), round(y / 20e-6))
    pathlib.Path(output).write_bytes(out)
    print(f"{len(rows)} days, {len(out)} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
