"""GUPPI raw and PSRDADA: what baseband reads, we read alike, and what we write, it reads."""

import json
import subprocess

import numpy
import pytest
from conftest import BUILT, client, sidereal

RECORDINGS = "baseband/"


def voltages(*arguments):
    """Our example program's output."""
    command = [str(word) for word in (BUILT / "examples" / "voltages", *arguments)]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr.decode()}"
    return done.stdout


def ours(*paths, options=()):
    """Header and samples: axes time, polarization, channel (of all antennas)."""
    header = json.loads(voltages(*paths))
    kind = "<c8" if "Complex" in header["encoding"] else "<f4"
    samples = numpy.frombuffer(voltages(*paths, "--samples", 0, *options), kind)
    shape = (header["antennas"] * header["channels"], header["polarizations"], header["times"])
    return header, samples.reshape(shape).transpose(2, 1, 0)


def theirs(format, path):
    """baseband's samples, start and rate; `path` may be several."""
    module = client(f"baseband.{format}")
    path = [str(p) for p in path] if isinstance(path, list) else str(path)
    with module.open(path, "rs", squeeze=False) as file:
        return file.read(), file.start_time, file.sample_rate.to_value("Hz")


def nanoseconds_apart(header, time):
    from astropy import units
    from astropy.time import Time, TimeDelta

    start = Time(header["start_mjd_day"], format="mjd", scale="utc")
    return abs((start + TimeDelta(header["start_s"] * units.s) - time).to_value(units.ns))


def same(format, path, count=None):
    """Our reading equals baseband's to the last bit; baseband's may end with filling."""
    expected, start, rate = theirs(format, path)
    header, samples = ours(*(path if isinstance(path, list) else [path]))
    count = len(samples) if count is None else count
    assert len(samples) == count and expected.shape[1:] == samples.shape[1:]
    numpy.testing.assert_array_equal(samples, expected[:count])
    assert not expected[count:].any()
    assert nanoseconds_apart(header, start) < 0.1
    assert header["tsamp_s"] * rate == pytest.approx(1.0, rel=1e-15)
    return header, samples


@pytest.mark.parametrize("gulp", [1, 100, 960, 4096])
def test_puppi_reads_as_in_baseband(recording, gulp):
    path = recording(f"{RECORDINGS}sample_puppi.raw")
    header, samples = same("guppi", path)
    assert samples.shape == (3904, 2, 4)
    assert list(samples[0, 0]) == [-7 + 12j, -32 - 10j, -17 + 25j, 16 - 5j]
    assert header["circular"] is False and header["telescope"] == "Arecibo"
    _, again = ours(path, options=("--gulp", gulp))
    numpy.testing.assert_array_equal(again, samples)


