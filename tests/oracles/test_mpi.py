"""Runs that mpirun divides among processes: the files of one process, and runs that end early."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest
from conftest import BUILT, ROOT

# The program that `./check mpi` builds.
PROGRAM = pathlib.Path(os.environ.get("SIDEREAL_MPI", ROOT / "target" / "mpi" / "sidereal"))
RANKS = "OMPI_COMM_WORLD_RANK"
# The emulated GPU that `./check emulated` builds.
EMULATOR = ROOT / "target" / "cuda_on_host"

if shutil.which("mpirun") is None:
    pytest.skip("mpirun is not installed", allow_module_level=True)
if not PROGRAM.exists():
    pytest.skip("the program was not built with MPI (./check mpi)", allow_module_level=True)


class Job:
    """A run of mpirun, whose output goes to a file: processes that survive it would keep a pipe open."""

    def __init__(self, folder, ranks, *words, program=PROGRAM, variables=None):
        self.log = folder / "mpirun.log"
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, program, *words]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                cwd=folder,
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, seconds=120):
        """Waits for the end; returns the exit code and the output."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            pytest.fail(f"it did not end within {seconds} s\n{self.log.read_text()}")
        return code, self.log.read_text()

    def process_of(self, rank):
        """The process number of a rank."""
        for entry in pathlib.Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == self.process.pid and f"{RANKS}={rank}".encode() in environment:
                return int(entry.name)
        return None


def correlation(name, *options):
    """The words of a correlation of the recordings in the folder."""
    recordings = [f"array/{path}" for path in options[0]]
    return ["correlate", *recordings, "-o", name, "--antennas", "array/antennas.csv", "--reproducible", "--no-plots", *options[1:]]


