"""Arrays: delays of a direction, and correlation of recordings, as the command line's."""

import copy
import csv
import pickle

import numpy as np
import pytest

import sidereal_dsp as sd

SOURCE = (83.6, 22.0)
LIGHT = 299792458.0


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    """Return the recordings and positions of four antennas with a strong source."""
    folder = tmp_path_factory.mktemp("array") / "made"
    made = command(
        *("simulate", "array", "-o", folder, "--freq", 1400, "--bandwidth", 2, "--layout", "4,200"),
        *("--seconds", 0.3, "--source", f"{SOURCE[0]},{SOURCE[1]},500", "--seed", 3),
    )
    assert made.returncode == 0, made.stderr
    return folder


def files(folder):
    return sorted(folder.glob("ant*.dada"))


@pytest.fixture(scope="module")
def array(folder):
    return sd.Array.from_csv(folder / "antennas.csv")


def test_positions_are_those_of_the_file(folder, array):
    lines = [line for line in (folder / "antennas.csv").open() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert array.names == [row["name"] for row in rows] and len(array) == 4
    wanted = [[float(row[axis]) for axis in "xyz"] for row in rows]
    np.testing.assert_allclose(array.positions, wanted, atol=1e-6)


def test_delays_are_projections_of_the_baselines(array):
    from astropy.coordinates import SkyCoord
    from astropy.time import Time

    times = 60676.0 + np.array([0.0, 0.25, 0.6])
    seconds = sd.delays(array, SOURCE, times)
    assert seconds.shape == (3, 4)
    # Differences of two antennas are at most their distance in light travel time.
    for i in range(4):
        for j in range(i):
            distance = np.linalg.norm(array.positions[i] - array.positions[j])
            assert (np.abs(seconds[:, i] - seconds[:, j]) <= distance / LIGHT + 1e-12).all()
    # Astropy's apparent direction, in geocentric coordinates.
    from astropy import units
    from astropy.coordinates import ITRS, EarthLocation

    place = EarthLocation(*array.positions.mean(axis=0), unit=units.m)
    when = Time(times, format="mjd", scale="utc")
    towards = SkyCoord(*SOURCE, unit="deg").transform_to(ITRS(obstime=when, location=place))
    towards = towards.cartesian.xyz.value.T
    towards /= np.linalg.norm(towards, axis=1)[:, None]
    baseline = array.positions[1] - array.positions[0]
    np.testing.assert_allclose(seconds[:, 1] - seconds[:, 0], -towards @ baseline / LIGHT, atol=2e-11)
    same = sd.delays(array, SkyCoord(*SOURCE, unit="deg"), when)
    np.testing.assert_allclose(same, seconds, atol=1e-13)


def voltages(path):
    """Read a PSRDADA file of one channel and two polarizations with NumPy; axes: polarization and time."""
    raw = np.fromfile(path, np.int8, offset=4096).reshape(-1, 2, 2).astype(np.float32)
    return np.ascontiguousarray((raw[..., 0] + 1j * raw[..., 1]).T.astype(np.complex64))


def test_without_delays_it_is_the_filter_bank_and_the_correlator(folder, array):
    correlation = sd.correlate_files(files(folder), array, 16, bits=32, integration=0.1)
    x = np.stack([voltages(path) for path in files(folder)])
    spectra = sd.channelize(x, 16)
    each = round(correlation.integration * 2e6 / 16)
    made = list(correlation)
    assert len(made) == len(correlation) == 3
    for at, visibilities in enumerate(made):
        wanted = sd.correlate(spectra[at * each : (at + 1) * each])
        assert visibilities.spectra == wanted.spectra
        np.testing.assert_array_equal(visibilities.counts, wanted.counts)
        scale = np.abs(wanted.sums).max()
        np.testing.assert_allclose(visibilities.sums, wanted.sums, atol=1e-5 * scale)
        np.testing.assert_array_equal(visibilities.freqs, correlation.freqs)
        start = 60676.0 + (at + 0.5) * correlation.integration / 86400
        assert visibilities.mjd == pytest.approx(start, abs=1e-4 / 86400 * 1e3)
    np.testing.assert_array_equal(correlation.baselines, made[0].baselines)
    assert correlation.freqs[0] == 1399.0 and correlation.array.names == array.names


def test_a_tracked_source_has_phase_zero(folder, array):
    correlation = sd.correlate_files(files(folder), array, 16, phase_centre=SOURCE, integration=0.1)
    sums = sum(visibilities.sums for visibilities in correlation)
    crosses = sums[:, correlation.baselines[:, 0] != correlation.baselines[:, 1]]
    # XX and YY of all cross-correlations, but for the channel at the edges of the band.
    assert np.abs(np.angle(crosses[1:, :, [0, 3]])).max() < 0.2


def test_the_file_is_that_of_the_command_line(folder, array, command, tmp_path):
    h5py = pytest.importorskip("h5py")
    options = {"phase_centre": SOURCE, "integration": 0.1}
    sd.correlate_files(files(folder), array, 16, **options).write_uvh5(tmp_path / "own.uvh5")
    made = command(
        *("correlate", *files(folder), "--antennas", folder / "antennas.csv", "--channels", 16),
        *("--integration", 0.1, "--phase-centre", f"{SOURCE[0]},{SOURCE[1]}", "--device", "cpu"),
        *("-o", tmp_path / "other.uvh5", "--no-plots"),
    )
    assert made.returncode == 0, made.stderr
    with h5py.File(tmp_path / "own.uvh5") as own, h5py.File(tmp_path / "other.uvh5") as other:
        names = []
        own.visititems(lambda name, thing: names.append(name) if hasattr(thing, "dtype") else None)
        assert "Data/visdata" in names and len(names) > 20
        for name in names:
            # The command line's history has its provenance, too.
            if name != "Header/history":
                np.testing.assert_array_equal(own[name][()], other[name][()], err_msg=name)


def test_pyuvdata_reads_it(folder, array):
    pytest.importorskip("pyuvdata")
    data = sd.correlate_files(files(folder), array, 16, phase_centre=SOURCE, integration=0.1).to_uvdata()
    assert (data.Nbls, data.Nfreqs, data.Npols, data.Ntimes) == (10, 16, 4, 3)


def test_a_correlation_is_not_pickled(folder, array):
    correlation = sd.correlate_files(files(folder), array, 16, integration=0.1)
    with pytest.raises(TypeError, match="Correlation is neither pickled nor copied; call `correlate_files`"):
        pickle.dumps(correlation)
    with pytest.raises(TypeError, match="Integrations is neither pickled nor copied; the Visibilities"):
        copy.copy(iter(correlation))


def test_sources_by_name_and_parts_of_the_time(folder, array):
    named = dict(zip(array.names, files(folder), strict=True))
    reverse = {name: [named[name]] for name in reversed(array.names)}
    whole = list(sd.correlate_files(files(folder), array, 16, integration=0.1))
    for sources in [named, reverse]:
        again = list(sd.correlate_files(sources, array, 16, integration=0.1))
        np.testing.assert_array_equal(again[1].sums, whole[1].sums)
    short = sd.correlate_files(named, array, 16, integration=0.1, time_range=(0.0, 0.1))
    assert len(short) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f, a: sd.correlate_files(files(f)[:3], a, 16), "number of sources"),
        (lambda f, a: sd.correlate_files(5, a, 16), "path"),
        (lambda f, a: sd.correlate_files({"x": files(f)[0]}, a, 16), "x"),
        (lambda f, a: sd.correlate_files({3: files(f)[0]}, a, 16), "names of antennas"),
        (lambda f, a: sd.correlate_files([f / "none.dada"] * 4, a, 16), "none.dada"),
        (lambda f, a: sd.correlate_files(files(f), a, 0), "channels"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, bits=7), "bits"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, taps=0), "taps"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, window="x"), "window"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, integration=0), "integration"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, average_channels=5), "average"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, phase_centre=(1, 2, 3)), "phase_centre"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, phase_centre=(1, 200)), "declination"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, time_range=(1,)), "time_range"),
        (lambda f, a: sd.correlate_files(files(f), a, 16, device="x"), "device"),
        (lambda f, a: sd.delays(a, "x", 6e4), "direction"),
        (lambda f, a: sd.delays(a, SOURCE, [[6e4]]), "times"),
        (lambda f, a: sd.delays(a, SOURCE, 1.0), "1972|before"),
    ],
)
def test_wrong_arguments_are_named(folder, array, make, words):
    with pytest.raises((ValueError, OSError), match=words) as raised:
        make(folder, array)
    assert isinstance(raised.value, sd.SiderealError)


def test_a_wrong_table_is_named(tmp_path):
    path = tmp_path / "antennas.csv"
    path.write_text("name,x,y\na,1,2\n")
    with pytest.raises(sd.FormatError, match="antennas.csv"):
        sd.Array.from_csv(path)
    with pytest.raises(sd.FileError, match="none"):
        sd.Array.from_csv(tmp_path / "none.csv")
