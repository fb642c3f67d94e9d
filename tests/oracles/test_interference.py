"""Recordings with interference, and the score of a search in them."""

import json
import pathlib
import sys

from conftest import call, sidereal

SCRIPT = pathlib.Path(__file__).parent / "interference.py"


def make(folder, *options):
    call(sys.executable, SCRIPT, folder, "--seed", 3, "--seconds", 12, *options)
    return folder


def test_a_seed_gives_the_same_recordings(tmp_path):
    first, second = (make(tmp_path / name, "--cases", "all_chi2") for name in "ab")
    for name in ("all_chi2.fil", "all_chi2.truth.json", "campaign.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_bursts_of_a_clean_recording_are_found_and_scored(tmp_path):
    folder = make(tmp_path / "a", "--cases", "none,slope")
    outcomes = json.loads(sidereal("bench", "recovery", "--interference", folder, "--json"))
    assert [outcome["case"] for outcome in outcomes] == ["none", "slope"]
    for outcome in outcomes:
        assert outcome["found"] == outcome["injected"] == 3
        assert 0.85 < outcome["snr_ratio"] < 1.15
        assert outcome["false_per_hour"] == 0
