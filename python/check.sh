#!/usr/bin/env bash
# Builds the wheel of the Python package, installs it into an environment of its own, and runs its tests and stubtest.
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
rm -rf "$folder/wheels"
"$here" -m maturin build -q --locked --profile dev --manifest-path python/Cargo.toml -i "$here" -o "$folder/wheels"
"$here" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps "$folder"/wheels/*.whl
# Not in python/, whose sources would be imported in place of what is installed.
cd "$folder"
"$here" -m mypy --strict --config-file "$OLDPWD/python/pyproject.toml" -p sidereal_dsp
"$here" -m pytest -q -c "$OLDPWD/python/pyproject.toml" --rootdir "$OLDPWD/python" "$OLDPWD/python/tests"
