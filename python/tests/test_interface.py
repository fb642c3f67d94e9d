"""The package as a whole: stubs, names, documentation, import, and the command."""

import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sidereal_dsp as sd

ROOT = Path(__file__).parent.parent


def test_stubs_agree_with_the_module():
    pytest.importorskip("mypy")
    words = ["-m", "mypy.stubtest", "sidereal_dsp"]
    words += ["--mypy-config-file", str(ROOT / "pyproject.toml")]
    made = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stdout + made.stderr


def test_every_name_is_documented():
    for name in sd.__all__:
        if name == "__version__":
            continue
        thing = getattr(sd, name)
        assert inspect.getdoc(thing), name
        if inspect.isbuiltin(thing):
            documented = thing.__doc__
            assert "Returns\n-------" in documented, name
            for parameter in inspect.signature(thing).parameters:
                assert any(
                    parameter in line.split(" : ")[0].split(", ")
                    for line in documented.splitlines()
                    if " : " in line
                ), f"{name}: {parameter}"


def test_kinds_of_errors():
    for kind in [sd.ParameterError, sd.FormatError]:
        assert issubclass(kind, ValueError) and issubclass(kind, sd.SiderealError)
    assert issubclass(sd.FileError, OSError) and issubclass(sd.FileError, sd.SiderealError)


def test_the_processor_is_the_first_device():
    first, *gpus = sd.devices()
    assert first.name == "cpu" and first.threads >= 1 and first.memory_bytes is None
    assert all(gpu.name == f"cuda:{at}" and gpu.memory_bytes for at, gpu in enumerate(gpus))
    if not gpus:
        with pytest.raises(sd.UnavailableError):
            sd.channelize(__import__("numpy").zeros(100, "f4"), 8, device="cuda")


def test_the_import_is_quick():
    code = "import time, numpy; t = time.perf_counter(); import sidereal_dsp; print(time.perf_counter() - t)"
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    assert min(times) < 0.1


def test_the_command_has_exit_codes(command, tmp_path):
    assert command("--version").stdout.split() == ["sidereal", sd.__version__]
    assert command("search", "--help").stdout.count("--dm-max") >= 1
    wrong = command("search")
    assert wrong.returncode == 2 and "Usage: sidereal search" in wrong.stderr
    missing = command("info", tmp_path / "none.fil")
    assert missing.returncode == 1 and "none.fil" in missing.stderr
    bench = command("bench", "dedisperse")
    assert bench.returncode == 1 and "bench is not available" in bench.stderr


def test_ctrl_c_ends_the_command(tmp_path):
    words = ["-m", "sidereal_dsp", "simulate", "burst", "-o", str(tmp_path / "long.fil"), "--fch1", "1500"]
    words += ["--foff", "-1", "--channels", "256", "--tsamp", "256e-6", "--duration", "4000"]
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "stopped on request" in errors and "Traceback" not in errors
    assert not list(tmp_path.iterdir())
