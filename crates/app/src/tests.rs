//! No code knows a scheduler or a queue by its name. To show it, the test copies each one into the
//! registry under another name, and compares what every command prints for the copy and for the
//! original: only the name may differ.
//!
//! The commands print on stdout, so they run in a process of their own: this test's own program,
//! which runs a list of commands with the copies in its registry.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use altq_engine::queue;
use altq_engine::schedule::{self, Role};
use altq_engine::settings::{Kind, Word};
use clap::Parser;

use crate::Cli;

/// The list of commands that the other process runs.
const LIST: &str = "ALTQ_TEST_COMMANDS";
const MARK: &str = "=====";

/// The name of a copy. It is as long as the original name, so that columns stay where they are.
fn other_name(name: &str) -> &'static str {
    let mut other = name.to_owned();
    other.pop();
    (other + "x").leak()
}

/// The names of all schedulers and queues, each with the name of its copy.
fn names() -> BTreeMap<&'static str, &'static str> {
    let schedulers = schedule::SCHEDULERS.iter().map(|entry| entry.name);
    let queues = queue::QUEUES.iter().map(|entry| entry.name);
    schedulers.chain(queues).map(|name| (name, other_name(name))).collect()
}

fn add_copies() {
    let schedulers = schedule::SCHEDULERS.iter().map(|entry| {
        let copy = schedule::Entry { name: other_name(entry.name), ..**entry };
        &*Box::leak(Box::new(copy))
    });
    schedule::add_for_tests(schedulers.collect()).unwrap();
    let queues = queue::QUEUES.iter().map(|entry| {
        let copy = queue::Entry { name: other_name(entry.name), ..**entry };
        &*Box::leak(Box::new(copy))
    });
    queue::add_for_tests(queues.collect()).unwrap();
    // A name that is taken is refused, and so is a second addition.
    assert!(schedule::add_for_tests(vec![schedule::PLAIN]).is_err() && queue::add_for_tests(Vec::new()).is_err());
}

/// Not a test: this runs in the other process.
#[test]
fn runs_a_list_of_commands() {
    let Some(list) = std::env::var_os(LIST) else { return };
    add_copies();
    for line in std::fs::read_to_string(list).unwrap().lines() {
        mark(line);
        let exit = match Cli::try_parse_from(line.split(' ')) {
            Ok(cli) => format!("{:?}", crate::run(cli.command).map(|exit| exit as u8)),
            Err(error) => error.to_string(),
        };
        mark(&exit);
    }
    std::process::exit(0);
}

fn mark(text: &str) {
    let line = format!("\n{MARK} {text}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Runs commands in a folder. Returns what each of them printed, and its exit code.
fn outputs(folder: &Path, commands: &[String]) -> Vec<String> {
    let list = folder.join("commands");
    std::fs::write(&list, commands.join("\n")).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::runs_a_list_of_commands", "--nocapture"])
        .env(LIST, &list)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let split = |bytes: &[u8]| -> Vec<String> {
        // The test harness prints a line before the first mark. Each command prints two marks.
        String::from_utf8(bytes.to_vec()).unwrap().split(&format!("\n{MARK} ")).skip(1).map(str::to_owned).collect()
    };
    let (out, err) = (split(&output.stdout), split(&output.stderr));
    assert_eq!((out.len(), err.len()), (2 * commands.len(), 2 * commands.len()));
    let each = out.chunks(2).zip(err.chunks(2));
    each.map(|(out, err)| format!("{}{}\nexit {}", out[0], err[0], out[1])).collect()
}

/// The text with every word replaced that is a key of the map.
fn renamed(text: &str, names: &BTreeMap<&str, &str>) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        out += names.get(word).unwrap_or(&word);
        let next = behind.find(is_word).unwrap_or(behind.len());
        out += &behind[..next];
        rest = &behind[next..];
    }
    out
}

