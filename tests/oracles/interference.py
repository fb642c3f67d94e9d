"""Writes recordings with interference and known bursts, with the truth beside each: `interference.py FOLDER --seed N`.

NumPy alone, and no code of the search's. Nine cases in FOLDER, each CASE.fil (SIGPROC, 8 bit) and CASE.truth.json, and
campaign.json, which names them; `sidereal bench recovery --interference FOLDER` searches and scores them. The same seed
gives the same bytes. All nine of 808 s take about ten minutes and 15 GB; --seconds 100 a minute and 2 GB.

A sample is `gain(t) bandpass(c) (level + sigma noise + radar(t) + bursts) + tones`, clipped to 0..255: what comes through
the receiver is scaled by its bandpass, and narrow tones add to it.
"""

import argparse
import json
import math
import pathlib
import struct

import numpy

CHANNELS = 512
HIGHEST_MHZ, STEP_MHZ = 1500.0 - 300.0 / 1024, -300.0 / 512
TSAMP_S = 256e-6
DISPERSION = 4148.808
BLOCK = 8192

# What each case has.
CASES = {
    "none": (),
    "narrow": ("tones",),
    "slope": ("slope",),
    "radar": ("radar",),
    "dropouts": ("dropouts",),
    "radar_slope": ("slope", "radar"),
    "dropouts_slope": ("slope", "dropouts"),
    "all": ("tones", "slope", "radar", "dropouts"),
    "all_chi2": ("tones", "slope", "radar", "dropouts", "chi2"),
    # Short bursts, and wide ones of low dispersion, without interference: made on request (--cases).
    "short": ("short",),
    "short_chi2": ("short", "chi2"),
    "wide": ("wide",),
    "wide_slope": ("wide", "slope"),
}
CAMPAIGN = list(CASES)[:9]

FREQUENCIES = HIGHEST_MHZ + STEP_MHZ * numpy.arange(CHANNELS)
# Seconds by which a channel is later than the highest, for a DM of 1, and its smear within a channel.
DELAYS = DISPERSION * (FREQUENCIES**-2 - FREQUENCIES[0] ** -2)
SMEARS = 2 * DISPERSION * FREQUENCIES**-3 * abs(STEP_MHZ)

erf = numpy.vectorize(math.erf, otypes=[float])


class Burst:
    """A Gaussian pulse: its samples in each channel, scaled so that the best boxcar has the S/N that is asked for."""

    def __init__(self, time_s, dm, width_s, snr, bandpass):
        self.time_s, self.dm, self.width_s, self.snr = time_s, dm, width_s, snr
        arrival = (time_s + DELAYS * dm) / TSAMP_S
        # A uniform smear adds a twelfth of its square to the variance.
        sigma = numpy.sqrt((width_s / 2.354820045) ** 2 + (SMEARS * dm) ** 2 / 12) / TSAMP_S
        self.first = numpy.floor(arrival - 4 * sigma).astype(int)
        self.times = int(numpy.ceil(8 * sigma.max())) + 2
        edges = self.first[:, None] + numpy.arange(self.times + 1)
        inside = 0.5 * erf((edges - arrival[:, None]) / (numpy.sqrt(2) * sigma[:, None]))
        shape = numpy.diff(inside, axis=1)
        # The best boxcar of the sum over channels, each moved by its delay in whole samples.
        shifts = numpy.round(DELAYS * dm / TSAMP_S).astype(int)
        start = (self.first - shifts).min()
        total = numpy.zeros(self.times + int((self.first - shifts).max() - start))
        for channel in range(CHANNELS):
            place = self.first[channel] - shifts[channel] - start
            total[place : place + self.times] += bandpass[channel] * shape[channel]
        sums = numpy.concatenate([[0], numpy.cumsum(total)])
        widths = range(1, min(len(total), 4000) + 1)
        best = max(numpy.max(sums[width:] - sums[:-width]) / math.sqrt(width) for width in widths)
        noise = math.sqrt(numpy.sum(bandpass**2))
        self.shape = (shape * (snr * noise / best)).astype(numpy.float32)
        self.end = int(self.first.max()) + self.times

    def add(self, block, start):
        """Adds what falls into the rows from `start` on, in units of the noise."""
        first = int(self.first.min())
        if first >= start + len(block) or self.end <= start:
            return
        for channel in range(CHANNELS):
            begin = self.first[channel] - start
            low, high = max(begin, 0), min(begin + self.times, len(block))
            if low < high:
                block[low:high, channel] += self.shape[channel, low - begin : high - begin]

    def lost(self, gain):
        """The part of it that falls where the receiver drops out."""
        rows = self.first[:, None] + numpy.arange(self.times)
        low = gain[numpy.clip(rows, 0, len(gain) - 1)] < 0.5
        return float((self.shape * low).sum() / self.shape.sum())

    def truth(self, gain):
        keys = ("time_s", "dm", "width_s", "snr")
        return {**{key: round(getattr(self, key), 9) for key in keys}, "lost": round(self.lost(gain), 6)}


def bursts(random, seconds, count, bandpass, has):
    """Evenly spread, with a jitter; the last sweep ends before the recording does."""
    spacing = (seconds - 1.0 - DELAYS[-1] * 2000 - 0.2) / count
    for index in range(count):
        time_s = 1.0 + spacing * (index + random.uniform(0.1, 0.9))
        if "short" in has:
            yield Burst(time_s, random.uniform(50, 1500), random.uniform(1e-3, 2e-3), 20, bandpass)
            continue
        if "wide" in has:
            yield Burst(time_s, 50, 50e-3, 20, bandpass)
            continue
        dm, width_s = random.uniform(50, 2000), math.exp(random.uniform(math.log(1e-3), math.log(50e-3)))
        yield Burst(time_s, dm, width_s, random.uniform(8, 30), bandpass)


