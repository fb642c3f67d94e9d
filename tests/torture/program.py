"""Runs the program under limits, and says what it may never do."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field

# Wrong use, damaged input, a full disk, a lost device, an interrupt, the rest; 0 is success.
EXIT_CODES = (0, 1, 2, 3, 4, 5, 130)
LONGEST_S = 20
MOST_MEMORY = 1 << 30
# Memory that is asked for but not touched counts too: more than this makes the program abort.
ADDRESS_SPACE_KIB = 6 << 20


@dataclass
class Result:
    """How one run ended."""

    command: list
    code: int
    seconds: float
    peak: int
    output: str
    errors: str
    timed_out: bool = False

    def faults(self, codes=EXIT_CODES):
        """What no run may do, whatever its input."""
        found = []
        if self.timed_out:
            found.append(f"it ran for more than {LONGEST_S} s")
        elif self.code < 0:
            found.append(f"it was ended by {signal.Signals(-self.code).name}")
        elif self.code not in codes:
            found.append(f"it exits with {self.code}, expected one of {codes}")
        if "panicked at" in self.errors:
            found.append("it panics: " + self.errors.partition("panicked at")[2].strip()[:200])
        if self.peak > MOST_MEMORY:
            found.append(f"it takes {self.peak >> 20} MiB of memory")
        if self.code not in (0, 101) and self.code > 0 and not self.errors.strip():
            found.append(f"it exits with {self.code} and says nothing")
        return found


@dataclass
class Running:
    """A run that goes on."""

    command: list
    process: subprocess.Popen
    files: tuple
    begun: float = field(default_factory=time.monotonic)

    def signal(self, number):
        """Sends a signal, unless the run has ended."""
        try:
            os.kill(self.process.pid, number)
        except ProcessLookupError:
            pass

    def wait(self, limit_s=LONGEST_S):
        """Waits for the end, and ends what takes too long."""
        late = threading.Event()

        def end():
            late.set()
            self.signal(signal.SIGKILL)

        timer = threading.Timer(max(0.0, limit_s - (time.monotonic() - self.begun)), end)
        timer.start()
        _, status, usage = os.wait4(self.process.pid, 0)
        timer.cancel()
        self.process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in self.files:
            file.seek(0)
            texts.append(file.read(1 << 20).decode(errors="replace"))
            file.close()
        return Result(
            self.command,
            self.process.returncode,
            time.monotonic() - self.begun,
            usage.ru_maxrss * 1024,
            *texts,
            timed_out=late.is_set(),
        )


class Program:
    """The program under test."""

    def __init__(self, path, threads=2):
        self.path = str(pathlib.Path(path).resolve())
        self.common = ["--threads", str(threads), "--no-progress"]
        self.help = {}

    def start(self, arguments, folder, stdin=None, environment=(), file_size=None):
        """Starts a run in a folder."""
        command = [self.path, *map(str, arguments), *self.common]
        limits = f"ulimit -v {ADDRESS_SPACE_KIB}; "
        if file_size is not None:
            # With the signal ignored, writing beyond the limit is an error.
            limits += f"trap '' XFSZ; ulimit -f {file_size // 512}; "
        files = (tempfile.TemporaryFile(), tempfile.TemporaryFile())
        process = subprocess.Popen(
            ["/bin/sh", "-c", limits + 'exec "$@"', "sh", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=files[0],
            stderr=files[1],
            # Products do not tell the date, host and command, so that runs can be compared.
            env={**os.environ, "RUST_BACKTRACE": "0", "SOURCE_DATE_EPOCH": "0", **dict(environment)},
            start_new_session=True,
        )
        return Running(command, process, files)

    def run(self, arguments, folder, limit_s=LONGEST_S, **more):
        """Runs to the end."""
        return self.start(arguments, folder, **more).wait(limit_s)

    def knows(self, verb, option):
        """Whether a verb has an option."""
        if verb not in self.help:
            self.help[verb] = self.run([*verb.split(), "--help"], "/").output
        return option in self.help[verb]


class Folder:
    """A folder of one case, kept where the case failed."""

    def __init__(self, parent):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="case-", dir=parent))

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def raise_limits():
    """As many open files as may be: cases run side by side."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
