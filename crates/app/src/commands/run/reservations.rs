//! Reservations of the running links (docs/reserve.md): in whose name a client asks, the answers,
//! and where changes, notes and messages go. The tables are in the roster. And how a new worker
//! waits for what the one before had.

use std::sync::OnceLock;
use std::time::Duration;

use altq_control::reply::Body;
use altq_control::reservations::{Reserve, Restore, Said};
use altq_control::rights::Peer;
use altq_control::roster::Roster;
use altq_control::roster::reserved::{Done, Time};
use altq_control::{Code, Fault, Request as Asked};
use altq_engine::units::SECOND;
use altq_reserve::{Answer, Op, Request};
use rustix::process::geteuid;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::answers::{document, is_supervisor, who};
use super::heart::Wire;
use super::live::Live;

/// How long a worker waits for the next subscribers and reservations of the worker before. The
/// supervisor sends them again if it has no answer within 20 s.
const AWAIT: u64 = 60 * SECOND;

/// About the most bytes of notes that are sent to the supervisor at a time.
const PART: usize = 16 << 10;

/// The time by the loops' clock and since the boot.
pub fn time() -> Time {
    let nanos = |at: Timespec| {
        let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
        seconds.saturating_mul(SECOND).saturating_add(u64::try_from(at.tv_nsec).unwrap_or(0))
    };
    Time { now: nanos(clock_gettime(ClockId::Monotonic)), boot: nanos(clock_gettime(ClockId::Boottime)) }
}

/// Makes the roster wait for the subscribers and reservations of the worker before.
pub fn await_those_before(live: &Live) {
    live.lock().roster.await_those_before(time().now.saturating_add(AWAIT));
}

/// Checks that a request about subscribers comes neither too early nor into the midst of what the
/// supervisor sends: that would be lost, or bring back those that are gone. (The roster itself
/// checks requests about reservations.)
///
/// # Errors
/// What the worker before had is not here yet.
pub fn comes_in_time(live: &Live, asked: &Asked, peer: &Peer) -> Result<(), Fault> {
    let mut state = live.lock();
    match asked {
        Asked::SetLink { .. } | Asked::SetSubscribers(_) | Asked::Reserve(_) if is_supervisor(peer) => {
            state.roster.await_more(time().now.saturating_add(AWAIT));
            Ok(())
        }
        Asked::SetSubscribers(_)
        | Asked::DeleteSubscribers(_)
        | Asked::DeleteSubscribersAt { .. }
        | Asked::ListSubscribers => state.roster.all_there(time().now),
        _ => Ok(()),
    }
}

/// Hands changes to the loops, and sends the supervisor what it must keep. It must be called before
/// the roster is changed again, so that both get all changes in the same order.
pub fn carry_out<T>(live: &Live, wire: Option<&Wire>, done: Done<T>) -> T {
    live.make(done.changes);
    if let Some(wire) = wire {
        for part in parts(&done.notes) {
            // If the supervisor is gone, this worker ends soon.
            let _ = wire.say(part);
        }
    }
    for line in &done.said {
        eprintln!("altq run: {line}");
    }
    done.result
}

/// Cuts notes into parts of whole lines, so that beats can be sent between them.
fn parts(notes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = notes;
    std::iter::from_fn(move || {
        let least = rest.len().min(PART);
        let end = rest.get(least..)?.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| least + at + 1);
        let (part, behind) = rest.split_at_checked(end)?;
        rest = behind;
        (!part.is_empty()).then_some(part)
    })
}

/// Answers a client.
///
/// # Errors
/// The client may not ask this, or it cannot be answered now.
pub fn answer(live: &Live, wire: Option<&Wire>, asked: Reserve, peer: &Peer) -> Result<Body, Fault> {
    let mut asked = match asked {
        Reserve::Ask(asked) => *asked,
        Reserve::Restore(restore) => return restored(live, wire, &restore, peer),
    };
    let mut state = live.lock();
    in_whose_name(&state.roster, &mut asked, peer)?;
    let before = state.roster.coming();
    let done = state.roster.reserve(time(), &asked)?;
    let said = carry_out(live, wire, done);
    let happened = state.roster.coming() > before;
    drop(state);
    if let Said::Answer(answer) = &said {
        log(answer, happened, asked.op, peer);
    }
    document(&said)
}

