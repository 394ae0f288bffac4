//! Requests and responses over TCP: the round trip as an application sees it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context;

use super::Shared;
use super::bulk::waiting;
use crate::lab::socket::{self, Tuning};

/// Asks again and again in the flow's spans.
pub fn ask(
    from: SocketAddr,
    to: SocketAddr,
    request: usize,
    response: usize,
    tuning: &Tuning,
    shared: &Shared,
) -> anyhow::Result<()> {
    let question = vec![0x51; request];
    let mut answer = vec![0; response];
    let mut samples = Vec::new();
    let result = shared.in_spans(|_, end| {
        let mut stream = match socket::connect_tcp(from, to, tuning) {
            Ok(stream) => stream,
            Err(_) if shared.stopped() => return Ok(()),
            Err(error) => return Err(error),
        };
        while !shared.over(end) {
            let asked = Instant::now();
            if !write(&mut stream, &question, shared).context("sending a request")?
                || !read(&mut stream, &mut answer, shared).context("waiting for a response")?
            {
                break;
            }
            let answered = Instant::now();
            samples.push((shared.since_start(answered), answered.duration_since(asked).as_nanos() as u64));
            shared.meter.received.fetch_add(1, Ordering::Relaxed);
            shared.meter.received_bytes.fetch_add(request as u64, Ordering::Relaxed);
        }
        Ok(())
    });
    shared.meter.add_samples(&samples);
    result
}

/// Answers until the run is over.
pub fn answer(listener: &TcpListener, request: usize, response: usize, tuning: &Tuning, shared: &Shared) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        while !shared.stopped() {
            match listener.accept() {
                Ok((stream, _)) => {
                    let mut stream = socket::accepted(stream, tuning)?;
                    scope.spawn(move || {
                        let mut question = vec![0; request];
                        let answer = vec![0x41; response];
                        // Whatever ends the connection is the asking side's to report.
                        while matches!(read(&mut stream, &mut question, shared), Ok(true))
                            && matches!(write(&mut stream, &answer, shared), Ok(true))
                        {}
                    });
                }
                Err(error) if waiting(&error) => {}
                Err(error) => return Err(error).context("accepting a connection"),
            }
        }
        Ok(())
    })
}

/// Writes all of it; false when the run was over before.
fn write(stream: &mut TcpStream, mut bytes: &[u8], shared: &Shared) -> anyhow::Result<bool> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) if shared.stopped() => return Ok(false),
            Err(error) if waiting(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Fills the buffer; false when the run was over before.
fn read(stream: &mut TcpStream, mut buffer: &mut [u8], shared: &Shared) -> anyhow::Result<bool> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => anyhow::bail!("the other end closed the connection"),
            Ok(count) => buffer = buffer.get_mut(count..).unwrap_or_default(),
            Err(_) if shared.stopped() => return Ok(false),
            Err(error) if waiting(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
