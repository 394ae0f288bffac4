//! Checks every few seconds whether the host and the policy's files are still as they were, in a
//! thread for which no loop and no client waits. The host is compared by `altq_dataplane::drift`.
//!
//! With a supervisor this thread belongs to the supervisor, because a confined worker can open no
//! file and start no program. What it finds is sent to the worker by the control socket. Rates and
//! subscribers that clients have set are known only to the worker; they are added when `altq
//! status` is answered ([`answers`](super::answers)).

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::Metadata;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use altq_config::{Link, Policy};
use altq_control::client::Client;
use altq_control::request::Differs;
use altq_dataplane::Fail;
use altq_dataplane::drift::{Drift, UNSHAPED};
use serde::Serialize;

/// What is told of the only file of a policy begins so. Its print and its path follow. Only whoever
/// runs the policy knows whether the file has the text that runs: that may have been changed since
/// the file was read.
const FILE: &str = "\u{1}file ";

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(5);

/// The same while rules are gone, and after they were set again.
const SOON: Duration = Duration::from_millis(500);

/// If a file has not changed for so long, its next change will change its times.
const SETTLED: Duration = Duration::from_secs(2);

/// By link, what differs, one sentence each.
pub type Found = BTreeMap<String, Vec<String>>;

/// What was found last.
#[derive(Default)]
pub struct Latest {
    found: Found,
    /// The only file of the policy.
    file: Option<OfFile>,
    /// The links whose packets pass unshaped although their loops run.
    unshaped: BTreeMap<String, Unshaped>,
}

/// Since when packets of a link pass unshaped, and why.
#[derive(Clone, Debug)]
pub struct Unshaped {
    /// When it was found.
    pub since: Instant,
    /// Why.
    pub reason: String,
}

impl Latest {
    /// Takes what was found, and returns lines for the log.
    pub fn take(&mut self, mut found: Found) -> Vec<String> {
        self.file = None;
        for lines in found.values_mut() {
            lines.retain(|line| {
                let Some(file) = OfFile::read(line) else { return true };
                self.file = Some(file);
                false
            });
        }
        let why = |lines: &Vec<String>| lines.iter().find_map(|line| line.strip_suffix(UNSHAPED)).map(str::to_owned);
        let mut said = Vec::new();
        self.unshaped.retain(|name, _| {
            let still = found.get(name).and_then(why).is_some();
            if !still {
                said.push(format!("link {name}: packets are shaped again"));
            }
            still
        });
        for (name, lines) in &found {
            // Once may be a program that has failed to list the rules.
            let twice = self.found.get(name).and_then(why).is_some();
            if let Some(reason) = why(lines).filter(|_| twice && !self.unshaped.contains_key(name)) {
                said.push(format!("link {name}: packets pass unshaped: {reason}"));
                self.unshaped.insert(name.clone(), Unshaped { since: Instant::now(), reason });
            }
        }
        self.found = found;
        said
    }

    /// What differs in a link. `known`: whether the file has the text that runs, or the one that
    /// was read last.
    pub fn of(&self, link: &str, known: impl Fn(&OfFile) -> bool) -> Vec<String> {
        let file = self.file.as_ref().filter(|file| !known(file)).map(|file| another(&file.path));
        file.into_iter().chain(self.found.get(link).into_iter().flatten().cloned()).collect()
    }

    /// The only file of the policy, if that was looked at.
    pub fn file(&self) -> Option<&OfFile> {
        self.file.as_ref()
    }

    /// The file was read or written since, so what was found of it no longer holds.
    pub fn forget_file(&mut self) {
        self.file = None;
    }

    /// Since when packets of a link pass unshaped, and why; `None` if they do not.
    pub fn unshaped(&self, link: &str) -> Option<Unshaped> {
        self.unshaped.get(link).cloned()
    }
}

/// The only file of a policy.
pub struct OfFile {
    /// The print that it has.
    pub print: Print,
    /// Its absolute path.
    pub path: String,
}

impl OfFile {
    /// The line that tells it.
    fn told(&self) -> String {
        format!("{FILE}{} {} {}", self.print.0, self.print.1, self.path)
    }

    fn read(line: &str) -> Option<OfFile> {
        let mut words = line.strip_prefix(FILE)?.splitn(3, ' ');
        let print = Print(words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(OfFile { print, path: words.next()?.to_owned() })
    }
}

/// The thread that checks. Dropping this ends it.
pub struct Watch(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The policy and the links that run; `None` while nobody shapes.
    asked: Option<Arc<Asked>>,
    /// Counts the policies that run one after another, and which of them were set up anew.
    turn: u64,
    anew: u64,
    over: bool,
}

struct Asked {
    files: Files,
    links: Vec<Link>,
}

/// The files from which a policy was read, with their contents' prints at that time.
pub type Files = Arc<Vec<(PathBuf, Print)>>;

/// The length of a text, and a hash of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print(usize, u64);

impl Print {
    /// The print of a text. A byte order mark before it is no part of it.
    pub fn of(text: &[u8]) -> Print {
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        let mut hasher = DefaultHasher::new();
        hasher.write(text);
        Print(text.len(), hasher.finish())
    }
}

/// The files of a policy that was just read.
pub fn files(policy: &Policy) -> Files {
    let print = |(path, text): &(PathBuf, String)| (path.clone(), Print::of(text.as_bytes()));
    Arc::new(policy.sources.texts.iter().map(print).collect())
}

impl Watch {
    /// Starts the thread, which calls `tell` after each check, and sets rules again that another
    /// program has taken away. `fail`: what they do while nobody listens.
    ///
    /// # Errors
    /// That of starting a thread.
    pub fn start(fail: Fail, tell: impl FnMut(Found) + Send + 'static) -> io::Result<Watch> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let watch = Watch(shared.clone());
        std::thread::Builder::new().name("altq drift".to_owned()).spawn(move || shared.run(Drift::new(fail), tell))?;
        Ok(watch)
    }

