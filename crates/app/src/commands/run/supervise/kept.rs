//! What the supervisor keeps for its worker, which cannot open files: which policy runs, and which
//! one comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use altq_config::Link;
use altq_control::change::{Answer, Ask, By, Question, Reply, Text, What};
use altq_control::journal::{locked, note};
use altq_control::{Fault, Request};
use altq_engine::units::{Nanos, Rate};

use super::super::QUEUE;
use super::super::apply::rate_again;
use super::super::heart::{Begun, Told};
use super::super::keep::{policy_of, returns};
use super::super::reservations::time;
use super::{Known, Supervisor, ToWorker, choose};

/// How long after the deadline the worker may take to take a change back. After that it is killed,
/// and the next worker begins with the old policy.
const LATE: Nanos = 3_000_000_000;

impl Supervisor<'_> {
    /// Answers a question of the worker.
    pub(super) fn question(&mut self, Question { keep, ask }: Question) {
        let begins = match &ask {
            Ask::Begin { text, what, .. } => Some((text.clone(), *what)),
            _ => None,
        };
        let old = match &ask {
            Ask::Reverted { .. } => match self.keeper.ask(Ask::Old) {
                Answer::Old { text, rates } => Some((text, rates)),
                _ => None,
            },
            _ => None,
        };
        let (made, aborted, saved) = (ask == Ask::Made, ask == Ask::Abort, ask == Ask::Saved);
        let confirmed = matches!(ask, Ask::Confirm { .. });
        let answer = self.keeper.ask(ask);
        if let (Some(begun), Answer::Done { .. }) = (begins, &answer) {
            self.begun = Some(begun);
        }
        if aborted {
            self.begun = None;
        }
        let Told { text, begun, .. } = &mut self.known.told;
        if saved {
            text.name.clone_from(&begun.path);
            begun.file = Some(text.clone());
        }
        // Nothing else than what was asked for runs any more.
        if saved || confirmed && matches!(answer, Answer::Done { .. }) {
            begun.instead = None;
        }
        let runs = if made { self.begun.take() } else { None };
        if let Some(worker) = &self.worker {
            // A worker that has ended needs no answer.
            let _ = worker.policies.send(ToWorker::Kept(Reply { kept: keep, answer }));
        }
        // Reading a long policy takes a second, and nobody has to wait for it.
        if let Some((text, what)) = runs {
            self.made_since = true;
            let set = locked(&self.journal).rates().clone();
            if self.runs(text, matches!(what, What::Applied | What::Hangup)) && what == What::Edited {
                // A change of one class is none of the rates that were set.
                for (link, rate_bit_s) in set {
                    locked(&self.journal).take(&note(&Request::SetLink { link, rate_bit_s }));
                }
            }
        }
        if let Some((text, rates)) = old {
            self.made_since = true;
            self.back_to(text, &rates);
        }
    }

    /// The policy before a change runs again, with the rates that were set before the change.
    fn back_to(&mut self, text: Text, rates: &BTreeMap<String, u64>) {
        let (went, set) = (self.rates(), locked(&self.journal).rates().clone());
        self.unproven = None;
        if self.runs(text, false) {
            self.set_again(&went, &set, rates);
        }
    }

    /// Takes a change that waits back if a worker that began with it could not, because only a new
    /// start can: now is one.
    pub(super) fn take_back_at_start(&mut self) {
        let Some(old) = self.keeper.waits().and_then(|_| self.keeper.old().cloned()) else { return };
        if returns(self.args, &self.known.told.text, &old) {
            return;
        }
        let Answer::Old { text, rates } = self.keeper.ask(Ask::Old) else { return };
        self.back_to(text, &rates);
        let why = "only a new start can take it back, and this is one";
        self.keeper.ask(Ask::Reverted { why: why.to_owned() });
        eprintln!("altq run: the change that waited is taken back: {why}");
    }

    /// The policy that was read at SIGHUP while no worker ran gives way to the one before if a
    /// worker ends by itself, with this code, before it shapes.
    pub(super) fn forget_unproven(&mut self, code: i32) {
        if self.watch.shaping_since().is_some() {
            return;
        }
        let Some((before, rates)) = self.unproven.take() else { return };
        let (name, links) = (self.known.told.text.name.clone(), self.known.links.clone());
        if !self.runs(before, false) {
            return;
        }
        for (link, rate_bit_s) in rates {
            locked(&self.journal).take(&note(&Request::SetLink { link, rate_bit_s }));
        }
        // What the worker may have set up for interfaces that the policy before does not shape.
        let place = |link: &Link| (link.device.clone(), link.path());
        let now: Vec<_> = self.known.links.iter().map(place).collect();
        let gone: Vec<&Link> = links.iter().filter(|link| !now.contains(&place(link))).collect();
        if let Err(error) = altq_dataplane::sweep(&gone) {
            eprintln!("altq run: {error}");
        }
        let why = format!("a worker that began with {name} ended with code {code}");
        eprintln!("altq run: {why}; it was read while no worker ran, and the policy before runs again");
        if let Some(since) = self.away.take().map(|away| away.since()) {
            self.away = self.answer_meanwhile(&why, since);
        }
    }

    /// The worker has ended between beginning a change and making it: the next worker runs the old
    /// policy.
    pub(super) fn forget_begun(&mut self) {
        if self.begun.take().is_some() {
            self.keeper.ask(Ask::Abort);
        }
    }

    /// Another policy runs now. The next worker will begin with it. `of_file`: the text is that of
    /// the file of its name, and no edited copy.
    ///
    /// False, with a message, if the text cannot be read: then nothing is changed.
    fn runs(&mut self, text: Text, of_file: bool) -> bool {
        let before = &self.known.told.begun;
        let file = if of_file && text.name == before.path { Some(text.clone()) } else { before.file.clone() };
        let begun = Begun { file, instead: None, ..before.clone() };
        let number = self.known.told.number;
        match self.known_of(Told { number, text, begun }) {
            Ok(known) => {
                self.known = known;
                if let Some(drift) = self.drift.as_ref().filter(|_| self.watch.shaping_since().is_some()) {
                    drift.asks(&self.known.files, &self.known.links);
                }
                locked(&self.journal).forget_rates();
                true
            }
            Err(why) => {
                eprintln!("altq run: the next worker begins with the policy before: {why}");
                false
            }
        }
    }

    fn known_of(&self, told: Told) -> Result<Known, String> {
        let policy = policy_of(&told.text).map_err(|failed| failed.to_string())?;
        let links = choose(&policy, self.args.link.as_deref())?.into_iter().cloned().collect();
        Ok(Known { told, files: self.known.files.clone(), links })
    }

    /// Checks that a policy has room for the subscribers and reservations that came while altq ran.
    /// A worker checks that itself, if there is one.
    pub(super) fn what_came_fits(&self, links: &[Link]) -> Result<(), Fault> {
        let room = self.args.subscribers as usize * QUEUE;
        locked(&self.journal).fits(links, room, time())
    }

    /// The policy that was read at SIGHUP while no worker ran runs now.
    pub(super) fn note_read(&mut self, text: &Text, before: &Text) {
        let (wait_ns, guards, lines) = (None, Vec::new(), Vec::new());
        let (text, before, what, by) = (text.clone(), before.clone(), What::Hangup, By::default());
        self.keeper.ask(Ask::Begin { text, before, wait_ns, guards, what, by, lines });
        self.keeper.ask(Ask::Made);
    }

    /// Takes a change back if the worker fails to do so, or if no worker runs.
    pub(super) fn overdue(&mut self) {
        let now = self.now();
        if self.keeper.waits() != Some(0) {
            self.overdue = None;
            return;
        }
        let since = *self.overdue.get_or_insert(now);
        let worker = self.worker.is_some() && self.watch.shaping_since().is_some();
        if worker && now.saturating_sub(since) < LATE {
            return;
        }
        let Answer::Old { text, rates } = self.keeper.ask(Ask::Old) else { return };
        let had = self.worker.is_some();
        self.kill();
        self.back_to(text, &rates);
        self.keeper.ask(Ask::Reverted { why: "nobody confirmed it in time".to_owned() });
        eprintln!("altq run: the change that nobody confirmed is taken back");
        self.overdue = None;
        if had {
            self.down("the change that nobody confirmed is taken back by a new start");
        }
    }

    /// By link, the rate that the policy gives it.
    fn rates(&self) -> BTreeMap<String, Rate> {
        self.known.links.iter().map(|link| (link.name.clone(), link.spec.rate)).collect()
    }

    /// Notes the rates that clients have set and that hold again with the policy that came back, so
    /// that the next worker gets them. `went`: what the policy before has given links, `set`: what
    /// clients had set by then, `before`: what they had set before the change; the latter two in
    /// bit/s.
    fn set_again(
        &mut self,
        went: &BTreeMap<String, Rate>,
        set: &BTreeMap<String, u64>,
        before: &BTreeMap<String, u64>,
    ) {
        let rate_of = |rates: &BTreeMap<String, u64>, link: &str| rates.get(link).copied().map(Rate::bit_s);
        for (link, comes) in self.rates() {
            let Some(goes) = went.get(&link) else { continue };
            let runs = rate_of(set, &link).unwrap_or(*goes);
            if let Some(rate) = rate_again(runs, (*goes, comes), rate_of(before, &link)) {
                let rate_bit_s = rate.as_bit_s();
                locked(&self.journal).take(&note(&Request::SetLink { link, rate_bit_s }));
            }
        }
    }

    /// How long until a change may be overdue.
    pub(super) fn until_overdue(&self) -> Option<Duration> {
        let left = self.keeper.waits()?;
        let late = self.overdue.map_or(0, |since| since.saturating_add(LATE).saturating_sub(self.now()));
        Some(Duration::from_nanos(left.max(late).max(1_000_000)))
    }
}