def simulate(folder, antennas, *options):
    words = ["simulate", "array", "-o", "array", "--layout", f"{antennas},300,wye", "--freq", 1420, "--sefd", 120, "-q", *options]
    subprocess.run([str(word) for word in [PROGRAM, *words]], cwd=folder, check=True, timeout=300)
    return sorted(path.name for path in (folder / "array").glob("*.dada"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    source = ("--source", "09:18:05.7,-12:05:44,40,Hydra_A")
    return folder, simulate(folder, 5, *source, "--bandwidth", 1, "--seconds", 1)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    return folder, simulate(folder, 4, "--bandwidth", 4, "--seconds", 8)


@pytest.mark.parametrize(
    "options",
    [
        ("--channels", "64", "--integration", "0.1"),
        ("--channels", "60", "--integration", "0.013", "--nbits", "4", "--average-channels", "3", "--gulp", "37"),
        ("--channels", "16", "--integration", "0.25", "--nbits", "32", "--baselines", "auto"),
    ],
)
def test_ranks_write_the_file_of_one_process(small, options):
    folder, names = small
    one = [str(word) for word in [PROGRAM, *correlation("one.uvh5", names, "--overwrite", *options)]]
    subprocess.run(one, cwd=folder, check=True, timeout=120, capture_output=True)
    expected = (folder / "one.uvh5").read_bytes()
    for ranks in (1, 2, 4):
        code, output = Job(folder, ranks, *correlation("ranks.uvh5", names, "--overwrite", *options)).wait()
        assert code == 0, output
        # Rank 0 alone prints.
        assert output.count("Correlated") == 1, output
        assert (folder / "ranks.uvh5").read_bytes() == expected, f"{ranks} ranks"
        documents = [json.loads((folder / f"{name}.uvh5.json").read_text()) for name in ("one", "ranks")]
        assert documents[0]["antennas"] == documents[1]["antennas"]
        assert documents[0]["provenance"] == documents[1]["provenance"]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """A folder with recordings, their names, and variables with which the program finds two emulated GPUs."""
    if not (EMULATOR / "libcuda.so.1").exists():
        pytest.skip("the emulated CUDA device was not built (./check emulated)")
    folder = tmp_path_factory.mktemp("emulated")
    names = simulate(folder, 5, "--bandwidth", 1, "--seconds", 0.05)
    variables = {"LD_LIBRARY_PATH": str(EMULATOR), "SIDEREAL_EMULATED_DEVICES": "2", "SIDEREAL_CACHE_DIR": str(EMULATOR / "cubins")}
    return folder, names, variables


@pytest.mark.parametrize(
    "options",
    [
        ("--channels", "64", "--integration", "0.01", "--phase-centre", "139.5,-12.1"),
        ("--channels", "16", "--integration", "0.007", "--nbits", "32", "--drift", "--gulp", "333"),
    ],
)
def test_ranks_with_gpus_write_the_file_of_one_process_with_one(emulated, options):
    folder, names, variables = emulated
    one = [str(word) for word in [PROGRAM, *correlation("one.uvh5", names, "--overwrite", "--device", "cuda:0", *options)]]
    subprocess.run(one, cwd=folder, check=True, timeout=300, capture_output=True, env={**os.environ, **variables})
    expected = (folder / "one.uvh5").read_bytes()
    for ranks in (2, 3):
        words = correlation("ranks.uvh5", names, "--overwrite", "--device", "cuda", *options)
        code, output = Job(folder, ranks, *words, variables=variables).wait(300)
        assert code == 0 and output.count("Correlated") == 1, output
        assert (folder / "ranks.uvh5").read_bytes() == expected, f"{ranks} ranks"


@pytest.mark.parametrize("failure", ["cuLaunchKernel:9", "cuMemcpyDtoHAsync_v2:2"])
def test_a_gpu_that_fails_is_named_with_its_rank(emulated, failure):
    folder, names, variables = emulated
    words = correlation("failed.uvh5", names, "--overwrite", "--device", "cuda", "--drift", "--channels", "64", "--integration", "0.01", "--gulp", "50")
    # Ranks have the two GPUs in turn, so that rank 1 alone has the second.
    job = Job(folder, 2, *words, variables={**variables, "SIDEREAL_EMULATED_FAIL": f"{failure}:719:1"})
    code, output = job.wait()
    assert code != 0 and output.count("sidereal: rank 1: ") == 1 and "CUDA device 1" in output, output


def working(job, folder, name, rank):
    """Waits until a correlation writes its file; returns the process number of a rank."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert job.process.poll() is None, job.log.read_text()
        started = [path for path in folder.glob(f".{name}.unfinished*") if any(own.stat().st_size > 4096 for own in path.iterdir())]
        found = job.process_of(rank)
        if started and found:
            return found
        time.sleep(0.02)
    pytest.fail(f"it wrote nothing within a minute\n{job.log.read_text()}")


def test_a_killed_rank_ends_the_job(long):
    folder, names = long
    job = Job(folder, 2, *correlation("killed.uvh5", names, "--drift", "--integration", "0.02", "--channels", "64"))
    os.kill(working(job, folder, "killed.uvh5", 1), signal.SIGKILL)
    code, output = job.wait(30)
    assert code != 0 and "rank 1" in output, output
    assert not (folder / "killed.uvh5").exists() and not (folder / "killed.uvh5.json").exists()


def test_a_rank_that_is_stopped_stops_all_and_keeps_what_was_written(long):
    folder, names = long
    options = ("--drift", "--integration", "0.02", "--channels", "64")
    job = Job(folder, 2, *correlation("stopped.uvh5", names, *options))
    os.kill(working(job, folder, "stopped.uvh5", 1), signal.SIGTERM)
    code, output = job.wait(30)
    assert code != 0, output
    document = json.loads((folder / "stopped.uvh5.json").read_text())
    assert not document["complete"] and document["integrations"] > 0
    assert "sidereal: stopped on request; what was found was kept" in output, output
    assert output.count("rank 1: stopped on request.") == 1, output


def test_a_rank_that_cannot_read_is_named(small):
    folder, names = small
    # Another order of the names, so that the last rank has the recording without samples.
    lacking = folder / "array" / names[-1]
    whole = lacking.read_bytes()
    lacking.write_bytes(whole[:4096])
    try:
        code, output = Job(folder, 2, *correlation("lacking.uvh5", names)).wait()
    finally:
        lacking.write_bytes(whole)
    assert code != 0 and names[-1] in output, output
    assert not (folder / "lacking.uvh5").exists()


def test_more_ranks_than_antennas_are_an_error(small):
    folder, names = small
    code, output = Job(folder, 6, *correlation("many.uvh5", names)).wait()
    assert code != 0 and "is 6" in output and "5 antennas" in output, output
    # Rank 0 alone reports what all ranks find.
    assert output.count("5 antennas") == 1, output
    assert not (folder / "many.uvh5").exists()


def test_wrong_use_is_reported_once(small):
    folder, names = small
    code, output = Job(folder, 3, *correlation("array/missing/a.uvh5", names)).wait()
    assert code != 0 and output.count("sidereal:") == 1, output


def beam_search(name, beams, *options):
    """The words of a search of the beams in the folder."""
    return ["search", *beams, "-o", name, "--reproducible", "--device", "cpu", "--snr", 5.5, "--dm-max", 200, "--max-plots", 1, *options]


# Options of searches that take long enough to be interrupted.
SLOW = ("--dm-step", 0.2)


@pytest.fixture(scope="module")
def sky(tmp_path_factory):
    """Five beams: a pulse in all of them, and one in the first two."""
    folder = tmp_path_factory.mktemp("sky")
    beams = [f"b{number}.fil" for number in range(5)]
    for number, name in enumerate(beams):
        words = ["simulate", "burst", name, "-q", "--fch1", 1500, "--foff", -8, "--channels", 32, "--tsamp", 1e-3]
        # Runs are interrupted within the longest.
        words += ["--duration", 200 if number == 3 else 40, "--seed", number + 1, "--burst", "dm=60,time=1.5,width=0.004,snr=25"]
        words += ["--burst", "dm=90,time=31,width=0.008,snr=20"] if number < 2 else []
        subprocess.run([str(word) for word in [PROGRAM, *words]], cwd=folder, check=True, timeout=120)
    alone(folder, "one/found", beams)
    alone(folder, "slow/found", beams, *SLOW)
    return folder, beams


def alone(folder, name, beams, *options):
    words = [str(word) for word in [PROGRAM, *beam_search(name, beams, "--beams", *options)]]
    subprocess.run(words, cwd=folder, check=True, timeout=120, capture_output=True)


def files(folder):
    """The contents of all files of a product."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(folder, name, whole="one/found"):
    one, other = files(folder / whole), files(folder / name)
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


def left_by(folder, name):
    """The hidden folder of a killed run."""
    return next((folder / name).parent.glob(".found.unfinished-*"))


def interrupted(folder, beams, name, beam, sent):
    """Sends a signal to rank 1 of two within the search of a beam; returns the output. Tries again if the run was faster."""
    for _ in range(5):
        job = Job(folder, 2, *beam_search(name, beams, "--beams", "--gulp", 8, "--threads", 1, *SLOW))
        found = None
        while job.process.poll() is None:
            found = found or job.process_of(1)
            started = (folder / name).parent.glob(f".found.unfinished-*/{beam}_search/journal")
            if found and any(path.stat().st_size > 0 for path in started):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found, sent)
                break
            time.sleep(0.002)
        code, output = job.wait(30)
        if code != 0:
            return output
        shutil.rmtree((folder / name).parent)
    pytest.fail(f"no run was interrupted\n{output}")


@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
def test_ranks_write_the_beams_and_events_of_one_process(sky, ranks):
    folder, beams = sky
    code, output = Job(folder, ranks, *beam_search(f"ranks{ranks}/found", beams, "--beams")).wait()
    assert code == 0, output
    # Rank 0 alone prints the events, and each rank its beams.
    assert output.count("Searched 5 beams") == 1 and output.count(" of 5: b") == 5, output
    same(folder, f"ranks{ranks}/found")


def test_ranks_write_the_events_of_antennas(sky):
    folder, beams = sky
    code, output = Job(folder, 2, *beam_search("alike/found", beams[:3], "--antennas", "--no-plots")).wait()
    assert code == 0, output
    events = json.loads((folder / "alike/found/summary.json").read_text())["events"]
    assert events[0]["origin"] == "source" and events[0]["in_beams"] == 3


@pytest.mark.parametrize("resumed_by", [1, 3])
def test_a_killed_rank_ends_the_search_which_is_resumed(sky, resumed_by):
    folder, beams = sky
    name = f"killed{resumed_by}/found"
    output = interrupted(folder, beams, name, "b3", signal.SIGKILL)
    assert "rank 1" in output, output
    assert not (folder / name).exists()
    assert (left_by(folder, name) / "b1_search/candidates.csv").exists()
    if resumed_by == 1:
        alone(folder, name, beams, "--resume", *SLOW)
    else:
        code, output = Job(folder, resumed_by, *beam_search(name, beams, "--beams", "--resume", *SLOW)).wait()
        assert code == 0, output
    same(folder, name, "slow/found")


def test_a_rank_that_is_stopped_stops_the_search_of_all_beams(sky):
    folder, beams = sky
    name = "stopped/found"
    output = interrupted(folder, beams, name, "b3", signal.SIGTERM)
    assert output.count("stopped on request; what was found was kept in stopped/found") == 1, output
    document = json.loads((folder / name / "summary.json").read_text())
    assert not document["complete"] and document["reason"] == "stopped on request"
    searched = [beam["file"] for beam in document["beams"]]
    assert "b1.fil" in searched and "b3.fil" not in searched, searched
    code, output = Job(folder, 2, *beam_search(name, beams, "--beams", "--resume", *SLOW)).wait()
    assert code == 0, output
    same(folder, name, "slow/found")


def test_a_rank_that_fails_is_named_and_what_others_found_is_kept(sky):
    folder, beams = sky
    name = "failed/found"
    interrupted(folder, beams, name, "b1", signal.SIGKILL)
    # A file in the place of a folder.
    left = left_by(folder, name) / "b1_search"
    shutil.rmtree(left)
    left.write_text("")
    code, output = Job(folder, 2, *beam_search(name, beams, "--beams", "--resume", *SLOW)).wait()
    assert code != 0 and output.count("rank 1, b1.fil: failed/found/b1_search") == 1, output
    document = json.loads((folder / name / "summary.json").read_text())
    assert not document["complete"] and document["reason"].startswith("rank 1, b1.fil: "), document["reason"]
    searched = [beam["file"] for beam in document["beams"]]
    # Rank 0 has its first beam, and goes on with no other.
    assert searched and set(searched) <= {"b0.fil", "b2.fil", "b4.fil"}, searched
    assert "What was found before is in failed/found, marked as not complete." in output, output


def test_more_ranks_than_beams_are_an_error(sky):
    folder, beams = sky
    code, output = Job(folder, 6, *beam_search("many/found", beams, "--beams")).wait()
    assert code != 0 and "is 6" in output and "5 beams" in output, output
    assert output.count("5 beams") == 1 and not (folder / "many").exists(), output


def test_an_existing_product_of_beams_is_reported_once(sky):
    folder, beams = sky
    code, output = Job(folder, 3, *beam_search("one/found", beams, "--beams")).wait()
    assert code != 0 and output.count("sidereal:") == 1 and "--overwrite" in output, output


def test_a_search_of_one_recording_does_not_run_several_times(sky):
    folder, beams = sky
    code, output = Job(folder, 2, *beam_search("single", beams[:1])).wait()
    assert code != 0 and output.count("search without --beams or --antennas does not divide its work") == 1, output


def test_other_verbs_do_not_run_several_times(small):
    folder, _ = small
    code, output = Job(folder, 2, "info", "array/antennas.csv").wait()
    assert code != 0 and output.count("does not divide its work") == 1, output


def test_a_rank_opens_the_recordings_of_its_antennas(small):
    folder, names = small
    job = Job(folder, 2, *correlation("opened.uvh5", names, "--overwrite", "--integration", "0.001", "--channels", "16"))
    opened = set()
    while job.process.poll() is None:
        process = job.process_of(1)
        for link in pathlib.Path(f"/proc/{process}/fd").glob("*") if process else []:
            try:
                opened.add(pathlib.Path(os.readlink(link)).name)
            except OSError:
                continue
        time.sleep(0.002)
    code, output = job.wait()
    assert code == 0, output
    # Rank 1 of two has the last three antennas of five, and opens the headers of its share of the files.
    assert opened & set(names), "no recording was seen open"
    assert not opened & set(names[:2]), opened


class Streams:
    """Ports of the antennas' streams, and senders of their recordings."""

    def __init__(self, folder, names):
        self.folder = folder
        self.files = dict(zip(sorted(path.removesuffix(".dada") for path in names), names))
        self.ports = {}
        for name in self.files:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind(("127.0.0.1", 0))
                self.ports[name] = free.getsockname()[1]

    def words(self, output, *options):
        """The words of a live correlation, with the streams in another order than the positions."""
        addresses = [f"{name}=spead://127.0.0.1:{port}" for name, port in self.ports.items()]
        return ["live", "correlate", *addresses[::-1], "-o", output, "--antennas", "array/antennas.csv", "--reproducible", "-q", *options]

    def await_ports(self, job=None, seconds=60):
        """Waits until all ports are bound."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            bound = {int(line.split()[1].partition(":")[2], 16) for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]}
            if bound >= set(self.ports.values()):
                return
            time.sleep(0.05)
        pytest.fail(f"the ports are not bound\n{job.log.read_text() if job else ''}")

    def send(self, rate=1):
        """Starts a sender for each antenna."""
        return {
            name: subprocess.Popen(
                [str(word) for word in (PROGRAM, "send", f"array/{file}", f"spead://127.0.0.1:{self.ports[name]}", "--rate", rate, "-q")],
                cwd=self.folder,
                stderr=subprocess.PIPE,
            )
            for name, file in self.files.items()
        }


def sent(senders):
    for sender in senders.values():
        _, error = sender.communicate(timeout=120)
        assert sender.returncode == 0, error


@pytest.mark.parametrize("options", [("--roll", "300", "--drift"), ("--roll", "0.3", "--phase-centre", "139.5,-12.1", "--nbits", "4")])
def test_ranks_write_the_files_of_one_live_process(small, options):
    folder, names = small
    streams = Streams(folder, names)
    written = {}
    for ranks in (1, 2, 3):
        output = f"live{ranks}{options[1]}"
        words = streams.words(output, "--observations", "1", "--channels", "32", "--integration", "0.05", *options)
        job = Job(folder, ranks, *words)
        streams.await_ports(job)
        sent(streams.send())
        code, output_text = job.wait()
        assert code == 0, output_text
        written[ranks] = {path.name: path.read_bytes() for path in sorted((folder / output).glob("*.uvh5"))}
        for document in (folder / output).glob("*.json"):
            assert json.loads(document.read_text())["complete"], document
    assert len(written[1]) == (1 if options[1] == "300" else 4)
    assert written[2] == written[1]
    assert written[3] == written[1]


def test_a_signal_to_one_rank_ends_all_while_packets_are_missing(long):
    folder, names = long
    streams = Streams(folder, names)
    job = Job(folder, 2, *streams.words("stalled", "--drift", "--channels", "64", "--integration", "0.1"))
    streams.await_ports(job)
    senders = streams.send()
    until = time.monotonic() + 60
    while not list((folder / "stalled").glob(".*unfinished*")):
        assert time.monotonic() < until, job.log.read_text()
        time.sleep(0.05)
    time.sleep(1)
    # The last antenna is that of rank 1, which waits for its packets from now on, and rank 0 for rank 1.
    senders[list(streams.files)[-1]].kill()
    time.sleep(1)
    os.kill(job.process_of(0), signal.SIGTERM)
    code, output = job.wait(20)
    for sender in senders.values():
        sender.kill()
        sender.communicate()
    assert code != 0, output
    documents = [json.loads(path.read_text()) for path in (folder / "stalled").glob("*.json")]
    assert len(documents) == 1 and not documents[0]["complete"], (documents, output)
    assert documents[0]["integrations"] > 0


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_between_observations_is_a_stop(small, rank):
    folder, names = small
    streams = Streams(folder, names)
    output = f"between{rank}"
    job = Job(folder, 2, *streams.words(output, "--drift", "--channels", "64", "--integration", "0.1"))
    streams.await_ports(job)
    sent(streams.send())
    until = time.monotonic() + 60
    while not list((folder / output).glob("*.uvh5.json")):
        assert time.monotonic() < until, job.log.read_text()
        time.sleep(0.05)
    time.sleep(1)
    os.kill(job.process_of(rank), signal.SIGTERM)
    code, text = job.wait(20)
    # That of one process.
    assert code == 130, text
    assert "sidereal: " not in text, text


def test_more_ranks_than_streams_are_an_error(small):
    folder, names = small
    code, output = Job(folder, 6, *Streams(folder, names).words("many", "--drift")).wait()
    assert code != 0 and output.count("5 streams") == 1, output
    assert not (folder / "many").exists()


def test_a_program_without_mpi_says_so(small):
    folder, names = small
    program = BUILT / "sidereal"
    if not program.exists() or program.read_bytes() == PROGRAM.read_bytes():
        pytest.skip("there is no program without MPI")
    code, output = Job(folder, 2, *correlation("without.uvh5", names), program=program).wait()
    assert code != 0 and output.count("built without MPI") == 1, output
    assert not (folder / "without.uvh5").exists()


def binaries(name, *options):
    """The words of a search of two detectors for binaries."""
    strain = ["strain_H1.hdf5", "strain_L1.hdf5"]
    words = ["spiir", "search", *strain, "-o", name, "--f-low", 40, "--device", "cpu", "--reproducible", "--no-progress", *options]
    return [str(word) for word in words]


def simulate_strain(folder, seconds, templates):
    inject = "m1=36,m2=29,distance=400,ra=1.95,dec=-1.27,inclination=2.7,time=1400000040"
    words = ["simulate", "strain", "strain.hdf5", "--detectors", "H1,L1", "--start", 1400000000, "--length", seconds, "--seed", 5, "-q"]
    subprocess.run([str(word) for word in [PROGRAM, *words, "--inject", inject]], cwd=folder, check=True, timeout=300)
    masses = [f"{30 + number % 7},{20 + number // 7}" for number in range(templates)]
    (folder / "binaries.csv").write_text("\n".join(["mass1,mass2", *masses]) + "\n")


@pytest.fixture(scope="module")
def strain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strain")
    simulate_strain(folder, 64, 20)
    return folder


@pytest.fixture(scope="module")
def long_strain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long_strain")
    simulate_strain(folder, 512, 24)
    return folder


def contents(folder):
    """The bytes of the files of a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "options",
    [
        ("--templates", "binaries.csv", "--png"),
        ("--templates", "binaries.csv", "--causal", "--no-plots"),
        ("--masses", "20:40", "--no-plots", "--gulp", "777"),
    ],
)
def test_ranks_find_the_binaries_of_one_process(strain, options):
    one = [PROGRAM, *binaries("one", "--overwrite", *options)]
    subprocess.run(one, cwd=strain, check=True, timeout=300, capture_output=True)
    expected = contents(strain / "one")
    assert json.loads(expected["events.json"])["found"] > 0
    for ranks in (1, 2, 4):
        code, output = Job(strain, ranks, *binaries("ranks", "--overwrite", *options)).wait(300)
        assert code == 0, output
        assert output.count("written: ranks") == 1, output
        found = contents(strain / "ranks")
        assert found.keys() == expected.keys()
        for name in found:
            assert found[name] == expected[name], f"{name}, {ranks} ranks"


