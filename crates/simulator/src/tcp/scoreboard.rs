//! The segments that were sent and are not acknowledged by number: a record for each, in order of
//! sequence, and counts of those that are SACKed, lost and retransmitted.
//!
//! No acknowledgement costs a walk over the whole window. A SACK block is found by bisection, and
//! only what the last acknowledgement's blocks did not cover is visited. Both loss detectors keep a
//! cursor that only moves forward.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use super::rate::DeliveryRate;
use super::segment::Segment;

/// The segment was selectively acknowledged.
pub const SACKED: u8 = 1;
/// The segment is taken for lost.
pub const LOST: u8 = 2;
/// The segment's last retransmission is in flight.
pub const RESENT: u8 = 4;
/// The segment was retransmitted at least once, so its acknowledgement does not tell which sending
/// it is for (Karn's rule, RFC 6298 3).
pub const RETRANSMITTED: u8 = 8;
/// The segment carries the FIN.
pub const FIN: u8 = 16;

/// The record of one segment.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The sequence number of its first byte.
    pub seq: u64,
    /// When it was sent last.
    pub sent: Nanos,
    /// Payload in bytes.
    pub len: u32,
    /// [`SACKED`], [`LOST`], [`RESENT`], [`RETRANSMITTED`] and [`FIN`].
    pub flags: u8,
}

impl Sent {
    /// The sequence number after its last.
    pub fn end(&self) -> u64 {
        self.seq + u64::from(self.len) + u64::from(self.flags & FIN != 0)
    }

    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// What one acknowledgement reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckReport {
    /// Segments that it is the first to report as arrived.
    pub delivered: u32,
    /// Segments that it acknowledges by number, those that were SACKed before included.
    pub acked: u32,
    /// When the first segment was sent that it acknowledges by number and that was sent only once.
    pub first: Option<Nanos>,
    /// The same of the last such segment.
    pub last: Option<Nanos>,
    /// The same of the first segment that SACK newly reports.
    pub sacked: Option<Nanos>,
    /// The same of the last such segment.
    pub last_sacked: Option<Nanos>,
    /// A segment below the recovery point arrived that was sent only once.
    pub original: bool,
    /// A segment that was sent only once arrived after one that was sent later.
    pub reordered: bool,
    /// A segment that had been retransmitted is acknowledged by number.
    pub resent: bool,
    /// The duplicate that its first block reports (RFC 2883 4).
    pub duplicate: Option<(u64, u64)>,
    /// The highest number SACKed before this acknowledgement.
    pub highest: u64,
}

/// The records of all segments that are not acknowledged by number.
#[derive(Debug, Default)]
pub struct Scoreboard {
    sent: VecDeque<Sent>,
    /// The index of the first of `sent`. Segments are numbered in the order in which they were
    /// first sent, from 0.
    base: u64,
    sacked: u32,
    lost: u32,
    resent: u32,
    /// Segments that are lost and not retransmitted since.
    waiting: u32,
    /// No segment below this index waits to be retransmitted.
    next_resend: u64,
    /// Retransmissions in the order in which they were sent: index and time. Those that have
    /// arrived, are lost or were sent again since are skipped when their turn comes.
    retransmissions: VecDeque<(u64, Nanos)>,
    /// RACK: originals below this index have been judged.
    judged: u64,
    /// RFC 6675 4: below this index every segment is SACKed, lost, or was retransmitted.
    cursor: u64,
    /// The number of SACKed segments below `cursor`.
    below: u32,
    /// The highest sequence number SACKed.
    highest: u64,
    /// The last acknowledgement's SACK blocks.
    blocks: [(u64, u64); 4],
    /// The delivery rate, if congestion control needs it.
    pub rate: Option<Box<DeliveryRate>>,
}

impl Scoreboard {
    /// An empty scoreboard. `rated`: the delivery rate is measured.
    pub fn new(rated: bool) -> Scoreboard {
        Scoreboard { rate: rated.then(Box::default), ..Scoreboard::default() }
    }

    /// Segments sent and not acknowledged by number.
    pub fn len(&self) -> u32 {
        self.sent.len() as u32
    }

    /// Number of SACKed segments.
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Number of segments that are taken for lost.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Number of retransmissions in flight.
    pub fn resent(&self) -> u32 {
        self.resent
    }

    /// Whether a lost segment waits to be retransmitted.
    pub fn waiting(&self) -> bool {
        self.waiting > 0
    }

