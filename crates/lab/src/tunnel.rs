//! Wraps an edge with both ends of an IPv6-in-IPv4 tunnel: IPv6 packets that come in get an IPv4
//! header, and lose it when they are sent.
//!
//! In between the loop sees the outer packets (protocol 41, RFC 4213 3.5), as a link between the
//! tunnel's ends would: rules, queues and charge are about them. No tunnel device of the kernel is
//! needed.

use std::net::{Ipv4Addr, Ipv6Addr};

use altq_dataplane::Error;
use altq_dataplane::checksum::Sum;
use altq_dataplane::edge::{Edge, EdgeCounters, Sent, Want, Woken};
use altq_dataplane::pool::Pool;
use altq_dataplane::remark::remark;
use altq_dataplane::segment::{self, Part, Super};
use altq_engine::headers::{Encapsulation, IPV4, IPV6};
use altq_engine::units::Nanos;

/// Bytes that the tunnel adds to a packet: an IPv4 header without options.
pub const HEADER: usize = 20;
/// Protocol number of IPv6 in IPv4 (RFC 4213 3.5).
const IPV6_IN_IPV4: u8 = 41;
/// TTL of the outer header. It counts IPv4 routers; for IPv6 the tunnel is one hop (RFC 4213 3.3).
const TTL: u8 = 64;
/// Bytes of an IPv6 header.
const V6: usize = 40;
/// ECN codepoint "congestion experienced" (RFC 3168 5).
const CE: u8 = 3;

/// Computes the outer source and destination from the inner ones.
pub type Ends = Box<dyn Fn(Ipv6Addr, Ipv6Addr) -> [Ipv4Addr; 2] + Send>;

/// A tunnel.
pub struct Tunnel {
    /// Returns the addresses of the tunnel's ends for a packet.
    pub ends: Ends,
    /// The largest outer packet, in bytes. The MTU for IPv6 is 20 bytes less and static (RFC 4213
    /// 3.2.1).
    pub mtu: u32,
}

/// An edge whose loop is inside a tunnel.
pub struct Tunnelled<E> {
    edge: E,
    tunnel: Option<Tunnel>,
    /// Identification field of the next outer header.
    id: u16,
    parts: Vec<Part>,
    /// Received frames that are not encapsulated yet; a field only to reuse its memory.
    came: Vec<u32>,
    counters: EdgeCounters,
}

/// What happened to a frame that had to be encapsulated.
enum Fate {
    Goes,
    TooLarge,
    Unreadable,
}

impl<E: Edge> Tunnelled<E> {
    /// `None`: frames pass unchanged.
    pub fn new(edge: E, tunnel: Option<Tunnel>) -> Tunnelled<E> {
        Tunnelled { edge, tunnel, id: 0, parts: Vec::new(), came: Vec::new(), counters: EdgeCounters::default() }
    }

