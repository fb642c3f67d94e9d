#!/usr/bin/env bash
# Checks the containers without a container builder: runs the commands of the run stages of packaging/Dockerfile and
# packaging/sidereal.def in chroots made by debootstrap, then searches a simulated burst there as a user without rights.
#
#   packaging/test_container.sh BINARY                        both recipes, CPU, on the Debian that the recipe names
#   packaging/test_container.sh BINARY --variant cuda         with NVRTC and cuFFT (no GPU is needed)
#   packaging/test_container.sh BINARY --debian bullseye      on another Debian
#
# BINARY stands for the result of the build stage. Needs what chroot.sh needs.
set -euo pipefail
called=$PWD
cd "$(dirname "$0")/.."
# shellcheck source=packaging/chroot.sh
source packaging/chroot.sh

binary=${1:-}
[[ -n $binary && $binary != -* ]] || fail "expected the path of a binary"
binary=$(cd "$called" && realpath -m "$binary")
[[ -f $binary && -x $binary ]] || fail "$binary: expected an executable file"
shift
variant=cpu
debian=$(sed -n 's/^ARG DEBIAN=//p' packaging/Dockerfile)
while (($#)); do
    case $1 in
        --variant) variant=${2:?--variant needs cpu or cuda} ;;
        --debian) debian=${2:?--debian needs the name of a release} ;;
        *) fail "$1: expected --variant or --debian" ;;
    esac
    shift 2
done
variables=()
inside() { # command...
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        ${PIP_CERT:+PIP_CERT=/etc/host.crt} "${variables[@]}" chroot "$@"
}

copy() { # sources... target, as COPY and %files do
    local target="$root${*: -1}" source
    for source in "${@:1:$#-1}"; do
        [[ -e $source ]] || fail "$source: a recipe copies it, and it does not exist"
        if [[ $target == */ ]]; then
            install -D -m "$(stat -c %a "$source")" "$source" "$target$(basename "$source")"
        else
            install -D -m "$(stat -c %a "$source")" "$source" "$target"
        fi
    done
}

# Compares what the build stage copies with what cargo needs to see the package.
check_build_stage() { # files...
    local build=$folder/build
    command -v cargo >/dev/null || fail "cargo is not installed"
    rm -rf "$build" && mkdir "$build"
    cp -R "$@" "$build/"
    (cd "$build" && cargo metadata --locked --format-version 1 >/dev/null) || fail "the build stage lacks a file"
    rm -rf "$build"
}

docker() {
    local stage="" line words
    local -a sources=()
    variables=()
    while read -r line; do
        read -ra words <<<"$line"
        case "${words[0]:-#}" in
            FROM) stage=${words[3]} && continue ;;
            COPY) if [[ $stage == build ]]; then sources+=("${words[@]:1:${#words[@]}-2}"); fi ;;&
            *) [[ $stage == run ]] || continue ;;&
            ARG) variables+=("VARIANT=$variant") ;;
            ENV) variables+=("${words[@]:1}") ;;
            WORKDIR) mkdir -p "$root${words[1]}" ;;
            COPY)
                if [[ ${words[1]} == --from=build ]]; then
                    copy "$binary" "${words[3]}"
                else
                    copy "${words[@]:1}"
                fi
                ;;
            RUN) echo "+ ${line#RUN }" && inside "$root" /bin/sh -c "${line#RUN }" ;;
            ENTRYPOINT) [[ $line == 'ENTRYPOINT ["sidereal"]' ]] || fail "Dockerfile: $line" ;;
            \#* | CMD) ;;
            *) fail "Dockerfile: $line: this script does not follow ${words[0]}" ;;
        esac
    done <packaging/Dockerfile
    [[ $stage == run ]] || fail "Dockerfile: expected the stage run at the end, found $stage"
    check_build_stage "${sources[@]}"
}

apptainer() {
    local stage="" section="" line words script
    local -a sources=()
    variables=()
    while IFS= read -r line; do
        read -ra words <<<"$line"
        case "${words[0]:-#}" in
            \#*) continue ;;
            Stage:) stage=${words[1]} section="" && continue ;;
            Bootstrap: | From:) continue ;;
            %*) section=${line#%} && continue ;;
        esac
        case $stage:$section in
            build:files) sources+=("${words[0]}") ;;
            "run:files from build") copy "$binary" "${words[1]}" ;;
            run:files) copy "${words[@]}" ;;
            run:post | run:test)
                script=${line//"{{ VARIANT }}"/$variant}
                echo "+ ${script#"${script%%[! ]*}"}"
                inside "$root" /bin/sh -ec "$script"
                ;;
            run:runscript) [[ ${words[*]} == 'exec sidereal "$@"' ]] || fail "sidereal.def: $line" ;;
            build:post | run:labels | run:arguments) ;;
            *) fail "sidereal.def: $line: this script does not follow %$section" ;;
        esac
    done <packaging/sidereal.def
    check_build_stage "${sources[@]}"
}

# Checks that the CUDA libraries are on the library path and find what they need; both load without a driver.
check_cuda() {
    local library path
    for library in libnvrtc.so libcufft.so; do
        path=$(inside "$root" ldconfig -p | sed -n "s/.*$library\..* => //p" | head -n 1)
        [[ -n $path ]] || fail "$library is not on the library path"
        if inside "$root" /lib64/ld-linux-x86-64.so.2 --list "$path" | grep 'not found'; then
            fail "$path lacks a library"
        fi
        echo "    $path"
    done
}

# Finds a simulated burst as user 1000, who has no home.
check_use() {
    install -d -o 1000 -g 1000 "$root/data"
    variables+=(HOME=/)
    local user=(--userspec=1000:1000 "$root" /bin/sh -ec)
    inside "${user[@]}" 'cd /data
        sidereal --quiet simulate burst sky.fil --telescope askap --dm 500 --duration 10
        sidereal --quiet --device cpu search sky.fil -o found --dm-max 1000'
    check_found "$root/data/found"
    if [[ $variant == cuda ]]; then check_cuda; fi
    echo "    $(du -sh --exclude=proc "$root" | cut -f 1) in all, a burst found by user 1000"
}

recipe() { # function, file
    echo "$2 ($variant) on $debian"
    fresh "$debian"
    "$1"
    check_use
}

recipe docker packaging/Dockerfile
recipe apptainer packaging/sidereal.def
finish 2
