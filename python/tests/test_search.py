"""Search: the command line's candidates, other threads, callbacks, Ctrl-C, and recordings."""

import json
import signal
import struct
import threading
import time

import numpy as np
import pytest

import sidereal_dsp as sd


def test_candidates_are_those_of_the_command_line(sky, found):
    candidates = sd.search(sky, dm_max=500)
    told = found["candidates"]
    assert len(candidates) == len(told) >= 2
    for candidate, row in zip(candidates, told, strict=True):
        # Documents have nine decimals.
        for name, value in [("dm", candidate.dm), ("time_s", candidate.time)]:
            assert round(value, 9) == row[name]
        assert round(candidate.snr, 9) == row["snr"] and round(candidate.width, 9) == row["width_s"]
        assert candidate.members == row["members"]
    assert candidates.masked_channels == found["masked_channels"]
    assert candidates.incomplete is None and len(candidates.dms) == found["dms"]["count"]
    best, second = candidates[0], candidates[1]
    assert abs(best.time - 4.2) < 0.004 and abs(best.dm - 350) < 5 and best.snr > 15
    assert abs(second.time - 7.5) < 0.004 and abs(second.dm - 120) < 5


def test_files_recordings_and_arrays_give_the_same(sky):
    candidates = sd.search(sky, dm_max=500)
    recording = sd.open_filterbank([sky])
    header = recording.header
    assert list(sd.search(recording, dm_max=500)) == list(candidates)
    x = recording.read()
    array = sd.search(x, freqs=header.freqs, tsamp=header.tsamp, dm_max=500, threads=1)
    assert list(array) == list(candidates)
    plan = sd.dm_plan(header.freqs, header.tsamp, 500, channel_width=header.channel_width)
    assert list(sd.search(sky, plan=plan)) == list(candidates)


def test_a_part_of_the_time(sky):
    (only,) = sd.search(sky, dm_max=500, time_range=(2.0, 6.0))
    # Times are counted from the first sample of the recording.
    assert abs(only.time - 4.2) < 0.004


def test_candidates_are_called_back(sky):
    heard = []
    candidates = sd.search(sky, dm_max=500, on_candidate=heard.append)
    assert sorted(c.time for c in heard) == sorted(c.time for c in candidates)

    class Enough(Exception):
        pass

    def refuse(candidate):
        raise Enough(candidate.dm)

    with pytest.raises(Enough):
        sd.search(sky, dm_max=500, on_candidate=refuse)


def long_search():
    """Return the arguments of a search of some seconds."""
    x = np.random.default_rng(1).normal(100, 10, (400_000, 128)).astype(np.uint8)
    freqs = 1500.0 - 2.0 * np.arange(128)
    return x, {"freqs": freqs, "tsamp": 256e-6, "dm_max": 3000, "threads": 1}


def test_another_thread_counts_on():
    x, options = long_search()
    counts, stop = [], threading.Event()

    def count():
        while not stop.wait(0.002):
            counts.append(time.perf_counter())

    thread = threading.Thread(target=count)
    thread.start()
    begun = time.perf_counter()
    sd.search(x, **options)
    ended = time.perf_counter()
    stop.set()
    thread.join()
    within = [at for at in counts if begun < at < ended]
    assert ended - begun > 0.3
    # It would count twice at most if the search held Python's lock.
    assert len(within) > 20 * (ended - begun)
    assert max(np.diff([begun, *within, ended])) < 0.5 * (ended - begun)


