"""Frame files (GWF) against gwpy with lalframe (FrameL)."""

import ctypes
import json
import multiprocessing
import os

import numpy
import pytest
from conftest import BUILT, call, client, sidereal

gwpy = client("gwpy.timeseries")
lalframe = client("lalframe")

START = 1000000000
# Types of FrameL by NumPy's names, and its compressions.
TYPES = {"i2": "2S", "i4": "4S", "i8": "8S", "u2": "2U", "u4": "4U", "f4": "4R", "f8": "8R"}
COMPRESSIONS = {"raw": 0, "gzip": 1, "differences": 3, "suppressed": 8}
SAMPLES = 256


@pytest.fixture
def read(tmp_path):
    """`read(path, channel)` is (samples, flags) of our reader."""

    def run(path, channel, bits=""):
        out = tmp_path / "out.bin"
        call(BUILT / "examples" / "strain", "read", path, out, bits, channel)
        content = out.read_bytes()
        times = len(content) // 9
        return numpy.frombuffer(content[: 8 * times], "<f8"), numpy.frombuffer(content[8 * times :], "u1")

    return run


def values(kind, seed):
    """Numbers with every size of step, as far as the type goes."""
    steps = numpy.random.default_rng(seed).standard_normal(SAMPLES) * 100
    if kind[0] == "f":
        return steps.astype(kind)
    found = numpy.cumsum(numpy.round(steps))
    found[100:140] = found[100]
    if kind[0] == "u":
        return abs(found).astype(kind)
    found = (found % 30000).astype(kind)
    found[3:5] = numpy.iinfo(kind).min, numpy.iinfo(kind).max
    return found


def channel(name, samples, compression):
    """A channel of FrameL's."""
    kind = getattr(lalframe, f"FRAMEU_FR_VECT_{TYPES[samples.dtype.str[1:]]}")
    made = lalframe.FrameUFrProcChanAlloc(name, 1, 0, kind, len(samples))
    lalframe.FrameUFrChanVectorAlloc(made, kind, len(samples))
    lalframe.FrameUFrChanVectorSetName(made, name)
    data = lalframe.FrameUFrChanVectorQueryData(made)
    ctypes.memmove(int(data), samples.ctypes.data, samples.nbytes)
    lalframe.FrameUFrChanVectorSetDx(made, 1 / len(samples))
    lalframe.FrameUFrChanVectorSetUnitX(made, "s")
    lalframe.FrameUFrChanVectorSetUnitY(made, "strain")
    lalframe.FrameUFrChanSetTRange(made, 1.0)
    lalframe.FrameUFrChanVectorCompress(made, compression)
    return made


def write_all(path):
    """Two frames with a channel of each type and compression."""
    file = lalframe.FrameUFrFileOpen(str(path), "w")
    for frame in range(2):
        head = lalframe.FrameUFrameHAlloc("test", START + frame, 0.0, 1.0, frame)
        for kind in TYPES:
            for name, compression in COMPRESSIONS.items():
                made = channel(f"H1:{kind}_{name}", values(kind, frame), compression)
                lalframe.FrameUFrameHFrChanAdd(head, made)
        lalframe.FrameUFrameHWrite(file, head)
    del file
    os._exit(0)


def test_types_and_compressions_of_framel_are_read(read, tmp_path):
    path = tmp_path / "H-ALL-1000000000-2.gwf"
    # The bindings free twice what is in a frame, so they do it in a process of its own.
    writer = multiprocessing.get_context("fork").Process(target=write_all, args=(path,))
    writer.start()
    writer.join()
    assert writer.exitcode == 0
    document = json.loads(sidereal("info", "--json", path))
    assert (document["version"], document["frames"]) == (8, 2)
    found = {one["name"]: one for one in document["channels"]}
    assert len(found) == len(TYPES) * len(COMPRESSIONS)
    for kind in TYPES:
        for name in COMPRESSIONS:
            one = f"H1:{kind}_{name}"
            samples, valid = read(path, one)
            expected = numpy.concatenate([values(kind, 0), values(kind, 1)])
            theirs = gwpy.TimeSeries.read(path, one, backend="lalframe")
            assert numpy.array_equal(theirs.value, expected)
            assert numpy.array_equal(samples, expected.astype(float)), one
            assert valid.all()
            assert found[one]["dtype"] == expected.dtype.name
            assert (found[one]["start_gps"], found[one]["rate_hz"]) == (theirs.t0.value, theirs.sample_rate.value)
            assert found[one]["unit"] == "strain"


@pytest.mark.parametrize("kind", ["proc", "adc", "sim"])
def test_frames_of_gwpy_are_read(kind, read, tmp_path):
    """The frame begins before the channel's first sample."""
    path = tmp_path / "H-X-1000000000-8.gwf"
    generator = numpy.random.default_rng(3)
    samples = generator.normal(size=1024) * 1e-21
    names = {"channel": "H1:LATE", "name": "H1:LATE", "unit": "strain"}
    late = gwpy.TimeSeries(samples, t0=START + 2.5, sample_rate=256, **names)
    late.write(path, format="gwf", type=kind, backend="lalframe")
    theirs = gwpy.TimeSeries.read(path, "H1:LATE", backend="lalframe")
    samples, _ = read(path, "H1:LATE")
    assert numpy.array_equal(samples, theirs.value) and numpy.array_equal(samples, late.value)
    found = json.loads(sidereal("info", "--json", path))
    assert found["start_gps"] == theirs.t0.value == START + 2.5


