//! Bulk TCP: sends as fast as the connection allows.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Doing, Error};
use crate::run::Shared;
use crate::throttle::Throttle;

/// Bytes of one write or read: enough for a full super-packet and the next one.
pub(crate) const CHUNK: usize = 128 << 10;

/// Time between two readings of a connection's TCP_INFO.
const LOOK: Duration = Duration::from_millis(100);

/// Limits of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    /// Payload to send, in bytes; `None`: it sends until its end time.
    pub bytes: Option<u64>,
    /// A rate limit, shared with other threads.
    pub throttle: Option<&'a Throttle>,
}

/// Sends until `end`, or until all bytes are sent. Then it closes its side, and waits until
/// everything is delivered or the run is over. `number` is the connection's number in its flow.
///
/// # Errors
/// Errors of writing, if they come before `end`.
pub fn send(
    connection: &mut TcpStream,
    number: u32,
    end: Instant,
    limits: Limits<'_>,
    shared: &Shared,
) -> Result<(), Error> {
    let chunk = vec![0x5a; CHUNK];
    let mut left = limits.bytes.unwrap_or(u64::MAX);
    let mut look = Instant::now();
    while left > 0 && !shared.over(end) {
        let mut portion = limits.throttle.map_or(CHUNK, |throttle| throttle.portion(CHUNK));
        portion = portion.min(usize::try_from(left).unwrap_or(CHUNK));
        match connection.write(chunk.get(..portion).unwrap_or(&chunk)) {
            Ok(written) => {
                left = left.saturating_sub(written as u64);
                // What a full buffer did not take is no traffic.
                if let Some(throttle) = limits.throttle {
                    throttle.take(written, &shared.stop);
                }
            }
            Err(error) if waiting(&error) => {}
            // At the end of the run the receiver may close first.
            Err(_) if shared.over(end) => break,
            Err(error) => return Err(error).doing(|| "sending"),
        }
        if look <= Instant::now() {
            look = Instant::now() + LOOK;
            note(connection, number, shared);
        }
    }
    note(connection, number, shared);
    // The FIN lets the kernel deliver what has been written.
    let _ = connection.shutdown(Shutdown::Write);
    let mut end = [0; 1];
    while !shared.stopped() {
        match connection.read(&mut end) {
            Err(error) if waiting(&error) => {}
            _ => break,
        }
    }
    if limits.bytes.is_some() {
        note(connection, number, shared);
    }
    Ok(())
}

fn note(connection: &TcpStream, number: u32, shared: &Shared) {
    // A broken connection has no TCP_INFO.
    if let Ok(info) = altq_dataplane::tcp_info(connection) {
        shared.meter.note_connection(number, info);
    }
}

/// Receives and counts until the connection ends or the run is over. True if the sender has closed
/// its side, so that everything has arrived.
pub fn receive(connection: &mut TcpStream, throttle: Option<&Throttle>, shared: &Shared) -> bool {
    let mut buffer = vec![0; throttle.map_or(CHUNK, |throttle| throttle.portion(CHUNK))];
    while !shared.stopped() {
        match connection.read(&mut buffer) {
            Ok(0) => return true,
            Ok(bytes) => {
                shared.meter.arrived(shared.now(), bytes as u64);
                if let Some(throttle) = throttle {
                    // Reading slowly lets TCP's flow control slow the sender down.
                    throttle.take(bytes, &shared.stop);
                }
            }
            Err(error) if waiting(&error) => {}
            // The sender resets the connection at the end of the run.
            Err(_) => return false,
        }
    }
    false
}

/// True if the call ended at its time limit or was interrupted, and must be repeated.
pub fn waiting(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
