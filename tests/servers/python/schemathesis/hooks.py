"""Keeps random requests harmless, and lets some of them meet a server that is there.

`KEPT` is a config file with the servers that the test has added: `one`, which runs, and `spare`, which may be changed.
"""

import itertools
import os
import pathlib
import random

import schemathesis
from schemathesis import GenerationMode

KEPT = pathlib.Path(os.environ["KEPT"]).read_text()
# What each of them can be called by: its name or its id.
ONE, SPARE = (("one", os.environ["ONE"]), ("spare", os.environ["SPARE"]))

numbers = itertools.count()


def now_and_then(case):
    """True for half of all cases, and always for the same ones."""
    return random.Random(repr((case.path, case.path_parameters, case.body))).random() < 0.5


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body if isinstance(case.body, dict) else {}
    is_sound = case.meta is None or case.meta.generation.mode == GenerationMode.POSITIVE
    if case.path.startswith("/api/servers") and case.method != "PATCH":
        fit_transport(body)
        if is_sound:
            mend(body)
    if case.path.startswith("/api/servers/{id}") and case.path_parameters:
        case.path_parameters["id"] = whom(case, str(case.path_parameters.get("id")))
    if case.path == "/api/agents/mcp/reconnect" and is_sound and now_and_then(case):
        body["name"] = "one"
    if case.path == "/api/calls" and "tool" in body and is_sound and now_and_then(case):
        body.pop("server", None)
        body.update(tool="one_echo", timeout_ms=20_000)
        if body.get("arguments") is not None:
            body["arguments"]["text"] = "hello"
    if case.path == "/api/config" and isinstance(body.get("text"), str):
        # Whatever is saved, the two servers stay.
        body["text"] = KEPT + ("" if is_sound and now_and_then(case) else body["text"])


def whom(case, given):
    """The server that a request is about. One that an earlier request has added stays."""
    if case.method == "DELETE":
        return "nobody" if given in ONE + SPARE else given
    harms = case.path.endswith(("/stop", "/disable")) or case.method in ("PUT", "PATCH")
    if harms and given in ONE:
        return SPARE[1]
    if "-" in given or not now_and_then(case):
        return given
    return SPARE[1] if harms else ONE[0]


def fit_transport(body):
    """Gives a config the way to talk that fits its package. An endpoint is on this machine, where nobody listens."""
    package, transport = body.get("package"), body.get("transport")
    if not isinstance(package, dict):
        return
    is_plain = isinstance(transport, dict) and transport.keys() <= {"type", "url"} and transport.get("type") in ("stdio", "http")
    if transport == "stdio" or is_plain and isinstance(transport.get("url", ""), (str, type(None))):
        is_endpoint = package.get("package_type") == "http"
        body["transport"] = {"type": "http", "url": "http://127.0.0.1:9/"} if is_endpoint else "stdio"


def mend(body):
    """Keeps the other rules that span several members, because hardly any random config does."""
    if "package" not in body:
        return
    for member in ("config", "env_vars", "id"):
        body.pop(member, None)
    # Any other would be taken soon.
    body["name"] = f"server {next(numbers)}"
