//! Events of reservations. Clients that watch read them at their own pace.

use std::collections::VecDeque;

use altq_engine::units::Nanos;
use serde::Serialize;

use crate::message::seconds;
use crate::table::Reservation;

/// The most events that are kept for slow readers.
const KEPT: usize = 4096;

/// What happened to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Happened {
    /// It was granted, now or before a restart.
    Granted,
    /// It has other values, or will end sooner than before. A refresh that prolongs it is not an
    /// event.
    Changed,
    /// Its time is over.
    Expired,
    /// It was taken away: the policy or the engine no longer has room for it.
    Preempted,
    /// Its owner gave it up.
    Deleted,
}

/// An event, one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// `altq.reserve-event/1`.
    pub schema: &'static str,
    /// Its number, one more than that of the previous event.
    pub seq: u64,
    /// What happened.
    pub event: Happened,
    /// The reservation.
    pub id: u64,
    /// Its key.
    pub key: Option<String>,
    /// Its owner.
    pub owner: Option<String>,
    /// The name of its class.
    pub class: String,
    /// Its rate, in bit/s at layer 3.
    pub rate_bit_s: u64,
    /// What the link charges for it, in bit/s.
    pub charged_bit_s: u64,
    /// Seconds from the event until the reservation ends; `None`: it does not end by itself.
    pub expires_s: Option<f64>,
    /// Why it happened, if the owner did not ask for it.
    pub reason: Option<String>,
}

/// The last events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    last: VecDeque<Event>,
    /// The number of the next event.
    next: u64,
    /// The reservations that have ended since this was last asked for, however many they are.
    ended: Vec<u64>,
}

impl Events {
    pub fn push(&mut self, now: Nanos, event: Happened, of: &Reservation, reason: Option<String>) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        if matches!(event, Happened::Expired | Happened::Preempted | Happened::Deleted) {
            self.ended.push(of.id);
        }
        self.last.push_back(Event {
            schema: "altq.reserve-event/1",
            seq: self.next,
            event,
            id: of.id,
            key: of.key.clone(),
            owner: of.owner.clone(),
            class: of.name.clone(),
            rate_bit_s: of.tspec.rate_bit_s,
            charged_bit_s: of.charged(),
            expires_s: of.deadline.map(|deadline| seconds(deadline.saturating_sub(now))),
            reason,
        });
        self.next += 1;
    }

    /// The number of the next event.
    pub fn coming(&self) -> u64 {
        self.next
    }

    /// The reservations that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ended)
    }

    /// The events from number `from` on that are still kept, and how many of them are no longer
    /// kept.
    pub fn since(&self, from: u64) -> (u64, impl Iterator<Item = &Event>) {
        let first = self.last.front().map_or(self.next, |event| event.seq);
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        (first.saturating_sub(from), self.last.iter().skip(skipped))
    }
}
