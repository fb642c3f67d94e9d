"""Counts the events of noise alone below rates of false alarms: `false_alarms.py FOLDER`.

Simulates recordings of Gaussian noise, searches each with the same bank, and holds the number of events whose rate is below
a bound against bound times live time. Writes FOLDER/false_alarms.json and a table (--markdown).
"""

import argparse
import json
import math
import pathlib
import subprocess

# Rates in Hz: at most one event in so many seconds.
BOUNDS = [1 / seconds for seconds in (30, 100, 300, 1000, 3000, 10000)]


def counts(documents, bounds):
    """For each bound, the events below it, those expected, and the live time."""
    found = [document.get("document", document) for document in documents]
    live = sum(document["livetime_s"] for document in found)
    rates = [event["far_hz"] for document in found for event in document["events"]]
    return live, [(bound, sum(rate < bound for rate in rates), bound * live) for bound in bounds]


def table(live, rows):
    lines = [
        f"Live time {live:.0f} s.", "",
        "| rate below | events | expected | standard deviations |", "|---:|---:|---:|---:|",
    ]  # fmt: skip
    for bound, count, expected in rows:
        off = (count - expected) / math.sqrt(expected)
        lines.append(f"| 1 in {1 / bound:.0f} s | {count} | {expected:.1f} | {off:+.1f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--recordings", type=int, default=10)
    parser.add_argument("--length", type=int, default=5000, help="seconds of each")
    parser.add_argument("--rate", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bank", required=True, help="of `spiir bank`")
    parser.add_argument("--sidereal", default="sidereal", help="the program")
    parser.add_argument("--words", default="", help="further options of `spiir search`")
    parser.add_argument("--markdown", type=pathlib.Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)

    def run(*words):
        subprocess.run([asked.sidereal, *map(str, words)], check=True)

    documents = []
    for index in range(asked.recordings):
        out, found = asked.folder / "noise.hdf5", asked.folder / "found"
        run(
            *("simulate", "strain", out, "--overwrite", "--length", asked.length, "--rate", asked.rate),
            *("--seed", asked.seed * 1000 + index, "-q", "--no-progress"),
        )
        files = [asked.folder / f"noise_{detector}.hdf5" for detector in ("H1", "L1")]
        run(
            *("spiir", "search", *files, "--bank", asked.bank, "-o", found, "--overwrite", "-q", "--no-progress"),
            *("--no-plots", "--max-xml", 0, "--max-events", 1000000, "--slides", 1000, *asked.words.split()),
        )
        documents.append(json.loads((found / "events.json").read_text()))
        live, rows = counts(documents, BOUNDS)
        print(table(live, rows), flush=True)
    (asked.folder / "false_alarms.json").write_text(json.dumps(dict(livetime_s=live, rows=rows)))
    if asked.markdown:
        asked.markdown.write_text(table(live, rows) + "\n")


if __name__ == "__main__":
    main()
