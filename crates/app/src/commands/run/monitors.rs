//! What the classes of running links do, for `altq top`: a thread takes each second of each link,
//! and the control thread makes documents of that. The loops wait for neither.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use altq_config::{Link, Used};
use altq_control::reply::{Body, body};
use altq_control::request::past::Past;
use altq_control::request::top::Top as Asked;
use altq_control::{Code, Fault};
use altq_dataplane::watched::Seen;
use altq_engine::account::DropReason;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_monitor::document::{Link as Document, More, Own, Top};
use altq_monitor::fold::{By, WORDS};
use altq_monitor::frame::rate;
use altq_monitor::recorded::{self, Begin, Bound, Recorded};
use altq_monitor::records::Kept;
use altq_monitor::tree::Class;
use altq_monitor::{Frame, History, Limits, Monitor, Second, Tree, Window};
use rustix::time::{ClockId, clock_gettime};

use super::live::Live;
use super::memory::Memory;
use super::shaped::Shaped;
use super::stat::{path, state, unix};

/// The most classes of a link that have counters of flows in one second.
pub const FLOWS: usize = 1 << 10;

/// The monitors of the running links.
#[derive(Default)]
pub struct Monitors {
    links: Mutex<BTreeMap<String, Watched>>,
    /// The latest document, which is used again for the same request.
    latest: Mutex<Option<Latest>>,
}

/// A document with its request, and the links and seconds that it covers.
struct Latest {
    asked: Asked,
    of: Vec<(String, u64)>,
    body: Body,
}

/// A link.
struct Watched {
    monitor: Monitor,
    shaped: Arc<Shaped>,
    /// The number of seconds so far.
    number: u64,
    dropped: BTreeMap<ClassId, Vec<(DropReason, u64)>>,
    overlimits: Vec<Option<u64>>,
    /// By number, how late classes may get what they are guaranteed, where that is promised.
    latency: Vec<Option<Nanos>>,
    /// The link's rate at the end of the last second, if it does not follow the line.
    rate: Option<Rate>,
    /// How late the loop's timers were in the last second, 99th percentile; `None` if none passed.
    late: Option<Nanos>,
    /// The time of one processor that this process took in the last second, in percent.
    cpu: Option<f64>,
    /// When that second ended, and the processor time that the process had taken by then.
    spent: Option<(Nanos, Nanos)>,
}

/// The classes of a link. A number without a class has an empty name.
fn tree(shaped: &Shaped) -> Option<Tree> {
    let link = &shaped.link;
    let class = |(at, spec): (usize, &altq_engine::spec::ClassSpec)| {
        let name = link.class_name(at as ClassId).to_owned();
        let there = !name.is_empty();
        Class {
            parent: if there { spec.parent } else { ROOT },
            asked: match at {
                0 => Some(link.spec.rate),
                _ => shaped.guaranteed.get(at).copied().flatten().filter(|_| there),
            },
            ceiling: shaped.ceiling.get(at).copied().filter(|_| there),
            name,
        }
    };
    Tree::new(link.spec.classes.iter().enumerate().map(class).collect()).ok()
}

/// By number, how late classes may get what they are guaranteed: the bound of a source that keeps
/// to its guarantee, which has the latency and the time of a burst.
fn latency(shaped: &Shaped) -> Vec<Option<Nanos>> {
    shaped.waits.iter().map(|waits| waits.conforming).collect()
}

/// The link's rate; `None` where it follows the line, because the policy has another one then.
fn fixed_rate(link: &Link) -> Option<Rate> {
    link.adapt.is_none().then_some(link.spec.rate)
}

fn spent() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}

impl Watched {
    fn new(link: Arc<Link>, limits: Limits, kept: Option<Kept>) -> Option<Watched> {
        let shaped = Arc::new(Shaped::new(link));
        let tree = tree(&shaped)?;
        let names: Vec<String> = tree.classes().iter().map(|class| class.name.clone()).collect();
        let history = kept.map(|kept| History::restored(names, limits.history, kept.seconds, kept.quarters));
        let monitor = Monitor::new(tree, limits, history);
        let (dropped, overlimits, latency) = (BTreeMap::new(), Vec::new(), latency(&shaped));
        let (late, cpu, spent, rate) = (None, None, None, fixed_rate(&shaped.link));
        Some(Watched { monitor, shaped, number: 0, dropped, overlimits, latency, rate, late, cpu, spent })
    }

