#!/usr/bin/env bash
# Runs the device tests under each of compute-sanitizer's tools, on a machine with a GPU. Arguments go to the test program:
#
#   tests/scripts/sanitize_device.sh build/test/tests/imbrex_device_tests [--test-case=...]
set -uo pipefail
program=$1
shift
failed=0
for tool in memcheck racecheck synccheck initcheck; do
    echo "== $tool"
    if ! compute-sanitizer --tool "$tool" --error-exitcode 1 "$program" "$@" | tail -n 25; then
        failed=1
    fi
done
exit $failed
