#!/usr/bin/env python3
"""Runs scripts/check-commits on messages, good and bad, and in small repositories: which commits it checks, and what it
says where history is cut off or missing.

Usage: test_check_commits.py SCRIPT"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import loader

WHY = "\n\nWithout it, two ranks wait for each other.\n"

# A message, and the beginnings of the sentences about it.
MESSAGES = [
    ("shm: poll the sender's core less often" + WHY, []),
    ("tests/api: re-read what a starved machine has missed" + WHY, []),
    ("scripts/measure, docs: focus on one table" + WHY, []),
    ("tcp: pass the rest on" + WHY, []),
    ("tcp: need no socket" + WHY, []),
    ("tcp: " + "a" * 67 + WHY, []),
    ("tcp: " + "a" * 68 + WHY, ["the subject has 73 columns"]),
    ("tcp: say " + "\u4e2d" * 32 + WHY, ["the subject has 73 columns"]),
    ("poll the sender's core less often" + WHY, ['the subject is not "area: what"']),
    ("shm:poll less often" + WHY, ['the subject is not "area: what"']),
    ("Merge the branch" + WHY, ['the subject is not "area: what"']),
    ("shm: Poll less often" + WHY, ['"Poll" is no verb']),
    ("shm: polled less often" + WHY, ['"polled" is no verb']),
    ("shm: polls less often" + WHY, ['"polls" is no verb']),
    ("shm: polling less often" + WHY, ['"polling" is no verb']),
    ("shm: re-reads the flag" + WHY, ['"re-reads" is no verb']),
    ("shm: the sender's core is polled less often" + WHY, ['"the" is no verb']),
    ("shm: made the poll cheaper" + WHY, ['"made" is no verb']),
    ("shm: 3 % less time" + WHY, ['"3" is no verb']),
    ("shm: poll less often", ["there is no body"]),
    ("shm: poll less often\n\nSigned-off-by: A Rank <rank@host>\n", ["there is no body"]),
    ("shm: poll less often\nIt is too much.\n", ["the second line is not blank"]),
    ("", ['the subject is not "area: what"', "there is no body"]),
    ("Polled less often, as there is no reason to poll any more than what is here", [
        "the subject has 75 columns", 'the subject is not "area: what"', "there is no body"]),
]

GOOD, BAD, ADD = "shm: poll less often" + WHY, "polled less often", "scripts: add the check of commits" + WHY

# What, the commits (ADD adds the script; MERGE merges a branch that has grown from the first commit, with one bad
# commit before the rule), how deep the clone is (None: all), the last line that is wanted, the status.
MERGE = "merge"
HISTORIES = [
    ("good commits", [BAD, ADD, GOOD, GOOD], None, "check-commits: 2 messages checked, 0 to be reworded", 0),
    ("a bad one", [GOOD, ADD, GOOD, BAD, GOOD], None, "check-commits: 3 messages checked, 1 to be reworded", 1),
    ("the script is new", [BAD, ADD], None, "check-commits: nothing to check: no commit is later than ", 0),
    ("the script is not committed", [BAD], None, "check-commits: nothing to check: no commit adds ", 0),
    ("no commit", [], None, "check-commits: nothing to check: there is no commit yet", 0),
    ("a branch from before", [BAD, ADD, GOOD, MERGE], None, "check-commits: 1 messages checked, 0 to be reworded", 0),
    ("cut off after it", [BAD, ADD, GOOD, GOOD], 2, "check-commits: 1 messages checked, 0 to be reworded", 0),
    ("cut off after it, and bad", [BAD, ADD, GOOD, BAD], 2, "check-commits: 1 messages checked, 1 to be reworded", 1),
    ("cut off at it", [BAD, ADD, GOOD], 2, "check-commits: 1 messages checked, 0 to be reworded", 0),
    ("all cut off", [BAD, ADD, GOOD], 1, "check-commits: nothing to check: ", 0),
    ("cut off before it", [BAD, BAD, ADD, GOOD], 3, "check-commits: 1 messages checked, 0 to be reworded", 0),
    ("cut off, and bad", [BAD, BAD, ADD, BAD], 3, "check-commits: 1 messages checked, 1 to be reworded", 1),
]


def git(folder, *arguments, text=None):
    """Runs git with nothing of this user's or this repository's settings."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {"GIT_%s_NAME" % who: "A Rank", "GIT_%s_EMAIL" % who: "rank@host"}
    subprocess.run(["git", "-C", str(folder), *arguments], input=text, encoding="utf-8", env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def put(script, folder):
    """Copies the script to its place in a repository."""
    (folder / "scripts").mkdir(exist_ok=True)
    return shutil.copy(script, folder / "scripts" / "check-commits")


def make_history(script, folder, commits):
    git(folder, "init", "-q", "-b", "main")
    for message in commits:
        if message == MERGE:
            git(folder, "checkout", "-q", "-b", "branch", "main~2")
            git(folder, "commit", "-q", "--allow-empty", "-F", "-", text=BAD)
            git(folder, "checkout", "-q", "main")
            git(folder, "merge", "-q", "--no-edit", "branch")
            continue
        if message == ADD:
            put(script, folder)
            git(folder, "add", "scripts/check-commits")
        git(folder, "commit", "-q", "--allow-empty", "-F", "-", text=message)


def check(script):
    """Runs a repository's copy; returns its status and its last line."""
    done = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, ((done.stdout + done.stderr).splitlines() or [""])[-1]


def look_at_history(script, commits, depth):
    with tempfile.TemporaryDirectory() as folder:
        made, clone = pathlib.Path(folder, "made"), pathlib.Path(folder, "clone")
        made.mkdir()
        make_history(script, made, commits)
        if depth:
            git(folder, "clone", "-q", "--depth", str(depth), "file://%s" % made, "clone")
        return check(put(script, clone if depth else made))


def main(script):
    if not shutil.which("git"):
        print("skipped: there is no git")
        return 77
    module, failed = loader.load(script), 0

    def tell(what, wrong):
        nonlocal failed
        failed += bool(wrong)
        print("%s: %s" % (what, wrong or "ok"))

    for message, wanted in MESSAGES:
        found = module.problems(message)
        fits = len(found) == len(wanted) and all(map(str.startswith, found, wanted))
        tell(message.partition("\n")[0] or "nothing", "" if fits else "found %s" % found)
    for what, commits, depth, last, status in HISTORIES:
        found = look_at_history(script, commits, depth)
        tell(what, "" if found[0] == status and found[1].startswith(last) else "exits %d: %s" % found)
    with tempfile.TemporaryDirectory() as folder:
        found = check(put(script, pathlib.Path(folder)))
        tell("no history", "" if found == (0, "check-commits: nothing to check: there is no git history here")
             else "exits %d: %s" % found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