    /// The highest sequence number SACKed so far.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The first segment that is not acknowledged.
    pub fn head(&self) -> Option<&Sent> {
        self.sent.front()
    }

    /// Memory of the records, in bytes.
    pub fn memory(&self) -> usize {
        self.rate.as_ref().map_or(0, |rate| rate.memory())
            + self.sent.capacity() * size_of::<Sent>()
            + self.retransmissions.capacity() * size_of::<(u64, Nanos)>()
    }

    fn at(&self, number: u64) -> Option<&Sent> {
        self.sent.get(number.checked_sub(self.base)? as usize)
    }

    fn at_mut(&mut self, number: u64) -> Option<&mut Sent> {
        self.sent.get_mut(number.checked_sub(self.base)? as usize)
    }

    /// Adds a new segment, which is being sent.
    pub fn push(&mut self, sent: Sent) {
        if self.sent.is_empty() {
            self.retransmissions.clear();
            (self.judged, self.cursor, self.below, self.next_resend) = (self.base, self.base, 0, self.base);
        }
        if let Some(rate) = &mut self.rate {
            rate.sent(sent.sent, self.sent.is_empty());
        }
        self.sent.push_back(sent);
    }

    /// Retransmits the first lost segment that waits, if there is one.
    pub fn resend(&mut self, now: Nanos) -> Option<Sent> {
        if self.waiting == 0 {
            return None;
        }
        let mut number = self.next_resend.max(self.base);
        loop {
            let sent = self.at(number)?;
            if sent.is(LOST) && !sent.is(RESENT) {
                break;
            }
            number += 1;
        }
        self.next_resend = number + 1;
        self.waiting -= 1;
        self.sent_again(number, now)
    }

    /// Retransmits the last segment as a loss probe (RFC 8985 7.3).
    pub fn resend_last(&mut self, now: Nanos) -> Option<Sent> {
        let number = (self.base + self.sent.len() as u64).checked_sub(1)?;
        let last = self.at(number)?;
        if last.is(SACKED | RESENT) {
            return None;
        }
        if last.is(LOST) {
            self.waiting -= 1;
        }
        self.sent_again(number, now)
    }

    fn sent_again(&mut self, number: u64, now: Nanos) -> Option<Sent> {
        let sent = self.at_mut(number)?;
        sent.flags |= RESENT | RETRANSMITTED;
        sent.sent = now;
        let copy = *sent;
        self.resent += 1;
        if let Some(rate) = &mut self.rate {
            rate.resent((number - self.base) as usize);
        }
        self.retransmissions.push_back((number, now));
        Some(copy)
    }

    /// Takes a segment for lost, or its retransmission. False if nothing changed.
    fn lose(&mut self, number: u64) -> bool {
        let Some(sent) = self.at_mut(number) else { return false };
        if sent.is(SACKED) || (sent.is(LOST) && !sent.is(RESENT)) {
            return false;
        }
        let before = sent.flags;
        sent.flags = (sent.flags | LOST) & !RESENT;
        if before & LOST == 0 {
            self.lost += 1;
        }
        if before & RESENT != 0 {
            self.resent -= 1;
        }
        self.waiting += 1;
        self.next_resend = self.next_resend.min(number);
        true
    }

    /// Takes the first segment for lost (RFC 5681 3.2, RFC 6582 3.2). Returns how many segments are
    /// newly lost.
    pub fn lose_head(&mut self) -> u32 {
        // If it is lost already, only the timeout can find that its retransmission is lost too.
        match self.sent.front() {
            Some(head) if !head.is(LOST) => u32::from(self.lose(self.base)),
            _ => 0,
        }
    }

    /// After a timeout, takes all segments for lost for which `keep` is false, and the first one
    /// always (RFC 8985 6.3). What was SACKed counts as arrived all the same, a choice that RFC
    /// 6675 5.1 discusses.
    pub fn lose_all(&mut self, keep: impl Fn(&Sent) -> bool) {
        for index in 0..self.sent.len() {
            if index == 0 || self.sent.get(index).is_some_and(|sent| !keep(sent)) {
                self.lose(self.base + index as u64);
            }
        }
    }

