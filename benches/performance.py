#!/usr/bin/env python3
"""Writes the tables of docs/performance.md and docs/design/scale.md from the records in benches/record.

    benches/performance.py            rewrites the tables between their markers
    benches/performance.py --check    fails if a table differs from the records

A table stands between `<!-- record: NAME -->` and `<!-- end -->`; TABLES has its cells. A cell that is None is not
recorded and stays as it is.
"""

import csv
import re
import sys
from pathlib import Path

import scale_model

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs" / "performance.md", ROOT / "docs" / "design" / "scale.md"]
RECORDS = ROOT / "benches" / "record"
TAPS = [4, 8, 16, 32, 64]
CHANNELS = [256, 512, 2048, 4096, 8192, 16384, 32768, 65536]
ANTENNAS = [32, 64, 128, 256, 512, 1024]
FILTERS = [4, 8, 16, 32, 64, 128, 256, 512]
TELESCOPES = [
    "Apertif ALERT", "Arecibo PALFA", "ASKAP", "CHIME FRB", "Green Bank 820", "Green Bank 2000",
    "GMRT", "Lovell", "Parkes SUPERB F", "Parkes SUPERB T", "UTMOST", "VLA",
]  # fmt: skip


def read(path):
    """Reads a record as dictionaries; old ones have roofs with commas that are not quoted."""
    with open(path, newline="") as file:
        head, *lines = csv.reader(file)
    rows = []
    for line in lines:
        more = len(line) - len(head)
        if more > 0 and "roof_unit" in head:
            at = head.index("roof_unit")
            line[at : at + more + 1] = [",".join(line[at : at + more + 1])]
        if len(line) != len(head):
            sys.exit(f"{path}: a line has {len(line)} cells, expected {len(head)}")
        rows.append(dict(zip(head, line)))
    return rows


class Record:
    """Rows of a record by case: the last of a name and unit counts."""

    def __init__(self, name):
        self.rows = {}
        for row in read(RECORDS / f"{name}.csv"):
            if row["unit"] not in ("kHz", "MHz", "W"):
                self.rows[row["case"]] = row

    def value(self, case, column):
        return float(self.rows[case][column])

    def rate(self, case):
        return f"{self.value(case, 'rate'):.0f}"

    def fine_rate(self, case):
        return f"{self.value(case, 'rate'):.1f}"

    def of_roof(self, case):
        return f"{self.value(case, 'fraction_of_roof'):.2f}"

    def ratio(self, case):
        ratio = self.value(case, "ratio_to_baseline")
        return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}"

    def fine_ratio(self, case):
        return f"{self.value(case, 'ratio_to_baseline'):.2f}"


def row(label, show, cases):
    return [label, *(show(case) for case in cases)]


def dedisperse_cpu():
    case = "500 trials, 1024 channels, 8 bit, 1 threads"
    for label, name in [("Xeon (AVX-512)", "xeon-avx512"), ("EPYC (Zen 4)", "epyc-zen4")]:
        record = Record(f"{name}/2026-11-21-dedisperse")
        yield [label, record.of_roof(case), record.ratio(case)]


def channelize_cpu():
    record = Record("xeon-avx512/2026-11-21-channelize-headline")
    scipy = Record("xeon-avx512/2026-11-21-channelize-scipy")
    for taps, bits in [(4, "f32"), (8, "f32"), (16, "f32"), (32, "f32"), (8, "8 bit")]:
        case = f"1024 channels, {taps} taps, {bits}"
        beside = f"{case}, SciPy"
        of_scipy = scipy.ratio(beside) if beside in scipy.rows else ""
        yield [f"{bits}, {taps} taps", record.rate(case), record.of_roof(case), record.ratio(case), of_scipy]


def correlate_cpu():
    record = Record("xeon-avx512/2026-11-21-correlate")
    cases = {bits: [f"{n} antennas, {bits}" for n in ANTENNAS] for bits in ("4 bit", "8 bit", "f32")}
    yield row("8 bit, GFLOP/s", record.rate, cases["8 bit"])
    yield row("of the byte roof", record.of_roof, cases["8 bit"])
    yield row("of `cherk`", record.ratio, cases["8 bit"])
    yield row("4 bit, of the byte roof", record.of_roof, cases["4 bit"])
    yield row("f32, of the float roof", record.of_roof, cases["f32"])
    yield row("f32, of `cherk`", record.fine_ratio, cases["f32"])


