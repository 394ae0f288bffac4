//! What receivers here have asked for. A request goes with the path that it is for; when that comes
//! again it is asked for again, so that it lasts until it is given up.

use std::collections::{BTreeMap, BTreeSet};

use altq_reserve::MOST_FLOWS;
use altq_rsvp::wire::{Sender, Session, Style, Tspec};

/// A request: in which style, for which senders, and how much.
pub type Wish = (Style, Vec<Sender>, Tspec);

/// The requests of all sessions.
#[derive(Debug, Default)]
pub struct Receivers {
    wishes: BTreeMap<Session, Vec<Wish>>,
    /// Sessions of which a path is new, or has changed, since they were asked for last.
    heard: BTreeSet<Session>,
}

impl Receivers {
    /// Keeps a request that was made. In FF it takes the place of those for the same senders, in SE
    /// that of all of its session; and one of another style that of all as well.
    pub fn keep(&mut self, session: Session, (style, mut senders, tspec): Wish) {
        senders.sort_unstable();
        senders.dedup();
        let there = self.wishes.entry(session).or_default();
        there.retain(|(of, _, _)| *of == style && style == Style::Fixed);
        let groups: Vec<Vec<Sender>> = match style {
            Style::Fixed => senders.into_iter().map(|sender| vec![sender]).collect(),
            _ => vec![senders],
        };
        for senders in groups {
            there.retain(|(_, of, _)| *of != senders);
            there.push((style, senders, tspec));
        }
        // No session has more senders, so the oldest ones are for senders that have gone.
        let more = there.len().saturating_sub(MOST_FLOWS);
        there.drain(..more);
    }

    /// Forgets all requests of a session. False if there was none.
    pub fn forget(&mut self, session: &Session) -> bool {
        self.heard.remove(session);
        self.wishes.remove(session).is_some()
    }

    /// Whether one more session is within a limit, or this one is there.
    pub fn has_room(&self, session: &Session, most: usize) -> bool {
        self.wishes.len() < most || self.wishes.contains_key(session)
    }

    /// Takes notice that a path of a session is new, or has changed.
    pub fn hear(&mut self, session: Session) {
        if self.wishes.contains_key(&session) {
            self.heard.insert(session);
        }
    }

    /// What is to be asked for again. Each is returned once.
    pub fn again(&mut self) -> Vec<(Session, Wish)> {
        let heard = std::mem::take(&mut self.heard);
        let of = |session: Session| {
            let wishes = self.wishes.get(&session).into_iter().flatten();
            wishes.map(move |wish| (session, wish.clone()))
        };
        heard.into_iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Session =
        Session { address: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 2, 2)), protocol: 17, port: 5004 };

    fn sender(port: u16) -> Sender {
        Sender::new([10, 0, 1, 1].into(), port)
    }

    fn tspec(rate: f32) -> Tspec {
        Tspec { rate, burst: 1e4, peak: f32::INFINITY, min_unit: 64, max_packet: 1500 }
    }

    /// Senders' ports and rates of what is asked for again.
    fn again(receivers: &mut Receivers) -> Vec<(Vec<u16>, f32)> {
        receivers.hear(SESSION);
        let ports = |senders: &[Sender]| senders.iter().filter_map(Sender::port).collect::<Vec<u16>>();
        receivers.again().iter().map(|(_, (_, senders, tspec))| (ports(senders), tspec.rate)).collect()
    }

    #[test]
    fn a_request_is_made_again_until_it_is_given_up() {
        let mut receivers = Receivers::default();
        assert!(again(&mut receivers).is_empty());
        receivers.keep(SESSION, (Style::Fixed, vec![sender(2), sender(1)], tspec(1e3)));
        receivers.keep(SESSION, (Style::Fixed, vec![sender(2)], tspec(2e3)));
        assert_eq!(again(&mut receivers), [(vec![1], 1e3), (vec![2], 2e3)]);
        assert!(receivers.again().is_empty(), "once for each time that a path is heard");
        // Senders that share a reservation: one request, and no other style beside it.
        receivers.keep(SESSION, (Style::Shared, vec![sender(2), sender(1)], tspec(3e3)));
        assert_eq!(again(&mut receivers), [(vec![1, 2], 3e3)]);
        receivers.keep(SESSION, (Style::Shared, vec![sender(4)], tspec(4e3)));
        assert_eq!(again(&mut receivers), [(vec![4], 4e3)]);
        assert!(receivers.has_room(&SESSION, 1) && !receivers.has_room(&Session { port: 1, ..SESSION }, 1));
        receivers.hear(SESSION);
        assert!(receivers.forget(&SESSION) && !receivers.forget(&SESSION));
        assert!(receivers.again().is_empty());
    }

    #[test]
    fn senders_that_come_and_go_are_forgotten_in_the_end() {
        let mut receivers = Receivers::default();
        for port in 1..=1000 {
            receivers.keep(SESSION, (Style::Fixed, vec![sender(port)], tspec(1e3)));
        }
        let left = again(&mut receivers);
        assert_eq!((left.len(), left.first().map(|(ports, _)| ports[0])), (64, Some(937)));
    }
}
