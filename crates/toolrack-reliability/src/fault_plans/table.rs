//! Table of fault plans. A row has a name, the covered faults, the script and the steps.

use toolrack_transport::ExitStatus;

use super::Expected::{
    Echo, Exited, Gone, InputClosed, Malformed, OutputClosed, Oversize, Refused, Result, Timeout,
};
use super::{Action, Expected, Plan, Step, Weight};

const fn light(
    name: &'static str,
    faults: &'static str,
    script: &'static str,
    steps: &'static [Step],
) -> Plan {
    Plan { name, faults, script, steps, weight: Weight::Light, n_cancelled: None }
}

const fn heavy(
    name: &'static str,
    faults: &'static str,
    script: &'static str,
    steps: &'static [Step],
) -> Plan {
    Plan { name, faults, script, steps, weight: Weight::Heavy, n_cancelled: None }
}

const fn cancelling(n_cancelled: usize, plan: Plan) -> Plan {
    Plan { n_cancelled: Some(n_cancelled), ..plan }
}

const fn initialize(expected: Expected) -> Step {
    Step { action: Action::Initialize, expected }
}

const fn call(expected: Expected) -> Step {
    Step { action: Action::Call { n_calls: 1, bytes: 0 }, expected }
}

const fn calls(n_calls: usize, bytes: usize, expected: Expected) -> Step {
    Step { action: Action::Call { n_calls, bytes }, expected }
}

/// A call that fails with the exit of the server.
const fn exits(code: i32) -> Step {
    call(Exited(ExitStatus::Code(code)))
}

const fn list(expected: Expected) -> Step {
    Step { action: Action::List, expected }
}

const ECHO: Step = call(Echo);
const NO_RESPONSE: Step = call(Timeout);
const MIB: usize = 1 << 20;

