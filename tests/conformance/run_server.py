#!/usr/bin/env python3
"""Runs every server scenario of the official MCP conformance suites against a gateway with a fixture server behind it.

    run_server.py [options] ENDPOINT FIXTURE

ENDPOINT is `toolrack-endpoint`, FIXTURE is `fixture-server`. Each run has a wire (the revision that the suite speaks)
and a server behind the gateway of one era, so both bridges between the eras are walked too. Scenarios of extensions are
left out: the gateway passes none on.

Verdicts, one line a scenario:
  PASS  the harness's own verdict on the single scenario is a pass, and at least one check succeeded
  FAIL  a FAILURE or a WARNING check, or no verdict in time
  VAC   vacuous: the harness is content, but no check succeeded

Exit status: 0 if every verdict is as expected (or, without --expect, nothing failed), 1 if not, 2 if the command line
or the installation is wrong.
"""

import argparse, os, re, shutil, subprocess, sys, time
from concurrent import futures

import harness

HOME = os.path.dirname(os.path.abspath(__file__))
NODE = os.environ.get("CONF_NODE") or os.path.join(HOME, "node_modules/node/bin/node")
SUITE = {name: os.path.join(HOME, "node_modules", "conformance-" + name, "dist/index.js") for name in ("0.2", "0.1")}
SCORED = {"2025-11-25": 30, "2026-07-28": 37}

ap = argparse.ArgumentParser(prog="run_server.py")
ap.add_argument("--suites", default="0.2,0.1", help="comma list of 0.2 and 0.1")
ap.add_argument("--wires", default="2025-06-18,2025-11-25,2026-07-28", help="comma list of wires of 0.2")
ap.add_argument("--behind", default="2026-07-28,2025-11-25", help="comma list of revisions of the server behind")
ap.add_argument("--only", default="", help="run only scenarios whose name matches this expression")
ap.add_argument("--timeout", type=float, default=30, help="seconds for each scenario")
ap.add_argument("--retries", type=int, default=0, help="run a failed scenario again so often; some look at the clock")
ap.add_argument("--jobs", type=int, default=2, help="servers behind the gateway that are run at a time")
ap.add_argument("--out", default="target/conformance-server", help="folder for checks and logs")
ap.add_argument("--quiet", action="store_true", help="print only failures and the summary")
ap.add_argument("--expect", default="", help="file with the expected failures, one `suite wire behind scenario` a line")
ap.add_argument("endpoint")
ap.add_argument("fixture")
a = ap.parse_args()
OUT = os.path.abspath(a.out)
words = lambda text: [it.strip() for it in text.split(",") if it.strip()]


def die(msg):
    print("conformance: " + msg, file=sys.stderr)
    sys.exit(2)


for name in words(a.suites):
    if not os.path.exists(SUITE.get(name, "")):
        die("suite %s is not installed (run `npm ci` in tests/conformance)" % name)


def listing(suite):
    r = subprocess.run([NODE, SUITE[suite], "list", "--server"], capture_output=True, text=True, timeout=120)
    part = r.stdout.split("Server scenarios", 1)[-1].split("\n\n", 1)[0]
    got = re.findall(r"^\s+- (\S+) \[([^\]]*)\]", part, re.M)
    if not got:
        die("could not list scenarios of suite %s: %s" % (suite, r.stderr[-400:]))
    return [(n, v.split(",")) for n, v in got]


def scored(rev):
    """Scored server scenarios of a frozen requirement set."""
    path = os.path.join(os.path.dirname(SUITE["0.2"]), "..", "requirements", rev + ".yaml")
    text = open(path).read().split("\nserver:", 1)[-1]
    return set(re.findall(r"^\s+- (\S+)\s*$", re.split(r"^\S", text, maxsplit=1, flags=re.M)[0], re.M))


