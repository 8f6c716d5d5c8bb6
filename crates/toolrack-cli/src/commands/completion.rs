//! `toolrack completion`: a short script for each shell. All it does is ask the program what could be typed next.

use crate::args::Shell;
use crate::printer::Printer;

/// Prints the script of a shell.
pub(crate) fn completion(shell: Shell, printer: &Printer) {
    let script = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    printer.data(script.as_bytes());
}

const BASH: &str = r#"_toolrack() {
    local IFS=$'\n'
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=($(toolrack __complete -- "${words[@]}" 2>/dev/null | cut -f1))
    case "${COMPREPLY[*]}" in
        *=) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -o default -F _toolrack toolrack
"#;

const ZSH: &str = r#"#compdef toolrack
_toolrack() {
    local line
    local -a found
    for line in "${(@f)$(toolrack __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#found )); then
        _describe toolrack found
    else
        _files
    fi
}
compdef _toolrack toolrack
"#;

const FISH: &str = "complete -c toolrack -e
complete -c toolrack -f -a \\
    '(toolrack __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
";
