//! The connection between a worker and its supervisor. The worker sends beats, which mean that all
//! its loops work, and the changes of clients. The supervisor sends the policy and its later
//! versions, and answers questions about the changes that it keeps.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, mpsc};
use std::time::Duration;

use altq_config::{Failed, Policy};
use altq_control::change::{Answer, Ask, Guard, Question, Reply, Text};
use altq_dataplane::Reach;
use altq_dataplane::bridge::Claim;
use altq_dataplane::stop::Stop;
use altq_engine::Engine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde::{Deserialize, Serialize};

use super::keep::{policy_of, text_of};
use crate::policy::PolicyFile;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(25);

/// How long the supervisor may take to send a policy.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest policy that is read, in bytes.
const LONGEST: u64 = 512 << 20;
/// The word with which a worker answers that it has taken a policy, before the policy's number.
const TAKEN: &str = "taken";
const REFUSED: &str = "refused";

/// A policy as it is sent to a worker. It can be read without opening a file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Told {
    /// Its number: how many policies the supervisor had read before.
    pub number: u64,
    /// The policy.
    pub text: Text,
    /// Other data for the beginning of a worker.
    pub begun: Begun,
}

/// What is known at the beginning in addition to the policy.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Begun {
    /// The absolute path of the policy's file.
    pub path: String,
    /// The file's text; `None` if it has errors.
    pub file: Option<Text>,
    /// Why another policy than that of the file runs.
    pub instead: Option<String>,
    /// Until when a change waits that has to be confirmed, in ns since the boot.
    pub until_ns: Option<u64>,
    /// What must hold while it waits.
    pub guards: Vec<Guard>,
}

impl Told {
    /// The message for this policy.
    pub fn new(number: u64, file: &PolicyFile, policy: &Policy) -> Told {
        Told { number, text: text_of(file, policy), begun: Begun::default() }
    }

    /// Reads the policy.
    ///
    /// # Errors
    /// What is wrong with it, which is not expected.
    pub fn policy(&self) -> Result<Policy, Box<Failed>> {
        policy_of(&self.text)
    }
}

/// A worker's answer about a policy: its number, and whether it runs now. `None` for other lines.
pub fn answer(line: &[u8]) -> Option<(u64, bool)> {
    let (word, number) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let taken = match word {
        TAKEN => true,
        REFUSED => false,
        _ => return None,
    };
    Some((number.parse().ok()?, taken))
}

/// The connection to the supervisor: a socket, which is standard output.
#[derive(Clone)]
pub struct Wire {
    to: Arc<Mutex<File>>,
    from: Arc<Mutex<Inbox>>,
}

/// What has come from the supervisor.
struct Inbox {
    from: BufReader<UnixStream>,
    policies: Vec<Told>,
    answers: Vec<Reply>,
    /// How many questions were asked so far.
    asked: u64,
}

impl Inbox {
    /// Reads a line, and keeps it for the thread that waits for it.
    fn read(&mut self) -> io::Result<()> {
        let mut line = String::new();
        let count = (&mut self.from).take(LONGEST).read_line(&mut line)?;
        if count == 0 || !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.starts_with("{\"kept\":") {
            self.answers.push(serde_json::from_str(&line)?);
        } else {
            self.policies.push(serde_json::from_str(&line)?);
        }
        Ok(())
    }

    /// Whether there is more to read.
    fn has_more(&self) -> io::Result<bool> {
        if !self.from.buffer().is_empty() {
            return Ok(true);
        }
        let mut watched = [PollFd::new(self.from.get_ref(), PollFlags::IN)];
        Ok(poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
    }
}

impl Wire {
    /// The connection, from copies of standard output.
    ///
    /// # Errors
    /// The descriptor cannot be copied, or is not a socket.
    pub fn new() -> io::Result<Wire> {
        let copy = || -> io::Result<OwnedFd> { io::stdout().as_fd().try_clone_to_owned() };
        let from = UnixStream::from(copy()?);
        from.set_read_timeout(Some(PATIENCE))?;
        let to = Arc::new(Mutex::new(File::from(copy()?)));
        let (from, policies, answers) = (BufReader::new(from), Vec::new(), Vec::new());
        Ok(Wire { to, from: Arc::new(Mutex::new(Inbox { from, policies, answers, asked: 0 })) })
    }

