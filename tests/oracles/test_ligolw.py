"""Events that we write open in igwn-ligolw, lal and ligo.skymap, and BAYESTAR finds them where they came from."""

import functools
import gzip

import numpy
import pytest
from conftest import BUILT, call, client

PROGRAM = BUILT / "examples" / "gravitational"
RATE = 4096
START = 1187008000
GPS = START + 32
#: Where the simulated source is: right ascension, declination, polarization, inclination (radians).
RA, DEC, PSI, INCLINATION = 1.9, -0.4, 0.7, 2.6
DISTANCE = 60.0
IFOS = ("H1", "L1", "V1")
MASSES = (3.0, 2.5)
F_LOW = 40.0


@functools.cache
def design_psd():
    """Advanced LIGO's design sensitivity at 1/64 Hz, as PyCBC has it."""
    make = client("pycbc.psd").aLIGOZeroDetHighPower
    return make(32 * RATE + 1, 1 / 64, 10.0)


@functools.cache
def ratios():
    """PyCBC's complex SNR of a source without noise: {detector: (peak's sample, snr series)}."""
    types, detectors = client("pycbc.types"), client("pycbc.detector")
    waveform, matched = client("pycbc.waveform"), client("pycbc.filter")
    common = dict(approximant="TaylorT4", mass1=MASSES[0], mass2=MASSES[1], f_lower=F_LOW - 5, delta_t=1 / RATE)
    template, _ = waveform.get_td_waveform(distance=1.0, **common)
    plus, cross = waveform.get_td_waveform(distance=DISTANCE, inclination=INCLINATION, **common)
    template.resize(64 * RATE)
    template = template.cyclic_time_shift(template.start_time)
    found = {}
    for ifo in IFOS:
        detector = detectors.Detector(ifo)
        pattern = detector.antenna_pattern(RA, DEC, PSI, GPS)
        series = numpy.zeros(64 * RATE)
        first = 32 * RATE + round(float(plus.start_time) * RATE)
        series[first : first + len(plus)] = pattern[0] * plus.numpy() + pattern[1] * cross.numpy()
        spectrum = numpy.fft.rfft(series)
        turn = numpy.arange(len(spectrum)) / 64 * detector.time_delay_from_earth_center(RA, DEC, GPS)
        strain = types.TimeSeries(numpy.fft.irfft(spectrum * numpy.exp(-2j * numpy.pi * turn)), 1 / RATE, epoch=START)
        z = matched.matched_filter(template, strain, psd=design_psd(), low_frequency_cutoff=F_LOW).numpy()
        found[ifo] = int(numpy.argmax(abs(z))), z
    return found


def describe(folder, output, ifos=IFOS, conjugate=False):
    """Writes the events' file with our program."""
    lines = ["parameter --snr 4"]
    found = ratios()
    loudest = max(ifos, key=lambda ifo: abs(found[ifo][1][found[ifo][0]]))
    network = sum(abs(found[ifo][1][found[ifo][0]]) ** 2 for ifo in ifos) ** 0.5
    ns = {ifo: START * 10**9 + round(found[ifo][0] * 1e9 / RATE) for ifo in ifos}
    lines.append(f"event {ns[loudest]} {network} 1e-9 {MASSES[0]} {MASSES[1]} 0.1 -0.2 20 800")
    for ifo in ifos:
        peak, z = found[ifo]
        z = z.conj() if conjugate else z
        lines.append(f"detector {ifo} {ns[ifo]} {abs(z[peak])} {numpy.angle(z[peak])} 0.9 70 5e5")
        around = z[peak - 400 : peak + 401].astype("c8")
        around.tofile(folder / f"{ifo}.c64")
        lines.append(f"snr {START * 10**9 + round((peak - 400) * 1e9 / RATE)} {RATE} {folder / f'{ifo}.c64'}")
        psd = design_psd().numpy()[::16].copy()
        psd[psd == 0] = numpy.inf
        psd.tofile(folder / f"{ifo}.f64")
        lines.append(f"psd {ifo} 0.25 {folder / f'{ifo}.f64'}")
    (folder / "description").write_text("\n".join(lines))
    call(PROGRAM, "events", folder / "description", output)
    return output


