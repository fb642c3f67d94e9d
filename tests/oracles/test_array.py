"""From the sky to the image: a simulated array is correlated, and pyuvdata, casacore and wsclean say where
its source is.
"""

import warnings

import numpy
import pytest
import visibilities
from conftest import client, sidereal

pyuvdata = client("pyuvdata")

ANTENNAS = 12
# Some 35 degrees off zenith, before it passes the meridian.
SOURCE = (110.0, 12.0)
# The phase centre of what is tracked beside the source.
CENTRE = (109.7, 12.25)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with each antenna's voltages: a source far stronger than the receivers."""
    folder = tmp_path_factory.mktemp("array") / "recorded"
    names = ("longitude_deg", "latitude_deg", "height_m")
    lines = [f"# {name}={x}" for name, x in zip(names, visibilities.LOCATION, strict=True)]
    lines.append("name,east,north,up,diameter")
    for number, enu in enumerate(visibilities.positions(ANTENNAS, 100.0)):
        lines.append(",".join(map(str, [f"ea{number:02}", *enu, 6.1])))
    positions = folder.parent / "positions.csv"
    positions.write_text("\n".join(lines) + "\n")
    sidereal(
        *("simulate", "array", "-o", folder, "--antennas", positions, "--seed", 5),
        *("--start", "2025-03-02T03:10:00", "--seconds", 2),
        *("--source", f"{SOURCE[0]},{SOURCE[1]},100,target", "--sefd", 2),
        *("--freq", 1400, "--bandwidth", 0.5, "--polarizations", 2),
    )
    return folder


@pytest.fixture(scope="module")
def correlated(recorded):
    """`correlated(name, *options)` is pyuvdata's reading of our visibilities, every warning an error."""
    done = {}

    def read(name, *options):
        if name not in done:
            path = recorded.parent / f"{name}.uvh5"
            sidereal(
                *("correlate", *sorted(recorded.glob("*.dada")), "-o", path, "--no-plots"),
                *("--antennas", recorded / "antennas.csv", "--channels", 32, "--taps", 4),
                *("--integration", 0.25, *options),
            )
            done[name] = path
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return pyuvdata.UVData.from_file(done[name])

    return read


def phases_deg(uvd):
    """Phases of XX and YY: axes baseline, all else; without channel 0, where both edges of the band fold."""
    pairs = [pair for pair in uvd.get_antpairs() if pair[0] != pair[1]]
    assert len(pairs) == ANTENNAS * (ANTENNAS - 1) // 2
    data = numpy.stack([uvd.get_data(*pair)[:, 1:, :2] for pair in pairs])
    flags = numpy.stack([uvd.get_flags(*pair)[:, 1:, :2] for pair in pairs])
    assert not flags.all(axis=(1, 2, 3)).any()
    angles = numpy.degrees(numpy.angle(data))
    return numpy.ma.masked_array(angles, flags).reshape(len(pairs), -1)


def worst_rms_deg(uvd):
    """The phase's root mean square about 0, of the worst baseline."""
    return numpy.sqrt((phases_deg(uvd) ** 2).mean(axis=1)).max()


def phased(uvd, ra, dec):
    copy = uvd.copy()
    copy.phase(
        lon=numpy.radians(ra), lat=numpy.radians(dec), phase_frame="icrs", cat_name="source"
    )
    return copy


def test_a_drift_scan_phased_by_pyuvdata_is_flat_at_the_source_only(correlated):
    uvd = correlated("drift", "--drift")
    assert uvd.Ntimes == 8 and uvd.Nbls == ANTENNAS * (ANTENNAS + 1) // 2
    assert worst_rms_deg(uvd) > 60
    assert worst_rms_deg(phased(uvd, *SOURCE)) < 1
    zenith_ra, zenith_dec = numpy.degrees(uvd.lst_array[0]), uvd.telescope.location.lat.deg
    for mirrored in [
        (2 * zenith_ra - SOURCE[0], SOURCE[1]),
        (2 * zenith_ra - SOURCE[0], 2 * zenith_dec - SOURCE[1]),
    ]:
        assert worst_rms_deg(phased(uvd, mirrored[0] % 360, mirrored[1])) > 60
    uvd.data_array = uvd.data_array.conj()
    assert worst_rms_deg(phased(uvd, *SOURCE)) > 60


def test_a_tracked_source_is_flat_over_band_and_time(correlated):
    uvd = correlated("tracked", "--phase-centre", "{},{}".format(*SOURCE))
    assert worst_rms_deg(uvd) < 1
    # Noise alone, once each baseline's mean is taken away.
    angles = phases_deg(uvd)
    assert (angles - angles.mean(axis=1, keepdims=True)).std(axis=1).max() < 0.3


def test_coordinates_are_pyuvdatas_own(correlated):
    uvd = correlated("beside", "--phase-centre", "{},{}".format(*CENTRE))
    again = phased(correlated("drift", "--drift"), *CENTRE)
    assert numpy.abs(uvd.uvw_array - again.uvw_array).max() < 1e-3
    # The largest diurnal aberration and its effect on the frame's angle.
    for name, bound in [("app_ra", 0.4), ("app_dec", 0.4), ("frame_pa", 4)]:
        ours, theirs = (getattr(one, f"phase_center_{name}") for one in (uvd, again))
        turned = (ours - theirs + numpy.pi) % (2 * numpy.pi) - numpy.pi
        assert numpy.degrees(numpy.abs(turned).max()) * 3600 < bound, name
    lst = uvd.lst_array.copy()
    uvd.set_lsts_from_time_array()
    assert numpy.abs(lst - uvd.lst_array).max() < 1e-7
    # What was tracked here is what pyuvdata makes of the drift scan: a degree, and rounding to 8 bits.
    ours, theirs = uvd.data_array[:, 1:, :2], again.data_array[:, 1:, :2]
    cross = uvd.ant_1_array != uvd.ant_2_array
    turns = numpy.angle(ours[cross] * theirs[cross].conj())
    assert numpy.degrees(numpy.abs(turns)).max() < 1.5


def test_an_image_shows_the_source_at_its_place(correlated, tmp_path):
    tables = client("casacore.tables")
    uvd = correlated("beside", "--phase-centre", "{},{}".format(*CENTRE))
    visibilities.write_ms(uvd, tmp_path / "array.ms")
    with tables.table(str(tmp_path / "array.ms"), ack=False) as table:
        assert table.nrows() == uvd.Nblts
    with tables.table(str(tmp_path / "array.ms::ANTENNA"), ack=False) as antennas:
        places = antennas.getcol("POSITION")
    own = uvd.telescope
    offsets = own.antenna_positions + numpy.array([x.value for x in own.location.geocentric])
    assert numpy.abs(places[own.antenna_numbers] - offsets).max() < 1e-3
    image = visibilities.wsclean(tmp_path / "array.ms", size=512, scale_arcsec=15)
    assert image.separation_arcsec(*SOURCE) < 0.1 * image.beam_arcsec
    mirrored = (2 * CENTRE[0] - SOURCE[0], 2 * CENTRE[1] - SOURCE[1])
    assert image.separation_arcsec(*mirrored) > 5 * image.beam_arcsec
