#!/usr/bin/env python3
"""scripts/count-tests on logs as meson writes them: what is counted, what is said of failures, the sum last.

Usage: test_count_tests.py SCRIPT"""
import json
import os
import subprocess
import sys
import tempfile

RUN, OK, FAILED = "[ RUN      ] ", "[       OK ] ", "[  FAILED  ] "
CMOCKA = [RUN + "good", "good says this", OK + "good"]
WRONG = [RUN + "bad", "bad.c:7: error: 1 != 2", FAILED + "bad"]
HUNDRED = ["line %d" % i for i in range(100)]
SUMS = ["[  PASSED  ] 3 test(s).", "[  SKIPPED ] 1 test(s), listed below:"]


def entry(result, said, **more):
    return {"name": "folder / test", "result": result, "returncode": 1, "duration": 3.2, "env": {},
            "stdout": "\n".join(said), **more}


# What, logs by name (the tests of each), the lines that have to come, in this order, lines that may not, the status.
TABLE = [
    ("rows are counted", {"plain": [entry("OK", CMOCKA + SUMS)]},
     ["3 passed, 0 failed, 1 skipped"], ["failed:", "said"], 0),
    ("programs without rows",
     {"plain": [entry("OK", ["hello"]), entry("SKIP", [])], "asan": [entry("EXPECTEDFAIL", [])]},
     ["2 passed, 0 failed, 1 skipped"], ["hello"], 0),
    ("nothing at all", {"plain": []}, ["0 passed, 0 failed, 0 skipped"], [], 1),
    ("a row that fails, far from the end",
     {"plain": [entry("FAIL", WRONG + CMOCKA * 100 + SUMS + ["[  FAILED  ] rows: 2 test(s), listed below:"])]},
     ["---- plain: folder / test (FAIL, exit status 1, after 3 s) said last:", RUN + "bad", "bad.c:7: error: 1 != 2",
      FAILED + "bad", "failed: plain: folder / test", "3 passed, 2 failed, 1 skipped"], ["good"], 1),
    ("a row that does not end", {"tsan": [entry("TIMEOUT", CMOCKA + [RUN + "endless"])]},
     ["(TIMEOUT", RUN + "endless", "0 passed, 1 failed, 0 skipped"], ["good"], 1),
    ("no output, or on standard error", {"vm": [entry("FAIL", []), entry("ERROR", [], stderr="no such thing")]},
     ["nothing", "no such thing", "failed: vm: folder / test (FAIL", "failed: vm: folder / test (ERROR",
      "0 passed, 2 failed, 0 skipped"], [], 1),
    ("how rows were drawn",
     {"asan": [entry("FAIL", ["x"], env={"COLLET_TEST_SEED": "7", "COLLET_TEST_SAMPLE": "1/6", "HOME": "/h"})]},
     ["after 3 s; COLLET_TEST_SEED=7; COLLET_TEST_SAMPLE=1/6)", "0 passed, 1 failed, 0 skipped"], ["HOME"], 1),
    ("a long end is cut", {"vm": [entry("FAIL", HUNDRED)]}, ["line 40", "line 99"], ["line 39"], 1),
    ("many ends are short", {"vm": [entry("FAIL", HUNDRED)] * 30}, ["line 88", "line 99"], ["line 87"], 1),
]


def look(script, logs, wanted, unwanted, status):
    """What is wrong, or None."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, tests in logs.items():
            paths.append(os.path.join(folder, name + ".json"))
            with open(paths[-1], "w", encoding="utf-8") as log:
                log.writelines(json.dumps(test) + "\n" for test in tests)
        done = subprocess.run([sys.executable, script] + paths, capture_output=True, text=True, timeout=60, check=False)
    lines, at = done.stdout.splitlines(), 0
    if done.returncode != status:
        return "status %d, not %d" % (done.returncode, status)
    for text in wanted:
        while at < len(lines) and text not in lines[at]:
            at += 1
        if at == len(lines):
            return "no '%s' where it should be" % text
    if any(text in line for line in lines for text in unwanted):
        return "one of %s" % unwanted
    return None if " skipped" in lines[-1] else "the sum is not last"


def main(script):
    failed = 0
    for what, logs, wanted, unwanted, status in TABLE:
        wrong = look(script, logs, wanted, unwanted, status)
        print("%s: %s" % (what, wrong or "ok"))
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
