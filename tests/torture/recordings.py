"""Small recordings of every kind, and what is done with each."""

import shutil
from dataclasses import dataclass, field


@dataclass
class Job:
    """A verb with its arguments; `made` is what it writes, `document` and `main` are in it or beside it."""

    verb: str
    arguments: list
    made: str = ""
    main: str = ""
    documents: tuple = ()
    reads: tuple = field(default=())

    def command(self, *more):
        """The command line, with `more` at its end."""
        output = ["-o", self.made] if self.made else []
        return [*self.verb.split(), *map(str, self.arguments), *output, *more]

    def document(self, folder):
        """The product's JSON document, if it has one."""
        return next((folder / name for name in self.documents if (folder / name).exists()), None)


TRIALS = ["--dm-min", "0", "--dm-max", "120", "--dm-step", "10"]
FILTER = ["--bank", "bank.h5"]
CORRELATE = ["--channels", "8", "--integration", "0.01", "--no-plots"]
BAND = ["--channels", "32", "--fch1", "1500", "--foff", "-4", "--tsamp", "1e-3"]
ANTENNAS = ["ant00.dada", "ant01.dada", "ant02.dada"]
INJECTIONS = "mass1,mass2,distance,ra,dec,time\n30,30,800,1.2,-0.4,1400000002\n20,25,500,3,0.5,1400000003\n"


def simulate(program, folder, scale=1):
    """Writes recordings whose length grows with `scale`; about 100 kB each for 1."""

    def run(*arguments):
        done = program.run(arguments, folder, limit_s=300)
        if done.code != 0:
            raise SystemExit(f"{' '.join(done.command)} failed: {done.errors}")

    seconds = 3 * scale
    pulsar = "period=0.31,dm=60,width=0.003,snr=14"
    for name, nbits in (("sky.fil", 8), ("floats.fil", 32)):
        run("simulate", "burst", name, *BAND, "--duration", seconds, "--pulsar", pulsar, "--nbits", nbits)
    wide = ["--freq", "1400", "--bandwidth", "4", "--coarse-channels", "4", "--duration", 0.02 * scale]
    run("simulate", "voltages", "v.raw", *wide)
    run("simulate", "voltages", "w.dada", *wide, "--nbits", "16")
    run("simulate", "array", "-o", "array", "--layout", "3,100", "--freq", "1400", "--bandwidth", "1", "--seconds",
        0.04 * scale, "--source", "10,20,500")  # fmt: skip
    for name in ("ant00.dada", "ant01.dada", "ant02.dada", "antennas.csv"):
        shutil.copy(folder / "array" / name, folder / name)
    shutil.rmtree(folder / "array")
    run("simulate", "strain", "s.hdf5", "--rate", "1024", "--length", 16 * scale)
    run("simulate", "burst", "m16.fil", "--channels", "16", "--fch1", "1106", "--foff", "-0.4", "--tsamp", "1e-3",
        "--duration", "1", "--dm", "10", "--time", "0.3")  # fmt: skip
    run("channelize", "v.raw", "-o", "made.fil", "--channels", "8")
    run("correlate", *ANTENNAS, "--antennas", "antennas.csv", "-o", "seen.uvh5", *CORRELATE)
    run("plan", "sky.fil", "--dm-max", "100", "-o", "plan.toml")
    (folder / "injections.csv").write_text(INJECTIONS)
    (folder / "masses.csv").write_text("mass1,mass2\n30,30\n25,20\n")
    run("spiir", "bank", "masses.csv", "-o", "bank.h5", "--rate", "1024", "--f-low", "40", "--match", "0.9")


def search(*inputs, plots=False):
    """A search for bursts."""
    arguments = [*inputs, *TRIALS, *(["--max-plots", "3"] if plots else ["--no-plots"])]
    return Job("search", arguments, "o", "o/candidates.csv", ("o/summary.json",), inputs)


def dedisperse(*inputs, form="npy"):
    """Series of a few trials."""
    main = "o/dedispersed.npy" if form == "npy" else ""
    arguments = [*inputs, *TRIALS, "--format", form]
    return Job("dedisperse", arguments, "o", main, ("o/dedispersed.json",), inputs)


def channelize(*inputs, more=("--channels", "8"), made="o.fil"):
    """A filterbank, or finer voltages."""
    stem = made.rpartition(".")[0]
    return Job("channelize", [*inputs, *more], made, made, (f"{made}.json", f"{stem}.json"), inputs)


def correlate(*inputs, more=("--antennas", "antennas.csv")):
    """Visibilities."""
    return Job("correlate", [*inputs, *more, *CORRELATE], "o.uvh5", "o.uvh5", ("o.uvh5.json", "o.json"), inputs)


def spiir_filter(*inputs, more=()):
    """Ratios of one detector."""
    return Job("spiir filter", [*inputs, *FILTER, *more], "o.h5", "o.h5", ("o.h5.json",), inputs)


def spiir_search(*inputs, more=()):
    """Coincident triggers."""
    arguments = [*inputs, *FILTER, *more, "--no-plots"]
    return Job("spiir search", arguments, "o", "o/events.json", ("o/events.json",), inputs)


def info(*inputs, more=()):
    """What a file says of itself."""
    return Job("info", [*inputs, *more], reads=inputs)
