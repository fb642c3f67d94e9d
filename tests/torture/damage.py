"""Damaged files of every format, each through the verbs that read it."""

import re
import struct

import products
from program import Folder
from recordings import (
    ANTENNAS, channelize, correlate, dedisperse, info, search, spiir_filter, spiir_search, Job,
)  # fmt: skip

ABSURD = [
    "0", "-1", "1", "7", "1e300", "1e-300", "-1e300", "nan", "inf", "2147483647", "2147483648", "4294967296",
    "9223372036854775807", "18446744073709551616", "1e-320", "0.000001", "99999", "",
]  # fmt: skip
BINARY = [
    struct.pack("<i", 0), struct.pack("<i", -1), struct.pack("<i", 2**31 - 1), struct.pack("<q", 2**63 - 1),
    struct.pack("<q", -1), struct.pack("<d", float("nan")), struct.pack("<d", 1e300), struct.pack("<d", 1e-300),
    struct.pack("<d", -1.0), struct.pack("<f", float("inf")), struct.pack("<I", 2**20), b"\xff" * 8, b"\0" * 8,
]  # fmt: skip
# Most of a file's meaning is at its front.
FRONT = 3000


def place(draw, size):
    """A place in a file, at its front as often as anywhere."""
    return draw.randrange(min(size, FRONT) if draw.random() < 0.6 else size)


def flip(draw, data):
    """Turns one bit, or a few."""
    for _ in range(draw.choice((1, 1, 2, 8))):
        data[place(draw, len(data))] ^= 1 << draw.randrange(8)


def cut(draw, data):
    """Cuts the end off."""
    del data[draw.randrange(len(data)) if draw.random() < 0.5 else max(0, len(data) - draw.randrange(1, 400)) :]


def zero(draw, data):
    """Sets a range to zeros."""
    at = place(draw, len(data))
    length = min(draw.choice((4, 16, 100, 1000)), len(data) - at)
    data[at : at + length] = bytes(length)


def double(draw, data):
    """Repeats a range, or puts it in the place of another."""
    at, length = place(draw, len(data)), draw.choice((1, 7, 80, 1000))
    to = place(draw, len(data))
    data[to : to + draw.choice((0, length))] = data[at : at + length]


def lose(draw, data):
    """Takes a range out."""
    at = place(draw, len(data))
    del data[at : at + draw.choice((1, 3, 80, 500))]


def number(draw, data):
    """Replaces a number of the header: one in text, of the same length where it has room, or one in binary."""
    texts = [match.span() for match in re.finditer(rb"[-+]?\d[\d.eE+-]*", bytes(data[:FRONT]))]
    if texts and draw.random() < 0.8:
        first, last = draw.choice(texts)
        text = draw.choice(ABSURD).encode()
        # FITS cards and HDF5 keep their lengths.
        if draw.random() < 0.7:
            room = last - first
            if data[last : last + 1] == b" " and len(text) > room:
                room += len(bytes(data[last:])) - len(bytes(data[last:]).lstrip(b" "))
            text = text[:room].rjust(room)
            last = first + room
        data[first:last] = text
        return
    binary = draw.choice(BINARY)
    at = place(draw, max(1, len(data) - len(binary)))
    data[at : at + len(binary)] = binary


def rename(draw, data):
    """Damages one letter of a name."""
    words = [match.span() for match in re.finditer(rb"[A-Za-z_]{4,}", bytes(data[: 4 * FRONT]))]
    if words:
        first, last = draw.choice(words)
        data[draw.randrange(first, last)] = draw.choice(b"XYZ_q\x01")


MUTATIONS = (flip, flip, cut, cut, zero, double, lose, number, number, number, rename)


def damaged(draw, data):
    """A damaged copy, and how."""
    data = bytearray(data)
    names = []
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if data:
            mutation = draw.choice(MUTATIONS)
            mutation(draw, data)
            names.append(mutation.__name__)
    return bytes(data), "+".join(names)


def filterbanks(name):
    """What reads a filterbank."""
    return [info(name), search(name), search(name, plots=True), dedisperse(name), dedisperse(name, form="dat")]


def voltages(name, *more):
    """What reads voltages."""
    wide = ("--channels", "8", *more)
    fine = ("--channels", "4", "--format", "guppi", "--nbits", "8", *more)
    searched = Job(
        "search", [name, "--dm-max", "10", "--dm-step", "5", "--no-plots", *wide], "o", "o/candidates.csv",
        ("o/summary.json",), (name,),
    )  # fmt: skip
    return [
        info(name, more=more), channelize(name, more=wide), channelize(name, more=fine, made="o.raw"), searched,
        correlate(name, more=("--antennas", "antennas.csv", "--missing", "flag", *more)),
    ]  # fmt: skip


def strain(name, *more):
    """What reads strain."""
    return [info(name, more=more), spiir_filter(name, more=more), spiir_search(name, "s_L1.hdf5", more=more)]


VDIF = ("--freq", "1400", "--sample-rate", "1024000")
MARK5B = ("--freq", "1400", "--mark5b-channels", "8", "--sample-rate", "8e6")
RAW = ("--rate", "256", "--start", "1e9")
BANK = ["masses.csv", "--rate", "1024", "--f-low", "40", "--match", "0.9"]


