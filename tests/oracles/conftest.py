"""What the oracle tests share: our programs, the clients, the recordings, small simulated files."""

import json
import logging
import os
import pathlib
import subprocess
import sys
import warnings

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
# The Python package, as python/check.sh installs it.
PACKAGE = ROOT / "target" / "python" / "package"
DATA = pathlib.Path(os.environ.get("SIDEREAL_DATA", ROOT / ".." / "shared" / "data"))

warnings.filterwarnings("ignore")
logging.disable(logging.INFO)


def client(name):
    """The module of a real client; the test is skipped, and says so, where it is not installed."""
    return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


def call(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def sidereal(*arguments):
    """Runs the command line, and returns what it prints."""
    return call(BUILT / "sidereal", "--no-progress", *arguments)


@pytest.fixture(scope="session")
def sidereal_dsp():
    """Our Python package; the test is skipped, and says so, where it is not installed."""
    if (PACKAGE / "sidereal_dsp").exists():
        sys.path.insert(0, str(PACKAGE))
    return pytest.importorskip("sidereal_dsp", reason="the Python package is not installed (./check python)", exc_type=ImportError)


@pytest.fixture(scope="session")
def unpack(tmp_path_factory):
    """Our reader: a filterbank's samples as float32 (time, channel)."""
    folder = tmp_path_factory.mktemp("unpacked")

    def read(*paths):
        out = folder / f"{len(list(folder.iterdir()))}.npy"
        call(BUILT / "examples" / "unpack", *paths, out)
        return numpy.load(out)

    return read


@pytest.fixture(scope="session")
def recording():
    """The path of a real recording; the test is skipped, and says so, where there are none."""

    def path(name):
        found = DATA / name
        if not found.exists() and "data" not in os.environ.get("SIDEREAL_REQUIRE", "").split(","):
            pytest.skip(f"no recording {name}")
        return found

    return path


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """A short simulated filterbank: `simulated(bits, foff)` is its path."""
    folder = tmp_path_factory.mktemp("simulated")
    made = {}

    def path(bits=8, foff=-1.0, channels=64, length=2.0):
        key = (bits, foff, channels, length)
        if key not in made:
            made[key] = folder / f"bits{bits}_foff{foff:+}_{channels}_{length}.fil"
            first = 1500.0 if foff < 0 else 1500.0 - foff * (channels - 1)
            sidereal(
                *("simulate", "burst", "-o", made[key], "--seed", 7, "--nbits", bits),
                *(f"--fch1={first}", f"--foff={foff}", "--channels", channels, "--tsamp", 1e-3),
                *("--duration", length, "--dm", 50, "--time", 0.8, "--width", 0.004, "--snr", 15),
            )
        return made[key]

    return path


@pytest.fixture(scope="session")
def search(tmp_path_factory):
    """Searches a file once; `search(path, *options)` is (folder, summary)."""
    done = {}

    def run(path, *options):
        key = (path, options)
        if key not in done:
            folder = tmp_path_factory.mktemp("search") / "out"
            sidereal("search", path, "-o", folder, *options)
            done[key] = (folder, json.loads((folder / "summary.json").read_text()))
        return done[key]

    return run


