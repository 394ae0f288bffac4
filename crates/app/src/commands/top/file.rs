//! Shows a capture as if its packets came now: its largest protocols and hosts, or the classes of a
//! policy to which its packets belong.
//!
//! Packets are only sorted into classes: none waits, and each counts as sent when it was captured.
//! So what a class got is what was offered to it.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use altq_config::{Link, Promises};
use altq_engine::Engine;
use altq_engine::account::Counters;
use altq_engine::headers::Key;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use altq_monitor::document::{Link as Document, More, Top};
use altq_monitor::fold::By;
use altq_monitor::tree::Class;
use altq_monitor::{Departures, FlowKey, Limits, Monitor, Second, Tree, Watch, Window};
use altq_simulator::sim::Capture;
use anyhow::Context as _;

use super::{Args, Form, chosen, seen};
use crate::captured;
use crate::exit::Exit;
use crate::output;
use crate::policy::load_policy;

/// The most flows of a class in a document.
const FLOWS: usize = 10;

/// Plays a capture.
pub fn run(args: &Args, path: &Path) -> anyhow::Result<Exit> {
    if let Some(option) = args.of_classes().filter(|_| args.policy.is_none()) {
        eprintln!("altq top: {option} is about classes, and a capture has none; say which with --policy");
        return Ok(Exit::Usage);
    }
    let Some(capture) = captured::read("top", path)? else { return Ok(Exit::Usage) };
    let Some(policy) = &args.policy else {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        return seen::shown(args, &name, |show| {
            let mut watch = Watch::new(seen::secret());
            play(args, &capture, |event| match event {
                Event::Packet(time, key) => {
                    watch.packet(time, key, key.length);
                    Ok(true)
                }
                Event::Second(now) if !args.once => {
                    watch.advance(now);
                    show(&watch, false)
                }
                Event::Second(_) => Ok(true),
                Event::End(_) => {
                    watch.finish();
                    show(&watch, true)
                }
            })
        });
    };
    let Some(policy) = load_policy(policy, args.language) else { return Ok(Exit::Usage) };
    let link = match (&args.link, policy.links.as_slice()) {
        (None, [link]) => link,
        (None, links) => {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            eprintln!("altq top: the policy has {} links; choose one with --link: {}", names.len(), names.join(", "));
            return Ok(Exit::Usage);
        }
        (Some(name), _) => match policy.link(name) {
            Some(link) => link,
            None => {
                eprintln!("altq top: no link `{name}` in this policy");
                return Ok(Exit::Usage);
            }
        },
    };
    if let Some(class) = args.class.as_deref().filter(|class| link.class(class).is_none()) {
        eprintln!("altq top: there is no class `{class}` in link `{}`", link.name);
        return Ok(Exit::Usage);
    }
    let mut sorted = Sorted::new(link)?;
    match args.form() {
        Form::Screen => screen(args, &capture, sorted)?,
        form => play(args, &capture, |event| {
            let second = match event {
                Event::Packet(_, key) => {
                    sorted.packet(key);
                    return Ok(true);
                }
                Event::Second(_) if args.once => return Ok(true),
                Event::Second(now) | Event::End(now) => sorted.second(now, args.window, None, args.by),
            };
            match (second, form) {
                (None, _) => Ok(true),
                (Some(document), Form::Json) => output::line(&serde_json::to_string(&chosen(args, document)?)?),
                (Some(document), _) => table(args, document),
            }
        })?,
    }
    Ok(Exit::Ok)
}

/// What happens in a capture.
enum Event<'a> {
    /// A packet came.
    Packet(Nanos, &'a Key),
    /// A second is over.
    Second(Nanos),
    /// The capture is over, with the end of its last second.
    End(Nanos),
}

