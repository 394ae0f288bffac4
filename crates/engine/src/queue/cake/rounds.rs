//! A calendar of the coming rounds: each flow is in the round in which it may send again.

use super::super::flows::{ByBytes, Chain, Flows};
use super::State;

/// Rounds in the calendar. A flow that needs more rounds waits in the last one, and is moved again
/// when that is served.
const SPAN: u64 = 256;

pub struct Rounds {
    /// The round that is served.
    now: u64,
    rounds: Box<[Chain; SPAN as usize]>,
    /// A bit for each round that has flows.
    occupied: [u64; SPAN as usize / 64],
}

impl Rounds {
    /// The most rounds by which a flow is moved at once.
    pub const MOST: u64 = SPAN - 1;

    pub fn new() -> Rounds {
        Rounds { now: 0, rounds: Box::new([Chain::NEW; SPAN as usize]), occupied: [0; SPAN as usize / 64] }
    }

    /// Puts a flow at the end of a round, `after` rounds behind the present one.
    pub fn append(&mut self, flows: &mut Flows<State, ByBytes>, at: u32, after: u64) {
        let round = ((self.now + after) % SPAN) as usize;
        flows.append(&mut self.rounds[round], at);
        self.occupied[round / 64] |= 1 << (round % 64);
    }

    /// The first flow of the present round or, if that is over, of the next round that has flows.
    #[inline]
    pub fn first(&mut self) -> Option<u32> {
        self.present().first().or_else(|| self.next_round())
    }

    /// The first flow of the next round that has flows, which is the present one from now on.
    #[inline(never)]
    fn next_round(&mut self) -> Option<u32> {
        let round = (self.now % SPAN) as usize;
        // First the rest of this word of bits, then the other words, last the beginning of this
        // one.
        let (word, bit) = (round / 64, round % 64);
        let ahead = self.occupied[word] & !0 << bit;
        let words = self.occupied.len();
        let next = match ahead {
            0 => (1..=words)
                .map(|n| (word + n) % words)
                .find(|word| self.occupied[*word] != 0)
                .map(|word| (word, self.occupied[word]))?,
            ahead => (word, ahead),
        };
        let next = next.0 * 64 + next.1.trailing_zeros() as usize;
        self.now += (next as u64 + SPAN - round as u64) % SPAN;
        self.rounds[next].first()
    }

    /// Takes the flow that [`first`](Rounds::first) named out of its round.
    pub fn shift(&mut self, flows: &mut Flows<State, ByBytes>) {
        let round = (self.now % SPAN) as usize;
        flows.shift(&mut self.rounds[round]);
        if self.rounds[round].is_empty() {
            self.occupied[round / 64] &= !(1 << (round % 64));
        }
    }

    /// The present round.
    #[inline]
    pub fn present(&self) -> &Chain {
        &self.rounds[(self.now % SPAN) as usize]
    }

    pub fn memory(&self) -> usize {
        self.rounds.len() * size_of::<Chain>()
    }
}
