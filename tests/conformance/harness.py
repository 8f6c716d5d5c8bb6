"""One run of the official harness, within a time limit and with nothing left behind."""

import glob, json, os, signal, subprocess


def run(argv, folder, seconds):
    """The exit code of the harness, or None if it had to be killed. What it says goes to harness.log in the folder.

    It gets a session of its own: a time-out of the harness kills only the shell around a client, and a client that
    outlives its shell keeps the pipes open.
    """
    with open(os.path.join(folder, "harness.log"), "wb") as log:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            return p.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()


def checks(folder):
    """What the harness found, as it wrote it below the folder."""
    found = []
    for file in glob.glob(os.path.join(glob.escape(folder), "**", "checks.json"), recursive=True):
        found = json.load(open(file))
    return found
