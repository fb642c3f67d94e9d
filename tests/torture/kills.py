"""Runs that are ended at any moment, and two runs on one output."""

import json
import signal
import time

import products
from program import LONGEST_S, Folder
from recordings import (
    ANTENNAS, BAND, channelize, correlate, dedisperse, search, spiir_filter, spiir_search, Job,
)  # fmt: skip

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
# A run that is asked to stop has this long; a second is promised, but other cases take the processor too.
SOON_S = 5.0

JOBS = {
    # Many short gulps, so that a killed run has told of some candidates.
    "search": Job(
        "search", ["sky.fil", "--dm-min", "0", "--dm-max", "120", "--dm-step", "1", "--gulp", "500", "--no-plots"],
        "o", "o/candidates.csv", ("o/summary.json",),
    ),
    "search of voltages": Job(
        "search", ["v.raw", "--channels", "8", "--dm-max", "10", "--dm-step", "5", "--no-plots"], "o",
        "o/candidates.csv", ("o/summary.json",),
    ),
    "dedisperse": dedisperse("sky.fil"),
    "dedisperse to .dat": dedisperse("sky.fil", form="dat"),
    "channelize": channelize("v.raw"),
    "channelize to voltages": channelize("v.raw", more=("--channels", "4", "--format", "guppi"), made="o.raw"),
    "correlate": correlate(*ANTENNAS),
    "spiir filter": spiir_filter("s_H1.hdf5"),
    "spiir search": spiir_search("s_H1.hdf5", "s_L1.hdf5"),
    "spiir bank": Job("spiir bank", ["masses.csv", "--rate", "1024", "--f-low", "30"], "o.h5", "o.h5"),
    "simulate burst": Job("simulate burst", [*BAND, "--duration", "60"], "o.fil", "o.fil"),
    "simulate voltages": Job(
        "simulate voltages", ["--freq", "1400", "--bandwidth", "4", "--duration", "0.5"], "o.raw", "o.raw"
    ),
}  # fmt: skip


def final_results(folder):
    """The results that a killed run had told to be final: lines of a journal, the last of which may be cut."""
    found = []
    for leftover in products.journals(folder):
        for line in (leftover / "journal").read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def missing(folder, results):
    """Results of a search that its product does not have."""
    summary = folder / "o" / "summary.json"
    if not summary.exists():
        return results
    have = {(one["dm"], round(one["time_s"], 9)) for one in products.document(summary)["candidates"]}
    wanted = [one for one in results if isinstance(one, dict) and {"dm", "time_s"} <= one.keys()]
    return [one for one in wanted if (one["dm"], round(one["time_s"], 9)) not in have]


