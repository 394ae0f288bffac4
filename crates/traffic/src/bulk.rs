//! Bulk TCP: as much as the connection takes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Doing, Error};
use crate::run::Shared;
use crate::throttle::Throttle;

/// Bytes of one write or read: enough for a full super-packet and the next.
const CHUNK: usize = 128 << 10;

/// Time between two looks at what the kernel knows of a connection.
const LOOK: Duration = Duration::from_millis(100);

/// What a sender keeps to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    /// So many bytes, and no more.
    pub bytes: Option<u64>,
    /// A rate that it shares with others.
    pub throttle: Option<&'a Throttle>,
}

/// Sends until `end` or until all is sent, then says that there is no more and waits until it is
/// delivered, or the run is over. `stream` is its number among its flow's connections.
///
/// # Errors
/// Those of writing, before its end.
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
        if let Some(throttle) = limits.throttle {
            throttle.take(portion);
        }
        match connection.write(chunk.get(..portion).unwrap_or(&chunk)) {
            Ok(written) => left = left.saturating_sub(written as u64),
            Err(error) if waiting(&error) => {}
            // At the end of the run the receiver may be the first to go.
            Err(_) if shared.over(end) => break,
            Err(error) => return Err(error).doing(|| "sending"),
        }
        if look <= Instant::now() {
            look = Instant::now() + LOOK;
            note(connection, number, shared);
        }
    }
    note(connection, number, shared);
    // What was sent by then is delivered, as any program's would be.
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
    // A connection that has just broken has none.
    if let Ok(info) = altq_dataplane::tcp_info(connection) {
        shared.meter.note_connection(number, info);
    }
}

/// Counts what a connection brings until it ends or the run is over. True: the sender said that
/// there is no more.
pub fn receive(connection: &mut TcpStream, throttle: Option<&Throttle>, shared: &Shared) -> bool {
    let mut buffer = vec![0; throttle.map_or(CHUNK, |throttle| throttle.portion(CHUNK))];
    while !shared.stopped() {
        match connection.read(&mut buffer) {
            Ok(0) => return true,
            Ok(bytes) => {
                shared.meter.arrived(shared.now(), bytes as u64);
                if let Some(throttle) = throttle {
                    // What is not read in time holds the sender back.
                    throttle.take(bytes);
                }
            }
            Err(error) if waiting(&error) => {}
            // The sender's reset at the end of the run.
            Err(_) => return false,
        }
    }
    false
}

/// True when the call only ran into its time limit.
pub fn waiting(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
