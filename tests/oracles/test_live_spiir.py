"""Alerts of `sidereal live spiir`: LIGO_LW files that ligo.skymap localizes, GCN notices by the core schemas."""

import json

import gcn_schema
import numpy
import pytest
from conftest import client, sidereal

START = 1400000000
TIME = START + 214.3
RA, DEC, INCLINATION, DISTANCE = 1.2, -0.4, 0.3, 500.0
IFOS = ("H1", "L1", "V1")
SOURCE = f"m1=30,m2=30,distance={DISTANCE},ra={RA},dec={DEC},inclination={INCLINATION},time={TIME}"


@pytest.fixture(scope="module")
def alerts(tmp_path_factory):
    """The folder of the alerts of a search, and its lines."""
    folder = tmp_path_factory.mktemp("alerts")
    sidereal("simulate", "strain", "--live", folder / "live", "--detectors", ",".join(IFOS), "--rate", 2048, "--seed", 3,
             "--start", START, "--length", 240, "--speed", 0, "--inject", SOURCE, "-q")
    (folder / "binaries.csv").write_text("mass1,mass2\n30,30\n20,10\n")
    frames = [word for ifo in IFOS for word in ("--frames", f"{ifo}={folder / 'live' / ifo}")]
    sidereal("live", "spiir", *frames, "--rate", 2048, "--templates", folder / "binaries.csv", "--f-low", 25, "--threshold", 3, "--until", START + 240,
             "-o", folder / "found", "--alerts", folder / "alerts", "--far-max", 1000, "-q")
    lines = (folder / "found" / "events.ndjson").read_text().splitlines()
    return folder / "alerts", [json.loads(line) for line in lines]


def test_notices_are_of_the_core_schemas(alerts):
    jsonschema, referencing = client("jsonschema"), client("referencing")
    contents = gcn_schema.schemas()
    if not contents:
        pytest.skip(f"{gcn_schema.NAME} is not installed")
    registry = referencing.Registry().with_contents((content["$id"], content) for content in contents)
    folder, lines = alerts
    notices = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    assert notices and {notice["alert_type"] for notice in notices} == {"initial", "update"}
    for name in ("Alert", "DateTime", "Event", "Reporter", "Statistics", "AdditionalInfo"):
        (own,) = [content for content in contents if content["$id"].endswith(f"/core/{name}.schema.json")]
        check = jsonschema.Draft202012Validator(own, registry=registry, format_checker=jsonschema.FormatChecker())
        for notice in notices:
            assert not [error.message for error in check.iter_errors(notice)], (name, notice)
        if name == "Statistics":
            assert list(check.iter_errors(notices[0] | {"far": "rare"}))
    from astropy.time import Time

    finals = {line["number"]: line for line in lines if line["state"] == "final"}
    for notice in notices:
        line = finals[int(notice["id"].rsplit("_")[-1])]
        assert abs(Time(notice["trigger_time"], scale="utc").gps - line["gps"]) < 2e-6
        assert notice["messenger"] == "GW" and notice["far"] == line["far_hz"]
        assert notice["far_per_year"] == pytest.approx(line["far_hz"] * 365.25 * 86400)


def test_ligo_skymap_localizes_the_source(alerts):
    ligolw, bayestar, lal = client("ligo.skymap.io.events.ligolw"), client("ligo.skymap.bayestar"), client("lal")
    folder, lines = alerts
    (path,) = folder.glob("*.initial.xml")
    (event,) = ligolw.open(str(path)).values()
    first = next(line for line in lines if line["state"] != "retracted" and abs(line["gps"] - TIME) < 0.1 and line["far_per_year"] < 1000)
    assert [single.detector for single in event.singles] == list(first["detectors"])
    for single in event.singles:
        trigger = first["detectors"][single.detector]
        z, epoch, step = single.snr_series.data.data, single.snr_series.epoch, single.snr_series.deltaT
        # A tenth of a second on each side of the peak, which is the trigger's in time, S/N and phase.
        assert len(z) == 2 * 205 + 1 and step == 1 / 2048
        assert abs(float(epoch) + 205 * step - trigger["gps"]) < step
        near = abs(z[203:208])
        assert near.max() == abs(z).max() == pytest.approx(trigger["snr"], rel=0.02)
        assert abs(numpy.angle(z[203 + near.argmax()] * numpy.exp(-1j * trigger["phase"]))) < 0.5
        assert single.psd.deltaF > 0 and single.psd.f0 == 0
    epoch, rate, toas, snrs, responses, locations, horizons = bayestar.condition(event, waveform="IMRPhenomD", f_low=25)
    # Distances of S/N 1 at the design sensitivity.
    assert all(5000 < horizon < 50000 for horizon in numpy.asarray(horizons)), horizons
    gmst = lal.GreenwichMeanSiderealTime(epoch)
    constants = (*bayestar.condition_prior(horizons), gmst, rate, toas, snrs, responses, locations, horizons)
    times = (0.5 * (snrs.shape[1] - 1) + numpy.arange(-24, 25) / 2) / rate
    distances, orientations = DISTANCE * numpy.array([0.7, 1.0, 1.4]), numpy.linspace(-1, 1, 11)
    angles = numpy.linspace(0, 2 * numpy.pi, 12, endpoint=False)
    grid = [axis.ravel() for axis in numpy.meshgrid(distances, orientations, angles, times)]

    def likeliest(ra, dec):
        return numpy.max(bayestar.log_posterior_toa_phoa_snr(ra, numpy.sin(dec), *grid, *constants))

    random = numpy.random.default_rng(3)
    others = [(random.uniform(0, 2 * numpy.pi), numpy.arcsin(random.uniform(-1, 1))) for _ in range(40)]
    assert likeliest(RA, DEC) > max(likeliest(*other) for other in others) + 5
