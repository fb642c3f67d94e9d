#!/usr/bin/env bash
# Runs the tests and benches on a machine with a GPU, from binaries that benches/pack_for_gpu.sh packed; builds
# nothing. Needs the NVIDIA driver and NVRTC, cuFFT for some plans, compute-sanitizer for its part.
#
#   on_gpu.sh FOLDER [PART...]     parts: oracles benches sanitizer tune demo scale (default: all but tune, demo and scale)
#
# OUT          where logs and tables go (default FOLDER/out); at most 8 files
# ORACLES_S, SANITIZER_S, BENCHES_S, TUNE_S, DEMO_S, SCALE_S
#              seconds for each part (default 150, 120, 200, 90, 120, 500); one test or bench may use half of them. The
#              script stops and reports anything longer
# TOOLS        tools of compute-sanitizer (default "memcheck racecheck initcheck")
# BENCHES      names of benchmarks (default "device channelize dedisperse telescopes pulse correlate spiir")
# BENCH_OPTIONS, TUNE_COMMANDS, SCALE_COMMANDS
#              more options for every bench; commands to tune, and options of `bench scale`, one set per line
set -uo pipefail

folder=$(cd "${1:?usage: on_gpu.sh FOLDER [PART...]}" && pwd)
shift
parts=("$@")
if ((${#parts[@]} == 0)); then parts=(oracles benches sanitizer); fi
out=${OUT:-$folder/out}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "$folder/binaries.tar.gz" || exit 1
sidereal=$work/sidereal
rows=()
failed=0
# Commands to tune, including those with candidates that models never choose.
TUNED='channelize --channels 1024 --taps 8
dedisperse --fch1 1550 --foff -0.29296875 --channels 1024 --tsamp 64e-6 --ranges 0:150:0.1
correlate --antennas 70 --channels 936
correlate --antennas 256 --channels 256 --nbits 4
spiir --filters 512
spiir --filters 512 --chirps
spiir --filters 386 --rates 4 --chirps'

# Runs of `bench scale`: the same data, data that grow with the GPUs, and one process a GPU.
SCALED='--over gpus
--over gpus --weak
--over processes'

# Folders of the CUDA libraries from PyPI or from the toolkit.
libraries() {
    local place
    for place in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu; do
        if compgen -G "$place/libnvrtc.so*" >/dev/null; then echo "$place"; fi
    done
    python3 - <<'END' 2>/dev/null
import glob, os, site, sys
for base in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
    for name in ("libnvrtc.so.1[23]", "libcufft.so.1[12]"):
        for path in glob.glob(os.path.join(base, "nvidia", "*", "lib", name)):
            print(os.path.dirname(path))
END
}
found=$(libraries | sort -u | paste -sd: -)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found"
# Compiles kernels once for all parts, and leaves the user's cache alone.
export SIDEREAL_CACHE_DIR="$work/cache"
export SIDEREAL_REQUIRE=cuda
# Tests of the command line run this binary; real recordings are packed only if the packing machine had them.
export SIDEREAL_PROGRAM="$sidereal"
if [[ -d $work/data ]]; then export SIDEREAL_DATA="$work/data"; fi

row() { # part, what, outcome, seconds
    rows+=("$(printf '%-10s %-34s %6s s  %s' "$1" "$2" "$4" "$3")")
    if [[ $3 != ok* && $3 != skipped* ]]; then failed=$((failed + 1)); fi
}

outcome() { # status
    case $1 in
        0) echo ok ;;
        124 | 137) echo "ENDED: out of time" ;;
        125) echo "NOT RUN: no time left" ;;
        *) echo "FAILED: code $1" ;;
    esac
}

clocks() {
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_event_reasons.active \
        --format=csv,noheader 2>&1 | head -n 4
}

machine() {
    date -u +%Y-%m-%dT%H:%M:%SZ
    echo "sidereal $(cat "$work/version")"
    uname -srm
    grep -m 1 'model name' /proc/cpuinfo
    nvidia-smi -q -d CLOCK,PERFORMANCE 2>&1 | head -n 60
    timeout 60 "$sidereal" devices --measure 2>&1
}

# Runs a command into $work/log within the rest of its part's time, and within half of the part.
limited() { # end, the part's seconds, command...
    local left=$(($1 - SECONDS)) most=$((($2 + 1) / 2))
    if ((left <= 0)); then return 125; fi
    timeout --kill-after=10 $((left < most ? left : most)) "${@:3}" >"$work/log" 2>&1
}

