"""Makes src/geometry/earth_orientation.bin from the IERS's series 20 C04 and finals2000A.

    python examples/earth_orientation.py EOPC04 FINALS2000A.ALL DATE src/geometry/earth_orientation.bin

DATE is the day of the files, as in 2026-11-02. They come from the IERS
(https://hpiers.obspm.fr/eoppc/eop/eopc04/, https://datacenter.iers.org/data/9/finals2000A.all) or from
the package astropy-iers-data, which calls the first eopc04.1962-now. C04 is taken as far as it goes, then
finals2000A: Bulletin A, predictions at the end.

Out: one line of text, then 8 bytes a day, little endian: UT1 - TAI in 0.1 microseconds (i32), the
pole's x and y in 20 microarcseconds (i16).
"""

import pathlib
import struct
import sys

FIRST = 41317

# Day (MJD) from which TAI - UTC is so many seconds; the IERS's Leap_Second.dat.
LEAPS = [
    (41317, 10), (41499, 11), (41683, 12), (42048, 13), (42413, 14), (42778, 15), (43144, 16),
    (43509, 17), (43874, 18), (44239, 19), (44786, 20), (45151, 21), (45516, 22), (46247, 23),
    (47161, 24), (47892, 25), (48257, 26), (48804, 27), (49169, 28), (49534, 29), (50083, 30),
    (50630, 31), (51179, 32), (53736, 33), (54832, 34), (56109, 35), (57204, 36), (57754, 37),
]  # fmt: skip


def c04(text):
    """{MJD: (UT1 - UTC in s, x and y in arcseconds)}."""
    rows = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    return {int(float(row[4])): (float(row[7]), float(row[5]), float(row[6])) for row in rows}


def finals(text):
    """The same, and the last day that was measured."""
    lines = [line for line in text.splitlines() if line[58:68].strip()]
    measured = max(int(float(line[7:15])) for line in lines if line[57] == "I")
    columns = (slice(58, 68), slice(18, 27), slice(37, 46))
    return {int(float(line[7:15])): tuple(float(line[c]) for c in columns) for line in lines}, measured


def main(long_series, short_series, date, output):
    days = c04(pathlib.Path(long_series).read_text())
    until = max(days)
    recent, measured = finals(pathlib.Path(short_series).read_text())
    days |= {day: values for day, values in recent.items() if day > until}
    last = max(days)
    out = (
        f"IERS C04 (to MJD {until}) and finals2000A of {date}: UT1-TAI and the pole, "
        f"MJD {FIRST} to {last}, predicted after {measured}\n"
    ).encode()
    for day in range(FIRST, last + 1):
        ut1_utc, x, y = days[day]
        leap = max(seconds for start, seconds in LEAPS if start <= day)
        ut1_tai = round((ut1_utc - leap) * 1e7)
        out += struct.pack("<ihh", ut1_tai, round(x / 20e-6), round(y / 20e-6))
    pathlib.Path(output).write_bytes(out)
    print(f"{last + 1 - FIRST} days, {len(out)} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
