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
    y, lengths = sd.dedisperse(x, FREQS, 1e-3, dms, return_valid=True)
    plan = sd.Dedisperser(FREQS, 1e-3, dms, dtype)
    assert lengths.dtype == np.int64 and list(lengths) == list(plan.valid_samples(600))
    assert y.dtype == (np.float32 if dtype == np.float32 else np.int32)
    assert y.shape == (3, 600 - max(plan.shifts(0)))
    for trial in range(3):
        shifts = plan.shifts(trial)
        valid = 600 - max(shifts)
        assert valid == lengths[trial]
        wanted = sum(x[s : s + valid, c].astype(np.float64) for c, s in enumerate(shifts))
        np.testing.assert_allclose(y[trial, :valid], wanted, rtol=1e-6)
        assert not y[trial, valid:].any()


def test_masked_channels_and_summed_samples():
    x = samples(400)
    y = sd.dedisperse(x, FREQS, 1e-3, [0.0], downsample=4, zap_channels=[0, 5])
    kept = np.delete(x, [0, 5], axis=1).astype(np.int32).sum(axis=1)
    np.testing.assert_array_equal(y[0], kept.reshape(-1, 4).sum(axis=1))


def test_left_out_channels_are_numbers_or_bools():
    x = samples(300)
    flags = np.zeros(32, bool)
    flags[[1, 7]] = True
    wanted = sd.dedisperse(x, FREQS, 1e-3, [5.0], zap_channels=[1, 7])
    assert (wanted != sd.dedisperse(x, FREQS, 1e-3, [5.0])).any()
    for zapped in [flags, list(flags), flags.tolist(), (7, 1, 1), np.array([1, 7], np.uint16)]:
        y = sd.dedisperse(x, FREQS, 1e-3, [5.0], zap_channels=zapped)
        np.testing.assert_array_equal(y, wanted)
        stream = sd.Dedisperser(FREQS, 1e-3, [5.0], x.dtype, zap_channels=zapped)
        np.testing.assert_array_equal(np.concatenate([stream.push(x), stream.flush()], axis=1), wanted)
    for none in [[], (), np.zeros(32, bool)]:
        y = sd.dedisperse(x, FREQS, 1e-3, [5.0], zap_channels=none)
        np.testing.assert_array_equal(y, sd.dedisperse(x, FREQS, 1e-3, [5.0]))


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
    recording = sd.open_filterbank(sky)
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
    series = np.random.default_rng(12).normal(size=(3, 8192)).astype(np.float32)
    series[1, 3000:3008] += 4.0
    found = sd.find_pulses(series, 1e-3, snr=8)
    assert len(found) == 1 and found.trial[0] == 1
    assert abs(int(found.sample[0]) - 3000) <= 1 and abs(int(found.width[0]) - 8) <= 2
    # The noise has mean 0 and standard deviation 1.
    boxcar = series[1, found.sample[0] : found.sample[0] + found.width[0]]
    assert found.snr[0] == pytest.approx(boxcar.sum() / len(boxcar) ** 0.5, rel=0.05) and found.snr[0] > 9
    counts = np.round(series * 50).astype(np.int32)
    same = sd.find_pulses(counts, 1e-3, snr=8)
    assert (same.trial[0], same.sample[0]) == (found.trial[0], found.sample[0])
    assert len(sd.find_pulses(series[0], 1e-3, snr=8)) == 0


