"""Our waveforms against PyCBC's (LALSimulation's) of the same approximant, and the design curve against PyCBC's."""

import json

import numpy
import pytest
from conftest import BUILT, call, client

client("pycbc")

from pycbc.psd import aLIGOZeroDetHighPower  # noqa: E402
from pycbc.waveform import get_fd_waveform, get_td_waveform  # noqa: E402

RATE = 4096
# Masses, spins, lowest frequency.
PLAIN = [
    (1.4, 1.4, 0, 0, 30),
    (1.4, 5.0, 0, 0, 30),
    (10.0, 10.0, 0, 0, 20),
    (30.0, 30.0, 0, 0, 15),
    (40.0, 12.0, 0, 0, 15),
]
SPINNING = [
    (1.4, 1.4, 0.05, -0.03, 30),
    (5.0, 1.4, 0.3, 0.1, 30),
    (5.0, 1.4, -0.4, 0.05, 30),
    (10.0, 10.0, 0.3, 0.2, 20),
    (10.0, 10.0, -0.4, 0.3, 20),
    (30.0, 30.0, 0.5, 0.1, 15),
]


# Masses, spins, lowest frequency of waveforms with merger and ringdown: total masses of 2 to 200, mass ratios to 18,
# spins to 0.85, of equal masses to 0.98.
MERGING = [
    *((total * q / (1 + q), total / (1 + q), spin1z, spin2z, f_low)
      for total, f_low in ((5, 40), (12, 20), (40, 20), (100, 15), (190, 10))
      for q in (1.0, 2.0, 6.0, 18.0)
      for spin1z, spin2z in ((0, 0), (0.85, 0.85), (-0.85, -0.85), (0.5, -0.7), (-0.3, 0.8))),
    *((half, half, spin, spin, 20) for half in (5, 30, 100) for spin in (0.98, -0.98, 0.95)),
    (1.0, 1.0, 0.1, -0.1, 40),
    (1.4, 1.4, 0, 0, 20),
    (39.0, 34.0, 0.3, -0.4, 20),
    (30.0, 30.0, 0, 0, 15),
]  # fmt: skip


def ours(case, approximant, folder, amplitude="customary", rate=RATE):
    mass1, mass2, spin1z, spin2z, f_low = case
    path = folder / "wave.bin"
    words = (mass1, mass2, spin1z, spin2z, approximant, f_low, rate, 0, "customary", amplitude, path)
    call(BUILT / "examples" / "waveform", *words)
    plus, cross = numpy.fromfile(path).reshape(-1, 2).T
    return plus - 1j * cross


def theirs(case, approximant, rate=RATE, **options):
    mass1, mass2, spin1z, spin2z, f_low = case
    plus, cross = get_td_waveform(
        approximant=approximant, mass1=mass1, mass2=mass2, spin1z=spin1z, spin2z=spin2z,
        f_lower=f_low, delta_t=1 / rate, distance=1, **options,
    )  # fmt: skip
    return plus.numpy() - 1j * cross.numpy()


def theirs_whole(case, approximant):
    """LALSimulation's TaylorT2 finds each velocity by a search for a root, which on some processors leaves the orbit at
    once for heavy binaries: then another start is tried, and if none gives a wave like their own TaylorT4's, there is
    nothing to compare with."""
    norm = numpy.linalg.norm(theirs(case, "TaylorT4"))
    for nudge in (0, 1e-7, -1e-7, 1e-6, -1e-6, 1e-5):
        start = case[-1] * (1 + nudge)
        found = theirs((*case[:-1], start), approximant)
        if 0.5 < numpy.linalg.norm(found) / norm < 2:
            return found
    pytest.skip(f"LALSimulation's {approximant} of {case} is not a whole inspiral on this machine")


def overlap(one, other, f_low, rate=RATE):
    """The overlap over time (to an eighth of a sample) and phase, and the ratio of norms."""
    length = 1 << int(numpy.ceil(numpy.log2(max(len(one), len(other)) + rate)))
    spacing, half = rate / length, length // 2
    psd = aLIGOZeroDetHighPower(half + 1, spacing, min(f_low, 10)).numpy()
    weight = numpy.zeros(half + 1)
    band = slice(int(f_low / spacing), -1)
    weight[band] = 1 / psd[band]
    weight = numpy.concatenate([weight, weight[-2:0:-1]])
    first, second = (numpy.fft.fft(h, length) for h in (one, other))
    norms = [(abs(spectrum) ** 2 * weight).sum() for spectrum in (first, second)]
    product = numpy.zeros(8 * length, complex)
    product[:half], product[-half:] = numpy.split(first * second.conj() * weight, 2)
    peak = abs(numpy.fft.ifft(product)).max() * len(product)
    return peak / numpy.sqrt(norms[0] * norms[1]), numpy.sqrt(norms[0] / norms[1])


