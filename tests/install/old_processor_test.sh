#!/usr/bin/env bash
# On a processor without AVX2, which QEMU emulates, every program and the Python package print one line and exit with 3.
# Usage: old_processor_test.sh FOLDER_OF_PROGRAMS LIBRARY SOURCE_DIR
set -euo pipefail
bin=$1 library=$2 source=$3
die() { echo "old_processor_test: $*" >&2; exit 1; }
qemu=$(command -v qemu-x86_64-static || command -v qemu-x86_64) || { echo "SKIPPED: no QEMU (Debian: qemu-user-static)"; exit 0; }
python=$(readlink -f /usr/bin/python3)

# run_on PROCESSOR COMMAND...: the exit status, and both outputs in $said.
run_on() {
  local status=0
  said=$(PSRING_LIBRARY=$library PYTHONPATH=$source/python "$qemu" -cpu "$1" "${@:2}" 2> >(grep -v "^qemu-.*: warning:")) || status=$?
  return $status
}

for processor in qemu64 Nehalem Westmere SandyBridge; do
  for command in "psring --version" "psring train --steps 1" "psring-server --version" "psring-worker --version" \
    "psring-bench --version" "$python -B -c 'import psring'"; do
    eval "words=($command)"
    [[ ${words[0]} == /* ]] || words[0]=$bin/${words[0]}
    status=0
    run_on $processor "${words[@]}" || status=$?
    [ $status = 3 ] || die "$command on $processor: exit status $status: $said"
    [ "$(wc -l <<<"$said")" = 1 ] || die "$command on $processor: more than one line: $said"
    [[ $said == "psring: this processor has no "*AVX2*"; psring needs x86-64-v3"* ]] || die "$command on $processor: $said"
  done
done
# Each part of x86-64-v3 that a processor can lack by itself, although no processor was sold so.
for part in f16c lzcnt=abm movbe fma bmi2 avx2; do
  status=0
  run_on "Haswell,-${part#*=}" "$bin/psring" --version || status=$?
  name=${part%=*}
  [ $status = 3 ] && [[ $said == "psring: this processor has no "*${name^^}*"; psring needs x86-64-v3"* ]] ||
    die "psring without $name: exit status $status: $said"
done
for program in psring psring-server psring-worker psring-bench; do
  run_on max "$bin/$program" --version || die "$program does not run on a processor with AVX2: $said"
  [[ $said == *"psring "[0-9]* ]] || die "$program on a processor with AVX2: $said"
done
run_on max "$python" -B -c 'import psring; print("imported")' || die "the Python package on a processor with AVX2: $said"
[[ $said == *imported ]] || die "the Python package on a processor with AVX2: $said"
echo "old_processor_test: passed"
