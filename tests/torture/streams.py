"""Recordings from a pipe that stalls, is cut, or never begins."""

import os
import signal
import subprocess
import threading
import time

import products
from kills import SOON_S
from program import Folder
from recordings import dedisperse, search


def feed(pipe, data, draw):
    """Writes into a pipe in pieces, with stalls, as far as anyone reads."""
    try:
        with os.fdopen(pipe, "wb", buffering=0) as file:
            at = 0
            while at < len(data):
                length = draw.choice((1, 100, 4096, 100_000, 1 << 20))
                file.write(data[at : at + length])
                at += length
                if draw.random() < 0.05:
                    time.sleep(0.02)
    except BrokenPipeError:
        pass


class Streams:
    """Searches and dedispersions of standard input."""

    name = "streams"
    share = 7
    least = 18

    def __init__(self, setting):
        self.setting = setting
        self.data = (setting.recordings / "sky.fil").read_bytes()
        self.header = self.data.index(b"HEADER_END") + len("HEADER_END")
        self.expected = {}
        for job in (search("-"), dedisperse("-")):
            with Folder(setting.scratch) as folder, open(setting.recordings / "sky.fil", "rb") as file:
                setting.program.run(job.command(), folder, stdin=file)
                self.expected[job.verb] = products.content(folder, job)

    def case(self, draw, number):
        """One stream."""
        job = (search("-"), dedisperse("-"))[number % 2]
        kind = ("whole", "cut", "stopped", "named pipe", "silent", "in header")[number // 2 % 6]
        return getattr(self, kind.replace(" ", "_"))(draw, job)

    def judged(self, kind, job, folder, done, faults):
        """A case's outcome."""
        faults = faults + products.faults(self.setting.program, folder, {"pipe"})
        left = [path.name for path in products.hidden(folder) if path not in products.journals(folder)]
        if left:
            faults.append(f"it leaves {', '.join(left)}")
        return f"stream, {kind}: {job.verb}", faults, done

    def started(self, draw, job, folder, data):
        """A run that reads data from a pipe."""
        reading, writing = os.pipe()
        running = self.setting.program.start(job.command(), folder, stdin=reading)
        os.close(reading)
        thread = threading.Thread(target=feed, args=(writing, data, draw), daemon=True)
        thread.start()
        return running

    def whole(self, draw, job):
        """A whole recording in pieces."""
        with Folder(self.setting.scratch) as folder:
            done = self.started(draw, job, folder, self.data).wait()
            faults = done.faults((0,))
            if products.content(folder, job) != self.expected[job.verb]:
                faults.append("the product is not that of the file")
            return self.judged("whole", job, folder, done, faults)

    def cut(self, draw, job):
        """A recording that ends anywhere in its rows."""
        end = self.header + 32 * 100 + draw.randrange(len(self.data) - self.header - 32 * 100)
        with Folder(self.setting.scratch) as folder:
            done = self.started(draw, job, folder, self.data[:end]).wait()
            faults = done.faults((0,))
            document = job.document(folder)
            if document is None:
                faults.append("there is no product")
            elif (end - self.header) % 32 and products.is_complete(document) is not False:
                faults.append("its document does not say that it is not complete")
            return self.judged("cut", job, folder, done, faults)

    def in_header(self, draw, job):
        """A recording that ends in its header."""
        with Folder(self.setting.scratch) as folder:
            done = self.started(draw, job, folder, self.data[: draw.randrange(self.header)]).wait()
            return self.judged("cut header", job, folder, done, done.faults((3,)))

    def stopped(self, draw, job):
        """A signal while the pipe is open and silent."""
        reading, writing = os.pipe()
        end = self.header + 32 * draw.randrange(2000, 3000)
        with Folder(self.setting.scratch) as folder:
            running = self.setting.program.start(job.command(), folder, stdin=reading)
            os.close(reading)
            thread = threading.Thread(target=os.write, args=(writing, self.data[:end]), daemon=True)
            thread.start()
            time.sleep(draw.uniform(0.3, 0.8))
            return self.ended("stopped", draw, job, folder, running, lambda: os.close(writing))

    def silent(self, draw, job):
        """A named pipe that nobody writes."""
        with Folder(self.setting.scratch) as folder:
            os.mkfifo(folder / "pipe")
            named = type(job)(job.verb, ["pipe", *job.arguments[1:]], job.made, job.main, job.documents)
            running = self.setting.program.start(named.command(), folder)
            time.sleep(draw.uniform(0.3, 0.8))
            return self.ended("silent named pipe", draw, named, folder, running, lambda: None)

    def ended(self, kind, draw, job, folder, running, release):
        """Asks a run that waits to stop."""
        sent, at = draw.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), time.monotonic()
        running.signal(sent)
        done = running.wait()
        took_s = time.monotonic() - at
        release()
        faults = done.faults((130,))
        if took_s > SOON_S:
            faults.append(f"it ends {took_s:.1f} s after {sent.name}")
        document = job.document(folder)
        if document and products.is_complete(document) is not False:
            faults.append("its document does not say that it is not complete")
        return self.judged(kind, job, folder, done, faults)

    def named_pipe(self, draw, job):
        """A whole recording through a named pipe."""
        with Folder(self.setting.scratch) as folder:
            os.mkfifo(folder / "pipe")
            named = type(job)(job.verb, ["pipe", *job.arguments[1:]], job.made, job.main, job.documents)
            writer = subprocess.Popen(
                ["/bin/sh", "-c", 'exec cat "$1" > pipe', "sh", self.setting.recordings / "sky.fil"], cwd=folder
            )
            done = self.setting.program.run(named.command(), folder)
            writer.kill()
            writer.wait()
            faults = done.faults((0,))
            if products.content(folder, job) is None:
                faults.append("there is no product")
            return self.judged("named pipe", job, folder, done, faults)
