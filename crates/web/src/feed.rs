//! Asks altq once a second, and puts the answers on the board.
//!
//! When altq does not answer, it is asked again a second later, on a new connection. A supervisor
//! without a worker answers only `status`. Then it is known which links there are and that their
//! packets pass unshaped, but there are no figures.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use altq_control::change::{Entry, What};
use altq_control::client::{Client, NoFields};
use altq_control::document::{LinkStatus, Status};
use altq_control::request::change::{History, Running as Text};
use altq_control::{Code, Fault};
use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::changes::{self, MARKS, Mark};
use crate::earlier::{self, Earlier};
use crate::explain::Running;
use crate::frame::{Frame, Reserved, Shown};
use crate::history::Past;
use crate::read;
use crate::stat::{self, Stat};
use crate::watch::{News, Step, Watch};

/// Time between two questions to altq.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between two questions for reservations, of which there may be many, and for whether links
/// adapt.
const LIST: Duration = Duration::from_secs(15);
/// How far back the history of the page reaches, in ms.
const REACH_MS: u64 = 6 * 3600 * 1000;
/// A change of the policy is seen in the figures at most so much later or earlier, in ms, beside
/// their interval.
const NEAR_MS: u64 = 2000;

/// Asks altq.
#[derive(Debug)]
pub struct Feed {
    socket: PathBuf,
    client: Option<Client>,
    /// The most bytes that all histories may take together.
    memory: usize,
    /// Whether altq is asked how many packets waited how long.
    waited: bool,
    watches: BTreeMap<String, Watch>,
    seq: u64,
    /// The links as they were when altq last answered.
    before: Vec<LinkStatus>,
    /// The links of the previous frame, and whether they had figures.
    figures: Vec<(String, bool)>,
    marks: VecDeque<Mark>,
    /// Marks of what clients have set. Subscribers may come and go all the time.
    others: VecDeque<Mark>,
    reserved: Option<Vec<Reserved>>,
    listed: Option<Instant>,
    /// By link, whether its rate follows the line.
    adapts: BTreeMap<String, bool>,
    /// By link, what altq has kept of the time before; `None` once that is taken in, or if there is
    /// nothing.
    earlier: BTreeMap<String, Option<Earlier>>,
    /// When the latest change of the policy was made that is known, in ns since 1970; `None` while
    /// altq has told none.
    told: Option<u64>,
    /// When the policy was changed since then, in ms since 1970.
    changed: VecDeque<u64>,
}

/// The fields of a request for counters.
#[derive(Serialize)]
struct Fields {
    format: &'static str,
    /// An altq that does not know this field refuses it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waited: bool,
}

/// The seconds that flows are of, and how many of a class are asked for.
const WINDOW: u32 = 10;
const FLOWS: u32 = 20;

/// The fields of a request for flows, or for the facts of a link.
#[derive(Serialize)]
struct OfClass<'a> {
    link: &'a str,
    class: &'a str,
    window_s: u32,
    flows: u32,
    alone: bool,
}

/// The answers of altq.
struct Said {
    status: Status,
    stat: Result<(Stat, String), Fault>,
    /// The changes of the policy, the latest last; `None` if altq tells none.
    changes: Option<Vec<Entry>>,
}

/// The parts of an answer to `top` that are used.
#[derive(Deserialize)]
struct Facts {
    links: Vec<Fact>,
}

#[derive(Deserialize)]
struct Fact {
    name: String,
    #[serde(default)]
    adapts: Option<bool>,
}

/// The parts of a list of reservations that are used.
#[derive(Deserialize)]
struct Places {
    places: Vec<Place>,
}

#[derive(Deserialize)]
struct Place {
    link: String,
    class: String,
    reservations: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    refused: BTreeMap<String, u64>,
}

impl Feed {
    /// A feed that asks on this socket. The histories of all links together take at most `memory`
    /// bytes. If `waited` is true, the metrics have histograms of how long packets waited.
    pub fn new(socket: PathBuf, memory: usize, waited: bool) -> Feed {
        Feed {
            socket,
            client: None,
            memory,
            waited,
            watches: BTreeMap::new(),
            seq: 0,
            before: Vec::new(),
            figures: Vec::new(),
            marks: VecDeque::new(),
            others: VecDeque::new(),
            reserved: None,
            listed: None,
            adapts: BTreeMap::new(),
            earlier: BTreeMap::new(),
            told: None,
            changed: VecDeque::new(),
        }
    }