def test_banks_that_ranks_share_find_the_events_of_one_process(strain):
    search = [PROGRAM, *binaries("made", "--templates", "binaries.csv", "--no-plots", "--overwrite")]
    subprocess.run(search, cwd=strain, check=True, timeout=300, capture_output=True)
    words = ["spiir", "search", "strain_H1.hdf5", "strain_L1.hdf5", "--bank", "H1=made/bank_H1.h5", "--bank", "L1=made/bank_L1.h5"]
    words += ["--device", "cpu", "--reproducible", "--no-plots", "--overwrite"]
    one = [PROGRAM, *words, "-o", "one_bank"]
    subprocess.run(one, cwd=strain, check=True, timeout=300, capture_output=True)
    code, output = Job(strain, 3, *words, "-o", "ranks_bank").wait()
    assert code == 0, output
    assert contents(strain / "ranks_bank") == contents(strain / "one_bank")


def test_a_killed_rank_ends_a_search_for_binaries_which_goes_on_later(long_strain):
    options = ("--templates", "binaries.csv", "--no-plots", "-t", 1, "--gulp", 1024)
    job = Job(long_strain, 2, *binaries("killed", *options))
    until = time.monotonic() + 120
    while not list(long_strain.glob(".killed.unfinished*/checkpoint")):
        assert job.process.poll() is None and time.monotonic() < until, job.log.read_text()
        time.sleep(0.02)
    os.kill(job.process_of(1), signal.SIGKILL)
    code, output = job.wait(30)
    assert code != 0 and "rank 1" in output, output
    assert not (long_strain / "killed").exists()
    # Each rank has saved the state of its templates.
    code, output = Job(long_strain, 3, *binaries("killed", "--resume", *options)).wait()
    assert code != 0 and "processes" in output, output
    code, output = Job(long_strain, 2, *binaries("killed", "--resume", *options)).wait(300)
    assert code == 0, output
    whole = [PROGRAM, *binaries("whole", *options)]
    subprocess.run(whole, cwd=long_strain, check=True, timeout=300, capture_output=True)
    assert contents(long_strain / "killed") == contents(long_strain / "whole")


