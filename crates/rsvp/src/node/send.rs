//! How messages leave: source, destination, TTL, router alert and signature (RFC 2205 3.3, RFC 2747
//! 4.1).

use std::net::IpAddr;

use super::Node;
use super::counters::Refusal;
use super::event::{Output, Transmit};
use crate::integrity;
use crate::wire::{Message, Sender, Session, encode, set_checksum};

/// The TTL of messages that this node sends by itself.
pub(super) const TTL: u8 = 64;

/// The IP header and the interface of a message.
struct Envelope {
    interface: u32,
    source: IpAddr,
    destination: IpAddr,
    ttl: u8,
    router_alert: bool,
}

impl Node {
    /// Sends a message to a neighbour, from this node's address on that interface.
    pub(super) fn send(&mut self, interface: u32, neighbour: IpAddr, message: &Message) {
        match encode(message, TTL) {
            Ok(bytes) => self.send_bytes(interface, neighbour, bytes),
            Err(_) => self.counters.refuse(Refusal::Limit),
        }
    }

    /// Sends the bytes of a message to a neighbour. Over IPv6 every message has the router alert
    /// option (RFC 2711), over IPv4 those that go to a neighbour have not (RFC 2205 3.3).
    pub(super) fn send_bytes(&mut self, interface: u32, neighbour: IpAddr, message: Vec<u8>) {
        if let Some(envelope) = self.envelope(interface, neighbour) {
            self.post(envelope, message, true);
        }
    }

    /// The same without a signature.
    pub(super) fn send_unsigned(&mut self, interface: u32, neighbour: IpAddr, message: &Message) {
        if let (Some(envelope), Ok(bytes)) = (self.envelope(interface, neighbour), encode(message, TTL)) {
            self.post(envelope, bytes, false);
        }
    }

    fn envelope(&self, interface: u32, destination: IpAddr) -> Option<Envelope> {
        let source = self.config.interface(interface)?.own(destination)?;
        Some(Envelope { interface, source, destination, ttl: TTL, router_alert: destination.is_ipv6() })
    }

    /// Sends a Path or PathTear: from the sender to the session, with router alert.
    pub(super) fn send_downstream(
        &mut self,
        interface: u32,
        session: &Session,
        sender: &Sender,
        ttl: u8,
        message: &Message,
    ) {
        let (source, destination) = (sender.address, session.address);
        match encode(message, ttl) {
            Ok(bytes) => self.post(Envelope { interface, source, destination, ttl, router_alert: true }, bytes, true),
            Err(_) => self.counters.refuse(Refusal::Limit),
        }
    }

    /// Sends a ResvConf to the receiver that asked, with router alert.
    pub(super) fn send_confirmation(&mut self, interface: u32, receiver: IpAddr, ttl: u8, message: &Message) {
        let Some(mut envelope) = self.envelope(interface, receiver) else {
            return;
        };
        envelope.ttl = ttl;
        envelope.router_alert = true;
        match encode(message, ttl) {
            Ok(bytes) => self.post(envelope, bytes, true),
            Err(_) => self.counters.refuse(Refusal::Limit),
        }
    }

    fn post(&mut self, envelope: Envelope, message: Vec<u8>, signed: bool) {
        let key = self.config.interface(envelope.interface).and_then(|interface| interface.sign.as_ref());
        let message = match key {
            Some(key) if signed => {
                let signed = self.sequence.take().and_then(|number| integrity::sign(&message, key, number));
                let Some(signed) = signed else {
                    // All numbers of the key are used, or the message is too long with it.
                    self.counters.refuse(Refusal::Limit);
                    return;
                };
                signed
            }
            _ => {
                let mut message = message;
                set_checksum(&mut message);
                message
            }
        };
        self.counters.send(message.get(1).copied().unwrap_or(0));
        let Envelope { interface, source, destination, ttl, router_alert } = envelope;
        self.out.push_back(Output::Send(Transmit { interface, source, destination, ttl, router_alert, message }));
    }
}
