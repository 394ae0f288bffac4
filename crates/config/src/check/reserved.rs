//! The class below which reservations go: what is left for them, and whether its scheduler takes
//! them.

use altq_engine::schedule::Entry;
use altq_engine::settings::Limit;
use altq_engine::units::Rate;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;
use crate::promise::Promises;

impl Link {
    /// What the bursts of all reservations may add up to, in bytes at layer 3: as written, or what
    /// the queue of their class holds. 0 for a link without a class for reservations.
    pub fn reservation_buffer(&self) -> u64 {
        let Some(reservations) = &self.reservations else { return 0 };
        reservations.settings.bytes("buffer").unwrap_or_else(|| {
            match self.queue(reservations.class).map(|queue| queue.limit) {
                Some(Limit::Packets(packets)) => u64::from(packets) * u64::from(self.spec.mtu),
                Some(Limit::Bytes(bytes)) => u64::from(bytes),
                None => 0,
            }
        })
    }

    /// Bytes that the queues of all reservations may hold together, for which a link that runs
    /// makes room at its start. A queue holds a burst, a packet, and what comes in the longest wait
    /// (docs/reserve.md). A packet is taken as no longer than the burst; whoever asks for longer
    /// ones needs room of others. 0 for a link without a class for reservations.
    pub fn reservation_room(&self) -> u64 {
        let Some(reservations) = &self.reservations else { return 0 };
        let (buffer, rate) = (self.reservation_buffer(), self.reservable());
        let meanwhile = match reservations.delay() {
            Some(wait) => rate.bytes_in(wait),
            None => buffer,
        };
        // And one packet, so that there is room for a reservation in the smallest buffer.
        buffer.saturating_mul(2).saturating_add(meanwhile).saturating_add(u64::from(self.spec.mtu))
    }

    /// What all reservations may be guaranteed together: what their class can count on, less what
    /// the policy's own classes below it are guaranteed. 0 for a link without a class for
    /// reservations.
    pub fn reservable(&self) -> Rate {
        let Some(reservations) = &self.reservations else { return Rate::ZERO };
        let whole = Promises::new(self).guaranteed(reservations.class).unwrap_or_default().as_bit_s();
        let children = self.children();
        let below = children.get(reservations.class as usize).into_iter().flatten();
        let taken = below.map(|child| self.guarantee(*child).unwrap_or_default().as_bit_s());
        Rate::bit_s(whole.saturating_sub(taken.fold(0, u64::saturating_add)))
    }
}

/// Checks the class for reservations: its scheduler must take them, and must be the link's own.
/// Then it must promise what the words ask for.
pub(crate) fn check(link: &Link, findings: &mut Findings) {
    let Some(reservations) = &link.reservations else { return };
    let class = reservations.class;
    let name = link.class_name(class);
    let entry: Option<&Entry> = link.entry_of(class);
    let mut error = |code, span, message: String, help: &str| {
        findings.push(Diagnostic::error(code, span, message).help(help));
    };
    let holds = link.spec.classes.get(class as usize).is_some_and(|spec| spec.scheduler.is_some());
    if holds || !link.spec.served_by_root(class) {
        let message = format!("reservations below `{name}` would be served by a scheduler inside a class");
        return error("wrong-class", reservations.span, message, "write it in a class of the link's own scheduler");
    }
    let Some(entry) = entry.filter(|entry| entry.reservation.is_some()) else {
        let takes: Vec<&str> =
            altq_engine::schedule::all().filter(|e| e.reservation.is_some()).map(|e| e.name).collect();
        let message = format!("{} takes no reservations", entry.map_or("its scheduler", |entry| entry.name));
        return error("wrong-scheduler", reservations.span, message, &format!("these do: {}", takes.join(", ")));
    };
    if reservations.delay().is_some() {
        let why = (entry.no_bound)(&link.spec.scheduler.settings);
        if let Some(why) = why {
            return error("no-bound", reservations.place("delay"), why.to_owned(), "leave `delay` out");
        }
        if reservations.delay() == Some(0) {
            let message = "no packet waits for no time".to_owned();
            return error("out-of-range", reservations.place("delay"), message, "as `delay 50ms`");
        }
    }
    if reservations.lifetime() == Some(0) {
        let message = "a reservation of no time is none".to_owned();
        return error("out-of-range", reservations.place("lifetime"), message, "as `lifetime 600s`");
    }
    if link.reservable().is_zero() {
        let message = format!("nothing can be reserved below `{name}`: it has no rate that no class below it has");
        let warning = Diagnostic::warning("nothing-to-reserve", reservations.span, message);
        findings.push(warning.help("give the class a share, or leave `reservations` out"));
    }
}
