#!/usr/bin/env bash
# Installs the Python package into an environment of its own with pip, and runs its tests and stubtest.
#
#   python/check.sh [PYTHON]
#
# The environment and the build are below target/python. Without the packages of requirements.txt, and without a network
# to install them from, it prints what is missing and checks nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:-$(command -v python3.11 || command -v python3)}
folder=$PWD/target/python
here=$folder/venv/bin/python
if ! cmp -s python/requirements.txt "$folder/installed.txt"; then
    rm -rf "$folder/venv"
    "$python" -m venv "$folder/venv"
    if ! "$here" -m pip install -q --disable-pip-version-check -r python/requirements.txt; then
        echo "skipped: the packages of python/requirements.txt can't be installed"
        exit
    fi
    cp python/requirements.txt "$folder/installed.txt"
fi

cargo fmt --manifest-path python/Cargo.toml --check -- --color never
export CARGO_TARGET_DIR=$folder PYO3_PYTHON=$here
cargo clippy --locked --manifest-path python/Cargo.toml -- -D warnings
# As users install it, but with the profile of the tests.
export MATURIN_PEP517_ARGS="--locked --profile dev" PATH="$folder/venv/bin:$PATH"
"$here" -m pip install --disable-pip-version-check --no-build-isolation --force-reinstall --no-deps ./python
# For other Pythons: the package alone.
mkdir -p "$folder/package"
ln -sfn "$folder/venv/lib/"python3*/site-packages/sidereal_dsp "$folder/package/sidereal_dsp"
# Not in python/, whose sources would be imported in place of what is installed.
cd "$folder"
"$here" -m mypy --strict --config-file "$OLDPWD/python/pyproject.toml" -p sidereal_dsp
tests=("$here" -m pytest -q -c "$OLDPWD/python/pyproject.toml" --rootdir "$OLDPWD/python")
"${tests[@]}" "$OLDPWD/python/tests"
# Arrays on a GPU, on the emulated one, if it can be built here.
if command -v g++ >/dev/null && [[ "$(uname -sm)" == "Linux x86_64" ]]; then
    emulator=$OLDPWD/target/cuda_on_host
    "$OLDPWD/tests/cuda_on_host/build.sh" "$emulator"
    export LD_LIBRARY_PATH=$emulator SIDEREAL_CACHE_DIR=$emulator/cubins SIDEREAL_EMULATED_MEMORY_MIB=2048
    SIDEREAL_REQUIRE=cuda "${tests[@]}" "$OLDPWD/python/tests/test_gpu.py"
else
    echo "skipped: arrays on a GPU, for the emulated one needs g++ on x86-64 Linux"
fi
