"""A simulated day of strain with binaries, played as fast as `live spiir` searches it: `live_day.py FOLDER`.

Draws binaries, plays them with noise of H1 and L1 as frames into a folder in memory from which the search removes what it has read, and
counts which are found against their distance, and how many events of noise alone have rates below bounds, against bound times time.
Writes FOLDER/injections.csv, run.sh, truth.json and events.json, and a table (--markdown) and a picture (--plot). run.sh needs
the program alone (SIDEREAL names it): `--steps draw` writes it, and `--steps report` evaluates what it leaves, so that it can run
on another machine. The same seed gives the same day.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess

import matplotlib
import numpy
from scipy import stats

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

START = 1400000000
# The first binary comes when the background is learned, the last one well before the end.
FIRST_S, LAST_S = 600, 60
# Component masses, spins, and the chirp mass whose distances are uniform from 100 to 4000 Mpc; others scale as their amplitude.
MASSES, SPINS = (15, 40), (-0.25, 0.25)
CHIRP_MASS, DISTANCES = 25.0, (100, 4000)
# An event is a binary's when its time lies this close to the true one, in seconds. A binary's wave, and two seconds on either side of
# it, do not count as noise.
WINDOW_S, GUARD_S = 0.1, 2.0
# A binary is found by an event with at most this rate a year: one a month.
FOUND_PER_YEAR = 12.0
YEAR_S = 365.25 * 86400
BOUNDS_HZ = [0.1, 0.05, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4]

RUN = """#!/usr/bin/env bash
# Plays strain into a folder in memory, and searches it: SIDEREAL is the program, MEMORY a folder in memory, WORDS more options of the search.
set -euo pipefail
cd "$(dirname "$0")"
program=${{SIDEREAL:-sidereal}}
frames=$(mktemp -d "${{MEMORY:-/dev/shm}}/day.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$frames"' EXIT
mkdir "$frames/H1" "$frames/L1"
rm -rf found
begin=$SECONDS
"$program" simulate strain --live "$frames" --detectors H1,L1 --rate {rate} --seed {seed} --start {start} --length {length} \\
    --frame 16 --speed 0 --queue 16 --injections injections.csv --mark-injections --f-low {f_low} -q --no-progress &
"$program" live spiir --frames H1="$frames/H1" --frames L1="$frames/L1" --remove-frames --rate {rate} {bank} --f-low {f_low} \\
    --wait 60 --give-up 600 --checkpoint 0 --until {until} --max-events 1000000 -o found -q --no-progress {words} ${{WORDS:-}} >/dev/null
wait
echo "searched {length} s in $((SECONDS - begin)) s"
mv "$frames/truth.json" truth.json
mv found/*/events.json events.json
"""


def draw(asked, folder):
    random = numpy.random.default_rng(asked.seed)
    spacing = (asked.length - FIRST_S - LAST_S) / asked.count
    names = ["m1", "m2", "spin1", "spin2", "distance", "ra", "dec", "inclination", "polarization", "phase", "time"]
    with (folder / "injections.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(names)
        for index in range(asked.count):
            m1, m2 = sorted(random.uniform(*MASSES, 2), reverse=True)
            chirp_mass = (m1 * m2) ** 0.6 / (m1 + m2) ** 0.2
            distance = random.uniform(*DISTANCES) * (chirp_mass / CHIRP_MASS) ** (5 / 6)
            ra, polarization, phase = random.uniform(0, [2 * numpy.pi, numpy.pi, 2 * numpy.pi])
            dec, inclination = numpy.arcsin(random.uniform(-1, 1)), numpy.arccos(random.uniform(-1, 1))
            time = START + FIRST_S + (index + random.uniform(0.2, 0.8)) * spacing
            row = [m1, m2, *random.uniform(*SPINS, 2), distance, ra, dec, inclination, polarization, phase]
            table.writerow([f"{value:.6g}" for value in row] + [f"{time:.6f}"])
    until = START + asked.length
    words = dict(rate=asked.rate, seed=asked.seed, start=START, length=asked.length, until=until, f_low=asked.f_low)
    (folder / "run.sh").write_text(RUN.format(bank=asked.bank, words=asked.words, **words))


def read(path):
    found = json.loads(path.read_text())
    return found.get("document", found)


def normalized(event):
    """The distance at which a binary of the chirp mass CHIRP_MASS is as faint."""
    return event["distance_mpc"] * (CHIRP_MASS / event["binary"]["chirp_mass"]) ** (5 / 6)


def evaluate(truth, events):
    """Adds to each injection its event, and returns the events of noise with the time in which they were looked for."""
    times = numpy.array([event["gps"] for event in events])
    is_noise = numpy.ones(len(events), bool)
    begin, end = truth["start_gps"], truth["start_gps"] + truth["duration_s"]
    # Events of the first tenth are left out: there the background is learned.
    first = begin + 0.1 * truth["duration_s"]
    live = end - first
    for one in truth["events"]:
        near = numpy.flatnonzero(abs(times - one["gps"]) < WINDOW_S)
        one["found"] = max((events[at] for at in near), key=lambda event: event["ranking"], default=None)
        low, high = one["gps"] - one["duration_s"] - GUARD_S, one["gps"] + GUARD_S
        is_noise &= (times < low) | (times > high)
        live -= max(0.0, min(high, end) - max(low, first))
    return [event for event, noise in zip(events, is_noise & (times >= first)) if noise], live


def rate_of(event):
    return numpy.inf if event is None or event["far_per_year"] is None else event["far_per_year"]


def is_found(one):
    return rate_of(one["found"]) <= FOUND_PER_YEAR


def limits(expected):
    """The counts between which 95 % of Poisson's counts lie."""
    low, high = stats.poisson.ppf([0.025, 0.975], expected)
    return int(low), int(high)


def tables(truth, noise, live, document):
    injections = truth["events"]
    loudest = max((event["ranking"] for event in noise), default=0.0)
    ranked = [one for one in injections if one["found"] and one["found"]["ranking"] > loudest]
    templates = document["detectors"][0]["templates"]
    lines = [
        f"{truth['duration_s']:.0f} s of H1 and L1 at {truth['rate_hz']} Hz, {len(injections)} binaries, {templates} templates,"
        f" {len(document['events'])} events. {sum(map(is_found, injections))} binaries are found by an event below"
        f" {FOUND_PER_YEAR:.0f} a year, {len(ranked)} by one that ranks above all events of noise ({loudest:.2f}).",
        "", "| distance of 25 solar masses (Mpc) | injected | found | part |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    edges = [100, 500, 1000, 1500, 2000, 2500, 3000, 4000]
    for low, high in zip(edges, edges[1:]):
        inside = [one for one in injections if low <= normalized(one) < high]
        count = sum(map(is_found, inside))
        lines.append(f"| {low} to {high} | {len(inside)} | {count} | {count / max(len(inside), 1):.2f} |")
    lines += ["", "| network S/N | injected | found | median distance (Mpc) |", "|---|---:|---:|---:|"]
    edges = [0, 6, 7, 8, 9, 10, 12, 15, 20, 1000]
    for low, high in zip(edges, edges[1:]):
        inside = [one for one in injections if low <= one["network_snr"] < high]
        if inside:
            distance = numpy.median([one["distance_mpc"] for one in inside])
            name = f"{low} to {high}" if high < 1000 else f"{low} and more"
            lines.append(f"| {name} | {len(inside)} | {sum(map(is_found, inside))} | {distance:.0f} |")
    lines += [
        "", f"Noise alone, {live:.0f} s:", "", "| rate below | events | expected | 95 % of Poisson's counts |", "|---|---:|---:|---|",
    ]  # fmt: skip
    for bound in BOUNDS_HZ:
        expected = bound * live
        if expected >= 1:
            low, high = limits(expected)
            count = sum(rate_of(event) < bound * YEAR_S for event in noise)
            lines.append(f"| {bound * 1e3:g} mHz | {count} | {expected:.1f} | {low} to {high} |")
    return "\n".join(lines)


def plot(truth, noise, live, path):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    injections = truth["events"]
    for found, color, marker, label in ((True, "tab:blue", "o", "found"), (False, "tab:red", "x", "missed")):
        chosen = [one for one in injections if is_found(one) == found]
        distances, ratios = [normalized(one) for one in chosen], [one["network_snr"] for one in chosen]
        left.plot(distances, ratios, marker, color=color, ms=4, mfc="none", label=f"{label} ({len(chosen)})")
    left.axhline(8, color="gray", lw=0.5)
    left.set(xlabel="distance of 25 solar masses of chirp mass (Mpc)", ylabel="injected network S/N", yscale="log")
    left.legend(title=f"by an event below {FOUND_PER_YEAR:.0f} a year")
    rates = numpy.sort([rate_of(event) / YEAR_S for event in noise])
    rates = rates[numpy.isfinite(rates)]
    grid = numpy.logspace(-5, 0, 200)
    low, high = stats.poisson.ppf([[0.025], [0.975]], grid * live)
    right.fill_between(grid, numpy.maximum(low, 0.5), numpy.maximum(high, 0.5), color="lightgray", label="95 % of Poisson's counts")
    right.plot(grid, grid * live, color="gray", lw=0.8, label="expected")
    right.step(rates, numpy.arange(1, len(rates) + 1), where="post", color="tab:blue", label="events of noise")
    right.set(xlabel="false-alarm rate (Hz)", ylabel="events below it", xscale="log", yscale="log", xlim=(1e-5, 0.2), ylim=(0.7, 0.3 * live))
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--length", type=int, default=86400, help="seconds")
    parser.add_argument("--count", type=int, default=500, help="binaries")
    parser.add_argument("--rate", type=int, default=1024)
    parser.add_argument("--f-low", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bank", default="--masses 15:40 --spins=-0.283:0.283", help="templates: 256")
    parser.add_argument("--words", default="", help="further options of `live spiir`")
    parser.add_argument("--sidereal", default="sidereal", help="the program")
    parser.add_argument("--steps", default="draw,run,report")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    steps = asked.steps.split(",")
    if "draw" in steps:
        draw(asked, asked.folder)
    if "run" in steps:
        subprocess.run(["bash", str(asked.folder / "run.sh")], check=True, env={**os.environ, "SIDEREAL": asked.sidereal})
    if "report" in steps:
        truth, document = read(asked.folder / "truth.json"), read(asked.folder / "events.json")
        noise, live = evaluate(truth, document["events"])
        text = tables(truth, noise, live, document)
        print(text)
        if asked.markdown:
            asked.markdown.write_text(text + "\n")
        if asked.plot:
            plot(truth, noise, live, asked.plot)


if __name__ == "__main__":
    main()
