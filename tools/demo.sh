#!/usr/bin/env bash
# tools/demo.sh [ARG...]: from a fresh clone to the table. Installs what is missing, builds the programs, and compares the
# baseline and the stages on four ranks. Arguments go to compare (`build/bin/compare --help`); it ends in compare's status.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  echo "usage: tools/demo.sh [ARG...]   installs, builds, runs compare; ARG... as in build/bin/compare --help"
  exit 0
fi

"$root/tools/build.sh" default programs

# has OPTION: whether the caller gave it, as `OPTION VALUE`, `OPTION=VALUE` or `-nVALUE`.
given=("$@")
has() {
  local argument
  for argument in "${given[@]}"; do [[ $argument == "$1" || $argument == "$1"[=0-9]* ]] && return 0; done
  return 1
}
# Paths are relative to where the caller stands, as the caller's own are.
here() { realpath -m --relative-to=. "$root/$1"; }
arguments=()
has -n || arguments+=(-n 4)
has --data || arguments+=(--data "$(here docs/corpus.txt)")
mkdir -p "$root/out"
has --out || arguments+=(--out "$(here out/demo)")

line=("$(here build)/bin/compare" "${arguments[@]}" "$@")
echo "demo: ${line[*]}"
start=$SECONDS
status=0
"${line[@]}" || status=$?
echo "demo: compare took $(( SECONDS - start )) s and ended with status $status"
exit "$status"
