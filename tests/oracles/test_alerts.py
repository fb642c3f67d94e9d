"""Alerts of `sidereal live search`: GCN notices by their schemas, VOEvents as voevent-parse reads them."""

import json
import socket
import subprocess

import gcn_schema
import pytest
from conftest import BUILT, client, sidereal
from test_live import await_port
from test_send import free_port


@pytest.fixture(scope="module")
def alerts(tmp_path_factory):
    """The alerts of a search: `alerts(schema)` is their folder and the lines of its candidates."""
    folder = tmp_path_factory.mktemp("alerts")
    source = folder / "a.fil"
    # Two bursts of the same DM: the second event follows the first one. Of the noise above the low threshold some is retracted.
    sidereal("simulate", "burst", source, "-q", "--fch1", 1500, "--foff", -4, "--channels", 64, "--tsamp", 1e-3, "--duration", 6,
             "--seed", 3, "--burst", "dm=160,time=1.5,width=0.004,snr=25", "--burst",
             "dm=160,time=4.5,width=0.004,snr=15")
    made = {}

    def run(schema):
        if schema not in made:
            port = free_port()
            place = folder / schema
            command = ("live", "search", f"spead://127.0.0.1:{port}", "-o", place / "live", "--observations", 1, "-q",
                       "--no-plots", "--snr", 4, "--trigger-snr", 4, "--rfi", "none", "--trigger-most", 1000,
                       "--alerts", place / "alerts", "--alert-schema", schema,
                       "--alert-radius", 0.25, "--alert-ivorn", "ivo://example.org/live")
            command = [str(word) for word in (BUILT / "sidereal", *command)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
                try:
                    await_port(port)
                    sidereal("send", source, f"spead://127.0.0.1:{port}", "--rate", 10, "-q")
                    _, told = running.communicate(timeout=60)
                finally:
                    running.kill()
            assert running.returncode == 0, told
            lines = (place / "live" / "candidates.ndjson").read_text().splitlines()
            made[schema] = place / "alerts", [json.loads(line) for line in lines]
        return made[schema]

    return run


def validator(schema):
    """The validator of the notices of an instrument; the test is skipped, and says so, where the schemas are not there."""
    jsonschema = client("jsonschema")
    referencing = client("referencing")
    contents = gcn_schema.schemas()
    if not contents:
        pytest.skip(f"{gcn_schema.NAME} is not installed")
    # Identifiers have the version in place of the branch.
    own = [content for content in contents if content["$id"].endswith(f"/gcn/notices/{schema}/frb.schema.json")]
    registry = referencing.Registry().with_contents((content["$id"], content) for content in contents)
    return jsonschema.Draft202012Validator(own[0], registry=registry, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("schema", ["chime", "dsa110"])
def test_notices_validate_and_say_what_the_candidates_are(alerts, schema):
    check = validator(schema)
    folder, lines = alerts(schema)
    notices = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for notice in notices:
        faults = [error.message for error in check.iter_errors(notice)]
        assert not faults, (faults, notice)
    # The schemas refuse what is wrong, so that their silence says something.
    assert list(check.iter_errors(notices[0] | {"alert_type": "new"}))
    assert list(check.iter_errors(notices[0] | {"trigger_time_error": "small"}))
    kinds = {notice["alert_type"] for notice in notices}
    assert kinds == {"initial", "subsequent", "update", "retraction"}
    from astropy.time import Time

    best = max((line for line in lines if line["state"] == "final"), key=lambda line: line["snr"])
    own = [notice for notice in notices if notice["id"].endswith(f"_{best['number']:04}") and "snr" in notice]
    last = max(own, key=lambda notice: notice["record_number"])
    assert abs(last["snr"] - best["snr"]) < 1e-3 and abs(last["dm"] - best["dm"]) < 1e-3
    assert abs(Time(last["trigger_time"]).mjd - best["mjd"]) < 1e-10
    follows = {notice["known_source"] for notice in notices if notice["alert_type"] == "subsequent"}
    assert follows <= {notice["id"] for notice in notices}


def test_packets_are_valid_voevents_with_time_and_parameters(alerts):
    voeventparse = client("voeventparse")
    folder, lines = alerts("chime")
    paths = sorted(folder.glob("*.xml"))
    assert len(paths) == len(list(folder.glob("*.json"))) >= 4
    identifiers, cited = set(), set()
    for path in paths:
        with path.open("rb") as file:
            packet = voeventparse.load(file)
        assert voeventparse.valid_as_v2_0(packet), path
        identifiers.add(packet.attrib["ivorn"])
        cited |= {str(citation.text) for citation in packet.iterfind("Citations/EventIVORN")}
        notice = json.loads(path.with_suffix(".json").read_text())
        time = voeventparse.get_event_time_as_utc(packet)
        assert time.strftime("%Y-%m-%dT%H:%M:%S.%fZ") == notice["trigger_time"]
        if notice["alert_type"] == "retraction":
            continue
        own = voeventparse.get_grouped_params(packet)["event parameters"]
        assert float(own["dm"]["value"]) == notice["dm"] and float(own["snr"]["value"]) == notice["snr"]
        assert float(own["dm_error"]["value"]) == notice["dm_error"]
        if "ra" in notice:
            position = voeventparse.get_event_position(packet)
            assert (position.ra, position.dec, position.err) == (notice["ra"], notice["dec"], 0.25)
    # Each packet has an identifier of its own, and cites one that was sent.
    assert len(identifiers) == len(paths) and cited and cited <= identifiers


def test_lines_for_a_coincidencer_are_read_as_dsa110_reads_them(tmp_path):
    ascii = client("astropy.io.ascii")
    source = tmp_path / "a.fil"
    sidereal("simulate", "burst", source, "-q", "--fch1", 1500, "--foff", -4, "--channels", 64, "--tsamp", 1e-3, "--duration", 4,
             "--seed", 3, "--burst", "dm=60,time=1.5,width=0.004,snr=25")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        server.settimeout(30)
        port = free_port()
        command = [BUILT / "sidereal", "live", "search", f"spead://127.0.0.1:{port}", "-o", tmp_path / "live", "--observations",
                   1, "-q", "--no-plots", "--coincidencer", f"127.0.0.1:{server.getsockname()[1]}"]
        with subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) as running:
            try:
                await_port(port)
                sidereal("send", source, f"spead://127.0.0.1:{port}", "--rate", 10, "-q")
                connection, _ = server.accept()
                text = b""
                while part := connection.recv(4096):
                    text += part
            finally:
                connection.close()
                # Later gulps wait in the backlog.
                running.wait(timeout=60)
    gulp, *lines = text.decode().split("\n")
    assert int(gulp) >= 0
    names = ["snr", "if", "itime", "mjds", "ibox", "idm", "dm", "ibeam"]
    table = ascii.read("\n".join(lines), names=names, guess=True, fast_reader=False, format="no_header")
    best = table[table["snr"].argmax()]
    assert abs(best["dm"] - 60) < 5 and abs(best["mjds"] - 1.5) < 0.1 and best["snr"] > 6
    assert abs(best["itime"] * 1e-3 - best["mjds"]) < 2e-3 and 0 <= best["ibox"] <= 7
