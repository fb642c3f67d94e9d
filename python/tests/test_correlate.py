"""X-engine: exact sums, splits, axes, and the filter bank before it."""

import numpy as np
import pytest

import sidereal_dsp as sd

RANDOM = np.random.default_rng(8)


def spectra(times, antennas=5, pols=2, channels=6):
    return RANDOM.integers(-128, 128, size=(times, antennas, pols, channels, 2), dtype=np.int8)


def as_complex(x):
    return x[..., 0].astype(np.float64) + 1j * x[..., 1]


@pytest.mark.parametrize("pols", [1, 2])
def test_sums_of_integers_are_exact(pols):
    x = spectra(333, pols=pols)
    z = as_complex(x)
    wanted = np.einsum("tapc,tbqc->capbq", z, z.conj())
    visibilities = sd.correlate(x, encoding="int8_pair")
    assert visibilities.sums.shape == (6, 15, pols * pols)
    np.testing.assert_array_equal(visibilities.matrix(), wanted)
    i, j = visibilities.baselines[7]
    np.testing.assert_array_equal(visibilities.sums[:, 7, 0], wanted[:, i, 0, j, 0])
    assert (visibilities.counts == 333).all() and visibilities.spectra == 333
    np.testing.assert_array_equal(visibilities.mean(), visibilities.sums / 333)
    pairs = x.view(np.dtype([("re", "i1"), ("im", "i1")]))[..., 0]
    np.testing.assert_array_equal(sd.correlate(pairs).sums, visibilities.sums)


def test_floats_and_splits():
    z = as_complex(spectra(500)).astype(np.complex64)
    whole = sd.correlate(z)
    wanted = np.einsum("tapc,tbqc->capbq", z, z.conj())
    np.testing.assert_allclose(whole.matrix(), wanted, rtol=1e-4, atol=200)
    correlator = sd.Correlator(5, 6)
    for part in np.split(z, [1, 77, 300]):
        correlator.push(part)
    assert correlator.read(reset=False).spectra == 500
    np.testing.assert_array_equal(correlator.read().sums, whole.sums)
    assert correlator.read().spectra == 0
    assert np.isnan(correlator.read().mean()).all()


def test_it_takes_what_the_filter_bank_gives():
    x = (RANDOM.normal(size=(3, 2, 4096)) + 0j).astype(np.complex64)
    y = sd.channelize(x, 32)
    autos = sd.correlate(y).matrix().diagonal(axis1=1, axis2=3)
    powers = (np.abs(y) ** 2).sum(axis=0)
    np.testing.assert_allclose(autos[:, 0, 0, 1].real, powers[1, 0], rtol=1e-4)


def test_order_and_layout_do_not_matter():
    x = spectra(64)
    wanted = sd.correlate(x, encoding="int8_pair").sums
    for axes in [(1, 2, 0, 3, 4), (3, 0, 1, 2, 4)]:
        back = np.argsort(axes)
        other = np.ascontiguousarray(x.transpose(axes)).transpose(back)
        correlator = sd.Correlator(5, 6, encoding="int8_pair")
        correlator.push(other)
        np.testing.assert_array_equal(correlator.read().sums, wanted)


def test_one_polarization_needs_no_axis():
    x = spectra(50, pols=1)
    flat = np.ascontiguousarray(x[:, :, 0])
    np.testing.assert_array_equal(
        sd.correlate(flat, encoding="int8_pair").sums, sd.correlate(x, encoding="int8_pair").sums
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: sd.correlate(x), "axes|encoding"),
        (lambda x: sd.correlate(x[0, 0], encoding="int8_pair"), "axes"),
        (lambda x: sd.correlate(x[:, :0], encoding="int8_pair"), "antennas"),
        (lambda x: sd.correlate(x[..., 0].astype(np.float32)), "complex"),
        (lambda x: sd.Correlator(4, 6, encoding="int8_pair").push(x), "4 antennas"),
        (lambda x: sd.Correlator(5, 6).push(x[..., 0].astype(np.complex128)), "complex64"),
        (lambda x: sd.Correlator(0, 6), "antennas"),
        (lambda x: sd.Correlator(5, 6, pols=3), "polarizations"),
        (lambda x: sd.Correlator(5, 6, precision="f64"), "precision"),
        (lambda x: sd.Correlator(5, 6).push(None), "axes"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words) as raised:
        make(spectra(20))
    assert isinstance(raised.value, sd.SiderealError)
