#!/bin/sh
# Runs an nvcc command line and fails if ptxas
#   - spilled registers to local memory, or
#   - gave a C75xx remark: wgmma serialised (C7510, C7511), setmaxnreg ignored (C7508), waits inserted (C7517, C7519).
# Such code is correct but up to twice as slow, and ptxas only remarks on it. The resource usage of each kernel
# (registers, shared memory, stack) is written next to the object file, as <object>.resources.
# Code that is compiled with --Ofast-compile is not checked: it is not meant to be fast.
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT

"$@" -Xptxas -v >"$report" 2>&1
status=$?
grep -v -e '^ptxas info' -e '^ *[0-9]* bytes stack frame' "$report"

object=
previous=
for argument in "$@"; do
    [ "$previous" = -o ] && object=$argument
    previous=$argument
done
[ -f "$object" ] && grep -e '^ptxas' -e 'bytes stack frame' "$report" >"$object.resources"

case " $* " in *" --Ofast-compile="*) exit $status ;; esac
faults=$(awk '
    /Compiling entry function/ { architecture = $NF }
    /Function properties for/  { name = $NF }
    /[1-9][0-9]* bytes spill/  { print "a kernel spills registers: " name ", " architecture ":" $0 }
    /\(C75[0-9][0-9]\)/        { sub(/^[^(]*/, ""); print "ptxas makes the kernel slower: " $0 }
' "$report")
if [ -n "$faults" ]; then
    echo "$faults" | { c++filt 2>/dev/null || cat; } >&2
    [ -f "$object" ] && rm -f "$object"  # otherwise the next build would consider it up to date
    [ $status -ne 0 ] || status=1
fi
exit $status
