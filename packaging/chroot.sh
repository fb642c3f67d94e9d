# Systems made by debootstrap, in which the tests of this folder run; they source it in the root of the repository.
#
# Needs root, debootstrap and a network. Systems are kept in target/container; $SIDEREAL_MIRROR is the mirror that
# debootstrap takes.
# shellcheck shell=bash

fail() { echo "error: $*" >&2 && exit 1; }

((EUID == 0)) || fail "chroot and debootstrap need root"
command -v debootstrap >/dev/null || fail "debootstrap is not installed"

folder=$PWD/target/container
root=$folder/root
mkdir -p "$folder"

leave() { if mountpoint -q "$root/proc"; then umount "$root/proc"; fi; }
trap leave EXIT

# Makes a fresh system in $root, with the host's names and, where pip has certificates of its own, these.
fresh() { # release of Debian
    local base=$folder/$1
    if [[ ! -e $base/complete ]]; then
        rm -rf "$base"
        debootstrap --variant=minbase "$1" "$base" ${SIDEREAL_MIRROR:+"$SIDEREAL_MIRROR"} >"$base.log" ||
            fail "debootstrap $1 failed: $base.log"
        touch "$base/complete"
    fi
    leave
    rm -rf "$root"
    cp -a "$base" "$root"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    if [[ -n ${PIP_CERT:-} ]]; then cp "$PIP_CERT" "$root/etc/host.crt"; fi
    mount -t proc proc "$root/proc"
}

# Ends a test: leaves the system and removes it.
finish() { # tests that passed
    leave
    rm -rf "$root"
    echo "$1 passed, 0 failed"
}

# Fails unless a search found and drew one candidate.
check_found() { # folder of the search
    local found
    found=$(awk -F, 'NR > 1' "$1/candidates.csv" | wc -l)
    ((found == 1)) || fail "expected one candidate, found $found"
    ls "$1"/*.png >/dev/null || fail "expected a picture of the candidate"
}
