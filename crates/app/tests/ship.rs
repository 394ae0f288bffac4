//! What packages take from the program itself: completions, manual pages, a policy from a pipe.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn altq(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that ends before it has read everything closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The commands of `altq --help`, a word each.
fn commands() -> Vec<String> {
    let help = text(&altq(&["--help"], "").stdout);
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap().to_owned();
    let name =
        |line: &str| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()).map(str::to_owned);
    list.lines().filter_map(name).filter(|name| name != "help").collect()
}

#[test]
fn every_shell_completes_every_command() {
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = altq(&["completions", shell], "");
        assert_eq!(done.status.code(), Some(0));
        let script = text(&done.stdout);
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
        }
    }
    assert_eq!(altq(&["completions", "csh"], "").status.code(), Some(2));
}

/// What a shell itself says of the script. SKIPPED where there is no bash.
#[test]
fn bash_takes_its_script() {
    let script = text(&altq(&["completions", "bash"], "").stdout);
    let ask = format!("{script}\nCOMP_WORDS=(altq ch); COMP_CWORD=1; _altq altq ch altq; echo \"${{COMPREPLY[@]}}\"");
    match Command::new("bash").args(["-c", &ask]).output() {
        Ok(done) => assert_eq!(text(&done.stdout).trim(), "check", "{}", text(&done.stderr)),
        Err(error) => eprintln!("SKIPPED: no bash ({error})"),
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("altq-man-{}", std::process::id()));
    let done = altq(&["man", "--out", folder.to_str().unwrap()], "");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    for command in commands() {
        let page = std::fs::read_to_string(folder.join(format!("altq-{command}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(&format!("altq\\-{command}")), "{command}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let page = text(&altq(&["man", "link", "set"], "").stdout);
    assert!(page.contains("altq\\-link\\-set"), "{page}");
    let wrong = altq(&["man", "nothing"], "");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("no command `nothing`"));
}

#[test]
fn a_policy_comes_from_standard_input() {
    let policy = "link wan { rate 10Mbit/s  scheduler fifo  class all { default } }";
    let done = altq(&["check", "-"], policy);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("wan"));
    let done = altq(&["check", "-"], "link wan { rate }");
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("--> -:1:12"), "{}", text(&done.stderr));
    let done = altq(&["check", "--language", "altq", "-"], "interface eth0 bandwidth 10M cbq\n");
    assert!(!text(&done.stderr).contains("language"), "{}", text(&done.stderr));
    assert_eq!(altq(&["run", "-"], policy).status.code(), Some(2));
}