def test_channels_of_the_real_frame_are_those_of_gwpy(read, recording):
    path = recording("gw/HLV-HW100916-968654552-1.gwf")
    document = json.loads(sidereal("info", "--json", path))
    names = [one["name"] for one in document["channels"]]
    assert names == ["H1:LDAS-STRAIN", "L1:LDAS-STRAIN", "V1:h_16384Hz"]
    for name in names:
        theirs = gwpy.TimeSeries.read(path, name, backend="lalframe")
        samples, valid = read(path, name)
        assert valid.all() and numpy.array_equal(samples, theirs.value)
        one = json.loads(sidereal("info", "--json", "--channel", name, path))
        assert (one["detector"], one["rate_hz"], one["start_gps"]) == (name[:2], 16384, theirs.t0.value)


def test_several_series_of_gwpys_hdf5_are_read(read, tmp_path):
    path = tmp_path / "both.h5"
    generator = numpy.random.default_rng(4)
    both = gwpy.TimeSeriesDict()
    for name in ["H1:GDS-CALIB_STRAIN", "L1:GDS-CALIB_STRAIN"]:
        samples = generator.normal(size=4096) * 1e-21
        both[name] = gwpy.TimeSeries(samples, t0=START, sample_rate=1024, channel=name, name=name)
    both.write(path, format="hdf5")
    for name, theirs in both.items():
        samples, _ = read(path, name)
        assert numpy.array_equal(samples, theirs.value)


@pytest.mark.parametrize("compression", ["zlib", "none"])
def test_frames_that_convert_writes_are_read_by_gwpy(compression, recording, tmp_path):
    gwf = client("gwpy.io.gwf")
    source = recording("gw/H-H1_LOSC_4_V2-1126259446-32.hdf5")
    path = tmp_path / "H-H1_STRAIN-1126259446-32.gwf"
    sidereal("convert", source, "-o", tmp_path, "--to", "gwf", "--compression", compression)
    expected = gwpy.TimeSeries.read(source, format="hdf5.gwosc")
    found = gwpy.TimeSeries.read(path, "H1:STRAIN", backend="lalframe")
    assert numpy.array_equal(found.value, expected.value)
    assert (found.t0, found.sample_rate) == (expected.t0, expected.sample_rate)
    assert (str(found.unit), found.name) == ("strain", "H1:STRAIN")
    assert set(gwf.get_channel_names(path)) == {"H1:STRAIN", "H1:DQMASK", "H1:INJMASK"}
    bits = gwpy.StateVector.read(source, format="hdf5.gwosc")
    mask = gwpy.TimeSeries.read(path, "H1:DQMASK", backend="lalframe")
    assert numpy.array_equal(mask.value, bits.value) and mask.sample_rate.value == 1
    assert lalframe.FrameUFileCksumValid(lalframe.FrameUFrFileOpen(str(path), "r")) == 1
    back = tmp_path / "back.hdf5"
    sidereal("convert", path, "-o", back)
    again = gwpy.TimeSeries.read(back, format="hdf5.gwosc")
    assert numpy.array_equal(again.value, expected.value) and again.t0 == expected.t0
    assert numpy.array_equal(gwpy.StateVector.read(back, format="hdf5.gwosc").value, bits.value)
    sidereal("convert", path, "-o", tmp_path / "raw.npy")
    assert numpy.array_equal(numpy.load(tmp_path / "raw.npy"), expected.value)


def test_frames_that_convert_writes_are_read_by_pycbc(recording, tmp_path):
    source = recording("gw/L-L1_LOSC_4_V2-1126259446-32.hdf5")
    sidereal("convert", source, "-o", tmp_path / "strain.gwf")
    expected = gwpy.TimeSeries.read(source, format="hdf5.gwosc")
    found = client("pycbc.frame").read_frame(str(tmp_path / "strain.gwf"), "L1:STRAIN")
    assert numpy.array_equal(found.numpy(), expected.value)
    assert (float(found.start_time), found.delta_t) == (expected.t0.value, expected.dt.value)


def test_frames_of_64_s_are_read_by_gwpy(tmp_path):
    words = ["--length", 150, "--rate", 256, "--seed", 9, "--detectors", "V1", "--start", START]
    sidereal("simulate", "strain", tmp_path / "a.gwf", *words)
    sidereal("simulate", "strain", tmp_path / "a.hdf5", *words)
    path = tmp_path / f"V-a_V1-{START}-150.gwf"
    expected = gwpy.TimeSeries.read(tmp_path / "a_V1.hdf5", format="hdf5.gwosc")
    found = gwpy.TimeSeries.read(path, "V1:STRAIN", backend="lalframe")
    assert numpy.array_equal(found.value, expected.value) and found.t0 == expected.t0
    part = gwpy.TimeSeries.read(path, "V1:STRAIN", start=START + 60, end=START + 70, backend="lalframe")
    assert numpy.array_equal(part.value, expected.crop(START + 60, START + 70).value)


