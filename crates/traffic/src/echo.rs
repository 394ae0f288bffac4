//! Requests and responses over UDP: one after another, each sent when the last is answered, or at a
//! fixed interval whether answers come or not.
//!
//! A request begins with its number, little-endian, in up to 8 bytes; a response repeats the first
//! bytes of its request. So a response is matched to its request even if the payload is one byte.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bulk::waiting;
use crate::clock;
use crate::error::{Doing, Error};
use crate::protocol::Datagram;
use crate::request::Sizes;
use crate::run::Shared;
use crate::throttle::Throttle;

/// A request without an answer for this long counts as lost.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Least bytes of requests and answers that are sent at an interval. Several may be on their way,
/// so their numbers must differ.
pub const LEAST_AT_INTERVALS: usize = 4;

/// The most requests on their way that are remembered.
const UNDER_WAY: usize = 1 << 14;

/// Sends requests until `end` and measures round trips. Without `interval` each request waits for
/// the answer to the one before.
///
/// # Errors
/// Those of the socket, before the end of the run.
pub fn ask(
    socket: &UdpSocket,
    sizes: Sizes,
    interval: Option<Duration>,
    end: Instant,
    shared: &Shared,
) -> Result<(), Error> {
    match interval {
        None => one_by_one(socket, sizes, end, shared),
        Some(interval) => at_intervals(socket, sizes, interval, end, shared),
    }
}

fn one_by_one(socket: &UdpSocket, sizes: Sizes, end: Instant, shared: &Shared) -> Result<(), Error> {
    let mut question = vec![0x51; sizes.request];
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut number = 0u64;
    while !shared.over(end) {
        number += 1;
        put_number(&mut question, number);
        let asked = Instant::now();
        if !put(socket, &question, shared)? {
            return Ok(());
        }
        shared.meter.sent_one();
        loop {
            let answered = match socket.recv(&mut buffer) {
                Ok(bytes) if same_number(buffer.get(..bytes).unwrap_or_default(), &question) => Some(Instant::now()),
                // The answer to an earlier request that had been given up.
                Ok(_) => None,
                Err(error) if waiting(&error) || gone(&error) => None,
                Err(error) => return Err(error).doing(|| "waiting for a response"),
            };
            if let Some(answered) = answered {
                note(answered, answered.duration_since(asked), sizes, shared);
                break;
            }
            if shared.stopped() {
                return Ok(());
            }
            if asked.elapsed() >= PATIENCE {
                shared.meter.failed();
                break;
            }
        }
    }
    Ok(())
}

fn at_intervals(
    socket: &UdpSocket,
    sizes: Sizes,
    interval: Duration,
    end: Instant,
    shared: &Shared,
) -> Result<(), Error> {
    let mut question = vec![0x51; sizes.request];
    let mut buffer = vec![0; usize::from(u16::MAX)];
    // For each request under way: its number and when it was sent.
    let mut asked: Vec<Option<(u64, Instant)>> = vec![None; UNDER_WAY];
    let mut lateness = clock::Lateness::default();
    let (mut number, mut answers, mut due) = (0u64, 0u64, Instant::now());
    // Time for the last answers to come back.
    let last = end + PATIENCE;
    clock::precise();
    while !shared.over(last) && (answers < number || !shared.over(end)) {
        let now = Instant::now();
        if due <= now && now < end {
            lateness.note(due, now);
            number += 1;
            put_number(&mut question, number);
            if let Some(place) = asked.get_mut(number as usize % UNDER_WAY) {
                *place = Some((number, now));
            }
            if !put(socket, &question, shared)? {
                break;
            }
            shared.meter.sent_one();
            due += interval;
            continue;
        }
        let until = if now < end { due.min(end) } else { last };
        let wait = until.saturating_duration_since(now).min(crate::socket::PATIENCE);
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut watched = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        if !matches!(poll(&mut watched, Some(&time)), Ok(1..)) {
            continue;
        }
        let bytes = match socket.recv(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if waiting(&error) || gone(&error) => continue,
            Err(error) => return Err(error).doing(|| "waiting for a response"),
        };
        let answered = Instant::now();
        let Some(of) = number_of(buffer.get(..bytes).unwrap_or_default(), number) else { continue };
        // Removed, so that a second copy of the answer is not counted.
        let place =
            asked.get_mut(of as usize % UNDER_WAY).filter(|place| place.is_some_and(|(number, _)| number == of));
        if let Some((_, asked)) = place.and_then(Option::take) {
            answers += 1;
            note(answered, answered.duration_since(asked), sizes, shared);
        }
    }
    (answers..number).for_each(|_| shared.meter.failed());
    shared.meter.note_lateness(&lateness);
    Ok(())
}

