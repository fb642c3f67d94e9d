#!/usr/bin/env bash
# Makes the files of a release from a tag:
#
#   packaging/release.sh v0.2.0                     all parts, into target/dist
#   packaging/release.sh v0.2.0 --only tarball      one part; several with commas
#   packaging/release.sh v0.2.0 --dry-run           checks versions and tools, and prints the commands
#   packaging/release.sh --check-symbols FILE       only checks that FILE needs no C library newer than glibc 2.17
#
# Parts:
#   source      sidereal-VERSION.tar.gz: what git has at the tag
#   crates      the packages of the Rust registry, each compiled from what it holds
#   tarball     sidereal-VERSION-x86_64-linux-gnu.tar.gz: the program, linked by zig against glibc 2.17, with completions and manual
#   wheel       the Python package, for manylinux 2.17
#   checksums   SHA256SUMS of the files of this version
#
# --out FOLDER takes the place of target/dist. Instead of a tag, any commit can be named; its version is then not compared.
set -euo pipefail
# Paths of options are relative to where the script is called.
called=$PWD
cd "$(dirname "$0")/.."

GLIBC=2.17
PARTS=(source crates tarball wheel checksums)

fail() { echo "error: $*" >&2 && exit 1; }

need() { # tool, how to install it
    command -v "$1" >/dev/null || fail "$1 is not installed: $2"
}

run() {
    printf '+%s\n' "$(printf ' %q' "$@")"
    if [[ -z $dry ]]; then "$@"; fi
}

# Fails if the dynamic symbols of an ELF file need a version of the C library above $GLIBC.
check_symbols() { # file
    local symbols versions newest above
    need objdump "apt-get install binutils"
    [[ -f $1 ]] || fail "$1: no such file"
    symbols=$(objdump -T "$1") || fail "$1: objdump cannot read its dynamic symbols"
    versions=$(grep -o 'GLIBC_[0-9.]*' <<<"$symbols" | sed 's/GLIBC_//' | sort -Vu)
    [[ -n $versions ]] || fail "$1: expected symbols of glibc, found none"
    newest=$(tail -n 1 <<<"$versions")
    if [[ $(printf '%s\n' "$newest" "$GLIBC" | sort -V | tail -n 1) != "$GLIBC" ]]; then
        above=$(sed "/^${GLIBC//./\\.}\$/,\$!d" <<<"$(printf '%s\n' "$versions" "$GLIBC" | sort -Vu)" | sed 1d)
        fail "$1: expected symbols up to GLIBC_$GLIBC, found" \
            "$(for version in $above; do grep -F "GLIBC_$version)" <<<"$symbols" | awk -v v="$version" '{ print $NF " (" v ")" }'; done | head -n 8 | paste -sd ' ')"
    fi
    echo "$1: symbols up to GLIBC_$newest"
}

# Prints the version of the workspace; fails if a file of the release has another one.
version_of() { # folder of sources
    local version file found
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$1/Cargo.toml")
    [[ -n $version ]] || fail "Cargo.toml: no version in workspace.package"
    compare() { # file, version
        [[ $2 == "$version" ]] || fail "$1: expected version $version as in Cargo.toml, found '$2'"
    }
    compare CITATION.cff "$(sed -n 's/^version: //p' "$1/CITATION.cff")"
    compare packaging/conda/recipe.yaml "$(sed -n 's/^  version: "\(.*\)"/\1/p' "$1/packaging/conda/recipe.yaml")"
    compare CHANGELOG.md "$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' "$1/CHANGELOG.md" | head -n 1)"
    for file in cli/Cargo.toml bench/Cargo.toml; do
        while read -r found; do compare "$file" "$found"; done < <(sed -n 's/^sidereal.*path = .*version = "\(.*\)".*/\1/p' "$1/$file")
    done
    compare python/Cargo.toml "$(sed -n 's/^version = "\(.*\)"/\1/p' "$1/python/Cargo.toml" | head -n 1)"
    echo "$version"
}

# Packs a folder so that the same files give the same bytes.
pack() { # folder, archive
    run tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$(dirname "$1")" \
        -cf "${2%.gz}" "$(basename "$1")"
    run gzip -9nf "${2%.gz}"
}

make_source() {
    run git archive --format=tar --prefix="sidereal-$version/" -o "$out/sidereal-$version.tar" "$commit"
    run gzip -9nf "$out/sidereal-$version.tar"
}

make_crates() {
    run cargo package --locked --workspace --manifest-path "$source/Cargo.toml"
    run cp "$CARGO_TARGET_DIR"/package/{sidereal,sidereal-bench,sidereal-cli}-"$version".crate "$out/"
}