    /// Takes a second.
    fn take(&mut self, seen: Seen) {
        let time = seen.to.saturating_sub(seen.from);
        let before = self.monitor.counters();
        let used = seen.counters.iter().enumerate().map(|(class, counters)| {
            let before = before.get(class).map_or(0, |before| before.sent_wire_bytes);
            let wire_bit_s = rate(counters.sent_wire_bytes.saturating_sub(before), time);
            Used { waits: counters.queued_packets > 1, wire_bit_s }
        });
        let link = &self.shaped.link;
        let limited_by = link.limited_by(&used.collect::<Vec<Used>>());
        let limited_by = limited_by.iter().map(|limit| Cow::Owned(limit.text(link).to_owned())).collect();
        // A rate that follows the line may be less than the policy's, and then guarantees are, too.
        let backlogged = if link.adapt.is_some() { Vec::new() } else { seen.backlogged };
        // A client may have set another rate in this second, which had both then.
        let now = fixed_rate(link);
        let lowest = now.into_iter().chain(std::mem::replace(&mut self.rate, now)).min();
        self.monitor.second(Second {
            from: seen.from,
            to: seen.to,
            counters: &seen.counters,
            unclassified: seen.unclassified,
            delays: seen.delays,
            flows: seen.flows,
            limited_by,
            backlogged,
            latency: &self.latency,
            rate_bit_s: lowest.map_or(0, Rate::as_bit_s),
        });
        self.late = (seen.late.count() > 0).then(|| seen.late.percentile(99.0));
        (self.dropped, self.overlimits) = (seen.dropped, seen.overlimits);
        self.number += 1;
        let now = spent();
        let part = |(at, before): (Nanos, Nanos)| {
            let time = seen.to.checked_sub(at).filter(|time| *time > 0)?;
            Some((now.saturating_sub(before) as f64 * 1000.0 / time as f64).round() / 10.0)
        };
        self.cpu = self.spent.replace((seen.to, now)).and_then(part);
    }

    /// A document about the link.
    fn document(&self, asked: &Asked) -> Result<Document, Fault> {
        let window = match asked.window {
            60 => Window::Minute,
            10 => Window::Ten,
            _ => Window::Second,
        };
        let by = asked.by.as_deref().map(folding).transpose()?;
        let link = &self.shaped.link;
        let frame: Option<Frame> = match asked.ago_s {
            0 => self.monitor.frame(window),
            ago => self.monitor.past(window, ago.saturating_mul(SECOND)),
        };
        let frame = frame.ok_or_else(|| match asked.ago_s {
            0 => nothing_yet(),
            ago => Fault::new(Code::Failed, format!("nothing is known of link `{}` {ago} s ago", link.name))
                .help("the history goes back six hours at most, and to the start of altq"),
        })?;
        let ids: Vec<ClassId> = (0..frame.rows.len() as ClassId).collect();
        let mut lines = match (asked.line, asked.ago_s) {
            (line @ 1.., 0) => self.monitor.series(&ids, line as usize),
            _ => Vec::new(),
        };
        let wanted = asked.class.as_deref();
        let more = |class: ClassId| {
            let named = wanted.is_none_or(|wanted| frame.tree.name(class) == wanted);
            let there = asked.flows > 0 && asked.ago_s == 0 && named;
            let flows = there.then(|| self.monitor.flows(&frame, class));
            let most = asked.flows as usize;
            let (flows, folded) = match by {
                Some(by) => (None, flows.map(|flows| flows.folded(by, most))),
                None => (flows.map(|flows| flows.shortened(most)), None),
            };
            More {
                dropped: self.dropped(class),
                overlimits: self.overlimits.get(class as usize).copied().flatten(),
                flows,
                folded,
                line_bit_s: lines.get_mut(class as usize).map(std::mem::take).unwrap_or_default(),
            }
        };
        let mut document = Document::of(&frame, self.monitor.counters(), more);
        let shown = |name: &str| !name.is_empty() && (!asked.alone || wanted == Some(name));
        document.classes.retain(|class| shown(&class.name));
        document.name.clone_from(&link.name);
        state(link).clone_into(&mut document.state);
        document.path = Some(path(link).to_owned());
        document.adapts = Some(link.adapt.is_some());
        document.unix_ns = Some(unix(document.at_ns));
        let own = Own { loop_p99_ns: self.late, cpu_percent: self.cpu };
        document.own = (own.loop_p99_ns.is_some() || own.cpu_percent.is_some()).then_some(own);
        Ok(document)
    }

