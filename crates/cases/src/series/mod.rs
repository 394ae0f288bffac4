//! What classes and flows did over time, for plots. Bins have round widths.

mod comeback;

use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use comeback::Comeback;

use crate::result::{Delays, Reclaim, RunSeries, SeriesRow, unless_zero};
use crate::statistics::percentile;

/// The most classes, and most flows, of which rows are kept.
const MOST: usize = 64;

/// The most bins of a run, unless another number is given.
pub const BINS: u64 = 120;

/// With more runs than this, series have fewer bins.
const MANY: usize = 6;
const BINS_OF_MANY: u64 = 40;

/// The most bins of a series, in a result with this many runs.
pub fn bins(runs: usize) -> u64 {
    if runs > MANY { BINS_OF_MANY } else { BINS }
}

/// A row of bins for a class or a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// For a class: its port, and its row there.
    pub class: (usize, ClassId),
    /// For a class: its link, as results name it.
    pub link: Option<String>,
    /// By bin: bytes that a class handed over, or that arrived at a flow's destination.
    pub bytes: Vec<u64>,
    /// By bin: packets that passed.
    pub packets: Vec<u64>,
    /// By bin: packets dropped.
    pub drops: Vec<u64>,
    /// By bin: packets marked with "congestion experienced".
    pub marks: Vec<u64>,
    /// By the bin of their end: how long packets waited in the link, or took from source to
    /// destination, or how long answers to requests took.
    pub delays: Vec<Vec<Nanos>>,
    /// True for a flow of requests, whose `delays` are round trips.
    pub asks: bool,
    /// For a class with a guarantee: measures how fast it gets it back.
    pub comeback: Option<Comeback>,
}

/// What is kept of one column of a run: its classes that had packets, and its flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The column's name.
    pub column: Option<String>,
    /// Width of a bin.
    pub bin: Nanos,
    /// Number of bins.
    pub bins: usize,
    /// Classes of the links with a policy.
    pub classes: Vec<Row>,
    /// Flows.
    pub flows: Vec<Row>,
    /// Number of classes and flows that were left out because there were too many.
    pub left_out: u64,
    /// By port and class: its row, if it has one.
    pub places: Vec<Vec<Option<Place>>>,
}

/// The row in which a class's packets are counted, if there is one.
pub type Place = Option<usize>;

/// A packet that a class hands over.
pub struct Passed {
    /// Own bytes.
    pub bytes: u32,
    /// Bytes that the link charged.
    pub charged: u32,
    /// The time that it waited.
    pub delay: Nanos,
    /// True if it was marked here.
    pub marked: bool,
}

impl Series {
    /// The width of the bins for a run of this length with at most `most` bins: 1, 2 or 5 times a
    /// power of ten.
    pub fn width(duration: Nanos, most: u64) -> Nanos {
        width(duration, most)
    }

    /// A series for a run of this length, with at most `most` bins.
    pub fn new(column: Option<String>, duration: Nanos, most: u64) -> Series {
        let bin = width(duration, most);
        Series { column, bin, bins: duration.div_ceil(bin) as usize, ..Series::default() }
    }

    /// The bin of a time.
    pub fn at(&self, now: Nanos) -> usize {
        (now / self.bin.max(1)) as usize
    }

