#!/usr/bin/env python3
"""Runs every client scenario of the official MCP conformance suites against one client.

    run.py [options] "<client command>"

The harness splits the command on single spaces, appends the server's URL and runs it through a shell, so
the command must contain no quoting. `npm ci` in this folder installs the suites and a Node that is new
enough for them.

Verdicts, one line a scenario:
  PASS  the harness's own verdict on the single scenario is a pass, and at least one check succeeded
  FAIL  a FAILURE or a WARNING check, a client that ran out of time, or a non-zero exit of the client
        where the scenario does not allow one
  VAC   vacuous: the harness is content, but no check succeeded (a client that does nothing gets this)

Exit status: 0 if every verdict is as expected (or, without --expect, nothing failed), 1 if not, 2 if the
command line or the installation is wrong.
"""

import argparse, concurrent.futures as cf, json, os, re, shutil, subprocess, sys, time

import harness

HOME = os.path.dirname(os.path.abspath(__file__))
SUITE = {name: os.path.join(HOME, "node_modules", "conformance-" + name) for name in ("0.2", "0.1")}


def die(msg):
    print("conformance: " + msg, file=sys.stderr)
    sys.exit(2)


def find_node():
    cands = [os.environ.get("CONF_NODE"), os.path.join(HOME, "node_modules/node/bin/node"), shutil.which("node")]
    for c in cands:
        if c and os.path.exists(c):
            try:
                v = subprocess.run([c, "--version"], capture_output=True, text=True, timeout=20).stdout.strip()
            except Exception:
                continue
            m = re.match(r"v(\d+)\.", v)
            if m and int(m.group(1)) >= 22:
                return c, v
    die("no node >= 22 found (both suites import fs.globSync, absent from node 20); run `npm ci` in tests/conformance or set CONF_NODE")


ap = argparse.ArgumentParser(prog="run.py", usage="%(prog)s [options] '<client command>'")
ap.add_argument("--suites", default="0.2,0.1", help="comma list of 0.2 and 0.1")
ap.add_argument("--legs", default="2025-11-25,2026-07-28,ext,old", help="legs of 0.2; also: ext-2026, once")
ap.add_argument("--only", default="", help="run only scenarios whose name matches this expression")
ap.add_argument("--timeout", type=float, default=30, help="seconds for the client in each scenario")
ap.add_argument("--jobs", type=int, default=1, help="scenarios at once; sse-retry is sensitive to load")
ap.add_argument("--retries", type=int, default=0, help="run a failed scenario again so often")
ap.add_argument("--out", default="target/conformance", help="folder for checks, logs and results.json")
ap.add_argument("--quiet", action="store_true", help="print only failures and the summary")
ap.add_argument("--expect", default="", help="file with the expected failures, one `suite leg scenario` a line")
ap.add_argument("command", nargs="+")
a = ap.parse_args()
CMD = " ".join(a.command)
NODE, NODEV = find_node()
OUT = os.path.abspath(a.out)
os.makedirs(OUT, exist_ok=True)


def listing(suite):
    exe = os.path.join(SUITE[suite], "dist/index.js")
    if not os.path.exists(exe):
        die("suite %s is not installed at %s (run `npm ci` in tests/conformance)" % (suite, SUITE[suite]))
    r = subprocess.run([NODE, exe, "list", "--client"], capture_output=True, text=True, timeout=120)
    got = re.findall(r"^\s+- (\S+) \[([^\]]*)\]", r.stdout, re.M)
    if not got:
        die("could not list scenarios of suite %s: %s" % (suite, r.stderr[-400:]))
    return [(n, v.split(",")) for n, v in got]


def required(rev):
    """Scored client scenarios of a frozen requirement set (0.2 only)."""
    p = os.path.join(SUITE["0.2"], "requirements", rev + ".yaml")
    if not os.path.exists(p):
        return set()
    names, on = set(), False
    for line in open(p):
        if re.match(r"^\S", line) and not line.startswith("#"):
            on = line.startswith("client:")
        elif on:
            m = re.match(r"\s+- (\S+)\s*$", line)
            if m:
                names.add(m.group(1))
    return names


