"""A Slurm cluster of one node on this machine: munged, slurmctld and slurmd in a folder of their own."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "scontrol", "sinfo")
# Where Debian has daemons.
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


def missing():
    """The first program that is not installed, or None."""
    return next((name for name in PROGRAMS if shutil.which(name, path=PATH) is None), None)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.node = socket.gethostname().split(".")[0]
        self.environment = os.environ | {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self):
        for name in ("state", "spool", "log"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        munge = [f"--{name}={self.folder / file}" for name, file in (
            ("key-file", "munge.key"), ("socket", "munge.socket"), ("pid-file", "munged.pid"),
            ("log-file", "log/munged.log"), ("seed-file", "munge.seed"),
        )]
        self.call("munged", "--force", *munge)
        (self.folder / "slurm.conf").write_text(self.configuration())
        self.call("slurmctld", "-c")
        self.call("slurmd", "-c", "-N", self.node)
        self.wait_for(lambda: "idle" in self.call("sinfo", "--noheader", "--format=%T"), "a node that is idle")

    def configuration(self):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        lines = {
            "ClusterName": "test", "SlurmctldHost": f"{self.node}(127.0.0.1)",
            "SlurmctldPort": free_port(), "SlurmdPort": free_port(),
            "AuthType": "auth/munge", "AuthInfo": f"socket={self.folder / 'munge.socket'}",
            "SlurmUser": "root", "SlurmdUser": "root",
            "StateSaveLocation": self.folder / "state", "SlurmdSpoolDir": self.folder / "spool",
            "SlurmctldPidFile": self.folder / "slurmctld.pid", "SlurmdPidFile": self.folder / "slurmd.pid",
            "SlurmctldLogFile": self.folder / "log/slurmctld.log", "SlurmdLogFile": self.folder / "log/slurmd.log",
            "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "MpiDefault": "none",
            "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CPU_Memory",
            "JobAcctGatherType": "jobacct_gather/none", "AccountingStorageType": "accounting_storage/none",
            "ReturnToService": 2, "KillWait": 5, "MinJobAge": 600,
        }
        node = f"NodeName={self.node} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory={memory // 2} State=UNKNOWN"
        partition = "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
        return "\n".join([f"{name}={value}" for name, value in lines.items()] + [node, partition]) + "\n"

    def call(self, *words, check=True):
        words = [str(word) for word in words]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        assert not check or done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def submit(self, script, *options):
        """Submits a script and returns the number of its job."""
        return self.call("sbatch", "--parsable", *options, script).strip()

    def states(self, job):
        """The states of a job's tasks by their numbers."""
        lines = self.call("squeue", "--job", job, "--states=all", "--array", "--noheader", "--format=%K %T").splitlines()
        return {int(number): state for number, state in (line.split() for line in lines)}

    def wait_for(self, found, what, limit_s=120):
        end = time.monotonic() + limit_s
        while not found():
            assert time.monotonic() < end, f"no {what} within {limit_s} s\n{self.logs()}"
            time.sleep(0.1)

    def logs(self):
        texts = [f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("log/*.log")]
        return "\n".join(texts)

    def stop(self):
        """Ends the daemons, by the numbers of their processes, and waits for their ends."""
        for name in ("slurmd", "slurmctld", "munged"):
            try:
                process = int((self.folder / f"{name}.pid").read_text())
                os.kill(process, signal.SIGTERM)
            except (OSError, ValueError):
                continue
            self.wait_for(lambda: not pathlib.Path(f"/proc/{process}/exe").exists(), f"end of {name}")
