"""packaging/release.sh and the files around it, as far as they can be checked without building a release."""

import os
import pathlib
import shutil
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ["cli", "bench", "python"]
# Set by git for hooks; a test's repository is its own.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def git(folder, *words):
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ["git", *names, "-C", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A repository with the files of this one that the script reads, at the tag of their version."""
    folder = tmp_path_factory.mktemp("repository")
    names = ["Cargo.toml", *(f"{part}/Cargo.toml" for part in PARTS), "CHANGELOG.md", "CITATION.cff"]
    for name in [*names, "packaging/release.sh", "packaging/conda/recipe.yaml"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".gitignore").write_text("/target\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "all")
    git(folder, "tag", f"v{version(folder)}")
    return folder


@pytest.fixture
def repository(checkout, tmp_path):
    return pathlib.Path(shutil.copytree(checkout, tmp_path / "repository"))


def version(folder):
    lines = (folder / "Cargo.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def release(folder, *words, path=None):
    """Runs the script; returns its exit code, what it printed, and its errors."""
    environment = {**ENVIRONMENT, "PATH": path or ENVIRONMENT["PATH"]}
    command = ["/bin/bash", str(folder / "packaging" / "release.sh"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_sources_and_checksums_of_the_tag(repository, tmp_path):
    number = version(repository)
    out = tmp_path / "out"
    out.mkdir()
    (out / "of_another_release-0.0.1.tar.gz").write_text("old")
    # What is not committed is no part of the tag.
    (repository / "CHANGELOG.md").write_text("")
    code, _, errors = release(repository, f"v{number}", "--only", "source,checksums", "--out", out)
    assert code == 0, errors
    name = f"sidereal-{number}.tar.gz"
    sums = (out / "SHA256SUMS").read_text().split("\n")
    assert [line.split("  ")[-1] for line in sums] == [name, ""]
    check = ["sha256sum", "--check", "SHA256SUMS"]
    assert subprocess.run(check, cwd=out, capture_output=True).returncode == 0
    with tarfile.open(out / name) as archive:
        packed = archive.extractfile(f"sidereal-{number}/CHANGELOG.md").read()
    assert packed == (ROOT / "CHANGELOG.md").read_bytes()

    before = (out / name).read_bytes()
    assert release(repository, f"v{number}", "--only", "source", "--out", out)[0] == 0
    assert (out / name).read_bytes() == before
    (out / name).write_bytes(before[:-1])
    assert subprocess.run(check, cwd=out, capture_output=True).returncode == 1


def test_a_dry_run_prints_commands_and_makes_nothing(repository, tmp_path):
    out = tmp_path / "out"
    code, printed, errors = release(repository, "HEAD", "--only", "source,checksums", "--dry-run", "--out", out)
    assert code == 0, errors
    assert "+ git archive" in printed and "+ sh -c" in printed
    assert list(out.iterdir()) == []


def test_a_tag_of_another_version_is_refused(repository):
    git(repository, "tag", "v99.0.0")
    code, _, errors = release(repository, "v99.0.0", "--dry-run")
    assert code == 1 and f"v99.0.0: expected the tag v{version(repository)}" in errors


@pytest.mark.parametrize(
    "name",
    ["CITATION.cff", "CHANGELOG.md", "packaging/conda/recipe.yaml", *(f"{part}/Cargo.toml" for part in PARTS)],
)
def test_a_file_with_another_version_is_named(repository, name):
    text = (repository / name).read_text()
    changed = text.replace(version(repository), "99.0.0", 1)
    assert changed != text
    (repository / name).write_text(changed)
    git(repository, "commit", "-qam", "another version")
    code, _, errors = release(repository, "HEAD", "--only", "source", "--dry-run")
    assert code == 1 and f"{name}: expected version {version(repository)}" in errors and "99.0.0" in errors


@pytest.mark.parametrize("part, tool", [("tarball", "cargo-zigbuild"), ("wheel", "maturin")])
def test_a_missing_tool_is_named_before_any_work(repository, tmp_path, part, tool):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in "bash git tar sed sort head tail dirname mkdir rm gzip cargo".split():
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    if not (tools / "cargo").exists():
        pytest.skip("cargo is not installed")
    code, printed, errors = release(repository, "HEAD", "--only", f"source,{part}", path=str(tools))
    assert code == 1 and f"{tool} is not installed: pip install" in errors
    assert "===" not in printed


@pytest.mark.parametrize(
    "words, text",
    [
        (["HEAD", "--only", "everything"], "--only everything: expected one of source crates"),
        (["v0.0.0-none"], "v0.0.0-none: no such tag or commit"),
        ([], "expected a tag"),
        (["--check-symbols", "/nonexistent"], "/nonexistent: no such file"),
    ],
)
def test_wrong_arguments_are_errors(repository, words, text):
    code, _, errors = release(repository, *words)
    assert code == 1 and text in errors


@pytest.fixture
def linked(tmp_path):
    """Compiles a shared library that refers to a function of the C library."""
    if not (shutil.which("gcc") and shutil.which("objdump")):
        pytest.skip("gcc and objdump are not installed")

    def build(source):
        (tmp_path / "a.c").write_text(source)
        command = ["gcc", "-shared", "-fPIC", "-fno-builtin", "-o", "a.so", "a.c", "-lm"]
        subprocess.run(command, cwd=tmp_path, check=True)
        return tmp_path / "a.so"

    return build


def test_old_symbols_pass(repository, linked):
    # Versioned GLIBC_2.2.5 on x86-64.
    code, printed, errors = release(repository, "--check-symbols", linked("double cos(double); double f(double x) { return cos(x); }"))
    assert code == 0, errors
    assert "symbols up to GLIBC_2." in printed


def test_new_symbols_are_named_with_their_version(repository, linked):
    # getrandom came with glibc 2.25.
    source = "long getrandom(void *, unsigned long, unsigned); long f(void *x) { return getrandom(x, 8, 0); }"
    code, _, errors = release(repository, "--check-symbols", linked(source))
    assert code == 1 and "expected symbols up to GLIBC_2.17, found getrandom (2.25)" in errors
