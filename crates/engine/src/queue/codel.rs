//! CoDel (Nichols and Jacobson 2012; RFC 8289): controls a queue by the time that packets spend in
//! it, their sojourn time.
//!
//! A queue that absorbs a burst empties within an interval. A standing queue does not, and only
//! adds delay. CoDel looks at each packet that leaves. Once sojourn times have been at least
//! `target` for a whole `interval`, it drops or marks a packet, and then further ones, the next one
//! interval/sqrt(n) after the nth, until a sojourn time is below the target. No parameter depends
//! on the link's rate.
//!
//! [`Control`] is the algorithm without a queue. fq_codel has one for each flow.

use super::aqm::{self, Aqm, ECN};
use super::{Context, Entry, List, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::{Kind, Limit, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, SECOND};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[TARGET, INTERVAL, ECN],
    in_order: true,
    drops_leaving: true,
    ..Entry::new("codel", "drops by time spent in the queue (RFC 8289)", Limit::Packets(1000), aqm::build::<Codel>)
};

/// The word for the sojourn time that the control law aims at.
pub(super) const TARGET: Word =
    Word { name: "target", kind: Kind::Time, help: "the standing delay that is accepted", default: "5ms" };

/// The word for how long sojourn times must be above the target before packets are dropped.
pub(super) const INTERVAL: Word = Word {
    name: "interval",
    kind: Kind::Time,
    help: "how long delays must be above target before a drop: about the longest round trip",
    default: "100ms",
};

/// The parameters of the control law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The acceptable sojourn time, ns.
    pub target: Nanos,
    /// How long sojourn times must be at or above the target before a packet is dropped, ns.
    pub interval: Nanos,
    /// A backlog of at most this many bytes is no standing queue: the link's MTU.
    pub mtu: u32,
    /// Marks packets of ECN-capable transports instead of dropping them.
    pub ecn: bool,
}

impl Parameters {
    /// Reads the parameters from a queue's words.
    pub fn read(context: &Context, settings: &Settings) -> Result<Parameters, SpecError> {
        // RFC 8289, 4.3 and 4.4: an interval of 100 ms suits round trips in the Internet; the
        // target is 5 % of it.
        let target = settings.time("target").unwrap_or(5_000_000);
        let interval = settings.time("interval").unwrap_or(100_000_000);
        if target == 0 {
            return Err(SpecError::word("target", "a target of 0 ns would drop every packet that waits")
                .help("write target 5ms"));
        }
        if interval < target || interval > 3600 * SECOND {
            return Err(SpecError::word("interval", "the interval is at least the target and at most an hour")
                .help("write interval 100ms, about the longest round trip"));
        }
        Ok(Parameters { target, interval, mtu: context.mtu, ecn: settings.flag("ecn") })
    }
}

/// The state of the control law: 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The time at which sojourn times will have been above the target for an interval; 0 while
    /// they are below.
    first_above: Nanos,
    /// When the next packet is to be dropped.
    drop_next: Nanos,
    /// Packets dropped since dropping began.
    count: u32,
    /// Two fields in one. The upper 31 bits are RFC 8289's `lastcount`, the value of `count` when
    /// dropping last began. The lowest bit is 1 in the dropping state.
    last: u32,
}

const _: () = assert!(size_of::<Control>() == 24);

impl Control {
    /// True while it is in the dropping state (RFC 8289, 5.2).
    pub fn dropping(&self) -> bool {
        self.last & 1 == 1
    }

    fn drops_on(&mut self, on: bool) {
        self.last = self.last & !1 | u32::from(on);
    }

    /// The value of `count` when dropping last began.
    fn last_count(&self) -> u32 {
        self.last >> 1
    }

    /// Packets dropped or marked since dropping began.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the state of an empty queue can still change a later decision: it remembers for 16
    /// intervals how fast it was dropping.
    pub fn remembers(&self, parameters: &Parameters, now: Nanos) -> bool {
        let delta = self.count.saturating_sub(self.last_count());
        self.dropping()
            || self.first_above != 0
            || delta > 1 && now.saturating_sub(self.drop_next) < 16 * parameters.interval
    }

    /// Whether the sojourn times of this packet and of all in the last interval were too long (RFC
    /// 8289, 5.6). `backlog` is the bytes that stay in the queue.
    fn too_long(
        &mut self,
        parameters: &Parameters,
        now: Nanos,
        packet: &Option<Taken>,
        backlog: u32,
        store: &Store<'_>,
    ) -> bool {
        let sojourn = packet.as_ref().map_or(0, |packet| now.saturating_sub(store.arrived_of(packet)));
        if sojourn < parameters.target || backlog <= parameters.mtu {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = now + parameters.interval;
            return false;
        }
        now >= self.first_above
    }

    /// The same as [`dequeue`](Control::dequeue) from an empty list: the dropping state ends (RFC
    /// 8289, 5.5 and 5.6).
    #[inline]
    pub fn found_empty(&mut self) {
        self.first_above = 0;
        self.drops_on(false);
    }

    /// Whether [`dequeue`](Control::dequeue) gives the first packet of its list, which arrived at
    /// this time, and does nothing else but [`in_time`](Control::in_time). Then a queue may take it
    /// itself. It is so for most packets.
    #[inline]
    pub fn passes(&self, parameters: &Parameters, now: Nanos, arrived: Nanos) -> bool {
        !self.dropping() && now.saturating_sub(arrived) < parameters.target
    }

    /// A packet leaves that has not waited as long as the target.
    #[inline]
    pub fn in_time(&mut self) {
        self.first_above = 0;
    }

