"""Searches of many files by Dask and Ray with two workers, by the scripts of examples/python."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT, client, sidereal

BAND = ("--fch1", 1500, "--foff", -1, "--channels", 128, "--tsamp", 512e-6, "--duration", 6)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with four recordings with a burst each, one of noise alone, and one that is cut off."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(1, 5):
        burst = ("--dm", 100 * number, "--time", 2.5, "--width", 0.003, "--snr", 20)
        sidereal("simulate", "burst", "-o", folder / f"burst{number}.fil", *BAND, *burst, "--seed", number)
    noise = ("--dm", 0, "--time", 2.5, "--width", 0.003, "--snr", 0.001)
    sidereal("simulate", "burst", "-o", folder / "noise.fil", *BAND, *noise, "--seed", 9)
    (folder / "damaged.fil").write_bytes((folder / "burst1.fil").read_bytes()[:300])
    return folder


def serial(sidereal_dsp, files):
    """The candidates of all readable files, searched one after another by the package in this process."""
    pandas = client("pandas")
    tables = []
    for path in sorted(files.glob("*.fil")):
        if path.stem != "damaged":
            tables.append(sidereal_dsp.search(path, dm_max=500).to_pandas())
            tables[-1].insert(0, "file", path.name)
    return pandas.concat(tables)


@pytest.mark.parametrize("engine,module", [("dask", "distributed"), ("ray", "ray")])
def test_two_workers_find_what_a_serial_search_finds(sidereal_dsp, files, tmp_path, engine, module):
    client(module)
    names = sorted(path.name for path in files.glob("*.fil"))
    script = ROOT / "examples" / "python" / f"{engine}_search.py"
    # Ray neither reports its use nor writes a token into the home directory.
    environment = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script, *names, "--dm-max", "500", "-o", tmp_path / "all.csv"],
        cwd=files, env=os.environ | environment, capture_output=True, text=True,
    )  # fmt: skip
    # The damaged file has its message, and leaves the others alone.
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\ndamaged.fil: " in f"\n{done.stderr}", done.stderr
    expected = serial(sidereal_dsp, files)
    assert set(expected["file"]) >= {f"burst{number}.fil" for number in range(1, 5)}
    expected.to_csv(tmp_path / "serial.csv", index=False)
    assert (tmp_path / "all.csv").read_bytes() == (tmp_path / "serial.csv").read_bytes()
