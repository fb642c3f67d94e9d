"""Jobs of many files: an array of Slurm on this machine, and the files for HTCondor."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
import slurm
from conftest import BUILT, client, sidereal

TASKS = 8
OPTIONS = ("--dm-max", 300, "--no-plots", "--reproducible", "--simd", "portable", "--gulp", 2048)


def planned(folder, *options):
    """Plans the searches of eight small recordings in `folder`."""
    names = [f"beam{number}.fil" for number in range(TASKS)]
    for number, name in enumerate(names):
        # The third takes long enough to be stopped.
        band = ("--channels", 512, "--foff", -0.5, "--tsamp", 256e-6, "--duration", 20) if number == 2 else (
            "--channels", 64, "--foff", -4, "--tsamp", 1e-3, "--duration", 4)
        sidereal(
            *("simulate", "burst", folder / name, "-q", "--seed", number, "--fch1", 1500, *band),
            *("--burst", f"dm={50 + number},time=1.5,width=0.004,snr=25"),
        )
    (folder / "manifest").write_text("\n".join(names) + "\n")
    here = os.getcwd()
    os.chdir(folder)
    try:
        sidereal("plan-jobs", "manifest", "-q", *options, "--", "search", *OPTIONS)
    finally:
        os.chdir(here)
    return names


def program(folder, *words, expected=0):
    done = subprocess.run([BUILT / "sidereal", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def cluster(tmp_path):
    if (name := slurm.missing()) is not None:
        pytest.skip(f"{name} of Slurm is not installed")
    if os.geteuid() != 0:
        pytest.skip("a cluster of Slurm on this machine needs the user root")
    cluster = slurm.Cluster(tmp_path / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_an_array_of_slurm_makes_the_products_of_one_process(tmp_path, cluster):
    folder = tmp_path / "archive"
    folder.mkdir()
    names = planned(folder, "--slurm", "search.sbatch")
    script = (folder / "search.sbatch").read_text()
    assert f"#SBATCH --array=0-{TASKS - 1}\n" in script and "#SBATCH --mem=" in script
    job = cluster.submit(folder / "search.sbatch")
    results = folder / "results"
    # One task is stopped while it works.
    cluster.wait_for(lambda: list(results.glob(".beam2_search.unfinished-*")), "task 2 that works")
    cluster.call("scancel", f"{job}_2")
    ended = {"COMPLETED", "CANCELLED", "FAILED"}
    cluster.wait_for(lambda: set(cluster.states(job).values()) <= ended, "end of the job")
    states = cluster.states(job)
    assert states.pop(2) == "CANCELLED" and set(states.values()) == {"COMPLETED"}, cluster.states(job)
    logs = sorted(path.name for path in (results / "logs").iterdir())
    assert logs == [f"{job}_{number}.log" for number in range(TASKS)]

    status = json.loads(program(folder, "run-task", "tasks.jsonl", "--status", "--json", expected=1))
    assert (status["done"], status["array"]) == (TASKS - 1, "2"), status
    again = cluster.submit(folder / "search.sbatch", f"--array={status['array']}")
    cluster.wait_for(lambda: set(cluster.states(again).values()) <= ended, "end of the second job")
    assert cluster.states(again) == {2: "COMPLETED"}, (results / "logs" / f"{again}_2.log").read_text()
    status = json.loads(program(folder, "run-task", "tasks.jsonl", "--status", "--json"))
    assert (status["done"], status["array"], status["failed"]) == (TASKS, "", [])

    program(folder, "search", *names, "--each", "-o", "alone", "-q", *map(str, OPTIONS))
    for name in names:
        product = name.replace(".fil", "_search")
        assert files(results / product) == files(folder / "alone" / product), product


def test_htcondor_reads_the_submit_file_and_the_dag(tmp_path, monkeypatch):
    htcondor = client("htcondor2")
    folder = tmp_path / "an archive"
    folder.mkdir()
    planned(folder, "--htcondor", "search.dag", "--cpus", 2)
    submit = htcondor.Submit((folder / "search.sub").read_text())
    expected = {
        "universe": "vanilla", "initialdir": str(folder), "request_cpus": "2", "should_transfer_files": "NO",
    }
    assert expected.items() <= {key.lower(): value for key, value in submit.items()}.items()
    assert pathlib.Path(submit["executable"]).resolve() == (BUILT / "sidereal").resolve()
    nodes, retries = {}, {}
    for line in (folder / "search.dag").read_text().splitlines():
        word, *rest = line.split()
        if word == "JOB":
            assert rest[1:] == ["search.sub"]
            nodes[rest[0]] = None
        elif word == "VARS":
            name, value = rest[1].split("=")
            nodes[rest[0]] = value.strip('"')
            submit[name] = nodes[rest[0]]
            words = f"\"run-task 'tasks.jsonl' {nodes[rest[0]]} --threads 2 --no-progress\""
            assert submit.expand("arguments") == words
        elif word == "RETRY":
            retries[rest[0]] = int(rest[1])
        else:
            assert word == "#", line
    assert nodes == {f"T{number}": str(number) for number in range(TASKS)}
    assert retries.keys() == nodes.keys()
    # The bindings look for the program that would run the DAG.
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "condor_dagman")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(folder)
    dag = htcondor.Submit.from_dag("search.dag", {})
    assert "search.dag" in dag["arguments"]
    # What a node runs, by its words.
    program(folder, "run-task", "tasks.jsonl", "3", "--threads", "2", "-q")
    assert (folder / "results" / "beam3_search").is_dir()