    /// The packet of a list that leaves; packets before it may be dropped, and it may be marked
    /// (RFC 8289, 5.5). `backlog` is the bytes of the whole queue, those of this list included.
    pub fn dequeue(
        &mut self,
        parameters: &Parameters,
        now: Nanos,
        list: &mut List,
        backlog: u32,
        store: &mut Store<'_>,
    ) -> Option<Taken> {
        // The bytes of the queue's other lists do not change here.
        let others = backlog.saturating_sub(list.bytes());
        let mut packet = store.pop(list);
        let mut too_long = self.too_long(parameters, now, &packet, others + list.bytes(), store);
        if self.dropping() {
            self.drops_on(too_long);
            while self.dropping() && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if parameters.ecn && packet.as_ref().is_some_and(|packet| store.mark_taken(packet)) {
                    self.drop_next = control_law(self.drop_next, parameters.interval, self.count);
                    return packet;
                }
                if let Some(packet) = packet.take() {
                    store.lose(packet, DropReason::Early);
                }
                packet = store.pop(list);
                too_long = self.too_long(parameters, now, &packet, others + list.bytes(), store);
                if too_long {
                    self.drop_next = control_law(self.drop_next, parameters.interval, self.count);
                } else {
                    self.drops_on(false);
                }
            }
        } else if too_long {
            if !(parameters.ecn && packet.as_ref().is_some_and(|packet| store.mark_taken(packet))) {
                if let Some(packet) = packet.take() {
                    store.lose(packet, DropReason::Early);
                }
                packet = store.pop(list);
                self.too_long(parameters, now, &packet, others + list.bytes(), store);
            }
            // If dropping ended less than 16 intervals ago, it starts again with the drop rate that
            // controlled the queue then.
            let delta = self.count.saturating_sub(self.last_count());
            let recent = now.saturating_sub(self.drop_next) < 16 * parameters.interval;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = control_law(now, parameters.interval, self.count);
            // One bit of `last` is taken, so counts above 2^31 - 1 are stored as that.
            self.last = self.count.min(u32::MAX >> 1) << 1 | 1;
        }
        packet
    }
}

/// The time of the next drop after one at `from`: interval/sqrt(count) later (RFC 8289, 5.6),
/// rounded down to a nanosecond.
pub fn control_law(from: Nanos, interval: Nanos, count: u32) -> Nanos {
    // floor(sqrt(interval^2 / count)) in integers, so that every machine drops the same packets.
    let square = u128::from(interval) * u128::from(interval) / u128::from(count.max(1));
    from.saturating_add(square.isqrt() as Nanos)
}

struct Codel {
    parameters: Parameters,
    limit: Limit,
    control: Control,
}

impl Aqm for Codel {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Codel, SpecError> {
        let parameters = Parameters::read(context, &spec.settings)?;
        Ok(Codel { parameters, limit: spec.limit, control: Control::default() })
    }

    #[inline(always)]
    fn admit(&mut self, _: Nanos, packet: &mut Packet, list: &mut List, _: &mut Store<'_>) -> Result<(), DropReason> {
        // A packet of no bytes counts as one byte, so that a limit in bytes holds for it too.
        if list.fits(self.limit, packet.len.max(1)) { Ok(()) } else { Err(DropReason::QueueFull) }
    }

    #[inline(always)]
    fn dequeue(&mut self, now: Nanos, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        if store.arrived(list).is_some_and(|arrived| self.control.passes(&self.parameters, now, arrived)) {
            self.control.in_time();
            return store.pop(list);
        }
        self.control.dequeue(&self.parameters, now, list, list.bytes(), store)
    }

    fn change(&mut self, _: Nanos, new: Codel, list: &mut List, store: &mut Store<'_>) {
        (self.parameters, self.limit) = (new.parameters, new.limit);
        while list.over(self.limit) {
            let Some(packet) = store.pop(list) else { break };
            store.lose(packet, DropReason::LimitLowered);
        }
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("count", u64::from(self.control.count()));
        counter("dropping", u64::from(self.control.dropping()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Backing;
    use super::*;

    #[test]
    fn the_law_by_hand() {
        // RFC 8289 5.6: 100 ms over the root of 1, 4, 25; of 2 it is 70.710678 ms.
        let times = [1, 2, 4, 25].map(|count| control_law(0, 100_000_000, count));
        assert_eq!(times, [100_000_000, 70_710_678, 50_000_000, 20_000_000]);
    }

    #[test]
    fn first_drop_after_an_interval_above_target() {
        let mut backing = Backing::default();
        let parameters = Parameters { target: 5_000_000, interval: 100_000_000, mtu: 1500, ecn: false };
        let (mut control, mut list) = (Control::default(), List::NEW);
        for handle in 0..100 {
            backing.store().push(&mut list, &Packet::new(handle, 1000));
        }
        // 100 packets wait from 0 on, and one is asked for every 2 ms. The first with a sojourn
        // time of at least 5 ms leaves at 6 ms, so the first drop is at 106 ms. The next one would
        // be 100 ms later, when the list is empty.
        let mut lost = Vec::new();
        for step in 0..110 {
            let now = 2_000_000 * step;
            let (backlog, mut store) = (list.bytes(), backing.store());
            if let Some(taken) = control.dequeue(&parameters, now, &mut list, backlog, &mut store) {
                store.packet(taken);
            }
            lost.extend(backing.lost.drain(..).map(|(packet, reason)| (now, packet.handle, reason)));
        }
        assert_eq!(lost, [(106_000_000, 53, DropReason::Early)]);
    }
}
