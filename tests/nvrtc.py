"""Installs the compiler of kernels for GPUs, NVRTC, and nvdisasm, which reads machine code, from PyPI: pinned
versions, for machines without CUDA.

NVRTC lies in target/nvrtc/VERSION; the folder of its libraries is written to target/nvrtc/libraries, which is
left empty if it can't be installed. That is said, and fails only if SIDEREAL_REQUIRE names `kernels`. The folder of
nvdisasm is written to target/nvrtc/tools likewise; who needs it says when it is missing.
"""

import os
import pathlib
import shutil
import subprocess
import sys

PACKAGE = "nvidia-cuda-nvrtc"
VERSION = "13.0.88"
TOOL, TOOL_VERSION = "nvidia-cuda-nvdisasm", "13.2.51"
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "target" / "nvrtc"


def libraries(place):
    """The folder that holds the library, or None."""
    found = next(place.glob("nvidia/**/libnvrtc.so.13"), None)
    return found and found.parent


def tools(place):
    """The folder that holds nvdisasm, or None."""
    found = next(place.glob("nvidia/**/bin/nvdisasm"), None)
    if found:
        found.chmod(0o755)
    return found and found.parent


def install(place, package, version, holds):
    """Why it can't be installed, or None. What is there afterwards is whole."""
    part = place.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
    command = [*pip, "--no-deps", "--only-binary", ":all:", "--target", str(part), f"{package}=={version}"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        return str(error)
    print(done.stdout)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return next((line for line in lines if "error" in line.lower()), "pip failed and said nothing")
    if holds(part) is None:
        return f"{package} {version} holds nothing for this machine"
    part.rename(place)
    return None


def main():
    place, tool_place = FOLDER / VERSION, FOLDER / f"nvdisasm-{TOOL_VERSION}"
    fault = None
    if not libraries(place):
        shutil.rmtree(FOLDER, ignore_errors=True)
        fault = install(place, PACKAGE, VERSION, libraries)
    no_tool = None if tools(tool_place) else install(tool_place, TOOL, TOOL_VERSION, tools)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "libraries").write_text("" if fault else f"{libraries(place)}\n")
    (FOLDER / "tools").write_text("" if no_tool else f"{tools(tool_place)}\n")
    if fault is None:
        return 0
    print(f"skipped: NVRTC {VERSION} can't be installed, so no kernel was compiled: {fault}")
    return 1 if "kernels" in os.environ.get("SIDEREAL_REQUIRE", "").split(",") else 0


if __name__ == "__main__":
    sys.exit(main())
