//! Floods: more datagrams than a host can forward. Many are sent in one call, they have no numbers,
//! and the receiving kernel counts them without copying them to a program. Otherwise most of the
//! measured time would be that of sending and receiving numbered datagrams ([`crate::udp`]).

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use altq_dataplane::udp::{SEGMENTS, dropped, set_drop_all, set_segment};

use crate::bulk::waiting;
use crate::clock;
use crate::echo::gone;
use crate::error::{Doing, Error};
use crate::run::Shared;

/// Time between two readings of the receiver's counter.
const LOOK: Duration = Duration::from_millis(5);

/// The most bytes of a call: the payload of the largest IPv4 datagram.
const CALL: usize = 65_507;

/// A sender that is later than this skips the datagrams that are overdue.
const BEHIND: Duration = Duration::from_millis(10);

/// Sends datagrams of `payload` bytes (at least 1), one every `interval`, in the spans. Datagrams
/// that are due go in one call, which the kernel cuts into datagrams (UDP_SEGMENT). Datagrams that
/// cannot be sent in time are skipped; the meter counts those that were sent.
///
/// # Errors
/// Those of the socket.
pub fn send(
    socket: &UdpSocket,
    payload: usize,
    interval: Duration,
    spans: &[(Instant, Instant)],
    shared: &Shared,
) -> Result<(), Error> {
    clock::precise();
    let payload = payload.clamp(1, CALL);
    set_segment(socket, payload as u16).doing(|| "datagrams cut by the kernel")?;
    let most = (CALL / payload).clamp(1, SEGMENTS);
    let bytes = vec![0x55; payload * most];
    let interval = interval.max(Duration::from_nanos(1));
    let mut sent = 0;
    for (begin, end) in spans {
        if !clock::sleep_unless(&shared.stop, *begin) {
            break;
        }
        let mut next = *begin;
        while !shared.over(*end) {
            let now = Instant::now();
            if next > now {
                clock::sleep_until(next.min(*end));
                continue;
            }
            next = next.max(now.checked_sub(BEHIND).unwrap_or(now));
            let due = (now - next).as_nanos() / interval.as_nanos() + 1;
            let count = usize::try_from(due).unwrap_or(most).min(most);
            match socket.send(bytes.get(..count * payload).unwrap_or_default()) {
                Ok(_) => sent += count as u64,
                Err(error) if waiting(&error) || gone(&error) => {}
                // At the end of the run the receiver may be gone.
                Err(_) if shared.stopped() => return Ok(()),
                Err(error) => return Err(error).doing(|| "sending"),
            }
            next += interval * count as u32;
            shared.meter.sent(sent);
        }
    }
    Ok(())
}

/// Counts the datagrams that arrive at the socket, of `payload` bytes each, until the run is over.
/// The kernel drops them at the socket.
///
/// # Errors
/// Those of the socket.
pub fn count(socket: &UdpSocket, payload: usize, shared: &Shared) -> Result<(), Error> {
    set_drop_all(socket).doing(|| "setting a filter on a socket")?;
    let read = || dropped(socket).doing(|| "reading the number of datagrams that a socket has dropped");
    let mut last = read()?;
    while !shared.stopped() {
        thread::sleep(LOOK);
        let now = read()?;
        // The kernel's counter is modulo 2^32.
        let more = u64::from(now.wrapping_sub(last));
        last = now;
        shared.meter.came(shared.now(), more, more * payload as u64);
    }
    Ok(())
}
