"""Pickles and copies: values that calls take and return, in other processes, and what is refused."""

import concurrent.futures
import copy
import functools
import multiprocessing
import pickle
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidereal_dsp as sd

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
FREQS = 1500.0 - np.arange(24)


def parts(value):
    """Return what a value consists of: the attributes of objects, the bits of arrays and floats."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return [type(value), *map(parts, value)]
    if isinstance(value, dict):
        return {key: parts(item) for key, item in value.items()}
    kind = type(value)
    if not kind.__module__.startswith("sidereal_dsp"):
        return value
    fields = [name for name, field in vars(kind).items() if isinstance(field, types.GetSetDescriptorType)]
    names = [*fields, *getattr(value, "__dict__", {})]
    assert names
    return kind, {name: parts(getattr(value, name)) for name in names}


@pytest.fixture(scope="module")
def candidates(sky):
    return sd.search(sky, dm_max=500)


@pytest.fixture(scope="module")
def psd():
    return sd.estimate_psd(np.random.default_rng(2).normal(scale=1e-21, size=16 * 2048), 2048)


@pytest.fixture(scope="module")
def bank(psd):
    return sd.design([sd.inspiral(m, m + 1, spin1z=0.1, sample_rate=2048, f_low=20) for m in (25, 30)], psd)


@pytest.fixture(scope="module")
def strain():
    samples = np.random.default_rng(4).normal(scale=1e-21, size=4096)
    samples[7] = np.nan
    return sd.Strain("H1", samples, 2048, 1126259446.1234567, valid=np.arange(4096) > 3)


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    path = tmp_path_factory.mktemp("array") / "antennas.csv"
    rows = ["a,3826577.1,461022.9,5064892.7,7,25.5,150", "b,3826601.3,461041.0,5064880.2,2,12,0"]
    path.write_text("\n".join(["# name=pair", "name,x,y,z,number,diameter,delay_ns", *rows]))
    return sd.Array.from_csv(path)


@pytest.fixture(scope="module")
def values(sky, candidates, psd, bank, strain, array):
    """Return a value of each class that calls take and return."""
    recording = sd.open_filterbank(sky)
    trigger = sd.Trigger(1126259462.4, 13.3, -0.1, 1.1)
    event = sd.Event(1126259462.4, 24.0, 23.1, None, "30,30", (30.1, 29.9), None, {"H1": trigger})
    spectra = sd.channelize(np.random.default_rng(1).normal(size=(2, 2, 640)).astype("f4"), 8)
    made = [
        *(sd.devices()[0], recording.header, candidates, candidates[0], sd.cutout(recording, candidates[0])),
        sd.dm_plan(FREQS, 1e-3, 500),
        *(sd.correlate(spectra), array, strain, psd, sd.inspiral(36, 29), bank, trigger, event),
        sd.Waveform("drawn", np.array([1e-22j, 3e-22, 0]), 4096, distance=40),
        sd.Events([event], livetime=16.0, background_time=1e4, detectors=["H1", "L1"], psds={"H1": psd}),
    ]
    return {type(value).__name__: value for value in made}


def test_values_are_the_same_after_a_pickle_or_a_copy(values):
    for name, value in values.items():
        for protocol in PROTOCOLS:
            again = pickle.loads(pickle.dumps(value, protocol))
            assert parts(again) == parts(value), (name, protocol)
        assert parts(copy.copy(value)) == parts(value), name
        assert parts(copy.deepcopy(value)) == parts(value), name
    # Every class is among the values, or refuses.
    classes = {name for name in sd.__all__ if isinstance(getattr(sd, name), type)}
    errors = {name for name in classes if issubclass(getattr(sd, name), Exception)}
    streams = {"Channelizer", "Correlator", "Dedisperser", "Spiir", "Gulps", "Integrations", "Correlation"}
    assert classes - errors - streams - set(values) == {"DeviceArray", "DmRange", "Recording"}


def test_plans_trials_and_results_of_pickles_are_the_same(sky, candidates, psd, bank, strain, array):
    def again(value):
        return pickle.loads(pickle.dumps(value))

    header = sd.open_filterbank(sky).header
    plan = sd.dm_plan(header.freqs, header.tsamp, 500, channel_width=header.channel_width)
    assert list(sd.search(sky, plan=again(plan))) == list(candidates)
    noise = np.random.default_rng(3).normal(size=8192).astype("f4")
    wanted, got = sd.Spiir(bank), sd.Spiir(again(bank))
    z = wanted.push(noise)
    assert z.shape[1] and got.push(noise).tobytes() == z.tobytes()
    assert wanted.flush().tobytes() == got.flush().tobytes()
    found = [sd.find_triggers(z, one, 1e9, threshold=3) for one in (bank, again(bank))]
    assert len(found[0]) and found[0].tobytes() == found[1].tobytes()
    # The masses and the spins of a waveform, and the whole bank, have no attribute of their own.
    wave = sd.inspiral(25, 26, spin1z=0.1, sample_rate=2048, f_low=20)
    assert parts(again(wave).__reduce__()[1]) == parts(wave.__reduce__()[1])
    assert again(bank).__reduce__()[1] == bank.__reduce__()[1]
    assert parts(sd.delays(again(array), (83.6, 22), 60676.0)) == parts(sd.delays(array, (83.6, 22), 60676.0))
    assert again(array).__reduce__()[1] == array.__reduce__()[1]
    assert again(strain).__reduce__()[1][3] == strain.__reduce__()[1][3]


def test_a_recording_is_opened_again(sky, tmp_path, monkeypatch):
    path = tmp_path / "sky.fil"
    path.write_bytes(sky.read_bytes())
    monkeypatch.chdir(tmp_path)
    recording = sd.open_filterbank("sky.fil", allow_gaps=True)
    recording.read(100, 10)
    # Its paths do not depend on the folder in which it is loaded.
    stored = [pickle.dumps(recording, protocol) for protocol in PROTOCOLS]
    monkeypatch.chdir(sky.parent)
    for again in [*map(pickle.loads, stored), copy.copy(sd.open_filterbank(path))]:
        np.testing.assert_array_equal(again.read(5, 20), recording.read(5, 20))
    path.unlink()
    with pytest.raises(sd.FileError, match="sky.fil"):
        pickle.loads(stored[0])


def test_a_stream_refuses(bank, sky):
    recording = sd.open_filterbank(sky)
    streams = [
        *(sd.Channelizer(8, encoding="float32"), sd.Correlator(2, 4), sd.Spiir(bank)),
        *(sd.Dedisperser(FREQS, 1e-3, [0.0], "u1"), recording.gulps(100)),
    ]
    for stream in streams:
        for store in [copy.copy, copy.deepcopy, *(functools.partial(pickle.dumps, protocol=p) for p in PROTOCOLS)]:
            with pytest.raises(TypeError, match=f"{type(stream).__name__} is neither pickled nor copied; .* process"):
                store(stream)


def candidate_of(source, **options):
    """Search a recording or file in a worker; return the candidates and an array around the first."""
    found = sd.search(source, threads=1, **options)
    return found, sd.cutout(source, found[0])


def test_processes_search_files_and_return_candidates(sky, candidates, tmp_path):
    plan = sd.dm_plan(np.asarray(sd.open_filterbank(sky).header.freqs), 512e-6, 500)
    damaged = tmp_path / "damaged.fil"
    damaged.write_bytes(sky.read_bytes()[:300])
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        # A function of the package is a task as it is.
        plain = pool.submit(sd.search, sky, dm_max=500, threads=1)
        opened = pool.submit(candidate_of, sd.open_filterbank(sky), plan=plan)
        fault = pool.submit(sd.search, damaged, dm_max=500)
        missing = pool.submit(sd.open_filterbank, tmp_path / "none.fil")
        assert parts(plain.result()) == parts(candidates)
        found, cutout = opened.result()
        assert list(found) == list(sd.search(sky, plan=plan))
        assert parts(cutout) == parts(sd.cutout(sky, found[0]))
        with pytest.raises(sd.FormatError, match="damaged.fil"):
            fault.result()
        with pytest.raises(sd.FileError) as error:
            missing.result()
        assert error.value.errno == 2 and error.value.filename == str(tmp_path / "none.fil")


#: What may stand in a damaged pickle in place of a part.
PARTS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3),
    st.sampled_from([2**63, -1, 1e300, float("nan"), float("inf"), object(), {}, np.zeros(3), np.zeros((2, 2), "c8")]),
    st.lists(st.one_of(st.floats(), st.integers(), st.text(max_size=2)), max_size=4),
)  # fmt: skip


@settings(deadline=None, max_examples=400, derandomize=True)
@given(st.data())
def test_damaged_pickles_are_errors(values, sky, data):
    name = data.draw(st.sampled_from([name for name, value in values.items() if "__dict__" not in dir(value)]))
    value = values[name]
    make, arguments, *_ = value.__reduce_ex__(4)
    state = list(arguments)
    # The class itself stays: other pickles make objects of other classes.
    first = 1 if state and state[0] is type(value) else 0
    place = data.draw(st.integers(first, len(state)))
    state[place : place + 1] = data.draw(st.lists(PARTS, max_size=2))
    try:
        again = make(*state)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        assert str(error)
        return
    assert type(again) is type(value) and repr(again)
    parts(again)
    if name == "Candidate":
        for use in [lambda: sd.cutout(sky, again), lambda: sd.cutout(sky, again, fetch=True)]:
            try:
                use()
            except (ValueError, MemoryError) as error:
                assert str(error)
    if name == "Array":
        sd.delays(again, (83.6, 22), 60676.0)
    if name == "DmPlan":
        assert len(again.dms) == len(again)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.data())
def test_damaged_banks_are_errors(bank, data):
    make, (contents,) = bank.__reduce__()
    place = data.draw(st.integers(0, len(contents) - 1))
    length = data.draw(st.integers(0, 40))
    damaged = contents[:place] + data.draw(st.binary(max_size=20)) + contents[place + length :]
    try:
        again = make(damaged)
    except (sd.SiderealError, MemoryError) as error:
        assert str(error)
        return
    sd.Spiir(again).push(np.zeros(4096, "f4"))
