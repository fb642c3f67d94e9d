"""Filter banks step by step: waveforms, filters, ratios of a stream, triggers and coincidences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidereal_dsp as sd

RATE = 2048
START = 1000000000
MERGER = START + 40


@pytest.fixture(scope="module")
def strain(command, tmp_path_factory):
    """Return the strain of two detectors with a merger."""
    folder = tmp_path_factory.mktemp("strain")
    inject = f"m1=30,m2=30,distance=600,ra=1.2,dec=-0.4,inclination=0.3,time={MERGER}"
    made = command(
        *("simulate", "strain", folder / "bbh.hdf5", "--start", START, "--length", 64),
        *("--rate", RATE, "--inject", inject),
    )
    assert made.returncode == 0, made.stderr
    return {name: sd.read_strain(folder / f"bbh_{name}.hdf5") for name in ("H1", "L1")}


@pytest.fixture(scope="module")
def chain(strain):
    """Return bank, whitened strain and ratios of each detector."""
    waves = [sd.inspiral(m, m, sample_rate=RATE, f_low=20) for m in (28, 30, 32)]
    made = {}
    for name, one in strain.items():
        psd = sd.estimate_psd(one.samples, RATE)
        white, valid = sd.whiten(one.samples, RATE, psd, f_low=20)
        bank = sd.design(waves, psd, f_low=20)
        spiir = sd.Spiir(bank)
        z = np.concatenate([spiir.push(white), spiir.flush()], axis=1)
        made[name] = (bank, white, valid, z)
    return made


def test_waveforms_are_those_of_the_masses():
    wave = sd.inspiral(30, 30, sample_rate=RATE, f_low=20)
    assert wave.samples.dtype == np.complex128 and len(wave) == len(wave.samples)
    assert np.abs(wave.samples).argmax() == wave.peak and wave.sample_rate == RATE
    again = sd.Waveform(wave.name, wave.samples, RATE)
    np.testing.assert_array_equal(again.samples, wave.samples)
    assert again.peak == wave.peak and again.name == wave.name
    assert len(sd.inspiral(30, 30, sample_rate=RATE, f_low=10)) > len(wave)
    taylor = sd.inspiral(1.4, 1.4, sample_rate=RATE, f_low=60, approximant="TaylorT2")
    assert len(taylor) != len(sd.inspiral(1.4, 1.4, sample_rate=RATE, f_low=60))


def test_the_merger_is_found_step_by_step(chain):
    triggers, valid = {}, {}
    for name, (bank, white, flags, z) in chain.items():
        assert len(bank) == 3 and (bank.fits > 0.9).all() and (bank.horizons > 100).all()
        assert z.shape == (3, len(white)) and z.dtype == np.complex64
        # Away from the merger, each quadrature has unit variance.
        quiet = z[1, 8 * RATE : 30 * RATE]
        assert quiet.real.std() == pytest.approx(1, rel=0.1)
        triggers[name] = sd.find_triggers(z, bank, START, valid=flags)
        best = triggers[name][triggers[name].snr.argmax()]
        assert abs(best.gps - MERGER) < 0.03 and best.snr > 9 and best.xi2 < 3
        valid[name] = [(START + 2, START + 62)]
        # The trigger is the peak of |z|, up to interpolation.
        at = round((best.gps - bank.peak_offsets[best.template] - START) * RATE)
        around = np.abs(z[best.template, at - 3 : at + 4]).max()
        assert best.snr == pytest.approx(around, rel=0.02)
    bank = chain["H1"][0]
    events = sd.coincide(triggers, valid, bank=bank)
    assert abs(events[0].gps - MERGER) < 0.03 and set(events[0].triggers) == {"H1", "L1"}
    assert events[0].template in bank.names and events[0].masses is not None
    assert events[0].far_hz is not None and events.detectors == ["H1", "L1"]
    assert events.livetime == pytest.approx(60, abs=0.1)
    assert "H1_snr" in events.to_pandas()
    plain = sd.coincide(triggers, valid, slides=0)
    # Without the bank, the template is its index.
    assert bank.names[int(plain[0].template)] == events[0].template
    assert plain[0].far_hz is None and plain[0].masses is None


def test_it_finds_what_the_search_finds(strain, chain):
    """Compare with `search_strain`, whose chain cuts glitches and pads gaps, too."""
    found = sd.search_strain(list(strain.values()), templates=[(28, 28), (30, 30), (32, 32)])
    bank, _, flags, z = chain["H1"]
    triggers = sd.find_triggers(z, bank, START, valid=flags)
    best = triggers[triggers.snr.argmax()]
    assert best.snr == pytest.approx(found[0].triggers["H1"].snr, rel=0.02)
    assert best.gps == pytest.approx(found[0].triggers["H1"].gps, abs=2e-3)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.lists(st.integers(0, 3000), max_size=5))
def test_any_split_of_a_stream_gives_the_whole(chain, lengths):
    bank, white, _, _ = chain["H1"]
    white = white[: sum(lengths) + 500]
    spiir = sd.Spiir(bank)
    whole = np.concatenate([spiir.push(white), spiir.flush()], axis=1)
    for _ in range(2):
        parts = [spiir.push(part) for part in np.split(white, np.cumsum(lengths))]
        np.testing.assert_array_equal(np.concatenate([*parts, spiir.flush()], axis=1), whole)


def test_out_is_written_in_place(chain):
    bank, white, _, z = chain["H1"]
    spiir = sd.Spiir(bank, threads=1)
    out = np.zeros((3, 5000 - spiir.latency), np.complex64)
    assert spiir.push(white[:5000], out=out) is out
    np.testing.assert_array_equal(out, z[:, : 5000 - spiir.latency])
    spiir.reset()
    assert spiir.push(white[:1]).shape == (3, 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda b, z, w: sd.Spiir(b).push(w.astype(np.float64)), "float32"),
        (lambda b, z, w: sd.Spiir(b).push(w.reshape(2, -1)), "one axis"),
        (lambda b, z, w: sd.Spiir(b).push(w[::2]), "contiguous"),
        (lambda b, z, w: sd.Spiir(b).push(w, out=np.empty((1, 1), np.complex64)), "shape"),
        (lambda b, z, w: sd.Spiir(b, device="x"), "device"),
        (lambda b, z, w: sd.inspiral(-1, 2), "mass"),
        (lambda b, z, w: sd.inspiral(30, 30, approximant="NRSur"), "approximant"),
        (lambda b, z, w: sd.inspiral(30, 30, f_low=5000), "[Nn]yquist|f_low|frequency"),
        (lambda b, z, w: sd.Waveform("x", np.ones(3), RATE), "complex128"),
        (lambda b, z, w: sd.Waveform("x", np.zeros(3, complex), RATE), "waveform|samples"),
        (lambda b, z, w: sd.design([], sd.Psd(1.0, np.ones(9))), "waveforms"),
        (lambda b, z, w: sd.find_triggers(z[:2], b, 0), "rows"),
        (lambda b, z, w: sd.find_triggers(z.real.copy(), b, 0), "complex64"),
        (lambda b, z, w: sd.find_triggers(z, b, -5), "t0"),
        (lambda b, z, w: sd.find_triggers(z, b, 0, valid=[True]), "valid"),
        (lambda b, z, w: sd.find_triggers(z, b, 0, threshold=0), "threshold"),
        (lambda b, z, w: sd.find_triggers(z, b, 0, window=-1), "window"),
        (lambda b, z, w: sd.coincide({}, {}), "detectors"),
        (lambda b, z, w: sd.coincide([], {}), "dict"),
        (lambda b, z, w: sd.coincide({"X9": None}, {}), "detector"),
        (lambda b, z, w: sd.coincide({"H1": None, "L1": None}, {"H1": [(0, 1)], "L1": [(0, 1)]}), "find_triggers"),
        (lambda b, z, w: sd.coincide({"H1": triggers(9), "L1": triggers(0)}, SPANS, bank=b), "template"),
        (lambda b, z, w: sd.coincide({"H1": triggers(0)}, {}), "times of H1"),
        (lambda b, z, w: sd.coincide({"H1": triggers(0), "L1": triggers(0)}, {**SPANS, "L1": [(3, 2)]}), "valid"),
    ],
)
def test_wrong_arguments_are_named(chain, make, words):
    bank, white, _, z = chain["H1"]
    with pytest.raises(ValueError, match=words) as raised:
        make(bank, z, white)
    assert isinstance(raised.value, sd.SiderealError)


SPANS = {"H1": [(START, START + 9)], "L1": [(START, START + 9)]}


def triggers(template):
    """Return one trigger as `find_triggers` does."""
    columns = [[template], [START + 5.0], [7.0], [0.0], [1.0]]
    return np.rec.fromarrays(columns, names="template,gps,snr,phase,xi2")