@pytest.mark.parametrize("name", ["events.xml", "events.xml.gz"])
def test_igwn_ligolw_opens_our_events(tmp_path, name):
    utils, tables = client("igwn_ligolw.utils"), client("igwn_ligolw.lsctables")
    series = client("lal.series")
    document = utils.load_filename(str(describe(tmp_path, tmp_path / name)))
    found = ratios()
    rows = tables.SnglInspiralTable.get_table(document)
    assert [row.ifo for row in rows] == list(IFOS)
    for row in rows:
        peak, z = found[row.ifo]
        assert row.end.ns() == START * 10**9 + round(peak * 1e9 / RATE)
        assert row.snr == pytest.approx(abs(z[peak]), rel=1e-6)
        assert row.coa_phase == pytest.approx(numpy.angle(z[peak]), abs=1e-6)
        assert (row.mass1, row.spin2z, row.chisq, row.chisq_dof) == (*(pytest.approx(x) for x in (3.0, -0.2, 0.9)), 1)
        assert row.channel is None
    (event,) = tables.CoincTable.get_table(document)
    (coincidence,) = tables.CoincInspiralTable.get_table(document)
    assert event.coinc_event_id == coincidence.coinc_event_id and event.nevents == 3
    assert coincidence.combined_far == 1e-9 and set(coincidence.instruments) == set(IFOS)
    mapped = [row.event_id for row in tables.CoincMapTable.get_table(document)]
    assert mapped == [row.event_id for row in rows]
    slides = tables.TimeSlideTable.get_table(document).as_dict()
    assert slides == {event.time_slide_id: {ifo: 0.0 for ifo in IFOS}}
    parameters = {row.param: row.value for row in tables.ProcessParamsTable.get_table(document)}
    assert parameters == {"--snr": "4", "--reference-psd": name}
    psds = series.read_psd_xmldoc(document)
    assert set(psds) == set(IFOS)
    expected = design_psd().numpy()[::16].copy()
    expected[expected == 0] = numpy.inf
    numpy.testing.assert_array_equal(psds["L1"].data.data, expected)
    assert psds["L1"].deltaF == 0.25


@pytest.mark.parametrize("table", ["sngl_inspiral", "process", "coinc_inspiral", "coinc_event", "process_params"])
def test_gwpy_opens_our_tables_without_names_of_columns(tmp_path, table):
    read = client("gwpy.table").EventTable.read
    rows = read(str(describe(tmp_path, tmp_path / "events.xml")), format="ligolw", tablename=table)
    if table == "sngl_inspiral":
        assert list(rows["ifo"]) == list(IFOS)
        assert list(rows["mass1"]) == [pytest.approx(MASSES[0])] * 3
        assert list(rows["impulse_time"]) == [0, 0, 0] and numpy.isnan(rows["tau0"]).all()


def test_bayestar_takes_our_events_with_its_default_waveform(tmp_path, monkeypatch):
    """Below four solar masses, that is: above, it asks for a table of SEOBNRv4 that LALSuite does not bring."""
    ligolw, bayestar = client("ligo.skymap.io.events.ligolw"), client("ligo.skymap.bayestar")
    monkeypatch.setattr("test_ligolw.MASSES", (1.5, 1.4))
    (event,) = ligolw.open(str(describe(tmp_path, tmp_path / "events.xml"))).values()
    *_, horizons = bayestar.condition(event, waveform="o2-uberbank", f_low=30)
    assert (numpy.asarray(horizons) > 100).all()


def test_ligo_skymap_opens_our_events(tmp_path):
    ligolw = client("ligo.skymap.io.events.ligolw")
    source = ligolw.open(str(describe(tmp_path, tmp_path / "events.xml")))
    (event,) = source.values()
    found = ratios()
    assert [single.detector for single in event.singles] == list(IFOS)
    for single in event.singles:
        peak, z = found[single.detector]
        around = single.snr_series
        assert around.epoch.ns() == START * 10**9 + round((peak - 400) * 1e9 / RATE)
        assert around.deltaT == 1 / RATE
        numpy.testing.assert_array_equal(around.data.data, z[peak - 400 : peak + 401].astype("c8"))
        assert single.phase == pytest.approx(numpy.angle(z[peak]), abs=1e-6)
        assert single.psd.data.data[400] == design_psd()[6400]
    assert event.template_args["mass1"] == pytest.approx(3.0)


