"""Searches for binaries that other programs made, and holds what is found against PyCBC: `injections.py FOLDER`.

Waveforms are LALSimulation's, noise and detectors PyCBC's; no code of the search's makes the data. Each group of injections
has its own recordings of H1, L1 and V1 and its own bank, which `spiir search` places for them. Every event is compared with PyCBC's
matched filter of the winning template on the same data. An injection is found by an event at its time that ranks above all events of
the same noise without injections, with the same bank's options: so an event of noise alone would be taken for one once in the
length of a group's recordings. Time slides of recordings full of injections would not tell, because what is loud in one detector
alone coincides with noise in each of them. Writes FOLDER/injections.json, a table (--markdown) and a
picture (--plot). The same seed gives the same data. 1000 injections take about an hour on two cores.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess

import h5py
import matplotlib
import numpy
from pycbc.detector import Detector
from pycbc.filter import matched_filter, sigma
from pycbc.noise import noise_from_psd
from pycbc.psd import AdvVirgo, aLIGOZeroDetHighPower, interpolate, inverse_spectrum_truncation, welch
from pycbc.types import FrequencySeries, TimeSeries
from pycbc.waveform import get_fd_waveform, get_td_waveform

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

RATE = 2048
START = 1400000000
DETECTORS = {"H1": aLIGOZeroDetHighPower, "L1": aLIGOZeroDetHighPower, "V1": AdvVirgo}
# An event is the injection's when its time lies this close to the true one, in seconds: light's way through the Earth and the
# difference between the peak of one waveform and of another.
WINDOW_S = 0.1
# name: waveform, part of all injections, masses, spins, lowest frequency, spacing and guard in seconds, words of the search.
GROUPS = {
    "IMRPhenomD": dict(
        share=0.3, masses=(10, 60), spins=(-0.85, 0.85), f_low=20, spacing=16, guard=16,
        bank=["--masses", "10:60", "--spins=-0.9:0.9", "--min-match", "0.97"],
    ),
    "SEOBNRv4_opt": dict(
        share=0.3, masses=(10, 60), spins=(-0.85, 0.85), f_low=20, spacing=16, guard=16,
        bank=["--masses", "10:60", "--spins=-0.9:0.9", "--min-match", "0.97"],
    ),
    "SpinTaylorT4": dict(
        share=0.2, masses=(4, 6), spins=(-0.2, 0.2), f_low=30, spacing=16, guard=32,
        bank=["--masses", "4:6", "--spins=-0.2:0.2", "--min-match", "0.97"],
    ),
    "TaylorF2": dict(
        share=0.2, masses=(1.35, 1.45), spins=(0, 0), f_low=40, spacing=16, guard=64,
        bank=["--masses", "1.35:1.45", "--min-match", "0.97"],
    ),
}  # fmt: skip


def waves(approximant, masses, spins, f_low, distance, inclination, phase):
    """Plus and cross, tapered, with the peak of their amplitude at time 0; TaylorF2 with the coalescence there."""
    asked = dict(
        approximant=approximant, mass1=masses[0], mass2=masses[1], spin1z=spins[0], spin2z=spins[1],
        distance=distance, inclination=inclination, coa_phase=phase,
    )  # fmt: skip
    if approximant in ("TaylorF2", "IMRPhenomD"):
        # From well below the band, so that the start of the transform's wave is not within it.
        length = 256 if sum(masses) < 4 else 32
        both = get_fd_waveform(f_lower=0.7 * f_low, f_final=RATE / 2, delta_f=1 / length, **asked)
        both = [half_turned(h, length) for h in both]
    else:
        both = get_td_waveform(f_lower=0.8 * f_low, delta_t=1 / RATE, **asked)
        both = [tapered(h, f_low) for h in both]
    if approximant == "TaylorF2":
        return both
    # Seen from its edge a binary has no cross: both are brought to the amplitude that is seen face on.
    cosine = numpy.cos(inclination)
    amplitude = abs(both[0].numpy() / (1 + cosine**2) * 2 + 1j * both[1].numpy() / cosine)
    at = int(amplitude.argmax())
    for h in both:
        h.start_time = -at / RATE
    return both


def tapered(h, f_low):
    """Rises over the first three cycles, which lie below the band."""
    count = min(int(3 / f_low * RATE), len(h) // 4)
    h.data[:count] *= numpy.sin(numpy.linspace(0, numpy.pi / 2, count)) ** 2
    return h


def half_turned(spectrum, length):
    """The time series of a spectrum, its end 1 s behind time 0, with a taper at its start."""
    spectrum.resize(length * RATE // 2 + 1)
    values = numpy.roll(spectrum.to_timeseries().numpy(), -RATE)
    values[: 2 * RATE] *= numpy.linspace(0, 1, 2 * RATE) ** 2
    return TimeSeries(values, delta_t=1 / RATE, epoch=1 - length)


def draw(random, group):
    low, high = group["masses"]
    masses = numpy.sort(random.uniform(low, high, 2))[::-1]
    return dict(
        masses=masses.tolist(),
        spins=random.uniform(*group["spins"], 2).tolist(),
        inclination=float(numpy.arccos(random.uniform(-1, 1))),
        phase=float(random.uniform(0, 2 * numpy.pi)),
        polarization=float(random.uniform(0, numpy.pi)),
        ra=float(random.uniform(0, 2 * numpy.pi)),
        dec=float(numpy.arcsin(random.uniform(-1, 1))),
        # The network's optimal signal-to-noise ratio: faint ones are most, some are loud.
        network_snr=float(6 * (40 / 6) ** random.uniform()),
    )


def add(strain, h, gps):
    """Adds a series at its times, between samples by a turn of phases."""
    at = (gps + float(h.start_time) - START) * RATE
    first = int(numpy.floor(at))
    padded = numpy.zeros(len(h) + 2 * RATE)
    padded[RATE : RATE + len(h)] = h.numpy()
    frequencies = numpy.fft.rfftfreq(len(padded))
    moved = numpy.fft.irfft(numpy.fft.rfft(padded) * numpy.exp(-2j * numpy.pi * frequencies * (at - first)), len(padded))
    first -= RATE
    begin, end = max(first, 0), min(first + len(moved), len(strain))
    strain[begin:end] += moved[begin - first : end - first]


def make(name, group, count, random, folder):
    """Writes a group's recordings, and returns the injections with what they are in each detector."""
    length = int(count * group["spacing"] + 2 * group["guard"])
    spectra, strain = {}, {}
    for index, (detector, model) in enumerate(DETECTORS.items()):
        spacing = 1 / 16
        spectra[detector] = model(int(RATE / 2 / spacing) + 1, spacing, 8)
        seed = int(random.integers(1 << 31)) + index
        noise = noise_from_psd(length * RATE, 1 / RATE, spectra[detector], seed=seed)
        strain[detector] = noise.numpy().astype(numpy.float64)
    noise = write(folder / f"{name}_noise", strain)
    injections = []
    for index in range(count):
        one = draw(random, group)
        one["gps"] = START + group["guard"] + index * group["spacing"] + float(random.uniform(0.3, 0.7)) * group["spacing"]
        plus, cross = waves(name, one["masses"], one["spins"], group["f_low"], 1.0, one["inclination"], one["phase"])
        seen = {}
        for detector in DETECTORS:
            site = Detector(detector)
            factors = site.antenna_pattern(one["ra"], one["dec"], one["polarization"], one["gps"])
            seen[detector] = (
                TimeSeries(factors[0] * plus.numpy() + factors[1] * cross.numpy(), plus.delta_t, epoch=plus.start_time),
                one["gps"] + site.time_delay_from_earth_center(one["ra"], one["dec"], one["gps"]),
            )
        squares = {}
        for detector, (h, _) in seen.items():
            padded = h.copy()
            padded.resize(1 << int(numpy.ceil(numpy.log2(len(h) + 16 * RATE))))
            psd = interpolate(spectra[detector], padded.delta_f)
            squares[detector] = sigma(padded, psd, group["f_low"], RATE / 2 * 0.9)
        network = numpy.sqrt(sum(square**2 for square in squares.values()))
        one["distance_mpc"] = float(network / one["network_snr"])
        one["chirp_distance_mpc"] = one["distance_mpc"] * (1.2188 / chirp_mass(*one["masses"])) ** (5 / 6)
        one["detectors"] = {
            detector: dict(gps=float(gps), snr=float(squares[detector] / one["distance_mpc"]))
            for detector, (_, gps) in seen.items()
        }
        for detector, (h, gps) in seen.items():
            add(strain[detector], h / one["distance_mpc"], gps)
        injections.append(one)
    return injections, write(folder / name, strain), noise, strain


