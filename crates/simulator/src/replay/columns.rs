//! Arrivals from columns, for programs that have the packets in memory. The rules are those of the
//! CSV file (docs/replay.md).

use altq_cases::limits::{LARGEST_PACKET, MOST_QUEUES};
use altq_config::Link;
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;

use super::arrivals::{Arrivals, Ids};

/// Columns of a list of arrivals, a value for each packet. A column other than the first three may
/// be missing.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// When each packet arrives, in nanoseconds, never decreasing.
    pub times: Vec<Nanos>,
    /// The numbers of the classes.
    pub classes: Vec<ClassId>,
    /// Lengths at layer 3, in bytes: 1 to 65535.
    pub bytes: Vec<u64>,
    /// Flows: packets with the same number belong to one flow. For names there is
    /// [`flow_hash`](super::flow_hash).
    pub flows: Option<Vec<u32>>,
    /// Hosts: packets with the same numbers come from, or go to, the same host. First the source,
    /// then the destination.
    pub hosts: Option<Vec<[u16; 2]>>,
    /// DSCP, 0 to 63.
    pub dscp: Option<Vec<u64>>,
    /// ECN, 0 to 3.
    pub ecn: Option<Vec<u64>>,
    /// 1 for packets that the queue `two_level` serves first, otherwise 0.
    pub high: Option<Vec<u64>>,
    /// Packets on the wire that each entry stands for: 1 to its bytes.
    pub segments: Option<Vec<u64>>,
    /// Transmit queues, 0 to 63.
    pub tx_queues: Option<Vec<u64>>,
}

/// Why columns are no list of arrivals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// A column has another length than the times.
    #[error("column {column} has {found} values, and time_ns has {wanted}; each packet needs one of each")]
    Length {
        /// The column's name.
        column: &'static str,
        /// Its length.
        found: usize,
        /// The number of times.
        wanted: usize,
    },
    /// A value is wrong.
    #[error("row {row}, {column}: {message}")]
    Value {
        /// The row, from 0.
        row: usize,
        /// The column's name.
        column: &'static str,
        /// What is wrong with the value, and what could stand there.
        message: String,
    },
}

fn wrong(row: usize, column: &'static str, message: String) -> ColumnError {
    ColumnError::Value { row, column, message }
}

/// Checks the length of a column that may be missing.
fn as_long<T>(values: &Option<Vec<T>>, column: &'static str, wanted: usize) -> Result<(), ColumnError> {
    match values.as_ref().map(Vec::len) {
        Some(found) if found != wanted => Err(ColumnError::Length { column, found, wanted }),
        _ => Ok(()),
    }
}

/// A column whose values lie in a range, as a narrower type.
fn within<T>(
    values: &[u64],
    column: &'static str,
    (min, max): (u64, u64),
    narrow: impl Fn(u64) -> T,
) -> Result<Vec<T>, ColumnError> {
    if let Some((row, value)) = values.iter().enumerate().find(|(_, value)| !(min..=max).contains(*value)) {
        return Err(wrong(row, column, format!("{value} is not a whole number from {min} to {max}")));
    }
    Ok(values.iter().map(|value| narrow(*value)).collect())
}