class Kills:
    """Every verb, every signal, any moment; then the next run."""

    name = "kills"
    share = 22

    def __init__(self, setting):
        self.setting = setting
        self.least = (1 if setting.quick else 2) * len(SIGNALS) * len(JOBS)
        for job in JOBS.values():
            setting.undisturbed(job)

    def case(self, draw, number):
        """One run that is ended, and the one after it."""
        label, job = list(JOBS.items())[number % len(JOBS)]
        sent = SIGNALS[number // len(JOBS) % len(SIGNALS)]
        program, (usual_s, expected, _) = self.setting.program, self.setting.undisturbed(job)
        with Folder(self.setting.scratch) as folder:
            self.setting.fill(folder, long=True)
            own = {entry.name for entry in folder.iterdir()}
            running = program.start(job.command(), folder)
            time.sleep(draw.uniform(0.0, 1.2 * usual_s))
            at = time.monotonic()
            running.signal(sent)
            done = running.wait()
            faults = self.ended(sent, done, time.monotonic() - at)
            faults += products.faults(program, folder, own)
            faults += self.told(folder, job, done, expected)
            results = final_results(folder)
            self.setting.final_results += len(results)
            faults += self.next(folder, job, expected, own, results, done.code == 0)
            return f"{sent.name}: {label}", [f"{fault} (after {done.seconds:.3f} s)" for fault in faults], done

    @staticmethod
    def ended(sent, done, took_s):
        """What is wrong with how a run ended."""
        if sent == signal.SIGKILL:
            return [] if done.code in (0, -signal.SIGKILL) else done.faults()
        # Before its handlers stand, a run has nothing to keep: the signal ends it.
        early = done.code == -sent and done.seconds < 0.3
        faults = [] if early else done.faults((0, 130))
        if took_s > SOON_S:
            faults.append(f"it ends {took_s:.1f} s after {sent.name}")
        return faults

    @staticmethod
    def told(folder, job, done, expected):
        """What is wrong with a product that stands after a run was ended."""
        found = products.content(folder, job)
        document = job.document(folder)
        complete = products.is_complete(document) if document else None
        if done.code == 0 and job.main:
            if found is None:
                return [f"it exits with 0 without {job.main}"]
            if found != expected:
                return [f"it exits with 0, and {job.main} is not that of an undisturbed run"]
        if done.code == 130 and document and complete is not False and found != expected:
            return [f"an interrupted product is called complete: {complete}"]
        return []

    def next(self, folder, job, expected, own, results, whole):
        """What is wrong with the run after it, which continues it where it can and where it was not whole."""
        program, faults = self.setting.program, []
        finished = products.is_finished(folder)
        if finished:
            # The next run publishes the finished files, and may not replace them.
            faults += self.published(folder, job, expected)
        stands = any(path.name not in own and not path.name.startswith(".") for path in folder.iterdir())
        document = job.document(folder)
        # A product without a document has its final name only when it is complete; its journal is then gone.
        alone = stands and document is None and job.main and not products.journals(folder)
        if alone and products.content(folder, job) != expected:
            faults.append(f"{job.main} has its final name and is not that of an undisturbed run")
        whole = whole or finished or alone or (document is not None and products.is_complete(document) is True)
        again = not whole and program.knows(job.verb, "--resume") and (products.journals(folder) or stands)
        if stands and not again:
            refused = program.run(job.command(), folder, limit_s=60)
            if refused.code not in (1, 2):
                faults.append(f"the next run without --overwrite exits with {refused.code}")
        option = ["--resume"] if again else ["--overwrite"] if stands else []
        done = program.run(job.command(*option), folder, limit_s=120)
        word = " ".join(option) or "as before"
        faults += [f"the next run ({word}): {fault}" for fault in done.faults()]
        if done.code != 0:
            faults.append(f"the next run ({word}) exits with {done.code}: {done.errors.strip()[:300]}")
        elif job.main and products.content(folder, job) != expected:
            faults.append(f"the next run ({word}) does not give what an undisturbed run gives")
        if job.main == "o/candidates.csv":
            lost = missing(folder, results)
            if lost:
                faults.append(f"{len(lost)} of {len(results)} final candidates are lost: {lost[0]}")
        if done.code == 0:
            faults += [f"the next run ({word}) leaves {name}" for name in self.left(folder, done, again)]
        return faults

    def published(self, folder, job, expected):
        """What is wrong with a run without --overwrite after one that was killed when its files were finished."""
        done = self.setting.program.run(job.command(), folder, limit_s=60)
        found = [f"the run after a finished one: {fault}" for fault in done.faults()]
        if done.code not in (1, 2):
            found.append(f"the run after a finished one exits with {done.code}")
        if job.main and products.content(folder, job) != expected:
            found.append("files that a killed run had finished are not published whole")
        return found

    @staticmethod
    def left(folder, done, again):
        """What may not be left: only what holds final results that no run continues stays, and it is named."""
        kept = [] if again else products.journals(folder)
        names = [path.name for path in folder.iterdir() if path.name.startswith(".") and path not in kept]
        return names + [f"{path.name} and does not name it" for path in kept if path.name not in done.errors]


PAIRS = {
    "channelize": (channelize("v.raw"), channelize("v.raw", more=("--channels", "16", "--taps", "4"))),
    "correlate": (correlate(*ANTENNAS), correlate(*ANTENNAS[:2], more=("--antennas", "antennas.csv", "--missing", "flag"))),
    "search": (search("sky.fil"), search("floats.fil")),
    "dedisperse": (dedisperse("sky.fil"), dedisperse("floats.fil")),
    "spiir filter": (spiir_filter("s_H1.hdf5"), spiir_filter("s_L1.hdf5")),
}  # fmt: skip


class Twins:
    """Two runs that write one output at once."""

    name = "twins"
    share = 6
    least = 2 * len(PAIRS)

    def __init__(self, setting):
        self.setting = setting
        for job in (job for jobs in PAIRS.values() for job in jobs):
            setting.undisturbed(job)

    def case(self, draw, number):
        """Both at nearly the same time, with and without leave to replace."""
        label, jobs = list(PAIRS.items())[number % len(PAIRS)]
        option = ["--overwrite"] if number // len(PAIRS) % 2 else []
        program = self.setting.program
        with Folder(self.setting.scratch) as folder:
            self.setting.fill(folder, long=True)
            own = {entry.name for entry in folder.iterdir()}
            runs = []
            for job in jobs:
                runs.append(program.start(job.command(*option), folder))
                time.sleep(draw.uniform(0.0, 0.5 * self.setting.undisturbed(jobs[0])[0]))
            ends = [running.wait(2 * LONGEST_S) for running in runs]
            faults = [fault for done in ends for fault in done.faults()]
            good = [which for which, done in enumerate(ends) if done.code == 0]
            if not good:
                faults.append("neither run succeeds: " + ends[0].errors.strip()[:200])
            if len(good) == 2 and not option:
                faults.append("both runs succeed, and one product is gone")
            found = products.content(folder, jobs[0])
            if good and found not in [self.setting.undisturbed(jobs[which])[1] for which in good]:
                faults.append(f"{jobs[0].main} is that of no run that succeeded")
            faults += products.faults(program, folder, own)
            left = [path.name for path in products.hidden(folder)]
            if left:
                faults.append(f"they leave {', '.join(left)}")
            return f"two runs: {label}", faults, ends[0]
