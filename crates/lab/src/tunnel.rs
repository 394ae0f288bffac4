//! An edge with a tunnel between its sides: IPv6 packets that come in get a header of IPv4 before
//! them, and lose it on their way out.
//!
//! Between the two the loop sees what a link between the tunnel's ends carries: its rules, its
//! queues and its charge are about the outer packet (protocol 41, RFC 4213 3.5). Both ends are
//! here, so that neither needs a device of the kernel.

use std::net::{Ipv4Addr, Ipv6Addr};

use altq_dataplane::Error;
use altq_dataplane::checksum::Sum;
use altq_dataplane::edge::{Edge, EdgeCounters, Sent, Want, Woken};
use altq_dataplane::pool::Pool;
use altq_dataplane::remark::remark;
use altq_dataplane::segment::{self, Part, Super};
use altq_engine::units::Nanos;

/// Bytes of a header of IPv4 without options, all that a tunnel adds.
pub const HEADER: usize = 20;
/// IPv6 in IPv4 (RFC 4213 3.5).
const IPV6: u8 = 41;
/// Of the packets in the tunnel. It counts IPv4 routers; for IPv6 the tunnel is one hop (RFC 4213
/// 3.3).
const TTL: u8 = 64;
/// A header of IPv6.
const V6: usize = 40;
/// Congestion experienced (RFC 3168).
const CE: u8 = 3;

/// Addresses of the tunnel's ends, source and destination, for a packet between two of IPv6.
pub type Ends = Box<dyn Fn(Ipv6Addr, Ipv6Addr) -> [Ipv4Addr; 2] + Send>;

/// A tunnel.
pub struct Tunnel {
    /// Its ends.
    pub ends: Ends,
    /// The largest packet of IPv4 in it, in bytes: what is 20 less is the MTU for IPv6, a static
    /// one (RFC 4213 3.2.1).
    pub mtu: u32,
}

/// An edge around which a tunnel is.
pub struct Tunnelled<E> {
    edge: E,
    tunnel: Option<Tunnel>,
    /// Of the next packet in the tunnel.
    id: u16,
    parts: Vec<Part>,
    /// Frames before they are put into the tunnel, kept from call to call.
    came: Vec<u32>,
    counters: EdgeCounters,
}

/// What became of a frame that was to go into the tunnel.
enum Fate {
    Goes,
    TooLarge,
    Unreadable,
}

impl<E: Edge> Tunnelled<E> {
    /// `None`: every call goes through.
    pub fn new(edge: E, tunnel: Option<Tunnel>) -> Tunnelled<E> {
        Tunnelled { edge, tunnel, id: 0, parts: Vec::new(), came: Vec::new(), counters: EdgeCounters::default() }
    }

    /// Puts what came in into the tunnel, and adds it to `out`.
    fn enter(&mut self, pool: &mut Pool, out: &mut Vec<u32>) {
        for at in 0..self.came.len() {
            let handle = self.came[at];
            // The tunnel carries packets, so its end makes of a super-packet what it is on a wire.
            let whole = match Super::read(pool.vnet(handle), pool.head(handle), pool.len(handle)) {
                Some(whole) if whole.v6 => whole,
                _ => {
                    self.put(pool, handle, out);
                    continue;
                }
            };
            let mut parts = std::mem::take(&mut self.parts);
            if segment::cut(pool, handle, &whole, 1, &mut parts) {
                parts.drain(..).for_each(|part| self.put(pool, part.handle, out));
            } else {
                self.counters.missed += 1;
                pool.free(handle);
            }
            self.parts = parts;
        }
        self.came.clear();
    }

    fn put(&mut self, pool: &mut Pool, handle: u32, out: &mut Vec<u32>) {
        let Some(tunnel) = &self.tunnel else { return out.push(handle) };
        match encapsulate(pool, handle, tunnel, &mut self.id) {
            Fate::Goes => return out.push(handle),
            Fate::TooLarge => self.counters.too_large += 1,
            Fate::Unreadable => self.counters.unreadable += 1,
        }
        pool.free(handle);
    }
}

/// Puts a frame of IPv6 into the tunnel; any other stays as it is.
fn encapsulate(pool: &mut Pool, handle: u32, tunnel: &Tunnel, id: &mut u16) -> Fate {
    let head = pool.head(handle);
    let Some((at, 0x86dd)) = segment::network(head) else { return Fate::Goes };
    let Some(inner) = head.get(at..).and_then(|rest| rest.first_chunk::<V6>()) else { return Fate::Unreadable };
    let len = V6 + usize::from(u16::from_be_bytes([inner[4], inner[5]]));
    // Behind it may be what fills up an Ethernet frame, never less than it says.
    if inner[0] >> 4 != 6 || pool.len(handle) - at < len {
        return Fate::Unreadable;
    }
    let total = match u16::try_from(len + HEADER) {
        Ok(total) if u32::from(total) <= tunnel.mtu => total,
        _ => return Fate::TooLarge,
    };
    let [src, dst] = (tunnel.ends)(address(inner, 8), address(inner, 24));
    let octet = inner[0] << 4 | inner[1] >> 4;
    let header = header(octet, total, *id, src, dst);
    if !pool.insert(handle, at, &header) {
        return Fate::Unreadable;
    }
    *id = id.wrapping_add(1);
    set_ethertype(pool, handle, at, 0x0800);
    pool.set_tunnelled(handle, true);
    Fate::Goes
}

