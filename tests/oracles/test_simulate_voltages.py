"""A pulse simulated in voltages, read by baseband and dedispersed by NumPy, is the pulse asked for."""

import json

import numpy
import pytest
from conftest import client, sidereal

DM, TIME, WIDTH, SNR = 12.0, 0.0301, 0.0004, 40.0
# pc cm^-3 to s MHz^2.
K = 4148.808


def dedispersed(voltages, rate, centre, reference, sign):
    """Coherent dedispersion of (time, channel): a pulse at every frequency is moved to `reference`.

    The phase is the integral of K DM (f^-2 - reference^-2) over f, all in MHz.
    """
    spectrum = numpy.fft.fft(voltages, axis=0)
    offset = numpy.fft.fftfreq(len(voltages), 1 / rate)
    f = centre + sign * offset[:, None]
    cycles = K * DM * 1e6 * (-1 / f + 1 / reference - (f - reference) / reference**2)
    return numpy.fft.ifft(spectrum * numpy.exp(sign * 2j * numpy.pi * cycles), axis=0)


@pytest.mark.parametrize("sideband", ["upper", "lower"])
def test_baseband_and_numpy_find_the_pulse(tmp_path, sideband):
    path = tmp_path / "pulse.raw"
    lower = ["--lower-sideband"] if sideband == "lower" else []
    sidereal(
        *("simulate", "voltages", path, "--freq", 350, "--bandwidth", 4, "--coarse-channels", 4),
        *("--duration", 0.1, "--seed", 3, "--tone", "freq=349.2,amp=0.3", *lower),
        *("--pulse", f"dm={DM},time={TIME},width={WIDTH},snr={SNR}"),
    )
    truth = json.loads(path.with_name(path.name + ".truth.json").read_text())["candidates"][0]
    assert truth["reference_mhz"] == 352.0
    with client("baseband.guppi").open(str(path), "rs", squeeze=False) as file:
        assert file.sample_rate.to_value("MHz") == pytest.approx(1.0)
        voltages = file.read(100_000)
    sign = -1 if sideband == "lower" else 1
    centres = 350.0 + sign * numpy.array([-1.5, -0.5, 0.5, 1.5])

    # The tone: 0.2 MHz above the bottom of the channel around 349.5 MHz, so 0.3 MHz below its centre.
    channel = list(centres).index(349.5)
    spectrum = numpy.abs(numpy.fft.fft(voltages[:, 0, channel]))
    frequency = numpy.fft.fftfreq(100_000)[numpy.argmax(spectrum)]
    assert frequency == pytest.approx(sign * -0.3)

    total = numpy.zeros(100_000)
    for polarization in range(2):
        z = dedispersed(voltages[:, polarization], 1.0, centres, 352.0, sign)
        total += (numpy.abs(z) ** 2).sum(axis=1)
    length = round(truth["boxcar_s"] * 1e6)
    sums = numpy.convolve(total, numpy.ones(length), "valid")
    quiet = sums[50_000::length]
    height = (sums.max() - quiet.mean()) / quiet.std()
    # The pulse's own noise, and a deviation from a hundred boxcars.
    assert height == pytest.approx(SNR, rel=0.25)
    # Sums of powers have a deviation that is known better than measured.
    powers = total[50_000:].mean()
    height = (sums.max() - powers * length) / (powers * numpy.sqrt(length / 8))
    assert height == pytest.approx(SNR, rel=0.12)
    assert (sums.argmax() + 0.5 * length) * 1e-6 == pytest.approx(TIME, abs=0.25 * WIDTH)
