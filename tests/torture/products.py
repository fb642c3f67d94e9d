"""What a product under its final name must be."""

import json

# Files that `sidereal info` reads.
READABLE = (".fil", ".raw", ".dada", ".uvh5", ".npy", ".tim", ".dat", ".hdf5")


def document(path):
    """A JSON document, in which no number may be NaN."""

    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def visible(folder):
    """Files under their final names, in folders too."""
    parts = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in parts if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def hidden(folder):
    """Temporary files and folders, without locks."""
    return [path for path in folder.iterdir() if path.name.startswith(".") and not path.name.endswith(".lock")]


def journals(folder):
    """Unfinished folders that hold final results."""
    return [path for path in hidden(folder) if path.is_dir() and (path / "journal").exists()]


def is_finished(folder):
    """Whether a killed run had finished a set of files, which the next run publishes."""
    return any(any(path.glob(".whole-*")) for path in hidden(folder) if path.is_dir())


def faults(program, folder, own):
    """What is wrong with the files that a run left; `own` are names that were there before."""
    found = []
    for path in visible(folder):
        name = str(path.relative_to(folder))
        if name.split("/")[0] in own:
            continue
        if path.suffix == ".json":
            try:
                document(path)
            except (ValueError, UnicodeDecodeError) as error:
                found.append(f"{name} is no JSON document: {error}")
        elif path.suffix in READABLE:
            read = program.run(["info", "--header", name], folder)
            found += [f"info {name}: {fault}" for fault in read.faults()]
            if read.code != 0:
                found.append(f"info refuses {name}: {read.errors.strip()[:200]}")
    return found


def content(folder, job):
    """What a product holds, without what differs from run to run; None without a product."""
    path = folder / job.main
    if not job.main or not path.exists():
        return None
    if path.suffix != ".json":
        return path.read_bytes()
    kept = document(path)
    for name in ("run", "latency_s", "latency"):
        kept.pop(name, None)
    return json.dumps(kept, sort_keys=True)


def is_complete(path):
    """What a product's document says of it; None where it says nothing."""
    return document(path).get("complete")