/// The text without hashes of files, because another name changes them.
fn without_hashes(text: &str) -> String {
    let parts = text.split_inclusive("\"sha256\":\"").map(|part| match part.get(..64) {
        Some(start) if start.bytes().all(|byte| byte.is_ascii_hexdigit()) => &part[64..],
        _ => part,
    });
    parts.collect()
}

/// The report of `check` without what Linux makes of the policy. Linux's qdiscs have names of their
/// own, so crates/kernel goes by names: it cannot know a copy under another one.
fn without_kernel(text: &str) -> String {
    let parts = text.split("\"kernel_refuses\":").enumerate().map(|(at, part)| match part.find("\"classes\":[") {
        Some(end) if at > 0 => &part[end..],
        _ => part,
    });
    parts.collect()
}

/// Files, and the commands that are to be run on them.
#[derive(Default)]
struct Corpus {
    files: Vec<(String, String)>,
    commands: Vec<String>,
}

impl Corpus {
    /// Adds a policy, which `check` and `convert` read. With `replay` it must be valid, and packets
    /// are sent through its classes `a`, `b` and `c`.
    fn policy(&mut self, text: String, replay: bool) {
        let name = format!("{}.altq", self.files.len());
        // Lines are so short that messages show names unbroken.
        let lines = ["scheduler", "class", "queue", "match"]
            .into_iter()
            .fold(text, |text, word| text.replace(&format!(" {word} "), &format!("\n {word} ")));
        self.files.push((name.clone(), lines));
        for what in ["check", "check --json", "convert"] {
            self.commands.push(format!("altq {what} {name}"));
        }
        if replay {
            let number = self.files.len();
            let files = format!("--departures {number}.out --drops {number}.lost");
            for what in ["--json", "--stat tc", "--stat altqstat", &files] {
                self.commands.push(format!("altq replay {name} --arrivals arrivals.csv {what}"));
            }
        }
    }

    /// Adds a case of one second with this policy.
    fn case(&mut self, policy: &str) {
        let name = format!("{}.toml", self.files.len());
        let text = format!(
            "name = 'copies'\ndescription = 'd'\nduration = '1s'\npolicy = '''{policy}'''\n\
             hosts = [{{ name = 's' }}, {{ name = 'd' }}]\n\
             links = [{{ name = 'wan', from = 's', to = 'd', delay = '5ms', policy = 'l' }}]\n\
             [[flows]]\nname = 'u'\nkind = 'udp'\nfrom = 's'\nto = 'd'\nsize = 900\nrate = '8Mbit/s'\nclass = 'a'\n\
             [[flows]]\nname = 't'\nkind = 'tcp_bulk'\nfrom = 's'\nto = 'd'\nclass = 'b'\n"
        );
        self.files.push((name.clone(), text));
        self.commands.push(format!("altq sim {name} --json"));
    }

    /// Writes arrivals of three packets of 1000 bytes per millisecond: 24 Mbit/s.
    fn arrivals(&mut self) {
        let mut list = "time_ns,class,bytes,id,flow\n".to_owned();
        for at in 0..400_u64 {
            let class = ["a", "b", "c"][at as usize % 3];
            let _ = writeln!(list, "{},{class},1000,{at},{}", at * 333_333, at % 5);
        }
        self.files.push(("arrivals.csv".into(), list));
    }
}

/// A value for a word, in the native language.
fn sample(word: &Word) -> String {
    let value = match word.kind {
        Kind::Flag => return word.name.into(),
        Kind::Rate => "600kbit/s".into(),
        Kind::Curve => "900kbit/s for 5ms then 400kbit/s".into(),
        Kind::Int { min, max } => (min + 2).min(max).to_string(),
        Kind::Bytes { min, max } => 300.clamp(min, max).to_string(),
        Kind::Time => "7ms".into(),
        Kind::Limit => "11packets".into(),
        Kind::Fraction => "0.05".into(),
        Kind::Percent => "20%".into(),
        Kind::Choice(choices) => choices.last().unwrap().to_string(),
    };
    format!("{} {value}", word.name)
}

