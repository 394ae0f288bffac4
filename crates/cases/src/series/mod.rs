//! What classes and flows did over time, in bins of a round width: for plots.

mod comeback;

use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use comeback::Comeback;

use crate::result::{Delays, Reclaim, RunSeries, SeriesRow, unless_zero};
use crate::statistics::percentile;

/// Classes, and flows, of which rows are kept.
const MOST: usize = 64;

/// Bins of a run at most, where nothing else is said.
pub const BINS: u64 = 120;

/// Of more runs than this, series over time are coarser.
const MANY: usize = 6;
const BINS_OF_MANY: u64 = 40;

/// Into how many bins at most series over time go, in a result of so many runs.
pub fn bins(runs: usize) -> u64 {
    if runs > MANY { BINS_OF_MANY } else { BINS }
}

/// A row of bins for a class or a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Of a class: the policy's link.
    pub link: String,
    /// Own bytes that a class handed over, or that arrived at a flow's destination, by bin.
    pub bytes: Vec<u64>,
    /// Packets that passed, by bin.
    pub packets: Vec<u64>,
    /// Packets dropped, by bin.
    pub drops: Vec<u64>,
    /// Packets marked with congestion experienced, by bin.
    pub marks: Vec<u64>,
    /// How long packets waited in the link, or were on their way from source to destination, by bin
    /// of their end; of requests how long the answer took.
    pub delays: Vec<Vec<Nanos>>,
    /// A flow of requests: `delays` are round trips.
    pub asks: bool,
    /// Of a class with a guarantee: the watch over how fast it comes back.
    pub comeback: Option<Comeback>,
}

/// What is kept of one column of a run: its classes with packets of their own, and its flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The column's name.
    pub column: Option<String>,
    /// Width of a bin.
    pub bin: Nanos,
    /// How many there are.
    pub bins: usize,
    /// Classes of the links with a policy.
    pub classes: Vec<Row>,
    /// Flows.
    pub flows: Vec<Row>,
    /// Classes and flows that were too many to be kept.
    pub left_out: u64,
    /// By port, then class: its row, or that it has none.
    pub places: Vec<Vec<Option<Place>>>,
}

/// Where a class's packets are noted: in which row, if any.
pub type Place = Option<usize>;

/// A packet as a class hands it over.
pub struct Passed {
    /// Own bytes.
    pub bytes: u32,
    /// Bytes that the link charged.
    pub charged: u32,
    /// How long it waited.
    pub delay: Nanos,
    /// It was marked here.
    pub marked: bool,
}

impl Series {
    /// Width of the bins of a run of this length where there are at most so many: 1, 2 or 5 times a
    /// power of ten.
    pub fn width(duration: Nanos, most: u64) -> Nanos {
        width(duration, most)
    }

    /// For a run of this length: at most so many bins, of 1, 2 or 5 times a power of ten.
    pub fn new(column: Option<String>, duration: Nanos, most: u64) -> Series {
        let bin = width(duration, most);
        Series { column, bin, bins: duration.div_ceil(bin) as usize, ..Series::default() }
    }

    /// The bin of a time.
    pub fn at(&self, now: Nanos) -> usize {
        (now / self.bin.max(1)) as usize
    }

    /// Makes rows for flows, each with whether it asks and waits for answers.
    pub fn flows<'a>(&mut self, flows: impl Iterator<Item = (&'a str, bool)>) {
        let all: Vec<Row> = flows.map(|(name, asks)| Row { asks, ..Row::new(name, self.bins) }).collect();
        self.left_out += all.len().saturating_sub(MOST) as u64;
        self.flows = all;
        self.flows.truncate(MOST);
    }

    /// True if nothing is known yet of a class of a port.
    pub fn is_new(&self, port: usize, class: ClassId) -> bool {
        self.places.get(port).and_then(|places| places.get(class as usize)).is_none_or(Option::is_none)
    }

    /// Makes a row for a class of a port, unless there are enough.
    pub fn class(&mut self, port: usize, class: ClassId, link: &str, name: &str, guarantee: u64, mtu: u32) {
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
            self.classes.push(Row { link: link.to_owned(), comeback, ..Row::new(name, self.bins) });
        } else {
            places[class] = Some(None);
            self.left_out += 1;
        }
    }

    fn row(&mut self, port: usize, class: ClassId) -> Option<&mut Row> {
        let place = (*self.places.get(port)?.get(class as usize)?)??;
        self.classes.get_mut(place)
    }

    /// A packet of a class came to a port.
    pub fn arrived(&mut self, now: Nanos, port: usize, class: ClassId) {
        if let Some(comeback) = self.row(port, class).and_then(|row| row.comeback.as_mut()) {
            comeback.arrived(now);
        }
    }

    /// A class handed a packet over.
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

    /// A packet of a class was dropped.
    pub fn dropped(&mut self, now: Nanos, port: usize, class: ClassId) {
        let bin = self.at(now);
        let Some(row) = self.row(port, class) else { return };
        row.dropped(bin);
        if let Some(comeback) = &mut row.comeback {
            comeback.gone(now);
        }
    }

    /// A flow's request was answered after this time.
    pub fn answered(&mut self, now: Nanos, flow: usize, after: Nanos) {
        let bin = self.at(now);
        if let Some(row) = self.flows.get_mut(flow) {
            row.answered(bin, after);
        }
    }

    /// What a result keeps of it. `from`, `to`: the window of the distributions, by whole bins.
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
            classes: self.classes.iter().map(|class| class.kept(first, self.several(&class.name))).collect(),
            flows: self.flows.iter().map(|flow| flow.kept(first, false)).collect(),
            reclaims,
            left_out: self.left_out,
        }
    }

    /// Several links have a class of this name.
    fn several(&self, name: &str) -> bool {
        self.classes.iter().filter(|row| row.name == name).count() > 1
    }
}

impl Row {
    /// One without anything in it.
    pub fn new(name: &str, bins: usize) -> Row {
        let none = vec![0; bins];
        let (bytes, packets, drops, marks) = (none.clone(), none.clone(), none.clone(), none);
        Row { name: name.to_owned(), bytes, packets, drops, marks, delays: vec![Vec::new(); bins], ..Row::default() }
    }

    /// A packet of so many own bytes passed in a bin, after so long.
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

    /// A request was answered after this time.
    pub fn answered(&mut self, bin: usize, after: Nanos) {
        if let Some(delays) = self.delays.get_mut(bin).filter(|_| self.asks) {
            delays.push(after);
        }
    }

    /// A packet was dropped in a bin.
    pub fn dropped(&mut self, bin: usize) {
        if let Some(count) = self.drops.get_mut(bin) {
            *count += 1;
        }
    }

    fn kept(&self, first: usize, with_link: bool) -> SeriesRow {
        let mean = |delays: &Vec<Nanos>| {
            let sum: u128 = delays.iter().map(|delay| u128::from(*delay)).sum();
            sum.checked_div(delays.len() as u128).map(|mean| mean as u64)
        };
        let of = |percent| self.delays.iter().map(|delays| percentile(&mut delays.clone(), percent)).collect();
        let mut all: Vec<Nanos> = self.delays.iter().skip(first).flatten().copied().collect();
        SeriesRow {
            name: if with_link { format!("{}/{}", self.link, self.name) } else { self.name.clone() },
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

/// The least of 1, 2, 5 times a power of ten of which at most so many cover the duration.
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
