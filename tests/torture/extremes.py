"""Small inputs that ask for much: each is refused, or done with little memory and soon."""

import struct
import zlib

import products
from program import Folder
from recordings import BAND, Job, channelize, info, search, spiir_filter


def vdif(seconds):
    """Frames of 64 bytes, one after the other, at these seconds."""
    frames = b""
    for number, second in enumerate(seconds):
        frames += struct.pack("<8I", second, 40 << 24 | number, 1 << 29 | 12, 1 << 26, 0, 0, 0, 0) + bytes(range(64))
    return frames


def table_that_inflates():
    """A compressed table of 180 MB; made in pieces, since a child process counts its parent's memory as its own."""
    before, after = ligolw("|").split(b"|")
    packed = zlib.compressobj(9, wbits=31)
    rows = b"1.4,1.3,0,\n" * (1 << 14)
    return b"".join([packed.compress(before), *(packed.compress(rows) for _ in range(1 << 10)), packed.compress(after), packed.flush()])


def ligolw(rows):
    """A table of binaries."""
    columns = "".join(f'<Column Name="{name}" Type="real_4"/>' for name in ("mass1", "mass2", "spin1z"))
    name = "sngl_inspiral:table"
    stream = f'<Stream Name="{name}" Type="Local" Delimiter=",">{rows}</Stream>'
    return f'<?xml version="1.0"?><LIGO_LW><Table Name="{name}">{columns}{stream}</Table></LIGO_LW>'.encode()


TABLE = ("--freq", "1400", "--sample-rate", "1024000")
LONG = ["--freq", "1400", "--bandwidth", "4"]
BANK = ["masses.csv", "--rate", "1024", "--f-low", "40"]

# Name, files by name, job, exit codes that are right.
CASES = [
    ("a spectrum of two lines", {"p.txt": b"10 1e-22\n10.0000001 1e-22\n"}, Job("spiir bank", [*BANK, "--psd", "p.txt"], "o.h5", "o.h5"), (1, 2, 3)),
    ("a spectrum of two far lines", {"p.txt": b"1e-9 1e-22\n1e9 1e-22\n"}, Job("spiir bank", [*BANK, "--psd", "p.txt"], "o.h5", "o.h5"), (0, 1, 2, 3)),
    ("a spectrum of three lines", {"p.txt": b"0 1e-46\n1e-6 1e-46\n512 1e-46\n"}, Job("spiir bank", [*BANK, "--psd", "p.txt"], "o.h5", "o.h5"), (0, 1, 2, 3)),
    ("a spectrum of three lines in a filter", {"p.txt": b"0 1e-46\n1e-6 1e-46\n512 1e-46\n"}, spiir_filter("s_H1.hdf5", more=("--psd", "p.txt")), (0, 1, 2, 3)),
    ("a spectrum of two lines in a simulation", {"p.txt": b"10 1e-22\n10.0000001 1e-22\n"}, Job("simulate strain", ["--psd", "p.txt", "--length", "4"], "y.hdf5"), (0, 1, 2, 3)),
    ("a million antennas", {}, Job("simulate voltages", [*LONG, "--antennas", "1000000", "--duration", "0.001"], "o.raw"), (1, 2, 4)),
    ("a recording of a year", {}, Job("simulate voltages", [*LONG, "--duration", "3e7"], "o.raw"), (1, 2, 4)),
    ("a filterbank of a year", {}, Job("simulate burst", [*BAND, "--duration", "3e9"], "o.fil"), (1, 2, 4)),
    ("XML that inflates", {"t.xml.gz": table_that_inflates()}, Job("spiir bank", ["t.xml.gz", *BANK[1:]], "o.h5"), (1, 2, 3)),
    ("one bit of a frame's second", {"x.vdif": vdif((1000, 1000, 1000 + (1 << 16), 1000))}, channelize("x.vdif", more=("--channels", "4", *TABLE)), (0, 1, 2, 3)),
    ("one bit of the last frame's second", {"x.vdif": vdif((1000, 1000, 1000, 1000 + (1 << 16)))}, channelize("x.vdif", more=("--channels", "4", *TABLE)), (0, 1, 2, 3)),
    ("one bit of a frame's second in info", {"x.vdif": vdif((1000, 1000, 1000 + (1 << 16), 1000))}, info("x.vdif", more=TABLE), (0, 1, 2, 3)),
    ("window coefficients beyond single precision", {"w.txt": b"1e300\n" * 16}, channelize("v.raw", more=("--channels", "8", "--taps", "2", "--window", "w.txt")), (1, 2, 3)),
    ("a threshold of 1e-320", {}, Job("search", [*search("sky.fil").arguments, "--snr", "1e-320"], "o"), (2,)),
    ("a width of 1e300 s", {}, Job("search", [*search("sky.fil").arguments, "--max-width", "1e300"], "o"), (0, 2)),
    ("a baseline of 1e-300 s", {}, Job("search", [*search("sky.fil").arguments, "--baseline", "1e-300"], "o"), (0, 2)),
    ("a billion trials", {}, Job("search", ["sky.fil", "--dm-max", "1e6", "--dm-step", "1e-3", "--no-plots"], "o"), (0, 1, 2)),
    ("a billion channels", {}, channelize("v.raw", more=("--channels", "1073741824")), (1, 2)),
    ("a million taps", {}, channelize("v.raw", more=("--channels", "1024", "--taps", "1000000")), (1, 2)),
    ("a table of injections without a row", {"i.csv": b"mass1,mass2,distance,ra,dec,time\n"}, Job("simulate strain", ["--injections", "i.csv"], "y.hdf5"), (3,)),
]  # fmt: skip


class Extremes:
    """Each case once a round."""

    name = "extremes"
    share = 1

    def __init__(self, setting):
        self.setting = setting
        self.least = len(CASES)

    def case(self, _, number):
        """One case."""
        label, files, job, codes = CASES[number % len(CASES)]
        program = self.setting.program
        with Folder(self.setting.scratch) as folder:
            self.setting.fill(folder)
            for name, content in files.items():
                (folder / name).write_bytes(content)
            own = {entry.name for entry in folder.iterdir()}
            done = program.run(job.command(), folder)
            faults = done.faults()
            if not faults and done.code not in codes:
                faults.append(f"it exits with {done.code}, expected one of {codes}: {done.errors.strip()[:200]}")
            made = [path for path in products.visible(folder) if path.relative_to(folder).parts[0] not in own]
            size = sum(path.stat().st_size for path in made)
            if size > 100 << 20:
                faults.append(f"it writes {size >> 20} MiB")
            if done.code != 0 and made:
                faults.append(f"it exits with {done.code} and leaves {made[0].name}")
            return f"extreme: {label}", faults, done
