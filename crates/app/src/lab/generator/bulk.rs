//! Bulk TCP: as much as the connection takes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use anyhow::Context;

use super::Shared;
use crate::lab::socket::{self, Tuning};

/// Bytes of one write or read: enough for a full super-packet and the next.
const CHUNK: usize = 128 << 10;

/// Sends in the flow's spans, over a new connection in each.
pub fn send(from: SocketAddr, to: SocketAddr, tuning: &Tuning, shared: &Shared) -> anyhow::Result<()> {
    let chunk = vec![0x5a; CHUNK];
    shared.in_spans(|_, end| {
        let mut stream = match socket::connect_tcp(from, to, tuning) {
            Ok(stream) => stream,
            // The run was shorter than the handshake.
            Err(_) if shared.stopped() => return Ok(()),
            Err(error) => return Err(error),
        };
        while !shared.over(end) {
            match stream.write(&chunk) {
                Ok(_) => {}
                Err(error) if waiting(&error) => {}
                // At the end of the run the receiver may be the first to go.
                Err(_) if shared.over(end) => return Ok(()),
                Err(error) => return Err(error).context("sending"),
            }
        }
        // What was sent by then is delivered, as any program's would be, before the next span or the end of the run.
        let _ = stream.shutdown(Shutdown::Write);
        let mut end = [0; 1];
        while !shared.stopped() {
            match stream.read(&mut end) {
                Err(error) if waiting(&error) => {}
                _ => break,
            }
        }
        Ok(())
    })
}

/// Takes connections and counts what they bring until the run is over.
pub fn receive(listener: &TcpListener, tuning: &Tuning, shared: &Shared) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        while !shared.stopped() {
            match listener.accept() {
                Ok((stream, _)) => {
                    let stream = socket::accepted(stream, tuning)?;
                    scope.spawn(|| count(stream, shared));
                }
                Err(error) if waiting(&error) => {}
                Err(error) => return Err(error).context("accepting a connection"),
            }
        }
        Ok(())
    })
}

fn count(mut stream: TcpStream, shared: &Shared) {
    let mut buffer = vec![0; CHUNK];
    while !shared.stopped() {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => {
                shared.meter.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(error) if waiting(&error) => {}
            // The sender's reset at the end of the run.
            Err(_) => return,
        }
    }
}

/// True when the call only ran into its time limit.
pub fn waiting(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
