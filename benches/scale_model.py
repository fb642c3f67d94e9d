"""Model of several GPUs and machines: the tables of docs/design/scale.md, from the records in benches/record.

`benches/performance.py` writes and checks the tables. Rates of GPUs are those of one H200 and of two of one host: measured, except for
the X-engine's with 4 bits over a long time, which is derived. Rates of networks are the nominal ones of adapters.
"""

from dataclasses import dataclass
from math import ceil

GIGA = 1e9

# Nominal rates of a network adapter for each GPU, in bytes per second.
NETWORKS = {"100 Gb/s": 12.5e9, "400 Gb/s": 50e9}

# GPUs of a host, which NVLink joins.
GPUS_OF_A_HOST = 8

# Operations that the correlator's benchmark counts for a complex multiply-add.
OPERATIONS = 8


@dataclass
class Array:
    """Array of antennas with two polarizations."""

    name: str
    antennas: int
    bandwidth_hz: float
    # Bits of each real component, as received and as multiplied.
    received_bits: int
    multiplied_bits: int
    # Points of the filter bank; 0 if the voltages arrive channelized.
    points: int
    # Channels and integration of the visibilities.
    channels: int
    integration_s: float
    # Samples received per Hz and second: 1 unless channels are oversampled.
    oversampling: float = 1.0


# SKA1-Low: Labate et al. 2022, JATIS 8, 011024 (512 stations, 300 MHz; coarse channels of the stations are divided into 5.4 kHz).
# CHIME: CHIME Collaboration 2022, ApJS 261, 29 (F-engine of FPGAs, 4 + 4 bit, 1024 channels).
# MeerKAT: Jonas et al. 2016, PoS MeerKAT 1 (L band, sampled with 10 bits, 4096 channels).
ARRAYS = [
    Array("SKA1-Low", 512, 300e6, 8, 8, 4096, 55296, 0.85, 32 / 27),
    Array("CHIME", 1024, 400e6, 4, 4, 0, 1024, 10.0),
    Array("MeerKAT, L band", 64, 856e6, 10, 8, 4096, 4096, 8.0),
]


@dataclass
class Gpu:
    """Rates of one GPU, from the records."""

    # Bytes per second to the GPU while as many leave it, of a copy within its memory, and to another GPU.
    bus: float
    memory: float
    link: float
    # Complex samples per second of the filter bank by number of points, and operations per second of the X-engine by number of
    # antennas and bits, at the clock that the power limit allows for long.
    filter_bank: callable
    x_engine: callable


def gpu(record, link):
    """Reads the rates of an H200; `record` opens a record, and `link` is the rate from GPU to GPU."""
    device = record("h200/2026-11-24-device")
    correlate = record("h200/2026-11-23-correlate")
    channelize = record("h200/2026-11-23-channelize")

    def x_engine(antennas, bits):
        long = correlate.value(f"{antennas} antennas, 8 bit, sustained", "rate")
        burst = lambda bits: correlate.value(f"{antennas} antennas, {bits} bit", "rate")
        return 1e12 * long * burst(bits) / burst(8)

    return Gpu(
        bus=GIGA * device.value("each way while both are used", "rate"),
        memory=GIGA * device.value("memory copy, read and written", "rate"),
        link=link,
        filter_bank=lambda points: GIGA * channelize.value(f"{points} channels, 8 taps, 8 bit", "rate"),
        x_engine=x_engine,
    )


@dataclass
class Loads:
    """What one second of an array's data asks of all GPUs together."""

    received_bytes: float
    turned_bytes: float
    visibility_bytes: float
    operations: float
    filter_s: float
    multiply_s: float

    @classmethod
    def of(cls, array, gpu):
        samples = 2 * array.antennas * array.bandwidth_hz
        operations = OPERATIONS * 4 * array.antennas * (array.antennas + 1) / 2 * array.bandwidth_hz
        visibilities = 4 * array.antennas * (array.antennas + 1) / 2 * array.channels
        return cls(
            received_bytes=array.oversampling * samples * 2 * array.received_bits / 8,
            turned_bytes=samples * 2 * array.multiplied_bits / 8,
            visibility_bytes=8 * visibilities / array.integration_s,
            operations=operations,
            filter_s=array.oversampling * samples / gpu.filter_bank(array.points) if array.points else 0.0,
            multiply_s=operations / gpu.x_engine(array.antennas, array.multiplied_bits),
        )


