//! Requests and responses over TCP, which measure the round trip of an application.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::bulk::{CHUNK, waiting};
use crate::clock;
use crate::error::{Doing, Error};
use crate::run::Shared;
use crate::throttle::Throttle;

/// Bytes of a request and of its answer; both are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of a request.
    pub request: usize,
    /// Of an answer.
    pub response: usize,
}

/// Sends requests over a connection until `end`: the next one when the answer is complete, or with
/// `interval` at its next multiple.
///
/// # Errors
/// Those of the connection, before the end of the run.
pub fn ask(
    connection: &mut TcpStream,
    sizes: Sizes,
    interval: Option<Duration>,
    end: Instant,
    shared: &Shared,
) -> Result<(), Error> {
    let question = vec![0x51; sizes.request];
    let mut answer = vec![0; sizes.response];
    let mut due = Instant::now();
    while !shared.over(end) {
        let asked = Instant::now();
        shared.meter.sent_one();
        if !write(connection, &question, shared).doing(|| "sending a request")?
            || !read(connection, &mut answer, shared).doing(|| "waiting for a response")?
        {
            break;
        }
        let answered = Instant::now();
        let now = shared.epoch.since(answered);
        shared.meter.took(now, answered.duration_since(asked).as_nanos() as u64);
        shared.meter.completed(now);
        shared.meter.arrived(now, sizes.request as u64);
        if let Some(interval) = interval {
            // Requests that were missed are not sent later.
            while due <= answered {
                due += interval;
            }
            if !clock::sleep_unless(&shared.stop, due.min(end)) {
                break;
            }
        }
    }
    Ok(())
}

/// Answers requests until the connection or the run is over. `throttles`: of what comes and of what
/// goes. The requesting side reports errors of the connection.
pub fn answer(connection: &mut TcpStream, sizes: Sizes, throttles: Option<(&Throttle, &Throttle)>, shared: &Shared) {
    let (up, throttle) = throttles.unzip();
    let mut question = vec![0; sizes.request];
    // In pieces, so that a long response does not hold up what others send.
    let piece = throttle.map_or(CHUNK, |throttle| throttle.portion(CHUNK));
    let answer = vec![0x41; sizes.response.min(piece)];
    while matches!(read(connection, &mut question, shared), Ok(true)) {
        if up.is_some_and(|up| !up.take(question.len(), &shared.stop)) {
            return;
        }
        let mut left = sizes.response;
        while left > 0 {
            let part = answer.get(..left.min(answer.len())).unwrap_or(&answer);
            if throttle.is_some_and(|throttle| !throttle.take(part.len(), &shared.stop))
                || !matches!(write(connection, part, shared), Ok(true))
            {
                return;
            }
            left -= part.len();
        }
    }
}

/// Writes all bytes; false if the run was over before.
fn write(connection: &mut TcpStream, mut bytes: &[u8], shared: &Shared) -> io::Result<bool> {
    while !bytes.is_empty() {
        if shared.stopped() {
            return Ok(false);
        }
        match connection.write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) if shared.stopped() => return Ok(false),
            Err(error) if waiting(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Fills the buffer; false if the run was over before.
fn read(connection: &mut TcpStream, mut buffer: &mut [u8], shared: &Shared) -> io::Result<bool> {
    while !buffer.is_empty() {
        match connection.read(buffer) {
            Ok(0) if shared.stopped() => return Ok(false),
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other end closed the connection")),
            Ok(count) => buffer = buffer.get_mut(count..).unwrap_or_default(),
            Err(_) if shared.stopped() => return Ok(false),
            Err(error) if waiting(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
