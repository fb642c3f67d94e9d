"""Builds the virtual environment of the oracle tests: real clients, with pinned versions.

The environment lies in target/oracles/<hash of the pins>; its Python's path is written to
target/oracles/python. Every client is installed by itself, so that one which fails leaves the others.
A client that can't be installed is reported, and fails the run only if SIDEREAL_REQUIRE names
`oracles`. wsclean and the schemas of GCN are no Python packages: wsclean.py and gcn_schema.py find them; Chromium, promtool and Slurm
are those of the system.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import chromium
import gcn_schema
import wsclean

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "target" / "oracles"
PINS = HERE / "requirements.txt"
CLIENTS = HERE / "clients.json"

# sigpyproc 2 asks for Python 3.12 for the sake of one name, which older Pythons get here.
BUFFER = (
    "import collections.abc, typing_extensions; "
    "collections.abc.Buffer = getattr(collections.abc, 'Buffer', typing_extensions.Buffer)\n"
)


def key():
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for path in (PINS, CLIENTS, pathlib.Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def call(*command):
    """Runs a command; the last line of what it said if it failed, else None."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        return str(error)
    print(done.stdout)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1]


def install(python, arguments):
    pip = (str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
    return call(*pip, "--quiet", "-c", str(PINS), *arguments)


def install_client(python, client):
    """Why the client can't be used, or None."""
    options = ["--no-deps"] + client.get("options", [])
    why = install(python, [*options, f"{client['name']}=={client['version']}"])
    return why or call(str(python), "-W", "ignore", "-c", f"import {client['module']}")


def build(venv):
    """Fills the environment and returns what became of each client."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    python = venv / "bin" / "python"
    base = call(sys.executable, "-m", "venv", str(venv)) or install(python, ["-r", str(PINS)])
    site = next(venv.glob("lib/python3*/site-packages"), None)
    if site is not None:
        (site / "sidereal_buffer.pth").write_text(BUFFER)
    outcome = {}
    for client in json.loads(CLIENTS.read_text()):
        why = f"what it needs can't be installed: {base}" if base else install_client(python, client)
        outcome[client["name"]] = {"version": client["version"], "fault": why}
    if not any(state["fault"] for state in outcome.values()):
        (venv / "complete").write_text("")
    return outcome


def system_program(path, package):
    """What became of a program that the system has."""
    if path is None:
        return {"version": "", "fault": f"it is in Debian's package {package}"}
    done = subprocess.run([path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"\d+\.\d+[\w.+]*", done.stdout)
    return {"version": found.group() if found else "?", "fault": None}


def main():
    venv = FOLDER / key()
    report = venv / "outcome.json"
    if (venv / "complete").exists():
        outcome = json.loads(report.read_text())
    else:
        outcome = build(venv)
        venv.mkdir(parents=True, exist_ok=True)
        report.write_text(json.dumps(outcome, indent=1))
    (FOLDER / "python").write_text(f"{venv / 'bin' / 'python'}\n")
    imager, fault = wsclean.prepare(FOLDER)
    outcome = outcome | {"wsclean": {"version": imager, "fault": fault}}
    outcome = outcome | {gcn_schema.NAME: {"version": gcn_schema.VERSION, "fault": gcn_schema.prepare()}}
    outcome |= {name: system_program(path, package) for name, path, package in (
        ("chromium", chromium.program(), "chromium"),
        ("promtool", shutil.which("promtool"), "prometheus"),
        ("slurm", shutil.which("sbatch"), "slurm-wlm"),
    )}
    faults = 0
    for name, state in outcome.items():
        faults += bool(state["fault"])
        word = f"NOT INSTALLED: {state['fault']}" if state["fault"] else "installed"
        print(f"client {name} {state['version']}: {word}")
    required = "oracles" in os.environ.get("SIDEREAL_REQUIRE", "").split(",")
    return 1 if faults and required else 0


if __name__ == "__main__":
    sys.exit(main())
