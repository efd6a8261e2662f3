#!/usr/bin/env bash
# Runs the device tests under each tool of compute-sanitizer, on a machine with a GPU. Arguments go to the test program:
#
#   tests/scripts/sanitize_device.sh build/test/tests/imbrex_device_tests [--test-case=...]
#
# racecheck reports the dynamic tile scheduler of tests/ops/grid/scheduler.both.cpp, where one lane arrives at a barrier
# for its warp after a warp sync. docs/results/foundation.md explains why this is a limit of the tool.
set -uo pipefail
program=$1
shift
failed=0
# One test makes the driver reject a call, which is not an error of the program: API errors are not reported.
for tool in memcheck racecheck synccheck initcheck; do
    echo "== $tool"
    if ! compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 "$program" "$@" | tail -n 25; then
        failed=1
    fi
done
exit $failed
