#!/usr/bin/env bash
# scripts/gpu-check on the stand-in for the driver: every part runs, what it measures is kept, what is wrong is a failure;
# and without a GPU it says so and does nothing.
#   test_gpu_check.sh SCRIPT BUILD
set -euo pipefail
script=$1 build=$2 python=$(python3 -c 'import sys; print(sys.executable)')
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

fail() { echo "failed: $*"; cat "$root/said"; exit 1; }

# No nvidia-smi in sight.
status=0; PATH=/nowhere "$python" "$script" --out "$root/none" >"$root/said" 2>&1 || status=$?
[ $status = 77 ] || fail "status $status without a GPU"
grep -q 'there is no NVIDIA GPU here' "$root/said" || fail 'no sentence about the GPU'
[ ! -e "$root/none" ] || fail 'a folder without a GPU'

# The parts that are this script's own; training is tested elsewhere.
"$script" --fake --build "$build" --out "$root/out" --only suite,sanitizer,delays,bench,tests >"$root/said" 2>&1 ||
	fail "status $?"
grep -q ' ok, 0 failed, 1 not run' "$root/said" || fail 'not all of it went'
grep -q "^ok .* copy within the GPU's memory: .* GB/s" "$root/out/gpu-check.txt" || fail 'no table'
python3 - "$root/out/gpu-check.json" <<'END' || fail 'the JSON is not what it should be'
import json, sys
result = json.load(open(sys.argv[1]))
rows = {row["name"]: row for row in result["rows"]}
assert result["machine"]["fake"] is True
assert rows["allreduce 64K, 2 threads"]["value"] > 0 and rows["allreduce 64K, 2 threads"]["least"] == 0.8
assert rows["allreduce 64K, 2 threads"]["measurement"]["device"] == "a stand-in for a GPU"
assert rows["allreduce 8 B in a graph, 2 threads"]["measurement"]["calling"] == "graph"
assert rows["allreduce 8 B on a stream, 2 threads"]["most"] == 12
assert rows["what a call on a stream costs the host"]["value"] > 0
assert rows["reduction kernel alone, bf16, 2 into 1"]["least"] == 0.9
assert rows["fold"]["result"] == "ok" and rows["allreduce --graph, 2 processes"]["result"] == "ok"
assert all("; asked for at " in row["text"] for row in result["rows"] if row.get("most") or row.get("least"))
assert rows["compute-sanitizer"]["result"] == "not run"
END

# Nothing keeps it: what takes too long is ended, though something of it lives on and holds its output; what is not there
# is said; and the result is there all the while.
python3 - "$script" "$root/kept" >"$root/said" 2>&1 <<'END' || fail 'something kept it'
import argparse, importlib.machinery, importlib.util, json, sys, time
loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(module)
check = module.Check(argparse.Namespace(fake=True, build=None, out=sys.argv[2]))
began = time.monotonic()
status, output = check.run(["sh", "-c", "setsid sleep 20 & echo begun; sleep 20"], 1)
assert (status, output) == (124, "begun\n\nended after 1 s") and time.monotonic() - began < 15, output
assert check.run(["/no/such/program"], 1) == (127, "/no/such/program: No such file or directory")
check.note("part", "first", True)
assert [row["name"] for row in json.load(open(sys.argv[2] + "/gpu-check.json"))["rows"]] == ["first"]
check.part_ends = time.monotonic()
try:
    check.run(["true"], 1)
    raise AssertionError("time was over")
except TimeoutError:
    pass
END

# A driver that fails is a failure of each part, and the end is come to all the same.
status=0; FAKE_CUDA_FAIL=cuMemAlloc:0:2 "$script" --fake --build "$build" --out "$root/out" --only bench >"$root/said" 2>&1 ||
	status=$?
[ $status = 1 ] || fail "status $status with a driver that fails"
grep -q '^0 ok, 13 failed' "$root/said" || fail 'not every part failed'
grep -q 'CUDA_ERROR_OUT_OF_MEMORY' "$root/out/gpu-check.txt" || fail 'no reason'
