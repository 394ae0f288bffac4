//! Writes the departures and drops files.

use std::io::{self, Write};

use altq_config::Link;
use altq_engine::units::Nanos;
use altq_engine::{Departure, Drop};

use super::{Arrivals, Observer, csv};

/// Rows are written to their file when this many bytes have gathered.
const CHUNK: usize = 64 * 1024;

/// Writes a row `time_ns,class,bytes,id,wire_end_ns` for each packet that departs, with a last
/// column `dscp` if a meter marks packets, and a row `time_ns,class,bytes,id,reason` for each that
/// is dropped.
pub struct CsvOutput<'a, D: Write, L: Write> {
    names: Vec<&'a str>,
    /// Departures have a column `dscp`.
    marks: bool,
    arrivals: &'a Arrivals,
    departures: Option<D>,
    drops: Option<L>,
    out: Vec<u8>,
    lost: Vec<u8>,
}

impl<'a, D: Write, L: Write> CsvOutput<'a, D, L> {
    /// Writes the header lines.
    pub fn new(
        link: &'a Link,
        arrivals: &'a Arrivals,
        mut departures: Option<D>,
        mut drops: Option<L>,
    ) -> io::Result<Self> {
        let marks = link.marks_dscp();
        if let Some(file) = &mut departures {
            file.write_all(b"time_ns,class,bytes,id,wire_end_ns")?;
            file.write_all(if marks { b",dscp\n" } else { b"\n" })?;
        }
        if let Some(file) = &mut drops {
            file.write_all(b"time_ns,class,bytes,id,reason\n")?;
        }
        let names = link.classes.iter().map(|class| class.name.as_str()).collect();
        Ok(CsvOutput {
            names,
            marks,
            arrivals,
            departures,
            drops,
            out: Vec::with_capacity(CHUNK + 256),
            lost: Vec::new(),
        })
    }

    /// Writes the rows that are left, and flushes the files.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(file) = &mut self.departures {
            file.write_all(&self.out)?;
            file.flush()?;
        }
        if let Some(file) = &mut self.drops {
            file.write_all(&self.lost)?;
            file.flush()?;
        }
        Ok(())
    }
}

fn row(out: &mut Vec<u8>, now: Nanos, class: &str, bytes: u32, arrivals: &Arrivals, at: usize) {
    csv::number(out, now);
    out.push(b',');
    csv::text(out, class);
    out.push(b',');
    csv::number(out, u64::from(bytes));
    out.push(b',');
    arrivals.write_id(at, out);
    out.push(b',');
}

impl<D: Write, L: Write> Observer for CsvOutput<'_, D, L> {
    fn sent(&mut self, now: Nanos, at: usize, departure: &Departure, wire_end: Nanos) -> io::Result<()> {
        let Some(file) = &mut self.departures else { return Ok(()) };
        let class = self.names.get(departure.class as usize).copied().unwrap_or("");
        row(&mut self.out, now, class, departure.packet.len, self.arrivals, at);
        csv::number(&mut self.out, wire_end);
        if self.marks {
            self.out.push(b',');
            csv::number(&mut self.out, u64::from(departure.packet.dscp));
        }
        self.out.push(b'\n');
        if self.out.len() >= CHUNK {
            file.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn dropped(&mut self, at: usize, drop: &Drop) -> io::Result<()> {
        let Some(file) = &mut self.drops else { return Ok(()) };
        let class = drop.class.and_then(|class| self.names.get(class as usize)).copied().unwrap_or("");
        row(&mut self.lost, drop.at, class, drop.packet.len, self.arrivals, at);
        self.lost.extend_from_slice(drop.reason.name().as_bytes());
        self.lost.push(b'\n');
        if self.lost.len() >= CHUNK {
            file.write_all(&self.lost)?;
            self.lost.clear();
        }
        Ok(())
    }
}