def test_a_truncated_recording_is_told_with_its_numbers(recording):
    path = recording(f"{RECORDINGS}sample_blc.raw")
    command = [str(BUILT / "examples" / "voltages"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "BLOCSIZE" in done.stderr and "134217728" in done.stderr


def test_its_header_places_it_as_in_baseband(recording, tmp_path):
    """The Green Bank header of that recording, with the small blocks that it lacks."""
    path = recording(f"{RECORDINGS}sample_blc.raw")
    with client("baseband.guppi").open(str(path), "rb") as file:
        theirs = file.read_header()
    text = path.read_bytes()[: theirs.nbytes]
    small = text.replace(b"BLOCSIZE=            134217728", b"BLOCSIZE=                16384")
    small = small.replace(b"PKTSIZE =                 8192", b"PKTSIZE =                  128")
    assert len(small) == len(text) and small.count(b"16384") == 2
    padding = b" " * (-len(small) % 512)
    out = tmp_path / "small.raw"
    out.write_bytes(small + padding + bytes(range(256)) * 64)
    header, samples = ours(out)
    assert samples.shape == (64, 2, 64) and samples[0, 0, 0] == 0 + 1j
    assert header["source_name"] == "DIAG_MESSIER1" and header["circular"] is True
    # A 64th of the packets' size: a 64th of the time after the start.
    offset = theirs.offset.to_value("s") / 64
    assert nanoseconds_apart(header, theirs.start_time) / 1e9 == pytest.approx(offset, abs=1e-9)
    numpy.testing.assert_allclose(numpy.mean(header["centres_hz"]), 11467.28515625e6, rtol=1e-15)


@pytest.mark.parametrize("name", ["sample", "sample_meerkat"])
def test_dada_reads_as_in_baseband(recording, name):
    _, samples = same("dada", recording(f"{RECORDINGS}{name}.dada"))
    assert samples.shape == {"sample": (16000, 2, 1), "sample_meerkat": (14336, 2, 1)}[name]


@pytest.mark.parametrize("gulp", [100, 256, 4096])
def test_meerkat_heaps_read_as_in_numpy(recording, gulp):
    """baseband 4.2 does not open this file, whose header has no HEADER."""
    path = recording(f"{RECORDINGS}sample_mkbf.dada")
    heaps = numpy.fromfile(path, "i1", offset=4096).reshape(-1, 2, 1024, 256, 2)
    heaps = heaps.transpose(0, 3, 1, 2, 4).reshape(-1, 2, 1024, 2).astype("f4")
    header, samples = ours(path, options=("--gulp", gulp))
    numpy.testing.assert_array_equal(samples, heaps[..., 0] + 1j * heaps[..., 1])
    assert header["centres_hz"][0] == 544e6 and header["centres_hz"][1] == 544.53125e6


GUPPI = {
    "whole blocks": ("--block", 976),
    "a last block made full": ("--block", 1000),
    "one block": (),
    "filled to 512 bytes": ("--block", 1024, "--directio"),
    "in small gulps": ("--block", 61, "--gulp", 10),
}


@pytest.mark.parametrize("case", GUPPI)
def test_baseband_reads_the_guppi_raw_that_we_write(recording, tmp_path, case):
    path, out = recording(f"{RECORDINGS}sample_puppi.raw"), tmp_path / "out.raw"
    before, expected = ours(path)
    voltages(path, "--write", "guppi", out, *GUPPI[case])
    header, samples = same("guppi", out, count=3904)
    numpy.testing.assert_array_equal(samples, expected)
    for key in ("source_name", "ra_deg", "dec_deg", "centres_hz", "start_s", "tsamp_s", "circular"):
        assert header[key] == pytest.approx(before[key]), key


def test_baseband_reads_the_sequence_that_we_write(recording, tmp_path):
    path, out = recording(f"{RECORDINGS}sample_puppi.raw"), tmp_path / "out.raw"
    voltages(path, "--write", "guppi", out, "--block", 61, "--per-file", 10)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"out.{k:04}.raw" for k in range(7)]
    same("guppi", files, count=3904)
    _, samples = ours(*files[::-1])
    numpy.testing.assert_array_equal(samples, ours(path)[1])
    numpy.testing.assert_array_equal(ours(tmp_path / "out")[1], samples)


def test_baseband_reads_each_block_of_an_overlap_that_we_write(recording, tmp_path):
    path, out = recording(f"{RECORDINGS}sample_puppi.raw"), tmp_path / "out.raw"
    voltages(path, "--write", "guppi", out, "--block", 1024, "--overlap", 64)
    same("guppi", out, count=3904)
    with client("baseband.guppi").open(str(out), "rb") as file:
        frames = [file.read_frame() for _ in range(4)]
    data = [frame.data for frame in frames]
    for before, after in zip(data, data[1:]):
        numpy.testing.assert_array_equal(before[-64:], after[:64])


def test_times_survive_when_we_begin_later(recording, tmp_path):
    path, out = recording(f"{RECORDINGS}sample_puppi.raw"), tmp_path / "out.raw"
    voltages(path, "--skip", 100, "--write", "guppi", out, "--block", 951)
    header, samples = same("guppi", out, count=3804)
    assert header["start_s"] == pytest.approx(51093.0 + 100 * 0.004, abs=1e-9)
    numpy.testing.assert_array_equal(samples, ours(path)[1][100:])


NAMES = ["sample.dada", "sample_meerkat.dada", "sample_mkbf.dada", "sample_puppi.raw"]


@pytest.mark.parametrize("name", NAMES)
def test_baseband_reads_the_dada_that_we_write(recording, tmp_path, name):
    path, out = recording(f"{RECORDINGS}{name}"), tmp_path / "out.dada"
    before, expected = ours(path)
    voltages(path, "--write", "dada", out)
    header, samples = same("dada", out)
    numpy.testing.assert_array_equal(samples, expected)
    for key in ("source_name", "ra_deg", "dec_deg", "centres_hz", "start_s", "tsamp_s"):
        assert header[key] == pytest.approx(before[key]), key


def test_blimpy_reads_the_guppi_raw_that_we_write(tmp_path):
    """blimpy takes a value without a decimal point for an integer, and ends the program at 4E0."""
    guppi = client("blimpy.guppi")
    out = tmp_path / "out.raw"
    words = ("--freq", 150, "--bandwidth", 4, "--coarse-channels", 4, "--duration", 0.01)
    sidereal("simulate", "voltages", out, *words)
    with guppi.GuppiRaw(str(out)) as theirs:
        header = theirs.read_first_header()
        block, x, y = theirs.read_next_data_block_int8()
    floats = {"OBSFREQ": 150.0, "OBSBW": 4.0, "CHAN_BW": 1.0, "TBIN": 1e-6, "STT_OFFS": 0.0}
    for key, value in floats.items():
        assert isinstance(header[key], float) and header[key] == pytest.approx(value), key
    assert block["BLOCSIZE"] == header["BLOCSIZE"]
    _, samples = ours(out)
    found = numpy.stack([x, y], 2).astype("f4")
    found = (found[..., 0] + 1j * found[..., 1]).transpose(1, 2, 0)
    numpy.testing.assert_array_equal(found[: len(samples)], samples[: len(found)])


def test_meerkat_goes_into_guppi_raw(recording, tmp_path):
    path, out = recording(f"{RECORDINGS}sample_mkbf.dada"), tmp_path / "out.raw"
    voltages(path, "--write", "guppi", out)
    _, samples = same("guppi", out, count=256)
    numpy.testing.assert_array_equal(samples, ours(path)[1])


def test_we_read_the_guppi_raw_that_baseband_writes(tmp_path):
    from astropy import units
    from astropy.time import Time

    guppi = client("baseband.guppi")
    random = numpy.random.default_rng(5)
    parts = random.integers(-128, 128, (960, 2, 8, 2)).astype("f4")
    data = parts[..., 0] + 1j * parts[..., 1]
    for order in ("1SFA", "SIMPLE"):
        out = tmp_path / f"{order}.raw"
        with guppi.open(
            str(out), "ws", squeeze=False, time=Time("2023-02-25T01:02:03.25"), bps=8,
            sample_rate=1 * units.MHz, nchan=8, npol=2, samples_per_frame=320, pktsize=1024,
            overlap=0, pktfmt=order, sideband=False, offset=0 * units.s,
        ) as file:  # fmt: skip
            file.write(data.astype("c8"))
        header, samples = same("guppi", out)
        numpy.testing.assert_array_equal(samples, data)
        assert header["lower_sideband"] is True


def test_we_read_the_dada_that_baseband_writes(tmp_path):
    from astropy import units
    from astropy.time import Time

    dada = client("baseband.dada")
    random = numpy.random.default_rng(6)
    parts = random.integers(-128, 128, (4000, 2, 1, 2)).astype("f4")
    data = parts[..., 0] + 1j * parts[..., 1]
    name = str(tmp_path / "{obs_offset:016d}.dada")
    with dada.open(
        name, "ws", squeeze=False, time=Time("2023-02-25T01:02:03.25"), samples_per_frame=1000,
        sample_rate=1 * units.MHz, npol=2, nchan=1, complex_data=True, bps=8, bw=1.0, freq=1400.0,
    ) as file:  # fmt: skip
        file.write(data.astype("c8"))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    same("dada", files)
    header, samples = ours(*files[::-1])
    numpy.testing.assert_array_equal(samples, data)
    # Without the second file its samples are flagged.
    header, samples = ours(files[3], files[0], files[2])
    assert header["flags"] == [[0, 2, 1000, 1000]]
    expected = data.copy()
    expected[1000:2000] = 0
    numpy.testing.assert_array_equal(samples, expected)