def test_a_rank_that_is_stopped_stops_a_search_for_binaries(long_strain):
    job = Job(long_strain, 2, *binaries("stopped", "--templates", "binaries.csv", "--no-plots", "-t", 1, "--gulp", 1024))
    until = time.monotonic() + 120
    while not list(long_strain.glob(".stopped.unfinished*/checkpoint")):
        assert job.process.poll() is None and time.monotonic() < until, job.log.read_text()
        time.sleep(0.02)
    os.kill(job.process_of(1), signal.SIGTERM)
    code, output = job.wait(60)
    assert code != 0, output
    document = json.loads((long_strain / "stopped" / "events.json").read_text())
    assert not document["complete"] and 0 < document["livetime_s"] < 500
    assert output.count("rank 1: stopped on request.") == 1, output


def test_more_ranks_than_templates_are_an_error(strain):
    (strain / "two.csv").write_text("mass1,mass2\n30,20\n40,30\n")
    code, output = Job(strain, 3, *binaries("many", "--templates", "two.csv")).wait()
    assert code != 0 and output.count("is 3") == 1 and "2 templates" in output, output
    assert not (strain / "many").exists()


def test_ranks_with_different_strain_are_named(strain):
    words = binaries("different", "--templates", "binaries.csv")
    # Each rank has a folder of its own, as machines without a common disk have.
    script = f"mkdir -p own$OMPI_COMM_WORLD_RANK && cd own$OMPI_COMM_WORLD_RANK && exec {PROGRAM} " + " ".join(words)
    for rank in (0, 1):
        own = strain / f"own{rank}"
        own.mkdir()
        shutil.copy(strain / "binaries.csv", own)
        for name in ("strain_H1.hdf5", "strain_L1.hdf5"):
            # Rank 1 has exchanged the detectors' files.
            shutil.copy(strain / name, own / (name if rank == 0 else name.translate(str.maketrans("HL", "LH"))))
    code, output = Job(strain, 2, "-c", script, program="sh").wait()
    assert code != 0 and "rank 1" in output and "its strain" in output, output
    assert not (strain / "own0" / "different").exists()


def test_the_benchmark_compares_ranks(strain):
    words = ["bench", "scale", "--over", "ranks", "--quick", "--numbers", "1,2", "--device", "cpu", "--folder", ".", "--json"]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    made = subprocess.run([PROGRAM, *words], cwd=strain, env=environment, capture_output=True, timeout=600, text=True)
    assert made.returncode == 0, made.stderr
    rows = json.loads(made.stdout)
    assert {row["case"].split(",")[0] for row in rows} == {"correlate", "spiir search", "search --beams"}
    for one, two in zip(rows[::2], rows[1::2]):
        assert (one["number"], two["number"], two["same_products"]) == (1, 2, True)
        # Beams are not exchanged.
        assert (two["exchange_s"] > 0) != ("beams" in two["case"]) and one["exchange_s"] == 0
    # Without mpirun it says so.
    made = subprocess.run([PROGRAM, *words], cwd=strain, env={"PATH": "/nowhere"}, capture_output=True, timeout=60, text=True)
    assert made.returncode != 0 and "mpirun" in made.stderr, made.stderr