/// Restores the reservations of the previous worker.
fn restored(live: &Live, wire: Option<&Wire>, asked: &Restore, peer: &Peer) -> Result<Body, Fault> {
    if !may_name_owners(peer) {
        let message = format!("user {} may make reservations, but not bring back others'", peer.uid);
        return Err(Fault::new(Code::NotPermitted, message));
    }
    let mut state = live.lock();
    let done = state.roster.restore(time(), asked.state.as_ref(), asked.last);
    let again = carry_out(live, wire, done);
    drop(state);
    for (id, why) in &again.refused {
        eprintln!("altq run: reservation {id} is not there any more: {why}");
    }
    document(&again)
}

/// Prints on standard error what has changed, or was refused.
fn log(answer: &Answer, happened: bool, op: Op, peer: &Peer) {
    if answer.granted && !happened {
        return;
    }
    let which = match (answer.id, &answer.key) {
        (Some(id), Some(key)) => format!("reservation {id} ({})", key.escape_debug()),
        (Some(id), None) => format!("reservation {id}"),
        (None, Some(key)) => format!("reservation {}", key.escape_debug()),
        (None, None) => "reservation".to_owned(),
    };
    let what = match (&answer.reason, op) {
        (Some(why), _) => format!("refused: {why}"),
        (None, Op::Del) => "given up".to_owned(),
        (None, _) => format!("{} bit/s", answer.rate_bit_s.unwrap_or_default()),
    };
    eprintln!("altq run: {which}: {what}; asked by {}", who(peer));
}

/// Whether a client may make reservations in the name of others, and change those of others.
fn may_name_owners(peer: &Peer) -> bool {
    is_own(peer)
}

/// The user that started altq.
static OWNER: OnceLock<u32> = OnceLock::new();

/// Notes which user runs altq, before a worker becomes another one.
pub fn note_owner() {
    let _ = OWNER.set(geteuid().as_raw());
}

/// True for root and for the user that runs altq.
pub fn is_own(peer: &Peer) -> bool {
    peer.uid == 0 || peer.uid == OWNER.get().copied().unwrap_or_else(|| geteuid().as_raw())
}

/// Sets the owner of a request. A client that may not name owners asks in its own name.
fn in_whose_name(roster: &Roster, asked: &mut Request, peer: &Peer) -> Result<(), Fault> {
    if matches!(asked.op, Op::List | Op::Watch) {
        return Ok(());
    }
    let own = format!("uid:{}", peer.uid);
    if may_name_owners(peer) {
        // Without an owner such a client may change any reservation; a new one belongs to its user.
        let new = asked.op == Op::Add && asked.key.as_deref().is_none_or(|key| !roster.has_key(key));
        if new && asked.owner.is_none() {
            asked.owner = Some(own);
        }
        return Ok(());
    }
    match &asked.owner {
        Some(owner) if *owner != own => {
            let message = format!("user {} makes reservations in the name `{own}` only", peer.uid);
            Err(Fault::new(Code::NotPermitted, message).help("root, and the user that runs altq, may name an owner"))
        }
        _ => {
            asked.owner = Some(own);
            Ok(())
        }
    }
}

/// How long there is nothing to do without a request.
pub fn rests(live: &Live) -> Option<Duration> {
    let due = live.lock().roster.due()?;
    // A millisecond more, so that the deadline has passed for certain.
    let wait = Duration::from_nanos(due.saturating_sub(time().now));
    Some(if wait.is_zero() { wait } else { wait + Duration::from_millis(1) })
}

/// Ends the reservations whose time is over, and updates the tables whose links have changed.
pub fn work(live: &Live, wire: Option<&Wire>) {
    let mut state = live.lock();
    let at = time();
    if state.roster.due().is_some_and(|due| due <= at.now) {
        let done = state.roster.expire(at);
        carry_out(live, wire, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_said_in_parts_of_whole_lines() {
        assert_eq!(parts(b"").count(), 0);
        assert_eq!(parts(b"one\ntwo\n").collect::<Vec<&[u8]>>(), [b"one\ntwo\n"]);
        let lines: Vec<u8> = (0..20_000).flat_map(|n| format!("note {n}\n").into_bytes()).collect();
        let cut: Vec<&[u8]> = parts(&lines).collect();
        assert!(cut.len() > 10 && cut.iter().all(|part| part.ends_with(b"\n") && part.len() < PART + 100));
        assert_eq!(cut.concat(), lines);
    }
}