    /// Encapsulates the frames that came in, and adds them to `out`.
    fn enter(&mut self, pool: &mut Pool, out: &mut Vec<u32>) {
        for at in 0..self.came.len() {
            let handle = self.came[at];
            // The tunnel carries single packets, so super-packets are segmented first.
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

/// Encapsulates an IPv6 frame; any other stays as it is.
fn encapsulate(pool: &mut Pool, handle: u32, tunnel: &Tunnel, id: &mut u16) -> Fate {
    let head = pool.head(handle);
    let Some(at) = layer3(head, IPV6) else { return Fate::Goes };
    let Some(inner) = head.get(at..).and_then(|rest| rest.first_chunk::<V6>()) else { return Fate::Unreadable };
    let len = V6 + usize::from(u16::from_be_bytes([inner[4], inner[5]]));
    // Padding may make an Ethernet frame longer than its packet, never shorter.
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
    set_ethertype(pool, handle, at, IPV4);
    pool.set_tunnelled(handle, true);
    Fate::Goes
}

fn address(inner: &[u8; V6], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&inner[at..at + 16]);
    Ipv6Addr::from(octets)
}

/// The outer header (RFC 4213 3.5). DSCP and ECN are copied from the inner header (RFC 2983 3.1,
/// uniform model; RFC 6040 4.1, normal mode). Don't Fragment is not set, as the MTU is static
/// (3.2.1).
fn header(octet: u8, total: u16, id: u16, src: Ipv4Addr, dst: Ipv4Addr) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (0x45, octet);
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    (header[8], header[9]) = (TTL, IPV6_IN_IPV4);
    header[12..16].copy_from_slice(&src.octets());
    header[16..20].copy_from_slice(&dst.octets());
    let sum = Sum::default().add(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Decapsulates a frame, if it was encapsulated here. DSCP and ECN that were set in the outer
/// header meanwhile are copied to the inner one. False if the frame must be dropped.
fn decapsulate(pool: &mut Pool, handle: u32) -> bool {
    if !pool.tunnelled(handle) {
        return true;
    }
    let head = pool.head(handle);
    let Some(at) = layer3(head, IPV4) else { return false };
    let (Some(outer), Some(inner)) = (head.get(at + 1).copied(), head.get(at + HEADER..at + HEADER + 2)) else {
        return false;
    };
    let Some(ecn) = outgoing((inner[1] >> 4) & 3, outer & 3) else { return false };
    if !pool.remove(handle, at, HEADER) {
        return false;
    }
    pool.set_tunnelled(handle, false);
    set_ethertype(pool, handle, at, IPV6);
    remark(pool.head_mut(handle), outer >> 2, ecn);
    true
}

/// The ECN field after decapsulation, from the inner and the outer one (RFC 6040 4.2, figure 4).
/// `None`: the packet is dropped, because it was marked but its connection does not use ECN and
/// would not see the mark.
fn outgoing(inner: u8, outer: u8) -> Option<u8> {
    match (inner, outer) {
        (0, CE) => None,
        (0, _) => Some(0),
        (CE, _) | (_, CE) => Some(CE),
        // ECT(1) in the outer header may be a mark too (PCN), so it is kept.
        (_, 1) => Some(1),
        _ => Some(inner),
    }
}

/// Offset of layer 3 if that has this ethertype and stands right behind it. What is in a PPPoE
/// session or behind MPLS labels does not go through the tunnel.
fn layer3(head: &[u8], ethertype: u16) -> Option<usize> {
    let way = Encapsulation::read(head);
    (way.ethertype == ethertype && way.is_direct()).then_some(way.layer3)
}

/// Sets the EtherType that stands before byte `at`.
fn set_ethertype(pool: &mut Pool, handle: u32, at: usize, kind: u16) {
    if let Some(field) = pool.head_mut(handle).get_mut(at - 2..at) {
        field.copy_from_slice(&kind.to_be_bytes());
    }
}

impl<E: Edge> Tunnelled<E> {
    /// Decapsulates frames and sends them. `ends`: when the last bits of frames leave, if that is
    /// known.
    fn give(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error> {
        let mut done = 0;
        while let Some(rest) = frames.get(done..).filter(|rest| !rest.is_empty()) {
            // A frame that the edge did not take last time is decapsulated already.
            let run = rest.iter().take_while(|handle| decapsulate(pool, **handle)).count();
            let sent = self.edge.send(pool, &rest[..run], ends.get(done..done + run).unwrap_or_default())?;
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

    fn seen_late(&self) -> Nanos {
        self.edge.seen_late()
    }

    fn pool(&mut self, heads: usize, bodies: usize) -> Pool {
        self.edge.pool(heads, bodies)
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        if self.tunnel.is_none() {
            return self.edge.receive(pool, out);
        }
        let had_room = self.edge.receive(pool, &mut self.came);
        self.enter(pool, out);
        had_room
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error> {
        if self.tunnel.is_none() {
            return self.edge.send(pool, frames, ends);
        }
        self.give(pool, frames, ends)
    }

    fn segments(&self, whole: &Super) -> bool {
        self.edge.segments(whole)
    }

    fn refuse(&mut self, handle: u32) {
        self.edge.refuse(handle);
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
