//! Shell completion: names from the config and the tool cache, without starting servers.

use toolrack_testkit::skipped;

use crate::stage::Stage;

const CONFIG: &str = "
[[defaults.mcp]]
name = \"demo\"
transport = \"stdio\"
command = \"demo-server\"

[[defaults.mcp]]
name = \"other\"
transport = \"stdio\"
command = \"touch\"
args = [\"started\"]
";

fn stage() -> Stage {
    let stage = Stage::new();
    stage.put("home/toolrack.toml", CONFIG);
    assert_eq!(stage.run(&["-q", "tools", "demo"]).status.code(), Some(0));
    stage
}

#[track_caller]
fn check(stage: &Stage, words: &[&str], expected: &str) {
    let outcome = stage.run(&[&["__complete", "--"], words].concat());
    assert_eq!((outcome.output.as_str(), outcome.talk.as_str()), (expected, ""), "{words:?}");
    assert_eq!(outcome.status.code(), Some(0));
}

#[test]
fn names_are_completed_from_what_is_known() {
    let stage = stage();
    check(&stage, &["tools", ""], "demo\t\nother\t\n");
    check(&stage, &["call", "demo.a"], "demo.add\tAdds two numbers\n");
    check(&stage, &["call", "demo.add", ""], "a=\t\nb=\t\n");
    check(
        &stage,
        &["comp"],
        "completion\tPrint what makes your shell complete names and options\n",
    );
    assert!(!stage.path().join("work/started").exists());
    // With an invalid config there are no candidates and no messages.
    stage.put("home/toolrack.toml", "[[");
    check(&stage, &["tools", ""], "");
    check(
        &stage,
        &["comp"],
        "completion\tPrint what makes your shell complete names and options\n",
    );
}

#[track_caller]
fn check_shell(shell: &str, script: &str, expected: &str) {
    let stage = stage();
    if !stage.shell(&format!("command -v {shell}")).status.success() {
        return skipped("completion", &format!("there is no `{shell}`"));
    }
    stage.put("work/script", script);
    let outcome = stage.shell(&format!("{shell} script"));
    assert_eq!((outcome.output.as_str(), outcome.talk.as_str()), (expected, ""), "{shell}");
}

#[test]
fn bash_completes() {
    let script = "
source <(toolrack completion bash)
COMP_WORDS=(toolrack call demo.) COMP_CWORD=2
_toolrack
printf '%s\\n' \"${COMPREPLY[@]}\"
";
    check_shell(
        "bash",
        script,
        "demo.greet\ndemo.add\ndemo.dice\ndemo.countdown\ndemo.word_count\n",
    );
}

#[test]
fn zsh_reads_its_script() {
    let script = "
compdef() { echo \"$2\" }
_describe() { print -l -- $found }
source <(toolrack completion zsh)
words=(toolrack tools d) CURRENT=3
_toolrack
";
    check_shell("zsh", script, "toolrack\ndemo:\n");
}

#[test]
fn fish_completes() {
    let script = "
toolrack completion fish | source
complete -C 'toolrack tools d'
";
    check_shell("fish", script, "demo\n");
}

#[test]
fn no_shell_is_given_what_it_would_run() {
    let stage = stage();
    let hostile = "\n[[defaults.mcp]]\nname = \"demo$(touch owned)\"\ncommand = \"true\"\n";
    stage.put("home/toolrack.toml", &format!("{CONFIG}{hostile}"));
    check(&stage, &["tools", "d"], "demo\t\n");
    assert!(!stage.path().join("work/owned").exists());
}
