//! Answers requests of clients of the control socket (docs/control.md).

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use altq_config::{Link, Path};
use altq_control::document::{BYPASS, Changed, LinkStatus, Status, Subscribers, Text};
use altq_control::journal::note;
use altq_control::reply::{Body, body, body_over};
use altq_control::request::Form;
use altq_control::rights::Peer;
use altq_control::roster::Report;
use altq_control::server::Service;
use altq_control::{Code, Fault, Request};
use altq_dataplane::{Error as LinkError, fits};
use altq_engine::units::{Rate, SECOND};
use rustix::process::getppid;

use super::heart::Wire;
use super::live::{Live, Shown, State};
use super::stat::{self, path, state};
use super::table;
use super::taps::Taps;
use super::{apply, monitors, reservations};
use crate::exit::Exit;

/// The width of a table if the client does not tell that of its terminal.
const WIDTH: usize = 100;
/// How long the result of comparing the kernel's qdiscs is used again: comparing 5,000 classes
/// takes a part of a second.
const LOOKED: Duration = Duration::from_secs(1);

/// Answers requests.
pub struct Answers {
    live: Arc<Live>,
    /// The connection to the supervisor, if there is one. It is sent all changes.
    wire: Option<Wire>,
    /// The latest documents about counters, which are used again for the same requests: `altq web`
    /// asks for more than others.
    latest: [Option<Latest>; 2],
    /// When the kernel's qdiscs were compared last, and the differences by link.
    looked: Option<(Instant, BTreeMap<String, Vec<String>>)>,
    taps: Taps,
}

struct Latest {
    link: Option<String>,
    form: Form,
    of: Vec<Shown>,
    body: Body,
}

impl Answers {
    /// Answers about these links.
    pub fn new(live: Arc<Live>, wire: Option<Wire>) -> Answers {
        Answers { live, wire, latest: [None, None], looked: None, taps: Taps::default() }
    }

    /// Reports a change that was made to the supervisor.
    fn note(&self, change: &Request) {
        if let Some(wire) = &self.wire {
            // If the supervisor is gone, this worker ends soon.
            let _ = wire.say(&note(change));
        }
    }

    /// Compares the kernel's qdiscs, unless that was done just now.
    fn look(&mut self) {
        if self.looked.as_ref().is_some_and(|(at, _)| at.elapsed() < LOOKED) {
            return;
        }
        let names: Vec<String> = self.live.lock().names().into_iter().map(str::to_owned).collect();
        let differ = |name: String| {
            let drift = self.live.drift(&name);
            (name, drift)
        };
        self.looked = Some((Instant::now(), names.into_iter().map(differ).collect()));
    }

    fn status(&mut self) -> Status {
        self.look();
        let looked = self.looked.as_ref().map(|(_, found)| found);
        let mut live = self.live.lock();
        self.live.learn(&mut live);
        let differ = live.drift();
        let since_s = self.live.since.elapsed().as_secs();
        let link = |name: &str| {
            let link = live.roster.link(name)?;
            let (path, state) = (path(link).to_owned(), state(link).to_owned());
            let mut drift = looked.and_then(|found| found.get(name)).cloned().unwrap_or_default();
            drift.extend(self.live.seen(name, &live.course));
            drift.extend(differ.get(name).into_iter().flatten().cloned());
            let beside = live.set_beside(name);
            let set_by_clients = beside.len();
            drift.extend(beside);
            let name = name.to_owned();
            Some(match self.live.unshaped(&name) {
                Some(found) => {
                    let (state, since_s) = (BYPASS.to_owned(), found.since.elapsed().as_secs());
                    LinkStatus { name, path, state, since_s, reason: Some(found.reason), drift, set_by_clients }
                }
                None => LinkStatus { name, path, state, since_s, reason: None, drift, set_by_clients },
            })
        };
        let mut status = Status::of(live.names().into_iter().filter_map(link).collect());
        status.confirm_pending_s = live.course.left().map(|left| left.div_ceil(SECOND));
        status
    }

    fn stat(&mut self, link: Option<String>, form: Form) -> Result<Body, Fault> {
        let of = self.shown(link.as_deref())?;
        let same = |a: &Shown, b: &Shown| Arc::ptr_eq(&a.0, &b.0) && Arc::ptr_eq(&a.1, &b.1);
        let slot = usize::from(form == Form::Json { waited: true });
        if let Some(latest) = &self.latest[slot]
            && (&latest.link, &latest.form) == (&link, &form)
            && latest.of.len() == of.len()
            && latest.of.iter().zip(&of).all(|(a, b)| same(a, b))
        {
            return Ok(latest.body.clone());
        }
        // Unless a client still waits for it, the next document takes its place in memory.
        let old = self.latest[slot].take().map(|latest| latest.body);
        let links: Vec<_> = of.iter().map(|(shaped, snapshot)| (&**shaped, &**snapshot)).collect();
        let made = match &form {
            Form::Json { waited } => {
                let mut counted = stat::of(&links, *waited);
                self.live.mark(&mut counted);
                document_over(old, &counted)?
            }
            Form::Table { width } => {
                let width = width.map_or(WIDTH, usize::from);
                let text = table::draw(&links, table::Screen::Plain, false, Some(width));
                document(&Text { text, legend: None })?
            }
            Form::Tool(format) => document(&self.as_tool(format, &of)?)?,
        };
        self.latest[slot] = Some(Latest { link, form, of, body: made.clone() });
        Ok(made)
    }

