"""Outputs on a full disk: a small file system in memory, or a limit on the size of files."""

import os
import shutil
import subprocess
import threading
import time

import products
from kills import JOBS, Kills
from program import Folder

# The exit code of a full disk; a run may refuse before it begins.
CODES = (0, 1, 2, 4)


def mount(folder, kilobytes):
    """Whether a file system of that size stands at a folder."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=0755", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


class Disks:
    """Verbs that write onto too little space, or onto space that others take meanwhile."""

    name = "disks"
    share = 8

    def __init__(self, setting):
        self.setting = setting
        self.least = (1 if setting.quick else 2) * len(JOBS)
        with Folder(setting.scratch) as folder:
            self.mounts = mount(folder, 64)
            if self.mounts:
                subprocess.run(["umount", str(folder)], check=True)
            else:
                print("skipped: no file system can be mounted, so the size of files is limited instead", flush=True)
        for job in JOBS.values():
            setting.undisturbed(job)

    def case(self, draw, number):
        """One run with part of the space that it needs."""
        label, job = list(JOBS.items())[number % len(JOBS)]
        part = draw.choice((0.02, 0.3, 0.7, 0.95, 1.0))
        program, (usual_s, expected, size) = self.setting.program, self.setting.undisturbed(job)
        with Folder(self.setting.scratch) as folder:
            if not self.mounts:
                self.setting.fill(folder, long=True)
                own = {entry.name for entry in folder.iterdir()}
                running = program.start(job.command(), folder, file_size=max(512, int(part * size)))
                return self.judge(label, job, folder, own, running.wait(60), expected)
            late = draw.random() < 0.5
            space = 2 * size + (1 << 20) if late else int(part * size) + 8192
            if not mount(folder, space // 1024 + 4):
                return f"full disk: {label}", ["no file system can be mounted"], None
            try:
                self.setting.fill(folder, long=True)
                own = {entry.name for entry in folder.iterdir()} | {"filler"}
                running = program.start(job.command(), folder)
                taker = threading.Timer(draw.uniform(0, usual_s), self.take, (folder, space))
                if late:
                    taker.start()
                done = running.wait(60)
                # It may never write where nothing is mounted.
                taker.cancel()
                if late:
                    taker.join()
                (folder / "filler").unlink(missing_ok=True)
                return self.judge(label, job, folder, own, done, expected)
            finally:
                for path in folder.iterdir():
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
                for _ in range(50):
                    if subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
                        break
                    time.sleep(0.1)

    @staticmethod
    def take(folder, space):
        """Takes all space that is left."""
        try:
            with open(folder / "filler", "wb", buffering=0) as file:
                for _ in range(space // (1 << 14) + 1):
                    file.write(bytes(1 << 14))
        except OSError:
            pass

    def judge(self, label, job, folder, own, done, expected):
        """What is wrong with how it ended and what it left."""
        faults = done.faults(CODES)
        if done.code == 0:
            faults += Kills.told(folder, job, done, expected)
        elif "(os error 28)" in done.errors and done.code != 4:
            faults.append(f"a full disk is told with exit code {done.code}: {done.errors.strip()[:200]}")
        faults += products.faults(self.setting.program, folder, own)
        document = job.document(folder)
        if done.code != 0 and document and products.is_complete(document) is not False:
            faults.append(f"exit code {done.code}, and {document.name} does not say that it is not complete")
        left = [path.name for path in products.hidden(folder) if path not in products.journals(folder)]
        if left and done.code >= 0:
            faults.append(f"it leaves {', '.join(left)}")
        return f"full disk: {label}", faults, done