    /// Asks once a second, for ever.
    pub fn run(mut self, board: &Board) -> ! {
        loop {
            let next = Instant::now() + PERIOD;
            self.look(board);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Asks, and shows the answer. Returns why there are no figures, if there are none.
    pub fn look(&mut self, board: &Board) -> Option<Fault> {
        let said = self.ask(board);
        self.seq += 1;
        let now = unix_ms();
        let mut frame = Frame { seq: self.seq, unix_ms: now, ..Frame::default() };
        match said {
            Err(fault) => frame.fault = Some(fault),
            Ok(Said { status, stat, changes }) => {
                frame.reserved = self.reserved.clone();
                frame.adapts = self.adapts.clone();
                if let Some(changes) = changes {
                    frame.applied = Some(changes.last().is_none_or(|last| last.what != What::Reverted));
                    self.say_changes(&changes, &status);
                }
                match stat {
                    Ok((stat, json)) => {
                        frame.fault = self.take(&stat, &status, &mut frame.links, &mut frame.whole, board);
                        (frame.stat, frame.stat_json) = (Some(stat), Some(json.into_bytes().into()));
                    }
                    Err(fault) => {
                        frame.fault = Some(fault);
                        frame.links = status.links.iter().map(without_figures).collect();
                    }
                }
                self.say_states(&status, now);
                frame.status = Some(status);
            }
        }
        // When links get figures, clients need everything about them.
        let told = |link: &Shown| (link.status.name.clone(), link.classes.is_some());
        let figures: Vec<(String, bool)> = frame.links.iter().map(told).collect();
        frame.whole |= figures != self.figures;
        self.figures = figures;
        if !frame.links.is_empty() {
            self.before = frame.links.iter().map(|link| link.status.clone()).collect();
        }
        frame.marks = self.marks.iter().chain(&self.others).cloned().collect();
        frame.marks.sort_by_key(|mark| mark.unix_ms);
        let fault = frame.fault.clone();
        board.show(frame);
        // Afterwards, because a large policy takes a while.
        let due = board.lock().policy.is_due(Instant::now());
        if let Some(mut client) = self.client.take_if(|_| due)
            && policy(&mut client, board)
        {
            self.client = Some(client);
        }
        fault
    }

    fn ask(&mut self, board: &Board) -> Result<Said, Fault> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.socket)?,
        };
        let status: Status = read(&client.ask("status", &NoFields {})?)?;
        let fields = Fields { format: "json", waited: self.waited };
        let mut json = client.ask("stat", &fields);
        if self.waited && json.as_ref().is_err_and(|fault| fault.code == Code::Usage) {
            self.waited = false;
            json = client.ask("stat", &Fields { waited: false, ..fields });
        }
        let stat = json.and_then(|json| Ok((read::<Stat>(&json)?, json)));
        // After the figures, so that no second between is missing.
        let mut lost = stat.as_ref().is_ok_and(|(stat, _)| !self.remember(&mut client, stat));
        // After the figures, so that no change in them is unknown.
        let changes = client.ask("history", &NoFields {}).and_then(|json| read::<History>(&json));
        lost |= changes.as_ref().is_err_and(|fault| fault.code == Code::Failed);
        if self.listed.is_none_or(|at| at.elapsed() >= LIST) {
            self.listed = Some(Instant::now());
            // An altq without reservations, or without a worker, answers with an error. The rest is
            // shown nevertheless.
            let places = client.ask("reserve.list", &NoFields {}).and_then(|json| read::<Places>(&json));
            self.reserved = places.ok().map(|places| places.places.into_iter().map(counted).collect());
            if let Ok((stat, _)) = &stat {
                lost |= !self.learn(&mut client, stat);
            }
        }
        if stat.is_ok() && !lost && flows(&mut client, board) {
            self.client = Some(client);
        }
        Ok(Said { status, stat, changes: changes.ok().map(|history| history.changes) })
    }

    /// Asks what altq has kept of links that are new here. False if the connection may be lost.
    fn remember(&mut self, client: &mut Client, stat: &Stat) -> bool {
        self.earlier.retain(|name, _| stat.links.iter().any(|link| link.name == *name));
        let seconds = earlier::seconds(stat.links.iter().map(|link| link.classes.len()).sum());
        for link in &stat.links {
            if self.earlier.contains_key(&link.name) {
                continue;
            }
            let earlier = match Earlier::ask(client, &link.name, seconds) {
                Ok(earlier) => Some(earlier),
                // It is asked again: a worker that has just begun keeps nothing yet.
                Err(fault) if fault.code == Code::Failed => return false,
                Err(_) => None,
            };
            self.earlier.insert(link.name.clone(), earlier);
        }
        true
    }

    /// Asks which links adapt. False if the connection may be lost.
    fn learn(&mut self, client: &mut Client, stat: &Stat) -> bool {
        self.adapts.retain(|name, _| stat.links.iter().any(|link| link.name == *name));
        for link in &stat.links {
            let Some(whole) = link.classes.first() else { continue };
            let fields = OfClass { link: &link.name, class: &whole.name, window_s: 1, flows: 0, alone: true };
            match client.ask("top", &fields).and_then(|json| read::<Facts>(&json)) {
                Ok(facts) => {
                    let known = facts.links.into_iter().filter_map(|fact| Some((fact.name, fact.adapts?)));
                    self.adapts.extend(known);
                }
                Err(fault) if fault.code == Code::Failed => return false,
                // altq does not watch its classes.
                Err(_) => {}
            }
        }
        true
    }

    /// Takes in counters. Returns what is wrong with them.
    fn take(
        &mut self,
        stat: &Stat,
        status: &Status,
        links: &mut Vec<Shown>,
        whole: &mut bool,
        board: &Board,
    ) -> Option<Fault> {
        let mut fault = None;
        for link in &stat.links {
            // A link that appeared between the two answers is shown a second later.
            let Some(state) = status.links.iter().find(|status| status.name == link.name) else { continue };
            match self.watched(link, whole) {
                Ok((News { changed, step, .. }, unix_ms)) => {
                    let Some(watch) = self.watches.get(&link.name) else { continue };
                    let earlier = self.earlier.get_mut(&link.name).and_then(Option::take);
                    // If it comes late, it has this step, too.
                    let step = step.filter(|_| earlier.is_none());
                    if let Some(earlier) = earlier {
                        let limit = self.memory / stat.links.len().max(1);
                        let past = Past::begun(limit, watch.classes(), &earlier, (link.at_ns, link.unix_ns));
                        board.lock().pasts.insert(link.name.clone(), past);
                    }
                    if let Some(step) = step {
                        self.keep(board, link, stat.links.len(), watch, &step);
                    }
                    links.push(Shown {
                        status: state.clone(),
                        classes: Some(watch.classes().clone()),
                        rows: watch.rows().to_vec(),
                        changed,
                        step: watch.step(),
                        unix_ms,
                    });
                }
                Err(what) => {
                    let what = format!("altq's answer about link `{}` cannot be read ({what})", link.name);
                    fault = Some(Fault::new(Code::Failed, what));
                    links.push(without_figures(state));
                }
            }
        }
        // Forgets links that are gone.
        self.watches.retain(|name, _| stat.links.iter().any(|link| link.name == *name));
        board.lock().pasts.retain(|name, _| stat.links.iter().any(|link| link.name == *name));
        fault
    }

    /// What a link did since the previous document.
    fn watched(&mut self, link: &stat::Link, whole: &mut bool) -> Result<(News, u64), String> {
        let unix_ms = link.unix_ns / 1_000_000;
        let Some(watch) = self.watches.get_mut(&link.name) else {
            let watch = Watch::new(link).map_err(|error| error.to_string())?;
            self.watches.insert(link.name.clone(), watch);
            *whole = true;
            return Ok((News::default(), unix_ms));
        };
        let before = watch.classes().clone();
        let news = watch.next(link).map_err(|error| error.to_string())?;
        *whole |= news.classes;
        let mut what = if news.classes { changes::of_classes(&before, watch.classes()) } else { None };
        // What altq remembers of a change of the policy says more. Others are those of clients:
        // rates and subscribers.
        let near = NEAR_MS.saturating_add(link.interval_ns / 1_000_000);
        if self.changed.iter().any(|at| at.abs_diff(unix_ms) <= near) {
            what = None;
        }
        let mark = |what| Mark { unix_ms, link: link.name.clone(), what };
        let (anew, what) = (news.anew.then(|| mark("altq started anew".to_owned())), what.map(mark));
        anew.into_iter().for_each(|mark| self.mark(mark));
        what.into_iter().for_each(|mark| keep(&mut self.others, mark));
        Ok((news, unix_ms))
    }

    /// Adds a step to the history of a link.
    fn keep(&self, board: &Board, link: &stat::Link, links: usize, watch: &Watch, step: &Step) {
        let mut known = board.lock();
        let limit = self.memory / links.max(1);
        let past = known.pasts.entry(link.name.clone()).or_insert_with(|| Past::new(limit));
        past.bound(limit);
        past.push(watch.classes(), step, link.unix_ns);
    }

    /// Adds marks for new changes of the policy, which is that of all links. Those of the time
    /// before this process are marks as well, as far as the page's history reaches.
    fn say_changes(&mut self, changes: &[Entry], status: &Status) {
        let latest = changes.iter().map(|entry| entry.unix_ns).max().unwrap_or(0);
        let before = self.told;
        self.told = Some(latest.max(before.unwrap_or(0)));
        let first = before.is_none();
        let before = before.unwrap_or_else(|| unix_ms().saturating_sub(REACH_MS).saturating_mul(1_000_000));
        for entry in changes.iter().filter(|entry| entry.unix_ns > before) {
            let (unix_ms, what) = (entry.unix_ns / 1_000_000, changes::of_entry(entry));
            for link in &status.links {
                self.mark(Mark { unix_ms, link: link.name.clone(), what: what.clone() });
            }
            // A confirmation changes nothing.
            if entry.what != What::Confirmed && !first {
                if self.changed.len() >= MARKS {
                    self.changed.pop_front();
                }
                self.changed.push_back(unix_ms);
            }
        }
    }

    /// Adds a mark for each link whose state has changed.
    fn say_states(&mut self, status: &Status, now: u64) {
        for new in &status.links {
            let old = self.before.iter().find(|old| old.name == new.name);
            if let Some(what) = old.and_then(|old| changes::of_state(old, new)) {
                self.mark(Mark { unix_ms: now, link: new.name.clone(), what });
            }
        }
    }

    fn mark(&mut self, mark: Mark) {
        keep(&mut self.marks, mark);
    }
}

