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
            # Beside it first, so that a process never loads half of it.
            g++ "${flags[@]}" -Wl,-soname,"$2" "${sources[@]}" -o "$library.$$" -ldl -lpthread
            mv "$library.$$" "$library"
            break
        fi
    done
    ln -sfn "$2" "$to/$1"
}
build libcuda.so libcuda.so.1 fibers.cc barriers.cc block.cc driver_*.cc &
build libnvrtc.so libnvrtc.so.13 nvrtc.cc nvrtc_kernels.cc nvrtc_build.cc &
build libcufft.so libcufft.so.12 cufft.cc &
for job in $(jobs -p); do wait "$job"; done
mkdir -p "$to/include"
cp ../include/* "$to/include/"
