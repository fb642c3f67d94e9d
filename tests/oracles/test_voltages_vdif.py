"""VDIF and Mark 5B: samples, shape, start and rate as baseband has them."""

import json
import subprocess

import numpy
import pytest
from conftest import BUILT, call, client

EXAMPLE = BUILT / "examples" / "voltages"

# Name, samples a second where the file does not show them.
VDIF = [
    ("sample.vdif", None),
    ("sample_arochime.vdif", 390625),
    ("sample_mwa.vdif", 1280000),
    # Frames of 8192 samples, numbered to 59875: any rate with more than that a second will do.
    ("lsl_vdif-test.dat", 8192 * 62500),
    # Frames that do not divide a second: 61035.15625 of them.
    ("lsl_vdif-test.dat", 500_000_000),
]


def ours(path, *options):
    """Our header, and the samples as baseband has them: time, stream."""
    header = json.loads(call(EXAMPLE, path, *options))
    command = [str(word) for word in (EXAMPLE, path, "--samples", 0, *options)]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr
    kind = numpy.complex64 if "Complex" in header["encoding"] else numpy.float32
    streams = header["antennas"] * header["channels"] * header["polarizations"]
    counts = numpy.frombuffer(done.stdout, kind).reshape(streams, -1).T
    assert counts.shape[0] == header["times"]
    # One product in double precision, rounded once, as the stages do.
    wide = counts.astype(numpy.complex128 if kind == numpy.complex64 else numpy.float64)
    return header, (wide * header["scale"]).astype(kind)


def same_header(header, theirs, rate):
    from astropy.time import Time

    start = Time(header["start_mjd_day"], header["start_s"] / 86400, format="mjd", scale="utc")
    assert abs((start - theirs.start_time).to_value("s")) < 2e-9
    assert 1 / header["tsamp_s"] == pytest.approx(rate, rel=1e-12)
    assert header["flags"] == []


@pytest.mark.parametrize("name,rate", VDIF, ids=[f"{name}-{rate}" for name, rate in VDIF])
def test_vdif_reads_as_in_baseband(recording, name, rate):
    vdif = client("baseband.vdif")
    import astropy.units as units

    path = recording(f"baseband/{name}")
    known = {} if rate is None else {"sample_rate": rate * units.Hz}
    with vdif.open(str(path), "rs", squeeze=False, **known) as theirs:
        samples = theirs.read()
        header, found = ours(path, *(() if rate is None else ("--rate", rate)))
        same_header(header, theirs, theirs.sample_rate.to_value("Hz"))
        assert header["recorded_bits"] == theirs.header0.bps
    times, threads, channels = samples.shape
    if threads == 2:
        assert (header["channels"], header["polarizations"]) == (channels, 2)
        samples = samples.transpose(0, 2, 1)
    else:
        assert (header["channels"], header["polarizations"]) == (threads * channels, 1)
    assert found.dtype == samples.dtype
    numpy.testing.assert_array_equal(found, samples.reshape(times, -1))


@pytest.mark.parametrize("per_second", [100.25, 100.4, 75.15625])
def test_frames_that_do_not_divide_a_second_read_as_in_baseband(tmp_path, per_second):
    """Frames may reach over a second's end; baseband reads such files where it rounds to what was written."""
    vdif = client("baseband.vdif")
    import astropy.units as units

    times, random = 800, numpy.random.default_rng(7)
    rate = per_second * times * units.Hz
    made = {"edv": 0, "seconds": 14363767, "ref_epoch": 28, "frame_nr": 0, "nchan": 4, "bps": 2}
    header0 = vdif.VDIFHeader.fromvalues(
        samples_per_frame=times, complex_data=False, station="Lw", **made
    )
    path = tmp_path / "theirs.vdif"
    open_as = {"sample_rate": rate, "squeeze": False}
    data = random.normal(0, 2, (150 * times, 1, 4)).astype("f4")
    with vdif.open(str(path), "ws", header0=header0, nthread=1, **open_as) as out:
        out.write(data)
    with vdif.open(str(path), "rs", **open_as) as theirs:
        # Its own end of the file is a frame off.
        samples = theirs.read(140 * times)
        header, found = ours(path, "--rate", rate.value)
        same_header(header, theirs, rate.value)
    assert header["times"] == 150 * times
    numpy.testing.assert_array_equal(found[: len(samples)], samples.reshape(len(samples), -1))


def test_mark_5b_reads_as_in_baseband(recording):
    mark5b = client("baseband.mark5b")
    from astropy.time import Time

    path = recording("baseband/sample.m5b")
    day = Time(57000, format="mjd")
    with mark5b.open(str(path), "rs", nchan=8, bps=2, ref_time=day) as theirs:
        samples = theirs.read()
        header, found = ours(path, "--mark5b", 8, 2, 57000)
        same_header(header, theirs, theirs.sample_rate.to_value("Hz"))
    assert samples.shape == (20000, 8)
    assert (header["channels"], header["polarizations"]) == (8, 1)
    numpy.testing.assert_array_equal(found, samples)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("complex_data", [False, True])