def spiir_cpu():
    record = Record("xeon-avx512/2026-11-21-spiir")
    cases = [next(case for case in record.rows if case.startswith(f"{n} filters, ")) for n in FILTERS]
    yield row("GFLOP/s", record.rate, cases)
    yield row("of the roof", record.of_roof, cases)
    yield row("of the plain loop", record.ratio, cases)


def telescopes():
    cpu = Record("xeon-avx512/2026-11-21-telescopes")
    gpu = Record("h200/2026-11-22-telescopes")
    for name in TELESCOPES:
        rates = [f"{cpu.value(name, 'rate'):.2f}", gpu.rate(f"{name}, resident")]
        a100 = f"{cpu.value(name, 'baseline'):.0f}"
        yield [name, None, None, None, None, *rates, None, a100, None]


def channelize_gpu(cases, columns):
    record = Record("h200/2026-11-22-channelize")
    for bits in ("8 bit", "16 bit", "f32"):
        own = [cases.format(column=column, bits=bits) for column in columns]
        yield row(bits, record.rate, own)
        if columns == TAPS:
            yield row("of the roof", record.of_roof, own)
        yield row("of AstroAccelerate", record.ratio, own)


def dedisperse_gpu():
    record = Record("h200/2026-11-22-dedisperse")
    cases = [f"paper's plan, {n} channels, 8 bit" for n in (512, 1024, 2048, 4096, 8192)]
    yield row("8 bit", record.fine_rate, cases)
    yield row("of AstroAccelerate", record.ratio, cases)


def correlate_gpu():
    record = Record("h200/2026-11-22-correlate")
    cases = lambda kind: [f"{n} antennas, {kind}" for n in ANTENNAS]
    yield row("8 bit", record.rate, cases("8 bit"))
    yield row("of the best peer", record.ratio, cases("8 bit"))
    yield row("8 bit, back to back", record.rate, cases("8 bit, sustained"))
    yield row("4 bit", record.rate, cases("4 bit"))
    yield row("f32 (xGPU's reaches 29, 36, 40, 43, 44, 45)", record.rate, cases("f32"))
    yield row("f32 as tf32", record.rate, cases("f32 as tf32"))


def spiir_gpu():
    record = Record("h200/2026-11-22-spiir")
    cases = [f"{n} filters, 4096 templates" for n in FILTERS]
    yield row("delays as in the paper, within two seconds", record.fine_rate, cases)
    yield row("of the paper's kernel", record.ratio, cases)


def chains():
    """Rows of the newest record of whole chains of each kind of machine and backend."""
    newest = {}
    for path in sorted(RECORDS.glob("*/*-chains*.csv")):
        kind = path.stem.split("-chains")[1].strip("-")
        newest[path.parent.name, kind] = path
    for (machine, _), path in newest.items():
        for row in read(path):
            device = "GPU" if row["device"].startswith("cuda") else "CPU"
            notes = [row["input"]] * (row["input"] == "pipe") + [row["start"]] * (row["start"] == "cold")
            copies = float(row["to_device_s"]) + float(row["from_device_s"])
            work = row["kernels_s"] if device == "GPU" else row["compute_s"]
            seconds = lambda text: f"{float(text):.2f}" if text else ""
            yield [
                f"{machine}, {device}" if device == "GPU" else f"{machine}, {row['device'].split('x')[-1]} cores",
                ", ".join([row["case"], *notes]),
                f"{seconds(row['wall_s'])} ({seconds(row['wall_min_s'])} to {seconds(row['wall_max_s'])})",
                f"{float(row['real_time']):.1f}" if row["real_time"] else "",
                seconds(row["start_up_s"]),
                seconds(work),
                f"{copies:.2f}" if device == "GPU" else "",
                seconds(row["read_s"]),
                seconds(row["write_s"]),
                f"{seconds(row['roof_s'])} ({row['roof']})",
            ]


# Record of whole runs on two GPUs, and the rate between them in bytes per second that it names.
SCALING = RECORDS / "h200" / "2026-11-30-scale.md"


def link():
    """Reads the rate of copies from one GPU to another."""
    found = re.search(r"Copy from the first GPU to the second: (\d+) GB/s", SCALING.read_text())
    return 1e9 * float(found[1])