fn note(answered: Instant, took: Duration, sizes: Sizes, shared: &Shared) {
    let now = shared.epoch.since(answered);
    shared.meter.took(now, took.as_nanos() as u64);
    shared.meter.completed(now);
    shared.meter.arrived(now, sizes.request as u64);
}

/// Answers requests of the socket's peer until the run is over, no faster than the throttle allows.
/// Late datagrams of the handshake that proved the peer's address are ignored.
///
/// # Errors
/// Those of the socket.
pub fn answer(socket: &UdpSocket, response: usize, throttle: Option<&Throttle>, shared: &Shared) -> Result<(), Error> {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut reply = vec![0x41; response];
    while !shared.stopped() {
        let bytes = match socket.recv(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if waiting(&error) || gone(&error) => continue,
            Err(error) => return Err(error).doing(|| "receiving"),
        };
        if Datagram::is_one(buffer.get(..bytes).unwrap_or_default()) {
            continue;
        }
        for (to, from) in reply.iter_mut().zip(buffer.iter().take(bytes.min(8))) {
            *to = *from;
        }
        if throttle.is_some_and(|throttle| !throttle.take(response, &shared.stop)) {
            break;
        }
        if !put(socket, &reply, shared)? {
            break;
        }
    }
    Ok(())
}

/// Answers requests from any address. For namespaces that only this process uses.
///
/// # Errors
/// Those of the socket.
pub fn answer_all(socket: &UdpSocket, response: usize, shared: &Shared) -> Result<(), Error> {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut reply = vec![0x41; response];
    while !shared.stopped() {
        let (bytes, from) = match socket.recv_from(&mut buffer) {
            Ok(came) => came,
            Err(error) if waiting(&error) || gone(&error) => continue,
            Err(error) => return Err(error).doing(|| "receiving"),
        };
        for (to, from) in reply.iter_mut().zip(buffer.iter().take(bytes.min(8))) {
            *to = *from;
        }
        match socket.send_to(&reply, from) {
            Err(error) if !waiting(&error) && !gone(&error) && !shared.stopped() => {
                return Err(error).doing(|| "answering");
            }
            _ => {}
        }
    }
    Ok(())
}

fn put_number(question: &mut [u8], number: u64) {
    question.iter_mut().zip(number.to_le_bytes()).for_each(|(to, byte)| *to = byte);
}

/// True if an answer has the number of this request, compared over the bytes that both have for it.
fn same_number(answer: &[u8], question: &[u8]) -> bool {
    !answer.is_empty() && answer.iter().zip(question).take(8).all(|(a, q)| a == q)
}

/// The number of the request that an answer of at least 4 bytes belongs to. `last`: the number of
/// the last request.
fn number_of(answer: &[u8], last: u64) -> Option<u64> {
    let low = u32::from_le_bytes(*answer.first_chunk()?);
    // The answer has the lower 32 bits; the upper ones follow from the last number.
    last.checked_sub(u64::from((last as u32).wrapping_sub(low))).filter(|number| *number > 0)
}

/// Sends one datagram; false when the run is over.
pub fn put(socket: &UdpSocket, payload: &[u8], shared: &Shared) -> Result<bool, Error> {
    loop {
        match socket.send(payload) {
            Ok(_) => return Ok(true),
            // At the end of the run the receiver may be gone.
            Err(_) if shared.stopped() => return Ok(false),
            Err(error) if waiting(&error) || gone(&error) => {}
            Err(error) => return Err(error).doing(|| "sending"),
        }
    }
}

/// True for errors that do not matter: an earlier datagram found no listener, or the interface's
/// queue was full for a moment.
pub(crate) fn gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionRefused
        || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_questions() {
        let mut question = vec![0; 1];
        put_number(&mut question, 0x1234);
        assert_eq!(question, [0x34]);
        assert!(
            same_number(&[0x34, 9, 9], &question) && !same_number(&[0x33], &question) && !same_number(&[], &question)
        );
        assert_eq!(number_of(&7u32.to_le_bytes(), 9), Some(7));
        assert_eq!(number_of(&u32::MAX.to_le_bytes(), 1 << 32), Some((1 << 32) - 1));
        // A request with this number was never sent.
        assert_eq!(number_of(&[0; 3], 9), None);
        assert_eq!(number_of(&10u32.to_le_bytes(), 9), None);
        assert_eq!(number_of(&0u32.to_le_bytes(), 9), None);
    }
}
