"""Finds wsclean, Debian's imager, or unpacks its packages below target/oracles, without being root.

What the system has is used; else apt-get, with lists and a cache of its own, says which packages are
missing, they are downloaded, and dpkg-deb unpacks them into a folder. Nothing of the system changes. Where
there is no apt-get, or Debian has no wsclean, it is reported as not installed, and its tests are skipped.
"""

import pathlib
import shlex
import shutil
import subprocess

STATUS = "/var/lib/dpkg/status"


def words_of(*command, **options):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
        raise OSError(f"{command[0]}: {last}")
    return done.stdout


def unpack(folder, status):
    """Fills the folder with what the system lacks; its program is `run`."""
    shutil.rmtree(folder, ignore_errors=True)
    packages, root = folder / "packages", folder / "root"
    for one in (packages, root, folder / "state/lists/partial", folder / "cache/archives/partial"):
        one.mkdir(parents=True)
    places = {"Dir::State": folder / "state", "Dir::Cache": folder / "cache"}
    places |= {"Dir::State::status": status, "APT::Sandbox::User": "root"}
    apt = ["apt-get", "-q"]
    for name, value in places.items():
        apt += ["-o", f"{name}={value}"]
    words_of(*apt, "update")
    plan = words_of(*apt, "install", "--simulate", "--no-install-recommends", "wsclean")
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    words_of(*apt, "download", *names, cwd=packages)
    for package in packages.glob("*.deb"):
        words_of("dpkg-deb", "-x", str(package), str(root))
    libraries = sorted({str(found.parent) for found in root.rglob("*.so*")})
    path = shlex.quote(":".join(libraries))
    program = shlex.quote(str(root / "usr/bin/wsclean"))
    run = folder / "run"
    run.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={path} exec {program} "$@"\n')
    run.chmod(0o755)
    for one in ("packages", "state", "cache"):
        shutil.rmtree(folder / one)


def version(program):
    for line in words_of(program, "--version").splitlines():
        if line.startswith("WSClean version"):
            return line.split()[2]
    raise OSError(f"{program} does not say its version")


def prepare(oracles):
    """(version, fault): what became of wsclean; a program of our own is `wsclean/run` in the folder."""
    folder = pathlib.Path(oracles) / "wsclean"
    run = folder / "run"
    try:
        if not run.exists() and (system := shutil.which("wsclean")):
            return version(system), None
        if not run.exists():
            unpack(folder, STATUS)
        return version(run), None
    except OSError as error:
        run.unlink(missing_ok=True)
        return "of Debian", str(error)