def two_gpus():
    """Rows of the table of kernels and pipelines on one and on two GPUs."""
    for line in SCALING.read_text().split("## `bench gpus`", 1)[1].split("\n## ", 1)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[-1].replace(".", "").isdigit() and "commit" not in cells[0]:
            yield [cells[0], cells[-1]]


# Tables of records that may be missing, and the text that stands in their place.
MISSING = {"chains": "There is no record yet: `sidereal bench chains --csv FILE` makes one."}

TABLES = {
    "chains": (
        ["machine", "chain", "wall (s)", "of real time", "start-up (s)", "kernels (s)", "copies (s)",
         "reading (s)", "writing (s)", "slowest part alone (s)"],
        chains,
    ),
    "dedisperse-cpu": (["", "of the brute-force roof", "of a plain loop"], dedisperse_cpu),
    "channelize-cpu": (
        ["", "Msamples/s", "of the copy roof", "of rustfft alone", "of SciPy"],
        channelize_cpu,
    ),
    "correlate-cpu": (["antennas", *ANTENNAS], correlate_cpu),
    "spiir-cpu": (["filters per template", *FILTERS], spiir_cpu),
    "telescopes": (
        ["telescope", "channels", "t_samp (us)", "DM to", "trials", "sidereal, 2 cores",
         "sidereal, H200", "V100", "A100", "memory (MiB)"],
        telescopes,
    ),
    "channelize-gpu-taps": (
        ["taps", *TAPS],
        lambda: channelize_gpu("1024 channels, {column} taps, {bits}", TAPS),
    ),
    "channelize-gpu-channels": (
        ["channels", *CHANNELS],
        lambda: channelize_gpu("{column} channels, 8 taps, {bits}", CHANNELS),
    ),
    "dedisperse-gpu": (["channels", 512, 1024, 2048, 4096, 8192], dedisperse_gpu),
    "correlate-gpu": (["antennas", *ANTENNAS], correlate_gpu),
    "spiir-gpu": (["filters per template", *FILTERS], spiir_gpu),
    "scale-arrays": (
        ["array", "received (Tb/s)", "10^12 operations/s", "filter bank (GPUs)", "X-engine (GPUs)",
         "corner turn (Tb/s)", "visibilities (Gb/s)",
         *(f"GPUs with {name} each" for name in scale_model.NETWORKS),
         "GPUs without a corner turn (400 Gb/s)"],
        lambda: scale_model.arrays(scale_model.gpu(Record, link())),
    ),
    "scale-beams": (
        ["1024 beams of CHIME", "beams of one GPU in real time", "GPUs"],
        lambda: scale_model.beams(Record),
    ),
    "scale-gpus": (["case", "two GPUs / one"], two_gpus),
    "scale-chains": (
        ["run", "GPUs", "one GPU (s)", "s (s)", "predicted (s)", "measured (s)", "predicted / measured - 1", "kernels' part on one",
         "speed-up on 8, predicted"],
        lambda: scale_model.chains(SCALING),
    ),
}  # fmt: skip


def table(name, old):
    """Formats a table; `old` has the cells that are not recorded."""
    head, rows = TABLES[name]
    rows = list(rows())
    if not rows and name in MISSING:
        return MISSING[name] + "\n"
    kept = [line.strip("| \n").split(" | ") for line in old.splitlines()[2:]]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for place, cells in enumerate(rows):
        lines.append([kept[place][at] if cell is None else cell for at, cell in enumerate(cells)])
    text = ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]
    text[0] = text[0].replace("|  |", "| |")
    text[1] = text[1].replace(" ", "")
    return "".join(line.replace("|  |", "| |") + "\n" for line in text)


def main():
    seen = []

    def renewed(found):
        seen.append(found[1])
        return f"<!-- record: {found[1]} -->\n\n{table(found[1], found[2])}\n<!-- end -->"

    pages = {path: path.read_text() for path in PAGES}
    marks = r"<!-- record: ([\w-]+) -->\n\n(.*?)\n<!-- end -->"
    made = {path: re.sub(marks, renewed, page, flags=re.S) for path, page in pages.items()}
    missing = TABLES.keys() - set(seen)
    if missing:
        sys.exit(f"no page has the table {', '.join(sorted(missing))}")
    for path, page in made.items():
        if "--check" not in sys.argv:
            path.write_text(page)
        elif page != pages[path]:
            sys.exit(f"{path.name} differs from the records: run benches/performance.py")


if __name__ == "__main__":
    main()
