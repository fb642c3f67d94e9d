"""Series that we write in HDF5 open in h5py and gwpy, with equal values and times."""

import numpy
import pytest
from conftest import BUILT, call, client

RATE = 4096
START = 1126259446


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    """The file, the whitened strain and the ratios of two templates."""
    folder = tmp_path_factory.mktemp("series")
    random = numpy.random.default_rng(1)
    strain = random.standard_normal(5000).astype("f4")
    ratios = (random.standard_normal((2, 4800)) + 1j * random.standard_normal((2, 4800))).astype("c8")
    strain.tofile(folder / "strain")
    lines = [f"strain H1 {START * 10**9} {RATE} 1.5 {folder / 'strain'}"]
    for template, (name, offset) in enumerate((("30+30", -0.015625), ("1.4+1.4", 0.0))):
        ratios[template].tofile(folder / str(template))
        lines.append(f"ratios {name} {offset} {folder / str(template)}")
    (folder / "description").write_text("\n".join(lines))
    call(BUILT / "examples" / "gravitational", "series", folder / "description", folder / "out.h5")
    return folder / "out.h5", strain, ratios


def test_h5py_opens_our_series(series):
    path, strain, ratios = series
    with client("h5py").File(path) as file:
        group = file["H1"]
        assert group.attrs["start_gps_ns"] == START * 10**9
        assert group.attrs["latency_s"] == 1.5 and group.attrs["rate_hz"] == RATE
        assert [name.decode() for name in group["template"][...]] == ["30+30", "1.4+1.4"]
        for template in range(2):
            data = group[f"snr/{template:04}"]
            assert data.dtype == numpy.complex64
            numpy.testing.assert_array_equal(data[...], ratios[template])
        numpy.testing.assert_array_equal(group["whitened"][...], strain)
        assert group["valid"].dtype == bool and group["valid"][...].all()


def test_gwpy_opens_our_series(series):
    path, strain, ratios = series
    read = client("gwpy.timeseries").TimeSeries.read
    theirs = read(str(path), format="hdf5", path="H1/whitened")
    numpy.testing.assert_array_equal(theirs.value, strain)
    assert theirs.t0.value == START and theirs.sample_rate.value == RATE
    assert str(theirs.channel) == "H1:SIDEREAL"
    theirs = read(str(path), format="hdf5", path="H1/snr/0000")
    numpy.testing.assert_array_equal(theirs.value, ratios[0])
    assert theirs.t0.value == START - 0.015625 and theirs.name == "SNR of 30+30"


def test_pycbc_opens_our_series(series, tmp_path):
    path, strain, ratios = series
    # PyCBC knows HDF5 by this ending alone.
    link = tmp_path / "out.hdf"
    link.symlink_to(path)
    load = client("pycbc.types").load_timeseries
    for group, expected, start in [("0000", ratios[0], START - 0.015625), ("0001", ratios[1], START), ("whitened", strain, START)]:
        theirs = load(str(link), group=f"H1/pycbc/{group}")
        numpy.testing.assert_array_equal(theirs.numpy(), expected)
        assert theirs.delta_t == 1 / RATE and float(theirs.start_time) == start
    with client("h5py").File(path) as file:
        place = file["H1/pycbc/0001"].id.get_offset()
        assert place == file["H1/snr/0001"].id.get_offset()
