//! UDP sources, which need no answers, and the playback of captures.

use altq_engine::units::{Nanos, Rate, SECOND};

use crate::case::{Pace, Shape, Spans, Udp};
use crate::random::Random;

/// The actions of an endpoint in one call.
#[derive(Default)]
pub struct Outbox {
    /// Packets to send now: length at layer 3, and the endpoint's own number of each.
    pub packets: Vec<(u32, u64)>,
    /// The time at which it must be woken next; `None`: only a packet can wake it.
    pub wake: Option<Nanos>,
}

/// A source of packets.
pub trait Endpoint {
    /// The flow starts to send (also after a pause), or the time for which it asked has come.
    fn wake(&mut self, now: Nanos, out: &mut Outbox);

    /// The flow pauses.
    fn stop(&mut self) {}

    /// Sets the rate, for sources that have one.
    fn set_rate(&mut self, _rate: Rate) {}
}

/// A UDP source.
pub struct Source {
    udp: Udp,
    random: Random,
    sent: u64,
    /// The exact time of the next packet in whole nanoseconds; the fraction is in units of 1/rate
    /// ns.
    next: Nanos,
    rest: u64,
    running: bool,
    /// For on/off sources: the end of the present span.
    until: Nanos,
}

impl Source {
    /// A source that has not sent anything yet.
    pub fn new(udp: Udp, random: Random) -> Source {
        Source { udp, random, sent: 0, next: 0, rest: 0, running: false, until: 0 }
    }

    fn size(&mut self) -> u32 {
        let at = self.random.below(self.udp.sizes.len() as u32) as usize;
        self.udp.sizes.get(at).copied().unwrap_or(0)
    }

    fn send(&mut self, out: &mut Outbox) -> u32 {
        let size = self.size();
        out.packets.push((size, self.sent));
        self.sent += 1;
        size
    }

    /// Advances `next` by the time of a packet of `size` at this pace, with the fraction carried
    /// over.
    fn advance(&mut self, pace: Pace, size: u32) {
        match pace {
            Pace::Interval(span) => self.next = self.next.saturating_add(span),
            Pace::Rate(rate) => {
                let rate = rate.as_bit_s().max(1);
                let work = u128::from(size) * 8 * u128::from(SECOND) + u128::from(self.rest % rate);
                self.next = self.next.saturating_add(u64::try_from(work / u128::from(rate)).unwrap_or(Nanos::MAX));
                self.rest = (work % u128::from(rate)) as u64;
            }
        }
    }

    /// The length of a span on or off.
    fn span(&mut self, mean: Nanos, spans: Spans) -> Nanos {
        match spans {
            Spans::Fixed => mean,
            Spans::Exponential => self.random.exponential(mean),
            Spans::Pareto(alpha) => self.random.pareto(mean, alpha),
        }
    }

    /// The queue dropped the packet. Returns how long the program sleeps then, if it is one that
    /// notices that.
    pub fn refused(&self) -> Option<Nanos> {
        match self.udp.shape {
            Shape::Local { sleep, .. } => Some(sleep),
            _ => None,
        }
    }
}

impl Endpoint for Source {
    fn wake(&mut self, now: Nanos, out: &mut Outbox) {
        let fresh = !self.running;
        if fresh {
            (self.running, self.next, self.rest) = (true, now, 0);
        }
        match self.udp.shape {
            Shape::Constant(pace) => {
                let size = self.send(out);
                self.advance(pace, size);
            }
            Shape::Poisson(pace) => {
                // The first packet comes after a random time, like every other one, so the first
                // call only chooses that time.
                let size = if fresh {
                    self.udp.sizes.iter().sum::<u32>() / self.udp.sizes.len().max(1) as u32
                } else {
                    self.send(out)
                };
                let mean = match pace {
                    Pace::Interval(span) => span,
                    Pace::Rate(rate) => rate.time_for(u64::from(size)),
                };
                self.next = now.saturating_add(self.random.exponential(mean));
            }
            Shape::OnOff { pace, on, off, spans } => {
                if fresh {
                    self.until = now.saturating_add(self.span(on, spans));
                }
                let size = self.send(out);
                self.advance(pace, size);
                if self.next >= self.until {
                    // A silent span; the first packet of the next span goes at its start.
                    let start = self.until.saturating_add(self.span(off, spans));
                    (self.next, self.rest) = (start, 0);
                    self.until = start.saturating_add(self.span(on, spans));
                }
            }
            Shape::Local { gap, .. } => {
                self.send(out);
                self.next = now.saturating_add(gap);
            }
            Shape::Bursts { packets, every } => {
                for _ in 0..packets {
                    self.send(out);
                }
                self.next = self.next.saturating_add(every);
            }
        }
        out.wake = Some(self.next);
    }

    fn stop(&mut self) {
        self.running = false;
    }

    fn set_rate(&mut self, rate: Rate) {
        match &mut self.udp.shape {
            Shape::Constant(pace) | Shape::Poisson(pace) | Shape::OnOff { pace, .. } => *pace = Pace::Rate(rate),
            Shape::Bursts { .. } | Shape::Local { .. } => {}
        }
        self.rest = 0;
    }
}

/// Plays a capture's packets at their times.
pub struct Playback {
    /// Times since the capture's first packet, divided by the speed, and lengths at layer 3.
    packets: Vec<(Nanos, u32)>,
    at: usize,
    start: Option<Nanos>,
}

