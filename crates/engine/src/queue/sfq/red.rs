//! A packet that may not simply join its flow: the flow has a RED or is deep, or the queue is full.

use super::super::Store;
use super::super::red::Verdict;
use super::Sfq;
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::Limit;

impl Sfq {
    /// Asks a flow's RED about an arriving packet, and marks one if it says so. False if a packet
    /// is to be dropped.
    fn red(&mut self, at: u32, packet: &mut Packet, store: &mut Store<'_>) -> bool {
        let Some(red) = &self.words.red else { return true };
        let flow = self.flows.get_mut(at);
        flow.state.0.sample(&red.ewma, flow.list.bytes());
        let tally = &mut self.tally;
        let (may_mark, marks, marks_head, drops) = match flow.state.0.judge(&red.thresholds, &mut self.random) {
            Verdict::Pass => return true,
            Verdict::Early => (red.ecn, &mut tally.prob_mark, &mut tally.prob_mark_head, &mut tally.prob_drop),
            Verdict::Forced => {
                (red.ecn && !red.harddrop, &mut tally.forced_mark, &mut tally.forced_mark_head, &mut tally.forced_drop)
            }
        };
        if may_mark && self.words.headdrop && store.mark_first(&flow.list) {
            *marks_head += 1;
        } else if may_mark && store.mark(packet) {
            *marks += 1;
        } else {
            *drops += 1;
            return false;
        }
        true
    }

    /// Whether a packet may join its flow. The flow's RED may mark it, or another one, and with
    /// `headdrop` the flow may lose its first packet in its place.
    #[inline(never)]
    pub(super) fn judge(&mut self, at: u32, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        let passes = self.red(at, packet, store);
        let flow = self.flows.get(at);
        let deep = flow.list.packets() >= self.words.depth;
        let long = self
            .words
            .red
            .is_some_and(|red| u64::from(flow.list.bytes()) + u64::from(packet.len) > u64::from(red.limit));
        if !passes || deep || long {
            let reason = if passes { DropReason::QueueFull } else { DropReason::Early };
            if flow.list.is_empty() {
                // The packet alone is more than the flow may hold.
                if !self.flows.in_chain(at) {
                    self.flows.close(at);
                }
                return Err(reason);
            }
            if !self.words.headdrop {
                return Err(reason);
            }
            // The packet at the head is dropped in its place, so there are as many packets as
            // before and no limit in packets is exceeded.
            if let Some(head) = self.pop(at, store) {
                store.lose(head, if passes { DropReason::HeadDropped } else { DropReason::Early });
            }
        } else if !self.words.headdrop && self.limit == Limit::Packets(self.flows.packets()) {
            // The queue is full. If this flow would be one of the longest, it loses its last
            // packet: the arriving one.
            let longest = self.flows.fattest().map_or(0, |at| self.flows.get(at).list.packets());
            if flow.list.packets() > 0 && flow.list.packets() + 1 >= longest {
                self.flows.touch(at);
                return Err(DropReason::QueueFull);
            }
        }
        Ok(())
    }
}
