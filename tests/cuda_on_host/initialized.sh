#!/usr/bin/env bash
# Runs a command on the emulated device twice, with different bytes in new memory, and compares the copies to the host:
# initialized.sh COMMAND...
#
# A difference comes from unwritten memory that was copied or used in a computation.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
for fresh in 00 ff; do
    SIDEREAL_EMULATED_FRESH=$fresh SIDEREAL_EMULATED_COPIES="$folder/$fresh" "$@" >"$folder/log" 2>&1 || {
        cat "$folder/log"
        echo "FAILED: $* with fresh memory of 0x$fresh"
        exit 1
    }
done
if [[ ! -s "$folder/00" ]]; then
    echo "FAILED: $* copied nothing to the host"
    exit 1
fi
if ! cmp -s "$folder/00" "$folder/ff"; then
    differing=$(diff "$folder/00" "$folder/ff" | grep -m 3 '^<' || true)
    echo "FAILED: $* copied memory to the host that nobody wrote, or what was made of it:"
    echo "$differing"
    exit 1
fi
grep -hE '^(test result|skipped)' "$folder/log" || true
echo "ok     $(wc -l <"$folder/00") copies to the host are the same: $*"
