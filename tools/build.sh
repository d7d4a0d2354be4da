#!/usr/bin/env bash
# tools/build.sh PRESET [TARGET...]: installs what is missing, configures the preset and builds its targets (all when none
# is given). ZERO_CMAKE_ARGS holds further arguments for CMake's configuration, such as -DZERO_WERROR=ON.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
fail() { echo "error: $*" >&2; exit 2; }

case "${1:-}" in
  default) folder=build ;;
  asan) folder=build-asan ;;
  cuda) folder=build-cuda ;;
  *) fail "unknown preset '${1:-}'; usage: tools/build.sh default|asan|cuda [TARGET...]" ;;
esac
preset=$1
shift
tools/install_deps.sh
command -v cmake >/dev/null || fail "cmake is not on PATH; tools/install_deps.sh installs it"

# One compiler process may take over a gigabyte: no more of them than memory, or a container's share of it, allows.
jobs=$(nproc)
free_mib=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
if [[ $limit =~ ^[0-9]+$ ]] && (( limit / 1048576 < free_mib )); then free_mib=$(( limit / 1048576 )); fi
if (( jobs > free_mib / 1536 )); then jobs=$(( free_mib / 1536 )); fi
if (( jobs < 1 )); then jobs=1; fi

# The packages' NumPy belongs to the system's Python; another one may come first on PATH.
arguments=()
if [[ -x /usr/bin/python3 ]]; then arguments+=(-DPython3_EXECUTABLE=/usr/bin/python3); fi
read -r -a extra <<<"${ZERO_CMAKE_ARGS:-}"
arguments+=("${extra[@]}")

mkdir -p "$folder"
echo "configure: cmake --preset $preset ${arguments[*]}"
if ! cmake --preset "$preset" "${arguments[@]}" >"$folder/configure.log" 2>&1; then
  tail -n 40 "$folder/configure.log" >&2
  fail "the configuration of preset $preset failed; see above, and $folder/configure.log"
fi
# What CMake says about the machine's compilers in general is left out; what it says about this project is shown.
grep -E '^-- ' "$folder/configure.log" |
  grep -vE '^-- (Detecting|Check for|Looking for|Performing|Found|Preset|The C compiler|Configuring|Generating|Build files)' || true

targets=()
if (( $# > 0 )); then targets=(--target "$@"); fi
echo "build: cmake --build --preset $preset -j $jobs ${targets[*]}"
start=$SECONDS
# Progress in steps of ten percent ([ 40%] from make, [12/30] from ninja), warnings in full, the rest in the log.
if ! cmake --build --preset "$preset" -j "$jobs" "${targets[@]}" 2>&1 | tee "$folder/build.log" | awk '
    /^\[ *[0-9]+%\]/   { split($0, part, /[][% ]+/); percent = part[2] + 0 }
    /^\[[0-9]+\/[0-9]+\]/ { split($0, part, /[][\/ ]+/); percent = int(100 * part[2] / part[3]) }
    percent >= next_step { printf "build: %d %%\n", percent; fflush(); next_step = 10 * int(percent / 10) + 10 }
    /warning:/         { print; fflush() }
    BEGIN              { next_step = 10 }'; then
  # The first error explains; the end of the log may be another job's.
  grep -m 1 -A 20 -E 'error:|undefined reference|\*\*\* |^FAILED' "$folder/build.log" >&2 || tail -n 40 "$folder/build.log" >&2
  fail "the build of preset $preset failed; see above, and $folder/build.log"
fi
echo "build: done in $(( SECONDS - start )) s"
