//! What `altq sim` and `altq lab` show on a terminal: tables as narrow as it, trees of classes, a
//! progress bar.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Both ends of a pseudoterminal of so many columns: the tester's, and the program's.
fn terminal(columns: u16) -> (OwnedFd, OwnedFd) {
    let tester = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&tester).unwrap();
    unlockpt(&tester).unwrap();
    let name = ptsname(&tester, Vec::new()).unwrap();
    let program = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    tcsetwinsize(&tester, Winsize { ws_row: 25, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (tester, program)
}

/// Reads what a program writes to a terminal until it has ended.
fn read_all(tester: OwnedFd) -> String {
    let (mut file, mut all, mut part) = (File::from(tester), Vec::new(), [0; 4096]);
    // The end is an error (EIO): no program has the terminal open any more.
    while let Ok(count @ 1..) = file.read(&mut part) {
        all.extend_from_slice(&part[..count]);
    }
    String::from_utf8(all).unwrap().replace("\r\n", "\n")
}

/// The pieces that a program writes to a terminal, and when.
fn watched(tester: OwnedFd) -> mpsc::Receiver<(Instant, String)> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut file, mut part) = (File::from(tester), [0; 4096]);
        while let Ok(count @ 1..) = file.read(&mut part) {
            let _ = sender.send((Instant::now(), String::from_utf8_lossy(&part[..count]).into_owned()));
        }
    });
    receiver
}

/// A folder with a case: a link with `agencies` agencies, each with a class for gold customers,
/// which has `customers` classes. The first customer of the first agency sends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, agencies: usize, customers: usize, duration: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("altq-terminal-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let (mut classes, mut rules) = (String::new(), String::new());
        for a in 0..agencies {
            classes +=
                &format!("class agency-{a} {{ rate 1Mbit/s borrow\nclass gold-of-{a} {{ rate 900kbit/s borrow\n");
            for c in 0..customers {
                classes += &format!("class customer-{a}-{c} {{ rate 5kbit/s borrow }}\n");
                rules += &format!("match dst 10.1.{a}.{c} -> customer-{a}-{c}\n");
            }
            classes += "}\n}\n";
        }
        let policy = format!(
            "link wan {{ rate 100Mbit/s scheduler cbq\n{classes}class rest {{ rate 1Mbit/s borrow default }}\n{rules}}}"
        );
        fs::write(path.join("p.altq"), policy).unwrap();
        let case = format!(
            "name = 'c'\ndescription = 'many'\nduration = '{duration}'\npolicy_file = 'p.altq'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b', address = '10.1.0.0' }}, {{ name = 'c' }}]\n\
             links = [{{ name = 'l', from = 'a', to = 'b', policy = 'wan' }}]\n\
             flows = [{{ name = 'f', kind = 'udp', from = 'a', to = 'b', size = 1250, rate = '10Mbit/s' }}]\n"
        );
        fs::write(path.join("c.toml"), case).unwrap();
        Folder(path)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_altq"));
        command.args(args).current_dir(&self.0).env_remove("COLUMNS").stdin(Stdio::null());
        command
    }

    /// What a command prints on a terminal of so many columns.
    fn on_terminal(&self, columns: u16, args: &[&str]) -> String {
        let (tester, program) = terminal(columns);
        let mut child = self.command(args).stdout(program).stderr(Stdio::inherit()).spawn().unwrap();
        let text = read_all(tester);
        assert!(child.wait().unwrap().success(), "{text}");
        text
    }

    /// What a command prints on pipes.
    fn piped(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The first words of the lines, with the spaces before them.
fn names(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        format!("{:indent$}{}", "", line.split_whitespace().next().unwrap_or(""))
    };
    text.lines().map(name).collect()
}

