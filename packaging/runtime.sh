#!/bin/sh
# Installs what the program needs at run time into a Debian container, as root:
#
#   runtime.sh cpu     the C library and libgcc, which Debian has
#   runtime.sh cuda    also NVRTC and cuFFT from PyPI, on the library path; the driver comes from the host
set -eu

case ${1:-} in
    cpu) packages= ;;
    cuda) packages="nvidia-cuda-nvrtc==13.0.88 nvidia-cufft==12.0.0.61" ;;
    *)
        echo "error: expected cpu or cuda, found '${1:-}'" >&2
        exit 2
        ;;
esac

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends libgcc-s1 >/dev/null
if [ -n "$packages" ]; then
    apt-get install -qq -y --no-install-recommends python3-pip >/dev/null
    # Without nvJitLink, which cuFFT loads for callbacks alone.
    # shellcheck disable=SC2086 # a list of packages
    python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --only-binary :all: \
        --target /opt/cuda $packages
    apt-get purge -qq -y --autoremove python3-pip >/dev/null
    for library in libnvrtc.so libcufft.so; do
        found=$(find /opt/cuda -name "$library.*" -print -quit)
        if [ -z "$found" ]; then
            echo "error: $packages: $library is missing in /opt/cuda" >&2
            exit 1
        fi
        dirname "$found"
    done | sort -u >/etc/ld.so.conf.d/cuda.conf
    ldconfig
    for library in libnvrtc.so libcufft.so; do
        ldconfig -p | grep -q "$library"
    done
fi
rm -rf /var/lib/apt/lists/*
