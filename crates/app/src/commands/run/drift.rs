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
use altq_dataplane::drift::{Drift, UNSHAPED};
use serde::Serialize;

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(5);

/// If a file has not changed for so long, its next change will change its times.
const SETTLED: Duration = Duration::from_secs(2);

/// By link, what differs, one sentence each.
pub type Found = BTreeMap<String, Vec<String>>;

/// What was found last.
#[derive(Default)]
pub struct Latest {
    found: Found,
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
    pub fn take(&mut self, found: Found) -> Vec<String> {
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
                said.push(format!("link {name}: packets pass unshaped: {reason}; a new start of altq sets them again"));
                self.unshaped.insert(name.clone(), Unshaped { since: Instant::now(), reason });
            }
        }
        self.found = found;
        said
    }

    /// What differs in a link.
    pub fn of(&self, link: &str) -> Vec<String> {
        self.found.get(link).cloned().unwrap_or_default()
    }

    /// Since when packets of a link pass unshaped, and why; `None` if they do not.
    pub fn unshaped(&self, link: &str) -> Option<Unshaped> {
        self.unshaped.get(link).cloned()
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
    fn of(text: &[u8]) -> Print {
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
    /// Starts the thread, which calls `tell` after each check.
    ///
    /// # Errors
    /// That of starting a thread.
    pub fn start(tell: impl FnMut(Found) + Send + 'static) -> io::Result<Watch> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let watch = Watch(shared.clone());
        std::thread::Builder::new().name("altq drift".to_owned()).spawn(move || shared.run(tell))?;
        Ok(watch)
    }

    /// As [`start`](Watch::start), but sends what is found to the worker by its control socket.
    ///
    /// # Errors
    /// Those of [`start`](Watch::start).
    pub fn telling(socket: &Path) -> io::Result<Watch> {
        #[derive(Serialize)]
        struct Fields {
            links: Vec<Differs>,
        }
        let path = socket.to_owned();
        Watch::start(move |found| {
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

    fn run(&self, mut tell: impl FnMut(Found)) {
        let (mut drift, mut seen, mut last) = (Drift::default(), Seen::default(), 0);
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
            let files: Vec<String> = asked.files.iter().filter_map(|(path, print)| seen.look(path, *print)).collect();
            found.values_mut().for_each(|lines| _ = lines.splice(0..0, files.iter().cloned()));
            // If a worker has ended during the check, the result does not hold for the next one.
            if self.lock().turn == turn {
                tell(found);
            }
            let same = |state: &mut State| state.turn == turn && !state.over;
            let _ = self.changed.wait_timeout_while(self.lock(), EVERY, same);
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
    /// How a file differs from what was read; `None` if it is the same, or is not a regular file.
    fn look(&mut self, path: &Path, print: Print) -> Option<String> {
        let shown = path.display();
        let found = match std::fs::metadata(path) {
            Ok(found) if found.is_file() => found,
            // A pipe can be read only once.
            Ok(_) => return None,
            Err(error) => return Some(format!("the policy {shown} cannot be looked at any more: {error}")),
        };
        let now = match self.0.get(path) {
            Some((before, print)) if *before == stamp(&found) => *print,
            _ => match std::fs::read(path) {
                Ok(text) => {
                    let print = Print::of(&text);
                    // A file that was written just now may be written again without a change of its
                    // times.
                    if found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SETTLED)) {
                        self.0.insert(path.to_owned(), (stamp(&found), print));
                    }
                    print
                }
                Err(error) => return Some(format!("the policy {shown} cannot be read any more: {error}")),
            },
        };
        (now != print).then(|| format!("the policy {shown} is another one than what runs; SIGHUP has it read"))
    }
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
        assert_eq!((latest.of("wan").len(), latest.of("lan").len()), (2, 0));
        assert_eq!(latest.take(found("other")), ["link wan: packets are shaped again"]);
        assert!(latest.unshaped("wan").is_none());
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
        let watch = Watch::start(move |found| _ = send.send(found)).unwrap();
        let next = || found.recv_timeout(Duration::from_secs(60)).unwrap()["l"].join("\n");
        watch.shapes(&files(&first), &first.links);
        assert_eq!(next(), "");
        let second = policy(&text.replace("1Mbit/s", "2Mbit/s"));
        watch.shapes(&files(&first), &first.links);
        let said = next();
        assert!(said.contains("is another one than what runs") && said.contains("altq-drift"), "{said}");
        watch.asks(&files(&second), &second.links);
        assert_eq!(next(), "");
        std::fs::remove_file(&path).unwrap();
        watch.shapes(&files(&second), &second.links);
        assert!(next().contains("cannot be looked at"));
        watch.rests();
        drop(watch);
        assert!(found.recv().is_err(), "the thread has ended");
    }
}