    /// As [`start`](Watch::start), but sends what is found to the worker by its control socket.
    ///
    /// # Errors
    /// Those of [`start`](Watch::start).
    pub fn telling(socket: &Path, fail: Fail) -> io::Result<Watch> {
        #[derive(Serialize)]
        struct Fields {
            links: Vec<Differs>,
        }
        let path = socket.to_owned();
        Watch::start(fail, move |found| {
            let links = found.into_iter().map(|(link, drift)| Differs { link, drift }).collect();
            // If the worker has ended meanwhile, that is reported elsewhere.
            let _ = Client::connect(&path).and_then(|mut client| client.ask("drift.tell", &Fields { links }));
        })
    }

    /// These links were just set up from these files. The first check follows at once, and later
    /// ones are compared with it.
    pub fn shapes<'a>(&self, files: &Files, links: impl IntoIterator<Item = &'a Link>) {
        let asked = Asked { files: files.clone(), links: links.into_iter().cloned().collect() };
        self.0.set(Some(Arc::new(asked)), true);
    }

    /// The running links now follow these files.
    pub fn asks<'a>(&self, files: &Files, links: impl IntoIterator<Item = &'a Link>) {
        let asked = Asked { files: files.clone(), links: links.into_iter().cloned().collect() };
        self.0.set(Some(Arc::new(asked)), false);
    }

    /// Nobody shapes, so nothing is checked.
    pub fn rests(&self) {
        self.0.set(None, false);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, asked: Option<Arc<Asked>>, anew: bool) {
        let mut state = self.lock();
        state.asked = asked;
        state.turn += 1;
        state.anew += u64::from(anew);
        self.changed.notify_all();
    }

    fn run(&self, mut drift: Drift, mut tell: impl FnMut(Found)) {
        let (mut seen, mut last) = (Seen::default(), 0);
        loop {
            let (asked, turn, anew) = {
                let waits = |state: &mut State| state.asked.is_none() && !state.over;
                let state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
                match &state.asked {
                    Some(asked) if !state.over => (asked.clone(), state.turn, state.anew),
                    _ => return,
                }
            };
            if anew != last {
                drift.begin_again();
                last = anew;
            }
            let links: Vec<&Link> = asked.links.iter().collect();
            let mut found = drift.look(&links);
            let files: Vec<String> = match asked.files.as_slice() {
                [(path, _)] => seen.only(path).into_iter().collect(),
                several => several.iter().filter_map(|(path, print)| seen.look(path, *print)).collect(),
            };
            found.values_mut().for_each(|lines| _ = lines.splice(0..0, files.iter().cloned()));
            // If a worker has ended during the check, the result does not hold for the next one.
            if self.lock().turn == turn {
                tell(found);
            }
            let same = |state: &mut State| state.turn == turn && !state.over;
            let mut state = self.lock();
            // Whoever ends altq waits for this lock before it takes the rules away.
            let said = if same(&mut state) { drift.mend() } else { Vec::new() };
            drop(state);
            said.iter().for_each(|line| eprintln!("altq run: {line}"));
            let wait = if drift.is_urgent() { SOON } else { EVERY };
            let _ = self.changed.wait_timeout_while(self.lock(), wait, same);
        }
    }
}

/// What was found in files, so that unchanged files need not be read again.
#[derive(Default)]
struct Seen(BTreeMap<PathBuf, (Stamp, Print)>);

/// What changes when a file changes: its device and number, length, and times in ns.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(of: &Metadata) -> Stamp {
    let time = |seconds: i64, nanos: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
    let (changed, touched) = (time(of.mtime(), of.mtime_nsec()), time(of.ctime(), of.ctime_nsec()));
    (of.dev(), of.ino(), of.len(), changed, touched)
}

impl Seen {
    /// How one of several files differs from what was read; `None` if it is the same, or is not a
    /// regular file.
    fn look(&mut self, path: &Path, print: Print) -> Option<String> {
        match self.print(path)? {
            Ok(now) => (now != print).then(|| another(&path.display().to_string())),
            Err(why) => Some(why),
        }
    }