def version(suite):
    return json.load(open(os.path.join(SUITE[suite], "package.json")))["version"]


runs = []  # (suite, leg, scenario, extra harness args)
want = [s.strip() for s in a.suites.split(",") if s.strip()]
legs = [s.strip() for s in a.legs.split(",") if s.strip()]
for s in want:
    if s not in SUITE:
        die("unknown suite %r (0.2 or 0.1)" % s)
if "0.2" in want:
    names = listing("0.2")
    for leg in legs:
        if leg in ("2025-11-25", "2026-07-28"):
            runs += [("0.2", leg, n, ["--spec-version", leg]) for n, v in names if leg in v]
        elif leg == "ext":
            runs += [("0.2", "ext", n, []) for n, v in names if v == ["extension"]]
        elif leg == "ext-2026":
            runs += [("0.2", "ext-2026", n, ["--spec-version", "2026-07-28", "--force"]) for n, v in names if v == ["extension"]]
        elif leg == "old":
            for ver in ("2025-06-18", "2025-03-26"):
                runs += [("0.2", ver, n, ["--spec-version", ver]) for n, v in names if ver in v]
        elif leg == "once":
            runs += [("0.2", "once", n, []) for n, v in names]
        else:
            die("unknown leg %r" % leg)
if "0.1" in want:
    # 0.1.16 has no per-version wire: every scenario runs once.
    runs += [("0.1", "all", n, []) for n, v in listing("0.1")]
if a.only:
    rx = re.compile(a.only)
    runs = [r for r in runs if rx.search(r[2])]
if not runs:
    die("nothing to run")
REQ = {rev: required(rev) for rev in ("2025-11-25", "2026-07-28")} if "0.2" in want else {}


def once(suite, leg, name, extra, attempt):
    d = os.path.join(OUT, suite, leg, name.replace("/", "_"))
    if attempt == 0:
        shutil.rmtree(d, ignore_errors=True)
    d = os.path.join(d, "try%d" % attempt)
    os.makedirs(d, exist_ok=True)
    argv = [NODE, os.path.join(SUITE[suite], "dist/index.js"), "client", "--command", CMD, "--scenario", name,
            "--timeout", str(int(a.timeout * 1000)), "-o", d] + extra
    t0 = time.time()
    rc = harness.run(argv, d, a.timeout + 15)
    hung = rc is None
    secs = time.time() - t0
    text = open(os.path.join(d, "harness.log"), errors="replace").read()
    checks = harness.checks(d)
    n = {k: sum(c["status"] == k for c in checks) for k in ("SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO")}
    m = re.search(r"Client exited with code (-?\d+)", text)
    code = int(m.group(1)) if m else 0
    timed = hung or "Client timed out after" in text
    suite_ok = bool(checks or not hung) and n["FAILURE"] == 0 and n["WARNING"] == 0 and not hung
    why = []
    if hung:
        why.append("harness hung, killed")
    elif timed:
        why.append("client timed out")
    bad = [c for c in checks if c["status"] in ("FAILURE", "WARNING")]
    seen = []
    for c in bad:
        key = ("W:" if c["status"] == "WARNING" else "") + c["id"]
        if key not in seen:
            seen.append(key)
    why += seen
    if rc != 0 and not bad and not timed:
        why.append("client exit %d" % code if code else "harness exit %d" % rc)
    verdict = "FAIL" if (rc != 0 or hung) else ("PASS" if n["SUCCESS"] else "VAC")
    return dict(suite=suite, leg=leg, scenario=name, verdict=verdict, suite_ok=suite_ok, checks=n, why=why,
                client_exit=code, timed_out=timed, secs=round(secs, 2),
                required=name in REQ.get(leg, ()) if suite == "0.2" else None, tries=attempt + 1)