# Writes completions and manual below share/, under the names that shells and man look for. Runs the program, which is for this machine.
install_shared() { # folder with bin/sidereal
    local program=$1/bin/sidereal share=$1/share shell file
    for shell in bash:bash-completion/completions/sidereal zsh:zsh/site-functions/_sidereal \
        fish:fish/vendor_completions.d/sidereal.fish; do
        file=$share/${shell#*:}
        run mkdir -p "$(dirname "$file")"
        run sh -c '"$1" completions "$2" >"$3"' sh "$program" "${shell%%:*}" "$file"
    done
    run "$program" --quiet man "$share/man/man1"
}

make_tarball() {
    local name=sidereal-$version-x86_64-linux-gnu file
    local built=$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu/release/sidereal
    run cargo zigbuild --locked --release --package sidereal-cli --manifest-path "$source/Cargo.toml" \
        --target "x86_64-unknown-linux-gnu.$GLIBC"
    run check_symbols "$built"
    run rm -rf "$work/$name"
    run install -D -m 755 "$built" "$work/$name/bin/sidereal"
    run strip --strip-debug "$work/$name/bin/sidereal"
    install_shared "$work/$name"
    for file in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE CITATION.cff cli/assets/Inter-LICENSE.txt; do
        run install -m 644 "$source/$file" "$work/$name/"
    done
    pack "$work/$name" "$out/$name.tar.gz"
}

make_wheel() {
    run maturin build --locked --release --zig --compatibility "manylinux_${GLIBC/./_}" \
        --manifest-path "$source/python/Cargo.toml" --out "$out"
}

make_checksums() {
    run rm -f "$out/SHA256SUMS"
    # In the folder, so that `sha256sum --check SHA256SUMS` works where the files were downloaded.
    run sh -c 'cd "$1" && sha256sum -- *"$2"* >.sums && mv .sums SHA256SUMS' sh "$out" "$version"
}

# Fails before any work if a tool of a part is missing.
need_tools() { # part
    case $1 in
        source) need gzip "apt-get install gzip" ;;
        crates) need cargo "https://rustup.rs" ;;
        tarball)
            need cargo "https://rustup.rs"
            need cargo-zigbuild "pip install cargo-zigbuild ziglang"
            python3 -c 'import ziglang' 2>/dev/null || need zig "pip install ziglang"
            need objdump "apt-get install binutils"
            need strip "apt-get install binutils"
            ;;
        wheel)
            need maturin "pip install maturin ziglang"
            python3 -c 'import ziglang' 2>/dev/null || need zig "pip install ziglang"
            ;;
        checksums) need sha256sum "apt-get install coreutils" ;;
    esac
}

commit="" only=() dry="" out=$PWD/target/dist
while (($#)); do
    case $1 in
        --check-symbols)
            cd "$called"
            check_symbols "${2:?--check-symbols needs a file}"
            exit
            ;;
        --only) IFS=, read -ra only <<<"${2:?--only needs a part}" && shift ;;
        --out) out=$(cd "$called" && realpath -m "${2:?--out needs a folder}") && shift ;;
        --dry-run) dry=yes ;;
        -*) fail "$1: expected --only, --out, --dry-run or --check-symbols" ;;
        *) [[ -z $commit ]] || fail "expected one tag, found $commit and $1" && commit=$1 ;;
    esac
    shift
done
for part in "${only[@]}"; do
    [[ " ${PARTS[*]} " == *" $part "* ]] || fail "--only $part: expected one of ${PARTS[*]}"
done
((${#only[@]})) || only=("${PARTS[@]}")
[[ -n $commit ]] || fail "expected a tag, such as v0.2.0"
need git "apt-get install git"
git rev-parse -q --verify "$commit^{commit}" >/dev/null || fail "$commit: no such tag or commit"

work=$PWD/target/packaging
source=$work/source
export CARGO_TARGET_DIR=$work/target
rm -rf "$source"
mkdir -p "$source" "$out"
git archive "$commit" | tar -x -C "$source"
version=$(version_of "$source")
if git rev-parse -q --verify "refs/tags/$commit" >/dev/null && [[ $commit != "v$version" ]]; then
    fail "$commit: expected the tag v$version, as in Cargo.toml"
fi
epoch=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH=$epoch

for part in "${only[@]}"; do need_tools "$part"; done
for part in "${PARTS[@]}"; do
    if [[ " ${only[*]} " == *" $part "* ]]; then
        echo "=== $part"
        "make_$part"
    fi
done
if [[ -z $dry ]]; then ls -l "$out"; fi