    /// Takes no segment for lost any more. Those that have not arrived are judged anew, each by its
    /// last sending: a segment that was lost in truth must be found again.
    pub fn unlose(&mut self) {
        self.retransmissions.clear();
        for (number, sent) in (self.base..).zip(&mut self.sent) {
            sent.flags &= !LOST;
            if sent.is(RETRANSMITTED) && !sent.is(SACKED) {
                self.retransmissions.push_back((number, sent.sent));
            }
        }
        self.retransmissions.make_contiguous().sort_by_key(|(number, sent)| (*sent, *number));
        (self.lost, self.waiting) = (0, 0);
        (self.judged, self.cursor, self.below) = (self.base, self.base, 0);
    }

    /// Takes segments for lost above which three have been SACKed (RFC 6675 4, IsLost). Returns how
    /// many are newly lost.
    pub fn lose_by_count(&mut self) -> u32 {
        let mut newly = 0;
        while self.sacked - self.below >= 3 {
            let Some(sent) = self.at(self.cursor).copied() else { break };
            if sent.is(SACKED) {
                self.below += 1;
            } else if !sent.is(RETRANSMITTED) {
                newly += u32::from(self.lose(self.cursor));
            }
            self.cursor += 1;
        }
        newly
    }

    /// Takes segments for lost that were sent before `latest` and more than `wait` ago (RFC 8985
    /// 6.2 step 5). `latest` is the sending time and the end of the segment that was sent last of
    /// those that arrived. Returns how many segments are newly lost, and when to look again.
    pub fn lose_by_time(&mut self, now: Nanos, latest: (Nanos, u64), wait: Nanos) -> (u32, Option<Nanos>) {
        let (mut newly, mut due) = (0, None);
        let mut judge = |sent: &Sent| -> Option<bool> {
            ((sent.sent, sent.end()) < latest).then(|| {
                let lost = sent.sent.saturating_add(wait) <= now;
                if !lost {
                    // By then all of them are lost, so one timer is enough (RFC 8985 6.2).
                    due = Some(latest.0.saturating_add(wait));
                }
                lost
            })
        };
        while let Some(sent) = self.at(self.judged.max(self.base)).copied() {
            self.judged = self.judged.max(self.base);
            // Retransmitted segments are judged below, by their last sending.
            if !sent.is(SACKED | LOST | RETRANSMITTED) {
                if judge(&sent) != Some(true) {
                    break;
                }
                newly += u32::from(self.lose(self.judged));
            }
            self.judged += 1;
        }
        while let Some((number, time)) = self.retransmissions.front().copied() {
            // One that is taken for lost and not sent again is judged already.
            let open = |sent: &Sent| sent.sent == time && !sent.is(SACKED) && (sent.is(RESENT) || !sent.is(LOST));
            if let Some(sent) = self.at(number).copied().filter(open) {
                if judge(&sent) != Some(true) {
                    break;
                }
                newly += u32::from(self.lose(number));
            }
            self.retransmissions.pop_front();
        }
        (newly, due)
    }

    /// Counts a segment that has arrived.
    fn arrived(&mut self, sent: &Sent, high: u64, report: &mut AckReport) {
        report.delivered += 1;
        if sent.is(LOST) {
            self.lost -= 1;
            self.waiting -= u32::from(!sent.is(RESENT));
        }
        self.resent -= u32::from(sent.is(RESENT));
        if !sent.is(RETRANSMITTED) {
            report.original |= sent.end() <= high;
            report.reordered |= sent.end() < report.highest;
        }
    }

    /// Takes note of an acknowledgement's SACK blocks. `una` is the number that was acknowledged
    /// before, `high` the recovery point. Calls `rack` for each segment that is newly reported.
    pub fn sack(
        &mut self,
        segment: &Segment,
        una: u64,
        high: u64,
        report: &mut AckReport,
        mut rack: impl FnMut(&Sent),
    ) {
        let mut seen = [(0, 0); 4];
        for (at, (from, to)) in segment.sack_blocks().enumerate() {
            if let Some(slot) = seen.get_mut(at) {
                *slot = (from, to);
            }
            // RFC 2883 4: the first block reports a duplicate if it is acknowledged by number, or
            // if it lies within the second block.
            if at == 0 {
                let second = segment.sack_blocks().nth(1);
                if to <= segment.ack || second.is_some_and(|(low, up)| low <= from && to <= up) {
                    report.duplicate = Some((from, to));
                    continue;
                }
            }
            if from >= to || to <= una {
                continue;
            }
            // What the last acknowledgement reported has been counted already.
            let old = self.blocks;
            self.subtract(from, to, &old, high, report, &mut rack);
        }
        self.blocks = seen;
    }