/// Typical words of the `at`th of three classes that share a link.
fn usual(entry: &schedule::Entry, at: usize, rate: &str) -> String {
    let rates = entry.roles.iter().any(|(_, role)| matches!(role, Role::Guarantee | Role::Share));
    let words = entry.roles.iter().filter_map(|(word, role)| match role {
        Role::Guarantee | Role::Share => Some(format!("{word} {rate}")),
        Role::Deadline if at == 0 => Some(format!("{word} {rate}")),
        Role::Borrow if at < 2 => Some((*word).into()),
        Role::CeilingOrGuarantee if at < 2 => Some(format!("{word} 9Mbit/s")),
        Role::Priority => Some(format!("{word} {}", at + 1)),
        Role::Weight if !rates => Some(format!("{word} {}", weight(entry, word, at))),
        _ => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A weight of the class at this place, within what the word allows.
fn weight(entry: &schedule::Entry, word: &str, at: usize) -> u64 {
    let wanted = 1500 + 1000 * at as u64;
    match entry.words.iter().find(|known| known.name == word).map(|known| known.kind) {
        Some(Kind::Int { min, max } | Kind::Bytes { min, max }) if wanted > max => (min + at as u64).min(max),
        _ => wanted,
    }
}

/// Three classes with typical words, and with `more` in each.
fn three(entry: &schedule::Entry, rate: &str, more: &str) -> String {
    let class = |at: usize, name: &str| format!("class {name} {{ {} {more} }} ", usual(entry, at, rate));
    class(0, "a") + &class(1, "b") + &class(2, "c")
}

/// Adds policies of a scheduler: typical classes; each of its words alone and in a class with
/// classes below it; the words that other schedulers use; the scheduler inside and around every
/// other one.
fn of_scheduler(entry: &schedule::Entry, corpus: &mut Corpus) {
    let name = entry.name;
    let link = |words: &str, classes: &str| {
        format!("link l {{ rate 10Mbit/s scheduler {name} {words} {classes} match dport 9 -> a match all -> c }}\n")
    };
    let typical = link("", &three(entry, "3Mbit/s", ""));
    corpus.case(&typical.replace("match all -> c", "match proto udp -> a match all -> b"));
    corpus.policy(typical, true);
    // Guarantees of more than the link's rate, without and with `overcommit`; and packets that the
    // rules send to the link itself.
    corpus.policy(link("", &three(entry, "4Mbit/s", "")), false);
    corpus.policy(link("overcommit", &three(entry, "4Mbit/s", "queue fq_codel")), false);
    corpus.policy(link("", &three(entry, "3Mbit/s", "")).replace("all -> c", "all -> l"), false);
    for word in entry.words {
        corpus.policy(link(&format!("{{ {} }}", sample(word)), &three(entry, "3Mbit/s", "")), true);
        if let Kind::Choice(choices) = word.kind {
            let first = format!("{{ {} {} }}", word.name, choices[0]);
            corpus.policy(link(&first, &three(entry, "3Mbit/s", "")), false);
        }
    }
    let words = entry.class_words.iter().map(sample);
    for word in words.chain(entry.foreign.iter().map(|(word, _)| format!("{word} 1"))).chain(["wrong".into()]) {
        let others = format!("class b {{ {} }} class c {{ }}", usual(entry, 1, "1Mbit/s"));
        corpus.policy(link("", &format!("class a {{ {word} }} {others}")), false);
        let below = format!("class a {{ {word} queue codel {others} }}");
        corpus.policy(link("", &below), false);
        corpus.policy(link("", &format!("class a {{ {word} queue codel scheduler {name} {others} }}")), false);
    }
    for other in schedule::SCHEDULERS {
        let holds = |holder: &schedule::Entry, held: &schedule::Entry| {
            let (one, two) = (usual(holder, 0, "4Mbit/s"), usual(holder, 1, "2Mbit/s"));
            let inner = three(held, "1Mbit/s", "queue drop_tail { limit 9packets }");
            format!(
                "link l {{ rate 10Mbit/s scheduler {} class top {{ {one} scheduler {} {inner} }} \
                 class other {{ {two} }}\n match dport 9 -> top match all -> other }}\n",
                holder.name, held.name
            )
        };
        corpus.policy(holds(entry, other), true);
        corpus.policy(holds(other, entry), true);
    }
}

/// Adds policies of a queue: with limits in packets and in bytes, and with each of its words, under
/// a scheduler that bounds delays.
fn of_queue(entry: &queue::Entry, corpus: &mut Corpus) {
    let scheduler = schedule::SCHEDULERS[0];
    let link = |words: &str| {
        let classes = three(scheduler, "2Mbit/s", &format!("queue {} {{ {words} }}", entry.name));
        format!("link l {{ rate 10Mbit/s scheduler {} {classes} match all -> c }}\n", scheduler.name)
    };
    corpus.case(&link("limit 30packets").replace("match all -> c", "match proto udp -> a match all -> b"));
    for words in ["", "limit 20packets", "limit 20000bytes", "limit 0packets", "wrong"] {
        corpus.policy(link(words), !words.contains('0') || words.contains('2'));
    }
    for word in entry.words {
        corpus.policy(link(&format!("limit 20packets {}", sample(word))), true);
    }
}

/// Writes the files to a folder, and runs the commands.
fn run(corpus: &Corpus, folder: &Path, names: &BTreeMap<&str, &str>) -> Vec<String> {
    std::fs::create_dir_all(folder).unwrap();
    for (name, text) in &corpus.files {
        std::fs::write(folder.join(name), renamed(text, names)).unwrap();
    }
    outputs(folder, &corpus.commands)
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("altq-copies-{}", std::process::id()))
}

#[test]
fn a_copy_is_known_as_well_as_the_first() {
    let mut corpus = Corpus::default();
    corpus.arrivals();
    schedule::SCHEDULERS.iter().for_each(|entry| of_scheduler(entry, &mut corpus));
    queue::QUEUES.iter().for_each(|entry| of_queue(entry, &mut corpus));
    let (folder, names) = (folder(), names());
    let back: BTreeMap<&str, &str> = names.iter().map(|(name, copy)| (*copy, *name)).collect();
    assert_eq!(back.len(), names.len());
    let first = run(&corpus, &folder.join("first"), &BTreeMap::new());
    let copied = run(&corpus, &folder.join("copied"), &names);
    let mut right = 0;
    for ((command, first), copied) in corpus.commands.iter().zip(&first).zip(&copied) {
        let [first, copied] = [first, copied].map(|text| renamed(&without_kernel(&without_hashes(text)), &back));
        let file = command.split(' ').find(|word| word.ends_with(".altq") || word.ends_with(".toml")).unwrap();
        let text = corpus.files.iter().find(|(name, _)| name == file).map_or("", |(_, text)| text);
        if let Some((one, other)) = first.lines().zip(copied.lines()).find(|(one, other)| one != other) {
            panic!("{command}:\n{text}\nfirst:  {one}\ncopied: {other}");
        }
        assert_eq!(first, copied, "{command}: {text}");
        right += usize::from(first.contains("exit Ok(0)"));
    }
    for name in std::fs::read_dir(folder.join("first")).unwrap().map(|entry| entry.unwrap().file_name()) {
        let read = |which: &str| std::fs::read_to_string(folder.join(which).join(&name)).unwrap();
        if name.to_str().is_some_and(|name| name.ends_with(".out") || name.ends_with(".lost")) {
            assert_eq!(read("first"), read("copied"), "{name:?}");
        }
    }
    assert!(right > corpus.commands.len() / 2, "of {} commands {right} succeeded", corpus.commands.len());
    std::fs::remove_dir_all(&folder).unwrap();
}