oracles() {
    local most=${ORACLES_S:-150} end=$((SECONDS + ${ORACLES_S:-150})) test name begun status passed
    for test in "$work"/tests/*; do
        name=$(basename "$test") begun=$SECONDS status=0
        echo "=== $name" >>"$out/oracles.log"
        : >"$work/log"
        limited $end $most "$test" || status=$?
        cat "$work/log" >>"$out/oracles.log"
        passed=$(grep -oE '^test result:.* [0-9]+ passed; [0-9]+ failed' "$work/log" | grep -oE '[0-9]+ passed; [0-9]+ failed')
        row oracles "$name" "$(outcome $status) ${passed:-}" $((SECONDS - begun))
    done
}

sanitizer() {
    local most=${SANITIZER_S:-120} end=$((SECONDS + ${SANITIZER_S:-120})) tool test name begun status checker faults subset
    checker=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -n 1)
    if [[ -z $checker ]]; then
        row sanitizer compute-sanitizer "skipped: it is not installed" 0
        return
    fi
    for tool in ${TOOLS:-memcheck racecheck initcheck}; do
        for test in "$work"/tests/*; do
            for subset in $("$test" --list 2>/dev/null | sed -n 's/^\(fixed_subset[^:]*\): test$/\1/p'); do
                name=$(basename "$test") begun=$SECONDS status=0
                echo "=== $tool $name $subset" >>"$out/sanitizer.log"
                : >"$work/log"
                limited $end $most "$checker" --tool "$tool" --error-exitcode 9 \
                    "$test" "$subset" --exact --test-threads 1 || status=$?
                tail -c 400000 "$work/log" >>"$out/sanitizer.log"
                faults=$(grep -oE 'ERROR SUMMARY: [0-9]+ errors?|RACECHECK SUMMARY: [0-9]+ hazards?' "$work/log" | tail -n 1)
                row sanitizer "$tool $subset" "$(outcome $status) ${faults:-}" $((SECONDS - begun))
            done
        done
    done
}

benches() {
    local most=${BENCHES_S:-200} end=$((SECONDS + ${BENCHES_S:-200})) bench begun status
    for bench in ${BENCHES:-device channelize dedisperse telescopes pulse correlate spiir}; do
        begun=$SECONDS status=0
        : >"$work/log"
        { echo "=== $bench"; echo "before: $(clocks)"; } >>"$out/benches.log"
        # shellcheck disable=SC2086
        limited $end $most "$sidereal" bench "$bench" --device cuda ${BENCH_OPTIONS:-} \
            --csv "$work/$bench.csv" || status=$?
        { cat "$work/log"; echo "after: $(clocks)"; } >>"$out/benches.log"
        if [[ -s $work/$bench.csv ]]; then cp "$work/$bench.csv" "$out/$bench.csv"; fi
        row benches "$bench" "$(outcome $status)" $((SECONDS - begun))
    done
}

tune() {
    local most=${TUNE_S:-90} end=$((SECONDS + ${TUNE_S:-90})) command begun status
    local commands=${TUNE_COMMANDS:-$TUNED}
    while read -r command; do
        begun=$SECONDS status=0
        : >"$work/log"
        # shellcheck disable=SC2086
        limited $end $most "$sidereal" tune $command --device cuda || status=$?
        { echo "=== $command"; cat "$work/log"; } >>"$out/benches.log"
        row tune "${command:0:34}" "$(outcome $status)" $((SECONDS - begun))
    done <<<"$commands"
}

# Tests and measures several GPUs of a host; needs two at least. NCCL's exchange, by PyTorch, is the roof of that of a
# corner turn; `bench scale` prints ours.
scale() {
    local most=${SCALE_S:-500} end=$((SECONDS + ${SCALE_S:-500})) gpus begun status test options number=0
    gpus=$(nvidia-smi --list-gpus | wc -l)
    if ((gpus < 2)); then
        row scale "$gpus GPU" "skipped: it takes two at least" 0
        return
    fi
    for test in "$work"/tests/*; do
        if ! "$test" --list 2>/dev/null | grep -q several_gpus; then continue; fi
        begun=$SECONDS status=0
        : >"$work/log"
        SIDEREAL_REQUIRE=cuda,gpus limited $end $most "$test" several_gpus || status=$?
        { echo "=== $(basename "$test")"; cat "$work/log"; } >>"$out/benches.log"
        row scale "$(basename "$test")" "$(outcome $status)" $((SECONDS - begun))
    done
    begun=$SECONDS status=0
    : >"$work/log"
    limited $end $most env NCCL_NVLS_ENABLE=0 python3 "$folder/exchange_nccl.py" "$gpus" || status=$?
    { echo "=== exchange by NCCL"; cat "$work/log"; } >>"$out/benches.log"
    row scale "exchange by NCCL" "$(outcome $status)" $((SECONDS - begun))
    begun=$SECONDS status=0
    : >"$work/log"
    limited $end $most "$sidereal" bench gpus --device cuda --csv "$work/gpus.csv" --overwrite || status=$?
    { echo "=== bench gpus"; echo "before: $(clocks)"; cat "$work/log"; } >>"$out/benches.log"
    if [[ -s $work/gpus.csv ]]; then mv "$work/gpus.csv" "$out/gpus.csv"; fi
    row scale "bench gpus" "$(outcome $status)" $((SECONDS - begun))
    while read -r options; do
        begun=$SECONDS status=0 number=$((number + 1))
        : >"$work/log"
        # shellcheck disable=SC2086
        limited $end $most "$sidereal" bench scale --device cuda $options --csv "$work/scale.csv" --overwrite || status=$?
        { echo "=== bench scale $options"; echo "before: $(clocks)"; cat "$work/log"; } >>"$out/benches.log"
        if [[ -s $work/scale.csv ]]; then mv "$work/scale.csv" "$out/scale$number.csv"; fi
        row scale "${options:0:34}" "$(outcome $status)" $((SECONDS - begun))
    done <<<"${SCALE_COMMANDS:-$SCALED}"
}

# Compares the demo on the GPU and on the host: the detections must agree except for rounding.
demo() {
    local most=${DEMO_S:-120} end=$((SECONDS + ${DEMO_S:-120})) device begun status
    for device in cpu cuda; do
        begun=$SECONDS status=0
        : >"$work/log"
        limited $end $most "$sidereal" demo --device $device --json -o "$work/demo-$device" || status=$?
        { echo "=== demo on $device"; cat "$work/log"; } >>"$out/benches.log"
        mv "$work/log" "$work/demo-$device.json"
        row demo "on $device" "$(outcome $status)" $((SECONDS - begun))
    done
    status=0
    same_documents "$work"/demo-{cpu,cuda}.json >"$work/log" 2>&1 || status=$?
    cat "$work/log" >>"$out/benches.log"
    row demo "same on both" "$(outcome $status) $(tail -n 1 "$work/log")" 0
}

# Compares two JSON documents without their times and machines.
same_documents() {
    python3 - "$@" <<'END'
import json, sys

PASSED_OVER = {"elapsed_s", "realtime_factor", "folder", "page", "device"}

def leaves(value, path=""):
    if isinstance(value, dict):
        for key in value.keys() - PASSED_OVER:
            yield from leaves(value[key], f"{path}/{key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}/{place}")
    else:
        yield path, value

documents = [dict(leaves(json.load(open(name)))) for name in sys.argv[1:]]
one, other = documents
bad = sorted(one.keys() ^ other.keys())
worst = (0.0, "")
for path in one.keys() & other.keys():
    a, b = one[path], other[path]
    if isinstance(a, float) and isinstance(b, float):
        off = abs(a - b) / max(abs(a), abs(b), 1e-30)
        worst = max(worst, (off, path))
        if off > 1e-4:
            bad.append(f"{path}: {a} and {b}")
    elif a != b:
        bad.append(f"{path}: {a} and {b}")
print("\n".join(bad))
print(f"{len(one)} values, {len(bad)} differ; the largest rounding is {worst[0]:.1e}, of {worst[1]}")
sys.exit(bool(bad))
END
}

rm -f "$out"/{oracles.log,sanitizer.log,benches.log,table.txt}
machine >"$work/machine" 2>&1
for part in "${parts[@]}"; do
    case $part in
        oracles | sanitizer | benches | tune | demo | scale) "$part" ;;
        *) row "$part" "" "FAILED: no such part" 0 ;;
    esac
done

{
    cat "$work/machine"
    if [[ -s $out/benches.log ]]; then cat "$out/benches.log"; fi
    printf '%s\n' "${rows[@]}"
    echo "$failed failed, all of it $SECONDS s"
} >"$out/table.txt"
cat "$out/table.txt"
((failed == 0))
