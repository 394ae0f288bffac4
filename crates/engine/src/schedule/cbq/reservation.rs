//! The class of a reservation: its guarantee, and a credit that holds the whole burst.

use crate::schedule::Reserved;
use crate::settings::{Settings, Value};

/// The most that `maxburst` and `packetsize` take.
const MOST: u64 = 65_535;

/// The words of a class that holds a reservation. It has the priority of the class above it. Its
/// burst is whole packets of the reservation's largest, at least as many bytes as were asked for.
///
/// # Errors
/// Where the burst is more than 65535 such packets.
pub fn words(reserved: &Reserved<'_>) -> Result<Settings, String> {
    let size = u64::from(reserved.packet).clamp(1, MOST);
    let packets = reserved.burst.div_ceil(size).max(1);
    if packets > MOST {
        return Err(format!("{} bytes at once are more than {MOST} packets of {size} bytes", reserved.burst));
    }
    let mut words = Settings::new().with("rate", Value::Rate(reserved.rate));
    if reserved.borrows {
        words.set("borrow", Value::Flag);
    }
    if let Some(priority) = reserved.parent.get("priority") {
        words.set("priority", priority);
    }
    words.set("packetsize", Value::Bytes(size)).set("maxburst", Value::Int(packets));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    #[test]
    fn the_burst_is_whole_packets_by_hand() {
        let parent = Settings::new().with("priority", Value::Int(6));
        let asked = |burst, packet| Reserved { parent: &parent, rate: Rate::kbit_s(649), burst, packet, borrows: true };
        // 12,969 bytes are more than eight packets of 1500, 12,000.
        let made = words(&asked(12_969, 1500)).unwrap();
        assert_eq!((made.int("maxburst"), made.bytes("packetsize")), (Some(9), Some(1500)));
        assert_eq!((made.int("priority"), made.rate("rate")), (Some(6), Some(Rate::kbit_s(649))));
        assert!(made.flag("borrow"));
        // 65535 packets of 100 bytes are 6,553,500.
        assert_eq!(words(&asked(6_553_500, 100)).unwrap().int("maxburst"), Some(65_535));
        assert!(words(&asked(6_553_501, 100)).unwrap_err().contains("65535 packets"));
        assert!(!words(&Reserved { borrows: false, ..asked(1, 1) }).unwrap().flag("borrow"));
    }
}
