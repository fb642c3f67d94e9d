"""UVH5 as our writer makes it, read by h5py and pyuvdata.

Signs are settled from outside: what antennas would record of a source at a known place, by astropy's
direction, is written without tracking and phased by pyuvdata.
"""

import contextlib
import json
import shutil
import subprocess
import warnings

import h5py
import numpy
import pytest
import visibilities
from conftest import BUILT, client, sidereal
from visibilities import SOURCE, Sky, write, write_sky

pyuvdata = client("pyuvdata")

PAIRS = ["xx", "xy", "yx", "yy"]


@pytest.fixture
def read():
    """pyuvdata's reading of a file, with every warning an error."""

    def opened(path):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return pyuvdata.UVData.from_file(path)

    return opened


@pytest.fixture(scope="module")
def drift(tmp_path_factory):
    """A file of a drift scan that sees one source."""
    return write_sky(tmp_path_factory.mktemp("drift"), Sky())


def random_sums(sky, seed, full=50, pairs=4):
    """Sums and counts of every size, some counts 0: (time, baseline, channel, pair), (time, baseline, channel)."""
    random = numpy.random.default_rng(seed)
    shape = (sky.times, len(sky.baselines()), sky.channels)
    sums = random.normal(size=(*shape, pairs)) + 1j * random.normal(size=(*shape, pairs))
    counts = random.integers(0, full + 1, shape)
    counts[:, 1, :3] = 0
    sums *= 1000
    sums[counts == 0] = 0
    for baseline, (i, j) in enumerate(sky.baselines()):
        if i == j:
            sums[:, baseline, :, [0, pairs - 1]] = numpy.abs(sums[:, baseline, :, [0, pairs - 1]])
            if pairs == 4:
                sums[:, baseline, :, 2] = sums[:, baseline, :, 1].conj()
    return sums, counts


def phased(uvd, ra, dec):
    """A copy, phased by pyuvdata."""
    copy = uvd.copy()
    copy.phase(
        lon=numpy.radians(ra), lat=numpy.radians(dec), phase_frame="icrs", cat_name="source"
    )
    return copy


def worst_phase_deg(uvd):
    """The largest phase of XX and YY on any baseline, at any time, in any channel."""
    cross = uvd.ant_1_array != uvd.ant_2_array
    return numpy.degrees(numpy.abs(numpy.angle(uvd.data_array[cross][:, :, :2]))).max()


def test_a_drift_scan_phased_to_its_source_is_flat_and_to_the_mirrored_place_is_not(drift, read):
    uvd = read(drift)
    assert worst_phase_deg(uvd) > 90
    assert worst_phase_deg(phased(uvd, *SOURCE)) < 1
    # The same distance on the other side of the zenith and of the meridian.
    zenith_ra = numpy.degrees(uvd.lst_array[0])
    zenith_dec = uvd.telescope.location.lat.deg
    mirrored = (2 * zenith_ra - SOURCE[0]) % 360, 2 * zenith_dec - SOURCE[1]
    assert worst_phase_deg(phased(uvd, *mirrored)) > 90
    assert worst_phase_deg(phased(uvd, (2 * zenith_ra - SOURCE[0]) % 360, SOURCE[1])) > 90
    uvd.data_array = uvd.data_array.conj()
    assert worst_phase_deg(phased(uvd, *SOURCE)) > 90


def test_tracked_visibilities_are_what_pyuvdata_makes_of_a_drift_scan(tmp_path, read):
    sources = ((*SOURCE, 1.0), (SOURCE[0] + 0.8, SOURCE[1] - 0.5, 0.7))
    centre = (SOURCE[0] + 0.3, SOURCE[1] + 0.2)
    tracked = read(write_sky(tmp_path, Sky(sources=sources, tracked=centre)))
    drift = phased(read(write_sky(tmp_path, Sky(sources=sources))), *centre)
    assert numpy.abs(tracked.data_array - drift.data_array).max() < 0.02
    assert numpy.abs(tracked.uvw_array - drift.uvw_array).max() < 1e-3
    # Diurnal aberration, 0.3 arcseconds at most, is in pyuvdata's apparent place.
    second = numpy.radians(1 / 3600)
    for name, bound in [("app_ra", 0.4), ("app_dec", 0.4), ("frame_pa", 4)]:
        ours, theirs = (getattr(uvd, f"phase_center_{name}") for uvd in (tracked, drift))
        assert numpy.abs(ours - theirs).max() < bound * second, name


