//! Keeps which policy runs and which one comes back, in memory and on disk.
//!
//! A change may have to be confirmed. If it is not, it is taken back at its deadline, even if every
//! process was killed meanwhile. So the old policy and the deadline are on disk before the change
//! is made. Everything is in one file, which is replaced as a whole ([`disk`]): it is never partly
//! old and partly new.
//!
//! ```text
//! begin (on disk) made running ───────────────► begun ────────► waits ──── confirm (on disk) ──►
//! running the new one ▲ │ │ └──────── abort ────────┘ └── deadline, guard, rollback ──► running
//! the old one
//! ```
//!
//! After a crash [`Changes::start`] returns the policy to begin with. If a change waits and its
//! time is not over, that is the new policy, and the change goes on waiting. If its time is over,
//! it is the old policy. If no change waits, it is the policy of the file, or the last good one if
//! the file has errors.
//!
//! There is no clock here: the caller gives the time.

pub mod disk;
pub mod message;

use std::collections::BTreeMap;

use altq_engine::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use disk::{Disk, replace};
pub use message::{Answer, Ask, By, Clock, Entry, Guard, Question, Reply, Text, Watched, What};

/// The format of the file.
const FORM: &str = "altq.change/1";
/// The most changes that are remembered.
pub const REMEMBERED: usize = 100;
/// The most lines of differences that are remembered for a change.
pub const LINES: usize = 100;
/// The most bytes of such a line that are remembered.
const LINE: usize = 400;
/// About the most bytes of differences that are remembered in all.
const BYTES: usize = 256 << 10;
/// The longest that a change may wait: a week.
pub const LONGEST: Nanos = 7 * 86_400 * 1_000_000_000;

/// What is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kept {
    schema: String,
    /// How many changes there were.
    number: u64,
    /// The last policy that ran and needed no confirmation, or was confirmed.
    good: Option<Text>,
    /// The good policy before that.
    previous: Option<Text>,
    /// A change that waits.
    pending: Option<Pending>,
    /// The hash of the text that was taken back last.
    reverted: Option<u64>,
    /// What was changed, the latest last.
    history: Vec<Entry>,
}

/// A change that is taken back unless it is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Pending {
    number: u64,
    text: Text,
    begun: Clock,
    /// How long it waits.
    wait_ns: Nanos,
    guards: Vec<Guard>,
    /// By link, the rates that clients had set before, in bit/s.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    rates: BTreeMap<String, u64>,
}

impl Pending {
    /// How long it still waits; `None` if its time is over.
    fn left(&self, now: &Clock) -> Option<Nanos> {
        // The clock since the boot goes on while the host sleeps, and nobody can set it. After a
        // new boot there is only the wall clock. If that is before the change, it was set back, and
        // nobody knows how long ago the change was.
        let gone = if now.boot_id == self.begun.boot_id {
            now.boot_ns.checked_sub(self.begun.boot_ns)?
        } else {
            now.unix_ns.checked_sub(self.begun.unix_ns)?
        };
        self.wait_ns.checked_sub(gone).filter(|left| *left > 0)
    }
}

/// The policy to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The policy.
    pub text: Text,
    /// Why it is not the policy of the file, as a sentence; `None` if it is.
    pub instead: Option<String>,
}

/// A change that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The new policy.
    pub text: Text,
    /// The policy that runs, in case it is not known here yet.
    pub before: Text,
    /// How long the change waits for its confirmation; `None`: it needs none.
    pub wait_ns: Option<Nanos>,
    /// What must hold while it waits.
    pub guards: Vec<Guard>,
    /// How it came.
    pub what: What,
    /// Who asks.
    pub by: By,
    /// The differences, one line each.
    pub lines: Vec<String>,
}

/// Which policy runs, and which one comes back.
pub struct Changes<D> {
    disk: D,
    kept: Kept,
    /// A change that is begun and not made yet.
    begun: Option<Asked>,
    /// By link, the rates that clients have set before the change that begins next.
    rates: BTreeMap<String, u64>,
    /// The deadline of the change that waits, in ns since the boot, from when this process knows
    /// it. The wall clock decides at most once, at the start: it may be set while the change waits.
    until: Option<Nanos>,
}

/// Whether two texts are the same policy.
fn is_same(a: &Text, b: &Text) -> bool {
    (&a.language, &a.text) == (&b.language, &b.text)
}

