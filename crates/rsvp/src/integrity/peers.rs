//! What is known of each neighbour's sequence numbers, and the handshake by which a node that has
//! just started learns them (RFC 2747 4.3).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::digest::{IntegrityError, Signature};
use super::window::Window;
use crate::wire::Challenge;

/// The most neighbours, each counted up to twice for each key, whose numbers are kept. Only holders
/// of a key can make an entry.
const MOST: usize = 4096;

/// A challenge is repeated no sooner than this, in nanoseconds. RFC 2747 4.3 asks for a limit.
const AGAIN: u64 = 1_000_000_000;

#[derive(Debug, Clone)]
enum Peer {
    /// A challenge was sent at this time, with this cookie.
    Challenged(u64, [u8; 8]),
    /// The numbers are known.
    Known(Window),
}

/// What follows from an authentic message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Accept,
    /// It is not taken, and this challenge goes to its sender.
    Challenge(Challenge),
    /// It is not taken.
    Refuse(IntegrityError),
}

/// The neighbours, by address, key, and whether the message names its hop. What names none
/// (PathErr, ResvConf) is known by its source address alone, which no digest covers: a neighbour's
/// message could be brought here under another one's address, and its number must not shut out what
/// that one sends of state.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    known: BTreeMap<(IpAddr, u64, bool), Peer>,
}

impl Peers {
    /// Judges a message whose digest is right, from this neighbour, which it names itself (true) or
    /// which is its source address (false). With `handshake` a neighbour that was never heard is
    /// challenged first; without it its first number is believed, which lets a recorded message in
    /// once after a restart (RFC 2747 4.2). `cookie` is a number that was never used before.
    pub fn judge(
        &mut self,
        now: u64,
        (peer, is_named): (IpAddr, bool),
        signature: &Signature,
        handshake: bool,
        cookie: u64,
    ) -> Verdict {
        let key_id = signature.key_id;
        let full = self.known.len() >= MOST;
        let place = (peer, key_id, is_named);
        match self.known.get_mut(&place) {
            Some(Peer::Known(window)) => {
                if window.take(signature.sequence) {
                    Verdict::Accept
                } else {
                    Verdict::Refuse(IntegrityError::Replayed)
                }
            }
            Some(Peer::Challenged(at, sent)) => {
                if now.saturating_sub(*at) < AGAIN {
                    return Verdict::Refuse(IntegrityError::Handshake);
                }
                // The same cookie again: an answer to either challenge proves the same.
                *at = now;
                Verdict::Challenge(Challenge { key_id, cookie: sent.to_vec() })
            }
            None if full => Verdict::Refuse(IntegrityError::Handshake),
            None if handshake => {
                let cookie = cookie.to_be_bytes();
                self.known.insert(place, Peer::Challenged(now, cookie));
                Verdict::Challenge(Challenge { key_id, cookie: cookie.to_vec() })
            }
            None => {
                self.known.insert(place, Peer::Known(Window::starting_at(signature.sequence)));
                Verdict::Accept
            }
        }
    }

    /// Takes the answer to a challenge, whose digest is right. Its number becomes the first one
    /// known, if the cookie is the one that was sent.
    pub fn answered(&mut self, peer: IpAddr, signature: &Signature, answer: &Challenge) -> bool {
        let is_asked = |known: &Peer| matches!(known, Peer::Challenged(_, cookie) if cookie[..] == answer.cookie[..]);
        for is_named in [true, false] {
            let place = (peer, signature.key_id, is_named);
            if answer.key_id == signature.key_id && self.known.get(&place).is_some_and(is_asked) {
                self.known.insert(place, Peer::Known(Window::starting_at(signature.sequence)));
                return true;
            }
        }
        false
    }

    /// Whether a challenge is one of this node's own that waits for its answer. It must not be
    /// answered here: both ends of a link share the key, so the answer could be sent back to this
    /// node as the neighbour's.
    pub fn waits_for(&self, challenge: &Challenge) -> bool {
        let is_it = |peer: &Peer| matches!(peer, Peer::Challenged(_, sent) if sent[..] == challenge.cookie[..]);
        self.known.values().any(is_it)
    }
}