def likeliest(path, places):
    """BAYESTAR's greatest log posterior at each place of the sky, over distance, orientation and time, and the cosine
    of the inclination that gives it."""
    ligolw, bayestar = client("ligo.skymap.io.events.ligolw"), client("ligo.skymap.bayestar")
    lal = client("lal")
    (event,) = ligolw.open(str(path)).values()
    epoch, rate, toas, snrs, responses, locations, horizons = bayestar.condition(
        event, waveform="TaylorF2threePointFivePN", f_low=F_LOW
    )
    gmst = lal.GreenwichMeanSiderealTime(epoch)
    constants = (*bayestar.condition_prior(horizons), gmst, rate, toas, snrs, responses, locations, horizons)
    distances = DISTANCE * numpy.array([0.7, 1.0, 1.4])
    orientations = numpy.linspace(-1, 1, 11)
    angles = numpy.linspace(0, 2 * numpy.pi, 12, endpoint=False)
    # The middle of the series, a few samples to either side.
    times = (0.5 * (snrs.shape[1] - 1) + numpy.arange(-16, 17) / 2) / rate
    grid = [axis.ravel() for axis in numpy.meshgrid(distances, orientations, angles, times)]
    best = []
    for ra, dec in places:
        values = bayestar.log_posterior_toa_phoa_snr(ra, numpy.sin(dec), *grid, *constants)
        best.append((numpy.max(values), grid[1][numpy.argmax(values)]))
    return best


def test_bayestar_finds_the_source_where_it_was(tmp_path):
    """The sign of phases too: conjugate series are those of an orbit that turns the other way round."""
    random = numpy.random.default_rng(3)
    places = [(RA, DEC)] + [(random.uniform(0, 2 * numpy.pi), numpy.arcsin(random.uniform(-1, 1))) for _ in range(40)]
    for name in ("ours", "conjugate"):
        (tmp_path / name).mkdir()
    ours = describe(tmp_path / "ours", tmp_path / "ours" / "events.xml")
    conjugate = describe(tmp_path / "conjugate", tmp_path / "conjugate" / "events.xml", conjugate=True)
    found = likeliest(ours, places)
    assert found[0][0] > max(value for value, _ in found[1:]) + 5
    assert found[0][1] * numpy.cos(INCLINATION) > 0.5
    assert likeliest(conjugate, places[:1])[0][1] * numpy.cos(INCLINATION) < -0.5


def printed(path, name):
    rows = [line.split("\t") for line in call(PROGRAM, "table", path, name).rstrip("\n").split("\n")]
    return [dict(zip(rows[0], row)) for row in rows[1:]]


@pytest.mark.parametrize("ending", ["xml", "xml.gz"])
def test_we_read_tables_of_igwn_ligolw(tmp_path, ending):
    ligolw, tables = client("igwn_ligolw.ligolw"), client("igwn_ligolw.lsctables")
    utils = client("igwn_ligolw.utils")
    document = ligolw.Document()
    document.appendChild(ligolw.LIGO_LW())
    table = tables.SnglInspiralTable.new(["event_id", "ifo", "mass1", "mass2", "end_time", "channel"])
    document.childNodes[0].appendChild(table)
    for index in range(3):
        row = table.RowType()
        row.event_id, row.ifo, row.mass1, row.mass2 = index, f"a\"b\\,<{index}", 1.25 + index, 1e-3
        row.end_time, row.channel = -index, None
        table.append(row)
    path = tmp_path / f"bank.{ending}"
    utils.write_filename(document, str(path))
    if ending == "xml.gz":
        assert gzip.decompress(path.read_bytes()).startswith(b"<?xml")
    rows = printed(path, "sngl_inspiral")
    assert [row["event_id"] for row in rows] == ["0", "1", "2"]
    assert [row["ifo"] for row in rows] == [f"a\"b\\,<{index}" for index in range(3)]
    assert [float(row["mass1"]) for row in rows] == [1.25, 2.25, 3.25]
    assert rows[2]["end_time"] == "-2" and rows[0]["channel"] == ""
