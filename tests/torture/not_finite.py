"""Numbers that are not finite in recordings of floats."""

import struct

import products
from program import Folder
from recordings import dedisperse, search

BAD = [struct.pack("<f", value) for value in (float("nan"), float("inf"), float("-inf"))]
CHANNELS = 32


def rows(draw, data, first, row):
    """Whole rows."""
    for _ in range(draw.choice((1, 3, 200))):
        at = first + row * draw.randrange((len(data) - first) // row)
        data[at : at + row] = draw.choice(BAD) * CHANNELS


def channels(draw, data, first, row):
    """Whole channels."""
    bad = draw.choice(BAD)
    for channel in draw.sample(range(CHANNELS), draw.choice((1, 5))):
        for at in range(first + 4 * channel, len(data) - 3, row):
            data[at : at + 4] = bad


def cells(draw, data, first, row):
    """Single cells, here and there."""
    for _ in range(draw.choice((1, 30, 3000))):
        at = first + 4 * draw.randrange((len(data) - first) // 4)
        data[at : at + 4] = draw.choice(BAD)


def all_of_it(draw, data, first, row):
    """Everything."""
    data[first:] = draw.choice(BAD) * ((len(data) - first) // 4)


class NotFinite:
    """Searches and dedispersions of floats with NaN and infinities."""

    name = "nan"
    share = 5
    least = 16

    def __init__(self, setting):
        self.setting = setting
        self.whole = (setting.recordings / "floats.fil").read_bytes()
        self.first = self.whole.index(b"HEADER_END") + len("HEADER_END")

    def case(self, draw, number):
        """One recording."""
        change = (rows, channels, cells, all_of_it)[number % 4]
        data = bytearray(self.whole)
        change(draw, data, self.first, 4 * CHANNELS)
        job = search("floats.fil") if number // 4 % 2 == 0 else dedisperse("floats.fil")
        command = job.command(*(["--no-auto-mask"] if job.verb == "search" and draw.random() < 0.5 else []))
        program = self.setting.program
        with Folder(self.setting.scratch) as folder:
            (folder / "floats.fil").write_bytes(data)
            done = program.run(command, folder)
            faults = done.faults() + products.faults(program, folder, {"floats.fil"})
            if change is not all_of_it:
                if done.code != 0:
                    faults.append(f"it exits with {done.code}: {done.errors.strip()[:200]}")
                elif job.verb == "search":
                    found = products.document(folder / "o" / "summary.json")["candidates"]
                    # The pulsar's pulses, 9 or 10 of them, have S/N 14.
                    if sum(one["snr"] > 9 for one in found) < 3:
                        faults.append(f"{len(found)} candidates, expected most of 9 pulses")
            return f"not finite, {change.__name__}: {job.verb}", faults, done, ("floats.fil", bytes(data))