    /// Makes rows for flows. The flag is true for flows of requests.
    pub fn flows<'a>(&mut self, flows: impl Iterator<Item = (&'a str, bool)>) {
        let all: Vec<Row> = flows.map(|(name, asks)| Row { asks, ..Row::new(name, self.bins) }).collect();
        self.left_out += all.len().saturating_sub(MOST) as u64;
        self.flows = all;
        self.flows.truncate(MOST);
    }

    /// True if the class of this port has not been seen yet.
    pub fn is_new(&self, port: usize, class: ClassId) -> bool {
        self.places.get(port).and_then(|places| places.get(class as usize)).is_none_or(Option::is_none)
    }

    /// Makes a row for a class of a port, unless there are enough rows.
    pub fn class(&mut self, port: usize, class: ClassId, link: &str, name: &str, guarantee: u64, mtu: u32) {
        let own = (port, class);
        if self.places.len() <= port {
            self.places.resize(port + 1, Vec::new());
        }
        let (places, class) = (&mut self.places[port], class as usize);
        if places.len() <= class {
            places.resize(class + 1, None);
        }
        if self.classes.len() < MOST {
            places[class] = Some(Some(self.classes.len()));
            let comeback = Comeback::new(guarantee, mtu);
            let link = Some(link.to_owned());
            self.classes.push(Row { class: own, link, comeback, ..Row::new(name, self.bins) });
        } else {
            places[class] = Some(None);
            self.left_out += 1;
        }
    }

    fn row(&mut self, port: usize, class: ClassId) -> Option<&mut Row> {
        let place = (*self.places.get(port)?.get(class as usize)?)??;
        self.classes.get_mut(place)
    }

    /// Counts a packet of a class that arrives at a port.
    pub fn arrived(&mut self, now: Nanos, port: usize, class: ClassId) {
        if let Some(comeback) = self.row(port, class).and_then(|row| row.comeback.as_mut()) {
            comeback.arrived(now);
        }
    }

    /// Counts a packet that a class hands over.
    pub fn passed(&mut self, now: Nanos, port: usize, class: ClassId, packet: &Passed) {
        let bin = self.at(now);
        let Some(row) = self.row(port, class) else { return };
        row.passed(bin, packet.bytes, packet.delay);
        if let Some(count) = row.marks.get_mut(bin).filter(|_| packet.marked) {
            *count += 1;
        }
        if let Some(comeback) = &mut row.comeback {
            comeback.sent(now, packet.charged);
        }
    }

    /// Counts a packet of a class that is dropped.
    pub fn dropped(&mut self, now: Nanos, port: usize, class: ClassId) {
        let bin = self.at(now);
        let Some(row) = self.row(port, class) else { return };
        row.dropped(bin);
        if let Some(comeback) = &mut row.comeback {
            comeback.gone(now);
        }
    }

    /// Counts a request of a flow that was answered after this time.
    pub fn answered(&mut self, now: Nanos, flow: usize, after: Nanos) {
        let bin = self.at(now);
        if let Some(row) = self.flows.get_mut(flow) {
            row.answered(bin, after);
        }
    }

    /// The series for a result. `from` and `to`: the window of the distributions, in whole bins.
    pub fn kept(&mut self, from: Nanos, to: Nanos, row: Option<String>) -> RunSeries {
        let first = (from.div_ceil(self.bin.max(1)) as usize).min(self.bins.saturating_sub(1));
        let mut reclaims = Vec::new();
        for row in &mut self.classes {
            let (name, Some(comeback)) = (&row.name, &mut row.comeback) else { continue };
            comeback.end(to);
            let found = comeback.found.iter().map(|(at_ns, within_ns)| Reclaim {
                class: name.clone(),
                at_ns: *at_ns,
                within_ns: *within_ns,
                window_ns: comeback.window,
            });
            reclaims.extend(found);
        }
        RunSeries {
            column: self.column.clone(),
            row,
            bin_ns: self.bin,
            classes: self.classes.iter().map(|class| class.kept(first)).collect(),
            flows: self.flows.iter().map(|flow| flow.kept(first)).collect(),
            reclaims,
            rates: Vec::new(),
            left_out: self.left_out,
        }
    }
}

impl Row {
    /// An empty row.
    pub fn new(name: &str, bins: usize) -> Row {
        let none = vec![0; bins];
        let (bytes, packets, drops, marks) = (none.clone(), none.clone(), none.clone(), none);
        Row { name: name.to_owned(), bytes, packets, drops, marks, delays: vec![Vec::new(); bins], ..Row::default() }
    }

    /// Counts a packet that passed in a bin, with its bytes and its delay.
    pub fn passed(&mut self, bin: usize, bytes: u32, delay: Nanos) {
        if let (Some(sum), Some(count), Some(delays)) =
            (self.bytes.get_mut(bin), self.packets.get_mut(bin), self.delays.get_mut(bin))
        {
            *sum += u64::from(bytes);
            *count += 1;
            if !self.asks {
                delays.push(delay);
            }
        }
    }

    /// Counts a request that was answered in a bin, with its round trip.
    pub fn answered(&mut self, bin: usize, after: Nanos) {
        if let Some(delays) = self.delays.get_mut(bin).filter(|_| self.asks) {
            delays.push(after);
        }
    }

    /// Counts a packet that was dropped in a bin.
    pub fn dropped(&mut self, bin: usize) {
        if let Some(count) = self.drops.get_mut(bin) {
            *count += 1;
        }
    }

    fn kept(&self, first: usize) -> SeriesRow {
        let mean = |delays: &Vec<Nanos>| {
            let sum: u128 = delays.iter().map(|delay| u128::from(*delay)).sum();
            sum.checked_div(delays.len() as u128).map(|mean| mean as u64)
        };
        let of = |percent| self.delays.iter().map(|delays| percentile(&mut delays.clone(), percent)).collect();
        let mut all: Vec<Nanos> = self.delays.iter().skip(first).flatten().copied().collect();
        SeriesRow {
            name: self.name.clone(),
            link: self.link.clone(),
            bytes: self.bytes.clone(),
            packets: self.packets.clone(),
            round_trips: self.asks,
            delay_mean_ns: self.delays.iter().map(mean).collect(),
            drops: unless_zero(self.drops.clone()),
            marks: unless_zero(self.marks.clone()),
            delay_p50_ns: of(50),
            delay_p99_ns: of(99),
            delays: Delays::of(&mut all),
        }
    }
}

/// The smallest of 1, 2, 5 times a power of ten with which `most` bins cover the duration.
pub fn width(duration: Nanos, most: u64) -> Nanos {
    let least = duration.div_ceil(most.max(1)).max(1);
    let mut power: Nanos = 1;
    loop {
        for digit in [1, 2, 5] {
            let width = power.saturating_mul(digit);
            if width >= least {
                return width;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_round() {
        let second = 1_000_000_000;
        assert_eq!(
            [width(12 * second, 120), width(11 * second, 120), width(second, 120), width(1, 120)],
            [100_000_000, 100_000_000, 10_000_000, 1]
        );
        assert_eq!(width(121 * second, 120), 2 * second);
        assert!(width(u64::MAX, 120) >= u64::MAX / 120);
    }
}
