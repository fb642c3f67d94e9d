"""Recordings of `sidereal live record`, and VDIF frames of `sidereal send`, as baseband reads them."""

import csv
import json
import pathlib
import socket
import subprocess
import threading
import time

import numpy
import pytest
from conftest import BUILT, client, sidereal
from test_send import free_port

FORMATS = {"dada": ".dada", "guppi": ".raw"}


def await_port(port):
    """Waits until a program receives on a port."""
    for _ in range(3000):
        if f"0100007F:{port:04X} " in pathlib.Path("/proc/net/udp").read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"nobody receives on port {port}")


def live_record(source, folder, form, *options, send=()):
    """Sends a recording to `live record`: the file, its document, and the sender's."""
    port = free_port()
    address = form.replace("PORT", str(port))
    command = (BUILT / "sidereal", "live", "record", address, "-o", folder, "--observations", 1, "-q", *options)
    with subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True) as running:
        try:
            await_port(port)
            sent = json.loads(sidereal("send", source, address, "--rate", 0.2, "--json", *send))
            _, told = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 0, told
    (document,) = folder.glob("*.json")
    return document.with_suffix(""), json.loads(document.read_text()), sent


def lost_samples(path, times, sources):
    """Marks of the samples that a sender lists as lost: axes time, source."""
    marks = numpy.zeros((times, sources), bool)
    with path.open() as file:
        for row in csv.DictReader(file):
            first = int(row["first"])
            marks[first:first + int(row["times"]), int(row["source"])] = True
    return marks


def read(format, path, **known):
    """Samples (time, polarization, channel) and start, as baseband has them."""
    with client(f"baseband.{format}").open(str(path), "rs", squeeze=False, **known) as file:
        return file.read(), file.start_time


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("loss", [0, 0.1])
def test_what_live_record_wrote_reads_as_what_was_sent(tmp_path, format, loss):
    client(f"baseband.{format}")
    source = tmp_path / f"sent{FORMATS[format]}"
    sidereal("simulate", "voltages", source, "-q", "--freq", 430, "--bandwidth", 4, "--coarse-channels", 4,
             "--duration", 0.04, "--seed", 5, "--tstart", 60000.25)
    expected, start = read(format, source)
    folder, losses = tmp_path / "live", tmp_path / "lost.csv"
    send = ("--heap-times", 500, "--loss", loss, "--reorder", 0.1, "--seed", 2, "--lost-list", losses)
    path, document, sent = live_record(source, folder, "spead://127.0.0.1:PORT", "--format", format, send=send)
    found, found_start = read(format, path)
    times = document["samples"]
    assert times == sent["samples"] == 40_000
    # The one antenna loses all of its channels and polarizations together.
    lost = lost_samples(losses, times, 1)[:, 0]
    assert (lost.sum() > 1000) == (loss > 0)
    assert found.shape[1:] == expected.shape[1:] == (2, 4)
    numpy.testing.assert_array_equal(found[:times][~lost], expected[:times][~lost])
    assert not found[:times][lost].any() and not found[times:].any()
    assert abs((found_start - start).to_value("s")) < 1e-9
    listed = numpy.zeros(times, bool)
    for gap in document["gaps"]:
        first, length = (round(1e6 * gap[key]) for key in ("start_s", "length_s"))
        listed[first:first + length] = True
    assert (listed == lost).all()