pub(crate) const PLANS: &[Plan] = &[
    // Lines that are not messages.
    light("banner", "F21 F37", "start=garbage(text,5)", &[ECHO, ECHO]),
    light("log-lines", "F21", "call=garbage(json,100)", &[ECHO]),
    light("ansi", "F21", "call=garbage(ansi,3)", &[ECHO]),
    light("blank-lines", "F22", "call=garbage(blank,10)+garbage(crlf,10)+garbage(bom,2)", &[ECHO]),
    light("invalid-utf8", "F27", "call=garbage(utf8,3)", &[ECHO]),
    heavy("garbage-flood", "F21 F33", "call=garbage(text,200000)", &[ECHO]),
    heavy("garbage-forever", "F21 F33", "call=garbage(text,forever)", &[NO_RESPONSE]),
    heavy("nonsense-flood", "F33 F53", "call=nonsense(200000)", &[ECHO]),
    heavy("nonsense-forever", "F33 F53", "call=nonsense(forever)", &[NO_RESPONSE]),
    // Unusual framing of responses.
    light("crlf", "F22", "call=frame(crlf)", &[ECHO]),
    light("byte-order-mark", "F22", "call=frame(bom)", &[ECHO]),
    light("byte-by-byte", "F24 F25 F26 F28", "call=frame(bytewise)", &[ECHO]),
    light("batch", "F51", "call=frame(batch)", &[ECHO]),
    light("large-echo", "F24 F28", "", &[calls(3, 2 * MIB, Echo)]),
    light("large-bytewise", "F24 F25", "call=frame(bytewise)", &[calls(1, 64 << 10, Echo)]),
    // Lines over the size limit.
    heavy("huge-junk", "F23", "call:1=huge(40MiB)", &[call(Oversize), ECHO]),
    heavy("huge-open", "F23", "call:1=huge(40MiB,open)", &[NO_RESPONSE, call(Oversize), ECHO]),
    heavy("huge-front", "F23", "call:1=huge(40MiB,front)", &[call(Oversize), ECHO]),
    heavy("huge-back", "F23", "call:1=huge(40MiB,back)", &[call(Oversize), ECHO]),
    // Stderr.
    light("stderr", "F30", "call=stderr(10MiB)", &[ECHO, ECHO]),
    light("stderr-raw", "F31", "call=stderr(10MiB,raw)", &[ECHO]),
    light("stderr-at-start", "F30", "start=stderr(10MiB)", &[ECHO]),
    light("stderr-closed", "F30", "start=close(stderr)", &[ECHO]),
    // Servers that do not read.
    light("stops-reading", "F32 F43", "initialized=stopread", &[NO_RESPONSE]),
    light("stops-reading-large", "F32 F43", "initialized=stopread", &[calls(1, 2 * MIB, Timeout)]),
    light("stops-reading-many", "F32 F43", "initialized=stopread", &[calls(12, 2 * MIB, Timeout)]),
    light(
        "stops-reading-stubborn",
        "F32 F43",
        "initialized=stopread; ignore=term,eof",
        &[calls(2, 2 * MIB, Timeout)],
    ),
    light("prompt", "F38", "prompt", &[initialize(Timeout)]),
    // Servers that exit.
    light("exit-at-start", "F34", "start=exit(7)", &[initialize(Exited(ExitStatus::Code(7)))]),
    light(
        "exit-in-initialize",
        "F34",
        "initialize=exit(1)",
        &[initialize(Exited(ExitStatus::Code(1)))],
    ),
    light("exit-after-initialize", "F34", "initialized=exit(1)", &[exits(1)]),
    light("exit-in-call", "F40", "call=exit(3)", &[exits(3)]),
    light("exit-with-many", "F40", "call:1-19=hang; call:20=exit(3)", &[calls(20, 0, Gone)]),
    light("crash", "F40", "call=kill(SEGV)", &[call(Exited(ExitStatus::Signal(11)))]),
    light("half-response", "F29", "call=half(1)", &[exits(1)]),
    light("output-closed", "F35", "call=close(stdout)", &[call(OutputClosed)]),
    light("input-closed", "F34 F32", "call:1=close(stdin)", &[ECHO, call(InputClosed)]),
    light("output-leaked", "F36", "call=leak(0)", &[exits(0)]),
    light("output-after-eof", "F37", "eof=notify(1000)", &[ECHO]),
    // Late, duplicate and missing responses.
    cancelling(2, light("hang", "F41 F42", "call=hang", &[NO_RESPONSE, NO_RESPONSE])),
    cancelling(20, light("hang-many", "F41 F42", "call=hang", &[calls(20, 0, Timeout)])),
    light("hang-in-initialize", "F41", "initialize=hang", &[initialize(Timeout)]),
    light("late", "F46", "call:1=late(2500ms)", &[NO_RESPONSE, ECHO, ECHO]),
    light("slow", "F46", "call=late(200ms)", &[ECHO]),
    light("twice", "F47", "call=dup", &[ECHO, ECHO]),
    light("out-of-order", "F46", "call=hold(8)", &[calls(8, 0, Echo)]),
    // Ids.
    light("id-zero", "F48", "call=id(zero)", &[NO_RESPONSE]),
    light("id-unknown", "F48", "call=id(unknown)", &[NO_RESPONSE]),
    light("id-text", "F49", "call=id(text)", &[ECHO]),
    light("id-float", "F49", "call=id(float)", &[ECHO]),
    light("id-null", "F49", "call=id(null)", &[NO_RESPONSE]),
    light("id-null-error", "F49", "call=error(-32603)+id(null)", &[call(Refused(-32603))]),
    // Message shapes.
    light("both", "F53", "call=shape(both)", &[call(Malformed)]),
    light("neither", "F53", "call=shape(neither)", &[call(Malformed)]),
    light("null-result", "F53", "call=shape(null)", &[call(Result)]),
    light("number-result", "F53", "call=shape(number)", &[call(Result)]),
    light("unknown-result-type", "F53", "call=shape(alien)", &[call(Result)]),
    light("error", "F53", "call=error(-32601)", &[call(Refused(-32601))]),
    // Unsolicited messages from the server.
    light("pings", "F54 F55", "call=ping(3)", &[ECHO, ECHO]),
    heavy("many-pings", "F54 F56", "call:1=ping(100000)", &[ECHO, ECHO]),
    heavy("pings-forever", "F54 F56", "call=ping(forever)", &[NO_RESPONSE]),
    heavy("many-notifications", "F57", "call:1=notify(200000)", &[ECHO, ECHO]),
    heavy("notifications-forever", "F57", "call=notify(forever)", &[NO_RESPONSE]),
    light("changes", "F58", "call:1=changed(1000,1ms)", &[ECHO, list(Result)]),
    heavy("changes-much", "F58", "call:1=changed(200000)", &[ECHO, list(Result)]),
    // Versions and lists.
    light("unknown-version", "F60", "version=1999-01-01", &[initialize(Result), ECHO]),
    light("same-cursor", "F61", "cursor=same", &[list(Result), ECHO]),
    light("empty-cursor", "F61", "cursor=empty", &[list(Result), ECHO]),
    light("endless-cursor", "F61 F62", "cursor=endless", &[list(Result), ECHO]),
    // Processes that resist shutdown.
    light("ignores-term", "F04", "ignore=term", &[ECHO]),
    light("ignores-eof", "F04", "ignore=eof", &[ECHO]),
    light("ignores-both", "F04", "ignore=term,eof", &[ECHO]),
    light("ignores-both-and-hangs", "F04 F41", "ignore=term,eof; call=hang", &[NO_RESPONSE]),
    light("children", "F01", "children=3", &[ECHO]),
    light("tree", "F01", "tree", &[ECHO]),
    light("tree-dies", "F01 F40", "tree; call=exit(1)", &[call(Gone)]),
    light("deep-tree-ignores-both", "F01 F04", "tree=2; ignore=term,eof", &[ECHO]),
    light("escape", "F03", "escape=2", &[ECHO]),
    light("escape-ignores-both", "F03 F04", "escape=2; ignore=term,eof", &[ECHO]),
    light("escape-and-die", "F03 F40", "escape=2; call=exit(2)", &[exits(2)]),
    heavy("spin", "F12 F41", "call=spin", &[NO_RESPONSE]),
    heavy("spin-in-initialize", "F12 F41", "initialize=spin", &[initialize(Timeout)]),
];