def noise_with_a_pulse(dtype):
    """Return 8 s of noise of mean 100 in each channel, and a pulse in it at 3 s and a dispersion measure of 900."""
    x = np.random.default_rng(11).normal(100, 5, size=(8000, 32))
    for channel, shift in enumerate(sd.Dedisperser(FREQS, 1e-3, [900.0], np.float32).shifts(0)):
        x[3000 + shift : 3004 + shift, channel] += 8
    return np.clip(np.round(x), 0, 255).astype(dtype)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pulses_of_dedispersed_series_are_those_of_the_sky(dtype, device):
    x, dms = noise_with_a_pulse(dtype), [0.0, 900.0, 3600.0, 7200.0]
    series, valid = sd.dedisperse(x, FREQS, 1e-3, dms, return_valid=True, device=device)
    assert valid[0] == 8000 and 5900 < valid[2] < 7000 and not series[2, valid[2] :].any()
    # The sums of the last rows are about 3200, and then 0.
    assert series[2, valid[2] - 1] > 3000
    found = sd.find_pulses(series, 1e-3, snr=8, valid=valid, device=device)
    assert (found.sample + found.width <= valid[found.trial]).all()
    (best,) = found[found.trial == 1]
    assert abs(int(best["sample"]) - 3000) <= 1 and best["snr"] > 12
    # Other trials have nothing but this pulse, smeared.
    assert set(found.trial) <= {0, 1}
    # Each trial alone, ended where it is valid, has the same pulses.
    for trial, end in enumerate(valid):
        alone = sd.find_pulses(series[trial, :end].copy(), 1e-3, snr=8, device=device)
        for field in ("sample", "width", "snr"):
            np.testing.assert_array_equal(alone[field], found[found.trial == trial][field])
    types = {name: found.dtype[name] for name in found.dtype.names}
    assert types == {"trial": np.uint32, "sample": np.uint64, "width": np.uint32, "snr": np.float32}
    # Without `valid`, the search finds the steps to the zeros.
    steps = sd.find_pulses(series, 1e-3, snr=8, device=device)
    assert set(steps.trial) - {0, 1}


def test_valid_samples_are_optional_for_one_series():
    series = np.random.default_rng(13).normal(size=4096).astype(np.float32)
    series[2000:2008] += 6.0
    for valid in [4096, [4096], np.array([4096], np.uint16), None]:
        (found,) = sd.find_pulses(series, 1e-3, snr=10, valid=valid)
        assert abs(int(found["sample"]) - 2000) <= 1
    assert len(sd.find_pulses(series, 1e-3, snr=10, valid=1900)) == 0
    assert len(sd.find_pulses(series, 1e-3, snr=10, valid=[0])) == 0


def test_plans_of_trials():
    plan = sd.dm_plan(FREQS, 1e-3, 500, dm_min=10)
    assert len(plan) == len(plan.dms) == sum(part.trials for part in plan.ranges)
    assert all(part.dm_min < part.dm_end for part in plan.ranges)
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
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=[32]), "zap_channels"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=[-1]), "zap_channels"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=range(32)), "zap_channels"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=[True, False]), "2 bools"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=[True, 3]), "mixed with bools"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=[np.True_, 3]), "mixed with bools"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=np.ones(32, bool)), "all channels"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=[1.0]), "zap_channels"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1.0], zap_channels=3), "zap_channels"),
        (lambda x: sd.dedisperse(x, FREQS, 1e-3, [1e12]), "dm"),
        (lambda x: sd.dm_plan([1400.0], 1e-3, 10), "channel_width"),
        (lambda x: sd.dm_plan(FREQS, 1e-3, -10), "dm_max"),
        (lambda x: sd.dm_plan(FREQS, 1e-3, 10, dm_step=1, tolerance=1.1), "tolerance"),
        (lambda x: sd.find_pulses(x, 1e-3), "series"),
        (lambda x: sd.find_pulses(x.astype(np.int32), 1e-3, snr=0), "snr|S/N"),
        (lambda x: sd.find_pulses(x.astype(np.int32), 1e-3, valid=[32]), "valid"),
        (lambda x: sd.find_pulses(x.astype(np.int32), 1e-3, valid=[33] * 300), "33"),
        (lambda x: sd.find_pulses(x.astype(np.int32), 1e-3, valid=[-1] * 300), "-1"),
        (lambda x: sd.find_pulses(x.astype(np.int32), 1e-3, valid=[True] * 300), "valid"),
        (lambda x: sd.find_pulses(x.astype(np.int32), 1e-3, valid=[8.0] * 300), "valid"),
        (lambda x: sd.Dedisperser(FREQS, 1e-3, [1.0], np.uint8).valid_samples(-1), "rows"),
        (lambda x: sd.Dedisperser(FREQS, 1e-3, [1.0], np.complex64), "dtype"),
        (lambda x: sd.Dedisperser(FREQS, 1e-3, [1.0], np.int8).push(x), "I8"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words) as raised:
        make(samples(300))
    assert isinstance(raised.value, sd.SiderealError)