def test_u_v_w_and_sidereal_time_are_pyuvdatas_own(tmp_path, read):
    for tracked in (None, SOURCE):
        uvd = read(write_sky(tmp_path, Sky(tracked=tracked)))
        again = uvd.copy()
        with warnings.catch_warnings():
            # It asks whether visibilities should follow.
            warnings.simplefilter("ignore")
            again.set_uvws_from_antenna_positions(update_vis=False)
        assert numpy.abs(uvd.uvw_array - again.uvw_array).max() < 1e-4
        again.set_lsts_from_time_array()
        assert numpy.abs(uvd.lst_array - again.lst_array).max() < 1e-8


@pytest.mark.parametrize("numbers", [range(6), [50, 41, 3, 77, 4, 0]])
def test_every_visibility_is_where_it_belongs(tmp_path, read, numbers):
    sky = Sky(times=3)
    sums, counts = random_sums(sky, 1)
    uvd = read(write(tmp_path, sky, sums, counts, full_count=50, numbers=numbers))
    assert (uvd.ant_1_array <= uvd.ant_2_array).all()
    assert uvd.polarization_array.tolist() == [-5, -6, -7, -8]
    means = numpy.divide(sums, counts[..., None], out=0 * sums, where=counts[..., None] > 0)
    for baseline, (i, j) in enumerate(sky.baselines()):
        for pair, name in enumerate(PAIRS):
            # The file has conj(p_1) q_2, so p_i conj(q_j) stands at q_j, p_i.
            key = (numbers[j], numbers[i], name[::-1])
            numpy.testing.assert_allclose(
                uvd.get_data(*key), means[:, baseline, :, pair], rtol=1e-6, atol=0
            )
            fraction = (counts[:, baseline] / 50).astype("f4")
            numpy.testing.assert_array_equal(uvd.get_nsamples(*key), fraction)
            numpy.testing.assert_array_equal(uvd.get_flags(*key), counts[:, baseline] == 0)


def test_polarizations_belong_to_the_antennas_that_calibration_takes_them_for(tmp_path, read):
    """Voltages with gains of their own for each feed: pyuvdata's calibration must take them all away."""
    sky = Sky(times=2, channels=3)
    gains = 10 ** numpy.random.default_rng(2).uniform(-1, 1, (len(sky.enu), 2))
    pairs = numpy.array(sky.baselines())
    factors = numpy.einsum("bp,bq->bpq", gains[pairs[:, 0]], gains[pairs[:, 1]]).reshape(-1, 4)
    sums = numpy.broadcast_to(factors[None, :, None], (2, len(pairs), 3, 4)).astype(complex)
    counts = numpy.ones(sums.shape[:3], int)
    uvd = read(write(tmp_path, sky, sums, counts, full_count=1))
    cal = pyuvdata.UVCal.initialize_from_uvdata(
        uvd, gain_convention="divide", cal_style="redundant", cal_type="gain"
    )
    order = [["x", "y"].index(name[1]) for name in ("xx", "yy")]
    assert cal.jones_array.tolist() == [-5, -6]
    places = [list(uvd.telescope.antenna_numbers).index(number) for number in cal.ant_array]
    cal.gain_array = numpy.ones(cal._gain_array.expected_shape(cal), complex)
    cal.gain_array *= gains[places][:, None, None, order]
    cal.flag_array = numpy.zeros(cal.gain_array.shape, bool)
    cal.quality_array = numpy.ones(cal.gain_array.shape)
    calibrated = pyuvdata.utils.uvcalibrate(uvd, cal, inplace=False, time_check=False)
    numpy.testing.assert_allclose(calibrated.data_array, 1, rtol=1e-5)


