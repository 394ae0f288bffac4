//! A link's own transmitter: a driver's ring and a wire that are not simply the policy's rate, and
//! a host whose timers fire on ticks.
//!
//! Without one a loop keeps the policy's rate itself ([`Pacer`](crate::pacer::Pacer)), or leaves it
//! to the device that it sends to. A laboratory that stands for another host says here what that
//! host had.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use altq_engine::Packet;
use altq_engine::headers::Key;
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate};

/// A ring and the wire behind it. Ends of packets are known when they are taken.
pub trait Transmitter: Send {
    /// True if the ring has a slot.
    fn has_room(&self) -> bool;

    /// When the packet on the wire ends; `None`: it is idle.
    fn next_end(&self) -> Option<Nanos>;

    /// The packet on the wire has ended.
    fn complete(&mut self);

    /// There was nothing to take.
    fn rest(&mut self);

    /// Takes a packet: when its last bit will have left, and its bytes on the wire. `None`: beyond
    /// what 64 bits of nanoseconds hold.
    fn take(&mut self, now: Nanos, packet: &Packet) -> Option<(Nanos, u32)>;

    /// Another rate, for packets taken from now on.
    fn set_rate(&mut self, rate: Rate);
}

/// What a link has instead of a wire of its policy's rate.
pub struct Host {
    /// Its ring and wire.
    pub transmitter: Box<dyn Transmitter>,
    /// When the host's timers fire.
    pub timer: Timer,
    /// Programs on the host of the queue.
    pub programs: Vec<Program>,
}

/// A program on the host of the queue, which hears at once what became of each packet that it sends
/// (ENOBUFS of 4.4BSD). It sends UDP.
pub struct Program {
    /// Addresses as in [`Key`], and the destination port.
    pub src: u128,
    /// Where to.
    pub dst: u128,
    /// The port there.
    pub dport: u16,
    /// What it hears.
    pub ear: std::sync::Arc<Ear>,
}

impl Program {
    /// Whether a packet is its.
    pub(crate) fn sent(&self, key: &Key) -> bool {
        key.proto == 17 && key.dport == Some(self.dport) && key.src == self.src && key.dst == self.dst
    }
}

/// What a program hears of its packets.
#[derive(Debug, Default)]
pub struct Ear {
    heard: Mutex<Heard>,
    news: Condvar,
}

/// What became of a program's packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// All that came to the queue.
    pub packets: u64,
    /// Those at which a packet was dropped.
    pub refused: u64,
}

impl Ear {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of one packet: taken, or refused.
    pub fn tell(&self, refused: bool) {
        let mut heard = self.lock();
        heard.packets += 1;
        heard.refused += u64::from(refused);
        drop(heard);
        self.news.notify_one();
    }

    /// All so far.
    pub fn heard(&self) -> Heard {
        *self.lock()
    }

    /// Waits until `packets` have been told of, at most so long. Returns all so far.
    pub fn wait(&self, packets: u64, at_most: Duration) -> Heard {
        let until = Instant::now() + at_most;
        let mut heard = self.lock();
        while heard.packets < packets {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            heard = self.news.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_for_its_packet_and_no_longer_than_it_may() {
        let ear = Ear::default();
        assert_eq!(ear.wait(1, Duration::from_millis(1)), Heard::default());
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| ear.wait(2, Duration::from_secs(60)));
            ear.tell(false);
            ear.tell(true);
            assert_eq!(heard.join().unwrap(), Heard { packets: 2, refused: 1 });
        });
    }
}