impl Playback {
    /// Packets in order of time.
    pub fn new(packets: Vec<(Nanos, u32)>) -> Playback {
        Playback { packets, at: 0, start: None }
    }
}

impl Endpoint for Playback {
    fn wake(&mut self, now: Nanos, out: &mut Outbox) {
        let start = *self.start.get_or_insert(now);
        while let Some((time, len)) = self.packets.get(self.at) {
            let at = start.saturating_add(*time);
            if at > now {
                out.wake = Some(at);
                return;
            }
            out.packets.push((*len, self.at as u64));
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times and sizes of the packets that a source sends before `until`.
    fn times(shape: Shape, sizes: &[u32], until: Nanos) -> Vec<(Nanos, u32)> {
        let mut source = Source::new(Udp { sizes: sizes.to_vec(), shape }, Random::new(1, 1));
        let (mut now, mut sent) = (0, Vec::new());
        while now < until {
            let mut out = Outbox::default();
            source.wake(now, &mut out);
            sent.extend(out.packets.iter().map(|(size, _)| (now, *size)));
            now = out.wake.unwrap();
        }
        sent
    }

    #[test]
    fn constant_rate_carries_the_fraction() {
        // 1000 bytes at 3 Mbit/s take 2.666… ms.
        let sent = times(Shape::Constant(Pace::Rate(Rate::mbit_s(3))), &[1000], SECOND);
        assert_eq!(sent.len(), 375);
        for (k, (at, _)) in sent.iter().enumerate() {
            assert_eq!(*at, k as u64 * 8_000_000 / 3);
        }
        let sent = times(Shape::Constant(Pace::Interval(2_840_000)), &[160], SECOND);
        assert_eq!((sent.len(), sent[352].0), (353, 352 * 2_840_000));
    }

    #[test]
    fn on_off_and_bursts() {
        let shape = Shape::OnOff { pace: Pace::Interval(1_000), on: 3_000, off: 7_000, spans: Spans::Fixed };
        let at: Vec<_> = times(shape, &[100], 20_001).iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [0, 1_000, 2_000, 10_000, 11_000, 12_000, 20_000]);
        let at: Vec<_> =
            times(Shape::Bursts { packets: 2, every: 50 }, &[100], 100).iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [0, 0, 50, 50]);
    }

    #[test]
    fn pareto_spans_have_their_mean_and_tail() {
        // With shape 3 the deviation of the mean is finite. The shortest span is 2/3 of the mean,
        // and 2^-3 of the spans are longer than twice the shortest.
        let mut source =
            Source::new(Udp { sizes: vec![100], shape: Shape::Constant(Pace::Interval(1)) }, Random::new(5, 5));
        let n = 100_000;
        let spans: Vec<Nanos> = (0..n).map(|_| source.span(3_000_000, Spans::Pareto(3.0))).collect();
        let mean = spans.iter().sum::<u64>() as f64 / n as f64;
        // The standard deviation of a span is mean / sqrt(shape (shape - 2)) = mean / sqrt(3).
        assert!((mean / 3e6 - 1.0).abs() < 5.0 / (3.0 * n as f64).sqrt(), "{mean}");
        assert!(spans.iter().all(|span| *span >= 2_000_000 - 1));
        let beyond = spans.iter().filter(|span| **span > 4_000_000).count() as f64 / n as f64;
        assert!((beyond - 0.125).abs() < 5.0 * (0.125 * 0.875 / n as f64).sqrt(), "{beyond}");
    }

    #[test]
    fn a_local_source_counts_from_the_last_packet() {
        let shape = Shape::Local { gap: 100, sleep: 18_000_000 };
        assert_eq!(times(shape, &[500], 350), [(0, 500), (100, 500), (200, 500), (300, 500)]);
        let source = Source::new(Udp { sizes: vec![500], shape }, Random::new(1, 1));
        assert_eq!(source.refused(), Some(18_000_000));
    }

    #[test]
    fn poisson_has_its_rate() {
        let sent = times(Shape::Poisson(Pace::Rate(Rate::mbit_s(8))), &[500, 1500], 100 * SECOND);
        let bits: u64 = sent.iter().map(|(_, size)| u64::from(*size) * 8).sum();
        // About 100,000 packets give a standard deviation of 0.35 % with these sizes; five of them
        // are allowed.
        assert!((bits as f64 / 100.0 / 8e6 - 1.0).abs() < 0.018, "{bits}");
        // The gaps of a Poisson process have a standard deviation equal to their mean.
        let gaps: Vec<f64> = sent.windows(2).map(|w| (w[1].0 - w[0].0) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / gaps.len() as f64;
        assert!(variance.sqrt() / mean > 0.95, "{}", variance.sqrt() / mean);
    }

    #[test]
    fn playback_keeps_times() {
        let mut playback = Playback::new(vec![(0, 10), (5, 20), (5, 30), (9, 40)]);
        let mut out = Outbox::default();
        playback.wake(100, &mut out);
        assert_eq!((out.packets.as_slice(), out.wake), (&[(10, 0)][..], Some(105)));
        let mut out = Outbox::default();
        playback.wake(105, &mut out);
        assert_eq!((out.packets.as_slice(), out.wake), (&[(20, 1), (30, 2)][..], Some(109)));
    }
}