    /// What is kept of the link.
    fn past(&self, asked: &Past) -> Recorded {
        let history = self.monitor.history();
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec as Nanos * SECOND + now.tv_nsec as Nanos;
        // One look at both clocks: what follows on the loop's clock does so by the day's as well.
        let ahead = i128::from(unix(now)) - i128::from(now);
        let unix = |at: Nanos| u64::try_from(i128::from(at) + ahead).unwrap_or(0);
        let begin = match asked.after_ns {
            Some(next) => Begin::Next(next),
            None => Begin::Moment(asked.ago_s.map_or(0, |ago| now.saturating_sub(ago.saturating_mul(SECOND)))),
        };
        let (slices, next_ns) = recorded::pieces(history, begin, recorded::POINTS, unix);
        let link = &self.shaped.link;
        let bound = |class: ClassId| {
            let waits = self.shaped.waits.get(class as usize).copied().unwrap_or_default();
            Bound { conforming: waits.conforming, queue_full: waits.queue_full }
        };
        Recorded {
            schema: recorded::SCHEMA,
            link: link.name.clone(),
            path: path(link).to_owned(),
            adapts: link.adapt.is_some(),
            now_unix_ns: unix(now),
            begins_unix_ns: recorded::begins(history).map(unix),
            classes: recorded::classes(self.monitor.tree(), bound),
            slices,
            next_ns,
        }
    }

    /// Drops since the start by reason.
    fn dropped(&self, class: ClassId) -> BTreeMap<String, u64> {
        let reasons = self.dropped.get(&class).into_iter().flatten();
        let mut dropped: BTreeMap<String, u64> =
            reasons.map(|(reason, packets)| (reason.name().to_owned(), *packets)).collect();
        if class == ROOT && self.monitor.unclassified() > 0 {
            *dropped.entry(DropReason::NoClass.name().to_owned()).or_default() += self.monitor.unclassified();
        }
        dropped
    }
}

/// What flows are folded by, by its word.
fn folding(word: &str) -> Result<By, Fault> {
    By::of_word(word).ok_or_else(|| {
        let words = WORDS.map(|(word, _)| word).join(", ");
        Fault::usage(format!("flows cannot be folded by `{word}`")).help(format!("`by` is one of {words}"))
    })
}

fn nothing_yet() -> Fault {
    Fault::new(Code::Failed, "nothing was counted yet").help("ask again in a second")
}