/// Plays the packets of a capture at their times, or with `--once` without waiting, until `tell`
/// returns false.
fn play(args: &Args, capture: &Capture, mut tell: impl FnMut(Event<'_>) -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let (begun, mut second) = (Instant::now(), SECOND);
    let wait = |until: Nanos| {
        if !args.once {
            let at = begun + Duration::from_nanos((until as f64 / args.speed) as u64);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        }
    };
    for frame in &capture.frames {
        while frame.time >= second {
            wait(second);
            if !tell(Event::Second(second))? {
                return Ok(());
            }
            second += SECOND;
        }
        if !tell(Event::Packet(frame.time, &frame.key))? {
            return Ok(());
        }
    }
    wait(capture.frames.last().map_or(0, |frame| frame.time));
    // A rest of a few nanoseconds would give a packet the rate of terabits.
    tell(Event::End(second)).map(drop)
}

/// The packets of a capture in the classes of a link.
struct Sorted {
    name: String,
    engine: Engine,
    monitor: Monitor,
    departures: Departures,
    /// By class: counters of its own packets.
    own: Vec<Counters>,
    unclassified: u64,
    since: Nanos,
}

impl Sorted {
    fn new(link: &Link) -> anyhow::Result<Sorted> {
        let engine = Engine::new(&link.spec).with_context(|| format!("link `{}`", link.name))?;
        let promises = Promises::new(link);
        let class = |(id, spec): (ClassId, &altq_engine::spec::ClassSpec)| Class {
            name: link.class_name(id).to_owned(),
            parent: spec.parent,
            asked: match id {
                ROOT => Some(link.spec.rate),
                id => promises.guaranteed(id).filter(|rate| !rate.is_zero()),
            },
            ceiling: Some(link.ceiling(id)),
        };
        let classes: Vec<Class> = (0..).zip(&link.spec.classes).map(class).collect();
        let count = classes.len();
        let tree = Tree::new(classes).context("the classes are no tree")?;
        Ok(Sorted {
            name: link.name.clone(),
            engine,
            monitor: Monitor::new(tree, Limits { flows: count, ..Limits::default() }, None),
            departures: Departures::new(count, count, seen::secret()),
            own: vec![Counters::default(); count],
            unclassified: 0,
            since: 0,
        })
    }

    fn packet(&mut self, key: &Key) {
        let Some(class) = self.engine.classify(key) else {
            self.unclassified += 1;
            return;
        };
        let wire = self.engine.overhead().charge(key.length);
        if let Some(own) = self.own.get_mut(class as usize) {
            own.sent_packets += 1;
            own.sent_bytes += u64::from(key.length);
            own.sent_wire_bytes += u64::from(wire);
            self.departures.add(class, &FlowKey::of(key), key.length);
        }
    }

    /// Ends a second, and returns a document. `class`: the class whose flows it has; `None`: all.
    /// `by`: what they are folded by.
    fn second(&mut self, now: Nanos, window: u32, class: Option<&str>, by: Option<By>) -> Option<Top> {
        let tree = self.monitor.tree().clone();
        let mut counters = self.own.clone();
        for class in tree.order().iter().rev().copied() {
            let below = counters.get(class as usize).copied().unwrap_or_default();
            if let Some(above) = tree.parent(class).and_then(|parent| counters.get_mut(parent as usize)) {
                *above += below;
            }
        }
        let mut taken = Vec::new();
        self.departures.take(&mut taken);
        self.monitor.second(Second {
            from: std::mem::replace(&mut self.since, now),
            to: now,
            counters: &counters,
            unclassified: self.unclassified,
            delays: Vec::new(),
            flows: taken.iter().map(|(class, counters)| (*class, counters.summary())).collect(),
            limited_by: vec![Cow::Borrowed("offered"); tree.len()],
            ..Second::default()
        });
        self.departures.give_back(taken.into_iter().map(|(_, counters)| counters));
        let window = match window {
            60 => Window::Minute,
            10 => Window::Ten,
            _ => Window::Second,
        };
        let frame = self.monitor.frame(window)?;
        let more = |id: ClassId| {
            let named = class.is_none_or(|class| tree.name(id) == class);
            let flows = named.then(|| self.monitor.flows(&frame, id));
            match by {
                Some(by) => More { folded: flows.map(|flows| flows.folded(by, FLOWS)), ..More::default() },
                None => More { flows: flows.map(|flows| flows.shortened(FLOWS)), ..More::default() },
            }
        };
        let mut document = Document::of(&frame, &counters, more);
        document.name.clone_from(&self.name);
        "capture".clone_into(&mut document.state);
        Some(Top::new(vec![document]))
    }
}

#[cfg(feature = "top")]
fn table(args: &Args, document: Top) -> anyhow::Result<bool> {
    super::screen::table(args, document)
}

#[cfg(not(feature = "top"))]
fn table(_: &Args, _: Top) -> anyhow::Result<bool> {
    Ok(false)
}

#[cfg(feature = "top")]
fn screen(args: &Args, capture: &Capture, mut sorted: Sorted) -> anyhow::Result<()> {
    use std::sync::{Mutex, PoisonError, mpsc};

    use altq_top::terminal::{News, show};
    let mut screen = super::screen::screen(args);
    let chosen = Mutex::new((args.window, None::<String>, args.by));
    let look = || chosen.lock().unwrap_or_else(PoisonError::into_inner);
    let signals = altq_dataplane::signal::Watch::new().context("signals cannot be watched")?;
    let ended = || signals.seen();
    std::thread::scope(|scope| {
        let (news, shown) = mpsc::channel();
        let look = &look;
        let playing = scope.spawn(move || {
            play(args, capture, |event| match event {
                Event::Packet(_, key) => {
                    sorted.packet(key);
                    Ok(true)
                }
                Event::Second(now) | Event::End(now) => {
                    let (window, class, by) = look().clone();
                    let document = sorted.second(now, window, class.as_deref(), by);
                    Ok(document.is_none_or(|document| news.send(News::Top(Box::new(document))).is_ok()))
                }
            })
        });
        let result = show(&mut screen, &shown, ended, |screen| {
            let window = super::screen::seconds(screen.window);
            *look() = (window, screen.chosen_class().map(|class| class.name.clone()), screen.by);
        });
        drop(shown);
        result.context("the terminal cannot be used")?;
        match playing.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(not(feature = "top"))]
fn screen(_: &Args, _: &Capture, _: Sorted) -> anyhow::Result<()> {
    Ok(())
}