    /// Counts segments in `[from, to)` that are in none of the blocks `old`.
    fn subtract(
        &mut self,
        from: u64,
        to: u64,
        old: &[(u64, u64)],
        high: u64,
        report: &mut AckReport,
        rack: &mut impl FnMut(&Sent),
    ) {
        match old {
            [] => self.sack_range(from, to, high, report, rack),
            [(low, up), rest @ ..] => {
                if *up <= from || *low >= to {
                    return self.subtract(from, to, rest, high, report, rack);
                }
                if from < *low {
                    self.subtract(from, *low, rest, high, report, rack);
                }
                if *up < to {
                    self.subtract(*up, to, rest, high, report, rack);
                }
            }
        }
    }

    fn sack_range(&mut self, from: u64, to: u64, high: u64, report: &mut AckReport, rack: &mut impl FnMut(&Sent)) {
        let mut index = self.sent.partition_point(|sent| sent.seq < from);
        while let Some(sent) = self.sent.get_mut(index).filter(|sent| sent.end() <= to) {
            let before = *sent;
            if !before.is(SACKED) {
                sent.flags = (sent.flags | SACKED) & !(LOST | RESENT);
                let number = self.base + index as u64;
                self.sacked += 1;
                self.below += u32::from(number < self.cursor);
                self.arrived(&before, high, report);
                if !before.is(RETRANSMITTED) {
                    report.sacked = report.sacked.or(Some(before.sent));
                    report.last_sacked = Some(before.sent);
                }
                if let Some(rate) = &mut self.rate {
                    rate.arrived(index, &before);
                }
                rack(&before);
            }
            index += 1;
        }
        self.highest = self.highest.max(to);
    }