    /// What is told of the only file of a policy; `None` if it is not a regular file.
    fn only(&mut self, path: &Path) -> Option<String> {
        Some(match self.print(path)? {
            Ok(print) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                OfFile { print, path: path.display().to_string() }.told()
            }
            Err(why) => why,
        })
    }

    /// The print that a file has now, or why it has none; `None` if it is not a regular file.
    fn print(&mut self, path: &Path) -> Option<Result<Print, String>> {
        let shown = path.display();
        let found = match std::fs::metadata(path) {
            Ok(found) if found.is_file() => found,
            // A pipe can be read only once.
            Ok(_) => return None,
            Err(error) => return Some(Err(format!("the policy {shown} cannot be looked at any more: {error}"))),
        };
        if let Some((before, print)) = self.0.get(path)
            && *before == stamp(&found)
        {
            return Some(Ok(*print));
        }
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) => return Some(Err(format!("the policy {shown} cannot be read any more: {error}"))),
        };
        let print = Print::of(&text);
        // A file that was written just now may be written again without a change of its times.
        if found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SETTLED)) {
            self.0.insert(path.to_owned(), (stamp(&found), print));
        }
        Some(Ok(print))
    }
}

fn another(path: &str) -> String {
    format!("the policy {path} is another one than what runs; SIGHUP has it read")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use altq_config::{Language, parse_str};

    use super::*;

    #[test]
    fn links_without_rules_pass_unshaped_and_that_is_said_once() {
        let gone = format!("the rules that hand what leaves by eth0 to altq are gone{UNSHAPED}");
        let gone = gone.as_str();
        let found = |line: &str| Found::from([("wan".to_owned(), vec!["other".to_owned(), line.to_owned()])]);
        let mut latest = Latest::default();
        assert!(latest.take(found("the rules for what leaves by eth0 were changed: a")).is_empty());
        assert!(latest.unshaped("wan").is_none());
        assert!(latest.take(found(gone)).is_empty() && latest.unshaped("wan").is_none(), "once is not enough");
        let said = latest.take(found(gone));
        assert!(said.len() == 1 && said[0].starts_with("link wan: packets pass unshaped: the rules"), "{said:?}");
        let first = latest.unshaped("wan").unwrap();
        assert_eq!(first.reason, "the rules that hand what leaves by eth0 to altq are gone");
        assert!(latest.take(found(gone)).is_empty(), "it is no news");
        assert_eq!(latest.unshaped("wan").unwrap().since, first.since);
        let of = |link: &str| latest.of(link, |_| true).len();
        assert_eq!((of("wan"), of("lan")), (2, 0));
        assert_eq!(latest.take(found("other")), ["link wan: packets are shaped again"]);
        assert!(latest.unshaped("wan").is_none());
    }

    /// It depends on the text that runs by then, and not on the one of the start.
    #[test]
    fn a_file_is_another_one_only_if_its_text_does_not_run() {
        let (first, second) = (Print::of(b"first"), Print::of(b"second"));
        let file = OfFile { print: second, path: "/my own/p.altq".to_owned() };
        let found = || Found::from([("wan".to_owned(), vec![file.told(), "other".to_owned()])]);
        let mut latest = Latest::default();
        assert!(latest.take(found()).is_empty());
        assert!(latest.file().is_some_and(|file| file.path == "/my own/p.altq" && file.print == second));
        let differs = "the policy /my own/p.altq is another one than what runs; SIGHUP has it read";
        assert_eq!(latest.of("wan", |file| file.print == first), [differs, "other"]);
        assert_eq!(latest.of("wan", |file| file.print == second), ["other"]);
        latest.forget_file();
        assert_eq!(latest.of("wan", |file| file.print == first), ["other"]);
        latest.take(found());
        latest.take(Found::new());
        assert!(latest.file().is_none());
        assert_eq!(Print::of("\u{feff}first".as_bytes()), first);
    }

    #[test]
    fn a_policy_that_is_another_one_is_said_and_told_again_when_it_is_read() {
        let path = std::env::temp_dir().join(format!("altq-drift-{}.altq", std::process::id()));
        let text = "link l { rate 1Mbit/s  scheduler fifo  class all { default } }\n";
        let policy = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut policy = parse_str(text, "p.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
            policy.sources.texts[0].0.clone_from(&path);
            policy
        };
        let first = policy(text);
        let (send, found) = mpsc::channel();
        let watch = Watch::start(Fail::Open, move |found| _ = send.send(found)).unwrap();
        let next = |runs: &Files| {
            let mut latest = Latest::default();
            latest.take(found.recv_timeout(Duration::from_secs(60)).unwrap());
            latest.of("l", |file| file.print == runs[0].1).join("\n")
        };
        let one = files(&first);
        watch.shapes(&one, &first.links);
        assert_eq!(next(&one), "");
        let second = policy(&text.replace("1Mbit/s", "2Mbit/s"));
        let two = files(&second);
        watch.shapes(&one, &first.links);
        let said = next(&one);
        assert!(said.contains("is another one than what runs") && said.contains("altq-drift"), "{said}");
        watch.asks(&two, &second.links);
        assert_eq!(next(&two), "");
        std::fs::remove_file(&path).unwrap();
        watch.shapes(&two, &second.links);
        assert!(next(&two).contains("cannot be looked at"));
        watch.rests();
        drop(watch);
        assert!(found.recv().is_err(), "the thread has ended");
    }
}
