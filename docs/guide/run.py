#!/usr/bin/env python3
"""Runs the commands of the guide, and checks its links, options and build.

    run.py --program PATH [CHAPTER ...]    runs chapters, by default all of them
    run.py --text                          checks links, the summary and options
    run.py --book                          builds the book with mdbook and checks its pages

Each chapter's blocks run in order in an empty folder of their own, with `sidereal` on the path:

    ```sh                   is run by `sh -e`; a status other than 0 is a failure
    ```python               is run by this Python
    ```sh,needs=wsclean     is left out and listed, unless --with names what it needs
    ```text,output          has lines that the block before it printed, in this order; `...` stands for any lines

`<!-- picture: NAME = PATTERN -->` after a block names the file that became the picture NAME of the chapter. The file must
be there; --pictures copies it. Needs the standard library only.
"""

import argparse
import glob
import html.parser
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "src"
ROOT = HERE.parents[1]
# Seconds that a block may take.
LIMIT = 240

FENCE = re.compile(r"^(\s*)(```+)\s*([^`]*)$")
LINK = re.compile(r"(!?)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"^<!-- picture: (\S+) = (\S+) -->$")
LANGUAGES = {"sh": ["sh", "-e", "-c"], "python": [sys.executable, "-c"]}


class Failure(Exception):
    """A fault of the guide: its place and what is wrong."""


class Block:
    """A fenced block of a chapter: its line, its language, what it needs, its text."""

    def __init__(self, line, info):
        words = [word.strip() for word in info.split(",")]
        self.line = line
        self.language = words[0]
        self.needs = [word.removeprefix("needs=") for word in words if word.startswith("needs=")]
        self.is_output = "output" in words[1:]
        self.lines = []

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"


def parts(path):
    """Yields a document's blocks, and its other lines as (number, line), without indented code."""
    block, end = None, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if block is not None:
            if fence and fence[2] == end and not fence[3]:
                yield block
                block = None
            else:
                block.lines.append(line)
        elif fence:
            block, end = Block(number, fence[3]), fence[2]
        elif not line.startswith("    "):
            yield number, line
    if block is not None:
        raise Failure(f"{path.relative_to(ROOT)}:{block.line}: the block does not end")


def chapters():
    """Returns the chapters that the summary lists, in its order."""
    return [SOURCE / target for _, target in LINK.findall((SOURCE / "SUMMARY.md").read_text())]


def run_block(block, folder, environment):
    """Runs a block; returns its exit status and what it printed. Ends all processes that it leaves behind."""
    command = [*LANGUAGES[block.language], block.text]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = f"none within {LIMIT} s"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def missing_line(expected, printed):
    """Returns the first line of `expected` that `printed` lacks at its place, or None."""
    rest, is_free = [line.rstrip() for line in printed.splitlines()], True
    for line in expected:
        if line.strip() == "...":
            is_free = True
            continue
        found = [at for at, other in enumerate(rest if is_free else rest[:1]) if other == line.rstrip()]
        if not found:
            return line
        rest, is_free = rest[found[0] + 1 :], False
    return None


class Run:
    """A run of chapters: what passed, and what was left out, by what it needs."""

    def __init__(self, at_hand, copies_pictures):
        self.at_hand, self.copies_pictures = at_hand, copies_pictures
        self.passed, self.left_out, self.rows = 0, {}, []

    def chapter(self, path, folder, environment):
        name = path.relative_to(ROOT)
        printed, has_run = "", False
        for part in parts(path):
            if not isinstance(part, Block):
                picture = PICTURE.match(part[1])
                if picture and has_run:
                    self.picture(f"{name}:{part[0]}", picture[1], folder / picture[2])
                continue
            place = f"{name}:{part.line}"
            if part.is_output:
                line = missing_line(part.lines, printed) if has_run else None
                if line is not None:
                    raise Failure(f"{place}: the block before it did not print '{line}', but\n{printed}")
            elif part.language in LANGUAGES:
                needs = [need for need in part.needs if need not in self.at_hand]
                has_run = not needs
                if needs:
                    self.left_out.setdefault(" and ".join(needs), []).append(f"{path.name}:{part.line}")
                    continue
                status, printed = run_block(part, folder, environment)
                if status != 0:
                    raise Failure(f"{place}: exit status {status}\n{part.text}\n{printed}")
                self.passed += 1

    def picture(self, place, name, pattern):
        found = glob.glob(str(pattern))
        if len(found) != 1:
            raise Failure(f"{place}: {len(found)} files are {pattern.name}, expected 1")
        if self.copies_pictures:
            shutil.copyfile(found[0], SOURCE / name)


def versions(program, at_hand):
    """Yields the names and versions of the program and of the clients at hand."""
    distributions = {"bayestar": "ligo.skymap", "wsclean": None, "gw150914": None, "sidereal_dsp": None}
    yield subprocess.run([program, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    yield f"Python {sys.version.split()[0]}"
    for name in at_hand:
        if (distribution := distributions.get(name, name)) is not None:
            yield f"{distribution} {importlib.metadata.version(distribution)}"
    if "wsclean" in at_hand:
        done = subprocess.run(["wsclean", "--version"], check=False, stdout=subprocess.PIPE, text=True)
        yield re.search(r"WSClean version \S+", done.stdout)[0]


def record(state, program, path):
    """Writes the chapters with the number of blocks that ran, and the blocks that were left out."""
    lines = ["# Commands of the guide", "", time.strftime("Written by `./check guide` on %Y-%m-%d, with")]
    lines += [", ".join(versions(program, state.at_hand)) + "."]
    lines += ["Every block that ran ended with status 0 and printed the text that its chapter quotes.", ""]
    lines += ["| chapter | blocks that ran |", "|---|---:|", *(f"| {name} | {count} |" for name, count in state.rows), ""]
    lines += ["| left out: needs | blocks |", "|---|---|"]
    lines += [f"| {need} | {', '.join(places)} |" for need, places in sorted(state.left_out.items())]
    path.write_text("\n".join(lines) + "\n")


def run(options):
    program = pathlib.Path(options.program).resolve()
    if not os.access(program, os.X_OK):
        raise Failure(f"{program}: no program")
    at_hand = [name for name in options.at_hand.split(",") if name]
    wanted = [pathlib.Path(name).stem for name in options.chapters]
    paths = [path for path in chapters() if not wanted or path.stem in wanted]
    if wanted and len(paths) != len(set(wanted)):
        raise Failure(f"chapters are {', '.join(path.stem for path in chapters())}")
    state, begun = Run(at_hand, options.pictures), time.monotonic()
    with tempfile.TemporaryDirectory() as top:
        programs = pathlib.Path(top) / "bin"
        programs.mkdir()
        (programs / "sidereal").symlink_to(program)
        environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        for path in paths:
            folder = pathlib.Path(top) / path.stem
            folder.mkdir()
            for file in pathlib.Path(options.data).glob("*") if options.data else ():
                (folder / file.name).symlink_to(file.resolve())
            before, started = state.passed, time.monotonic()
            state.chapter(path, folder, environment)
            shutil.rmtree(folder)
            if state.passed > before:
                state.rows.append((path.stem, state.passed - before))
                print(f"{path.stem}: {state.passed - before} blocks, {time.monotonic() - started:.1f} s", flush=True)
    if options.record:
        record(state, program, pathlib.Path(options.record))
    for need, places in sorted(state.left_out.items()):
        print(f"skipped: blocks of the guide that need {need}: {', '.join(places)}")
    print(f"{state.passed} passed in {time.monotonic() - begun:.1f}s")


def anchors(path):
    """Returns the anchors of a document's headings, as GitHub and mdBook name them."""
    found = set()
    for part in parts(path):
        if isinstance(part, tuple) and (heading := re.match(r"#+\s+(.*)", part[1])):
            text = LINK.sub(lambda link: link[0].split("](")[0].lstrip("!["), heading[1]).lower()
            slug = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text).strip())
            number = sum(re.fullmatch(re.escape(slug) + r"(-\d+)?", other) is not None for other in found)
            found.add(f"{slug}-{number}" if slug in found else slug)
    return found


def documents():
    """Returns the documents of the repository, without the built book and the fuzz targets' data."""
    found = [*ROOT.glob("*.md"), *(ROOT / "fuzz").glob("*.md")]
    for folder in ("docs", "tests", "benches"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(path for path in found if HERE / "book" not in path.parents)


def link_faults():
    """Yields the links of all documents whose file or heading is not there."""
    listed = set(chapters())
    for path in documents():
        for part in parts(path):
            if isinstance(part, Block):
                continue
            for _, link in LINK.findall(re.sub(r"`[^`]*`", "", part[1])):
                name, _, anchor = urllib.parse.unquote(link).partition("#")
                if re.match(r"[a-z][a-z0-9+.-]*:", link):
                    continue
                target = (path.parent / name).resolve() if name else path
                place = f"{path.relative_to(ROOT)}:{part[0]}: {link}"
                if not target.exists():
                    yield f"{place}: no such file"
                elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                    yield f"{place}: no such heading"
                elif target.suffix == ".md" and SOURCE in target.parents and target not in listed and target.name != "SUMMARY.md":
                    yield f"{place}: not a chapter of the summary"
    shown = set()
    for path in sorted(SOURCE.glob("*.md")):
        if path.name != "SUMMARY.md" and path not in listed:
            yield f"{path.relative_to(ROOT)}: the summary does not list it"
        shown.update(re.findall(r"!\[[^\]]*\]\(pictures/([^)]+)\)", path.read_text()))
    for path in sorted((SOURCE / "pictures").iterdir()):
        if path.name not in shown:
            yield f"{path.relative_to(ROOT)}: no chapter shows it"


def options_by_verb():
    """Returns the options of each verb, those of all verbs under an empty name."""
    found = {}
    for line in (ROOT / "cli/tests/options.txt").read_text().splitlines():
        entry = re.match(r"((?:[a-z][a-z-]* )*)([-<\[].*)", line)
        if entry:
            found.setdefault(entry[1].strip(), set()).update(re.findall(r"--[a-z][a-z0-9-]*", entry[2]))
    return found


def option_faults():
    """Yields options of commands that no verb has, also in blocks that are not run, and in tables of options.

    The tables of the chapters from_*.md have the options of other programs in their first column, ours in the second.
    """
    verbs = options_by_verb()
    every = set().union(*verbs.values())
    for path in chapters():
        name = path.relative_to(ROOT)
        for part in parts(path):
            if isinstance(part, Block):
                if part.language not in ("sh", "ini", "text", ""):
                    continue
                # plan-jobs takes the words of another command after --.
                for command in part.text.replace("\\\n", " ").replace(" -- ", "\nsidereal ").splitlines():
                    words = re.search(r"(?:^\s*|/usr/bin/|\$\()sidereal ((?:[a-z][a-z-]* ?)+)(.*)", command)
                    if not words:
                        continue
                    verb = next((verb for verb in sorted(verbs, key=len, reverse=True) if (words[1] + " ").startswith(verb + " ")), "")
                    # A value in quotes may be another program's command.
                    for option in re.findall(r"(?<=\s)--[a-z][a-z0-9-]*", re.sub(r'"[^"]*"', "", " " + words[2])):
                        if option not in verbs.get(verb, set()) | verbs[""] | {"--help"}:
                            yield f"{name}:{part.line}: sidereal {verb} has no {option}"
            elif path.name.startswith("from_") and part[1].startswith("|"):
                ours = part[1].split("|")[2]
                for option in re.findall(r"`(--[a-z][a-z0-9-]*)", ours):
                    if option not in every:
                        yield f"{name}:{part[0]}: no verb has {option}"


def client_faults():
    """Yields faults of the page of clients: tests that do not exist, cells without a test or a reason, clients left out.

    Cells of its tables are numbers of tests in the list at its end, and letters of reasons below their table.
    """
    path = SOURCE / "clients.md"
    name, text = path.relative_to(ROOT), path.read_text()
    tests = re.findall(r"^(\d+)\. `([^:`]+)::(\w+)`$", text, re.MULTILINE)
    for number, file, test in tests:
        if not (ROOT / file).is_file() or not re.search(rf"\b(?:def|fn) {test}\(", (ROOT / file).read_text()):
            yield f"{name}: test {number}: {file} has no {test}"
    used = set()
    for section in text.split("\n## "):
        reasons = set(re.findall(r"^- ([a-z]): ", section, re.MULTILINE))
        for line in re.findall(r"^\|(?!-)(.*)\|$", section, re.MULTILINE):
            for cell in map(str.strip, line.split("|")[1:]):
                numbers = re.findall(r"\d+", cell) if re.fullmatch(r"\d[\d, ]*( \([a-z]\))?", cell) else []
                letters = re.findall(r"\b[a-z]\b", cell) if re.fullmatch(r"[a-z]|\d.* \([a-z]\)", cell) else []
                used.update(numbers)
                for letter in set(letters) - reasons:
                    yield f"{name}: {line.split('|')[0].strip()}: no reason {letter}"
    for number in used ^ {number for number, _, _ in tests}:
        yield f"{name}: number {number} is not both in a table and in the list of tests"
    for client in json.loads((ROOT / "tests/oracles/clients.json").read_text()):
        if not re.search(rf"(?<![\w-]){re.escape(client['name'])}(?![\w-])", text, re.IGNORECASE):
            yield f"{name}: {client['name']} of tests/oracles/clients.json is not there"


def check_text():
    faults = [*link_faults(), *option_faults(), *client_faults()]
    if faults:
        raise Failure("\n".join(faults))
    print(f"links of {len(documents())} documents resolve, the options of {len(chapters())} chapters and the tests of clients exist")


class Page(html.parser.HTMLParser):
    """The identifiers and links of a built page."""

    def __init__(self, path):
        super().__init__()
        self.identifiers, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.identifiers.add(value)
            elif name in ("href", "src") and tag in ("a", "img"):
                self.links.append(value or "")


def check_book():
    """Builds the book, whose every relative link must lead to a file and a heading."""
    if not shutil.which("mdbook"):
        print("skipped: mdbook is not installed, so the guide was not built as a book")
        return
    built = HERE / "book"
    done = subprocess.run(["mdbook", "build", HERE], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0 or re.search(r"WARN|ERROR", done.stdout):
        raise Failure(done.stdout)
    pages = {path: Page(path) for path in built.glob("*.html") if path.name not in ("print.html", "404.html")}
    faults = []
    for path, page in pages.items():
        for link in page.links:
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            is_known = target.exists() and (not anchor or target not in pages or anchor in pages[target].identifiers)
            if not re.match(r"[a-z][a-z0-9+.-]*:", link) and not is_known:
                faults.append(f"{path.relative_to(ROOT)}: {link}")
    if faults:
        raise Failure("\n".join(faults))
    print(f"the book has {len(pages)} pages, and their links resolve")


def preprocess():
    """Keeps mdbook from renaming documents outside the guide: writes `.md` in their links with an escaped letter."""
    if sys.argv[2:3] == ["supports"]:
        return

    def outside(link):
        name = link[2].partition("#")[0]
        if re.match(r"[a-z][a-z0-9+.-]*:", link[2]) or not name.endswith(".md") or not name.startswith("../"):
            return link[0]
        return link[0].replace(f"]({name}", f"]({name[:-2]}%6Dd")

    def convert(items):
        for item in items:
            if isinstance(item, dict) and "Chapter" in item:
                chapter = item["Chapter"]
                chapter["content"] = LINK.sub(outside, chapter["content"])
                convert(chapter["sub_items"])

    _, book = json.load(sys.stdin)
    convert(book["items"])
    json.dump(book, sys.stdout)


def main():
    if sys.argv[1:2] == ["--preprocess"]:
        return preprocess()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", metavar="PATH", help="sidereal, to run chapters with")
    parser.add_argument("--with", dest="at_hand", default="", metavar="NAME,...", help="run also what needs these")
    parser.add_argument("--data", metavar="FOLDER", help="link the recordings of this folder into each chapter's")
    parser.add_argument("--record", metavar="FILE", help="write which blocks ran, and with which versions")
    parser.add_argument("--pictures", action="store_true", help="copy the pictures that the chapters make")
    parser.add_argument("--text", action="store_true", help="check links, the summary and options")
    parser.add_argument("--book", action="store_true", help="build the book and check its pages")
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER")
    options = parser.parse_args()
    if not (options.program or options.text or options.book):
        parser.error("one of --program, --text and --book is needed")
    try:
        if options.text:
            check_text()
        if options.book:
            check_book()
        if options.program:
            run(options)
    except Failure as failure:
        print(f"error: {failure}")
        sys.exit(1)


if __name__ == "__main__":
    main()
