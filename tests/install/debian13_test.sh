#!/usr/bin/env bash
# A share of psring in Debian 13: its compiler and its libraries are newer than those of Debian 12. Builds the kernels, the
# transports and the shared memory of collectives there, without a warning, and runs their tests. scripts/other-systems
# debian13 builds and runs everything.
# Usage: debian13_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"
# The packages that scripts/setup installs to build psring, without the data sets.
packages=catch2,python3$(sed -n '/^demo=($/,/# data sets/s/^  \([a-z].*\)/ \1/p' scripts/setup | tr -d '\n' | tr ' ' ,)
# shellcheck disable=SC2016  # the other shell expands it
scripts/in-debian "$PWD/build/debian13" trixie "$packages" bash -euc '
  tests="frame_test kernels_test pages_test shm_test shm_descriptors_test shm_shares_test simulated_test tcp_test tcp_link_test"
  build=/root/build
  quietly() { "$@" >$build.log 2>&1 || { tail -n 50 $build.log; exit 1; }; }
  quietly cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -Werror" -DCMAKE_UNITY_BUILD=ON \
    -DPSRING_CUDA=OFF -DPSRING_TESTS=ON
  # shellcheck disable=SC2086  # one word for each test
  quietly cmake --build $build --target $tests
  g++ --version | head -n 1
  ctest --test-dir $build --output-on-failure --no-tests=error -R "^(${tests// /|})\$"
'
