"""Installs the compiler of kernels for GPUs, NVRTC, from PyPI: one pinned version, for machines without CUDA.

It lies in target/nvrtc/VERSION; the folder of its libraries is written to target/nvrtc/libraries, which is
left empty if it can't be installed. That is said, and fails only if SIDEREAL_REQUIRE names `kernels`.
"""

import os
import pathlib
import shutil
import subprocess
import sys

PACKAGE = "nvidia-cuda-nvrtc"
VERSION = "13.0.88"
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "target" / "nvrtc"


def libraries(place):
    """The folder that holds the library, or None."""
    found = next(place.glob("nvidia/**/libnvrtc.so.13"), None)
    return found and found.parent


def install(place):
    """Why it can't be installed, or None. What is there afterwards is whole."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    part = place.with_suffix(".part")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
    command = [*pip, "--no-deps", "--only-binary", ":all:", "--target", str(part), f"{PACKAGE}=={VERSION}"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        return str(error)
    print(done.stdout)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return next((line for line in lines if "error" in line.lower()), "pip failed and said nothing")
    if libraries(part) is None:
        return f"{PACKAGE} {VERSION} holds no libnvrtc.so.13 for this machine"
    part.rename(place)
    return None


def main():
    place = FOLDER / VERSION
    fault = None if libraries(place) else install(place)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "libraries").write_text("" if fault else f"{libraries(place)}\n")
    if fault is None:
        return 0
    print(f"skipped: NVRTC {VERSION} can't be installed, so no kernel was compiled: {fault}")
    return 1 if "kernels" in os.environ.get("SIDEREAL_REQUIRE", "").split(",") else 0


if __name__ == "__main__":
    sys.exit(main())