/// Adds a mark; the oldest goes where there are too many.
fn keep(marks: &mut VecDeque<Mark>, mark: Mark) {
    if marks.len() >= MARKS {
        marks.pop_front();
    }
    marks.push_back(mark);
}

/// Asks for the flows of classes that somebody looks at. False if the connection may be lost.
fn flows(client: &mut Client, board: &Board) -> bool {
    let due = board.lock().flows.due(Instant::now());
    for (link, class) in due {
        let fields = OfClass { link: &link, class: &class, window_s: WINDOW, flows: FLOWS, alone: true };
        let answer = client.ask("top", &fields);
        let failed = answer.as_ref().is_err_and(|fault| fault.code == Code::Failed);
        let said = answer.map(|json| json.into_bytes().into()).map_err(|fault| fault.to_string());
        board.lock().flows.say(&link, &class, said);
        if failed {
            return false;
        }
    }
    true
}

/// Asks for the policy that runs, about whose rules somebody asks. False if the connection may be
/// lost.
fn policy(client: &mut Client, board: &Board) -> bool {
    let before = board.lock().policy.known();
    let text = client.ask("policy", &NoFields {}).and_then(|json| read::<Text>(&json));
    let failed = text.as_ref().is_err_and(|fault| fault.code == Code::Failed);
    let said = match (text, before) {
        (Ok(text), Some(Ok(before))) if before.is(&text) => Ok(before),
        // A large policy takes a while: nobody has to wait for the lock meanwhile.
        (Ok(text), _) => Running::new(text).map(Arc::new),
        (Err(fault), _) => Err(fault.to_string()),
    };
    board.lock().policy.say(said);
    !failed
}

fn counted(place: Place) -> Reserved {
    let Place { link, class, reservations, refused } = place;
    Reserved { link, class, active: reservations.len() as u64, refused }
}

/// A link of which only the state is known.
fn without_figures(status: &LinkStatus) -> Shown {
    Shown { status: status.clone(), classes: None, rows: Vec::new(), changed: Vec::new(), step: 0, unix_ms: 0 }
}

/// Now, in ms since 1970.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
