#!/usr/bin/env bash
# Builds what benches/on_gpu.sh runs on a machine with a GPU and packs it into one folder.
#
#   benches/pack_for_gpu.sh [FOLDER]        default .dev/gpu, which git ignores
#
# PROFILE   cargo's profile (default release; dev builds faster, and kernels are as fast)
# TESTS     which tests of tests/ and cli/tests/: an extended regular expression of their names
# MOST_MIB  the most that the folder may hold (default 50)
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-.dev/gpu}
profile=${PROFILE:-release}
wanted=${TESTS:-^((oracle|properties)_(channelize|clean|correlate|dedisperse|delay|pulse|spiir|corner_turn)|.*cuda.*|.*device.*|tune)$}
most_mib=${MOST_MIB:-50}

cargo build --locked --profile "$profile" --bins
built=target/$profile
if [[ $profile == dev ]]; then built=target/debug; fi
# Only these are built: all tests together take many times as long.
tests=()
for file in tests/*.rs cli/tests/*.rs; do
    name=$(basename "$file" .rs)
    if [[ $name =~ $wanted ]]; then tests+=(--test "$name"); fi
done
if ((${#tests[@]} == 0)); then
    echo "no test is called like $wanted" >&2
    exit 1
fi
# The messages name each executable, one a test; tests of two packages may have one name.
executables=$(cargo test --locked --profile "$profile" --no-run "${tests[@]}" --message-format=json |
    sed -n 's/.*"manifest_path":"\([^"]*\)".*"kind":\["test"\].*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2 \3/p' |
    sed "s|^$PWD/cli/Cargo.toml |cli-|; s|^[^ ]*/Cargo.toml ||" | sort -u)

rm -rf "$folder"
mkdir -p "$folder/pack/tests"
strip -o "$folder/pack/sidereal" "$built/sidereal"
packed=0
while read -r name path; do
    strip -o "$folder/pack/tests/$name" "$path"
    packed=$((packed + 1))
done <<<"$executables"
git describe --always --dirty >"$folder/pack/version"
for file in frb/FRB180417_askap_28.fil gw/{GW150914_4_template,H-H1_LOSC_4_V2-1126259446-32,L-L1_LOSC_4_V2-1126259446-32}.hdf5; do
    if [[ -f ${SIDEREAL_DATA:-../shared/data}/$file ]]; then
        mkdir -p "$folder/pack/data/$(dirname "$file")"
        cp "${SIDEREAL_DATA:-../shared/data}/$file" "$folder/pack/data/$file"
    fi
done
tar -C "$folder/pack" -czf "$folder/binaries.tar.gz" .
rm -rf "$folder/pack"
cp benches/on_gpu.sh benches/exchange_nccl.py "$folder/"

bytes=$(du -sb "$folder" | cut -f1)
echo "$folder: sidereal and $packed test executables, $((bytes >> 20)) MiB"
if ((bytes >> 20 >= most_mib)); then
    echo "that is more than $most_mib MiB: choose fewer with TESTS" >&2
    exit 1
fi
