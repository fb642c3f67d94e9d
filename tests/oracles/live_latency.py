"""Latencies of a live search of compact binaries in real time: `live_latency.py RUN.json... --plot FILE`.

Draws, for the document of each `sidereal bench live-spiir --only latency --json`, the histogram of the time from the merger to the event's
line, and those of its parts. The title of each row is its median and 99th percentile.
"""

import argparse
import json
import pathlib

import matplotlib
import numpy

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

PARTS = [
    ("waiting_s", "waiting for the frame's end"),
    ("delivery_s", "delivery"),
    ("computing_s", "computing"),
    ("total_s", "merger to line"),
]


def latencies(path):
    lines = json.loads(path.read_text())
    return next(line for line in lines if line["part"] == "latency")


def label(line):
    device = line["device"].split(" ", 1)[-1] if line["device"].startswith("cuda") else "CPU"
    return f"{line['templates']} templates of {', '.join(line['detectors'])}, {device}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, nargs="+")
    parser.add_argument("--plot", type=pathlib.Path, required=True)
    asked = parser.parse_args()
    documents = [latencies(path) for path in asked.run]
    figure, grid = pyplot.subplots(
        len(documents), len(PARTS), figsize=(12, 2.6 * len(documents) + 0.4), squeeze=False, layout="constrained"
    )
    for row, document in zip(grid, documents):
        for axes, (key, name) in zip(row, PARTS):
            values = numpy.array(document[key])
            axes.hist(values, bins=40, color="tab:blue")
            median, late = numpy.quantile(values, [0.5, 0.99])
            axes.set_title(f"{name}\nmedian {median:.4g} s, 99 % {late:.4g} s", fontsize=9)
            axes.set_xlabel("seconds", fontsize=8)
            axes.tick_params(labelsize=8)
            axes.locator_params(axis="x", nbins=5)
        row[0].set_ylabel(f"events\n{label(document)}", fontsize=8)
    figure.savefig(asked.plot, dpi=90)


if __name__ == "__main__":
    main()