    /// Takes note of an acknowledgement by number. Calls `rack` for each segment that is newly
    /// reported, but for those after which another one was sent first.
    #[inline(always)]
    pub fn acked(&mut self, ack: u64, high: u64, report: &mut AckReport, mut rack: impl FnMut(&Sent)) {
        loop {
            // Most segments are sent once, and then acknowledged by number. Of a row of these the
            // first one has the lowest number, and the last one was sent last.
            let mut row: Option<(Sent, Sent, u32)> = None;
            while let Some(sent) = self.sent.front().copied()
                && sent.end() <= ack
                && sent.flags & !FIN == 0
                && self.rate.is_none()
            {
                self.sent.pop_front();
                row = Some(row.map_or((sent, sent, 1), |(first, _, n)| (first, sent, n + 1)));
            }
            if let Some((first, last, n)) = row {
                (report.delivered, report.acked) = (report.delivered + n, report.acked + n);
                report.original |= first.end() <= high;
                report.reordered |= first.end() < report.highest;
                report.first = report.first.or(Some(first.sent));
                report.last = Some(last.sent);
                rack(&last);
                self.base += u64::from(n);
            }
            let Some(sent) = self.sent.pop_front_if(|sent| sent.end() <= ack) else { break };
            report.resent |= sent.is(RETRANSMITTED);
            if sent.is(SACKED) {
                self.sacked -= 1;
                self.below -= u32::from(self.base < self.cursor);
            } else {
                self.arrived(&sent, high, report);
                if !sent.is(RETRANSMITTED) {
                    report.first = report.first.or(Some(sent.sent));
                    report.last = Some(sent.sent);
                }
                if let Some(rate) = &mut self.rate {
                    rate.arrived(0, &sent);
                }
                rack(&sent);
            }
            if let Some(rate) = &mut self.rate {
                rate.pop();
            }
            report.acked += 1;
            self.base += 1;
        }
        self.cursor = self.cursor.max(self.base);
        // Retransmissions that are acknowledged need no judging.
        while self.retransmissions.front().is_some_and(|(number, _)| *number < self.base) {
            self.retransmissions.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::segment::{Flags, Sack};

    /// First sequence number, end, and whether the segment is SACKed, is lost, has a retransmission
    /// in flight, and was ever retransmitted.
    type Record = (u64, u64, bool, bool, bool, bool);

    /// RFC 6675 3 and 4 done the slow way: it looks at every segment each time.
    #[derive(Default)]
    struct Naive {
        sent: Vec<Record>,
    }

    impl Naive {
        fn report(&mut self, ack: u64, blocks: &[(u64, u64)]) -> (u32, u32) {
            let mut delivered = 0;
            for s in &mut self.sent {
                let covered = s.1 <= ack || blocks.iter().any(|(from, to)| *from <= s.0 && s.1 <= *to);
                if covered && !s.2 {
                    (s.2, s.3, s.4) = (true, false, false);
                    delivered += 1;
                }
            }
            let before = self.sent.len();
            self.sent.retain(|s| s.1 > ack);
            (delivered, (before - self.sent.len()) as u32)
        }

        /// IsLost by count: three segments above it are SACKed, and it was sent only once.
        fn lose(&mut self) -> u32 {
            let mut newly = 0;
            for at in 0..self.sent.len() {
                let above = self.sent[at + 1..].iter().filter(|s| s.2).count();
                let s = &mut self.sent[at];
                if above >= 3 && !s.2 && !s.3 && !s.5 {
                    s.3 = true;
                    newly += 1;
                }
            }
            newly
        }

        fn resend(&mut self) -> Option<u64> {
            let s = self.sent.iter_mut().find(|s| s.3 && !s.4)?;
            (s.4, s.5) = (true, true);
            Some(s.0)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(u32),
        /// The segment at this index, modulo the number of segments, arrives.
        Arrive(u16),
        Resend,
        /// A timeout: every segment that has not arrived is lost.
        Timeout,
    }

    fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
        use proptest::prelude::*;
        let step = prop_oneof![
            3 => (1u32..2000).prop_map(Step::Send),
            6 => any::<u16>().prop_map(Step::Arrive),
            3 => Just(Step::Resend),
            1 => Just(Step::Timeout),
        ];
        proptest::collection::vec(step, 1..300)
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]
        #[test]
        fn counts_are_those_of_a_model_that_looks_at_everything(steps in steps()) {
            let (mut board, mut naive) = (Scoreboard::default(), Naive::default());
            // The receiver: the next number expected, and the ranges out of order, the latest
            // first.
            let (mut next, mut una, mut held): (u64, u64, Vec<(u64, u64)>) = (1, 1, Vec::new());
            for (now, step) in steps.into_iter().enumerate() {
                let now = now as Nanos;
                match step {
                    Step::Send(len) => {
                        board.push(Sent { seq: next, sent: now, len, flags: 0 });
                        naive.sent.push((next, next + u64::from(len), false, false, false, false));
                        next += u64::from(len);
                    }
                    Step::Resend => {
                        proptest::prop_assert_eq!(board.resend(now).map(|sent| sent.seq), naive.resend());
                    }
                    Step::Timeout => {
                        board.lose_all(|_| false);
                        naive.sent.iter_mut().filter(|s| !s.2).for_each(|s| (s.3, s.4) = (true, false));
                    }
                    Step::Arrive(which) => {
                        let Some(at) = usize::from(which).checked_rem(naive.sent.len()) else { continue };
                        let (from, to) = (naive.sent[at].0, naive.sent[at].1);
                        if held.iter().any(|(low, up)| *low <= from && to <= *up) {
                            continue;
                        }
                        // RFC 2018 4: ranges that touch become one block, which is reported first.
                        let mut block = (from, to);
                        held.retain(|(low, up)| {
                            let touches = *up >= block.0 && *low <= block.1;
                            if touches {
                                block = (block.0.min(*low), block.1.max(*up));
                            }
                            !touches
                        });
                        held.insert(0, block);
                        if block.0 <= una {
                            una = block.1;
                            held.remove(0);
                        }
                        let mut sack = Sack::default();
                        held.iter().take(3).for_each(|(from, to)| sack.push(una, *from, *to));
                        let segment = Segment { ack: una, sack, flags: Flags::ACK, ..Segment::default() };
                        let mut report = AckReport::default();
                        let before = board.head().map_or(next, |head| head.seq);
                        board.sack(&segment, before, next, &mut report, |_| {});
                        board.acked(una, next, &mut report, |_| {});
                        let blocks: Vec<_> = segment.sack_blocks().collect();
                        proptest::prop_assert_eq!((report.delivered, report.acked), naive.report(una, &blocks));
                        proptest::prop_assert_eq!(board.lose_by_count(), naive.lose());
                    }
                }
                let count = |f: fn(&Record) -> bool| naive.sent.iter().filter(|s| f(s)).count() as u32;
                let waiting = naive.sent.iter().any(|s| s.3 && !s.4);
                let expected = (naive.sent.len() as u32, count(|s| s.2), count(|s| s.3), count(|s| s.4), waiting);
                let got = (board.len(), board.sacked(), board.lost(), board.resent(), board.waiting());
                proptest::prop_assert_eq!(got, expected);
            }
        }
    }
}
