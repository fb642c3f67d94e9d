"""Early warning of a binary of neutron stars: `early_warning.py FOLDER`.

Plays noise of H1 and L1 with one binary in real time. For each cut a run of `live spiir` searches it with templates that end that
many seconds before the merger. Prints a table: the ratio that each template finds against that of the truncated template
without noise, its error of the merger's time, and when the event's first line with a network's ratio of 8 was written. Needs
the program alone.
"""

import argparse
import json
import pathlib
import subprocess
import time

START = 1400000000
BINARY = dict(m1=1.4, m2=1.4, ra=1.2, dec=-0.4, inclination=0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cuts", default="60,40,30,20,10,5,2,0", help="seconds before the merger")
    parser.add_argument("--distance", type=float, default=70.0, help="Mpc")
    parser.add_argument("--rate", type=int, default=2048)
    parser.add_argument("--f-low", type=float, default=20.0)
    parser.add_argument("--merger", type=float, default=190.4, help="seconds after the start")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sidereal", default="sidereal", help="the program")
    parser.add_argument("--markdown", type=pathlib.Path)
    asked = parser.parse_args()
    folder, merger = asked.folder, START + asked.merger
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "binaries.csv").write_text("mass1,mass2\n1.4,1.4\n")
    cuts = [float(word) for word in asked.cuts.split(",")]
    length = int(asked.merger) + 6

    def words(*given):
        return [asked.sidereal, *(str(word) for word in given), "--no-progress"]

    design = ("--f-low", asked.f_low, "--rate", asked.rate)
    expected = {}
    for cut in cuts:
        made = subprocess.run(
            words("spiir", "bank", folder / "binaries.csv", "-o", folder / "bank.h5", "--overwrite", *design, "--before", cut, "--json"),
            check=True, capture_output=True,
        )  # fmt: skip
        document = json.loads(made.stdout)
        (row,) = document.get("document", document)["templates"]
        expected[cut] = row["horizon_mpc"] * row["match"], row["f_final_hz"]
    frames = folder / "live"
    for detector in ("H1", "L1"):
        (frames / detector).mkdir(parents=True, exist_ok=True)
    searches = {}
    for cut in cuts:
        given = [word for detector in ("H1", "L1") for word in ("--frames", f"{detector}={frames / detector}")]
        given += ["--templates", folder / "binaries.csv", *design, "--before", cut, "--until", START + length, "--threads", 1, "-q"]
        command = words("live", "spiir", *given, "-o", folder / f"found_{cut:g}", "--wait", 2)
        searches[cut] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    time.sleep(5)
    fields = ",".join(f"{name}={value}" for name, value in BINARY.items()) + f",distance={asked.distance},time={merger}"
    play = ("--detectors", "H1,L1", "--rate", asked.rate, "--seed", asked.seed, "--start", START, "--length", length)
    subprocess.run(words("simulate", "strain", "--live", frames, *play, "--f-low", 15, "--inject", fields, "-q"), check=True)
    # A frame comes when its last sample would have been recorded: that of the first one is a second after the start.
    first = min((frames / "H1").iterdir(), key=lambda path: path.name)
    begun = first.stat().st_mtime - 1.0
    for search in searches.values():
        assert search.wait(120) == 0
    truth = json.loads((frames / "truth.json").read_text())
    (event,) = truth.get("document", truth)["events"]
    lines = [
        f"1.4 + 1.4 solar masses at {asked.distance:g} Mpc, network S/N {event['network_snr']:.1f} (H1 {event['detectors']['H1']['snr']:.1f},"
        f" L1 {event['detectors']['L1']['snr']:.1f}), H1 and L1 at {asked.rate} Hz from {asked.f_low:g} Hz on.",
        "",
        "| template ends before the merger (s) | at (Hz) | expected network S/N | found | H1, expected | L1, expected | merger's time, error (ms) | first line above S/N 8, before the merger (s) |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for cut in cuts:
        horizon, frequency = expected[cut]
        ratios = {name: 8 * horizon / seen["effective_distance_mpc"] for name, seen in event["detectors"].items()}
        network = sum(ratio**2 for ratio in ratios.values()) ** 0.5
        found = [json.loads(line) for line in (folder / f"found_{cut:g}" / "events.ndjson").read_text().splitlines()]
        near = [line for line in found if abs(line["gps"] - merger) < 0.5 and line["state"] != "retracted"]
        loud = [line for line in near if line["network_snr"] >= 8]
        best = max(near, key=lambda line: line["network_snr"], default=None)
        if best is None:
            lines.append(f"| {cut:g} | {frequency:.0f} | {network:.1f} | no event | | | | |")
            continue
        pairs = [
            f"{best['detectors'][name]['snr']:.1f}, {ratio:.1f}" if name in best["detectors"] else f"-, {ratio:.1f}"
            for name, ratio in sorted(ratios.items())
        ]
        seen = [seen["gps"] - event["detectors"][name]["gps"] for name, seen in best["detectors"].items()]
        error = sum(seen) / len(seen) * 1e3
        before = f"{begun + asked.merger - loud[0]['written_unix_s']:.2f}" if loud else "never"
        lines.append(f"| {cut:g} | {frequency:.0f} | {network:.1f} | {best['network_snr']:.1f} | {' | '.join(pairs)} | {error:+.1f} | {before} |")
    print("\n".join(lines))
    if asked.markdown:
        asked.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
