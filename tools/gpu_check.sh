#!/usr/bin/env bash
# tools/gpu_check.sh: the CUDA backend on the GPU of this machine, built, tested and measured within 8 minutes, with nothing
# from outside the machine. Leaves one text file. Status 0 when all tests passed, 1 when one failed (the file says which),
# 2 when nothing could be checked (then there is no file).
set -euo pipefail
export LC_ALL=C
usage() {
  cat <<'TEXT'
usage: tools/gpu_check.sh [--peak TFLOPS] [FILE]
  builds the preset cuda for the GPU that is here into build-gpu-check/, runs `ctest -L gpu`, compute-sanitizer where it is
  installed, and the timings; writes FILE (default docs/results/gpu-NAME-DATE.txt). At most 8 minutes on 16 cores.
  --peak TFLOPS  dense bf16 rate of the GPU, for the MFU (default 989.5: an H200's)
  ZERO_CMAKE_ARGS in the environment: further arguments for CMake, such as -DNCCL_ROOT=/opt/nccl
TEXT
}
fail() { echo "error: $*; nothing was checked" >&2; exit 2; }

peak=989.5
file=
while (( $# > 0 )); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --peak)
      [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "--peak '${2:-}' is not a rate in TFLOP/s; 989.5 would do"
      peak=$2
      shift ;;
    -*) fail "unknown option $1; tools/gpu_check.sh --help lists them" ;;
    *)
      [[ -z $file ]] || fail "$1 is a second file; one is written"
      [[ -n $1 ]] || fail "'' is not the name of a file"
      file=$(realpath -m -- "$1") ;;
  esac
  shift
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
build=$root/build-gpu-check

# --- what is here ------------------------------------------------------------------------------------------------------

command -v nvidia-smi >/dev/null || fail "there is no GPU here, as far as can be seen: nvidia-smi is not installed"
describe() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null || true; }
gpus=$(describe name)
gpu=${gpus%%$'\n'*}
if [[ -z $gpu || $gpu == *o\ devices* ]] || ! nvidia-smi -L >/dev/null 2>&1; then fail "nvidia-smi finds no GPU"; fi
driver=$(describe driver_version | head -n 1)
capability=$(describe compute_cap | head -n 1)
architecture=native
if [[ $capability =~ ^[0-9]+\.[0-9]$ ]]; then architecture=${capability/./}; fi

missing=()
need() { command -v "$1" >/dev/null || missing+=("$1 ($2)"); }
need cmake "CMake 3.22 or later"
need "${CXX:-c++}" "a C++20 compiler"
need mpirun "Open MPI"
need mpicc "Open MPI's headers"
need python3 "Python 3"
nvcc=$(command -v nvcc || true)
toolkit=()
for folder in "${CUDAToolkit_ROOT:-}" "${CUDA_HOME:-}" /usr/local/cuda; do
  if [[ -z $nvcc && -n $folder && -x $folder/bin/nvcc ]]; then
    nvcc=$folder/bin/nvcc
    toolkit=(-DCUDAToolkit_ROOT="$folder")
  fi
done
if [[ -z $nvcc ]]; then missing+=("nvcc (CUDA Toolkit 12 or 13)"); fi
generator=(-G Ninja)
if ! command -v ninja >/dev/null; then
  generator=(-G "Unix Makefiles")
  need make "make or ninja"
fi
if (( ${#missing[@]} > 0 )); then
  printf -v list '%s, ' "${missing[@]}"
  fail "missing here: ${list%, }"
fi
python=python3
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import numpy' 2>/dev/null; then python=$(command -v "$candidate"); break; fi
done

# --- phases --------------------------------------------------------------------------------------------------------------

# Each has its own limit, and no more than is left of the whole, which keeps some seconds to write the file.
whole=470
# phase LIMIT LOG COMMAND...: the command's status; 124 when it took too long. What it prints goes to LOG.
phase() {
  local limit=$1 log=$2 left=$(( whole - SECONDS ))
  shift 2
  if (( left < limit )); then limit=$left; fi
  if (( limit < 2 )); then
    echo "not begun: the 8 minutes are over" >"$log"
    return 124
  fi
  timeout --kill-after=3 "$limit" "$@" >"$log" 2>&1 </dev/null
}

mkdir -p "$build"
read -r -a extra <<<"${ZERO_CMAKE_ARGS:-}"
echo "configure: preset cuda for sm_$architecture in ${build##*/}/"
if ! phase 40 "$build/configure.log" cmake --preset cuda -B "$build" "${generator[@]}" -DCMAKE_CUDA_ARCHITECTURES="$architecture" \
    "${toolkit[@]}" -DPython3_EXECUTABLE="$python" "${extra[@]}"; then
  # CMake's first error, as one line: it names the package that is missing.
  reason=$(awk '/^CMake Error/ { error = 1; next } error && /^[^ ]/ { exit } error { print }' "$build/configure.log" | tr -s ' \n' ' ')
  fail "the configuration failed (${build##*/}/configure.log):${reason:- see there}"
fi

file=${file:-$root/docs/results/gpu-$(tr '[:upper:] ' '[:lower:]-' <<<"${gpu#NVIDIA }")-$(date -u +%Y-%m-%d).txt}
report=$build/report.txt
failed=0
write() { printf '%s\n' "$@" | tee -a "$report"; }
# The first thing that went wrong is what the status says; the file is there in any case.
finish() {
  write "" "$1" "took $SECONDS s"
  mkdir -p "$(dirname "$file")"
  mv "$report" "$file"
  echo "written: $file"
  exit "$failed"
}
: >"$report"
trap 'failed=1; finish "interrupted: not everything was checked"' INT TERM

write "The CUDA backend on $gpu: tools/gpu_check.sh, $(date -u '+%Y-%m-%d %H:%M UTC')" ""
write "GPU           $gpu, compute capability ${capability:-unknown}, $(describe memory.total | head -n 1), $(wc -l <<<"$gpus") in this machine"
write "driver        $driver"
write "CUDA          $("$nvcc" --version | sed -n 's/.*release //p'), compiled for sm_$architecture"
write "NCCL          $(sed -n 's/^NCCL_LIBRARY:[A-Z]*=//p' "$build/CMakeCache.txt")"
write "MPI           $(mpirun --version 2>/dev/null | head -n 1)"
write "compiler      $("${CXX:-c++}" --version | head -n 1)"
write "processor     $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
write "source        $(git rev-parse --short HEAD 2>/dev/null || echo 'without git')$([[ -z $(git status --porcelain 2>/dev/null) ]] || echo ', changed since')"

echo "build: target gpu_check"
start=$SECONDS
if ! phase 170 "$build/build.log" cmake --build "$build" --target gpu_check -j "$(nproc)"; then
  failed=1
  write "" "build         FAILED" "$(grep -m 1 -A 15 -E 'error:|undefined reference|^FAILED|\*\*\* ' "$build/build.log" || tail -n 15 "$build/build.log")"
  finish "verdict: FAILED, the build did not end well"
fi
write "build         $(( SECONDS - start )) s"

# --- tests ---------------------------------------------------------------------------------------------------------------

write "" "Tests (ctest -L gpu): kernels, products and collectives beside the CPU's; every stage and offload beside the baselines of" \
  "both, their formulas and the golden digests; the ledger beside the allocator; the programs as they are called."
junit=$build/gpu-tests.xml
rm -f "$junit"
status=0
# Some at a time: most of them leave the GPU idle most of the time.
phase 140 "$build/ctest.log" env ZERO_REQUIRE_GPU=1 ctest --test-dir "$build" -L '^gpu$' -j 8 --no-tests=error --output-on-failure \
  --output-junit "$junit" || status=$?
write "$(sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /  /p' "$build/ctest.log")"
if [[ -s $junit ]]; then
  count() { grep -c -E "$1" "$junit" || true; }
  passed=$(count '<testcase .*status="run"')
  skipped=$(count '<skipped message="SKIP_')
  write "$passed passed, $(( $(count '<testcase ') - passed - skipped )) failed, $skipped skipped"
fi
if (( status != 0 )); then
  failed=1
  if (( status == 124 )); then write "FAILED: not all tests ended within their time"; fi
  write "" "What failed tests printed (the last 150 lines):" "$(tail -n 150 "$build/ctest.log")"
else
  write "" "Bytes that the ledger booked, and that the allocator of the GPU counted:" \
    "$(sed -n '/bytes booked/s/^/  /p' "$build/Testing/Temporary/LastTest.log")"
fi

# --- compute-sanitizer -----------------------------------------------------------------------------------------------------

# sanitize TOOL PROGRAM...: our own code checks what calls return, and asks for what is not ready yet.
sanitize() {
  local tool=$1 log=$build/$1.log status=0
  shift
  phase 25 "$log" "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 "$@" || status=$?
  if grep -q -E 'not supported|Unable to|Failed to initialize' "$log"; then
    write "  $tool: not possible here: $(grep -m 1 -E 'not supported|Unable to|Failed to initialize' "$log")"
  elif (( status == 124 || status == 137 )); then
    write "  $tool: not done within its time, and nothing found in it"
    if grep -q -E 'ERROR SUMMARY: [1-9]|Invalid|hazard' "$log"; then failed=1; fi
  elif (( status != 0 )); then
    failed=1
    write "  $tool: FAILED, status $status" "$(head -n 40 "$log")"
  else
    write "  $tool: $(grep -m 1 -E 'SUMMARY' "$log" || echo 'status 0')"
  fi
}
sanitizer=$(command -v compute-sanitizer || true)
if [[ -z $sanitizer && -x $(dirname "$nvcc")/compute-sanitizer ]]; then sanitizer=$(dirname "$nvcc")/compute-sanitizer; fi
write "" "compute-sanitizer, on small runs of the kernels that have barriers:"
if [[ -z $sanitizer ]]; then
  write "  not installed here: neither memcheck nor racecheck ran"
else
  small=("$build/bin/gpu_kernels" '--gtest_filter=CudaLayers.CausalSoftmax*:CudaLayers.Layernorm*:CudaProducts.WithKZero*:CudaProducts.AChain*')
  sanitize memcheck "${small[@]}"
  sanitize racecheck "${small[@]}"
fi

# --- timings ---------------------------------------------------------------------------------------------------------------

# measure LIMIT COMMAND...: what it prints, in the file.
measure() {
  local limit=$1 log=$build/timing.log
  shift
  if phase "$limit" "$log" "$@"; then
    write "$(sed 's/^/  /' "$log")"
  else
    failed=1
    write "  FAILED or not done within $limit s: ${*##*/}" "$(tail -n 10 "$log" | sed 's/^/  /')"
  fi
}
write "" "Timings, with nothing else on the GPU that we started:"
measure 20 "$build/bin/gpu_adamw_bench"
measure 60 "$python" -B tests/bench/gpu_step_bench.py --build "$build" --peak "$peak"

if (( failed == 0 )); then finish "verdict: passed"; else finish "verdict: FAILED, see above"; fi
