#!/usr/bin/env bash
# check_endings.sh SOURCE BIN: whole programs on real ranks end as the command line's contract says: one sentence on
# standard error, its status, within seconds, nothing half written.
set -uo pipefail
source=$1 bin=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# ends STATUS WORDS COMMAND...: the command ends within 5 seconds with that status and one line that has those words.
ends() {
  local status=$1 words=$2 rc=0 lines
  shift 2
  timeout 5 "$@" >"$scratch/stdout" 2>"$scratch/stderr" || rc=$?
  lines=$(grep -v '^+ ' "$scratch/stderr" || true)   # tools/run prints its line
  [[ $rc -eq $status ]] || fail "status $rc instead of $status: $*"
  [[ $(grep -c '' <<<"$lines") -eq 1 && $lines == "error: "* && $lines == *"$words"* ]] \
    || fail "said instead of one line with '$words': $lines"
}
on() { local n=$1; shift; ends "${expected[0]}" "${expected[1]}" "$source/tools/run" -n "$n" "$@"; }
small=(--layers 1 --heads 1 --width 8 --context 16 --micro-batch 1)

for program in stage0_ddp stage3_params; do
  expected=(2 "--global-batch 10 is not a multiple of --micro-batch 4 times 3 ranks; 12 would do")
  on 3 "$bin/$program" --global-batch 10 --micro-batch 4 --out "$scratch/out"
  expected=(2 "--steps -1 is not a whole number")
  on 3 "$bin/$program" --steps -1 --out "$scratch/out"
  expected=(2 "--data $scratch/missing cannot be opened")
  on 3 "$bin/$program" --data "$scratch/missing" --out "$scratch/out"
  expected=(2 "--out /proc/nowhere cannot be written to")
  on 3 "$bin/$program" --out /proc/nowhere
  expected=(2 "is not a directory")
  on 2 "$bin/$program" --out "$source/CMakeLists.txt"
  expected=(3 "held")
  on 2 "$bin/$program" --device-memory 5MiB
  expected=(1 "the step was not taken; a lower --lr may help")
  on 3 "$bin/$program" "${small[@]}" --steps 1000 --lr 1e10
done
[[ ! -e $scratch/out ]] || fail "a refused run left $(find "$scratch/out")"
# Where one rank cannot have its part of the shared windows, all use messages, or say why they cannot have what was asked
# for. MPI itself would hang.
window_folder=OMPI_MCA_osc_sm_backing_directory
expected=(2 "--transport shared cannot be had: a rank cannot make or map a file")
ends "${expected[@]}" env "$window_folder=$scratch/missing" "$source/tools/run" -n 2 "$bin/stage0_ddp" --transport shared "${small[@]}"
env "$window_folder=$scratch/missing" timeout 10 "$source/tools/run" -n 2 "$bin/stage0_ddp" "${small[@]}" --steps 1 >"$scratch/stdout" 2>/dev/null \
  || fail "without shared windows: status $?"
grep -q "canonical over messages (a rank cannot make or map a file" "$scratch/stdout" || fail "the plan does not say why messages are used"
# An interrupt of tools/run is said.
timeout -s INT 2 "$source/tools/run" -n 2 "$bin/stage0_ddp" "${small[@]}" --steps 1000000 >/dev/null 2>"$scratch/stderr"
grep -q "^error: interrupted" "$scratch/stderr" || fail "an interrupt is not said: $(cat "$scratch/stderr")"
# Settings of precision, dropout and sharding groups.
expected=(2 "--dropout 1 is not a number from 0 and below 1")
on 3 "$bin/stage3_params" --dropout 1
expected=(2 "--precision fp16 is not one of fp32, bf16")
on 3 "$bin/stage1_optimizer" --precision fp16
expected=(2 "--shard-group 3 is neither a power of two that divides 4 ranks nor all of them")
on 4 "$bin/stage3_params" --shard-group 3
expected=(2 "--shard-group 2 is neither a power of two that divides 3 ranks nor all of them")
on 3 "$bin/stage3_params" --shard-group 2
expected=(2 "--shard-group 0 is not a whole number")
on 2 "$bin/stage3_params" --shard-group 0
for program in stage0_ddp stage1_optimizer stage2_gradients; do
  expected=(2 "--shard-group is not an option of $program; stage3_params offers it")
  on 1 "$bin/$program" --shard-group 1
done
ends 2 "--shard-group is not an option of baseline; stage3_params offers it" "$bin/baseline" --shard-group 1
expected=(2 "--accumulation local-first is not offered by stage3_params")
on 2 "$bin/stage3_params" --accumulation local-first
expected=(2 "baseline is one process and was started as 2")
on 2 "$bin/baseline"

# Ranks of different minds, before any of them reads an option.
ends 2 "rank 1 was started with another program or other options than rank 0" env OMPI_ALLOW_RUN_AS_ROOT=1 \
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --quiet --oversubscribe \
  -n 1 "$bin/stage0_ddp" "${small[@]}" : -n 1 "$bin/stage0_ddp" "${small[@]}" --nope
# What cannot be started, a rank killed from outside, a full standard output.
expected=(2 "is not a program")
on 2 "$bin/stage9"
# shellcheck disable=SC2016  # the inner bash expands them
ends 3 "was ended by signal 9" bash -c \
  '(sleep 2; pkill -9 -o -f "^$1 --layers 1 .*--seed 77") & exec "$0" -n 2 "$@"' "$source/tools/run" \
  "$bin/stage2_gradients" "${small[@]}" --steps 1000000 --seed 77
ends 3 "standard output could not be written" bash -c 'exec "$@" >/dev/full' _ "$bin/baseline" "${small[@]}" --steps 1

# A job that is stopped and goes on was never late.
(sleep 1; pkill -STOP -f "^$bin/stage1_optimizer .*--seed 78"; sleep 2; pkill -CONT -f "^$bin/stage1_optimizer .*--seed 78") &
timeout 20 "$source/tools/run" -n 2 "$bin/stage1_optimizer" --micro-batch 1 --steps 150 --seed 78 --timeout 1 \
  >/dev/null 2>"$scratch/stderr" || fail "a job that was stopped for a while ended: $(cat "$scratch/stderr")"
wait

# A disk that is full after 1 KiB.
ends 3 "metrics.jsonl cannot be written" bash -c \
  'trap "" XFSZ; ulimit -f 1; exec "$@"' _ "$bin/baseline" "${small[@]}" --steps 50 --out "$scratch/full"
[[ ! -e $scratch/full/summary.json ]] || fail "a failed run left a summary"

# Data that shrink while four ranks read them.
head -c 100000 "$source/docs/corpus.txt" >"$scratch/data.txt"
(sleep 1.5; : >"$scratch/data.txt") &
expected=(3 "has shrunk since the run began")
on 4 "$bin/stage2_gradients" "${small[@]}" --steps 1000000 --data "$scratch/data.txt"
wait

echo "$failures failures"
exit $((failures > 0))