def once(url, suite, wire, behind, name):
    d = os.path.join(OUT, suite, wire, behind, name)
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    argv = [NODE, SUITE[suite], "server", "--url", url, "--scenario", name, "-o", d]
    argv += ["--spec-version", wire, "--timeout", str(int(a.timeout * 1000))] if suite == "0.2" else []
    rc = harness.run(argv, d, a.timeout + 15)
    checks = harness.checks(d)
    bad = sorted({c["id"] for c in checks if c["status"] in ("FAILURE", "WARNING")})
    n_ok = sum(c["status"] == "SUCCESS" for c in checks)
    verdict = "FAIL" if rc != 0 or bad else ("PASS" if n_ok else "VAC")
    return verdict, n_ok, bad or ([] if rc == 0 else ["harness exit %s" % rc])


def start(behind):
    argv = [a.endpoint, "--http", "127.0.0.1:0", "--raw", "fixture", "--server", "fixture", a.fixture, "--revision", behind]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    line = p.stdout.readline()
    if not line.startswith("listening "):
        p.kill()
        die("the endpoint does not start: %r" % line)
    return p, line.split()[1]


EXPECTED = set()
if a.expect:
    EXPECTED = {tuple(w) for w in (line.split("#")[0].split() for line in open(a.expect)) if w}
RUNS = []
if "0.2" in words(a.suites):
    for wire in words(a.wires):
        RUNS += [("0.2", wire, n) for n, v in listing("0.2") if wire in v]
if "0.1" in words(a.suites):
    RUNS += [("0.1", "2025-11-25", n) for n, _ in listing("0.1")]
RUNS = [run for run in RUNS if not a.only or re.search(a.only, run[2])]


def before(behind):
    """All scenarios before one server, one after the other: they share the gateway."""
    found = []
    endpoint, url = start(behind)
    try:
        for suite, wire, name in RUNS:
            t0 = time.time()
            for _ in range(a.retries + 1):
                verdict, n_ok, bad = once(url, suite, wire, behind, name)
                if verdict != "FAIL" or (suite, wire, behind, name) in EXPECTED:
                    break
            found.append((suite, wire, behind, name, verdict))
            if not a.quiet or verdict == "FAIL":
                line = "%-4s %s %s before %s %-46s %3d ok %5.1fs  %s"
                print(line % (verdict, suite, wire, behind, name, n_ok, time.time() - t0, ", ".join(bad)[:160]), flush=True)
    finally:
        endpoint.stdin.close()
        try:
            endpoint.wait(timeout=20)
        except subprocess.TimeoutExpired:
            endpoint.kill()
    return found


with futures.ThreadPoolExecutor(max(1, a.jobs)) as pool:
    results = [result for found in pool.map(before, words(a.behind)) for result in found]
if not results:
    die("nothing to run")

print("\n%-6s %-12s %-12s %5s %5s %5s %5s" % ("suite", "wire", "before", "runs", "pass", "fail", "vac"))
for key in dict.fromkeys(r[:3] for r in results):
    of = [r[4] for r in results if r[:3] == key]
    print("%-6s %-12s %-12s %5d %5d %5d %5d" % (*key, len(of), of.count("PASS"), of.count("FAIL"), of.count("VAC")))
    if key[0] == "0.2" and key[1] in SCORED and not a.only:
        need = scored(key[1])
        ok = sum(r[4] == "PASS" for r in results if r[:3] == key and r[3] in need)
        print("       of these scored: %d of %d" % (ok, len(need)))
failed = [r for r in results if r[4] == "FAIL"]
if not a.expect:
    sys.exit(1 if failed else 0)
surprises = ["%s %s %s %s: %s, expected to pass" % r for r in results if r[4] != "PASS" and r[:4] not in EXPECTED]
surprises += ["%s %s %s %s: passes now, take it out of %s" % (*r[:4], os.path.basename(a.expect)) for r in results if r[4] == "PASS" and r[:4] in EXPECTED]
for surprise in surprises:
    print("UNEXPECTED: " + surprise)
print("as expected" if not surprises else "%d unexpected" % len(surprises))
sys.exit(1 if surprises else 0)
