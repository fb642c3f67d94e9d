"""Files of other programs: the error says what they are."""

import subprocess

import h5py
import numpy
import pytest
from conftest import BUILT, client


def refused(path):
    done = subprocess.run([str(BUILT / "sidereal"), "info", str(path)], capture_output=True, text=True)
    assert done.returncode != 0, done.stdout
    assert path.name in done.stderr and "panicked" not in done.stderr
    return done.stderr


def test_mark_4_that_baseband_brings(tmp_path):
    client("baseband")
    from baseband.data import SAMPLE_MARK4, SAMPLE_MARK4_32TRACK

    for sample, tracks in ((SAMPLE_MARK4, 64), (SAMPLE_MARK4_32TRACK, 32)):
        path = tmp_path / f"{tracks}.m4"
        path.write_bytes(open(sample, "rb").read())
        assert f"Mark 4, with {tracks} tracks" in refused(path)


def test_gsb_timestamps_that_baseband_brings(tmp_path):
    client("baseband")
    from baseband.data import SAMPLE_GSB_PHASED_HEADER, SAMPLE_GSB_RAWDUMP_HEADER

    for sample in (SAMPLE_GSB_RAWDUMP_HEADER, SAMPLE_GSB_PHASED_HEADER):
        path = tmp_path / "a.timestamp"
        path.write_bytes(open(sample, "rb").read())
        assert "GSB" in refused(path)


def test_templates(recording):
    assert "spiir bank" in refused(recording("gw/GW150914_4_template.hdf5"))


def test_uvfits_that_pyuvdata_writes(recording, tmp_path):
    pyuvdata = client("pyuvdata")
    name = "vis/ata.LoA.C0352.uvh5_60647_62965_9760406_3c286_0001.uvh5"
    uvd = pyuvdata.UVData.from_file(recording(name))
    uvd.write_uvfits(tmp_path / "a.uvfits")
    assert "UVFITS" in refused(tmp_path / "a.uvfits")


@pytest.mark.parametrize("names", [["waterfall"], ["a", "b", "c", "d", "e", "f", "g"]])
def test_hdf5_of_another_program(tmp_path, names):
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = numpy.arange(3)
    told = refused(path)
    assert f"an HDF5 file of another program, with {names[0]}" in told