    /// The links that a request means, with their latest snapshots.
    fn shown(&self, name: Option<&str>) -> Result<Vec<Shown>, Fault> {
        let mut state = self.live.lock();
        if let Some(name) = name
            && !state.names().contains(&name)
        {
            let fault = Fault::usage(format!("no link `{name}` runs here"));
            return Err(fault.help(format!("there is {}", state.names().join(", "))));
        }
        let mut shown = state
            .shown()
            .ok_or_else(|| Fault::new(Code::Failed, "there are no counters yet").help("ask again in a moment"))?;
        shown.retain(|(shaped, _)| name.is_none_or(|name| shaped.link.name == name));
        Ok(shown)
    }

    #[cfg(feature = "experiments")]
    fn as_tool(&self, format: &str, of: &[Shown]) -> Result<Text, Fault> {
        super::tool::text(format, of, &self.live)
    }

    #[cfg(not(feature = "experiments"))]
    fn as_tool(&self, format: &str, _: &[Shown]) -> Result<Text, Fault> {
        let message = format!("this altq is built without the format `{format}`");
        Err(Fault::new(Code::Unsupported, message).help("`json` and `table` are there"))
    }

    fn set_link(&mut self, name: &str, rate: Rate, peer: &Peer) -> Result<Changed, Fault> {
        let mut state = self.live.lock();
        let before = state.roster.link(name).map(|link| link.spec.rate);
        let changed = give_rate(&self.live, &mut state, name, rate)?;
        // Before anybody else changes something, so that the journal has changes in their order.
        self.note(&Request::SetLink { link: name.to_owned(), rate_bit_s: rate.as_bit_s() });
        drop(state);
        if changed {
            let before = before.unwrap_or_default();
            eprintln!("altq run: link {name}: rate {rate}, before {before}; asked by {}", who(peer));
        }
        Ok(Changed { changed })
    }

    /// Takes the differences that the supervisor has found.
    fn told(&self, found: Vec<(String, Vec<String>)>, peer: &Peer) -> Result<Body, Fault> {
        if !reservations::is_own(peer) {
            let message = format!("user {} may change what runs, but not tell what differs from it", peer.uid);
            return Err(Fault::new(Code::NotPermitted, message));
        }
        self.live.see(found.into_iter().collect());
        document(&Changed { changed: true })
    }

    fn subscribers(&self, request: Request, peer: &Peer) -> Result<Report, Fault> {
        let mut state = self.live.lock();
        // Who has another address by now stays.
        let (request, others) = match request {
            Request::DeleteSubscribersAt { ids, addr } => {
                let there = state.roster.at(&ids, addr);
                let others = ids.len() - there.len();
                (Request::DeleteSubscribers(there), others)
            }
            request => (request, 0),
        };
        let (what, (mut report, changes)) = match &request {
            // What the supervisor sends was there before.
            Request::SetSubscribers(subscribers) if is_supervisor(peer) => {
                ("set again", state.roster.set_again(subscribers.clone()))
            }
            Request::SetSubscribers(subscribers) => ("set", state.roster.set(subscribers.clone())),
            Request::DeleteSubscribers(ids) => ("gone", state.roster.delete(ids)),
            _ => return Err(Fault::usage("this is not about subscribers")),
        };
        report.unchanged += others;
        let all = state.roster.len();
        self.live.make(changes);
        // Before anybody else changes something, so that the journal has changes in their order.
        self.note(&match request {
            Request::SetSubscribers(mut subscribers) => {
                let failed: HashSet<&str> = report.failed.iter().map(|failure| failure.id.as_str()).collect();
                // Who is refused may have changed in part, if several exchange addresses.
                subscribers.retain_mut(|one| match state.roster.subscriber(&one.id) {
                    Some(now) if failed.contains(one.id.as_str()) => {
                        *one = now.clone();
                        true
                    }
                    there => there.is_some(),
                });
                Request::SetSubscribers(subscribers)
            }
            other => other,
        });
        drop(state);
        if report.done + report.failed.len() > 0 {
            let failed = match report.failed.as_slice() {
                [] => String::new(),
                [first, ..] => format!(", {} refused ({}: {})", report.failed.len(), first.id, first.error),
            };
            eprintln!("altq run: subscribers: {} {what}{failed}, {all} now; asked by {}", report.done, who(peer));
        }
        Ok(report)
    }
}

