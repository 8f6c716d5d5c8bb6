//! Shell completion: names from the config and the tool cache, without starting servers.

use toolrack_testkit::skipped;

use crate::fixture::Fixture;

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

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("home/toolrack.toml", CONFIG);
    assert_eq!(fixture.run(&["-q", "tools", "demo"]).status.code(), Some(0));
    fixture
}

#[track_caller]
fn check(fixture: &Fixture, words: &[&str], expected: &str) {
    let outcome = fixture.run(&[&["__complete", "--"], words].concat());
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), (expected, ""), "{words:?}");
    assert_eq!(outcome.status.code(), Some(0));
}

#[test]
fn names_are_completed_from_config_and_cache() {
    let fixture = fixture();
    check(&fixture, &["tools", ""], "demo\t\nother\t\n");
    check(&fixture, &["call", "demo.a"], "demo.add\tAdds two numbers\n");
    check(&fixture, &["call", "demo.add", ""], "a=\t\nb=\t\n");
    check(&fixture, &["comp"], "completion\tGenerate a completion script\n");
    assert!(!fixture.path().join("work/started").exists());
    // With an invalid config there are no candidates and no messages.
    fixture.put("home/toolrack.toml", "[[");
    check(&fixture, &["tools", ""], "");
    check(&fixture, &["comp"], "completion\tGenerate a completion script\n");
}

#[track_caller]
fn check_shell(shell: &str, script: &str, expected: &str) {
    let fixture = fixture();
    if !fixture.shell(&format!("command -v {shell}")).status.success() {
        return skipped("completion", &format!("there is no `{shell}`"));
    }
    fixture.put("work/script", script);
    let outcome = fixture.shell(&format!("{shell} script"));
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), (expected, ""), "{shell}");
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
fn zsh_completes() {
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
fn hostile_names_are_not_completed() {
    let fixture = fixture();
    let hostile = "\n[[defaults.mcp]]\nname = \"demo$(touch owned)\"\ncommand = \"true\"\n";
    fixture.put("home/toolrack.toml", &format!("{CONFIG}{hostile}"));
    check(&fixture, &["tools", "d"], "demo\t\n");
    assert!(!fixture.path().join("work/owned").exists());
}
