#!/usr/bin/env bash
# scripts/gpu-check on the stand-in for the driver: every part runs, what it measures is kept, what is wrong is a failure;
# and without a GPU it says so and does nothing.
#   test_gpu_check.sh SCRIPT BUILD
set -euo pipefail
script=$1 build=$2 tests=$(dirname "$0")/../cuda python=$(python3 -c 'import sys; print(sys.executable)')
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

fail() { echo "failed: $*"; cat "$root/said"; exit 1; }

# No nvidia-smi in sight. (With a GPU there it would begin to build.)
if [ ! -e /dev/nvidia0 ]; then
	status=0; PATH=/nowhere "$python" "$script" --out "$root/none" >"$root/said" 2>&1 || status=$?
	[ $status = 77 ] || fail "status $status without a GPU"
	grep -q 'there is no NVIDIA GPU here' "$root/said" || fail 'no sentence about the GPU'
	[ ! -e "$root/none" ] || fail 'a folder without a GPU'
fi

# Every part; the layers that are trained are the CPU's, where they were built.
trains=0; [ ! -x "$build/train/collet-train" ] || trains=1
"$script" --fake --build "$build" --out "$root/out" >"$root/said" 2>&1 || fail "status $?"
grep -q " ok, 0 failed, $((2 - trains)) not run" "$root/said" || fail 'not all of it went'
grep -q "^ok .* copy within the GPU's memory: .* GB/s" "$root/out/gpu-check.txt" || fail 'no table'
python3 - "$root/out/gpu-check.json" $trains <<'END' || fail 'the JSON is not what it should be'
import json, sys
result, trains = json.load(open(sys.argv[1])), int(sys.argv[2])
rows = {row["name"]: row for row in result["rows"]}
assert result["machine"]["fake"] is True
assert rows["allreduce 64K, 2 threads"]["value"] > 0 and rows["allreduce 64K, 2 threads"]["least"] == 0.8
assert rows["allreduce 64K, 2 threads"]["measurement"]["device"] == "a stand-in for a GPU"
assert rows["allreduce 8 B in a graph, 2 threads"]["measurement"]["calling"] == "graph"
assert rows["allreduce 8 B on a stream, 2 threads"]["most"] == 12
assert rows["allreduce 64K, 2 threads"]["measurement"]["calling"] == "stream"
assert rows["allreduce 64K, 2 processes"]["measurement"]["calling"] == "stream"
hosts = [row for name, row in rows.items() if name.startswith("what a call costs the host")]
assert len(hosts) == 3 and all(row["value"] > 0 and row["most"] == 5 for row in hosts)
for ways in ["2 processes, from GPU to GPU", "2 threads, from GPU to GPU", "2 processes, by way of the host"]:
    assert rows["messages of 128K, " + ways]["value"] > 0
assert rows["reduction kernel alone, bf16, 2 into 1"]["least"] == 0.9
assert rows["reduce-kernels"]["result"] == "ok" and rows["allreduce --graph, 2 processes"]["result"] == "ok"
assert all("; asked for at " in row["text"] for row in result["rows"] if row.get("most") or row.get("least"))
assert rows["compute-sanitizer"]["result"] == "not run"
if trains:
    assert rows["2 ranks learn what 1 rank does that does their work"]["text"].startswith("losses of 3 epochs differ")
END

# Nothing keeps it: what takes too long is ended, though something of it lives on and holds its output; what is not there
# is said; and the result is there all the while.
python3 - "$script" "$root/kept" "$build" "$tests" >"$root/said" 2>&1 <<'END' || fail 'something kept it'
import argparse, importlib.machinery, importlib.util, json, os, sys, time
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
# Every test that it names is one.
for name, pattern, _ in module.TESTS + module.OWN_GPU_TESTS:
    source, = module.pathlib.Path(sys.argv[4]).rglob("test_" + name.replace("-", "_") + ".c")
    assert not pattern or f"cmocka_unit_test({pattern})" in source.read_text(), (name, pattern)
# What there was no time for is named, case by case, in every part.
check.build = module.pathlib.Path(sys.argv[3])
for part, wanted in [("suite", "allreduce, 4 processes"), ("bench", "reduction kernels alone"),
                     ("delays", "allreduce, 2 processes"), ("tests", "reduce-kernels"), ("train", "f32, 2 ranks")]:
    if part == "train" and not check.program("collet-train").exists():
        continue
    check.rows.clear()
    module.PARTS[part][0](check)
    assert {row["result"] for row in check.rows} == {"not run"}, check.rows
    assert any(row["name"].startswith(wanted) for row in check.rows), check.rows
# What is missing is named, and what brings it.
check.run = lambda command, deadline_s: (1, '../meson.build:21:1: ERROR: C shared or static library "hwloc" not found\n\nA full log\n')
assert not module.configure(check) and 'hwloc' in check.rows[-1]["text"] and "install-deps" in check.rows[-1]["text"]
# What learns less than was asked for is a failure; what nothing was there to learn from is said.
def learn(command, deadline_s):
    epoch = {"loss": 1, "test_accuracy": 0.98, "images_per_s": 1, "hidden_s": 0, "travel_s": 1}
    command[command.index("--json") + 1].write_text(json.dumps(epoch) + "\n")
    return 0, ""
check.run = learn
os.environ["COLLET_DATA"] = sys.argv[2]
for make, wanted in [(lambda: module.train_one(check, "enough", 2, [], 1, least=0.97), "ok"),
                     (lambda: module.train_one(check, "too little", 2, [], 1, least=0.99), "FAILED"),
                     (lambda: module.mnist(check, []), "not run")]:
    make()
    assert check.rows[-1]["result"] == wanted, check.rows
END

# A driver that fails is a failure of each part, and the end is come to all the same.
status=0; FAKE_CUDA_FAIL=cuMemAlloc:0:2 "$script" --fake --build "$build" --out "$root/out" --only bench >"$root/said" 2>&1 ||
	status=$?
[ $status = 1 ] || fail "status $status with a driver that fails"
grep -q '^0 ok, 16 failed' "$root/said" || fail 'not every part failed'
grep -q 'CUDA_ERROR_OUT_OF_MEMORY' "$root/out/gpu-check.txt" || fail 'no reason'
