#!/usr/bin/env bash
# Compares a correlation in one process of two threads with the same in two and in four ranks of one thread each, in
# rounds that take turns. Needs mpirun and a release build with `--features sidereal-cli/mpi`.
#
#   ranks.sh [PROGRAM [ROUNDS]]    default target/release/sidereal, 3 rounds
#
# FOLDER    where recordings are simulated, about 4 GB (default: a temporary folder)
# CASES     names of the cases to run (default: all)
#
# Recordings of four antennas are those of all antennas of a case, so that they stay in memory. The table has the median
# seconds of each kind of run, its ratio to one process, and the seconds of each run. The time that mpirun takes to start
# and end as many processes without work is stated apart.
set -euo pipefail

program=$(realpath "${1:-target/release/sidereal}")
rounds=${2:-3}
work=${FOLDER:-$(mktemp -d)}
mkdir -p "$work"
cd "$work"
if [[ -z ${FOLDER:-} ]]; then trap 'rm -rf "$work"' EXIT; fi

# Name, recordings (MHz and seconds of data), antennas, options of `correlate`.
cases=(
    "spectra  8:75 16  --channels 1024 --integration 1"
    "tracked  8:45 8   --channels 256 --integration 2 --taps 16 --phase-centre 139.5,-12.1"
    "products 1:90 64  --channels 128 --integration 1"
    "floats   1:140 32  --channels 256 --integration 1 --nbits 32"
)

launch() { mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$@"; }

# Prints the seconds of a command.
timed() {
    local begin=$EPOCHREALTIME
    if ! "$@" >run.log 2>&1; then
        cat run.log >&2
        exit 1
    fi
    awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN { printf "%.2f", end - begin }'
}

median() { printf '%s\n' "$@" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# Writes the positions of some antennas along a line.
positions() {
    printf '# longitude_deg=21.4439\n# latitude_deg=-30.713\n# height_m=1053\nname,east,north,up\n'
    local antenna
    for ((antenna = 0; antenna < $1; antenna++)); do echo "a$antenna,$((antenna * 17)),$((antenna * antenna)),0"; done
}

for number in 2 4; do
    times=()
    for _ in 1 2 3 4 5; do times+=("$(timed launch "$number" true)"); done
    echo "launch of $number processes: $(median "${times[@]}") s"
done

for line in "${cases[@]}"; do
    read -r name size antennas options <<<"$line"
    if [[ -n ${CASES:-} && " $CASES " != *" $name "* ]]; then continue; fi
    recordings=recordings-${size/:/-}
    if [[ ! -d $recordings ]]; then
        "$program" simulate array -q -o "$recordings" --layout 4,1000,wye --freq 1420 --bandwidth "${size%:*}" --sefd 120 \
            --source 09:18:05.7,-12:05:44,40,Hydra_A --seconds "${size#*:}"
    fi
    positions "$antennas" >"$name.csv"
    files=("$recordings"/*.dada)
    read -ra words <<<"--antennas $name.csv --device cpu --no-plots --reproducible --no-sync --overwrite -q $options"
    for ((antenna = 0; antenna < antennas; antenna++)); do words+=("a$antenna=${files[antenna % 4]}"); done
    one=() two=() four=()
    # A run before, so that all find the recordings in memory.
    timed "$program" correlate "${words[@]}" -o one.uvh5 -t 2 >/dev/null
    for ((round = 0; round < rounds; round++)); do
        one+=("$(timed "$program" correlate "${words[@]}" -o one.uvh5 -t 2)")
        two+=("$(timed launch 2 "$program" correlate "${words[@]}" -o two.uvh5 -t 1)")
        four+=("$(timed launch 4 "$program" correlate "${words[@]}" -o four.uvh5 -t 1)")
    done
    cmp one.uvh5 two.uvh5
    cmp one.uvh5 four.uvh5
    base=$(median "${one[@]}")
    for kind in one two four; do
        declare -n own=$kind
        awk -v name="$name" -v kind="$kind" -v middle="$(median "${own[@]}")" -v base="$base" -v all="${own[*]}" \
            'BEGIN { printf "%-9s %-5s %8.2f s  %.3f  (%s)\n", name, kind, middle, middle / base, all }'
    done
    rm -f one.uvh5* two.uvh5* four.uvh5*
done
