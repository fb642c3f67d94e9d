#!/usr/bin/env python3
"""Makes the notebooks of the guide from their sources, and checks that both still agree.

    notebooks.py --write [NAME ...]    runs the sources and keeps notebooks with their outputs
    notebooks.py --check [NAME ...]    runs them again; the texts that they print must be those kept

A source is notebooks/NAME.py. Lines `# %% [markdown]` begin a text, `# %%` a cell of code; `# %% varies` one whose output
depends on the machine and is not compared. Pictures are not compared. Notebooks run in an empty folder, with the folder of
this Python first on the path: it has the `sidereal` command, if the package is installed. Needs nbclient, ipykernel, Matplotlib
and sidereal-dsp. A source's line `# needs: frb, h5py` names folders of $SIDEREAL_DATA and modules without which it is
left out.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
import time

import nbclient
import nbformat

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "notebooks"
DATA = pathlib.Path(os.environ.get("SIDEREAL_DATA", HERE.parents[1] / ".." / "shared" / "data")).resolve()
# Bytes that a notebook may have, and seconds that a cell may take.
LARGEST, LIMIT = 1_000_000, 240

MARKER = re.compile(r"^# %%(?: (\[markdown\]|varies))?\n", re.MULTILINE)


class Failure(Exception):
    """A fault of a notebook: its name and what is wrong."""


def missing(source):
    """Returns what the source needs and this machine lacks."""
    needs = re.search(r"^# needs: (.*)$", source, re.MULTILINE)
    folders = ("frb", "gw", "baseband")
    for need in needs[1].split(", ") if needs else ():
        is_there = (DATA / need).is_dir() if need in folders else importlib.util.find_spec(need)
        if not is_there:
            yield f"recordings in SIDEREAL_DATA/{need}" if need in folders else need


def cells(source):
    """Yields the cells of a source, without outputs."""
    pieces = MARKER.split(source)
    for kind, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if kind == "[markdown]":
            text = re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)
            cell = nbformat.v4.new_markdown_cell(text)
        else:
            cell = nbformat.v4.new_code_cell(text.strip(), metadata={"tags": [kind]} if kind else {})
        yield cell


def notebook(source):
    """Returns the notebook of a source, without outputs."""
    made = nbformat.v4.new_notebook(cells=list(cells(source)))
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    return made


def run(made):
    """Runs a notebook in an empty folder; its cells receive their outputs."""
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["SIDEREAL_DATA"] = str(DATA)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(made, timeout=LIMIT, coalesce_streams=True, resources={"metadata": {"path": folder}})
        client.execute()
    made.metadata.pop("language_info", None)
    for cell in made.cells:
        # Times of execution.
        cell.metadata.pop("execution", None)


def texts(cell):
    """Returns what a cell printed and the text of its value."""
    found = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        # The text of a figure has its size, which no reader sees.
        found.append(output.get("text", "" if "image/png" in data else data.get("text/plain", "")))
    return "".join(found)


def compare(name, kept, made):
    """Raises a failure unless the kept notebook has the cells of the source, and the outputs of this run."""
    sources = [[(cell.cell_type, cell.source) for cell in one.cells] for one in (kept, made)]
    if sources[0] != sources[1]:
        raise Failure(f"{name}.ipynb is not what {name}.py makes: run notebooks.py --write {name}")
    for number, (before, now) in enumerate(zip(kept.cells, made.cells, strict=True)):
        if "varies" not in now.metadata.get("tags", []) and texts(before) != texts(now):
            raise Failure(f"{name}.ipynb, cell {number}: kept\n{texts(before)}\nprinted now\n{texts(now)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="run the sources and keep their notebooks")
    action.add_argument("--check", action="store_true", help="run the sources and compare with the notebooks kept")
    parser.add_argument("--record", metavar="FILE", help="append which notebooks ran, and what was left out")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    passed, left_out, begun = [], [], time.monotonic()
    try:
        for name in options.names or sorted(path.stem for path in FOLDER.glob("*.py")):
            source = (FOLDER / f"{name}.py").read_text()
            if lacking := list(missing(source)):
                left_out.append(f"{name} (needs {', '.join(lacking)})")
                print(f"skipped: the notebook {name} needs {', '.join(lacking)}")
                continue
            started, made, path = time.monotonic(), notebook(source), FOLDER / f"{name}.ipynb"
            run(made)
            if options.check:
                compare(name, nbformat.read(path, as_version=4), made)
            else:
                nbformat.write(made, path)
            if (size := path.stat().st_size) > LARGEST:
                raise Failure(f"{name}.ipynb has {size} bytes, more than {LARGEST}")
            passed.append(name)
            print(f"{name}: {len(made.cells)} cells, {time.monotonic() - started:.1f} s", flush=True)
    except (Failure, nbclient.exceptions.CellExecutionError) as failure:
        print(f"error: {failure}")
        sys.exit(1)
    if options.record:
        with open(options.record, "a") as file:
            file.write(f"\nNotebooks that ran: {', '.join(passed)}. Left out: {', '.join(left_out) or 'none'}.\n")
    print(f"{len(passed)} passed in {time.monotonic() - begun:.1f}s")


if __name__ == "__main__":
    main()