def write(stem, strain):
    """Writes a file for each detector."""
    files = []
    for detector, values in strain.items():
        path = stem.with_name(f"{stem.name}_{detector}.h5")
        with h5py.File(path, "w") as file:
            series = file.create_dataset("strain", data=values)
            series.attrs.update(x0=float(START), dx=1 / RATE, channel=f"{detector}:STRAIN")
        files.append(path)
    return files


def chirp_mass(m1, m2):
    return (m1 * m2) ** 0.6 / (m1 + m2) ** 0.2


def search(program, group, files, out, words):
    command = [program, "spiir", "search", *files, *group["bank"], "--f-low", group["f_low"], "-o", out, "--overwrite"]
    command += ["--no-plots", "--no-progress", "-q", "--slides", 10, "--max-events", 100000, "--max-xml", 0, *words]
    subprocess.run([str(word) for word in command], check=True)
    return json.loads((out / "events.json").read_text())


def events_of(found):
    return found.get("document", found)["events"]


def theirs(strain, psd, template, gps, f_low):
    """PyCBC's signal-to-noise ratio within 20 ms of a time."""
    window = len(template) * 2 - 2
    first = int(round((gps - START) * RATE)) - window * 3 // 4
    first = min(max(first, 0), len(strain) - window)
    data = TimeSeries(strain[first : first + window], delta_t=1 / RATE, epoch=START + first / RATE)
    psd = interpolate(psd, data.delta_f)
    ratio = abs(matched_filter(template, data, psd=psd, low_frequency_cutoff=f_low, high_frequency_cutoff=RATE / 2 * 0.95))
    at = int(round((gps - float(ratio.start_time)) * RATE))
    reach = int(0.02 * RATE)
    return float(ratio.numpy()[at - reach : at + reach + 1].max())


