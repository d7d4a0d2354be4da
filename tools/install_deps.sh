#!/usr/bin/env bash
# tools/install_deps.sh: installs what the build and the tests need and this system lacks, from the packages of Debian 12,
# Ubuntu 22.04 or 24.04. Where nothing is missing it changes nothing and needs neither root nor the network.
set -euo pipefail
export LC_ALL=C

# make rather than another generator, and no recommended packages: the fewest packages that do.
packages=(
  g++ make cmake
  libopenmpi-dev openmpi-bin                              # ranks
  libfmt-dev libcli11-dev nlohmann-json3-dev              # text, options, summary.json
  libxxhash-dev                                           # checksums of what is on storage
  libgtest-dev libbenchmark-dev                           # tests, benchmarks
  python3 python3-numpy python3-matplotlib                # the independent reference, plots
  doxygen graphviz                                        # the reference manual
)
# A release or architecture without these builds all the same, with less: libdnnl-dev is for --products library, liburing-dev
# for several transfers to storage at a time.
optional=(libdnnl-dev liburing-dev)

usage() {
  cat <<'TEXT'
usage: tools/install_deps.sh [--list]
  installs the missing ones of this project's Debian or Ubuntu packages, as root or with sudo
  --list  prints the names of all of them and installs nothing
  ZERO_SKIP_INSTALL=1 in the environment: install nothing (for systems where you provide the libraries yourself)
TEXT
}
fail() { echo "error: $*" >&2; exit 2; }

case "${1:-}" in
  "") ;;
  --list) printf '%s\n' "${packages[@]}" "${optional[@]}"; exit 0 ;;
  -h | --help) usage; exit 0 ;;
  *) fail "unknown argument $1; tools/install_deps.sh takes --list or nothing" ;;
esac
(( $# <= 1 )) || fail "unknown argument $2; tools/install_deps.sh takes --list or nothing"

if [[ ${ZERO_SKIP_INSTALL:-0} == 1 ]]; then
  echo "install_deps: ZERO_SKIP_INSTALL=1, nothing installed"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  fail "this system has no apt-get; install a C++20 compiler, make, CMake 3.22 or newer, Open MPI, fmt, CLI11, nlohmann-json, xxHash," \
    "GoogleTest, Google Benchmark and Python 3 with NumPy and matplotlib (optional: oneDNN, liburing, Doxygen, Graphviz), then set ZERO_SKIP_INSTALL=1"
fi

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
has_candidate() { [[ $(apt-cache policy "$1" 2>/dev/null) == *"Candidate: "[!\(]* ]]; }

missing=()
for package in "${packages[@]}"; do is_installed "$package" || missing+=("$package"); done
wanted=()
for package in "${optional[@]}"; do is_installed "$package" || wanted+=("$package"); done
if (( ${#missing[@]} + ${#wanted[@]} == 0 )); then
  echo "install_deps: all $(( ${#packages[@]} + ${#optional[@]} )) packages are installed, nothing to do"
  exit 0
fi

# Only an optional package is missing, and this release has none: that must not cost an update at every call.
if (( ${#missing[@]} == 0 )); then
  available=()
  for package in "${wanted[@]}"; do if has_candidate "$package"; then available+=("$package"); fi; done
  if (( ${#available[@]} == 0 )); then
    echo "install_deps: all ${#packages[@]} needed packages are installed; not in this system's package sources: ${wanted[*]} (optional)"
    exit 0
  fi
fi

# `sudo` may ask for the password at a terminal, and must not wait for one elsewhere. Settings go through env,
# since sudo drops the environment.
noninteractive=(env LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1)
if (( EUID == 0 )); then
  as_root=("${noninteractive[@]}")
elif command -v sudo >/dev/null && [[ -t 0 ]]; then
  as_root=(sudo "${noninteractive[@]}")
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n "${noninteractive[@]}")
elif (( ${#missing[@]} == 0 )); then
  echo "install_deps: optional packages not installed (neither root nor sudo without a password): ${wanted[*]}"
  exit 0
else
  fail "missing packages and neither root nor sudo to install them; as root: apt-get install --no-install-recommends ${missing[*]}"
fi
apt_options=(-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)

absent=("${missing[@]}" "${wanted[@]}")
echo "install_deps: missing: ${absent[*]}"
echo "install_deps: apt-get update"
# One source of several may be out of reach without harm: whether what is needed can be had shows below.
"${as_root[@]}" apt-get "${apt_options[@]}" -qq update ||
  echo "install_deps: apt-get update reported a failure; going on with the lists at hand"
for package in "${missing[@]}"; do
  has_candidate "$package" ||
    fail "package $package is not in this system's package sources; Debian 12, Ubuntu 22.04 and 24.04 (with universe enabled) have it"
done
for package in "${wanted[@]}"; do
  if has_candidate "$package"; then
    missing+=("$package")
  else
    echo "install_deps: optional package $package is not in this system's package sources; going on without it"
  fi
done
(( ${#missing[@]} > 0 )) || exit 0

install=("${as_root[@]}" apt-get "${apt_options[@]}" -q install --no-install-recommends)
echo "install_deps: apt-get install --no-install-recommends ${missing[*]}"
# Answering no makes apt-get print what it would download and take, and stop.
"${install[@]}" --assume-no "${missing[@]}" 2>/dev/null </dev/null |
  grep -E '^(Need to get|After this operation)' | sed 's/^/install_deps:   /' || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "${install[@]}" -y "${missing[@]}" >"$log" 2>&1 </dev/null; then
  tail -n 20 "$log" >&2
  fail "apt-get could not install ${missing[*]}; its last lines stand above"
fi
echo "install_deps: installed, with what they depend on: ${missing[*]}"