def frames(source, path, *options):
    """Receives the VDIF frames of a recording into a file, and returns the sender's document."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        port.bind(("127.0.0.1", 0))
        port.settimeout(30)
        packets, is_over = [], threading.Event()

        def receive():
            while not is_over.is_set():
                packet = port.recv(1 << 16)
                if packet != b"end":
                    packets.append(packet)

        receiving = threading.Thread(target=receive)
        receiving.start()
        document = json.loads(sidereal("send", source, f"vdif://127.0.0.1:{port.getsockname()[1]}", "--json", *options))
        is_over.set()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(b"end", port.getsockname())
        receiving.join()
        port.setblocking(False)
        try:
            while True:
                packets.append(port.recv(1 << 16))
        except BlockingIOError:
            pass
    packets = [packet for packet in packets if packet != b"end"]
    assert len(packets) == document["packets"]
    path.write_bytes(b"".join(packets))
    return document


@pytest.mark.parametrize("channels,pols", [(1, 1), (4, 2)])
def test_frames_of_simulated_voltages_read_as_what_was_sent(tmp_path, channels, pols):
    client("baseband.vdif")
    source, path = tmp_path / "v.dada", tmp_path / "v.vdif"
    sidereal("simulate", "voltages", source, "-q", "--freq", 430, "--bandwidth", channels, "--coarse-channels", channels,
             "--pols", pols, "--duration", 0.04, "--seed", 5, "--nbits", 4, "--tstart", 60000.25)
    frames(source, path, "--rate", 0.2)
    found, start = read("vdif", path)
    # Our example's rows: antenna, channel, polarization, time. A count of 4 bits is 1/2.95 in baseband's units.
    done = subprocess.run([str(BUILT / "examples" / "voltages"), str(source), "--samples", "0"], capture_output=True)
    counts = numpy.frombuffer(done.stdout, numpy.complex64).reshape(channels, pols, 40_000).transpose(2, 1, 0)
    numpy.testing.assert_allclose(found, counts / 2.95, rtol=1e-6, atol=1e-6)
    assert found.shape == (40_000, pols, channels)
    from astropy.time import Time

    assert abs((start - Time(60000.25, format="mjd", scale="utc")).to_value("s")) < 1e-9


def test_frames_of_a_real_recording_read_as_the_recording(tmp_path, recording):
    source, path = recording("baseband/sample.vdif"), tmp_path / "again.vdif"
    expected, start = read("vdif", source)
    frames(source, path, "--rate", 0.001)
    found, found_start = read("vdif", path)
    # Its eight threads of a channel are a thread of eight channels.
    assert found.shape == (40_000, 1, 8)
    numpy.testing.assert_array_equal(found[:, 0], expected[..., 0])
    assert abs((found_start - start).to_value("s")) < 1e-9


def test_baseband_opens_a_dump(tmp_path):
    """A dump has the samples of the recording within each channel's window, and zeros elsewhere."""
    source, port = tmp_path / "a.dada", free_port()
    sidereal("simulate", "voltages", source, "--freq", 300, "--bandwidth", 2, "--duration", 6, "--seed", 5,
             "--pulse", "dm=100,time=2.5,width=0.002,snr=40", "-q")
    folder, address = tmp_path / "live", f"spead://127.0.0.1:{port}"
    options = "--observations 1 --channels 16 --integrate 8 --dm-min 50 --dm-max 150 --rfi none --no-plots -q"
    dumps = "--dump-ring 5 --trigger-snr 15"
    command = [str(BUILT / "sidereal"), "live", "search", address, "-o", str(folder), *options.split(), *dumps.split()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        try:
            await_port(port)
            sidereal("send", source, address, "--rate", 1.5, "-q")
            _, told = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 0, told
    (document,) = (folder / "dumps").glob("*.json")
    dump = json.loads(document.read_text())
    assert dump["complete"], dump
    (whole, start), (part, begin) = read("dada", source), read("dada", document.with_suffix(""))
    first = round((begin - start).to_value("s") / dump["tsamp_s"])
    assert len(part) == dump["samples"]
    assert len(dump["windows"]) == whole.shape[2] > 1
    for channel, window in enumerate(dump["windows"]):
        inside = slice(window["start"], window["end"])
        expected = whole[first + window["start"]:first + window["end"], :, channel]
        assert numpy.array_equal(part[inside, :, channel], expected)
        # Windows are dumped in whole bytes of every encoding: up to 8 samples more.
        assert not part[:max(window["start"] - 8, 0), :, channel].any()
        assert not part[window["end"] + 8:, :, channel].any()
    starts = [window["start"] for window in sorted(dump["windows"], key=lambda window: window["mhz"])]
    assert starts == sorted(starts, reverse=True)