def test_the_real_frame_is_converted(recording, tmp_path):
    path = recording("gw/HLV-HW100916-968654552-1.gwf")
    out = tmp_path / "v.gwf"
    sidereal("convert", path, "--detector", "V1", "-o", out)
    name = "V1:h_16384Hz"
    theirs, ours = (gwpy.TimeSeries.read(one, name, backend="lalframe") for one in (path, out))
    assert numpy.array_equal(theirs.value, ours.value) and theirs.t0 == ours.t0


def test_gwpys_hdf5_is_converted_with_its_channel(tmp_path):
    values = numpy.random.default_rng(6).normal(size=2048)
    names = dict.fromkeys(["channel", "name"], "L1:GDS-CALIB_STRAIN")
    series = gwpy.TimeSeries(values, t0=START + 0.5, sample_rate=1024, **names)
    series.write(tmp_path / "a.h5", format="hdf5", path="strain")
    sidereal("convert", tmp_path / "a.h5", "-o", tmp_path / "a.gwf")
    found = gwpy.TimeSeries.read(tmp_path / "a.gwf", "L1:GDS-CALIB_STRAIN", backend="lalframe")
    assert numpy.array_equal(found.value, values) and found.t0.value == START + 0.5


COMPRESSIONS_OF_FRAMECPP = [
    "RAW", "GZIP", "DIFF_GZIP", "ZERO_SUPPRESS_WORD_2", "ZERO_SUPPRESS_WORD_4", "ZERO_SUPPRESS_WORD_8",
    "ZERO_SUPPRESS_OTHERWISE_GZIP",
]  # fmt: skip


@pytest.mark.parametrize("compression", COMPRESSIONS_OF_FRAMECPP)
def test_frames_of_framecpp_are_read(compression, read, tmp_path):
    """gwframe is frameCPP, by which the detectors write."""
    gwframe = client("gwframe")
    width = {"2": 2, "4": 4, "8": 8}.get(compression[-1])
    kinds = [kind for kind in TYPES if width in (None, int(kind[1]))]
    path = tmp_path / "H-CPP-1000000000-2.gwf"
    with gwframe.FrameWriter(path, compression=gwframe.types.Compression[compression]) as writer:
        for frame in range(2):
            channels = {f"H1:{kind}_{where}": values(kind, frame) for kind in kinds for where in ("proc", "sim", "adc")}
            made = gwframe.Frame(start=START + frame, duration=1.0, name="H1", run=1)
            for name, samples in channels.items():
                made.add_channel(name, samples, sample_rate=SAMPLES, unit="strain", channel_type=name.split("_")[1])
            writer.write_frame(made)
    document = json.loads(sidereal("info", "--json", path))
    assert (document["version"], document["frames"], len(document["channels"])) == (8, 2, 3 * len(kinds))
    for one in document["channels"]:
        kind = one["name"][3:5]
        samples, valid = read(path, one["name"])
        expected = numpy.concatenate([values(kind, 0), values(kind, 1)])
        assert numpy.array_equal(samples, expected.astype(float)), one
        assert valid.all() and one["rate_hz"] == SAMPLES and one["start_gps"] == START


@pytest.mark.parametrize("aux", [False, True])
def test_samples_that_framecpp_masks_are_not_valid(aux, read, tmp_path):
    """A mask in blocks of 1/16 s beside the channel, or the whole channel's flag."""
    gwframe = client("gwframe")
    path = tmp_path / "H-M-1000000000-1.gwf"
    samples = numpy.arange(4096.0)
    mask = numpy.zeros(4096, bool)
    mask[512:1024] = True
    if not aux:
        mask[:] = True
    masked = numpy.ma.masked_array(samples, mask)
    gwframe.write(
        path, {"H1:M": masked}, start=START, sample_rate=4096, name="H1", channel_type="adc", aux_mask=aux
    )
    _, valid = read(path, "H1:M")
    assert numpy.array_equal(valid == 0, mask)


@pytest.mark.parametrize("compression", ["zlib", "none"])
def test_frames_that_convert_writes_are_read_by_framecpp(compression, recording, tmp_path):
    gwframe = client("gwframe")
    source = recording("gw/H-H1_LOSC_4_V2-1126259446-32.hdf5")
    sidereal("convert", source, "-o", tmp_path, "--to", "gwf", "--compression", compression)
    path = tmp_path / "H-H1_STRAIN-1126259446-32.gwf"
    expected = gwpy.TimeSeries.read(source, format="hdf5.gwosc")
    found = gwframe.read(path, channels=None)
    assert set(found) == {"H1:STRAIN", "H1:DQMASK", "H1:INJMASK"}
    strain = found["H1:STRAIN"]
    assert numpy.array_equal(strain.array, expected.value)
    assert (strain.start, strain.sample_rate, strain.unit) == (expected.t0.value, 4096, "strain")
