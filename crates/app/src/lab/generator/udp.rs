//! UDP at a constant rate, numbered and stamped: loss, order and one-way delay.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::bulk::waiting;
use super::{Shared, Timetable};
use crate::lab::{clock, socket};

/// Bytes at the head of every datagram: its number and when it was sent (ns since the start of the run), both big-endian.
pub const HEADER: usize = 16;

/// Sends by the timetable in the flow's spans. A sender that is late sends at once what has become due, and notes how late it was.
pub fn send(from: SocketAddr, to: SocketAddr, dscp: u8, timetable: &Timetable, shared: &Shared) -> anyhow::Result<()> {
    let socket = socket::udp(from, dscp)?;
    socket.connect(to).with_context(|| format!("no way from {from} to {to}"))?;
    clock::precise();
    let headers = if to.is_ipv4() { 28 } else { 48 };
    let mut datagram = vec![0x55; usize::from(u16::MAX)];
    let mut lateness = clock::Lateness::default();
    let mut number = 0u64;
    let mut departures = timetable.start();
    let result = shared.in_spans(|begin, end| {
        departures.span();
        loop {
            let (after, size) = departures.next();
            let due = begin + Duration::from_nanos(after);
            if due >= end || !clock::sleep_unless(&shared.stop, due) {
                return Ok(());
            }
            let now = Instant::now();
            lateness.note(due, now);
            // Datagrams without room for number and stamp are padded: the checker of cases refuses such sizes.
            let payload = (size as usize).saturating_sub(headers).clamp(HEADER, datagram.len());
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            datagram[8..HEADER].copy_from_slice(&shared.since_start(now).to_be_bytes());
            loop {
                match socket.send(&datagram[..payload]) {
                    Ok(_) => break,
                    // Nobody may be listening any more once the run is over.
                    Err(_) if shared.stopped() => return Ok(()),
                    Err(error) if waiting(&error) => {}
                    Err(error) => return Err(error).context("sending"),
                }
            }
            number += 1;
            shared.meter.sent.store(number, Ordering::Relaxed);
        }
    });
    *shared.meter.lateness.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = lateness;
    result
}

/// Counts datagrams until the run is over.
pub fn receive(socket: &UdpSocket, shared: &Shared) -> anyhow::Result<()> {
    let mut buffer = vec![0; 65_536];
    let mut samples = Vec::new();
    let mut highest = None;
    while !shared.stopped() {
        let bytes = match socket.recv(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if waiting(&error) => continue,
            Err(error) => return Err(error).context("receiving"),
        };
        let now = shared.since_start(Instant::now());
        let Some((number, sent)) = header(&buffer[..bytes]) else { continue };
        shared.meter.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        shared.meter.received.fetch_add(1, Ordering::Relaxed);
        samples.push((now, now.saturating_sub(sent)));
        if highest.is_some_and(|highest| number < highest) {
            shared.meter.reordered.fetch_add(1, Ordering::Relaxed);
        }
        highest = highest.max(Some(number));
    }
    shared.meter.add_samples(&samples);
    Ok(())
}

fn header(datagram: &[u8]) -> Option<(u64, u64)> {
    let (number, rest) = datagram.split_first_chunk::<8>()?;
    let (sent, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(*sent)))
}