def test_header(tmp_path, read):
    sky = Sky(tracked=SOURCE)
    changes = {"numbers": [3, 1, 4, 15, 9, 2], "keyword": "window text hann of 8 taps"}
    uvd = read(write_sky(tmp_path, sky, **changes))
    telescope = uvd.telescope
    assert telescope.name == "test-array"
    assert telescope.instrument == "sidereal"
    assert telescope.antenna_names.tolist() == [f"A{index}" for index in range(6)]
    assert telescope.antenna_numbers.tolist() == changes["numbers"]
    assert telescope.antenna_diameters.tolist() == [6.1] * 6
    assert set(telescope.mount_type) == {"alt-az"}
    assert telescope.get_x_orientation_from_feeds() == "east"
    numpy.testing.assert_allclose(telescope.antenna_positions, sky.itrf, atol=1e-9)
    numpy.testing.assert_allclose(telescope.get_enu_antpos(), sky.enu, atol=1e-6)
    numpy.testing.assert_allclose(uvd.freq_array, sky.frequencies, rtol=1e-15)
    assert set(uvd.channel_width) == {sky.step}
    assert set(uvd.integration_time) == {sky.integration}
    assert uvd.vis_units == "uncalib"
    assert "made for a test" in uvd.history
    assert uvd.extra_keywords == {"window": "hann of 8 taps"}
    times = numpy.unique(uvd.time_array)
    assert numpy.abs(times - sky.epochs.utc.jd).max() * 86400 < 1e-4
    assert uvd.timesys == "UTC" and uvd.rdate == "2025-03-02"
    assert abs(uvd.earth_omega - 360.9856) < 1e-3
    assert abs(uvd.dut1 - sky.dut1) < 1e-12
    # Sidereal time at Greenwich, from the reference day on, is the local one less the longitude.
    hours = (times[0] + 0.5) % 1
    greenwich = uvd.gst0 + hours * uvd.earth_omega
    assert abs((greenwich + sky.location[0] - sky.lst[0] + 180) % 360 - 180) < 1e-2
    (centre,) = uvd.phase_center_catalog.values()
    assert centre["cat_type"] == "sidereal" and centre["cat_frame"] == "icrs"
    numpy.testing.assert_allclose(numpy.degrees([centre["cat_lon"], centre["cat_lat"]]), SOURCE)


def test_averages_are_weighted_by_the_valid_fraction(tmp_path, read):
    # What is tracked is averaged as it stands.
    sky = Sky(times=4, tracked=SOURCE)
    sums, counts = random_sums(sky, 7)
    uvd = read(write(tmp_path, sky, sums, counts, full_count=50))
    uvd.frequency_average(n_chan_to_avg=4)
    uvd.downsample_in_time(n_times_to_avg=4)
    blocks = sums.reshape(4, -1, 4, 4, 4).sum(axis=(0, 3))
    valid = counts.reshape(4, -1, 4, 4).sum(axis=(0, 3))
    for baseline, (i, j) in enumerate(sky.baselines()):
        got = uvd.get_data(j, i, "xx")[0]
        numpy.testing.assert_allclose(got, blocks[baseline, :, 0] / valid[baseline], rtol=1e-5)


