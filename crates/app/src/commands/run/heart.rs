//! The heart of a worker: it tells the supervisor that all loops go round, and what clients have
//! changed. The supervisor tells it the policy, and what that has become.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use altq_config::{Failed, Language, Policy, parse_str, print};
use altq_dataplane::Reach;
use altq_dataplane::bridge::Claim;
use altq_dataplane::stop::Stop;
use altq_engine::Engine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::policy::PolicyFile;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(25);

/// How long the supervisor may take to tell a policy.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest policy that is read, in bytes.
const LONGEST: u64 = 512 << 20;
/// What a worker says of a policy that it was told while it ran, before the policy's number.
const TAKEN: &str = "taken";
const REFUSED: &str = "refused";

/// A policy on its way to a worker, which can be read without opening a file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Told {
    /// How many policies the supervisor had read before.
    pub number: u64,
    /// What messages call the text.
    name: String,
    language: String,
    text: String,
}

impl Told {
    /// This policy. The native language is printed anew, because it may include files; others are
    /// told as they are written.
    pub fn new(number: u64, file: &PolicyFile, policy: &Policy) -> Told {
        let text = policy.sources.texts.first().map_or("", |(_, text)| text.as_str());
        let language = file.language.or_else(|| Language::of(&file.file, text)).unwrap_or(Language::Native);
        let (name, text) = match language {
            Language::Native => ("the policy".to_owned(), print(policy).text),
            _ => (file.file.display().to_string(), text.to_owned()),
        };
        Told { number, name, language: language.name().to_owned(), text }
    }

    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it, which nothing should be.
    pub fn policy(&self) -> Result<Policy, Box<Failed>> {
        parse_str(&self.text, &self.name, self.language.parse().unwrap_or(Language::Native))
    }
}

/// What a worker says of a policy: its number, and whether it is what runs now. `None` for whatever
/// else a worker says.
pub fn answer(line: &[u8]) -> Option<(u64, bool)> {
    let (word, number) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let taken = match word {
        TAKEN => true,
        REFUSED => false,
        _ => return None,
    };
    Some((number.parse().ok()?, taken))
}

/// What leads to the supervisor and back: a socket, which is standard output.
#[derive(Clone)]
pub struct Wire {
    to: Arc<Mutex<File>>,
    from: Arc<Mutex<BufReader<UnixStream>>>,
}

impl Wire {
    /// Copies of standard output.
    ///
    /// # Errors
    /// Those of copying the descriptor; it is no socket.
    pub fn new() -> io::Result<Wire> {
        let copy = || -> io::Result<OwnedFd> { io::stdout().as_fd().try_clone_to_owned() };
        let from = UnixStream::from(copy()?);
        from.set_read_timeout(Some(PATIENCE))?;
        let to = Arc::new(Mutex::new(File::from(copy()?)));
        Ok(Wire { to, from: Arc::new(Mutex::new(BufReader::new(from))) })
    }

    /// Says a line. Lines of several threads do not mix.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn say(&self, line: &[u8]) -> io::Result<()> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
    }

    /// Answers a policy that was told while the worker ran.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn answer(&self, number: u64, taken: bool) -> io::Result<()> {
        self.say(format!("{} {number}\n", if taken { TAKEN } else { REFUSED }).as_bytes())
    }

    /// The policy that the supervisor tells: the latest if there are several.
    ///
    /// # Errors
    /// It tells none in time, or is gone.
    pub fn policy(&self) -> io::Result<Told> {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut line = String::new();
            let count = (&mut *from).take(LONGEST).read_line(&mut line)?;
            if count == 0 || !line.ends_with('\n') {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let more = !from.buffer().is_empty() || {
                let mut watched = [PollFd::new(from.get_ref(), PollFlags::IN)];
                poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0
            };
            if !more {
                return Ok(serde_json::from_str(&line)?);
            }
        }
    }
}

/// Beats in a thread, an empty line each time, after every loop has answered, and renews the claim
/// on the frames of bridges. So it is silent, and the claim ends, when one of the loops is stuck.
/// When nobody listens any more, `stop` is set: a worker does not outlive its supervisor.
///
/// # Errors
/// That of starting a thread.
pub fn start(wire: Wire, reach: Reach, claim: Option<Claim>, stop: Stop) -> io::Result<()> {
    let work = move || {
        while all_answer(&reach) {
            if let Some(claim) = &claim {
                claim.renew();
            }
            if wire.say(b"\n").is_err() {
                eprintln!("altq run: the supervisor is gone, so the worker ends");
                return stop.set();
            }
            std::thread::sleep(BEAT);
        }
    };
    std::thread::Builder::new().name("altq heart".to_owned()).spawn(work)?;
    Ok(())
}

/// Waits until each loop has answered. False if one has ended: its question is thrown away then.
/// Links that the kernel executes have no loop.
fn all_answer(reach: &Reach) -> bool {
    let (answer, answers) = mpsc::channel();
    let mut asked = 0;
    for link in reach.loops() {
        let answer = answer.clone();
        reach.look(link, Box::new(move |_: &Engine| _ = answer.send(())));
        asked += 1;
    }
    drop(answer);
    answers.iter().count() == asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, text: &str) -> (Policy, Policy) {
        let language = if name.ends_with(".altq") { Language::Native } else { Language::Altq };
        let policy = parse_str(text, name, language).unwrap_or_else(|error| panic!("{error}"));
        let file = PolicyFile { file: name.into(), language: None };
        let line = serde_json::to_string(&Told::new(3, &file, &policy)).unwrap();
        assert!(!line.contains('\n'));
        let told: Told = serde_json::from_str(&line).unwrap();
        let read = told.policy().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(told.number, 3);
        (policy, read)
    }

    /// What a worker reads is what the supervisor has read, with the names that counters have.
    #[test]
    fn a_policy_arrives_as_it_was_read() {
        let native =
            "link wan { device eth0  rate 10Mbit/s adapt { from 5Mbit/s to 20Mbit/s  reflectors { 192.0.2.1 } }
            overhead ethernet  scheduler cbq
            class voice { share 20%  borrow  queue codel {} }  class rest { share 80%  default }
            match dscp ef -> voice }
            link lan { device eth1 ingress  path kernel  rate 1Gbit/s  scheduler htb
            class all { rate 1Gbit/s  default } }";
        // Its root class has a name of its own, which the native language cannot give it.
        let altq = include_str!("../../demo/1997.conf");
        for (name, text) in [("p.altq", native), ("altq.conf", altq)] {
            let (policy, read) = told(name, text);
            assert_eq!(policy.links.len(), read.links.len());
            for (link, read) in policy.links.iter().zip(&read.links) {
                assert_eq!((&link.name, &link.device, link.path()), (&read.name, &read.device, read.path()));
                let changes = altq_config::changes(link, read);
                assert!(changes.as_ref().is_ok_and(|changes| changes.is_empty()), "{changes:?}");
                assert_eq!(link.adapt, read.adapt);
                let names = |link: &altq_config::Link| -> Vec<String> {
                    link.classes.iter().map(|class| class.name.clone()).collect()
                };
                assert_eq!(names(link), names(read));
            }
        }
    }

    #[test]
    fn answers_are_told_from_beats_and_notes() {
        assert_eq!(answer(b"taken 7"), Some((7, true)));
        assert_eq!(answer(b"refused 18446744073709551615"), Some((u64::MAX, false)));
        for line in [b"".as_slice(), b"taken", b"taken x", b"{\"op\":\"status\"}", b"\xff\xfe 1", b"given 7"] {
            assert_eq!(answer(line), None);
        }
    }
}