def template_of(approximant, masses, spins, f_low, window_s):
    """A template in frequency, its peak (TaylorF2: coalescence) at time 0."""
    length = window_s * RATE
    asked = dict(approximant=approximant, mass1=masses[0], mass2=masses[1], spin1z=spins[0], spin2z=spins[1])
    if approximant in ("TaylorF2", "IMRPhenomD"):
        plus, _ = get_fd_waveform(f_lower=f_low * 0.8, delta_f=1 / window_s, **asked)
        plus.resize(length // 2 + 1)
        return plus if approximant == "TaylorF2" else peaked(plus, length)
    plus, _ = get_td_waveform(f_lower=f_low * 0.8, delta_t=1 / RATE, **asked)
    plus = tapered(plus, f_low)
    plus.resize(length)
    # The peak goes to the first sample, as PyCBC's filter expects of a template in time.
    return plus.cyclic_time_shift(plus.start_time).to_frequencyseries()


def peaked(spectrum, length):
    """The same wave with its amplitude's peak at time 0: LALSimulation's IMRPhenomD has it up to 25 ms away."""
    analytic = numpy.fft.ifft(spectrum.numpy(), length)
    at = int(abs(analytic).argmax())
    turns = numpy.arange(len(spectrum)) * at / length
    return FrequencySeries(spectrum.numpy() * numpy.exp(2j * numpy.pi * turns), delta_f=spectrum.delta_f)


def compare(name, group, injections, strain, found):
    """Adds to each injection what was found of it, and what PyCBC finds of the same."""
    window_s = 128 if group["masses"][0] < 3 else 32
    psds = {}
    for detector, values in strain.items():
        series = TimeSeries(values, delta_t=1 / RATE)
        psds[detector] = welch(series, seg_len=4 * RATE, seg_stride=2 * RATE, avg_method="median")
    events = events_of(found)
    times = numpy.array([event["gps"] for event in events])
    taken = set()
    for one in injections:
        near = [int(at) for at in numpy.flatnonzero(abs(times - one["gps"]) < WINDOW_S)]
        one["found"] = None
        if not near:
            continue
        event = events[near[0]]
        taken.update(near)
        binary = event["binary"]
        wins = binary["mass1"], binary["mass2"]
        spins = binary["spin1z"], binary["spin2z"]
        # An inspiral of aligned spins is the same with its orbit's axis free.
        approximant = {"TaylorT4": "SpinTaylorT4"}.get(event["approximant"], event["approximant"])
        won = template_of(approximant, wins, spins, group["f_low"], window_s)
        true = template_of(name, one["masses"], one["spins"], group["f_low"], window_s)
        seen = {}
        for detector, trigger in event["detectors"].items():
            truth = one["detectors"][detector]
            seen[detector] = dict(
                snr=trigger["snr"], gps=trigger["gps"], xi2=trigger["xi2"],
                pycbc=theirs(strain[detector], psds[detector], won, trigger["gps"], group["f_low"]),
                pycbc_true=theirs(strain[detector], psds[detector], true, truth["gps"], group["f_low"]),
                true_snr=truth["snr"], time_error_s=trigger["gps"] - truth["gps"],
            )  # fmt: skip
        one["found"] = dict(
            gps=event["gps"], network_snr=event["network_snr"], ranking=event["ranking"], template=event["template"],
            approximant=event["approximant"], masses=wins, spins=spins, detectors=seen,
        )  # fmt: skip
    others = [event for at, event in enumerate(events) if at not in taken]
    true_times = numpy.array([one["gps"] for one in injections])
    return [
        dict(
            gps=event["gps"], network_snr=event["network_snr"], ranking=event["ranking"],
            template=event["template"], from_injection_s=float(abs(true_times - event["gps"]).min()),
        )
        for event in others
    ]  # fmt: skip


def is_found(one):
    return one["found"] is not None and one["found"]["ranking"] > one["bound"]


def rows(result):
    """The table: a line for each group, and one for each range of the network's ratio."""
    lines = [
        "| waveform | templates | ranking to exceed | injected | of ratio 9 and more | of these found | other events | ratio / PyCBC's, same template | lost to the injected waveform | time error (ms) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    everything = []
    for name, group in result["groups"].items():
        lines.append(row(name, group["templates"], f"{group['bound']:.2f}", group["injections"], len(group["others"])))
        everything += group["injections"]
    lines.append(row("all", "", "", everything, sum(len(group["others"]) for group in result["groups"].values())))
    lines += ["", "| network's ratio | injected | found | median distance (Mpc) |", "|---|---:|---:|---:|"]
    edges = [6, 7, 8, 9, 10, 12, 15, 20, 40]
    for low, high in zip(edges, edges[1:]):
        inside = [one for one in everything if low <= one["network_snr"] < high]
        if inside:
            distance = numpy.median([one["distance_mpc"] for one in inside])
            lines.append(f"| {low} to {high} | {len(inside)} | {sum(map(is_found, inside))} | {distance:.0f} |")
    return "\n".join(lines)


def row(name, templates, bound, injections, others):
    loud = [one for one in injections if one["network_snr"] >= 9]
    seen = [one for one in injections if is_found(one)]
    each = [detector for one in seen for detector in one["found"]["detectors"].values() if detector["true_snr"] >= 6]
    ratio = numpy.array([detector["snr"] / detector["pycbc"] for detector in each])
    lost = numpy.array([1 - detector["pycbc"] / detector["pycbc_true"] for detector in each])
    times = 1e3 * numpy.array([detector["time_error_s"] for detector in each])
    parts = [
        name, templates, bound, len(injections), len(loud), sum(map(is_found, loud)), others,
        f"{ratio.mean():.4f} ± {ratio.std() / numpy.sqrt(len(ratio)):.4f}, rms {ratio.std():.3f}",
        f"{100 * lost.mean():.1f} %", f"{numpy.median(times):+.2f}, rms {times.std():.2f}",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, parts)) + " |"


def plot(result, path):
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for name, group in result["groups"].items():
        color = f"C{list(result['groups']).index(name)}"
        for want, marker in ((True, "o"), (False, "x")):
            some = [one for one in group["injections"] if is_found(one) is want]
            axes[0].plot(
                [chirp_mass(*one["masses"]) for one in some], [one["distance_mpc"] for one in some], marker,
                color=color, ms=4, fillstyle="none", label=name if want else None,
            )  # fmt: skip
        pairs = [
            (detector["pycbc"], detector["snr"]) for one in group["injections"] if is_found(one)
            for detector in one["found"]["detectors"].values()
        ]  # fmt: skip
        if pairs:
            x, y = numpy.array(pairs).T
            axes[1].plot(x, y / x, ".", color=color, ms=3)
    axes[0].set(xscale="log", yscale="log", xlabel="Chirp mass (solar masses)", ylabel="Distance (Mpc)")
    axes[0].set_title("Found (circles) and missed (crosses)")
    axes[0].legend(fontsize=8)
    axes[1].axhline(1, color="0.5", lw=0.8)
    axes[1].set(xscale="log", ylim=(0.8, 1.2), xlabel="SNR of PyCBC's matched filter", ylabel="SNR of sidereal / PyCBC's")
    axes[1].set_title("Same template, same data, each detector")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def run(asked, name):
    """Makes a group's recordings, searches them, and compares what was found."""
    group = GROUPS[name]
    random = numpy.random.default_rng([asked.seed, list(GROUPS).index(name)])
    count = round(group["share"] * asked.count)
    injections, files, noise, strain = make(name, group, count, random, asked.folder)
    print(f"{name}: {count} injections into {len(files)} recordings", flush=True)
    quiet, found = (
        search(asked.sidereal, group, those, asked.folder / f"{name}_{which}", asked.words.split())
        for which, those in (("noise_found", noise), ("found", files))
    )
    bound = max(event["ranking"] for event in events_of(quiet))
    for one in injections:
        one["bound"] = bound
    others = [event for event in compare(name, group, injections, strain, found) if event["ranking"] > bound]
    document = found.get("document", found)
    return dict(
        injections=injections, others=others, bound=bound, templates=document["detectors"][0]["templates"],
        livetime_s=document["livetime_s"],
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--sidereal", default="sidereal", help="the program")
    parser.add_argument("--jobs", type=int, default=1, help="groups at once")
    parser.add_argument("--words", default="", help="further options of `spiir search`")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    names = asked.groups.split(",")
    with concurrent.futures.ProcessPoolExecutor(asked.jobs) as pool:
        groups = dict(zip(names, pool.map(run, [asked] * len(names), names)))
    result = dict(seed=asked.seed, groups=groups)
    (asked.folder / "injections.json").write_text(json.dumps(result, indent=1))
    print(rows(result))
    if asked.markdown:
        asked.markdown.write_text(rows(result) + "\n")
    if asked.plot:
        plot(result, asked.plot)


if __name__ == "__main__":
    main()