def job(r):
    for k in range(a.retries + 1):
        res = once(*r, k)
        if res["verdict"] != "FAIL":
            break
    return res


print("client: %s" % CMD)
print("node %s; suites: %s; %d runs, %g s limit each" % (NODEV, ", ".join(version(s) for s in want), len(runs), a.timeout), flush=True)
results = []
t0 = time.time()
with cf.ThreadPoolExecutor(max(1, a.jobs)) as ex:
    for res in ex.map(job, runs):
        results.append(res)
        if a.quiet and res["verdict"] != "FAIL":
            continue
        n = res["checks"]
        line = "%-4s %s %-10s %-42s %3d ok %2d fail %2d warn %2d skip %6.1fs" % (
            res["verdict"], res["suite"], res["leg"], res["scenario"], n["SUCCESS"], n["FAILURE"], n["WARNING"], n["SKIPPED"], res["secs"])
        if res["tries"] > 1:
            line += "  (try %d)" % res["tries"]
        if res["why"]:
            line += "  " + ", ".join(res["why"])[:200]
        print(line, flush=True)

json.dump(dict(command=CMD, node=NODEV, versions={s: version(s) for s in want}, results=results),
          open(os.path.join(OUT, "results.json"), "w"), indent=1)


def tally(rs):
    return (sum(r["verdict"] == "PASS" for r in rs), sum(r["verdict"] == "FAIL" for r in rs), sum(r["verdict"] == "VAC" for r in rs))


print("\n%-28s %5s %5s %5s %5s   %s" % ("leg", "runs", "pass", "fail", "vac", "checks ok/fail/warn"))
order = []
for r in results:
    if (r["suite"], r["leg"]) not in order:
        order.append((r["suite"], r["leg"]))
for s, leg in order:
    rs = [r for r in results if (r["suite"], r["leg"]) == (s, leg)]
    p, f, v = tally(rs)
    c = [sum(r["checks"][k] for r in rs) for k in ("SUCCESS", "FAILURE", "WARNING")]
    print("%-28s %5d %5d %5d %5d   %d/%d/%d" % (version(s) + " " + leg, len(rs), p, f, v, *c))
    rq = [r for r in rs if r["required"]]
    if rq:
        p2, f2, v2 = tally(rq)
        # requirementsExitCode() looks at FAILURE checks only
        off = sum(r["checks"]["FAILURE"] == 0 and not (r["timed_out"] and not sum(r["checks"].values())) for r in rq)
        print("%-28s %5d %5d %5d %5d   by the harness's --requirements rule: %d/%d" % ("   of these required", len(rq), p2, f2, v2, off, len(rq)))
p, f, v = tally(results)
print("\nharness suite-mode rule (client exit code and time-outs ignored): %d of %d" % (sum(r["suite_ok"] for r in results), len(results)))
print("%.0f s; details in %s" % (time.time() - t0, OUT))
print("%d passed, %d failed%s" % (p, f, ", %d vacuous" % v if v else ""))
if not a.expect:
    sys.exit(1 if f else 0)
expected = set()
for line in open(a.expect):
    words = line.split("#")[0].split()
    if words:
        expected.add(tuple(words))
ran = {(r["suite"], r["leg"], r["scenario"]): r["verdict"] for r in results}
surprises = ["%s %s %s: %s, expected to pass" % (*key, verdict) for key, verdict in ran.items() if verdict != "PASS" and key not in expected]
surprises += ["%s %s %s: passes now, take it out of %s" % (*key, os.path.basename(a.expect)) for key, verdict in ran.items() if verdict == "PASS" and key in expected]
for surprise in surprises:
    print("UNEXPECTED: " + surprise)
print("as expected" if not surprises else "%d unexpected" % len(surprises))
sys.exit(1 if surprises else 0)
