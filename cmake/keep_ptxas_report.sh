#!/bin/sh
# The CUDA compiler's launcher: keep_ptxas_report.sh [ccache] nvcc ... -o OBJECT ... runs the command and keeps the lines
# in which ptxas reports each kernel's registers, stack and spills in OBJECT.ptxas. All other messages are passed on.
# kernel_resources_test reads the reports. ccache repeats them where it has the object already.
object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"
ptxas='^ptxas info|bytes stack frame'
"$@" 2>"$object.stderr"
status=$?
grep -E "$ptxas" "$object.stderr" >"$object.ptxas"
grep -Ev "$ptxas" "$object.stderr" >&2
rm -f "$object.stderr"
exit $status