impl Service for Answers {
    fn answer(&mut self, request: Request, peer: &Peer) -> Result<Body, Fault> {
        reservations::comes_in_time(&self.live, &request, peer)?;
        match request {
            Request::Status => document(&self.status()),
            Request::Stat { link, form } => self.stat(link, form),
            Request::Top(asked) => monitors::answer(&self.live, &asked),
            Request::Past(asked) => monitors::past(&self.live, &asked),
            Request::SetLink { link, rate_bit_s } => document(&self.set_link(&link, Rate::bit_s(rate_bit_s), peer)?),
            Request::ListSubscribers => document(&Subscribers::of(self.live.lock().roster.subscribers())),
            Request::Tap(tap) => document(&self.taps.answer(&self.live, tap, peer)?),
            Request::TellDrift(found) => self.told(found, peer),
            Request::Reserve(asked) => reservations::answer(&self.live, self.wire.as_ref(), asked, peer),
            Request::Change(change) => apply::answer(&self.live, self.wire.as_ref(), change, peer),
            request => document(&self.subscribers(request, peer)?),
        }
    }

    fn given(&mut self, file: OwnedFd) {
        self.taps.give(file);
    }

    fn watch(&mut self) -> Result<u64, Fault> {
        Ok(self.live.lock().roster.coming())
    }

    fn news(&mut self, from: u64, most: usize) -> (Body, u64) {
        self.live.lock().roster.news(from, most)
    }

    fn rests(&mut self) -> Option<Duration> {
        reservations::rests(&self.live)
    }

    fn work(&mut self) {
        reservations::work(&self.live, self.wire.as_ref());
    }
}

/// The process that supervises this worker.
static SUPERVISOR: OnceLock<i32> = OnceLock::new();

/// Notes which process supervises this worker.
pub fn note_supervisor() {
    if let Some(parent) = getppid() {
        let _ = SUPERVISOR.set(parent.as_raw_nonzero().get());
    }
}

/// True for the process that supervises this worker.
pub fn is_supervisor(peer: &Peer) -> bool {
    SUPERVISOR.get() == Some(&peer.pid)
}

/// Gives a link another rate. False if it has this rate already.
///
/// # Errors
/// There is no such link, or it cannot have this rate. Then it keeps the one that it has.
pub fn give_rate(live: &Live, state: &mut State, name: &str, rate: Rate) -> Result<bool, Fault> {
    let before = state.roster.link(name).map(|link| link.spec.rate);
    if before.is_some_and(|before| before != rate)
        && let Some(start) = state.started(name)
    {
        let mut to = Link::clone(&start);
        to.spec.rate = rate;
        fits(&start, &to, live.tuning)
            .map_err(|what| Fault::refused(format!("only a new start can change this: {what}")))?;
    }
    let changes = state.roster.set_rate(name, rate)?;
    let changed = !changes.is_empty();
    if let (true, Some(before), Some(link)) = (changed, before, by_kernel(state, name))
        && let Err(error) = live.replace(&link)
    {
        // The kernel keeps the old qdiscs, so the roster gets the old rate again.
        state.roster.set_rate(name, before)?;
        return Err(of_kernel(name, &error));
    }
    // This is done while the lock is held, so that the loops get all changes in the same order as
    // the roster.
    live.make(changes);
    Ok(changed)
}

/// A link, if the kernel executes it.
fn by_kernel(state: &State, name: &str) -> Option<Arc<Link>> {
    state.roster.link(name).filter(|link| link.path() == Some(Path::Kernel)).cloned()
}

/// The fault if the kernel refuses a link.
fn of_kernel(name: &str, error: &LinkError) -> Fault {
    let code = match Exit::of_link(error) {
        Exit::NotPermitted => Code::NotPermitted,
        Exit::Unsupported => Code::Unsupported,
        Exit::Refused | Exit::Usage => Code::Refused,
        _ => Code::Failed,
    };
    Fault::new(code, format!("link `{name}`: {error}; what stood there stays"))
}

/// As [`document`], written over one that was sent before.
///
/// # Errors
/// As [`document`].
fn document_over(old: Option<Body>, of: &impl serde::Serialize) -> Result<Body, Fault> {
    body_over(old, of).map_err(|error| Fault::new(Code::Failed, error.to_string()))
}

/// A document as the body of a reply.
///
/// # Errors
/// It cannot be written.
pub fn document(of: &impl serde::Serialize) -> Result<Body, Fault> {
    body(of).map_err(|error| Fault::new(Code::Failed, error.to_string()))
}

/// Who asks, for the log.
pub fn who(peer: &Peer) -> String {
    format!("process {} of user {}", peer.pid, peer.uid)
}
