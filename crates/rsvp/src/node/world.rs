//! What the state machine asks of the world around it: routes, bandwidth, random numbers.

use std::net::IpAddr;

use crate::wire::{Select, Sender, Session, Tspec, admission, code, traffic};

/// The world, as an argument of every call that may act.
pub struct World<'a> {
    /// Routes.
    pub routes: &'a mut dyn Routes,
    /// Bandwidth.
    pub admission: &'a mut dyn Admission,
    /// 64 random bits, evenly distributed. They spread refreshes in time, and are the cookies of
    /// handshakes, so a node on a network takes them from the kernel.
    pub random: &'a mut dyn FnMut() -> u64,
}

/// Where packets to an address go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By this interface, by its number in [`super::Interface::id`], to the destination itself.
    Interface(u32),
    /// By this interface, to this router.
    Gateway(u32, IpAddr),
    /// The address is this host's.
    Local,
    /// There is no route, or it leads to an interface that is not listed.
    Nowhere,
}

impl Route {
    /// The interface that packets leave by, and the router that they go to, if it is not their
    /// destination.
    pub(super) fn by(self) -> Option<(u32, Option<IpAddr>)> {
        match self {
            Route::Interface(id) => Some((id, None)),
            Route::Gateway(id, gateway) => Some((id, Some(gateway))),
            Route::Local | Route::Nowhere => None,
        }
    }
}

/// The kernel's routes.
pub trait Routes {
    /// The route to a destination, as the kernel's own lookup says.
    fn route(&mut self, to: IpAddr) -> Route;
}

/// A reservation, in the terms of the interface that the daemon offers (`altq reserve`).
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// Names it: the same key is the same reservation.
    pub key: String,
    /// The neighbour that asked for it.
    pub owner: String,
    /// The interface that its packets leave by.
    pub interface: u32,
    /// How long it lives without [`Admission::refresh`], nanoseconds.
    pub ttl_ns: u64,
    /// Its packets: one entry for each sender, all with the same destination.
    pub flows: Vec<FlowKey>,
    /// Their traffic.
    pub tspec: Tspec,
    /// Where it is to be policed (RFC 2205 3.11.2).
    pub police: Police,
}

/// The five values that tell a flow's packets from others. Port 0 stands for every port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Source address.
    pub src: IpAddr,
    /// Source port.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port.
    pub dport: u16,
    /// IP protocol.
    pub proto: u8,
}

impl FlowKey {
    /// The packets of a sender to a session. None if they are told apart by flow label, which the
    /// interface has no word for.
    pub fn new(session: &Session, sender: &Sender) -> Option<FlowKey> {
        let Select::Port(sport) = sender.select else {
            return None;
        };
        let (dst, dport, proto) = (session.address, session.port, session.protocol);
        Some(FlowKey { src: sender.address, sport, dst, dport, proto })
    }
}

/// Police flags of traffic control (RFC 2205 3.8, 3.11.2). The third one, a branch point, comes
/// with multicast: with one next hop for each sender it is never set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Police {
    /// The edge, where traffic comes from its sender's host.
    pub edge: bool,
    /// A point where traffic of several senders that share a reservation meets.
    pub merge: bool,
}

impl Reservation {
    /// r in bit/s, rounded up. A rate beyond what 64 bits hold is the largest one.
    pub fn rate_bit_s(&self) -> u64 {
        whole(f64::from(self.tspec.rate) * 8.0)
    }

    /// p in bit/s, rounded up; None if it is infinite.
    pub fn peak_bit_s(&self) -> Option<u64> {
        self.tspec.peak.is_finite().then(|| whole(f64::from(self.tspec.peak) * 8.0))
    }

    /// b in bytes, rounded up.
    pub fn burst_bytes(&self) -> u64 {
        whole(f64::from(self.tspec.burst))
    }
}

/// The next whole number. A conversion by `as` takes values out of range to the nearest number that
/// is in range, and what is no number to 0.
fn whole(value: f64) -> u64 {
    value.ceil() as u64
}

/// What was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The class of the packets.
    pub class: String,
    /// The rate that is charged for it, bit/s, link headers included.
    pub charged_bit_s: u64,
}

/// What was refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The code of ERROR_SPEC.
    pub code: u8,
    /// Its value.
    pub value: u16,
    /// Where it does not fit, or another reason, for logs.
    pub reason: String,
    /// A rate that would fit, bit/s, if that is known.
    pub would_fit_bit_s: Option<u64>,
}

impl Refused {
    /// A refusal without a rate that would fit.
    pub fn new(code: u8, value: u16, reason: &str) -> Refused {
        Refused { code, value, reason: reason.to_owned(), would_fit_bit_s: None }
    }

    /// There is not enough bandwidth: 01/02.
    pub fn bandwidth(reason: &str) -> Refused {
        Refused::new(code::ADMISSION, admission::BANDWIDTH, reason)
    }

    /// The largest packet does not fit: 01/03.
    pub fn mtu(reason: &str) -> Refused {
        Refused::new(code::ADMISSION, admission::MTU, reason)
    }

    /// The service is not offered: 21/02.
    pub fn service(reason: &str) -> Refused {
        Refused::new(code::TRAFFIC_CONTROL, traffic::UNSUPPORTED, reason)
    }

    /// A flowspec with values out of range: 21/03.
    pub fn flowspec(reason: &str) -> Refused {
        Refused::new(code::TRAFFIC_CONTROL, traffic::BAD_FLOWSPEC, reason)
    }
}

/// What this hop could give to a new reservation, for Adspecs (RFC 2215 3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Bandwidth that fits now, bytes of IP per second (RFC 2215 3.3).
    pub bandwidth: f32,
    /// The least latency, microseconds; `wire::LATENCY_UNKNOWN` if it is not known.
    pub latency_us: u32,
}

/// Traffic control, by the interface of `altq reserve`. Every call is answered at once.
pub trait Admission {
    /// Makes a reservation.
    ///
    /// # Errors
    /// It does not fit, or may not be: then nothing is reserved.
    fn add(&mut self, now: u64, reservation: &Reservation) -> Result<Granted, Refused>;

    /// Changes the reservation with this key in one step.
    ///
    /// # Errors
    /// The change does not fit: then the reservation is what it was before.
    fn modify(&mut self, now: u64, reservation: &Reservation) -> Result<Granted, Refused>;

    /// Prolongs a reservation.
    ///
    /// # Errors
    /// There is none with this key, as after a restart of the daemon.
    fn refresh(&mut self, now: u64, key: &str, ttl_ns: u64) -> Result<(), Refused>;

    /// Takes a reservation away. It is not an error that there is none.
    fn del(&mut self, now: u64, key: &str);

    /// What could be reserved on an interface for a sender with these sizes of packets.
    fn offer(&mut self, interface: u32, sender: &Tspec) -> Offer;
}
