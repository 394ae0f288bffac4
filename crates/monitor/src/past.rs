//! A frame of an earlier time, made from the history: from seconds of the last five minutes, or
//! else from quarters of a minute of the last six hours.

use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, SECOND};

use crate::frame::{Delay, Frame, Parts};
use crate::history::QUARTER;
use crate::monitor::Monitor;
use crate::slice::{Point, SliceRef};
use crate::steps::Window;

impl Monitor {
    /// What the classes did in a window that ended `ago` ns before the last second's end. Flows,
    /// limits and the number of waiting packets are not known; their bytes are the mean over the
    /// window. A percentile is the largest one of the window's slices and of the classes below. If
    /// only quarters of a minute are left, the window is made of those. `None` if nothing was
    /// recorded then.
    pub fn past(&self, window: Window, ago: Nanos) -> Option<Frame> {
        let end = self.history.seconds().next_back()?.to.saturating_sub(ago);
        let seconds = match window {
            Window::Second => 1,
            Window::Ten => 10,
            Window::Minute => 60,
        };
        let began = |slice: &SliceRef<'_>| slice.from < end;
        let mut slices: Vec<SliceRef<'_>> = self.history.seconds().rev().filter(began).take(seconds).collect();
        let whole = slices.len() == seconds || self.history.quarters().next().is_none();
        if !whole {
            let coarse = seconds.div_ceil(QUARTER as usize);
            let quarters: Vec<SliceRef<'_>> = self.history.quarters().rev().filter(began).take(coarse).collect();
            // The latest seconds are in no quarter yet.
            if !quarters.is_empty() && slices.is_empty() || quarters.len() == coarse {
                slices = quarters;
            }
        }
        let length = |slice: &SliceRef<'_>| slice.to.saturating_sub(slice.from);
        let latest = slices.first()?;
        if latest.to.saturating_add(length(latest).max(SECOND)) < end {
            return None;
        }
        // Slices before a gap in the record are too old for this window.
        let oldest = end.saturating_sub(2 * SECOND * seconds.max(QUARTER as usize) as Nanos);
        slices.retain(|slice| slice.to >= oldest);
        let mut own = vec![Point::default(); self.tree.len()];
        let (mut waited, mut time) = (0u64, 0);
        for slice in &slices {
            waited += u64::from(slice.seconds);
            time += length(slice);
            for (class, point) in slice.points() {
                let Some(sum) = own.get_mut(class as usize) else { continue };
                sum.add(&point);
                (sum.p50, sum.p99) = (sum.p50.max(point.p50), sum.p99.max(point.p99));
            }
        }
        let waiting = own.iter().map(|point| (0, point.waiting_bytes / waited.max(1))).collect();
        let (from, to) = (slices.last()?.from, slices.first()?.to);
        let mut times: Vec<Delay> = own
            .iter()
            .map(|point| {
                // Where nobody measures how long packets wait, there are packets without a time.
                let count = if point.p99 > 0 { point.sent_packets } else { 0 };
                Delay { count, p50: point.p50, p99: point.p99, max: point.p99 }
            })
            .collect();
        let parts = Parts { tree: &self.tree, window, from, to, time, own, waiting, limited_by: &[] };
        let mut frame = Frame::new(parts, |_, _| {});
        for class in self.tree.order().iter().rev().copied() {
            let below = times.get(class as usize).copied().unwrap_or_default();
            if let Some(row) = frame.rows.get_mut(class as usize) {
                row.delay = below;
            }
            let above = self.tree.parent(class).and_then(|parent: ClassId| times.get_mut(parent as usize));
            if let Some(above) = above {
                above.count += below.count;
                above.p50 = above.p50.max(below.p50);
                above.p99 = above.p99.max(below.p99);
                above.max = above.max.max(below.max);
            }
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::account::Counters;
    use altq_engine::spec::ROOT;
    use altq_engine::units::Rate;

    use super::*;
    use crate::monitor::{Limits, Second};
    use crate::tree::{Class, Tree};

    /// A link with one class, which sends n packets of 1000 bytes in second n.
    fn monitor(seconds: u64) -> Monitor {
        let class =
            |name: &str| Class { name: name.into(), parent: ROOT, asked: Some(Rate::bit_s(8_000_000)), ceiling: None };
        let tree = Tree::new(vec![class("link"), class("a")]).unwrap();
        let mut monitor = Monitor::new(tree, Limits::default(), None);
        let mut counters = Counters::default();
        for n in 0..seconds {
            counters.sent_packets += n;
            counters.sent_bytes += n * 1000;
            counters.sent_wire_bytes += n * 1000;
            let (from, to) = (n * SECOND, (n + 1) * SECOND);
            monitor.second(Second { from, to, counters: &[counters, counters], ..Second::default() });
        }
        monitor
    }

    fn sent(frame: &Frame) -> (u64, Nanos, Nanos) {
        (frame.rows[1].total.sent_packets, frame.from / SECOND, frame.to / SECOND)
    }

    #[test]
    fn windows_of_the_past() {
        let monitor = monitor(1000);
        let past = |window, ago| monitor.past(window, ago * SECOND).map(|frame| sent(&frame));
        assert_eq!(past(Window::Second, 0), Some((999, 999, 1000)));
        assert_eq!(past(Window::Second, 100), Some((899, 899, 900)));
        assert_eq!(past(Window::Ten, 100), Some(((890..900).sum(), 890, 900)));
        assert_eq!(past(Window::Minute, 100), Some(((840..900).sum(), 840, 900)));
        // Ten minutes ago there are only quarters of a minute: that of the seconds 390 to 405.
        assert_eq!(past(Window::Second, 600), Some(((390..405).sum(), 390, 405)));
        assert_eq!(past(Window::Minute, 600), Some(((345..405).sum(), 345, 405)));
        // Before the beginning.
        assert_eq!(past(Window::Second, 1000), None);
        let frame = monitor.past(Window::Minute, 600 * SECOND).unwrap();
        frame.check().unwrap();
        assert_eq!(frame.time, 60 * SECOND);
        // Nobody has measured how long the packets waited.
        assert!(frame.rows.iter().all(|row| row.delay.count == 0));
    }
}