impl<D: Disk> Changes<D> {
    /// Reads what the disk has. If it cannot be read, nothing is taken from it, and the reason is
    /// returned.
    pub fn load(mut disk: D) -> (Changes<D>, Option<String>) {
        let empty = Kept { schema: FORM.to_owned(), ..Kept::default() };
        let (kept, why) = match disk.read() {
            Ok(None) => (empty, None),
            Ok(Some(bytes)) => match serde_json::from_slice::<Kept>(&bytes) {
                Ok(kept) if kept.schema == FORM => (kept, None),
                Ok(kept) => (empty, Some(format!("it has the form {}, not {FORM}", kept.schema))),
                Err(error) => (empty, Some(error.to_string())),
            },
            Err(error) => (empty, Some(error)),
        };
        (Changes { disk, kept, begun: None, rates: BTreeMap::new(), until: None }, why)
    }

    /// The policy to begin with. `file`: the policy of the file, or what is wrong with it. A change
    /// whose time is over is taken back.
    ///
    /// # Errors
    /// What is wrong with the file, if no other policy is known.
    pub fn start(&mut self, file: Result<Text, String>, now: &Clock) -> Result<Start, String> {
        if let Some(pending) = &self.kept.pending {
            if let Some(left) = pending.left(now) {
                self.until = Some(now.boot_ns.saturating_add(left));
                let instead = "a change waits to be confirmed".to_owned();
                let same = file.as_ref().is_ok_and(|file| file.text == pending.text.text);
                return Ok(Start { text: pending.text.clone(), instead: (!same).then_some(instead) });
            }
            self.take_back(now, "nobody confirmed it in time");
            // If this cannot be written now, the next start does the same again.
            let _ = self.write();
            if let Some(good) = &self.kept.good {
                let instead = "a change was not confirmed in time, so the policy before it runs".to_owned();
                return Ok(Start { text: good.clone(), instead: Some(instead) });
            }
        }
        let wrong = match file {
            Ok(text) if self.kept.reverted != Some(text.fingerprint()) => return Ok(Start { text, instead: None }),
            Ok(text) => match &self.kept.good {
                None => return Ok(Start { text, instead: None }),
                Some(_) => format!("{} is what was taken back; `altq apply` or another text tries it again", text.name),
            },
            Err(wrong) => wrong,
        };
        match &self.kept.good {
            Some(good) => Ok(Start { text: good.clone(), instead: Some(format!("running last good policy, {wrong}")) }),
            None => Err(wrong),
        }
    }

