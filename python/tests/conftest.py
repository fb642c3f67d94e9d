"""Recordings and programs for the tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*words, **options):
    """Run the package's command line in a process of its own."""
    command = [sys.executable, "-m", "sidereal_dsp", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.fixture(scope="session")
def command():
    return run


@pytest.fixture(scope="session")
def sky(tmp_path_factory) -> Path:
    """Return ten seconds of 128 channels with two bursts."""
    path = tmp_path_factory.mktemp("sky") / "sky.fil"
    made = run(
        *("simulate", "burst", "-o", path, "--fch1", 1500, "--foff", -2, "--channels", 128),
        *("--tsamp", 512e-6, "--duration", 10, "--seed", 7),
        *("--burst", "dm=350,time=4.2,width=0.003,snr=20"),
        *("--burst", "dm=120,time=7.5,width=0.002,snr=15"),
    )
    assert made.returncode == 0, made.stderr
    return path


@pytest.fixture(scope="session")
def found(sky, tmp_path_factory) -> dict:
    """Return what the command line finds in `sky`: the document of `search`."""
    folder = tmp_path_factory.mktemp("found") / "found"
    made = run("search", sky, "-o", folder, "--dm-max", 500, "--no-plots", "--device", "cpu")
    assert made.returncode == 0, made.stderr
    return json.loads((folder / "summary.json").read_text())