def shares(loads, gpu, gpus, network):
    """Returns the part of a second that each resource of a GPU is busy, of `gpus` that divide the antennas, then the channels."""
    received, turned = loads.received_bytes / gpus, loads.turned_bytes / gpus
    host = min(gpus, GPUS_OF_A_HOST)
    # Each GPU sends all but its own channels: to GPUs of its host over NVLink, to others over the network.
    inside, outside = turned * (host - 1) / gpus, turned * (gpus - host) / gpus
    # Each way has the rate of its own.
    way = max(received + outside, outside + loads.visibility_bytes / gpus)
    return {
        "arithmetic": (loads.filter_s + loads.multiply_s) / gpus,
        "bus": way / gpu.bus,
        "NVLink": inside / gpu.link,
        "network": way / network,
    }


def devices(loads, gpu, network):
    """Returns the fewest GPUs that follow in real time, and their busiest resource."""
    gpus = 1
    while True:
        busy = shares(loads, gpu, gpus, network)
        name = max(busy, key=busy.get)
        if busy[name] <= 1.0:
            return gpus, name, busy[name]
        gpus += 1


def by_channels(loads, network):
    """Returns the fewest GPUs that take the data in, each its own channels of all antennas, so that there is no corner turn."""
    return ceil(max(loads.received_bytes, loads.visibility_bytes) / network)


def arrays(gpu):
    """Rows of the table of arrays."""
    for array in ARRAYS:
        loads = Loads.of(array, gpu)
        row = [
            array.name,
            f"{8e-12 * loads.received_bytes:.2f}",
            f"{1e-12 * loads.operations:.0f}",
            f"{loads.filter_s:.2f}",
            f"{loads.multiply_s:.2f}",
            f"{8e-12 * loads.turned_bytes:.2f}",
            f"{8e-9 * loads.visibility_bytes:.1f}",
        ]
        for rate in NETWORKS.values():
            count, name, busy = devices(loads, gpu, rate)
            row.append(f"{count} ({name} {busy:.2f})")
        row.append(by_channels(loads, NETWORKS["400 Gb/s"]))
        yield row


def beams(record):
    """Rows of the table of CHIME's beams: searches of one GPU in real time, and GPUs for all beams."""
    telescopes = record("h200/2026-11-23-telescopes")
    for label, case in [
        ("rows on the GPU", "CHIME FRB, resident"),
        ("rows in host memory", "CHIME FRB, from the host"),
        ("rows in host memory, interference removed", "CHIME FRB, from the host, --rfi auto"),
    ]:
        rate = telescopes.value(case, "rate")
        yield [label, f"{rate:.0f}", ceil(1024 / rate)]


def measured(path):
    """Reads the table of strong scaling on two GPUs: runs by case, each with its columns as numbers."""
    runs, case = [], ""
    for line in path.read_text().split("## Strong scaling", 1)[1].split("\n## ", 1)[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or not cells[1].isdigit():
            continue
        case = cells[0] or case
        gpus, wall, _, start, kernels, *_ = cells[1:]
        runs.append((case, int(gpus), float(wall), float(start), float(kernels)))
    return runs


def run_time(one, start, gpus):
    """Predicts the seconds of a whole run on `gpus` from one on one GPU: its kernels are divided, nothing else is."""
    _, _, wall, first_start, kernels = one
    return wall - kernels * (1 - 1 / gpus) + (start - first_start)


def chains(path):
    """Rows of the table that compares predicted with measured runs."""
    runs = measured(path)
    for one in [run for run in runs if run[1] == 1]:
        for _, gpus, wall, start, _ in [run for run in runs if run[0] == one[0] and run[1] > 1]:
            predicted = run_time(one, start, gpus)
            eight = one[2] / run_time(one, start, 8)
            yield [one[0], gpus, f"{one[2]:.2f}", f"{start - one[3]:.2f}", f"{predicted:.2f}", f"{wall:.2f}",
                   f"{predicted / wall - 1:+.0%}", f"{one[4] / one[2]:.2f}", f"{eight:.2f}"]  # fmt: skip
