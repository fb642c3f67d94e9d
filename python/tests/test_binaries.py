"""Search for binaries: the command line's events, arrays and files, and wrong arguments."""

import json

import numpy as np
import pytest

import sidereal_dsp as sd


@pytest.fixture(scope="module")
def merger(command, tmp_path_factory):
    """Return the files of 64 s of strain with a merger, and what the command line finds in them."""
    folder = tmp_path_factory.mktemp("strain")
    inject = "m1=30,m2=30,distance=600,ra=1.2,dec=-0.4,inclination=0.3,time=1000000040"
    made = command(
        *("simulate", "strain", folder / "bbh.hdf5", "--start", 1000000000, "--length", 64),
        *("--rate", 2048, "--inject", inject),
    )
    assert made.returncode == 0, made.stderr
    files = [folder / f"bbh_{name}.hdf5" for name in ("H1", "L1")]
    made = command(
        *("spiir", "search", *files, "--masses", "28:32", "-o", folder / "events", "--no-plots"),
        *("--device", "cpu", "--check-points", 0),
    )
    assert made.returncode == 0, made.stderr
    return files, json.loads((folder / "events" / "events.json").read_text())


def test_events_are_those_of_the_command_line(merger):
    files, document = merger
    events = sd.search_strain([sd.read_strain(path) for path in files], masses=(28, 32))
    assert len(events) == document["found"] >= 1
    for event, row in zip(events, document["events"], strict=True):
        for name in ["gps", "network_snr", "far_hz", "ranking"]:
            assert getattr(event, name) == pytest.approx(row[name], rel=1e-9)
        assert event.template == row["template"]
        assert event.masses == (row["binary"]["mass1"], row["binary"]["mass2"])
        assert set(event.triggers) == set(row["detectors"])
        for name, trigger in event.triggers.items():
            for field in ["gps", "snr", "phase", "xi2"]:
                assert getattr(trigger, field) == pytest.approx(row["detectors"][name][field], rel=1e-7)
    assert abs(events[0].gps - 1000000040) < 0.02 and events[0].network_snr > 15
    assert events.livetime == pytest.approx(document["livetime_s"])
    assert events.incomplete is None and set(events.psds) == {"H1", "L1"}
    frame = events.to_pandas()
    assert list(frame.gps) == [event.gps for event in events] and "L1_snr" in frame
    table = events.to_table()
    assert str(table["mass1"].unit) == "solMass" and str(table["H1_gps"].unit) == "s"
    assert len(events[:1]) == 1 and repr(events).startswith("<Events:")


def test_arrays_give_what_files_give(merger):
    files, _ = merger
    strain = [sd.read_strain(path) for path in files]
    assert (strain[0].detector, strain[0].sample_rate, strain[0].t0) == ("H1", 2048, 1e9)
    assert len(strain[0]) == 64 * 2048 and strain[0].valid.all()
    again = [sd.Strain(one.detector, one.samples, one.sample_rate, one.t0) for one in strain]
    assert np.shares_memory(again[0].samples, strain[0].samples)
    templates = [(30, 30), (29, 31, 0.0, 0.0)]
    one = sd.search_strain(strain, templates=templates, slides=10)
    other = sd.search_strain(again, templates=templates, slides=10, threads=1)
    assert [event.gps for event in one] == [event.gps for event in other]
    assert one[0].triggers == other[0].triggers and one[0].spins == (0, 0)
    time = pytest.importorskip("astropy.time")
    start = time.Time(1e9, format="gps")
    assert sd.Strain("H1", strain[0].samples, 2048, start).t0 == 1e9


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda one: sd.search_strain([]), "masses and templates"),
        (lambda one: sd.search_strain([], masses=(1, 2)), "strain"),
        (lambda one: sd.search_strain([one], masses=(1, 2), templates=[(1, 2)]), "one of"),
        (lambda one: sd.search_strain([one], templates=[(1,)]), "two masses"),
        (lambda one: sd.search_strain([one], templates=[]), "templates"),
        (lambda one: sd.search_strain([one], templates=[(-1, float("nan"))]), "mass"),
        (lambda one: sd.search_strain([one], masses=(40, 30)), "mass|binary"),
        (lambda one: sd.search_strain([one], masses=(30, 31), f_low=0), "f_low"),
        (lambda one: sd.search_strain([one], masses=(30, 31), threshold=0), "threshold"),
        (lambda one: sd.search_strain([one], masses=(30, 31), segment=1e9), "segment"),
        (lambda one: sd.search_strain([one], masses=(30, 31), slides=-1), "slides"),
        (lambda one: sd.search_strain([one, one], templates=[(30, 30)]), "H1|detector"),
        (lambda one: sd.Strain("H1", one.samples, 512, -1), "t0"),
        (lambda one: sd.Strain("H1", one.samples, 512, "now"), "t0"),
        (lambda one: sd.Strain("H1", one.samples[::2], 512, 0), "contiguous"),
        (lambda one: sd.Strain("H1", one.samples, 512, 0, valid=[1]), "valid"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    samples = np.random.default_rng(2).normal(scale=1e-21, size=32 * 512)
    with pytest.raises(ValueError, match=words) as raised:
        make(sd.Strain("H1", samples, 512, 1e9))
    assert isinstance(raised.value, sd.SiderealError)


def test_files_that_fail_are_named(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        sd.read_strain(tmp_path / "none.hdf5")
    (tmp_path / "bad.hdf5").write_bytes(b"nonsense" * 100)
    with pytest.raises(sd.SiderealError, match=r"bad\.hdf5"):
        sd.read_strain(tmp_path / "bad.hdf5")
