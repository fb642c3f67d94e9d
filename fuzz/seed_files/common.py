"""Where seeds go."""

import pathlib

SEEDS = pathlib.Path(__file__).resolve().parents[1] / "seeds"


def save(target, name, content):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
