"""What other programs read and write, we read alike."""

import h5py
import numpy
import pytest
from conftest import client

FRB = "frb/FRB180417_askap_28"


@pytest.mark.parametrize("bits", ["1bit", "2bit", "4bit", "8bit_1"])
def test_parkes_unpacks_as_in_sigpyproc(recording, unpack, bits):
    readers = client("sigpyproc.readers")
    path = recording(f"pulsar/parkes_{bits}.fil")
    theirs = readers.FilReader(str(path))
    block = theirs.read_block(0, theirs.header.nsamples).data
    assert block.shape == (832, 4096)
    numpy.testing.assert_array_equal(unpack(path), block.T)


def test_two_files_of_one_observation_join_as_in_sigpyproc(recording, unpack):
    readers = client("sigpyproc.readers")
    paths = [recording(f"pulsar/parkes_8bit_{number}.fil") for number in (1, 2)]
    blocks = []
    for path in paths:
        theirs = readers.FilReader(str(path))
        blocks.append(theirs.read_block(0, theirs.header.nsamples).data.T)
    numpy.testing.assert_array_equal(unpack(*paths), numpy.concatenate(blocks))


def test_psrfits_reads_as_in_your(recording, unpack):
    path = recording(f"{FRB}.fits")
    theirs = client("your").Your(str(path))
    samples = theirs.get_data(0, theirs.your_header.nspectra)
    assert samples.shape == (5523, 336)
    numpy.testing.assert_array_equal(unpack(path), samples)


def test_four_bit_psrfits_of_four_polarizations_reads_as_in_sigpyproc(recording, unpack):
    """`your` does not open it (its NCHNOFFS is '*'). Scales make the values floats, and we round
    once where sigpyproc rounds at each step."""
    readers = client("sigpyproc.readers")
    path = recording("pulsar/parkes_4bit.sf")
    theirs = readers.PFITSReader(str(path))
    block = theirs.read_block(0, theirs.header.nsamples).data
    assert block.shape == (416, 4096)
    numpy.testing.assert_allclose(unpack(path), block.T, rtol=3e-7)


def test_psrfits_of_the_frb_holds_the_samples_of_the_filterbank(recording, unpack):
    filterbank = unpack(recording(f"{FRB}.fil"))
    psrfits = unpack(recording(f"{FRB}.fits"))
    assert filterbank.shape == (5120, 336)
    numpy.testing.assert_array_equal(psrfits[:5120], filterbank)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("compressed", [False, True])
def test_fbh5_of_blimpy_reads_back(simulated, unpack, tmp_path, monkeypatch, bits, compressed):
    blimpy = client("blimpy")
    from blimpy.io import hdf_writer

    if not compressed:
        plain = {"compression": None, "compression_opts": None}
        monkeypatch.setattr(hdf_writer.hdf5plugin, "Bitshuffle", lambda **_: plain)
    source = simulated(bits)
    path = tmp_path / "written_by_blimpy.h5"
    blimpy.Waterfall(str(source)).write_to_hdf5(str(path))
    with h5py.File(path) as file:
        filters = file["data"].id.get_create_plist()
        numbers = [filters.get_filter(k)[0] for k in range(filters.get_nfilters())]
        assert (32008 in numbers) == compressed
        truth = file["data"][:, 0, :]
    ours = unpack(path)
    numpy.testing.assert_array_equal(ours, truth)
    numpy.testing.assert_array_equal(ours, unpack(source))