fn address(inner: &[u8; V6], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&inner[at..at + 16]);
    Ipv6Addr::from(octets)
}

/// The outer header (RFC 4213 3.5). The octet of DSCP and ECN is the inner one's (RFC 2983 3.1: one
/// model for both; RFC 6040 4.1, normal mode); with a static MTU the packet may be fragmented
/// (3.2.1).
fn header(octet: u8, total: u16, id: u16, src: Ipv4Addr, dst: Ipv4Addr) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (0x45, octet);
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    (header[8], header[9]) = (TTL, IPV6);
    header[12..16].copy_from_slice(&src.octets());
    header[16..20].copy_from_slice(&dst.octets());
    let sum = Sum::default().add(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Takes a frame out of the tunnel if it was put into it here. What was written into the outer
/// header's octet meanwhile comes to the inner one. False where it must be dropped.
fn decapsulate(pool: &mut Pool, handle: u32) -> bool {
    if !pool.tunnelled(handle) {
        return true;
    }
    let head = pool.head(handle);
    let Some((at, 0x0800)) = segment::network(head) else { return false };
    let (Some(outer), Some(inner)) = (head.get(at + 1).copied(), head.get(at + HEADER..at + HEADER + 2)) else {
        return false;
    };
    let Some(ecn) = outgoing((inner[1] >> 4) & 3, outer & 3) else { return false };
    if !pool.remove(handle, at, HEADER) {
        return false;
    }
    pool.set_tunnelled(handle, false);
    set_ethertype(pool, handle, at, 0x86dd);
    remark(pool.head_mut(handle), outer >> 2, ecn);
    true
}

/// The ECN field behind a tunnel, from the inner and the outer one (RFC 6040 4.2, figure 4).
/// `None`: dropped, as the ends of the connection would not know what a mark is.
fn outgoing(inner: u8, outer: u8) -> Option<u8> {
    match (inner, outer) {
        (0, CE) => None,
        (0, _) => Some(0),
        (CE, _) | (_, CE) => Some(CE),
        // A mark of less than CE, as of PCN, is not undone.
        (_, 1) => Some(1),
        _ => Some(inner),
    }
}

/// The type of what begins at `at`.
fn set_ethertype(pool: &mut Pool, handle: u32, at: usize, kind: u16) {
    if let Some(field) = pool.head_mut(handle).get_mut(at - 2..at) {
        field.copy_from_slice(&kind.to_be_bytes());
    }
}

impl<E: Edge> Tunnelled<E> {
    /// Takes frames out of the tunnel and gives them out, where `ends` are told with the ends of
    /// their last bits.
    fn give(&mut self, pool: &mut Pool, frames: &[u32], ends: Option<&[Nanos]>) -> Result<Sent, Error> {
        let mut done = 0;
        while let Some(rest) = frames.get(done..).filter(|rest| !rest.is_empty()) {
            // One that was given before, and not taken, is out of the tunnel already.
            let run = rest.iter().take_while(|handle| decapsulate(pool, **handle)).count();
            let sent = match ends.and_then(|ends| ends.get(done..done + run)) {
                Some(ends) => self.edge.send_at(pool, &rest[..run], ends)?,
                None => self.edge.send(pool, &rest[..run])?,
            };
            done += sent.done;
            if sent.done < run || sent.blocked.is_some() {
                return Ok(Sent { done, blocked: sent.blocked });
            }
            if run < rest.len() {
                self.counters.refused += 1;
                done += 1;
            }
        }
        Ok(Sent { done, blocked: None })
    }
}

impl<E: Edge> Edge for Tunnelled<E> {
    fn now(&mut self) -> Nanos {
        self.edge.now()
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        if self.tunnel.is_none() {
            return self.edge.receive(pool, out);
        }
        let had_room = self.edge.receive(pool, &mut self.came);
        self.enter(pool, out);
        had_room
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32]) -> Result<Sent, Error> {
        if self.tunnel.is_none() {
            return self.edge.send(pool, frames);
        }
        self.give(pool, frames, None)
    }

    fn send_at(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error> {
        if self.tunnel.is_none() {
            return self.edge.send_at(pool, frames, ends);
        }
        self.give(pool, frames, Some(ends))
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        self.edge.wait(deadline, want)
    }

    fn stopped(&mut self) -> bool {
        self.edge.stopped()
    }

    fn counters(&mut self) -> EdgeCounters {
        let mut counters = self.edge.counters();
        counters.missed += self.counters.missed;
        counters.unreadable += self.counters.unreadable;
        counters.refused += self.counters.refused;
        counters.too_large += self.counters.too_large;
        counters
    }
}

#[cfg(test)]
mod tests;