@pytest.mark.parametrize("feeds", ["circular 0", "x 90", "y 90", "r 0", "l 0"])
def test_other_feeds(tmp_path, read, feeds):
    sky = Sky(times=2)
    pairs = 4 if feeds.startswith("circular") else 1
    sums, counts = random_sums(sky, 3, pairs=pairs)
    uvd = read(write(tmp_path, sky, sums, counts, full_count=50, feeds=feeds))
    numbers = {"c": [-1, -2, -3, -4], "x": [-5], "y": [-6], "r": [-1], "l": [-2]}[feeds[0]]
    assert uvd.polarization_array.tolist() == numbers
    with numpy.errstate(invalid="ignore"):
        first = numpy.nan_to_num(sums[:, 3, :, 0] / counts[:, 3])
    numpy.testing.assert_allclose(uvd.get_data(0, 2, numbers[0]), first, rtol=1e-6)


def test_fewer_integrations_than_announced(tmp_path, read, drift):
    # Places beyond 4 GiB, with holes between them.
    announced = write_sky(tmp_path, Sky(), announce=500_000)
    assert announced.stat().st_size > 1 << 32
    few, all_of_them = read(announced), read(drift)
    few.history = all_of_them.history
    assert few == all_of_them
    assert few.Ntimes == 5


def test_the_layout_is_that_of_a_telescopes_file(drift, recording):
    """Every data set of the Allen Telescope Array's file, with its type and number of axes."""
    path = recording("vis/ata.LoA.C0352.uvh5_60647_62965_9760406_3c286_0001.uvh5")

    def layout(path):
        found = {}

        def add(name, item):
            if isinstance(item, h5py.Dataset) and "phase_center_catalog" not in name:
                found[name] = (item.dtype.kind, item.dtype.itemsize, item.ndim)
                if item.dtype.kind == "S":
                    found[name] = ("S", item.ndim)

        with h5py.File(path) as file:
            file.visititems(add)
        return found

    ours, theirs = layout(drift), layout(path)
    assert {name: ours.get(name) for name in theirs} == theirs
    # What newer versions of pyuvdata ask for, and what is told besides.
    more = {"feed_array", "feed_angle", "Nfeeds", "mount_type", "gst0", "rdate", "earth_omega", "timesys"}
    assert set(ours) - set(theirs) == {f"Header/{name}" for name in more}


@pytest.mark.parametrize("ours", [True, False])
def test_what_info_says_is_what_pyuvdata_reads(drift, recording, ours):
    real = "vis/ata.LoA.C0352.uvh5_60647_62965_9760406_3c286_0001.uvh5"
    path = drift if ours else recording(real)
    with warnings.catch_warnings():
        # The real file is not ours.
        warnings.simplefilter("ignore")
        uvd = pyuvdata.UVData.from_file(path)
    said = json.loads(sidereal("info", path, "--json"))
    telescope = uvd.telescope
    names = [pyuvdata.utils.polnum2str(number).upper() for number in uvd.polarization_array]
    assert said["telescope"] == telescope.name
    assert said["antennas"] == list(telescope.antenna_names)
    assert said["antennas_used"] == uvd.Nants_data
    assert (said["baselines"], said["integrations"]) == (uvd.Nbls, uvd.Ntimes)
    assert said["polarizations"] == names
    place = [said["longitude_deg"], said["latitude_deg"], said["height_m"]]
    location = telescope.location
    numpy.testing.assert_allclose(place, [location.lon.deg, location.lat.deg, location.height.value])
    numpy.testing.assert_allclose(said["frequency_mhz"], uvd.freq_array[[0, -1]] / 1e6)
    mjd = numpy.array([said["first_mjd"], said["last_mjd"]])
    assert numpy.abs(mjd + 2400000.5 - uvd.time_array[[0, -1]]).max() * 86400 < 1e-4
    (centre,) = uvd.phase_center_catalog.values()
    assert said["source"]["name"] == centre["cat_name"]
    if not ours:
        found = numpy.radians([said["source"]["ra_deg"], said["source"]["dec_deg"]])
        numpy.testing.assert_allclose(found, [centre["cat_lon"], centre["cat_lat"]])


