//! What packages take from the program itself: completions, manual pages; policies and cases from a
//! pipe.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn altq(arguments: &[&str], input: &str) -> Output {
    piped(arguments, input.as_bytes(), Path::new("."))
}

fn piped(arguments: &[&str], input: &[u8], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that ends before it has read everything closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
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
    let pages = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let twice: Vec<String> = pages.filter(|name| name.contains("-help")).collect();
    assert!(twice.is_empty(), "pages of `altq help`: {twice:?}");
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
    // `rate` begins at the 12th character of the line.
    let done = altq(&["check", "-"], "link wan { rate }");
    assert_eq!(done.status.code(), Some(2));
    let said = text(&done.stderr);
    assert!(said.contains("--> standard input:1:12") && said.contains("^"), "{said}");
    let done = altq(&["check", "-", "--json"], "\nlink wan { rate }");
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let finding = &json["diagnostics"][0];
    assert_eq!((&finding["file"], &finding["line"]), (&"standard input".into(), &2.into()));
    let done = altq(&["check", "--language", "altq", "-"], "interface eth0 bandwidth 10M cbq\n");
    assert!(!text(&done.stderr).contains("language"), "{}", text(&done.stderr));
    assert_eq!(altq(&["run", "-"], policy).status.code(), Some(2));
    let done = altq(&["check", "-", "--class", "non"], policy);
    assert!(text(&done.stderr).contains("no class of standard input is named \"non\""), "{}", text(&done.stderr));
    // What is no text is an error at its first wrong byte.
    let done = piped(&["convert", "-"], b"link \xff {}", Path::new("."));
    let said = text(&done.stderr);
    assert!(done.status.code() == Some(2) && said.contains("byte 0xff at offset 5"), "{said}");
}

/// What a policy from standard input includes lies in the current folder.
#[test]
fn includes_of_standard_input_count_from_the_current_folder() {
    let folder = std::env::temp_dir().join(format!("altq-ship-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("sites")).unwrap();
    let site = "link a { rate 1Mbit/s  scheduler fifo  class x { default } }";
    std::fs::write(folder.join("sites/a.altq"), site).unwrap();
    let done = piped(&["check", "-"], b"include \"sites/*.altq\"\n", &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("link a"), "{}", text(&done.stdout));
}

const CASE: &str = "# A case.\nname = 'piped'\ndescription = 'd'\nduration = '2s'\n\
    policy = '''link wan { rate 10Mbit/s scheduler cbq\n class x { share 20% }\n \
    class y { share 80% default }\n match dport 7 -> x }'''\nhosts = [{ name = 'a' }, { name = 'b' }]\n\
    links = [{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }]\n\
    [[flows]]\nname = 'f'\nkind = 'udp'\nfrom = 'a'\nto = 'b'\ndport = 7\nsize = 1500\nrate = '5Mbit/s'\n\
    [[expect]]\nname = 'share'\nmeasure = 'share'\nclass = 'x'\nexpected = '20%'\ntolerance = '1%'\n\
    source = 'asked for'\n";

#[test]
fn a_case_comes_from_standard_input() {
    let done = altq(&["check", "-"], CASE);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).starts_with("case piped: no errors"), "{}", text(&done.stdout));
    let done = altq(&["sim", "-", "--json"], CASE);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let file = &json["made"]["files"][0];
    assert_eq!((&json["case"], &file["file"]), (&"piped".into(), &"standard input".into()));
    // The hash is that of the text, which nobody can read again.
    assert_eq!(file["sha256"].as_str().map(str::len), Some(64));
    // Line 4 is the duration.
    let wrong = CASE.replace("'2s'", "'soon'");
    for command in [&["check", "-"][..], &["sim", "-"]] {
        let done = altq(command, &wrong);
        let said = text(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains("standard input:4:"), "{said}");
        assert!(said.contains(" 4 | duration = 'soon'") && said.contains('^'), "{said}");
    }
    let done = altq(&["replay", "-", "--arrivals", "-"], "");
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("only one of policy and arrivals"), "{}", text(&done.stderr));
}