    /// The policy with which altq began runs now. Unless a change waits, it becomes the last good
    /// one.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn started(&mut self, text: &Text) -> Result<(), String> {
        if self.kept.pending.is_some() || self.kept.good.as_ref() == Some(text) {
            return Ok(());
        }
        match self.kept.good.replace(text.clone()) {
            // The same policy under another name, as after `altq save`.
            Some(good) if is_same(&good, text) => {}
            good => {
                self.kept.previous = good;
                self.kept.reverted = None;
            }
        }
        self.write()
    }

    /// How long a change still waits, 0 if its time is over; `None` if none waits.
    pub fn waits(&self, now: &Clock) -> Option<Nanos> {
        let pending = self.kept.pending.as_ref()?;
        Some(match self.until {
            Some(until) => until.saturating_sub(now.boot_ns),
            None => pending.left(now).unwrap_or(0),
        })
    }

    /// When the time of the change that waits is over, in ns since the boot.
    pub fn until(&self, now: &Clock) -> Option<Nanos> {
        Some(now.boot_ns.saturating_add(self.waits(now)?))
    }

    /// What must hold while a change waits.
    pub fn guards(&self) -> &[Guard] {
        self.kept.pending.as_ref().map_or(&[], |pending| &pending.guards)
    }

    /// Begins a change. If it has to be confirmed, it is on disk when this returns.
    ///
    /// # Errors
    /// Another change waits, or this one cannot be written to disk. Then the change must not be
    /// made.
    pub fn begin(&mut self, asked: Asked, now: &Clock) -> Result<u64, String> {
        let rates = std::mem::take(&mut self.rates);
        if self.kept.pending.is_some() || self.begun.is_some() {
            return Err("a change waits to be confirmed".to_owned());
        }
        let number = self.kept.number + 1;
        if let Some(wait_ns) = asked.wait_ns {
            let before = self.kept.clone();
            self.kept.number = number;
            self.kept.good = Some(asked.before.clone());
            let (text, begun, guards) = (asked.text.clone(), now.clone(), asked.guards.clone());
            self.kept.pending = Some(Pending { number, text, begun, wait_ns: wait_ns.min(LONGEST), guards, rates });
            self.remember(&asked, number, now);
            self.until = Some(now.boot_ns.saturating_add(wait_ns.min(LONGEST)));
            let written = self.write_or_undo(before);
            written.map_err(|error| format!("it cannot be written down how to take it back: {error}"))?;
        }
        self.begun = Some(asked);
        Ok(number)
    }

    /// The change that was begun is made.
    ///
    /// # Errors
    /// It cannot be written to disk. The change is made all the same, and is the last good policy
    /// until altq ends.
    pub fn made(&mut self, now: &Clock) -> Result<(), String> {
        let Some(asked) = self.begun.take() else { return Ok(()) };
        // What was taken back is tried again. Any other change leaves it known, as the file may
        // still have it.
        if self.kept.reverted == Some(asked.text.fingerprint()) {
            self.kept.reverted = None;
        }
        if asked.wait_ns.is_some() {
            return Ok(());
        }
        self.kept.number += 1;
        let number = self.kept.number;
        // A set rate may end without another policy.
        if !is_same(&asked.before, &asked.text) {
            self.kept.previous = Some(asked.before.clone());
        }
        self.kept.good = Some(asked.text.clone());
        self.remember(&asked, number, now);
        self.write()
    }

    /// The change that was begun is not made.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn abort(&mut self) -> Result<(), String> {
        let Some(asked) = self.begun.take() else { return Ok(()) };
        if asked.wait_ns.is_none() {
            return Ok(());
        }
        (self.kept.pending, self.until) = (None, None);
        self.kept.history.pop();
        self.write()
    }

    /// Confirms the change that waits.
    ///
    /// # Errors
    /// None waits, or it cannot be written to disk. Then the change goes on waiting.
    pub fn confirm(&mut self, by: &By, now: &Clock) -> Result<u64, String> {
        let (before, over) = (self.kept.clone(), self.waits(now) == Some(0));
        let Some(pending) = self.kept.pending.take().filter(|_| self.begun.is_none()) else {
            self.kept = before;
            return Err("no change waits to be confirmed".to_owned());
        };
        if over {
            self.kept = before;
            return Err("its time is over, and it is taken back".to_owned());
        }
        if self.kept.reverted == Some(pending.text.fingerprint()) {
            self.kept.reverted = None;
        }
        let same = self.kept.good.as_ref().is_some_and(|good| is_same(good, &pending.text));
        let good = self.kept.good.replace(pending.text);
        if !same {
            self.kept.previous = good;
        }
        self.entry(pending.number, now, What::Confirmed, by.clone(), String::new(), Vec::new());
        self.write_or_undo(before)?;
        self.until = None;
        Ok(pending.number)
    }

    /// The policy that comes back if the change that waits is taken back.
    pub fn old(&self) -> Option<&Text> {
        self.kept.pending.as_ref()?;
        self.kept.good.as_ref()
    }

    /// The change that waits was taken back: the old policy runs.
    ///
    /// # Errors
    /// It cannot be written to disk. The next start takes the change back again.
    pub fn reverted(&mut self, now: &Clock, why: &str) -> Result<(), String> {
        self.take_back(now, why);
        self.write()
    }

    /// The policy that ran before the one that runs.
    pub fn previous(&self) -> Option<&Text> {
        self.kept.previous.as_ref()
    }

    /// The number of the last change, if that was taken back and altq has not begun with another
    /// policy since.
    fn taken_back(&self) -> Option<u64> {
        self.kept.reverted?;
        self.kept.history.last().filter(|entry| entry.what == What::Reverted).map(|entry| entry.number)
    }

    /// What was changed, the latest last.
    pub fn history(&self) -> &[Entry] {
        &self.kept.history
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Answers a question of a worker, or of the process itself.
    pub fn ask(&mut self, ask: Ask, now: &Clock) -> Answer {
        let refused = |message: String| Answer::Refused { fault: Fault::refused(message) };
        let policy = |text: Option<&Text>, none: &str| match text {
            Some(text) => Answer::Policy { text: text.clone() },
            None => refused(none.to_owned()),
        };
        let done = |number: u64, result: Result<(), String>| {
            let note = result.err().map(|error| format!("it is not kept on disk: {error}"));
            Answer::Done { number, note }
        };
        match ask {
            Ask::Rates { rates } => {
                self.rates = rates;
                done(self.kept.number, Ok(()))
            }
            Ask::Begin { text, before, wait_ns, guards, what, by, lines } => {
                let asked = Asked { text, before, wait_ns, guards, what, by, lines };
                match self.begin(asked, now) {
                    Ok(number) => done(number, Ok(())),
                    Err(why) => refused(why),
                }
            }
            Ask::Made => {
                let result = self.made(now);
                done(self.kept.number, result)
            }
            Ask::Abort => {
                let result = self.abort();
                done(self.kept.number, result)
            }
            Ask::Confirm { by } => match self.confirm(&by, now) {
                Ok(number) => done(number, Ok(())),
                Err(why) => refused(why),
            },
            Ask::Old => match (&self.kept.pending, self.old()) {
                (Some(pending), Some(text)) => Answer::Old { text: text.clone(), rates: pending.rates.clone() },
                _ => refused("no change waits to be confirmed".to_owned()),
            },
            Ask::Previous { force } => match self.taken_back().filter(|_| !force) {
                Some(number) => {
                    let what = format!("change {number} is taken back already, and what ran before it runs");
                    let fault = Fault::refused(what).help("--force goes one policy further back");
                    Answer::Refused { fault }
                }
                None => policy(self.previous(), "there is no policy before the one that runs"),
            },
            Ask::Reverted { why } => {
                let number = self.kept.pending.as_ref().map_or(self.kept.number, |pending| pending.number);
                let result = self.reverted(now, &why);
                done(number, result)
            }
            // Nothing on disk says what the file has.
            Ask::Saved => done(self.kept.number, Ok(())),
            Ask::History => Answer::History { entries: self.kept.history.clone() },
        }
    }

    fn take_back(&mut self, now: &Clock, why: &str) {
        let Some(pending) = self.kept.pending.take() else { return };
        (self.begun, self.until) = (None, None);
        self.kept.reverted = Some(pending.text.fingerprint());
        let lines = vec![why.to_owned()];
        self.entry(pending.number, now, What::Reverted, By::default(), pending.text.name, lines);
    }

    fn remember(&mut self, asked: &Asked, number: u64, now: &Clock) {
        let (name, lines) = (asked.text.name.clone(), asked.lines.clone());
        self.entry(number, now, asked.what, asked.by.clone(), name, lines);
    }

    fn entry(&mut self, number: u64, now: &Clock, what: What, by: By, name: String, mut lines: Vec<String>) {
        let more = lines.len().saturating_sub(LINES);
        lines.truncate(LINES);
        for line in lines.iter_mut().filter(|line| line.len() > LINE) {
            let end = (0..=LINE).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(end);
            line.push('…');
        }
        self.kept.history.push(Entry { number, unix_ns: now.unix_ns, what, by, name, lines, more });
        let bytes = |entry: &Entry| entry.lines.iter().map(String::len).sum::<usize>() + entry.name.len();
        let mut all: usize = self.kept.history.iter().map(bytes).sum();
        while self.kept.history.len() > REMEMBERED || all > BYTES && self.kept.history.len() > 1 {
            all -= bytes(&self.kept.history.remove(0));
        }
    }

    /// Writes what is kept. Where the disk does not take it, what was kept before is kept again.
    fn write_or_undo(&mut self, before: Kept) -> Result<(), String> {
        let Err(error) = self.write() else { return Ok(()) };
        let refused = std::mem::replace(&mut self.kept, before);
        // The last step may have failed, when the new file had its name already: a start would find
        // what was refused.
        let stays = match self.disk.read() {
            Ok(None) => true,
            Ok(Some(bytes)) => serde_json::from_slice::<Kept>(&bytes).is_ok_and(|there| there != refused),
            Err(_) => false,
        };
        if !stays {
            self.write().map_err(|again| format!("{error}; and a start may find it all the same, since {again}"))?;
        }
        Err(error)
    }

    fn write(&mut self) -> Result<(), String> {
        let bytes = serde_json::to_vec(&self.kept).map_err(|error| error.to_string())?;
        replace(&mut self.disk, &bytes)
    }
}

#[cfg(test)]
mod tests;
