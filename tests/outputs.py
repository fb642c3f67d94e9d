"""Hashes of what the program writes, to compare two versions of it: `outputs.py record FILE` and `outputs.py compare FILE`.

Runs README's examples, the demo and searches of real recordings on the CPU with `--reproducible`, each in a folder of its own, and
hashes every file that they write, the events and candidates of documents among them. Bits of sums of floats depend on the vector
level, which the file names: compare on a machine of the same. tests/outputs.json was recorded with version 0.2.0.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = pathlib.Path(os.environ.get("SIDEREAL_DATA", ROOT / ".." / "shared" / "data"))

# Each line is a call; {data} stands for the folder of recordings.
CASES = {
    "burst": [
        "simulate burst -o sky.fil --fch1 1500 --foff -1 --channels 256 --tsamp 256e-6 --duration 10 --dm 350 --time 4.2 --width 0.003 --snr 20",
        "search sky.fil -o found --dm-max 1000 --no-plots",
        "dedisperse sky.fil -o series --dm-min 340 --dm-max 360 --dm-step 1 --format dat",
        "search sky.fil -o clean --dm-max 500 --rfi none --zero-dm --no-plots",
    ],
    "voltages": [
        "simulate voltages antenna.raw --freq 430 --bandwidth 4 --coarse-channels 4 --duration 1 --pulse dm=60,time=0.4,width=0.0002,snr=40",
        "channelize antenna.raw -o spectra.fil --channels 16 --integrate 8 --stokes IQUV",
        "channelize antenna.raw -o fine.raw --channels 8",
        "search antenna.raw -o sharp --channels 16 --integrate 8 --dm-max 120 --coherent-dm 60 --no-plots",
    ],
    "array": [
        "simulate array -o array --layout 8,1000,wye --source 09:18:05.7,-12:05:44,40,Hydra_A --sefd 120 --freq 1420 --bandwidth 2 --seconds 1",
        "correlate array/*.dada -o array.uvh5 --antennas array/antennas.csv --channels 64 --integration 0.1",
        "correlate array/*.dada -o narrow.uvh5 --antennas array/antennas.csv --channels 16 --integration 0.1 --nbits 4",
    ],
    "strain": [
        "simulate strain bbh.hdf5 --start 1000000000 --length 64 --inject m1=30,m2=30,distance=600,ra=1.2,dec=-0.4,inclination=0.3,time=1000000040",
        "spiir search bbh_H1.hdf5 bbh_L1.hdf5 --masses 25:35 --f-low 20 -o events --no-plots",
        "convert bbh_H1.hdf5 -o bbh.gwf",
    ],
    "FRB180417": ["search {data}/frb/FRB180417_askap_28.fil -o found --no-plots"],
    "GW150914": [
        "spiir search {data}/gw/H-H1_LOSC_4_V2-1126259446-32.hdf5 {data}/gw/L-L1_LOSC_4_V2-1126259446-32.hdf5 "
        "--templates {data}/gw/GW150914_4_template.hdf5 -o found --no-plots",
    ],
    "demo": ["demo -o demo"],
}  # fmt: skip
COMMON = ["--device", "cpu", "--threads", "2", "--no-progress", "-q"]
# Keys of documents that tell of the run and not of the data.
OF_THE_RUN = {"provenance", "run", "seconds", "rates", "timing", "wall_s", "version", "schema"}


def stripped(value):
    """A document without what tells of the run."""
    if isinstance(value, dict):
        return {key: stripped(one) for key, one in sorted(value.items()) if key not in OF_THE_RUN}
    return [stripped(one) for one in value] if isinstance(value, list) else value


def content(path):
    """What of a file is compared; None for pictures and pages, which are looked at instead."""
    if path.suffix in (".png", ".html", ".log"):
        return None
    # The demo's HDF5 and XML hold the time of the run; the other cases have the like of them.
    if "demo" in path.parts and path.suffix in (".uvh5", ".h5", ".xml"):
        return None
    if path.suffix == ".json":
        return json.dumps(stripped(json.loads(path.read_text()))).encode()
    return path.read_bytes()


def hashes(program):
    found = {}
    for name, calls in CASES.items():
        # The name of the folder is in no product.
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for call in calls:
                words = call.format(data=DATA).split()
                words = [one for word in words for one in (sorted(map(str, folder.glob(word))) if "*" in word else [word])]
                words = [word.removeprefix(f"{folder}/") for word in words]
                takes = subprocess.run([program, *words[:2], "--help"], capture_output=True, text=True, check=False).stdout
                options = COMMON if "--device" in takes else ["-q"]
                options = options + (["--reproducible"] if "--reproducible" in takes else [])
                subprocess.run([program, *words, *options], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            for path in sorted(folder.rglob("*")):
                bytes_ = content(path) if path.is_file() else None
                if bytes_ is not None:
                    found[f"{name}/{path.relative_to(folder)}"] = hashlib.sha256(bytes_).hexdigest()[:20]
        print(name, file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("verb", choices=["record", "compare"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--sidereal", default=shutil.which("sidereal") or "sidereal", help="the program")
    asked = parser.parse_args()
    program = str(pathlib.Path(asked.sidereal).resolve())
    told = subprocess.run([program, "devices", "--json"], capture_output=True, text=True, check=True).stdout
    # Such as "cpu avx512 x2".
    level = json.loads(told)["default"].split()[1]
    found = {"simd": level, "files": hashes(program)}
    if asked.verb == "record":
        asked.file.write_text(json.dumps(found, indent=1) + "\n")
        return
    expected = json.loads(asked.file.read_text())
    if expected["simd"] != level:
        sys.exit(f"recorded with {expected['simd']}, and this machine has {level}")
    names = sorted(found["files"].keys() | expected["files"].keys())
    differing = [name for name in names if found["files"].get(name) != expected["files"].get(name)]
    for name in differing:
        print(f"{name}: {found['files'].get(name, 'missing')}, expected {expected['files'].get(name, 'no such file')}")
    print(f"{len(names) - len(differing)} of {len(names)} files are the same")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
