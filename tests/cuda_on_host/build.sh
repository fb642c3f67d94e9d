#!/usr/bin/env bash
# Builds the emulated driver, compiler and transforms into a folder: build.sh DIR [--test]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${1:?folder}"
to=$(cd "$1" && pwd)
cd "$here/src"

flags=(-std=c++17 -O2 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra)
build() { # library, its name with a version, sources...
    local library="$to/$2" source
    local sources=("${@:3}")
    for source in ./*.h ../include/* "${sources[@]}"; do
        if [[ ! "$library" -nt "$source" ]]; then
            # Written to a temporary name first, so that no process loads half of it.
            g++ "${flags[@]}" -Wl,-soname,"$2" "${sources[@]}" -o "$library.$$" -ldl -lpthread
            mv "$library.$$" "$library"
            break
        fi
    done
    ln -sfn "$2" "$to/$1"
}
build libcuda.so libcuda.so.1 fibers.cc barriers.cc background.cc block.cc driver_*.cc &
build libnvrtc.so libnvrtc.so.13 nvrtc.cc nvrtc_kernels.cc nvrtc_build.cc &
build libcufft.so libcufft.so.12 cufft.cc &
for job in $(jobs -p); do wait "$job"; done
mkdir -p "$to/include"
cp ../include/* "$to/include/"

if [[ "${2:-}" == --test ]]; then
    g++ -std=c++17 -O1 -w -Wno-psabi ../selftest/main.cc -o "$to/selftest" -L"$to" -lcuda -lnvrtc
    export LD_LIBRARY_PATH="$to${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    "$to/selftest" "$here"
    SIDEREAL_EMULATED_CAPABILITY=8.0 "$to/selftest" "$here" >/dev/null
    SIDEREAL_EMULATED_LATE=1 SIDEREAL_EMULATED_ORDER=7 "$to/selftest" "$here" >/dev/null
    SIDEREAL_EMULATED_DEVICES=2 "$to/selftest" "$here" >/dev/null
    g++ -std=c++17 -O1 -w ../selftest/transforms.cc -o "$to/transforms" -L"$to" -lcufft -lpthread
    "$to/transforms"
    g++ -std=c++17 -O1 -w ../selftest/devices.cc -o "$to/devices" -L"$to" -lcuda -lnvrtc -lcufft -lpthread
    "$to/devices" "$here" >/dev/null
    export SIDEREAL_EMULATED_DEVICES=2
    "$to/devices" "$here"
    SIDEREAL_EMULATED_LATE=1 SIDEREAL_EMULATED_ORDER=7 "$to/devices" "$here" >/dev/null
    SIDEREAL_EMULATED_NO_PEER=1 SIDEREAL_EMULATED_DEVICES=8 "$to/devices" "$here" >/dev/null
    SIDEREAL_EMULATED_CAPABILITY=9.0,8.0 "$to/devices" "$here" kinds >/dev/null
    SIDEREAL_EMULATED_MEMORY_MIB=4096,1 "$to/devices" "$here" full >/dev/null
    for late in 0 1; do
        SIDEREAL_EMULATED_LATE=$late SIDEREAL_EMULATED_FAIL=cuLaunchKernel:2:719:1 "$to/devices" "$here" lost >/dev/null
    done
    unset SIDEREAL_EMULATED_DEVICES
    # Runs a test program ($1) with a fault ($2); its output must contain $3.
    found() {
        local words
        words=$("$to/$1" "$here" "$2" 2>&1 || true)
        if [[ "$words" != *"$3"* ]]; then
            echo "FAILED: $2 was not found: $words"
            exit 1
        fi
        echo "ok     $2 is found"
    }
    found selftest past_the_end 'at byte 256 of an allocation of 256 bytes'
    found selftest stuck 'waits in named barrier (0x1)'
    found selftest past_shared 'shared memory: byte 1024 of 1024'
    found selftest misaligned 'misaligned'
    found selftest odd_box '8 elements of 1 bytes along a row are not a multiple of 16 bytes'
    found selftest trapped '__trap'
    found selftest forgotten_wait '7 7'
    SIDEREAL_EMULATED_LATE=1 found selftest forgotten_wait '7 cbcbcbcb'
    found selftest host_pointer "not the device's memory"
    export SIDEREAL_EMULATED_DEVICES=2
    found devices no_access 'at byte 0 of an allocation of 256 bytes on device 1, to which device 0 has no access'
    found devices access_ended 'to which device 0 has no access'
    found devices transform 'to which device 0 has no access'
    for fault in copy_in copy_out copy_across fill; do
        found devices $fault 'work of device 0 with memory of device 1'
    done
    found devices other_owner 'work of device 0 with memory of device 1'
    found devices other_rows 'work of device 1 with memory of device 0'
    found devices forgotten_wait 'copied 1'
    SIDEREAL_EMULATED_LATE=1 found devices forgotten_wait 'copied 0'
    SIDEREAL_EMULATED_LATE=1 found devices freed 'memory of device 1 that is freed'
    unset SIDEREAL_EMULATED_DEVICES
    # The comparison reports a copy of unwritten memory, and only that.
    "$here/initialized.sh" "$to/selftest" "$here" written
    if words=$("$here/initialized.sh" "$to/selftest" "$here" unwritten) || [[ "$words" != *'8 bytes at byte 0 of an allocation of 8 bytes'* ]]; then
        echo "FAILED: memory that nobody wrote was not found: $words"
        exit 1
    fi
    echo "ok     memory that nobody wrote is found"
    # Compiled objects are cached, up to a size limit.
    kept=$(mktemp -d)
    for mebibytes in 64 0; do
        TMPDIR=$kept SIDEREAL_EMULATED_CACHE_MIB=$mebibytes "$to/selftest" "$here" >/dev/null
        left[mebibytes]=$(find "$kept" -name '*.so' | wc -l)
        # Without its log, a cache entry is not used, so the next run compiles again.
        find "$kept" -name '*.log' -delete
    done
    rm -r "$kept"
    if ((left[64] == 0 || left[0] != 0)); then
        echo "FAILED: ${left[64]} and ${left[0]} compiled kernels were kept"
        exit 1
    fi
    echo "ok     compiled kernels are kept while there is room"
fi