@pytest.fixture
def interruptible():
    """Install Python's handler of SIGINT, which a process in the background lacks, because it ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_search():
    x, options = long_search()
    begun = time.perf_counter()
    sd.search(x, **options)
    whole = time.perf_counter() - begun
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        sd.search(x, **options)
    assert time.perf_counter() - begun < 0.8 * whole


def test_streams_of_one_object_do_not_mix():
    stream = sd.Dedisperser([1500.0, 1400.0], 1e-3, [0.0], np.uint8)
    x, errors = np.zeros((3_000_000, 2), np.uint8), []

    def push():
        try:
            stream.push(x)
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=push) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) <= 1
    assert stream.flush().shape[0] == 1


def test_recordings_are_read_anywhere(sky):
    recording = sd.open_filterbank(sky)
    header = recording.header
    assert (header.nchans, header.nbits, header.nsamples) == (128, 8, 19531)
    assert header.freqs[0] == 1500 and header.freqs[1] == 1498 and header.channel_width == 2
    x = recording.read()
    assert x.shape == (19531, 128) and x.dtype == np.uint8
    for start, n in [(0, 10), (500, 700), (100, 5), (19530, 10), (19532, 4), (30000, 4)]:
        np.testing.assert_array_equal(recording.read(start, n), x[start : start + n])
    np.testing.assert_array_equal(recording.read(19000), x[19000:])


@pytest.mark.parametrize(("n", "overlap"), [(19532, 0), (1000, 0), (1000, 250), (7000, 6999), (50000, 10)])
def test_gulps_cover_a_recording(sky, n, overlap):
    recording = sd.open_filterbank(sky)
    x = recording.read()
    starts = range(0, max(1, len(x) - overlap), n - overlap)
    gulps = recording.gulps(n, overlap)
    for start in starts[:100]:
        np.testing.assert_array_equal(next(gulps), x[start : start + n])
    assert len(starts) > 100 or next(gulps, None) is None


@pytest.mark.parametrize("bits", [1, 2, 4, 16, 32])
def test_recordings_of_other_bits(command, tmp_path, bits):
    path = tmp_path / "sky.fil"
    made = command(
        *("simulate", "burst", "-o", path, "--fch1", 1500, "--foff", -4, "--channels", 32),
        *("--tsamp", 1e-3, "--duration", 1, "--nbits", bits),
    )
    assert made.returncode == 0, made.stderr
    recording = sd.open_filterbank(path)
    x = recording.read()
    kind = {16: np.uint16, 32: np.float32}.get(bits, np.uint8)
    assert x.shape == (1000, 32) and x.dtype == kind and recording.header.nbits == bits
    data = path.read_bytes()[-1000 * 32 * bits // 8 :]
    if bits < 8:
        raw = np.frombuffer(data, np.uint8)
        shifts = np.arange(0, 8, bits)
        wanted = ((raw[:, None] >> shifts) & (2**bits - 1)).reshape(1000, 32)
    else:
        wanted = np.frombuffer(data, kind).reshape(1000, 32)
    np.testing.assert_array_equal(x, wanted)


def test_times_that_gaps_fill_are_listed(sky, command, tmp_path):
    """A gap of 1 s is half of the third window of 4096 rows, in which the noise is measured."""
    data, rows = sky.read_bytes(), slice(8800, 10750)
    header, samples = data[: -19531 * 128], np.frombuffer(data[-19531 * 128 :], np.uint8).reshape(-1, 128)
    at = header.index(b"tstart") + len(b"tstart")
    later = struct.pack("<d", struct.unpack_from("<d", header, at)[0] + rows.stop * 512e-6 / 86400)
    parts = [tmp_path / "first.fil", tmp_path / "second.fil"]
    parts[0].write_bytes(header + samples[: rows.start].tobytes())
    parts[1].write_bytes(header[:at] + later + header[at + 8 :] + samples[rows.stop :].tobytes())
    recording = sd.open_filterbank(parts, allow_gaps=True)
    found = sd.search(recording, dm_max=500)
    np.testing.assert_allclose(found.unsearched, [[8192 * 512e-6, 12288 * 512e-6]])
    assert found.unsearched.dtype == np.float64 and found[:1].unsearched is found.unsearched
    # Times are counted from the first sample of the recording, windows from the start of the search.
    only = sd.search(recording, dm_max=500, time_range=(2.5, 9.0))
    np.testing.assert_allclose(only.unsearched, [[2.5 + 4096 * 512e-6, 2.5 + 8192 * 512e-6]], atol=0.001)
    assert sd.search(sky, dm_max=500).unsearched.shape == (0, 2)
    made = command("search", *parts, "--allow-gaps", "-o", tmp_path / "found", "--dm-max", 500, "--no-plots")
    assert made.returncode == 0, made.stderr
    told = json.loads((tmp_path / "found" / "summary.json").read_text())["unsearched"]
    np.testing.assert_allclose(found.unsearched, [[gap["start_s"], gap["start_s"] + gap["length_s"]] for gap in told])


def test_tables_and_pictures(sky):
    candidates = sd.search(sky, dm_max=500)
    pandas = pytest.importorskip("pandas")
    frame = candidates.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame.dm) == [c.dm for c in candidates]
    units = pytest.importorskip("astropy.units")
    table = candidates.to_table()
    assert table["dm"].unit == units.pc / units.cm**3
    assert (table["mjd"].mjd - 60000) * 86400 == pytest.approx([c.time for c in candidates], abs=1e-5)
    assert len(candidates[:1]) == 1 and candidates[:1].tstart == 60000
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert candidates.plot().get_xlabel() == "time (s)"
    assert len(sd.search(sky, dm_max=500, snr=1000).to_pandas()) == 0


def test_files_that_fail_are_named(tmp_path):
    with pytest.raises(OSError, match="No such file") as raised:
        sd.open_filterbank(tmp_path / "none.fil")
    assert isinstance(raised.value, sd.FileError) and raised.value.errno == 2
    assert raised.value.filename == str(tmp_path / "none.fil")
    (tmp_path / "bad.fil").write_bytes(b"nonsense" * 100)
    with pytest.raises(sd.FormatError, match=r"bad\.fil") as raised:
        sd.search(tmp_path / "bad.fil")
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"snr": 0}, "snr"),
        ({"dm_max": -1}, "dm_max"),
        ({"dm_max": "x"}, "dm_max"),
        ({"rfi": "some"}, "rfi"),
        ({"zap_channels": [128]}, "zap_channels"),
        ({"zap_channels": range(128)}, "zap_channels"),
        ({"zap_channels": [True, False]}, "zap_channels"),
        ({"max_width": -1}, "width"),
        ({"baseline_length": 0}, "baseline"),
        ({"time_range": (5, 2)}, "time_range"),
        ({"max_per_minute": -1}, "max_per_minute"),
        ({"freqs": [1.0]}, "freqs"),
        ({"device": "cuda:x"}, "device"),
        ({"dm_step": 1, "plan": sd.dm_plan([1500, 1400], 1e-3, 10)}, "plan"),
    ],
)
def test_wrong_options_are_named(sky, options, words):
    with pytest.raises(ValueError, match=words) as raised:
        sd.search(sky, **options)
    assert isinstance(raised.value, sd.SiderealError)


def test_the_list_is_that_of_the_command_line(sky, found, tmp_path_factory, tmp_path):
    candidates = sd.search(sky, dm_max=500)
    candidates.write_cand(tmp_path / "own.cand")
    rows = (tmp_path / "own.cand").read_text().splitlines()
    assert len(rows) == len(found["candidates"])
    # Heimdall's columns: S/N, sample, time, filter, trial, DM, members, begin, end.
    for row, candidate in zip(rows, candidates, strict=True):
        fields = row.split("\t")
        assert float(fields[0]) == pytest.approx(candidate.snr, abs=1e-4)
        assert int(fields[1]) == int(candidate.time / candidates.tsamp + 1e-6)
        assert float(fields[5]) == pytest.approx(candidate.dm, abs=1e-4)
    own = (tmp_path / "own.cand").read_bytes()
    lists = list(tmp_path_factory.getbasetemp().glob("found*/found/candidates.cand"))
    assert {path.read_bytes() for path in lists} == {own}
    candidates[:1].write_cand(tmp_path / "first.cand")
    assert (tmp_path / "first.cand").read_text() == rows[0] + "\n"
    with pytest.raises(sd.FileError, match="none"):
        candidates.write_cand(tmp_path / "none" / "own.cand")


def test_data_around_a_candidate(sky):
    best = sd.search(sky, dm_max=500)[0]
    cutout = sd.cutout(sky, best)
    channels, times = cutout.waterfall.shape
    assert cutout.plane.shape == (len(cutout.dms), times) and cutout.freqs.shape == (channels,)
    assert cutout.profile.shape == cutout.times.shape == (times,) and cutout.candidate == best
    # The burst is where it was found: at time 0 and its dispersion measure.
    assert abs(cutout.times[cutout.profile.argmax()]) < 2 * best.width
    assert abs(cutout.dms[cutout.snr.argmax()] - best.dm) < 10
    assert cutout.snr.max() == pytest.approx(best.snr, rel=0.15)
    assert cutout.freqs[0] > cutout.freqs[-1]
    np.testing.assert_array_equal(sd.cutout(sd.open_filterbank(sky), best).plane, cutout.plane)
    classifier = sd.cutout(sky, best, fetch=True)
    assert classifier.plane.shape == (256, 256) and classifier.dms[-1] == pytest.approx(2 * best.dm)
    masked = sd.cutout(sky, best, zap_channels=range(64), zero_dm=True)
    assert np.isnan(masked.waterfall).any() and repr(cutout).startswith("<Cutout:")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    assert len(cutout.plot()) == 3
    for source, candidate in [("none.fil", best), (7, best)]:
        with pytest.raises((sd.FileError, sd.ParameterError)):
            sd.cutout(source, candidate)
    with pytest.raises(TypeError):
        sd.cutout(sky, None)


@pytest.fixture(scope="module")
def voltages(command, tmp_path_factory):
    path = tmp_path_factory.mktemp("voltages") / "voltages.raw"
    made = command(
        *("simulate", "voltages", path, "--freq", 1400, "--bandwidth", 16, "--coarse-channels", 2),
        *("--duration", 1.2, "--pulse", "dm=50,time=0.5,width=0.001,snr=30"),
    )
    assert made.returncode == 0, made.stderr
    return path


def test_voltages_are_searched_as_by_the_command_line(voltages, command, tmp_path):
    options = {"channels": 32, "integrate": 4, "coherent_dm": 50}
    heard = []
    candidates = sd.search(voltages, dm_max=100, on_candidate=heard.append, **options)
    words = ["--channels", 32, "--integrate", 4, "--coherent-dm", 50, "--dm-max", 100]
    made = command("search", voltages, "-o", tmp_path / "found", *words, "--no-plots", "--device", "cpu")
    assert made.returncode == 0, made.stderr
    rows = json.loads((tmp_path / "found" / "summary.json").read_text())["candidates"]
    assert [round(candidate.snr, 9) for candidate in candidates] == [row["snr"] for row in rows]
    assert abs(candidates[0].time - 0.5) < 0.002 and abs(candidates[0].dm - 50) < 2
    assert len(heard) == len(candidates)
    candidates.write_cand(tmp_path / "own.cand")
    assert (tmp_path / "own.cand").read_bytes() == (tmp_path / "found" / "candidates.cand").read_bytes()
    smeared = sd.search(voltages, dm_max=100, channels=32, integrate=4)
    assert smeared[0].snr < candidates[0].snr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "channels"),
        ({"channels": 0}, "channels"),
        ({"channels": 32, "taps": 0}, "taps"),
        ({"channels": 32, "integrate": 0}, "spectra|integrate"),
        ({"channels": 32, "coherent_dm": -1}, "DM|dm|dispersion"),
    ],
)
def test_wrong_options_of_voltages_are_named(voltages, options, words):
    with pytest.raises(ValueError, match=words) as raised:
        sd.search(voltages, dm_max=100, **options)
    assert isinstance(raised.value, sd.SiderealError)


def test_filterbanks_have_no_options_of_voltages(sky):
    for options in [{"channels": 3}, {"taps": 3}, {"integrate": 3}, {"coherent_dm": 3.0}]:
        for source in [sky, sd.open_filterbank(sky)]:
            with pytest.raises(sd.ParameterError, match=next(iter(options))):
                sd.search(source, dm_max=100, **options)
