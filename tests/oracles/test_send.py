"""Streams of `sidereal send` as spead2 receives them: header, descriptors, samples, end."""

import json
import socket

import numpy
import pytest
from conftest import client, sidereal


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def received(recording, *options):
    """Sends a recording to spead2: what it has of the descriptors, the headers and the heaps, and our document."""
    spead2 = client("spead2")
    recv = client("spead2.recv")
    # A ring that holds all heaps, since they are taken after the sender has ended.
    stream = recv.Stream(spead2.ThreadPool(), ring_config=recv.RingStreamConfig(heaps=4096))
    port = free_port()
    stream.add_udp_reader(port, bind_hostname="127.0.0.1")
    document = json.loads(sidereal("send", recording, f"spead://127.0.0.1:{port}", "--json", *options))
    group = spead2.ItemGroup()
    heaps, headers = [], []
    for heap in stream:
        updated = group.update(heap)
        if "samples" in updated:
            heaps.append(tuple(numpy.array(updated[name].value) for name in ("timestamp", "antenna", "samples")))
        if "header" in updated:
            headers.append(updated["header"].value)
    stream.stop()
    return group, headers, heaps, document


@pytest.mark.parametrize("packet_bytes", [8192, 1408])
def test_spectra_arrive_at_spead2(tmp_path, packet_bytes):
    path = tmp_path / "a.fil"
    sidereal("simulate", "burst", path, "-q", "--fch1", 1500, "--foff", -4, "--channels", 64, "--tsamp", 1e-3,
             "--duration", 3, "--seed", 3, "--burst", "dm=60,time=1.5,width=0.004,snr=25")
    rows = numpy.frombuffer(path.read_bytes()[-3000 * 64:], numpy.uint8)
    options = ("--rate", 2, "--heap-times", 64, "--packet-bytes", packet_bytes)
    group, headers, heaps, document = received(path, *options)
    assert sorted(group.keys()) == ["antenna", "end", "header", "samples", "timestamp"]
    assert (group["samples"].shape, group["timestamp"].id) == ((4096,), 0x1600)
    # The first header came before its description; another comes after a second.
    assert headers and "NCHAN        64" in headers[0] and "SPEAD_TIMES  64" in headers[0]
    assert [int(time) for time, _, _ in heaps] == list(range(0, 3000, 64))
    samples = numpy.concatenate([samples for _, _, samples in heaps])
    assert (samples[:rows.size] == rows).all() and (samples[rows.size:] == 0).all()
    assert (document["samples"], document["dropped"]) == (3000, 0)


def test_voltages_arrive_at_spead2(tmp_path):
    path = tmp_path / "v.dada"
    sidereal("simulate", "voltages", path, "-q", "--freq", 150, "--bandwidth", 1, "--coarse-channels", 4,
             "--duration", 0.2, "--seed", 3)
    group, _, heaps, document = received(path, "--heap-times", 500)
    times = document["samples"]
    assert times % 500 == 0 and len(heaps) == times // 500
    # Files have the axes time, polarization, channel; heaps channel, time, polarization; both of 8+8 bits.
    file = numpy.frombuffer(path.read_bytes()[4096:], numpy.uint16).reshape(times, -1, 4)
    blocks = [samples.view(numpy.uint16).reshape(4, 500, -1) for _, _, samples in heaps]
    assert (numpy.concatenate(blocks, axis=1) == file.transpose(2, 0, 1)).all()
