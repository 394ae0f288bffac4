//! UDP by the simulator's own sources, numbered and stamped: loss, order and one-way delay.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use altq_simulator::sim::{Endpoint, Outbox};
use anyhow::Context;

use super::bulk::waiting;
use super::{Datagrams, Shared};
use crate::lab::{clock, socket};

/// Bytes of a datagram's number, at its head, big-endian.
const NUMBER: usize = 4;

/// Bytes of the time at which it was sent (ns since the start of the run, big-endian), behind the number. Datagrams too small for
/// either go without.
const STAMP: usize = 8;

/// Sends in the flow's spans what the source says, when it says so. A sender that is late sends at once what has become due, and
/// notes how late it was.
pub fn send(from: SocketAddr, to: SocketAddr, dscp: u8, datagrams: &Datagrams, shared: &Shared) -> anyhow::Result<()> {
    let socket = socket::udp(from, dscp)?;
    socket.connect(to).with_context(|| format!("no way from {from} to {to}"))?;
    clock::precise();
    let headers = if to.is_ipv4() { 28 } else { 48 };
    let mut payload = vec![0x55; usize::from(u16::MAX)];
    let mut lateness = clock::Lateness::default();
    let mut number = 0u64;
    let mut source = datagrams.source();
    let mut changes = datagrams.rates.iter().peekable();
    let result = shared.in_spans(|begin, end| {
        // The source lives in the run's time, and hears nothing of what was late here.
        let mut due = shared.since_start(begin);
        let mut out = Outbox::default();
        loop {
            let moment = shared.epoch + Duration::from_nanos(due);
            if moment >= end || !clock::sleep_unless(&shared.stop, moment) {
                source.stop();
                return Ok(());
            }
            while let Some((_, rate)) = changes.next_if(|(at, _)| *at <= due) {
                source.set_rate(*rate);
            }
            source.wake(due, &mut out);
            for (size, _) in out.packets.drain(..) {
                let now = Instant::now();
                lateness.note(moment, now);
                let bytes = (size as usize).saturating_sub(headers).min(payload.len());
                let stamp = shared.since_start(now).to_be_bytes();
                payload[..NUMBER].copy_from_slice(&(number as u32).to_be_bytes());
                payload[NUMBER..NUMBER + STAMP].copy_from_slice(&stamp);
                if !put(&socket, &payload[..bytes], shared)? {
                    return Ok(());
                }
                number += 1;
                shared.meter.sent.store(number, Ordering::Relaxed);
            }
            match out.wake.take() {
                Some(next) => due = next,
                None => return Ok(()),
            }
        }
    });
    *shared.meter.lateness.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = lateness;
    result
}

/// Sends one datagram; false when the run is over.
fn put(socket: &UdpSocket, payload: &[u8], shared: &Shared) -> anyhow::Result<bool> {
    loop {
        match socket.send(payload) {
            Ok(_) => return Ok(true),
            // Nobody may be listening any more once the run is over.
            Err(_) if shared.stopped() => return Ok(false),
            Err(error) if waiting(&error) => {}
            Err(error) => return Err(error).context("sending"),
        }
    }
}

/// Counts datagrams until the run is over.
pub fn receive(socket: &UdpSocket, shared: &Shared) -> anyhow::Result<()> {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut samples = Vec::new();
    let mut highest: Option<u32> = None;
    while !shared.stopped() {
        let bytes = match socket.recv(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if waiting(&error) => continue,
            Err(error) => return Err(error).context("receiving"),
        };
        let now = shared.since_start(Instant::now());
        shared.meter.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        shared.meter.received.fetch_add(1, Ordering::Relaxed);
        let Some((number, rest)) = buffer[..bytes].split_first_chunk::<NUMBER>() else { continue };
        let number = u32::from_be_bytes(*number);
        // Numbers go round: what is less than half of the way ahead is later.
        match highest {
            Some(highest) if number.wrapping_sub(highest) > u32::MAX / 2 => {
                shared.meter.reordered.fetch_add(1, Ordering::Relaxed);
            }
            _ => highest = Some(number),
        }
        if let Some((stamp, _)) = rest.split_first_chunk::<STAMP>() {
            samples.push((now, now.saturating_sub(u64::from_be_bytes(*stamp))));
        }
    }
    shared.meter.add_samples(&samples);
    Ok(())
}
