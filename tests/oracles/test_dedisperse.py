"""Our dedispersed series against sigpyproc's own dedispersion."""

import json

import numpy
import pytest
from conftest import client, sidereal


@pytest.mark.parametrize("name", ["frb/FRB180417_askap_28.fil", "pulsar/parkes_8bit_1.fil"])
def test_series_agree_with_sigpyproc(recording, tmp_path, name):
    """Where all shifts agree the series are equal; elsewhere the shifts differ by one sample, and
    only where the delay lies half way between two samples to within float32."""
    readers = client("sigpyproc.readers")
    path = recording(name)
    options = ("--dm-min", 0, "--dm-max", 600, "--dm-step", 47.5, "--format", "npy")
    sidereal("dedisperse", path, "-o", tmp_path / "out", *options)
    about = json.loads((tmp_path / "out" / "dedispersed.json").read_text())
    plane = numpy.load(tmp_path / "out" / "dedispersed.npy")
    theirs = readers.FilReader(str(path))
    header = theirs.header
    whole = theirs.read_block(0, header.nsamples)
    block = whole.data.T
    megahertz = header.fch1 + header.foff * numpy.arange(header.nchans)
    equal = 0
    for row, dm in zip(plane, about["dms"]):
        delay = 4148.808 * dm * (megahertz**-2.0 - megahertz.max() ** -2.0) / header.tsamp
        shifts = numpy.rint(delay).astype(int)
        others = numpy.asarray(header.get_dmdelays(dm, ref_freq="fmax")).astype(int)
        fraction = numpy.abs(delay - numpy.floor(delay) - 0.5)
        differ = shifts != others
        assert numpy.abs(shifts - others).max() <= 1
        assert fraction[differ].size == 0 or fraction[differ].max() < 1e-3, f"DM {dm}"
        length = header.nsamples - shifts.max()
        ours = sum(block[shift : shift + length, c] for c, shift in enumerate(shifts))
        numpy.testing.assert_array_equal(row[:length], ours.astype("f4"))
        if not differ.any():
            rotated = whole.dedisperse(dm, ref_freq="fmax", only_valid_samples=True)
            series = rotated.data.sum(axis=0)
            assert len(series) == length
            numpy.testing.assert_array_equal(row[:length], series)
            equal += 1
    assert equal >= len(about["dms"]) // 2, f"only {equal} trials had equal shifts"
