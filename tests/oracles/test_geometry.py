"""Our directions, delays, u, v, w and UT1 against pyerfa and astropy.

pyerfa is the original of the routines that we use, astropy a wrapper of its own round them. Cases are
random: times from 1975 to 2026, places, directions, antennas within some 10 km. Bounds: directions 1e-9 rad,
delays 1e-12 s, UT1 - UTC 0.2 ms.
"""

import numpy
import pytest
from conftest import BUILT, call, client

erfa = client("erfa")
client("astropy")

import astropy.units as u  # noqa: E402
from astropy.coordinates import AltAz, EarthLocation, SkyCoord  # noqa: E402
from astropy.time import Time  # noqa: E402
from astropy.utils import iers  # noqa: E402

iers.conf.auto_download = False
iers.conf.auto_max_age = None

CASES = 400
C = 299792458.0
JD = 2400000.5
# Moments round leap seconds: day, second.
LEAPS = [(57753, 86399.5), (57753, 86400.5), (57754, 0.5), (51178, 86400.25), (51179, 0.0)]


def draw_for(count):
    """Directions, places and antennas of so many cases."""
    return [numpy.resize(column, (count, *column.shape[1:])) for column in draw()[2:]]


def draw():
    random = numpy.random.default_rng(20261121)
    day = random.integers(42413, 61300, CASES)
    second = random.uniform(0, 86400, CASES)
    for case, (leap_day, leap_second) in enumerate(LEAPS):
        day[case], second[case] = leap_day, leap_second
    ra = random.uniform(0, 2 * numpy.pi, CASES)
    dec = numpy.arcsin(random.uniform(-1, 1, CASES))
    lon = random.uniform(-numpy.pi, numpy.pi, CASES)
    lat = numpy.arcsin(random.uniform(-1, 1, CASES))
    height = random.uniform(-100, 5000, CASES)
    reference = erfa.gd2gc(1, lon, lat, height)
    antenna = reference + random.uniform(-6000, 6000, (CASES, 3))
    return day, second, ra, dec, lon, lat, height, reference, antenna