def bank_of(name):
    """A bank of damaged templates."""
    return Job("spiir bank", [name, *BANK[1:], "--f-low", "150"], "o.h5", "o.h5", (), (name,))


def bank_with(name):
    """A bank for a damaged spectrum."""
    return Job("spiir bank", [*BANK, "--psd", name], "o.h5", "o.h5", (), (name,))


# The seeds' folder, the name that a damaged one gets, and what reads it.
SEEDS = {
    "sigproc": ("x.fil", filterbanks),
    "psrfits": ("x.fits", filterbanks),
    "fbh5": ("x.h5", filterbanks),
    "guppi": ("x.raw", voltages),
    "dada": ("x.dada", voltages),
    "vdif": ("x.vdif", lambda name: voltages(name, *VDIF)),
    "mark5b": ("x.m5b", lambda name: voltages(name, *MARK5B)),
    "strain": ("x.hdf5", lambda name: strain(name, "--rate", "256")),
    "npy": ("x.npy", lambda name: [info(name), *strain(name, *RAW)]),
    "tim": ("x.tim", lambda name: [info(name)]),
    "uvh5": ("x.uvh5", lambda name: [info(name)]),
    "bank_h5": ("x.h5", lambda name: [info(name), Job("spiir filter", ["s_H1.hdf5", "--bank", name], "o.h5", "o.h5")]),
    "templates": (None, lambda name: [bank_of(name)]),
    "ligolw": (None, lambda name: [bank_of(name)]),
    "psd": (None, lambda name: [
        bank_with(name), spiir_filter("s_H1.hdf5", more=("--psd", name)),
        Job("simulate strain", ["--psd", name, "--length", "4"], "o.hdf5"),
    ]),
    "antennas": ("x.csv", lambda name: [correlate(*ANTENNAS, more=("--antennas", name))]),
    "mask": ("x.mask", lambda name: [Job("search", ["m16.fil", *search().arguments, "--rfi-mask", name], "o", "o/summary.json")]),
    "window_file": (None, lambda name: [channelize("v.raw", more=("--channels", "8", "--taps", "2", "--window", name))]),
}  # fmt: skip

# Recordings that were simulated, and what reads them.
SIMULATED = {
    "sky.fil": filterbanks,
    "floats.fil": filterbanks,
    "v.raw": voltages,
    "w.dada": voltages,
    "ant01.dada": lambda name: [correlate(*ANTENNAS), info(name)],
    "s_H1.hdf5": strain,
    "bank.h5": lambda name: [info(name), spiir_filter("s_H1.hdf5"), spiir_search("s_H1.hdf5", "s_L1.hdf5")],
    "made.fil": lambda name: [info(name), search(name)],
    "seen.uvh5": lambda name: [info(name)],
    "injections.csv": lambda name: [Job("simulate strain", ["--injections", name, "--length", "4", "--rate", "1024"], "y.hdf5")],
    "plan.toml": lambda name: [Job("search", ["sky.fil", "--plan", name, "--no-plots"], "out", "out/summary.json")],
}  # fmt: skip


def judge(program, folder, job, own):
    """Runs a job over damaged input; what is wrong."""
    done = program.run(job.command(), folder)
    found = done.faults()
    found += products.faults(program, folder, own)
    if done.code == 0 and job.main and not (folder / job.main).exists():
        found.append(f"it exits with 0 without {job.main}")
    if done.code == 0 and job.verb == "info" and not done.output.strip():
        found.append("info exits with 0 and says nothing")
    left = [path.name for path in products.hidden(folder) if path not in products.journals(folder)]
    if left and not done.timed_out and done.code >= 0:
        found.append(f"it leaves {', '.join(left)}")
    return [f"{' '.join(map(str, job.command()))}: {fault}" for fault in found], done


class Damage:
    """Cases of damaged files."""

    name = "damage"
    share = 45
    least = 0

    def __init__(self, setting):
        self.setting = setting
        seeds = setting.root / "fuzz" / "seeds"
        self.sources = []
        for kind, (name, jobs) in SEEDS.items():
            for path in sorted((seeds / kind).iterdir()):
                if path.stat().st_size:
                    self.sources.append((kind, path, name or "x" + "".join(path.suffixes), jobs))
        for name, jobs in SIMULATED.items():
            self.sources += [(name, setting.recordings / name, name, jobs)] * 6

    def case(self, draw, number):
        """One damaged file through one of its verbs."""
        kind, path, name, jobs = self.sources[number % len(self.sources)]
        content, how = damaged(draw, path.read_bytes())
        job = draw.choice(jobs(name))
        with Folder(self.setting.scratch) as folder:
            self.setting.fill(folder, without=name)
            (folder / name).write_bytes(content)
            own = {entry.name for entry in folder.iterdir()}
            found, done = judge(self.setting.program, folder, job, own)
            return f"{kind}: {job.verb}", [f"{path.name}, {how}: {fault}" for fault in found], done, (name, content)