@pytest.mark.parametrize("case", PLAIN, ids=str)
@pytest.mark.parametrize("approximant", ["T4", "T2"])
def test_without_spins(case, approximant, tmp_path):
    found, expected = ours(case, approximant, tmp_path), theirs_whole(case, f"Taylor{approximant}")
    match, ratio = overlap(found, expected, case[-1])
    print(case, approximant, f"overlap {match:.6f}, amplitude {ratio:.5f}")
    assert match >= 0.999
    assert abs(ratio - 1) < 0.01
    # They begin alike: same amplitude, and the same sense of rotation.
    assert abs(abs(found[0]) / abs(expected[0]) - 1) < 1e-3
    turns = [numpy.angle(h[1] / h[0]) for h in (found, expected)]
    assert abs(turns[0] / turns[1] - 1) < 1e-3
    assert abs(len(found) - len(expected)) <= 2
    # The last sample is the peak.
    assert abs(found).argmax() == len(found) - 1


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_leading_amplitude(case, tmp_path):
    found = ours(case, "T4", tmp_path, amplitude="leading")
    match, ratio = overlap(found, theirs(case, "TaylorT4", amplitude_order=0), case[-1])
    assert match >= 0.999 and abs(ratio - 1) < 0.01


@pytest.mark.parametrize("case", SPINNING, ids=str)
@pytest.mark.parametrize("approximant, name", [("T4", "SpinTaylorT4"), ("T2", "SpinTaylorT5")])
def test_with_spins(case, approximant, name, tmp_path):
    """SpinTaylorT5 integrates the series of `dt/dv`, as TaylorT2 does.

    LALSimulation's last sample lies up to one sample before the end, where an orbit with spins is so fast that this is
    seen; so samples are short here.
    """
    rate = 4 * RATE
    found, expected = ours(case, approximant, tmp_path, rate=rate), theirs(case, name, rate)
    match, ratio = overlap(found, expected, case[-1], rate)
    print(case, approximant, f"overlap {match:.6f}, amplitude {ratio:.5f}")
    assert match >= 0.999
    assert abs(ratio - 1) < 0.01


@pytest.mark.parametrize("case", MERGING, ids=lambda case: ",".join(f"{number:.4g}" for number in case))
def test_with_merger(case, tmp_path):
    """Our series against LALSimulation's waveform in frequency: from the lowest frequency on, against the aLIGO design."""
    mass1, mass2, spin1z, spin2z, f_low = case
    found = ours(case, "IMRPhenomD", tmp_path)
    length = 1 << int(numpy.ceil(numpy.log2(len(found) + RATE)))
    expected, _ = get_fd_waveform(
        approximant="IMRPhenomD", mass1=mass1, mass2=mass2, spin1z=spin1z, spin2z=spin2z,
        f_lower=f_low, delta_f=RATE / length, f_final=RATE / 2, distance=1,
    )  # fmt: skip
    theirs_ = numpy.zeros(length // 2 + 1, complex)
    theirs_[: min(len(expected), len(theirs_))] = expected.numpy()[: len(theirs_)]
    mine = numpy.fft.rfft(found.real, length) / RATE
    psd = aLIGOZeroDetHighPower(length // 2 + 1, RATE / length, min(f_low, 9)).numpy()
    band = slice(int(numpy.ceil(f_low * length / RATE)), -1)
    weight = numpy.zeros(len(psd))
    weight[band] = 1 / psd[band]
    norms = [(abs(h) ** 2 * weight).sum() for h in (mine, theirs_)]
    product = mine * theirs_.conj() * weight
    # Over time: to a sample by a transform, then between samples.
    whole = abs(numpy.fft.ifft(product, length)).argmax()
    turns = numpy.arange(len(psd)) / length
    peak = max(abs((product * numpy.exp(2j * numpy.pi * turns * (whole + part / 32))).sum()) for part in range(-32, 33))
    match, ratio = peak / numpy.sqrt(norms[0] * norms[1]), numpy.sqrt(norms[0] / norms[1])
    print(case, f"match {match:.6f}, amplitude {ratio:.5f}, {len(found)} samples")
    assert match >= 0.9999
    assert abs(ratio - 1) < 0.01
    # The phase of h_plus - i h_cross falls with time: nothing turns the other way.
    spectrum = abs(numpy.fft.fft(found, length))
    assert spectrum[1 : length // 2].max() < 1e-3 * spectrum[length // 2 :].max()
    # It begins and ends in silence, and the ringdown follows the peak.
    size = abs(found)
    peak = size.argmax()
    assert size[0] < 1e-3 * size[peak] and size[-1] < 2e-3 * size[peak] and peak < len(found) - 8
    assert abs(numpy.angle(-found[peak])) < 0.05


def test_design_curve():
    spectrum = json.loads(call(BUILT / "examples" / "templates", "--design", 0.25, 8193))
    found = numpy.array(spectrum["densities"], float)
    expected = aLIGOZeroDetHighPower(8193, 0.25, 9).numpy()
    band = slice(40, 8000)
    assert abs(found[band] / expected[band] - 1).max() < 0.01