def times_of(day, second):
    """astropy's Time; its Julian dates count a day with a leap second as 86401 s."""
    y, m, d, _ = erfa.jd2cal(JD, day.astype(float))
    hour = numpy.minimum(second // 3600, 23).astype(int)
    minute = numpy.minimum((second - 3600 * hour) // 60, 59).astype(int)
    jd = erfa.dtf2d("UTC", y, m, d, hour, minute, second - 3600 * hour - 60 * minute)
    return Time(*jd, format="jd", scale="utc")


@pytest.fixture(scope="module")
def cases():
    return draw()


def ours(cases, folder, dut1=None, table="table"):
    """What the example prints for each case, by name."""
    day, second, ra, dec, _, _, _, reference, antenna = cases
    path = folder / "cases.txt"
    lines = []
    for case in range(len(day)):
        numbers = [numpy.degrees(ra[case]), numpy.degrees(dec[case]), *reference[case], *antenna[case]]
        word = table if dut1 is None else repr(float(dut1))
        words = " ".join(repr(float(number)) for number in numbers)
        lines.append(f"{day[case]} {float(second[case])!r} {word} {words}\n")
    path.write_text("".join(lines))
    out = call(BUILT / "examples" / "geometry", path)
    rows = numpy.array([[float(word) for word in line.split()] for line in out.splitlines()])
    names = ["dut1", "x", "y", "z", "altitude", "azimuth", "delay", "polynomial", "u", "v", "w", "lst"]
    names += ["zenith_ra", "zenith_dec", "ra", "dec", "angle"]
    assert rows.shape == (len(day), len(names))
    found = dict(zip(names, rows.T, strict=True))
    found["itrf"] = rows[:, 1:4]
    return found


@pytest.fixture(scope="module")
def table(cases, tmp_path_factory):
    return ours(cases, tmp_path_factory.mktemp("table"))


def erfas(cases, dut1):
    """The source's hour angle, declination and right ascension by pyerfa, and its direction (ITRF)."""
    day, second, ra, dec, lon, lat, height, *_ = cases
    times = times_of(day, second)
    x, y = iers.earth_orientation_table.get().pm_xy(times)
    x, y = x.to_value(u.rad), y.to_value(u.rad)
    astrom, origins = erfa.apco13(times.jd1, times.jd2, dut1, lon, lat, height, x, y, 0, 0, 0, 0)
    cirs = erfa.atciqz(ra, dec, astrom)
    _, _, hour_angle, declination, right_ascension = erfa.atioq(*cirs, astrom)
    return erfa.s2c(lon - hour_angle, declination), declination, right_ascension - origins


def around(radians):
    return numpy.abs((radians + numpy.pi) % (2 * numpy.pi) - numpy.pi)


def test_ut1_is_the_iers(cases, table):
    times = times_of(cases[0], cases[1])
    assert numpy.abs(table["dut1"] - times.delta_ut1_utc).max() < 0.2e-3


def test_a_table_from_a_file_is_astropys(tmp_path):
    """finals2000A.all by our reader and by astropy's, bulletin A of both, over its last days."""
    path = client("astropy_iers_data").IERS_A_FILE
    read = iers.IERS_A.read(str(path))
    good = ~numpy.ma.getmaskarray(read["UT1_UTC_A"])
    days = read["MJD"].value[good].astype(int)
    picked = days[-600:-1]
    random = numpy.random.default_rng(7)
    second = random.uniform(0, 86400, len(picked))
    few = [picked, second, *draw_for(len(picked))]
    found = ours(few, tmp_path, table=str(path))
    dut1 = read["UT1_UTC_A"].to_value(u.s)[good]
    expected = numpy.interp(picked + second / 86400, days, dut1)
    assert numpy.abs(found["dut1"] - expected).max() < 1e-8


def test_directions_are_erfas(cases, table):
    times = times_of(cases[0], cases[1])
    direction, declination, right_ascension = erfas(cases, times.delta_ut1_utc)
    assert numpy.abs(table["itrf"] - direction).max() < 1e-9
    assert numpy.abs(numpy.radians(table["dec"]) - declination).max() < 1e-9
    off = around(numpy.radians(table["ra"]) - right_ascension) * numpy.cos(declination)
    assert off.max() < 1e-9


def test_a_given_ut1_is_used(cases, tmp_path):
    # Over a leap second UT1 - UTC is no one number.
    ordinary = tuple(part[len(LEAPS) :] for part in cases)
    found = ours(ordinary, tmp_path, dut1=0.125)
    assert (found["dut1"] == 0.125).all()
    direction, _, _ = erfas(ordinary, 0.125)
    assert numpy.abs(found["itrf"] - direction).max() < 1e-9


def test_delays_are_those_of_erfas_directions(cases, table):
    *_, reference, antenna = cases
    times = times_of(cases[0], cases[1])
    direction, _, _ = erfas(cases, times.delta_ut1_utc)
    delays = -numpy.sum((antenna - reference) * direction, axis=1) / C
    assert numpy.abs(table["delay"] - delays).max() < 1e-12
    assert numpy.abs(table["polynomial"] - table["delay"]).max() < 1e-13
    assert numpy.abs(table["w"] / C + table["delay"]).max() < 1e-18


def test_altitudes_and_azimuths_are_astropys(cases, table):
    day, second, ra, dec, lon, lat, height, *_ = cases
    place = EarthLocation.from_geodetic(lon * u.rad, lat * u.rad, height * u.m)
    sky = SkyCoord(ra * u.rad, dec * u.rad, frame="icrs")
    seen = sky.transform_to(AltAz(obstime=times_of(day, second), location=place))
    altitude, azimuth = numpy.radians(table["altitude"]), numpy.radians(table["azimuth"])
    assert numpy.abs(seen.alt.rad - altitude).max() < 2e-9
    assert (around(seen.az.rad - azimuth) * numpy.cos(altitude)).max() < 2e-9


def test_sidereal_time_is_astropys(cases, table):
    day, second, _, _, lon, *_ = cases
    times = times_of(day, second)
    lst = times.sidereal_time("apparent", longitude=lon * u.rad).rad
    assert around(lst - table["lst"]).max() < 1e-8


def test_u_and_v_follow_the_sources_about(cases, table):
    """A source a little to the north (the east) of the phase centre has w larger by v (u) times the arc."""
    day, second, ra, dec, *_, reference, antenna = cases
    times = times_of(day, second)
    arc = 1e-4
    for name, (d_ra, d_dec) in {"u": (arc, 0), "v": (0, arc)}.items():
        ends = []
        for sign in (-1, 1):
            centre = erfa.s2c(ra, dec)
            north = erfa.s2c(ra + numpy.pi, numpy.pi / 2 - dec)
            east = erfa.s2c(ra + numpy.pi / 2, numpy.zeros(CASES))
            moved = erfa.c2s(erfa.pn(centre + sign * (d_ra * east + d_dec * north))[1])
            shifted = (day, second, *moved, *cases[4:])
            ends.append(erfas(shifted, times.delta_ut1_utc)[0])
        step = (ends[1] - ends[0]) / (2 * arc)
        baseline = numpy.linalg.norm(antenna - reference, axis=1)
        off = numpy.abs(numpy.sum((antenna - reference) * step, axis=1) - table[name]) / baseline
        # Aberration squeezes the sky by up to one part in 10,000.
        assert off.max() < 2e-4


def test_u_v_w_are_pyuvdatas(cases, table):
    """Apparent places, the angle between the norths and u, v, w by pyuvdata, from the same UT1 and pole.

    pyuvdata measures the angle at the southern end of an arc, here a short one: with its usual arc of one
    degree u and v differ from ours by up to 1e-3 of the baseline near the poles.
    """
    phasing = client("pyuvdata.utils.phasing")
    day, second, ra, dec, lon, lat, height, reference, antenna = cases
    times = times_of(day, second)
    arc = 1e-5
    for case in range(0, CASES, 8):
        place = EarthLocation.from_geocentric(*reference[case], unit="m")
        source = {"time_array": times[case], "telescope_loc": place}
        app = phasing.transform_icrs_to_app(ra=ra[case], dec=dec[case], **source)
        app_ra, app_dec = (numpy.atleast_1d(angle) for angle in app)
        around_it = {"ref_frame": "icrs", "telescope_loc": place, "offset_pos": arc}
        jd = numpy.array([times[case].jd])
        angle = phasing.calc_frame_pos_angle(
            time_array=jd, app_ra=app_ra, app_dec=app_dec, **around_it
        )
        lst = numpy.array([table["lst"][case]])
        theirs = phasing.calc_uvw(
            **{"app_ra": app_ra, "app_dec": app_dec, "frame_pa": angle, "lst_array": lst},
            **{"ant_1_array": [0], "ant_2_array": [1], "antenna_numbers": [0, 1]},
            antenna_positions=numpy.array([numpy.zeros(3), antenna[case] - reference[case]]),
            **{"telescope_lat": place.lat.rad, "telescope_lon": place.lon.rad},
        )[0]
        ours = numpy.array([table[name][case] for name in "uvw"])
        baseline = numpy.linalg.norm(ours)
        assert abs(theirs[2] - ours[2]) < 1e-9 * baseline
        # The angle's own error: the arc, and what is left of the times' digits in one number.
        bound = (1e-9 + 2e-2 * arc / numpy.cos(app_dec[0])) * baseline
        assert numpy.abs(theirs - ours).max() < bound, (case, theirs - ours)