def test_rows_stand_one_behind_the_other(drift):
    """h5py finds each data set in one piece, inside the file, and none over another."""
    with h5py.File(drift) as file:
        names = []
        file.visit(names.append)
        sets = [file[name] for name in names if isinstance(file[name], h5py.Dataset)]
        places = sorted((one.id.get_offset(), one.id.get_storage_size()) for one in sets)
        ends = [start + size for start, size in places]
        assert all(end <= after for end, (after, _) in zip(ends, places[1:], strict=False))
        assert ends[-1] == drift.stat().st_size
        assert file["Data/visdata"].dtype == "c8"
        assert file["Data/flags"].dtype == bool


@pytest.mark.parametrize("tracked", [None, SOURCE])
def test_a_measurement_set_made_by_pyuvdata_opens_in_casacore(tmp_path, read, tracked):
    tables = client("casacore.tables")
    sky = Sky(tracked=tracked)
    uvd = read(write_sky(tmp_path, sky))
    visibilities.write_ms(uvd, tmp_path / "out.ms")
    with tables.table(str(tmp_path / "out.ms"), ack=False) as table:
        assert table.nrows() == sky.times * len(sky.baselines())
        assert table.getcol("DATA").shape[1:] == (sky.channels, 4)
        assert not table.getcol("FLAG").any()
    with tables.table(str(tmp_path / "out.ms::FIELD"), ack=False) as field:
        centre = numpy.degrees(field.getcol("PHASE_DIR").squeeze()) % 360
    if tracked is not None:
        numpy.testing.assert_allclose(centre, SOURCE, atol=1e-9)


@pytest.mark.parametrize("tracked", [None, SOURCE])
def test_wsclean_images_an_off_centre_source_at_its_place(tmp_path, read, tracked):
    place = (SOURCE[0] + 0.4, SOURCE[1] - 0.3)
    sky = Sky(enu=visibilities.positions(16, 150.0), tracked=tracked, sources=((*place, 1.0),))
    uvd = read(write_sky(tmp_path, sky))
    if tracked is None:
        uvd = phased(uvd, *SOURCE)
    visibilities.write_ms(uvd, tmp_path / "out.ms")
    image = visibilities.wsclean(tmp_path / "out.ms", size=512, scale_arcsec=20)
    assert abs(image.peak - 1) < 0.02
    assert image.separation_arcsec(*place) < 0.1 * image.beam_arcsec
    mirrored = (2 * SOURCE[0] - place[0], 2 * SOURCE[1] - place[1])
    assert image.separation_arcsec(*mirrored) > 5 * image.beam_arcsec