def tones(random, times):
    """40 narrow signals: (first row, end, channel, amplitude in counts), each wandering, on and off."""
    for _ in range(40):
        channel, row, strength = random.integers(CHANNELS), 0, math.exp(random.uniform(math.log(3), math.log(80)))
        while row < times:
            end = row + int(random.uniform(1, 12) / TSAMP_S)
            if random.random() < 0.7:
                place = random.uniform(0, 1)
                amplitude = strength * random.uniform(0.5, 1.5)
                yield row, end, channel, amplitude * (1 - place)
                yield row, end, min(channel + 1, CHANNELS - 1), amplitude * place
            channel = int(numpy.clip(channel + random.integers(-4, 5), 0, CHANNELS - 1))
            row = end


def radar(random, times):
    """A pulse of no dispersion each 0.9 s, of S/N 20 to 300: (first row, heights in units of a channel's noise)."""
    for time_s in numpy.arange(0.3, times * TSAMP_S, 0.9):
        width = int(math.exp(random.uniform(math.log(2), math.log(40))))
        snr = math.exp(random.uniform(math.log(20), math.log(300)))
        yield int(time_s / TSAMP_S), numpy.full(width, snr / math.sqrt(width * CHANNELS), numpy.float32)


def gains(random, times):
    """Steps of the gain by up to a quarter each 15 to 45 s, and dropouts each 5 to 30 s of 5 ms to 1.5 s."""
    gain, row = numpy.ones(times, numpy.float32), 0
    while (row := row + int(random.uniform(15, 45) / TSAMP_S)) < times:
        gain[row:] = random.uniform(0.8, 1.25)
    row = 0
    while (row := row + int(random.uniform(5, 30) / TSAMP_S)) < times:
        length = int(math.exp(random.uniform(math.log(5e-3), math.log(1.5))) / TSAMP_S)
        gain[row : row + length] *= random.uniform(0, 0.3)
        row += length
    return gain


def header():
    def text(word):
        return struct.pack("<i", len(word)) + word.encode()

    whole = {"telescope_id": 0, "machine_id": 0, "data_type": 1, "nchans": CHANNELS, "nbits": 8, "nifs": 1, "nbeams": 1, "ibeam": 1}
    real = {"tstart": 60000.0, "tsamp": TSAMP_S, "fch1": HIGHEST_MHZ, "foff": STEP_MHZ, "src_raj": 0.0, "src_dej": 0.0}
    fields = [text("HEADER_START"), text("source_name") + text("interference")]
    fields += [text(key) + struct.pack("<i", value) for key, value in whole.items()]
    fields += [text(key) + struct.pack("<d", value) for key, value in real.items()]
    return b"".join(fields) + text("HEADER_END")


def write(folder, name, seed, seconds, count):
    has, times = CASES[name], int(seconds / TSAMP_S)

    def stream(what, index=0):
        return numpy.random.default_rng([seed, list(CASES).index(name), what, index])

    slope = numpy.linspace(1.6, 0.5, CHANNELS) if "slope" in has else numpy.ones(CHANNELS)
    level, sigma = (48.0, 24.0) if "chi2" in has else (80.0, 10.0)
    events = list(bursts(stream(0), seconds, count, slope, has))
    narrow = list(tones(stream(1), times)) if "tones" in has else []
    pulses = list(radar(stream(2), times)) if "radar" in has else []
    gain = gains(stream(3), times) if "dropouts" in has else numpy.ones(times, numpy.float32)
    with open(folder / f"{name}.fil", "wb") as out:
        out.write(header())
        for index, start in enumerate(range(0, times, BLOCK)):
            rows, noise = min(BLOCK, times - start), stream(4, index)
            if "chi2" in has:
                # 8 degrees of freedom: a mean of 2 and a variance of 1, about 0.
                block = noise.standard_gamma(4.0, (rows, CHANNELS), numpy.float32) / 2 - 2
            else:
                block = noise.standard_normal((rows, CHANNELS), numpy.float32)
            for burst in events:
                burst.add(block, start)
            for row, heights in pulses:
                low, high = max(row, start), min(row + len(heights), start + rows)
                if low < high:
                    block[low - start : high - start] += heights[low - row : high - row, None]
            block *= numpy.float32(sigma)
            block += numpy.float32(level)
            block *= slope.astype(numpy.float32)
            block *= gain[start : start + rows, None]
            for row, end, channel, amplitude in narrow:
                low, high = max(row, start), min(end, start + rows)
                if low < high:
                    block[low - start : high - start, channel] += amplitude
            numpy.clip(numpy.rint(block, out=block), 0, 255, out=block)
            out.write(block.astype(numpy.uint8).tobytes())
    truth = {"case": name, "seed": seed, "seconds": seconds, "has": has, "bursts": [burst.truth(gain) for burst in events]}
    (folder / f"{name}.truth.json").write_text(json.dumps(truth, indent=1))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--seconds", type=float, default=808.0)
    arguments.add_argument("--bursts", type=int, help="in each case; as many as 200 in 808 s unless given")
    arguments.add_argument("--cases", default=",".join(CAMPAIGN), help=f"those to write, with commas, of {', '.join(CASES)}")
    given = arguments.parse_args()
    count = given.bursts or max(1, round(200 * given.seconds / 808))
    given.folder.mkdir(parents=True, exist_ok=True)
    names = given.cases.split(",")
    for name in names:
        write(given.folder, name, given.seed, given.seconds, count)
        print(f"{name}: {given.folder / name}.fil", flush=True)
    campaign = {"seed": given.seed, "seconds": given.seconds, "cases": names}
    (given.folder / "campaign.json").write_text(json.dumps(campaign))


if __name__ == "__main__":
    main()
