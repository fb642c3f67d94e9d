#!/usr/bin/env bash
# Tries the files of a release as a new user would, in systems made by debootstrap that have no compiler:
#
#   packaging/test_release.sh FOLDER                   the tarball in Debian 11, the wheel in Debian 12 with its Python alone
#   packaging/test_release.sh FOLDER --only tarball    one of them: tarball or wheel
#
# FOLDER has the files that packaging/release.sh made. Needs what chroot.sh needs.
set -euo pipefail
called=$PWD
cd "$(dirname "$0")/.."
# shellcheck source=packaging/chroot.sh
source packaging/chroot.sh

dist=$(cd "$called" && realpath -m "${1:-}")
[[ -n ${1:-} && -d $dist ]] || fail "expected the folder of a release, found '${1:-}'"
shift
only=(tarball wheel)
while (($#)); do
    case $1 in
        --only) only=("${2:?--only needs tarball or wheel}") ;;
        *) fail "$1: expected --only" ;;
    esac
    shift 2
done
# Makes a fresh system with these packages and without a compiler.
without_compiler() { # release of Debian, packages...
    fresh "$1"
    if (($# > 1)); then
        inside --userspec=0:0 "export DEBIAN_FRONTEND=noninteractive
            apt-get update -qq && apt-get install -qq -y --no-install-recommends ${*:2} >/dev/null 2>&1"
    fi
    if inside 'command -v cc gcc cargo rustc'; then fail "$1: expected no compiler"; fi
    install -d -o 1000 -g 1000 "$root/data"
}

inside() { # [options of chroot] script, as user 1000 in /data if there is one
    env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/data ${PIP_CERT:+PIP_CERT=/etc/host.crt} \
        chroot --userspec=1000:1000 "${@:1:$#-1}" "$root" /bin/sh -euc "cd /data 2>/dev/null || cd /; ${*: -1}"
}

one() { # pattern of a file's name
    local found
    found=$(find "$dist" -maxdepth 1 -name "$1")
    [[ -n $found && $found != *$'\n'* ]] || fail "$dist: expected one $1, found '${found//$'\n'/ }'"
    echo "$found"
}

# Finds a simulated burst with the command, and checks that it is drawn.
burst() { # the command
    inside "$1 --quiet simulate burst sky.fil --telescope askap --dm 500 --duration 10
        $1 --quiet search sky.fil -o found --dm-max 1000"
    check_found "$root/data/found"
}

try_tarball() {
    local file name begun
    file=$(one 'sidereal-*-x86_64-linux-gnu.tar.gz')
    name=$(basename "$file" .tar.gz)
    without_compiler bullseye
    tar -xzf "$file" -C "$root/opt"
    begun=$SECONDS
    inside "/opt/$name/bin/sidereal --version; /opt/$name/bin/sidereal devices"
    burst "/opt/$name/bin/sidereal"
    inside "/opt/$name/bin/sidereal --quiet demo && test -s sidereal-demo/index.html"
    echo "    $(inside 'ldd --version' | head -n 1): a burst found and drawn, and the demo, in $((SECONDS - begun)) s"
}

# Prints how much longer an import takes than NumPy's: the median of 20 pairs of new processes.
IMPORTS='
import statistics, subprocess, sys, time
def seconds(module):
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import " + module], check=True)
    return time.perf_counter() - begun
names = ("numpy", "sidereal_dsp")
for name in names:
    seconds(name)
pairs = [[seconds(name) for name in names] for _ in range(20)]
numpy, own = (statistics.median(column) for column in zip(*pairs))
print(f"    import: NumPy {numpy:.3f} s, sidereal_dsp {own:.3f} s")
sys.exit(own - numpy > 0.1)
'

THREE_LINES='
import sidereal_dsp as sd
found = sd.search("sky.fil", dm_max=1000)
found.plot().figure.savefig("found.png")
'

try_wheel() {
    local file begun
    file=$(one 'sidereal_dsp-*.whl')
    without_compiler bookworm python3 python3-venv
    install -m 644 "$file" "$root/opt/"
    begun=$SECONDS
    inside "python3 -m venv env && env/bin/pip install --quiet /opt/$(basename "$file") && env/bin/pip list"
    burst env/bin/sidereal
    echo "    the wheel alone: installed, a burst found and drawn by the command in $((SECONDS - begun)) s"
    inside "env/bin/python -c '$IMPORTS'" || fail "expected an import within 0.1 s of NumPy's"
    begun=$SECONDS
    inside "python3 -m venv other && other/bin/pip install --quiet '/opt/$(basename "$file")[all]'"
    inside "MPLBACKEND=agg other/bin/python -c '$THREE_LINES' && test -s found.png"
    echo "    with [all]: installed, a burst found and drawn by three lines of Python in $((SECONDS - begun)) s"
}

for part in "${only[@]}"; do
    [[ $part == tarball || $part == wheel ]] || fail "--only $part: expected tarball or wheel"
    echo "$part"
    "try_$part"
done
finish ${#only[@]}
