"""Our FFT matched filter beside PyCBC's, on simulated noise and on the recording of GW150914."""

import h5py
import numpy
import pytest
from conftest import BUILT, call, client

RATE = 4096
F_LOW = 20.0


def ours(folder, strain, plus, cross, psd):
    """Our ratios, with the wave's peak at each sample."""
    numpy.save(folder / "strain.npy", strain)
    numpy.save(folder / "template.npy", numpy.array([plus, cross]))
    numpy.save(folder / "psd.npy", psd)
    names = [folder / f"{name}.npy" for name in ("strain", "template", "psd")]
    call(BUILT / "examples" / "matched", *names, folder / "z", f"rate={RATE}", f"f_low={F_LOW}")
    return numpy.fromfile(folder / "z", dtype="<c16")


def theirs(strain, plus, cross, psd):
    """PyCBC's, likewise."""
    types, matched = client("pycbc.types"), client("pycbc.filter").matched_filter
    wave = numpy.zeros(len(strain))
    wave[: len(plus)] = plus
    wave = numpy.roll(wave, -int(numpy.argmax(numpy.hypot(plus, cross))))
    series = [types.TimeSeries(values, delta_t=1 / RATE) for values in (wave, strain)]
    spectrum = types.FrequencySeries(psd, delta_f=RATE / len(strain))
    return matched(*series, psd=spectrum, low_frequency_cutoff=F_LOW).numpy()


def compare(folder, strain, plus, cross, psd):
    mine, other = ours(folder, strain, plus, cross, psd), theirs(strain, plus, cross, psd)
    loud = numpy.abs(other) > 3
    assert loud.sum() > 5
    ratio = mine[loud] / other[loud]
    assert numpy.abs(numpy.abs(ratio) - 1).max() < 0.01
    assert numpy.abs(numpy.angle(ratio)).max() < 0.02
    return mine


def white(strain, segment=4 * RATE):
    """Welch's median spectrum on the strain's own bins."""
    signal = pytest.importorskip("scipy.signal")
    frequencies, density = signal.welch(strain, RATE, "hann", segment, average="median")
    bins = numpy.fft.rfftfreq(len(strain), 1 / RATE)
    return numpy.interp(bins, frequencies, density)


@pytest.mark.parametrize("masses", [(30, 20), (1.4, 1.4)])
def test_an_injected_inspiral(tmp_path, masses):
    get = client("pycbc.waveform").get_td_waveform
    plus, cross = get(
        approximant="TaylorT4", mass1=masses[0], mass2=masses[1], delta_t=1 / RATE, f_lower=40.0
    )
    plus, cross = plus.numpy(), cross.numpy()
    noise = numpy.random.default_rng(1993)
    times = max(2**16, 2 ** int(numpy.ceil(numpy.log2(len(plus)) + 1)))
    strain = noise.normal(0, 1e-21, times)
    at, phase = times // 4, 0.7
    wave = 14 * (numpy.cos(phase) * plus + numpy.sin(phase) * cross)
    wave *= 1e-21 / numpy.sqrt((plus**2).sum())
    strain[at : at + len(plus)] += wave
    z = compare(tmp_path, strain, plus, cross, white(strain))
    found = numpy.argmax(numpy.abs(z))
    assert abs(found - at - numpy.argmax(numpy.hypot(plus, cross))) < 3
    # h_plus turned forward by a phase: z turns back by it.
    assert abs(numpy.angle(z[found]) + phase) < 0.3


@pytest.mark.parametrize("detector", ["H-H1", "L-L1"])
def test_the_recording_of_gw150914(tmp_path, recording, detector):
    with h5py.File(recording(f"gw/{detector}_LOSC_4_V2-1126259446-32.hdf5")) as file:
        strain = file["strain/Strain"][()]
    with h5py.File(recording("gw/GW150914_4_template.hdf5")) as file:
        plus, cross = file["template"][()].astype(float)
    signal = pytest.importorskip("scipy.signal")
    tukey = signal.windows.tukey(len(strain), 1 / 8)
    z = compare(tmp_path, strain * tukey, plus, cross, white(strain))
    inner = numpy.abs(z[4 * RATE : -4 * RATE])
    gps = 1126259446 + 4 + numpy.argmax(inner) / RATE
    expected = {"H-H1": (1126259462.4236, 18.0, 19.7), "L-L1": (1126259462.4165, 12.6, 13.9)}
    time, low, high = expected[detector]
    assert abs(gps - time) < 3e-3 and low < inner.max() < high, (gps, inner.max())
