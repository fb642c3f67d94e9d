"""Dedispersion and pulses: equation, any split of a stream, and the command line's series."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidereal_dsp as sd

FREQS = 1500.0 - 4.0 * np.arange(32)
RANDOM = np.random.default_rng(6)


def samples(times, dtype=np.uint8):
    return RANDOM.integers(0, 200, size=(times, 32)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.float32])
def test_it_computes_the_equation(dtype):
    x = samples(600, dtype)
    dms = [0.0, 30.0, 80.0]
    y = sd.dedisperse(x, FREQS, 1e-3, dms)
    plan = sd.Dedisperser(FREQS, 1e-3, dms, dtype)
    assert y.dtype == (np.float32 if dtype == np.float32 else np.int32)
    assert y.shape == (3, 600 - max(plan.shifts(0)))
    for trial in range(3):
        shifts = plan.shifts(trial)
        valid = 600 - max(shifts)
        wanted = sum(x[s : s + valid, c].astype(np.float64) for c, s in enumerate(shifts))
        np.testing.assert_allclose(y[trial, :valid], wanted, rtol=1e-6)
        assert not y[trial, valid:].any()


def test_masked_channels_and_summed_samples():
    x = samples(400)
    y = sd.dedisperse(x, FREQS, 1e-3, [0.0], downsample=4, mask=[0, 5])
    kept = np.delete(x, [0, 5], axis=1).astype(np.int32).sum(axis=1)
    np.testing.assert_array_equal(y[0], kept.reshape(-1, 4).sum(axis=1))


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=6),
    st.sampled_from([np.uint8, np.float32]),
    st.integers(1, 3),
)
def test_any_split_of_a_stream_gives_the_whole(lengths, dtype, downsample):
    x, dms = samples(sum(lengths), dtype), [10.0, 25.0, 60.0]
    whole = sd.dedisperse(x, FREQS, 1e-3, dms, downsample=downsample)
    stream = sd.Dedisperser(FREQS, 1e-3, dms, dtype, downsample=downsample)
    for _ in range(2):
        parts = [stream.push(part) for part in np.split(x, np.cumsum(lengths)[:-1])]
        np.testing.assert_array_equal(np.concatenate([*parts, stream.flush()], axis=1), whole)


def test_out_is_written_in_place():
    x = samples(300)
    wanted = sd.dedisperse(x, FREQS, 1e-3, [5.0, 9.0])
    out = np.empty_like(wanted)
    assert sd.dedisperse(x, FREQS, 1e-3, [5.0, 9.0], out=out) is out
    np.testing.assert_array_equal(out, wanted)


def test_the_series_are_those_of_the_command_line(sky, command, tmp_path):
    made = command(
        *("dedisperse", sky, "-o", tmp_path / "series", "--dm-min", 340, "--dm-max", 360),
        *("--dm-step", 5, "--format", "npy", "--rfi", "none"),
    )
    assert made.returncode == 0, made.stderr
    recording = sd.open(sky)
    header, x = recording.header, recording.read()
    series = sd.dedisperse(x, header.freqs, header.tsamp, np.arange(340.0, 361.0, 5.0))
    (file,) = (tmp_path / "series").glob("*.npy")
    written = np.load(file)
    assert written.shape[0] == 5
    stream = sd.Dedisperser(header.freqs, header.tsamp, np.arange(340.0, 361.0, 5.0), x.dtype)
    for trial in range(5):
        # After the end of a trial, files have its mean.
        valid = len(x) - max(stream.shifts(trial))
        assert valid > 18000
        np.testing.assert_array_equal(written[trial, :valid], series[trial, :valid])


def test_a_pulse_is_found_where_it_is():
    series = RANDOM.normal(size=(3, 8192)).astype(np.float32)
    series[1, 3000:3008] += 4.0
    found = sd.find_pulses(series, 1e-3, snr=8)
    assert len(found) == 1 and found.trial[0] == 1
    assert abs(int(found.sample[0]) - 3000) <= 1 and abs(int(found.width[0]) - 8) <= 2
    assert found.snr[0] == pytest.approx(4 * 8**0.5, rel=0.2)
    counts = np.round(series * 50).astype(np.int32)
    same = sd.find_pulses(counts, 1e-3, snr=8)
    assert (same.trial[0], same.sample[0]) == (found.trial[0], found.sample[0])
    assert len(sd.find_pulses(series[0], 1e-3, snr=8)) == 0


def test_plans_of_trials():
    plan = sd.dm_plan(FREQS, 1e-3, 500, dm_min=10)
    assert len(plan) == len(plan.dms) == sum(part.trials for part in plan.ranges)
    assert plan.dms[0] == 10 and plan.dms[-1] == pytest.approx(500)
    assert (np.diff(plan.dms) > 0).all()
    np.testing.assert_allclose(sd.dm_plan(FREQS, 1e-3, 3, dm_step=1).dms, [0, 1, 2, 3])
    assert len(sd.dm_plan(FREQS, 1e-3, 500, tolerance=1.05)) > len(sd.dm_plan(FREQS, 1e-3, 500))


def test_quantities_are_converted():
    units = pytest.importorskip("astropy.units")
    x = samples(300)
    y = sd.dedisperse(x, FREQS / 1e3 * units.GHz, 1 * units.ms, [5, 9] * units.pc / units.cm**3)
    np.testing.assert_array_equal(y, sd.dedisperse(x, FREQS, 1e-3, [5.0, 9.0]))
    with pytest.raises(units.UnitConversionError):
        sd.dedisperse(x, FREQS * units.s, 1e-3, [5.0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: sd.dedisperse(x[:, :31].copy(), FREQS, 1e-3, [1.0]), "channels"),
        (lambda x: sd.dedisperse(x[:, ::2], FREQS, 1e-3, [1.0]), "contiguous"),
        (lambda x: sd.dedisperse(x.astype(np.float64), FREQS, 1e-3, [1.0]), "float64"),
        (lambda x: sd.dedisperse(x[0], FREQS, 1e-3, [1.0]), "axes"),
        (lambda x: sd.dedisperse(x, FREQS, 0.0, [1.0]), "tsamp"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, []), "trial"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [-1.0]), "dm"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [float("nan")]), "dm"),
        (lambda x: sd.dedisperse(x, [], 1e-3, [1.0]), "channel"),
        (lambda x: sd.dedisperse(x, "freqs", 1e-3, [1.0]), "freqs"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], mask=[32]), "mask"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], mask=range(32)), "mask"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1e12]), "dm"),
        (lambda x: sd.dm_plan([1400.0], 1e-3, 10), "channel_width"),
        (lambda x: sd.dm_plan(FREQS, 1e-3, -10), "dm_max"),
        (lambda x: sd.dm_plan(FREQS, 1e-3, 10, dm_step=1, tolerance=1.1), "tolerance"),
        (lambda x: sd.find_pulses(x, 1e-3), "series"),
        (lambda x: sd.find_pulses(x.astype(np.int32), 1e-3, snr=0), "snr|S/N"),
        (lambda x: sd.Dedisperser(FREQS, 1e-3, [1.0], np.complex64), "dtype"),
        (lambda x: sd.Dedisperser(FREQS, 1e-3, [1.0], np.int8).push(x), "I8"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words) as raised:
        make(samples(300))
    assert isinstance(raised.value, sd.SiderealError)
