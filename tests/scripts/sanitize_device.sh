#!/usr/bin/env bash
# Runs the device tests under each of compute-sanitizer's tools, on a machine with a GPU. Arguments go to the test program:
#
#   tests/scripts/sanitize_device.sh build/test/tests/imbrex_device_tests [--test-case=...]
#
# racecheck follows a barrier only for the threads that arrive at it themselves. Where one lane arrives for its warp, after a
# warp sync, and what is handed over was written by ordinary stores, it reports a race that is none: the tile queue of
# tests/ops/grid/scheduler.both.cpp is the one such kernel.
set -uo pipefail
program=$1
shift
failed=0
# One test has the driver refuse a call, which is not an error of the program: API errors are not reported.
for tool in memcheck racecheck synccheck initcheck; do
    echo "== $tool"
    if ! compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 "$program" "$@" | tail -n 25; then
        failed=1
    fi
done
exit $failed
