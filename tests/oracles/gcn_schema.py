"""Finds the schemas of GCN notices below target/oracles, or fetches them from npm's registry.

The package is used by the tests only. Where there is no npm, it is reported as not installed, and its tests are skipped.
"""

import json
import pathlib
import shutil
import subprocess
import tarfile

NAME, VERSION = "@nasa-gcn/schema", "7.2.3"

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "target" / "oracles" / "gcn" / VERSION


def fetch():
    """Fills the folder with the package's files."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    command = ("npm", "pack", "--silent", f"{NAME}@{VERSION}")
    done = subprocess.run(command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    archives = list(FOLDER.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        last = (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
        raise OSError(f"npm pack: {last}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(FOLDER, filter="data")
    archives[0].unlink()


def prepare():
    """Why the schemas can't be used, or None."""
    try:
        if not (FOLDER / "package" / "gcn" / "notices").is_dir():
            fetch()
    except OSError as error:
        shutil.rmtree(FOLDER, ignore_errors=True)
        return str(error)
    return None


def schemas():
    """The contents of all schemas; none where they are not installed."""
    return [json.loads(path.read_text()) for path in FOLDER.rglob("*.schema.json")]
