#!/usr/bin/env bash
# Runs the device tests under each of compute-sanitizer's tools, on a machine with a GPU. Arguments go to the test program:
#
#   tests/scripts/sanitize_device.sh build/test/tests/imbrex_device_tests [--test-case=...]
#
# racecheck reports the tile queue of tests/ops/grid/scheduler.both.cpp, where one lane arrives at a barrier for its warp after
# a warp sync. docs/results/foundation.md says why we take that for a limit of the tool.
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