#[test]
fn classes_are_a_tree_of_which_one_may_choose() {
    let folder = Folder::new("tree", 2, 3, "1s");
    let (code, text, _) = folder.piped(&["sim", "c.toml"]);
    assert_eq!(code, 0);
    let whole = [
        "class",
        "wan",
        "  agency-0",
        "    gold-of-0",
        "      customer-0-0",
        "      customer-0-1",
        "      customer-0-2",
        "  agency-1",
        "    gold-of-1",
        "      customer-1-0",
        "      customer-1-1",
        "      customer-1-2",
        "  rest",
        "",
        "flow",
        "f",
    ];
    let all = names(&text);
    assert_eq!(all[all.len() - whole.len()..], whole, "{text}");
    // `check` has the same tree, two columns further to the right.
    let (_, check, _) = folder.piped(&["check", "p.altq"]);
    let tree: Vec<String> = whole[..13].iter().map(|name| format!("  {name}")).collect();
    assert!(names(&check).windows(13).any(|part| part == tree), "{check}");

    let chosen = |args: &[&str]| {
        let (code, text, error) = folder.piped(&[&["sim", "c.toml"], args].concat());
        assert_eq!(code, 0, "{error}");
        names(&text).into_iter().skip_while(|name| name != "class").skip(1).collect::<Vec<_>>()
    };
    let (flow, none) = (vec!["", "flow", "f"], Vec::new());
    let with = |classes: &[&str], flows: &[&str]| -> Vec<String> {
        classes.iter().chain(flows).map(|name| name.to_string()).collect()
    };
    let gold = ["wan", "  agency-1", "    gold-of-1", "      customer-1-0", "      customer-1-1", "      customer-1-2"];
    assert_eq!(chosen(&["--class", "gold-of-1"]), with(&[&gold[..], &["6"]].concat(), &none));
    let two = [
        "wan",
        "  agency-0",
        "    gold-of-0",
        "      customer-0-0",
        "  agency-1",
        "    gold-of-1",
        "      customer-1-2",
    ];
    let args = ["--class", "wan/customer-0-0", "--class", "*-1-2"];
    assert_eq!(chosen(&args), with(&[&two[..], &["7"]].concat(), &flow));
    let active = ["wan", "  agency-0", "    gold-of-0", "      customer-0-0", "4"];
    assert_eq!(chosen(&["--active"]), with(&active, &flow));

    let (code, _, error) = folder.piped(&["sim", "c.toml", "--class", "agency-1", "--class", "custommer-1-1"]);
    assert_eq!(code, 2);
    assert!(error.contains("no class of c is named \"custommer-1-1\"; did you mean \"customer-1-1\"?"), "{error}");
    assert_eq!(folder.piped(&["sim", "c.toml", "--active", "--json"]).0, 2);
}

#[test]
fn three_hundred_classes_fit_a_narrow_terminal() {
    let folder = Folder::new("narrow", 3, 100, "1s");
    let (_, whole, _) = folder.piped(&["sim", "c.toml"]);
    for columns in [60, 80] {
        let text = folder.on_terminal(columns, &["sim", "c.toml"]);
        let wide = text.lines().find(|line| line.chars().count() > usize::from(columns));
        assert_eq!(wide, None, "{columns} columns");
        // Nothing is lost: every cell is there, in the same order within its table.
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(words(&text), words(&whole));
        let check = folder.on_terminal(columns, &["check", "p.altq"]);
        let table = check.lines().skip_while(|line| !line.starts_with("  class"));
        let wide = table.take_while(|line| !line.contains("served")).find(|l| l.chars().count() > usize::from(columns));
        assert_eq!(wide, None, "{columns} columns");
    }
    let few = folder.on_terminal(60, &["sim", "c.toml", "--active"]);
    assert!(few.lines().count() < 20, "{few}");
}

#[test]
fn a_bar_appears_after_two_seconds_on_a_terminal_only() {
    // A day of virtual time, which nobody waits for.
    let folder = Folder::new("bar", 1, 1, "1440min");
    let (tester, program) = terminal(80);
    // Begun first: when the one on the terminal shows its bar, this one is past that time too.
    let mut piped = folder.command(&["sim", "c.toml"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let mut child = folder.command(&["sim", "c.toml"]).stdout(Stdio::null()).stderr(program).spawn().unwrap();
    let first = watched(tester).recv_timeout(Duration::from_secs(60));
    for child in [&mut child, &mut piped] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (at, text) = first.expect("no bar within a minute");
    assert!(at - begun >= Duration::from_secs(2), "{:?}", at - begun);
    assert!(text.contains("%") && text.contains("left"), "{text:?}");
    let mut text = String::new();
    piped.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
}

#[test]
fn the_lab_has_the_bar_too() {
    let folder = Folder::new("lab-bar", 1, 1, "1s");
    // Nobody waits for its end.
    let case = "name = 'c'\ndescription = 'd'\nduration = '60s'\npolicy_file = 'p.altq'\n\
                hosts = [{ name = 'a' }, { name = 'b' }]\n\
                links = [{ name = 'l', from = 'a', to = 'b', policy = 'wan' }]\n\
                flows = [{ name = 'f', kind = 'udp', from = 'a', to = 'b', size = 500, rate = '1Mbit/s' }]\n";
    fs::write(folder.0.join("c.toml"), case).unwrap();
    let (tester, program) = terminal(80);
    let begun = Instant::now();
    let mut child = folder.command(&["lab", "c.toml"]).stdout(Stdio::null()).stderr(program).spawn().unwrap();
    let pieces = watched(tester);
    let first = pieces.recv_timeout(Duration::from_secs(60));
    if first.as_ref().is_ok_and(|(_, text)| !text.contains('%')) {
        // No bar, but the reason why there is no lab here.
        let status = child.wait().unwrap();
        let said: String = first.into_iter().chain(pieces).map(|(_, text)| text).collect();
        assert!(matches!(status.code(), Some(6 | 7)), "{status}: {said}");
        return eprintln!("SKIPPED: {said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (at, text) = first.expect("no bar within a minute");
    assert!(at - begun >= Duration::from_secs(2), "{:?}", at - begun);
    assert!(text.contains("left"), "{text:?}");
}
