#!/usr/bin/env bash
# tools/test.sh: from a fresh clone to the verdict. Installs what is missing, builds, runs the tests, and closes with the
# line `N passed, M failed` (and `, K skipped` where there are some). Exit status 0 only when tests ran and none failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

preset=default
folder=build
filter=()
for argument in "$@"; do
  case "$argument" in
    --quick) filter=(-L '^quick$') ;;
    --asan) preset=asan folder=build-asan ;;
    -h | --help)
      cat <<'TEXT'
usage: tools/test.sh [--quick] [--asan]
  --quick  only the tests labelled quick: under 2 minutes after the build
  --asan   the build with AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan/
  ZERO_CMAKE_ARGS in the environment: further arguments for CMake, such as -DZERO_WERROR=ON
TEXT
      exit 0 ;;
    *) echo "error: unknown argument $argument; tools/test.sh takes --quick and --asan" >&2; exit 2 ;;
  esac
done

tools/build.sh "$preset"

# Two at a time on any machine. A test of several ranks counts as two.
jobs=$(( $(nproc) > 1 ? 2 : 1 ))
# The leak check names what Open MPI keeps until the process ends by the library in the call stack, which only the slow
# unwinder finds. Options of your own come last and win.
export ASAN_OPTIONS="fast_unwind_on_malloc=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export LSAN_OPTIONS="suppressions=$root/tools/lsan.supp:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"
report=$root/$folder/test-report.xml
rm -f "$report"
start=$SECONDS
status=0
ctest --preset "$preset" -j "$jobs" --no-tests=error --output-junit "$report" "${filter[@]}" </dev/null || status=$?
echo "tests: done in $(( SECONDS - start )) s"

# The counts are ctest's own, from its report: its summary line counts a skipped test as passed. A test that neither
# passed nor asked to be skipped (one without its program, say) failed.
if [[ ! -s $report ]]; then
  echo "error: ctest left no report and ended with status $status" >&2
  echo "0 passed, 0 failed"
  exit 1
fi
count() { grep -c -E "$1" "$report" || true; }
passed=$(count '<testcase .*status="run"')
skipped=$(( $(count '<skipped message="SKIP_') + $(count '<testcase .*status="disabled"') ))
failed=$(( $(count '<testcase ') - passed - skipped ))
# How much of the CUDA backend ran through its stand-ins: what tests print of it.
log=$folder/Testing/Temporary/LastTest.log
sum() { sed -nE "$1" "$log" | awk '{ all += $1 } END { print all + 0 }'; }
kernels=$(sum 's/.*CUDA on the host: ([0-9]+) kernels ran.*/\1/p')
settings=$(sum 's/^([0-9]+) settings that meet every 2 values of the options at N = .*/\1/p')
if (( kernels > 0 )); then
  echo "CUDA without a GPU: $settings settings of stages and offload, $kernels kernels run on the host"
fi
line="$passed passed, $failed failed"
if (( skipped > 0 )); then line+=", $skipped skipped"; fi
echo "$line"
if (( status != 0 || failed > 0 || passed == 0 )); then exit 1; fi