@pytest.mark.parametrize("edv", [False, 0, 1, 3])
def test_vdif_that_baseband_writes_reads_back(tmp_path, bits, complex_data, edv):
    """Frames in turn of three threads, over a second's end, the rate from the header or the frames."""
    vdif = client("baseband.vdif")
    import astropy.units as units

    random = numpy.random.default_rng(bits)
    channels = 1 if edv == 3 else 4
    payload = 5000 if edv == 3 else 800
    times = payload * 8 // (bits * channels * (2 if complex_data else 1))
    rate = 20 * times * 1000 * units.Hz
    data = random.normal(0, 2, (6 * times, 3, channels)).astype("f4")
    if complex_data:
        data = data + 1j * random.normal(0, 2, data.shape).astype("f4")
    path = tmp_path / "theirs.vdif"
    made = {"edv": edv, "seconds": 14363767, "ref_epoch": 28, "frame_nr": 19999}
    made |= {"nchan": channels, "bps": bits, "complex_data": complex_data, "station": "Ef"}
    header0 = vdif.VDIFHeader.fromvalues(samples_per_frame=times, **made)
    if edv in (1, 3):
        header0.sample_rate = rate
    open_as = {"sample_rate": rate, "squeeze": False}
    with vdif.open(str(path), "ws", header0=header0, nthread=3, **open_as) as out:
        out.write(data)
    with vdif.open(str(path), "rs", **open_as) as theirs:
        samples = theirs.read()
        header, found = ours(path, *(("--rate", rate.value) if edv in (False, 0) else ()))
        same_header(header, theirs, rate.value)
    assert header["telescope"] == "Ef"
    numpy.testing.assert_array_equal(found, samples.reshape(len(samples), -1))


@pytest.mark.parametrize("bits,channels", [(1, 4), (2, 1), (2, 16)])
def test_mark_5b_that_baseband_writes_reads_back(tmp_path, bits, channels):
    mark5b = client("baseband.mark5b")
    import astropy.units as units
    from astropy.time import Time

    times = 80000 // (bits * channels)
    rate = 25 * times * units.Hz
    data = numpy.random.default_rng(5).normal(0, 2, (30 * times, channels)).astype("f4")
    path = tmp_path / "theirs.m5b"
    day = Time("2019-12-31T23:59:59", precision=9)
    known = {"nchan": channels, "bps": bits, "sample_rate": rate, "squeeze": False}
    with mark5b.open(str(path), "ws", time=day, **known) as out:
        out.write(data)
    with mark5b.open(str(path), "rs", ref_time=day, **known) as theirs:
        samples = theirs.read()
        header, found = ours(path, "--mark5b", channels, bits, 58800)
        same_header(header, theirs, rate.value)
    numpy.testing.assert_array_equal(found, samples)


def test_invalid_frames_are_zero_in_both(tmp_path, recording):
    vdif = client("baseband.vdif")
    path = recording("baseband/sample.vdif")
    raw = bytearray(path.read_bytes())
    raw[5032 * 10 + 3] |= 0x80
    damaged = tmp_path / "invalid.vdif"
    damaged.write_bytes(raw)
    with vdif.open(str(damaged), "rs") as theirs:
        samples = theirs.read()
    thread = raw[5032 * 10 + 14]
    assert not samples[20000:, thread].any()
    header, found = ours(damaged)
    assert header["flags"] == [[thread, thread + 1, 20000, 20000]]
    others = [k for k in range(8) if k != thread]
    numpy.testing.assert_array_equal(found[:, others], samples[:, others])
    numpy.testing.assert_array_equal(found[:20000], samples[:20000])
    # Levels of 2 bits have no zero: theirs are zero, ours have the mean 0.
    assert found[20000:, thread].sum() == 0


@pytest.mark.parametrize("gulp", [1000, 4096])
def test_baseband_reads_the_vdif_that_we_write(tmp_path, recording, gulp):
    vdif = client("baseband.vdif")
    path, out = recording("baseband/sample.vdif"), tmp_path / "out.vdif"
    call(EXAMPLE, path, "--gulp", gulp, "--write", "vdif", out)
    with vdif.open(str(path), "rs", squeeze=False) as theirs, vdif.open(str(out), "rs", squeeze=False) as written:
        # Eight threads of a channel become one thread of eight channels.
        assert written.shape == (40_000, 1, 8) and theirs.shape == (40_000, 8, 1)
        numpy.testing.assert_array_equal(written.read()[:, 0], theirs.read()[..., 0])
        assert abs((written.start_time - theirs.start_time).to_value("s")) < 1e-9
        assert written.sample_rate == theirs.sample_rate
        assert written.header0.station == theirs.header0.station


@pytest.mark.parametrize("skip", [0, 12, 5000])
def test_vdif_that_we_write_begins_with_the_frame_of_the_first_sample(tmp_path, recording, skip):
    vdif = client("baseband.vdif")
    path, out = recording("baseband/sample.vdif"), tmp_path / "out.vdif"
    call(EXAMPLE, path, "--skip", skip, "--write", "vdif", out)
    with vdif.open(str(path), "rs", squeeze=False) as theirs, vdif.open(str(out), "rs", squeeze=False) as written:
        samples, found = theirs.read()[skip:, :, 0], written.read()[:, 0]
        lead = round((theirs.start_time - written.start_time).to_value("s") * 32e6) + skip
        assert 0 <= lead < 4000 and len(found) % 4000 == 0
        numpy.testing.assert_array_equal(found[lead:lead + len(samples)], samples)
