"""Strain: spectra and whitening."""

import numpy as np
import pytest

import sidereal_dsp as sd

RATE = 1024


def noise(seconds=64):
    return np.random.default_rng(9).normal(scale=1e-21, size=seconds * RATE)


def test_the_spectrum_of_white_noise_is_its_variance():
    for average in ["median", "mean"]:
        psd = sd.estimate_psd(noise(), RATE, average=average)
        assert psd.df == 0.25 and len(psd) == 2049 and psd.frequencies[-1] == RATE / 2
        assert psd.densities[10:-10].mean() == pytest.approx(2 * 1e-42 / RATE, rel=0.03)


def test_it_is_the_mean_of_periodograms():
    strain = noise(16)
    psd = sd.estimate_psd(strain, RATE, segment=2, average="mean", skip_ends=0)
    window = np.hanning(2 * RATE + 1)[:-1]
    starts = range(0, len(strain) - 2 * RATE + 1, RATE)
    powers = [np.abs(np.fft.rfft(window * strain[s : s + 2 * RATE])) ** 2 for s in starts]
    wanted = 2 / (RATE * (window**2).sum()) * np.mean(powers, axis=0)
    np.testing.assert_allclose(psd.densities[1:-1], wanted[1:-1], rtol=1e-9)


@pytest.mark.parametrize("low_latency", [False, True])
def test_whitened_noise_has_unit_variance(low_latency):
    strain = np.convolve(noise(), [1.0, 0.9], mode="same")
    psd = sd.estimate_psd(strain, RATE, segment=4)
    white, valid = sd.whiten(strain, RATE, psd, f_low=10, low_latency=low_latency)
    assert white.dtype == np.float32 and white.shape == valid.shape == strain.shape
    assert valid[5 * RATE : -5 * RATE].all() and not valid[0]
    # The band below 10 Hz is missing.
    assert white[valid].std() == pytest.approx((1 - 9 / 512) ** 0.5, rel=0.03)
    again, _ = sd.whiten(strain, RATE, sd.Psd(psd.df, psd.densities), f_low=10, low_latency=low_latency)
    np.testing.assert_array_equal(again, white)


def test_samples_that_are_not_finite_are_left_out():
    strain = noise()
    strain[20_000:20_050] = np.nan
    flags = np.ones(len(strain), bool)
    flags[40_000:40_010] = False
    psd = sd.estimate_psd(strain, RATE, valid=flags)
    white, valid = sd.whiten(strain, RATE, psd, valid=flags)
    assert np.isfinite(white).all()
    assert not valid[20_000:20_050].any() and not valid[40_000:40_010].any()
    assert valid[30_000]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: sd.estimate_psd(x.astype(np.float32), RATE), "float64"),
        (lambda x: sd.estimate_psd(x[::2], RATE), "contiguous"),
        (lambda x: sd.estimate_psd(x[:0], RATE), "segment"),
        (lambda x: sd.estimate_psd(x, 0), "rate"),
        (lambda x: sd.estimate_psd(x, 1024.5), "rate"),
        (lambda x: sd.estimate_psd(x, RATE, segment=0), "segment"),
        (lambda x: sd.estimate_psd(x, RATE, average="mode"), "average"),
        (lambda x: sd.estimate_psd(x, RATE, skip_ends=-1), "ends"),
        (lambda x: sd.estimate_psd(x, RATE, valid=[True]), "valid"),
        (lambda x: sd.estimate_psd(np.zeros_like(x), RATE), "zero|0"),
        (lambda x: sd.whiten(x, RATE, sd.Psd(1.0, [1.0, 1.0])), "spectrum|Nyquist|reach"),
        (lambda x: sd.Psd(0.0, [1.0, 1.0]), "spacing"),
        (lambda x: sd.Psd(1.0, [1.0, -1.0]), "densit"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words) as raised:
        make(noise(16))
    assert isinstance(raised.value, sd.SiderealError)
