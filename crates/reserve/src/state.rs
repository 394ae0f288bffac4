//! What survives a restart: the reservations, with deadlines by the wall clock.
//!
//! The table's clock may begin anew with every start. So the caller gives both clocks when it saves
//! and when it restores.

use std::collections::HashSet;

use altq_engine::spec::ROOT;
use altq_engine::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::events::Happened;
use crate::flow::Flow;
use crate::install::Apply;
use crate::message::{Excess, Op, Request};
use crate::room::{Held, Refusal};
use crate::table::{Reservation, Table};
use crate::tspec::{Cost, Tspec};

/// The highest number of a reservation, so that even after a damaged state there are numbers for
/// new ones. Up to here every program reads JSON's numbers exactly.
const MOST_ID: u64 = 1 << 53;

/// The version of the format in which reservations are saved.
pub const FORM: u32 = 1;

/// The reservations of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The version of the format: [`FORM`].
    pub form: u32,
    /// The link.
    pub link: String,
    /// The lowest number that the next reservation may get.
    pub next_id: u64,
    /// The reservations, by number.
    pub reservations: Vec<Saved>,
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Its number.
    pub id: u64,
    /// Its key.
    pub key: Option<String>,
    /// Its owner.
    pub owner: Option<String>,
    /// Its flows.
    pub flows: Vec<Flow>,
    /// Its rate, burst and packet sizes.
    pub tspec: Tspec,
    /// What becomes of packets beyond that.
    pub excess: Excess,
    /// The longest wait of a conforming packet that its owner asked for, in nanoseconds.
    pub delay_ns: Option<Nanos>,
    /// How long it lasts after a refresh, in nanoseconds.
    pub ttl_ns: Option<Nanos>,
    /// When it ends, in nanoseconds since the boot.
    pub deadline_boot_ns: Option<u64>,
}

/// The outcome of restoring a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// How many reservations exist again.
    pub restored: usize,
    /// How many had ended in the meantime.
    pub expired: usize,
    /// Those for which there is no room any more, or whose data are damaged: number and reason.
    pub refused: Vec<(u64, String)>,
}

impl Reservation {
    /// What survives a restart of the process, given the table's clock and the time since the boot.
    pub fn saved(&self, now: Nanos, boot_ns: u64) -> Saved {
        Saved {
            id: self.id,
            key: self.key.clone(),
            owner: self.owner.clone(),
            flows: self.flows.clone(),
            tspec: self.tspec,
            excess: self.excess,
            delay_ns: self.delay,
            ttl_ns: self.ttl,
            deadline_boot_ns: self.deadline.map(|at| boot_ns.saturating_add(at.saturating_sub(now))),
        }
    }
}

impl Table {
    /// The present reservations. `now` is the table's clock, `boot_ns` the time since the
    /// boot, which nobody can set.
    pub fn save(&self, now: Nanos, boot_ns: u64) -> State {
        let reservations = self.by_id.values().map(|there| there.saved(now, boot_ns)).collect();
        State { form: FORM, link: self.room.place.link.clone(), next_id: self.next, reservations }
    }

    /// The lowest number that the next reservation may get.
    pub fn next_id(&self) -> u64 {
        self.next
    }

    /// Gives numbers from `next` on, unless those of the table are higher already. So a table that
    /// takes the place of another one gives no number again.
    pub fn continue_at(&mut self, next: u64) {
        self.next = self.next.max(next.min(MOST_ID));
    }

    /// Adds the reservations of a state to a table, and makes their classes and rules in the
    /// engine. Those whose deadline has passed give an event `expired`, those for which the policy
    /// no longer has room one `preempted`. Whatever the state says, none lasts longer than its time
    /// to live and than the policy's `lifetime`.
    ///
    /// # Errors
    /// Why nothing was restored: another format, a number out of range, or rules that the engine
    /// refused.
    pub fn restore(
        &mut self,
        now: Nanos,
        boot_ns: u64,
        state: &State,
        apply: &mut Apply<'_>,
    ) -> Result<Restored, String> {
        if state.form != FORM {
            return Err(format!("the reservations are saved in form {}; this version reads form {FORM}", state.form));
        }
        if state.next_id > MOST_ID {
            return Err(format!("the number of the next reservation, {}, is above {MOST_ID}", state.next_id));
        }
        let mut done = Restored::default();
        let mut made = Vec::new();
        self.next = self.next.max(state.next_id);
        for saved in &state.reservations {
            let over = saved.deadline_boot_ns.is_some_and(|deadline| deadline <= boot_ns);
            match self.restored(now, boot_ns, saved, over, apply) {
                Ok(Some(there)) => {
                    self.next = self.next.max(there.id + 1);
                    self.put_in(there.clone());
                    made.push(there);
                }
                Ok(None) => done.expired += 1,
                Err(refusal) => done.refused.push((saved.id, refusal.reason)),
            }
        }
        if let Err(error) = apply(&self.rules(&HashSet::new())) {
            for there in made {
                self.take_out(there.id);
                self.remove_class(there.class, there.held, None, apply);
            }
            return Err(format!("the engine refused the rules of the reservations: {error}"));
        }
        for there in &made {
            self.events.push(now, Happened::Granted, there, None);
        }
        done.restored = made.len();
        Ok(done)
    }

    /// Restores one reservation of a state, with its class. `None` if its time is over.
    fn restored(
        &mut self,
        now: Nanos,
        boot_ns: u64,
        saved: &Saved,
        over: bool,
        apply: &mut Apply<'_>,
    ) -> Result<Option<Reservation>, Refusal> {
        let Saved { id, key, owner, flows, tspec, excess, delay_ns, ttl_ns, deadline_boot_ns } = saved.clone();
        let request = Request { key, owner, flows: Some(flows), delay_ns, ..Request::new(Op::Add) };
        request.check().map_err(Refusal::because)?;
        let Request { key, owner, flows, .. } = request;
        let flows = flows.unwrap_or_default();
        if id >= MOST_ID {
            return Err(Refusal::because(format!("numbers of reservations are below {MOST_ID}")));
        }
        if self.clashes(id, key.as_ref(), &flows) {
            return Err(Refusal::because("another reservation has its number, its key or one of its flows"));
        }
        let name = self.room.place.name(id);
        let name = name.ok_or_else(|| Refusal::because("the policy has a class of the name of its class"))?;
        // The policy may have another `lifetime` than when the reservation was made.
        let ttl = self.ttl(ttl_ns);
        let left = deadline_boot_ns.map(|deadline| deadline.saturating_sub(boot_ns));
        let deadline = left.into_iter().chain(ttl).min().map(|left| now.saturating_add(left));
        // This is replaced by what it really holds once there is room for it.
        let held = Held::nothing(Cost::of(&self.room.place.overhead, &tspec, self.room.place.mtu), &tspec);
        let (delay, class) = (delay_ns, ROOT);
        let mut there = Reservation { id, key, owner, name, class, tspec, flows, excess, delay, ttl, deadline, held };
        if over {
            self.events.push(now, Happened::Expired, &there, None);
            return Ok(None);
        }
        let made = self.room.ask(&there.asked(), None).and_then(|held| Ok((self.make_class(&held, apply)?, held)));
        match made {
            Ok((class, held)) => {
                (there.class, there.held) = (class, held);
                Ok(Some(there))
            }
            Err(refusal) => {
                self.events.push(now, Happened::Preempted, &there, Some(refusal.reason.clone()));
                Err(refusal)
            }
        }
    }
}
