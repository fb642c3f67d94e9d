#!/usr/bin/env bash
# Compares a correlation in one process of two threads with the same in two and in four ranks of one thread each, in
# rounds that take turns. Needs mpirun and a release build with `--features sidereal-cli/mpi`.
#
#   ranks.sh [PROGRAM [ROUNDS]]    default target/release/sidereal, 3 rounds
#
# FOLDER    where recordings are simulated, some GB (default: a temporary folder)
# CASES     cases to run (default: all)
# SECONDS_OF_DATA  length of the recordings, so that a run takes more than 30 s
# The table has the seconds of each run, the median of each kind, and its ratio to one process; the time that mpirun takes
# to start and end as many processes is that of a program without work, and is stated apart.
set -euo pipefail

program=$(realpath "${1:-target/release/sidereal}")
rounds=${2:-3}
work=${FOLDER:-$(mktemp -d)}
mkdir -p "$work"
cd "$work"

launch() { mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$@"; }

# Name, antennas, MHz, seconds of data, options of `correlate`.
cases=(
    "array8     8  8 ${SECONDS_OF_DATA:-120} --channels 1024 --integration 1"
    "array32   32  4 ${SECONDS_OF_DATA:-40} --channels 256 --integration 1"
    "recorded  64  1 ${SECONDS_OF_DATA:-60} --channels 128 --integration 0.5 --nbits 4"
)

now() { date +%s.%N; }

# Prints the seconds of a command.
timed() {
    local begin
    begin=$(now)
    "$@" >run.log 2>&1 || { cat run.log >&2; exit 1; }
    awk -v begin="$begin" -v end="$(now)" 'BEGIN { printf "%.2f", end - begin }'
}

median() { printf '%s\n' "$@" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

for number in 2 4; do
    times=()
    for _ in 1 2 3 4 5; do times+=("$(timed launch "$number" true)"); done
    echo "launch of $number processes: $(median "${times[@]}") s"
done

for line in "${cases[@]}"; do
    read -r name antennas band seconds options <<<"$line"
    if [[ -n ${CASES:-} && " $CASES " != *" $name "* ]]; then continue; fi
    if [[ ! -d $name ]]; then
        "$program" simulate array -q -o "$name" --layout "$antennas,1000,wye" --freq 1420 --bandwidth "$band" --sefd 120 \
            --source 09:18:05.7,-12:05:44,40,Hydra_A --seconds "$seconds"
    fi
    # shellcheck disable=SC2206
    words=(correlate $name/*.dada --antennas "$name/antennas.csv" --device cpu --no-plots --reproducible --no-sync --overwrite -q $options)
    one=() two=() four=()
    # Once before, so that all runs find the recordings in memory.
    timed "$program" "${words[@]}" -o one.uvh5 -t 2 >/dev/null
    for ((round = 0; round < rounds; round++)); do
        one+=("$(timed "$program" "${words[@]}" -o one.uvh5 -t 2)")
        two+=("$(timed launch 2 "$program" "${words[@]}" -o two.uvh5 -t 1)")
        four+=("$(timed launch 4 "$program" "${words[@]}" -o four.uvh5 -t 1)")
    done
    cmp one.uvh5 two.uvh5
    cmp one.uvh5 four.uvh5
    for kind in one two four; do
        declare -n times=$kind
        middle=$(median "${times[@]}")
        if [[ $kind == one ]]; then base=$middle; fi
        awk -v name="$name" -v kind="$kind" -v middle="$middle" -v base="$base" -v all="${times[*]}" \
            'BEGIN { printf "%-10s %-5s %8.2f s  %.3f  (%s)\n", name, kind, middle, middle / base, all }'
    done
    rm -f one.uvh5* two.uvh5* four.uvh5*
done
if [[ -z ${FOLDER:-} ]]; then rm -rf "$work"; fi
