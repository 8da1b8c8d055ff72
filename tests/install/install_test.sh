#!/usr/bin/env bash
# Installs psring into an empty folder, moves it, builds docs/examples against it as a user would, and runs them; and a
# job of the installed Python package.
# Usage: install_test.sh SOURCE_DIR BUILD_DIR BUILD_TYPE COMPILER FLAGS
set -euo pipefail
source=$1 build=$2 build_type=$3 compiler=$4 flags=$5

work=$(mktemp -d)
job=()
clean_up() {
  [ ${#job[@]} -eq 0 ] || kill "${job[@]}" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap clean_up EXIT
die() { echo "install_test: $*" >&2; exit 1; }
run() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "failed: $*"; }; }

run cmake --install "$build" --prefix "$work/staged/psring" --config "$build_type"
mv "$work/staged/psring" "$work/psring"
for program in psring psring-server psring-worker psring-bench; do
  [ -x "$work/psring/bin/$program" ] || die "$program is not installed"
done
export PATH=$work/psring/bin:$PATH
run psring --version

# The exercises, against the installed header.
if psring check 01 "$source/docs/exercises/01-reduce-scatter/start.cpp" --compiler "$compiler" --scene "$work/check.html" \
  >"$work/start.check" 2>&1; then die "check took a start file"; fi
run psring check 01 "$source/tests/exercises/solutions/01.cpp" --compiler "$compiler"

# Installed headers include nothing of ours that is not installed, no library but fmt, and each stands on its own.
headers=$work/psring/include
cd "$headers"
mapfile -t installed < <(find psring -name '*.h' | sort)
[ ${#installed[@]} -ge 30 ] || die "only ${#installed[@]} headers are installed"
grep -ohE '#include <psring/[^>]+>' "${installed[@]}" | sed -E 's/.*<(.*)>/\1/' | sort -u | while read -r header; do
  [ -f "$header" ] || die "$header is included by an installed header, but is not installed"
done
printf '%s\0' "${installed[@]}" | xargs -0 -n 4 -P 2 bash -c '
  for header in "${@:2}"; do
    echo "#include <$header>" | "$0" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I "$1" -x c++ - ||
      { echo "$header does not stand on its own" >&2; exit 255; }
  done' "$compiler" "$headers"

# The examples, from a copy outside of the tree.
cp -r "$source/docs/examples" "$work/examples"
cd "$work/examples"
run cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE="$build_type" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror $flags" -DCMAKE_PREFIX_PATH="$work/psring"
run cmake --build build -j 2

for program in *.cpp; do
  [ "$(wc -l <"$program")" -le 40 ] || die "$program has more than 40 lines"
done

# The guide quotes two of them, whole.
for program in own_model push_pull; do
  for page in "$source"/docs/guide/library*.md; do
    awk -v begin="<!-- docs/examples/$program.cpp -->" '
      $0 == begin { seen = 1; next }
      seen && /^```/ { if (inside) exit; inside = 1; next }
      inside { print }' "$page" | diff - $program.cpp >/dev/null || die "$page quotes another $program.cpp"
  done
done

# The same by pkg-config.
export PKG_CONFIG_PATH=$work/psring/lib/pkgconfig
[ "$(pkg-config --modversion psring)" = "$(psring --version | awk '{ print $2 }')" ] || die "psring.pc has another version"
read -r -a flags_of_psring < <(pkg-config --cflags --libs psring)
read -r -a own_flags <<<"$flags"
run "$compiler" -std=c++20 "${own_flags[@]}" predict.cpp -o build/predict_by_pkg_config "${flags_of_psring[@]}"

# Its own layer, trained by one process and by servers: compare fails where bytes or bits differ.
./build/own_model compare --strategies single,ps --workers 2 --servers 2 --model square:width=32 --data synthetic \
  --steps 50 --out "$work/compare" >compare.txt 2>compare.err || { cat compare.txt compare.err; die "own_model compare failed"; }
grep -E '^ps .* = ' compare.txt >/dev/null || { cat compare.txt; die "own_model: ps is not equal to single"; }
if ./build/own_model train --model sqare --data synthetic --steps 1 >unknown.txt 2>&1; then die "an unknown model was taken"; fi
grep -q "unknown name 'sqare'.*square" unknown.txt || { cat unknown.txt; die "an unknown model: not said which are known"; }

# Its own way of training, beside ours.
./build/own_strategy compare --strategies ddp,local-sgd:k=4 --workers 2 --data synthetic --steps 20 --out "$work/own" \
  >own.txt 2>own.err || { cat own.txt own.err; die "own_strategy compare failed"; }
grep -E '^local-sgd:k=4 .* inexact ' own.txt >/dev/null || { cat own.txt; die "own_strategy: no row of its own"; }

# Its own data with real targets, and a figure a step: in each worker's lines.
./build/own_data compare --strategies single,ddp,ps --workers 2 --model mse-mlp:1-32-1 --data wave:samples=200 --steps 60 \
  --optimizer adam --lr 0.01 --out "$work/wave" >wave.txt 2>wave.err || { cat wave.txt wave.err; die "own_data compare failed"; }
grep -E '^ddp .* = ' wave.txt >/dev/null || { cat wave.txt; die "own_data: ddp is not equal to single"; }
[ "$(grep -c '"root_loss"' "$work"/wave/ddp/metrics.jsonl)" = 120 ] || die "own_data: not a figure for each step and worker"

# Its own loss and metric.
./build/own_loss train --strategy ps --workers 2 --servers 1 --model huber:8-32-1 --data synthetic:samples=500 --steps 200 \
  --optimizer adam --lr 0.01 --out "$work/huber" >huber.txt 2>&1 || { cat huber.txt; die "own_loss failed"; }
grep -q '"test_mae"' "$work/huber/summary.json" || { cat "$work/huber/summary.json"; die "own_loss: no metric"; }

# A trained model in a program of its own has the accuracy that the run's evaluation had.
psring train --strategy ddp --workers 2 --model mlp:20-16-4 --data synthetic --steps 100 --seed 1 --out "$work/trained" \
  >trained.txt 2>&1 || { cat trained.txt; die "the run to predict from failed"; }
said=$(./build/predict mlp:20-16-4 "$work/trained/model.safetensors" synthetic) || die "predict failed"
[ "$(./build/predict_by_pkg_config mlp:20-16-4 "$work/trained/model.safetensors" synthetic)" = "$said" ] ||
  die "the program that pkg-config has built predicts something else"
accuracy=$(sed -nE 's/.*test accuracy ([0-9.]+).*/\1/p' trained.txt)
[ "$said" = "accuracy $accuracy of 409 samples" ] || die "predict says '$said', the run $accuracy"
if ./build/predict mlp:20-15-4 "$work/trained/model.safetensors" synthetic 2>misfit.txt; then die "another model was taken"; fi
grep -q "layers.0.weight" misfit.txt || { cat misfit.txt; die "predict: the tensor that does not fit is not named"; }

# Generation: a model that was trained here continues a text.
run psring train --strategy single --model gpt:layers=1,dim=32,heads=2,context=64 --data synthetic --steps 1 --global-batch 2 \
  --out "$work/gpt"
./build/generate "$work/gpt/model.safetensors" "And God said" >generate.txt || die "generate failed"
grep -a -q '^20 tokens, 8192 bytes of cache$' generate.txt || { cat generate.txt; die "generate printed something else"; }

# start_coordinator FOLDER OPTION...: starts a job's coordinator with the key $1.key, and sets endpoint and coordinator.
start_coordinator() {
  psring keygen "$1.key" >/dev/null
  exec 3< <(exec psring coordinator "${@:2}" --key "$1.key" --listen 127.0.0.1:0 --out "$work/$1" 2>coordinator.err)
  coordinator=$!
  job+=("$coordinator")
  local line
  read -r -t 60 line <&3 || { cat coordinator.err; die "the coordinator did not start"; }
  endpoint=$(sed -nE 's/^coordinator at ([^ ]+): .*/\1/p' <<<"$line")
  [ -n "$endpoint" ] || die "the coordinator printed no endpoint: $line"
}

# end_coordinator: waits until it has ended well.
end_coordinator() {
  wait "$coordinator" || { cat coordinator.err; die "the coordinator failed"; }
  job=()
}

# Collectives, by two processes of its own: i * (1 + 2) at each. In C++, in C, and by the installed Python package, which
# finds the library and the programs beside it.
cat >all_reduce.py <<'EOF'
import array, sys, psring

with psring.join(sys.argv[1], sys.argv[2]) as job:
    vector = array.array("f", (i * (job.rank + 1) for i in range(1000)))
    job.all_reduce(vector)
    print(f"rank {job.rank} of {job.size}: sum {vector[1]:g} ... {vector[999]:g}")
EOF
export PYTHONPATH=$work/psring/lib/python3/dist-packages
unset PSRING_LIBRARY PSRING_BIN
for program in ./build/all_reduce ./build/all_reduce_c "python3 -B all_reduce.py"; do
  start_coordinator ring --strategy ddp --workers 2 --steps 1
  $program "$endpoint" ring.key >rank.a &
  other=$!
  job+=("$other")
  $program "$endpoint" ring.key >rank.b || { cat coordinator.err; die "$program failed"; }
  wait "$other" || die "the other $program failed"
  end_coordinator
  sort rank.a rank.b | sed 's/, gathered 3 ... 6$//' | diff - <(printf 'rank %d of 2: sum 3 ... 2997\n' 0 1) ||
    die "$program printed something else"
  rm -rf ring.key "$work/ring"
done
[ "$(python3 -c 'import psring._library as own; print((own.folder_of_programs() / "psring").exists())')" = True ] ||
  die "the Python package does not find the programs"

# Push and pull, with a server and a coordinator started by hand. SGD at lr 0.5: twice vector += 0.5 * i.
start_coordinator job --workers 1 --servers 1 --steps 2 --lr 0.5
psring-server --rdzv-endpoint "$endpoint" --key job.key >server.txt 2>&1 &
server=$!
job+=("$server")
./build/push_pull "$endpoint" job.key >push_pull.txt || { cat server.txt coordinator.err; die "push_pull failed"; }
printf 'version 1: 0.5 1 ... 499.5\nversion 2: 1 2 ... 999\n' | diff - push_pull.txt || die "push_pull printed something else"
wait "$server" || { cat server.txt; die "the server failed"; }
end_coordinator

# Its own handle at the servers, to which two workers push keys.
start_coordinator words --workers 2 --servers 1 --steps 1 --consistency asp --table-optimizer sum
printf 'a b a\nb b\n\nc a a a\n' >words.txt
./build/word_count role-server --rdzv-endpoint "$endpoint" --key words.key >server.txt 2>&1 &
server=$!
./build/word_count count "$endpoint" words.key words.txt a >words.a 2>&1 &
other=$!
job+=("$server" "$other")
./build/word_count count "$endpoint" words.key words.txt b >words.b || { cat server.txt coordinator.err; die "word_count failed"; }
wait "$other" || { cat words.a; die "the other word_count failed"; }
wait "$server" || { cat server.txt; die "the server of word_count failed"; }
end_coordinator
cat words.a words.b | diff - <(printf 'a: 5\nb: 3\n') || die "word_count printed something else"

# The same in C.
start_coordinator largest --workers 2 --servers 1 --steps 1 --consistency asp --table-optimizer largest
./build/largest_c serve "$endpoint" largest.key >server.txt 2>&1 &
server=$!
./build/largest_c 9 "$endpoint" largest.key >largest.9 2>&1 &
other=$!
job+=("$server" "$other")
./build/largest_c 4 "$endpoint" largest.key >largest.4 || { cat server.txt coordinator.err; die "largest_c failed"; }
wait "$other" || { cat largest.9; die "the other largest_c failed"; }
wait "$server" || { cat server.txt; die "the server of largest_c failed"; }
end_coordinator
cat largest.9 largest.4 | diff - <(printf 'pushed %d, the largest is as large\n' 9 4) || die "largest_c printed something else"
status=0
./build/largest_c serve nowhere:1 none.key 2>wrong.txt || status=$?
[ $status = 3 ] && grep -q none.key wrong.txt || { cat wrong.txt; die "psring_serve without a key returned $status"; }
echo "install_test: passed"