impl Monitors {
    fn links(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        // If a thread panicked while it had the lock, at worst a second is lost.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The document for a request, about the links of these names.
    ///
    /// # Errors
    /// Nothing is known of that time, or there is no such class.
    pub fn document(&self, asked: &Asked, names: &[String]) -> Result<Body, Fault> {
        let links = self.links();
        let of: Vec<&Watched> = names.iter().filter_map(|name| links.get(name)).collect();
        if of.len() < names.len() {
            return Err(nothing_yet());
        }
        if let Some(class) = &asked.class
            && !of.iter().any(|link| link.shaped.link.class(class).is_some())
        {
            return Err(Fault::usage(format!("there is no class `{class}`")).help("`altq stat` lists all classes"));
        }
        let now: Vec<(String, u64)> = names.iter().cloned().zip(of.iter().map(|link| link.number)).collect();
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(latest) = latest.as_ref().filter(|latest| latest.asked == *asked && latest.of == now) {
            return Ok(latest.body.clone());
        }
        let documents = of.into_iter().map(|link| link.document(asked)).collect::<Result<Vec<_>, _>>()?;
        drop(links);
        let made = body(&Top::new(documents)).map_err(|error| Fault::new(Code::Failed, error.to_string()))?;
        *latest = Some(Latest { asked: asked.clone(), of: now, body: made.clone() });
        Ok(made)
    }

    /// What is kept of a link.
    ///
    /// # Errors
    /// Nothing was counted yet.
    fn past(&self, asked: &Past) -> Result<Body, Fault> {
        let recorded = self.links().get(&asked.link).map(|link| link.past(asked)).ok_or_else(nothing_yet)?;
        body(&recorded).map_err(|error| Fault::new(Code::Failed, error.to_string()))
    }
}

/// The channel for the loops' seconds. `None` if watching is turned off.
pub fn watched(history: u64) -> Option<(Sender<Seen>, Receiver<Seen>)> {
    (history > 0).then(channel)
}

/// The memory that a supervisor has handed over. If it cannot be used, that is printed, and the
/// history begins anew.
pub fn inherited(number: i32) -> Option<Memory> {
    let memory = Memory::inherited(number);
    memory.inspect_err(|error| eprintln!("altq run: the history begins anew: its memory cannot be used ({error})")).ok()
}

/// Takes the loops' seconds, in a thread, until the loops have ended. `history`: the bytes for the
/// history of all links. `kept`: the memory in which it outlives this process.
///
/// # Errors
/// That of starting a thread.
pub fn start(live: Arc<Live>, seen: Receiver<Seen>, history: u64, kept: Option<Memory>) -> io::Result<()> {
    let links = live.lock().names().len().max(1);
    let limits = Limits { history: usize::try_from(history).unwrap_or(usize::MAX) / links, ..Limits::default() };
    let work = move || {
        let mut kept = kept;
        for seen in seen {
            take(&live, seen, limits, kept.as_mut());
        }
    };
    std::thread::Builder::new().name("altq monitor".to_owned()).spawn(work).map(drop)
}

fn take(live: &Live, seen: Seen, limits: Limits, mut memory: Option<&mut Memory>) {
    let name = seen.link.clone();
    let Some(link) = live.lock().roster.link(&name).cloned() else { return };
    // Promises take long to compute, so they are computed without a lock.
    let stands = live.monitors.links().get(&name).map(|watched| watched.shaped.clone());
    // The last quarter that the memory has of an earlier process.
    let mut written = None;
    let renamed = match &stands {
        None => {
            let kept = memory.as_mut().and_then(|memory| memory.kept(&name));
            written = kept.as_ref().and_then(|kept| kept.quarters.last()).map(|(quarter, _)| quarter.to);
            let Some(watched) = Watched::new(link, limits, kept) else { return };
            live.monitors.links().insert(name.clone(), watched);
            true
        }
        Some(shaped) if !Arc::ptr_eq(&shaped.link, &link) => {
            let shaped = Arc::new(Shaped::new(link));
            let Some(tree) = tree(&shaped) else { return };
            if let Some(watched) = live.monitors.links().get_mut(&name) {
                watched.monitor.set_tree(tree);
                watched.latency = latency(&shaped);
                watched.shaped = shaped;
            }
            true
        }
        Some(_) => false,
    };
    let mut links = live.monitors.links();
    let Some(watched) = links.get_mut(&name) else { return };
    let quarter = match stands {
        Some(_) => watched.monitor.history().quarters().next_back().map(|quarter| quarter.to),
        None => written,
    };
    watched.take(seen);
    let Some(memory) = memory else { return };
    let history = watched.monitor.history();
    if renamed {
        memory.set_names(&name, history.names());
    }
    if let Some(second) = history.seconds().next_back() {
        memory.second(&name, second);
    }
    if let Some(slice) = history.quarters().next_back().filter(|slice| Some(slice.to) != quarter) {
        memory.quarter(&name, slice);
    }
}

/// Answers a client.
///
/// # Errors
/// There is no such link or class, or nothing is known of that time.
pub fn answer(live: &Live, asked: &Asked) -> Result<Body, Fault> {
    let names = names(live)?;
    match &asked.link {
        None => live.monitors.document(asked, &names),
        Some(link) => {
            known(link, &names)?;
            live.monitors.document(asked, std::slice::from_ref(link))
        }
    }
}

/// Answers a client that asks what is kept of a link.
///
/// # Errors
/// There is no such link, or nothing is known of it yet.
pub fn past(live: &Live, asked: &Past) -> Result<Body, Fault> {
    known(&asked.link, &names(live)?)?;
    live.monitors.past(asked)
}

/// The links that are watched.
fn names(live: &Live) -> Result<Vec<String>, Fault> {
    if !live.watches {
        let fault = Fault::new(Code::Unsupported, "nobody watches the classes here");
        return Err(fault.help("`altq run` was started with --history 0"));
    }
    Ok(live.lock().names().into_iter().map(str::to_owned).collect())
}

/// Whether a link is one of these.
fn known(link: &str, names: &[String]) -> Result<(), Fault> {
    if names.iter().any(|name| name == link) {
        return Ok(());
    }
    let fault = Fault::usage(format!("no link `{link}` runs here"));
    Err(fault.help(format!("there is {}", names.join(", "))))
}
