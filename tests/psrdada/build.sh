#!/bin/sh
# Compiles peer.c with PSRDADA's C library into target/psrdada/peer, for tests/ring_psrdada.rs. Needs a C compiler, and the network
# unless the crate psrdada-sys was fetched before. PSRDADA is licensed under the AFL and the GPL, and linked into this peer only.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=${1:-$here/../../target/psrdada}
mkdir -p "$output"
cd "$here"
cargo fetch --quiet --offline 2>/dev/null || cargo fetch --quiet
manifest=$(cargo metadata --format-version 1 --offline |
    python3 -c 'import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["name"] == "psrdada-sys":
        print(package["manifest_path"])')
source=$(dirname "$manifest")/vendor/src
printf '#define HAVE_INTTYPES_H 1\n#define HAVE_PTHREAD 1\n#define STDC_HEADERS 1\n' > "$output/config.h"
"${CC:-cc}" -w -O1 -D_GNU_SOURCE -I"$output" -I"$source" -o "$output/peer" peer.c \
    "$source/ascii_header.c" "$source/dada_hdu.c" "$source/ipcbuf.c" "$source/ipcio.c" "$source/ipcutil.c" \
    "$source/multilog.c" "$source/tmutil.c" -lpthread -lm
echo "$output/peer"
