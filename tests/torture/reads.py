"""Files whose reads fail or hang from some byte on: a library between the program and the system does it."""

import pathlib
import shutil
import signal
import subprocess
import time

import products
from kills import JOBS, SOON_S
from program import Folder


class Reads:
    """Every verb that reads, with a file that breaks off."""

    name = "reads"
    share = 7

    def __init__(self, setting):
        self.setting = setting
        self.library = setting.scratch / "failing_read.so"
        source = pathlib.Path(__file__).parent / "failing_read.c"
        compiler = shutil.which("cc")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source), "-ldl"]
        if compiler is None or subprocess.run(command).returncode != 0:
            print("skipped: no C compiler, so no read was made to fail", flush=True)
            self.library = None
        self.jobs = [(label, job) for label, job in JOBS.items() if self.input(job)]
        self.least = 2 * len(self.jobs) if self.library else 0

    @staticmethod
    def input(job):
        """The file that fails: the job's last input, so that others were begun before."""
        names = [word for word in job.arguments if "." in str(word) and not str(word)[0].isdigit()]
        names = [name for name in names if name.endswith((".fil", ".raw", ".dada", ".hdf5"))]
        return names[-1] if names else None

    def case(self, draw, number):
        """One run over a file that fails."""
        label, job = self.jobs[number % len(self.jobs)]
        if self.library is None:
            return "read errors: skipped", [], None
        hangs = number // len(self.jobs) % 2 == 1
        name = self.input(job)
        size = (self.setting.long / name).stat().st_size
        environment = {
            "LD_PRELOAD": str(self.library),
            "TORTURE_FILE": f"/{name}",
            "TORTURE_OFFSET": str(draw.randrange(size)),
        }
        if hangs:
            environment["TORTURE_HANG"] = "1"
        program = self.setting.program
        with Folder(self.setting.scratch) as folder:
            self.setting.fill(folder, long=True)
            own = {entry.name for entry in folder.iterdir()}
            running = program.start(job.command(), folder, environment=environment)
            faults = []
            if hangs:
                time.sleep(draw.uniform(0.5, 1.5))
                at = time.monotonic()
                running.signal(signal.SIGTERM)
                done = running.wait()
                if time.monotonic() - at > SOON_S:
                    faults.append(f"it ends {time.monotonic() - at:.1f} s after SIGTERM while a read hangs")
                faults += done.faults((0, 130))
            else:
                done = running.wait()
                faults += done.faults((0, 1, 3))
                document = job.document(folder)
                if document and done.code != 0 and products.is_complete(document) is not False:
                    faults.append(f"exit code {done.code}, and {document.name} does not say that it is not complete")
            if done.code == 0 and products.content(folder, job) is None and job.main:
                faults.append(f"it exits with 0 without {job.main}")
            faults += products.faults(program, folder, own)
            left = [path.name for path in products.hidden(folder) if path not in products.journals(folder)]
            if left and not hangs:
                faults.append(f"it leaves {', '.join(left)}")
            kind = "a read that hangs" if hangs else "a read error"
            note = f" ({name} from byte {environment['TORTURE_OFFSET']})"
            return f"{kind}: {label}", [fault + note for fault in faults], done