    /// Asks the supervisor, and waits for its answer.
    ///
    /// # Errors
    /// There is no answer in time, or the supervisor is gone.
    pub fn ask(&self, ask: Ask) -> io::Result<Answer> {
        let mut inbox = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.asked += 1;
        let number = inbox.asked;
        let mut line = serde_json::to_vec(&Question { keep: number, ask })?;
        line.push(b'\n');
        self.say(&line)?;
        loop {
            // An answer with another number came too late, for an earlier question.
            if let Some(reply) = inbox.answers.drain(..).find(|reply| reply.kept == number) {
                return Ok(reply.answer);
            }
            inbox.read()?;
        }
    }

    /// Sends a line. Lines of several threads do not mix.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn say(&self, line: &[u8]) -> io::Result<()> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
    }

    /// Sends a beat. It never waits: a supervisor that has not read the beats before, because it
    /// was stopped, needs no more of them, and the claim on frames must be renewed meanwhile.
    ///
    /// # Errors
    /// Nobody listens any more.
    fn beat(&self) -> io::Result<()> {
        let to = match self.to.try_lock() {
            Ok(to) => to,
            Err(TryLockError::Poisoned(to)) => to.into_inner(),
            // What another thread sends counts as well.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        match send(&*to, b"\n", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers a policy that was sent while the worker ran.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn answer(&self, number: u64, taken: bool) -> io::Result<()> {
        self.say(format!("{} {number}\n", if taken { TAKEN } else { REFUSED }).as_bytes())
    }

    /// Whether the supervisor has sent a policy. It does not wait for one.
    pub fn has_policy(&self) -> bool {
        let mut inbox = match self.from.try_lock() {
            Ok(inbox) => inbox,
            Err(TryLockError::Poisoned(inbox)) => inbox.into_inner(),
            // Another thread reads, and a policy that comes meanwhile is kept.
            Err(TryLockError::WouldBlock) => return false,
        };
        while inbox.policies.is_empty() && inbox.has_more().unwrap_or(false) {
            // If the supervisor is gone, this worker ends soon.
            if inbox.read().is_err() {
                return false;
            }
        }
        !inbox.policies.is_empty()
    }

    /// The policy that the supervisor has sent: the latest if there are several.
    ///
    /// # Errors
    /// None comes in time, or the supervisor is gone.
    pub fn policy(&self) -> io::Result<Told> {
        let mut inbox = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        while inbox.policies.is_empty() || inbox.has_more()? {
            inbox.read()?;
        }
        inbox.policies.drain(..).next_back().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Sends beats, in a thread: an empty line whenever every loop has answered. It also renews the
/// claim on the frames of bridges. So when a loop is stuck, the worker is silent and the claim
/// ends. If nobody listens any more, `stop` is set: a worker does not outlive its supervisor.
///
/// # Errors
/// That of starting a thread.
pub fn start(wire: Wire, reach: Reach, claim: Option<Claim>, stop: Stop) -> io::Result<()> {
    let work = move || {
        while all_answer(&reach) {
            if let Some(claim) = &claim {
                claim.renew();
            }
            if wire.beat().is_err() {
                eprintln!("altq run: the supervisor is gone, so the worker ends");
                return stop.set();
            }
            std::thread::sleep(BEAT);
        }
    };
    std::thread::Builder::new().name("altq heart".to_owned()).spawn(work)?;
    Ok(())
}

/// Waits until each loop has answered. False if one has ended. Links that the kernel executes have
/// no loop.
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
    use altq_config::{Language, parse_str};

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

    /// The worker reads the same policy as the supervisor, with the names that counters have.
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

    /// A SIGHUP that somebody else sends to the worker must not make it wait for a policy.
    #[test]
    fn whether_a_policy_was_sent_is_known_at_once() {
        let (mut supervisor, worker) = UnixStream::pair().unwrap();
        worker.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = File::from(OwnedFd::from(worker.try_clone().unwrap()));
        let inbox = Inbox { from: BufReader::new(worker), policies: Vec::new(), answers: Vec::new(), asked: 0 };
        let wire = Wire { to: Arc::new(Mutex::new(to)), from: Arc::new(Mutex::new(inbox)) };
        let begun = std::time::Instant::now();
        assert!(!wire.has_policy() && begun.elapsed() < PATIENCE);
        let text = "link l { rate 1Mbit/s  scheduler fifo  class all { default } }";
        let policy = parse_str(text, "p.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let file = PolicyFile { file: "p.altq".into(), language: None };
        let mut line = serde_json::to_vec(&Told::new(3, &file, &policy)).unwrap();
        line.push(b'\n');
        supervisor.write_all(&line).unwrap();
        assert!(wire.has_policy() && wire.has_policy());
        assert_eq!(wire.policy().unwrap().number, 3);
        assert!(!wire.has_policy());
        drop(supervisor);
        assert!(!wire.has_policy());
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