def refused(*arguments):
    """What is said of a call that is refused."""
    done = subprocess.run([str(BUILT / "sidereal"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


def typed(told, folder):
    """Runs the two lines of Python that an error says."""
    own = [line for line in told.splitlines() if line.startswith("    ")]
    # A hint of ours stands further in.
    lines = [line.strip() for line in own if not line.startswith("     ")]
    assert len(lines) == 2, told
    with warnings.catch_warnings(), contextlib.chdir(folder):
        warnings.simplefilter("ignore")
        exec("\n".join(lines))


def test_a_measurement_set_is_refused_with_lines_that_convert_it(drift, tmp_path, read):
    client("casacore.tables")
    uvd = read(drift)
    visibilities.write_ms(uvd, tmp_path / "vis.ms")
    told = refused("info", tmp_path / "vis.ms")
    assert "Measurement Set" in told
    typed(told, tmp_path)
    said = json.loads(sidereal("info", tmp_path / "vis.uvh5", "--json"))
    assert (said["baselines"], said["integrations"]) == (uvd.Nbls, uvd.Ntimes)


def test_lines_that_make_a_measurement_set_of_what_we_write(drift, tmp_path):
    tables = client("casacore.tables")
    words = ("correlate", "a.dada", "--antennas", "a.csv", "--drift", "--channels", 8)
    told = refused(*words, "-o", tmp_path / "out.ms")
    assert not (tmp_path / "out.ms").exists()
    shutil.copy(drift, tmp_path / "out.uvh5")
    typed(told, tmp_path)
    with tables.table(str(tmp_path / "out.ms"), ack=False) as table:
        assert table.nrows() > 0


@pytest.mark.parametrize("phase_type", ["phased", "drift"])
def test_a_file_before_version_1_2_is_described_as_pyuvdata_reads_it(drift, tmp_path, phase_type):
    """No catalogue and no version, axes of a spectral window, one width for all channels, a wrong count of baselines."""
    path = shutil.copy(drift, tmp_path / "old.uvh5")
    with h5py.File(path, "r+") as file:
        header, data = file["Header"], file["Data"]
        for name in ("phase_center_catalog", "version", "Nphase", "flex_spw_id_array"):
            del header[name]
        for name in [name for name in header if name.startswith("phase_center_")]:
            del header[name]
        header["phase_type"] = numpy.bytes_(phase_type)
        header["object_name"] = numpy.bytes_("3C286")
        if phase_type == "phased":
            header["phase_center_ra"], header["phase_center_dec"] = 3.5, 0.5
            header["phase_center_epoch"] = 2000.0
            header["phase_center_frame"] = numpy.bytes_("icrs")
        for name in ("freq_array", "visdata", "flags", "nsamples"):
            group, axis = (header, 0) if name == "freq_array" else (data, 1)
            values = numpy.expand_dims(group[name][()], axis)
            del group[name]
            group[name] = values
        width = header["channel_width"][0]
        del header["channel_width"]
        header["channel_width"] = width
        header["Nbls"][()] = header["Nbls"][()] + 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        uvd = pyuvdata.UVData.from_file(path, recompute_nbls=True)
    said = json.loads(sidereal("info", path, "--json"))
    assert (said["baselines"], said["integrations"]) == (uvd.Nbls, uvd.Ntimes)
    assert said["rectangular"] and not said["averaged_by_baseline"]
    assert said["channels"] == uvd.Nfreqs
    (centre,) = uvd.phase_center_catalog.values()
    assert said["source"]["name"] == centre["cat_name"]
    assert said["source"]["kind"] == centre["cat_type"]
    if phase_type == "phased":
        found = numpy.radians([said["source"]["ra_deg"], said["source"]["dec_deg"]])
        numpy.testing.assert_allclose(found, [centre["cat_lon"], centre["cat_lat"]])
    assert "version not told" in sidereal("info", path)


def test_baseline_dependent_averaging_is_described(drift, tmp_path, read):
    """Half of the baselines averaged over two integrations by pyuvdata."""
    uvd = read(drift)
    times = uvd.Ntimes // 2 * 2
    uvd.select(times=numpy.unique(uvd.time_array)[:times])
    pairs = uvd.get_antpairs()
    short, long = uvd.select(bls=pairs[::2], inplace=False), uvd.select(bls=pairs[1::2], inplace=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short.downsample_in_time(n_times_to_avg=2, keep_ragged=False)
        both = short.__add__(long)
        both.write_uvh5(tmp_path / "bda.uvh5")
    said = json.loads(sidereal("info", tmp_path / "bda.uvh5", "--json"))
    assert said["averaged_by_baseline"] and not said["rectangular"]
    assert said["rows"] == both.Nblts and said["baselines"] == both.Nbls
    lengths = both.integration_time
    numpy.testing.assert_allclose(said["integration_range_s"], [lengths.min(), lengths.max()])
    middles = (both.time_array - both.time_array.min()) * 86400
    span = (middles + lengths / 2).max() - (middles - lengths / 2).min()
    assert said["duration_s"] == pytest.approx(span, abs=1e-3)
    mjd = numpy.array([said["first_mjd"], said["last_mjd"]]) + 2400000.5
    expected = numpy.array([both.time_array.min(), both.time_array.max()])
    assert numpy.abs(mjd - expected).max() * 86400 < 1e-4
    assert "averaged by baseline" in sidereal("info", tmp_path / "bda.uvh5")