impl Arrivals {
    /// Makes a list from columns, for the classes of `link`. The packets' ids are their rows,
    /// counted from 0.
    ///
    /// # Errors
    /// Columns of different lengths, a time before the one above it, a class that the link does not
    /// have, and values out of their range, each with its row.
    pub fn from_columns(link: &Link, columns: Columns) -> Result<Arrivals, ColumnError> {
        let Columns { times, classes, bytes, flows, hosts, dscp, ecn, high, segments, tx_queues } = columns;
        let wanted = times.len();
        for (found, column) in [(classes.len(), "class"), (bytes.len(), "bytes")] {
            if found != wanted {
                return Err(ColumnError::Length { column, found, wanted });
            }
        }
        as_long(&flows, "flow", wanted)?;
        as_long(&hosts, "src", wanted)?;
        let small =
            [(&dscp, "dscp"), (&ecn, "ecn"), (&high, "high"), (&segments, "segments"), (&tx_queues, "tx_queue")];
        for (values, column) in small {
            as_long(values, column, wanted)?;
        }
        if let Some(row) = (1..wanted).find(|row| times[*row] < times[row - 1]) {
            let (time, before) = (times[row], times[row - 1]);
            let message = format!("{time} is earlier than {before} in the row before; sort the table by time_ns");
            return Err(wrong(row, "time_ns", message));
        }
        let known = |class: &ClassId| link.classes.get(*class as usize).is_some_and(|class| !class.name.is_empty());
        if let Some((row, class)) = classes.iter().enumerate().find(|(_, class)| !known(class)) {
            let most = link.classes.len().saturating_sub(1);
            let message = format!("there is no class {class}; link {} has classes 0 to {most}", link.name);
            return Err(wrong(row, "class", message));
        }
        let bytes = within(&bytes, "bytes", (1, u64::from(LARGEST_PACKET)), |value| value as u32)?;
        let six = dscp.map(|values| within(&values, "dscp", (0, 63), |value| (value as u8) << 2)).transpose()?;
        let two = ecn.map(|values| within(&values, "ecn", (0, 3), |value| value as u8)).transpose()?;
        let tos = match (six, two) {
            (Some(six), Some(two)) => six.iter().zip(&two).map(|(six, two)| six | two).collect(),
            (six, two) => six.or(two).unwrap_or_default(),
        };
        let high = high.map(|values| within(&values, "high", (0, 1), |value| value == 1)).transpose()?;
        if let Some(values) = &segments {
            let beyond = |(value, bytes): (&u64, &u32)| *value == 0 || *value > u64::from(*bytes);
            if let Some(row) = values.iter().zip(&bytes).position(beyond) {
                let (value, most) = (values[row], bytes[row]);
                return Err(wrong(row, "segments", format!("{value} is not a whole number from 1 to {most}")));
            }
        }
        // No packet has more segments than bytes, which fit into 16 bits.
        let segments = segments.map(|values| values.into_iter().map(|value| value as u16).collect());
        let most = MOST_QUEUES as u64 - 1;
        let queues = tx_queues.map(|values| within(&values, "tx_queue", (0, most), |value| value as u8)).transpose()?;
        Ok(Arrivals {
            ids: Ids::Numbers((0..wanted as u64).collect()),
            times,
            classes,
            bytes,
            flows: flows.unwrap_or_default(),
            hosts: hosts.unwrap_or_default(),
            tos,
            high: high.unwrap_or_default(),
            segments: segments.unwrap_or_default(),
            queues: queues.unwrap_or_default(),
            ..Arrivals::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};

    use super::super::{Options, flow_hash, run};
    use super::*;

    fn link() -> Link {
        let text = "link wan { rate 8Mbit/s  scheduler fifo  class a {}  class b { default } }";
        parse_str(text, "test.altq", Language::Native).unwrap().links.remove(0)
    }

    fn columns() -> Columns {
        Columns { times: vec![0, 0, 5], classes: vec![1, 2, 1], bytes: vec![100, 200, 65_535], ..Columns::default() }
    }

    fn wrong_of(change: impl FnOnce(&mut Columns)) -> String {
        let mut columns = columns();
        change(&mut columns);
        Arrivals::from_columns(&link(), columns).unwrap_err().to_string()
    }

    /// The same packets as a file and as columns give the same descriptors and the same report.
    #[test]
    fn columns_are_what_a_file_is() {
        let file = "time_ns,class,bytes,id,flow,dscp,ecn,high,segments,tx_queue\n\
            0,a,100,0,x,46,1,0,1,0\n0,b,200,1,y,0,2,1,200,63\n5,a,65535,2,x,63,3,0,65535,1\n";
        let read = Arrivals::read(file.as_bytes(), &link()).unwrap();
        let made = Columns {
            flows: Some(["x", "y", "x"].map(flow_hash).to_vec()),
            dscp: Some(vec![46, 0, 63]),
            ecn: Some(vec![1, 2, 3]),
            high: Some(vec![0, 1, 0]),
            segments: Some(vec![1, 200, 65_535]),
            tx_queues: Some(vec![0, 63, 1]),
            ..columns()
        };
        let made = Arrivals::from_columns(&link(), made).unwrap();
        for at in 0..3 {
            assert_eq!(read.descriptor(at), made.descriptor(at));
            assert_eq!((read.time(at), read.packet(at).0), (made.time(at), made.packet(at).0));
            assert_eq!(read.queue(at, 64), made.queue(at, 64));
        }
        let report = |list: &Arrivals| run(&link(), list, &Options::default(), &mut ()).unwrap();
        assert_eq!(report(&read), report(&made));
        let marked = |dscp, ecn| {
            let made = Columns { dscp, ecn, ..columns() };
            let first = Arrivals::from_columns(&link(), made).unwrap().descriptor(0);
            (first.dscp, first.ecn)
        };
        assert_eq!(marked(Some(vec![9, 0, 0]), None), (9, 0));
        assert_eq!(marked(None, Some(vec![2, 0, 0])), (0, 2));
        let none = Arrivals::from_columns(&link(), Columns::default()).unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_row() {
        let cases: [(String, &str); 9] = [
            (
                wrong_of(|c| c.times[1] = 9),
                "row 2, time_ns: 5 is earlier than 9 in the row before; sort the table by time_ns",
            ),
            (wrong_of(|c| c.classes[1] = 3), "row 1, class: there is no class 3; link wan has classes 0 to 2"),
            (wrong_of(|c| c.bytes[0] = 0), "row 0, bytes: 0 is not a whole number from 1 to 65535"),
            (wrong_of(|c| c.bytes[2] = 65_536), "row 2, bytes: 65536 is not a whole number from 1 to 65535"),
            (wrong_of(|c| c.dscp = Some(vec![0, 64, 0])), "row 1, dscp: 64 is not a whole number from 0 to 63"),
            (wrong_of(|c| c.ecn = Some(vec![4, 0, 0])), "row 0, ecn: 4 is not a whole number from 0 to 3"),
            (
                wrong_of(|c| c.segments = Some(vec![101, 1, 1])),
                "row 0, segments: 101 is not a whole number from 1 to 100",
            ),
            (
                wrong_of(|c| c.tx_queues = Some(vec![0, 0, 64])),
                "row 2, tx_queue: 64 is not a whole number from 0 to 63",
            ),
            (
                wrong_of(|c| c.flows = Some(vec![1])),
                "column flow has 1 values, and time_ns has 3; each packet needs one of each",
            ),
        ];
        for (said, expected) in cases {
            assert_eq!(said, expected);
        }
    }
}
