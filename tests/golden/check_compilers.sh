#!/usr/bin/env bash
# Builds the golden digests with other compilers and optimisation levels and runs them: check_compilers.sh SOURCE BUILD.
# A compiler that is not installed is named and left out.
set -euo pipefail
source=$1
build=$2
checked=0
check() {  # check COMPILER LEVEL
  local folder="$build/golden-$1$2"
  if ! command -v "$1" >/dev/null; then
    echo "not checked: $1 $2 ($1 is not installed)"
    return
  fi
  if ! { cmake -S "$source" -B "$folder" -DCMAKE_CXX_COMPILER="$1" -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS="$2 -DNDEBUG" && cmake --build "$folder" --target golden_digests -j 2; } >"$folder.log" 2>&1; then
    tail -20 "$folder.log"
    echo "error: golden_digests does not build with $1 $2"
    exit 1
  fi
  echo "$1 $2"
  "$folder/bin/golden_digests"
  checked=$((checked + 1))
}
check g++ -O1
check clang++ -O1
check clang++ -O3
echo "golden digests hold in $checked other builds"
