//! Bandwidth, asked of `altq run` by its control socket (docs/reserve.md).
//!
//! After a call that altq does not answer it is not asked for a second, or for four times as long
//! as was waited: an altq that hangs costs a fifth of the daemon's time. A reservation that cannot
//! be refreshed then is kept: it lives in altq up to its deadline, and if altq has lost it,
//! [`Altq::missing`] finds out when it is back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use altq_control::client::{Client, NoFields, open_at_once};
use altq_control::line::Lines;
use altq_control::{Code, Fault};
use altq_reserve::{OnWire, Service, Tspec};
use altq_rsvp::node::{Admission, Granted, Offer, Refused, Reservation};
use altq_rsvp::wire::{LATENCY_UNKNOWN, code};
use serde::{Deserialize, Serialize};

use crate::log::Say;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long altq is not asked at least after it has not answered.
const PAUSE: Duration = Duration::from_secs(1);
/// How long what could be reserved is taken to be the same.
const FRESH: Duration = Duration::from_secs(5);
/// The longest line of an event that is read.
const LINE: usize = 64 << 10;

/// A reservation that altq has taken away by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawn {
    /// Its key.
    pub key: String,
    /// The code of the error that its next hops are told.
    pub code: u8,
}

/// altq's reservations, and what happens to them.
pub struct Altq {
    path: PathBuf,
    /// The class below which reservations for an interface are made.
    classes: BTreeMap<u32, Option<String>>,
    client: Option<Client>,
    /// Until when altq is not asked.
    paused: Option<Instant>,
    /// altq's numbers and classes of the reservations that this daemon has made.
    numbers: BTreeMap<String, (u64, String)>,
    /// Reservations that were given up while altq did not answer: they are given up when it does.
    owed: BTreeSet<String>,
    offers: BTreeMap<u32, (Instant, Option<Left>)>,
    /// The connection on which altq tells what happens, with what has come of the next line.
    watch: Option<(UnixStream, Lines)>,
    /// Whether altq has answered when it was asked last. None: it was not asked yet.
    answers: Option<bool>,
    /// Told when altq does not answer any more.
    say: Say,
}

/// What a reservation is asked for with.
#[derive(Serialize)]
struct Asked<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within_class: Option<&'a str>,
    service: Service,
    ttl_s: f64,
    flows: Vec<Flow>,
    tspec: Tspec,
}

/// A flow; port 0 stands for any.
#[derive(Serialize)]
struct Flow {
    src: IpAddr,
    sport: u16,
    dst: IpAddr,
    dport: u16,
    proto: u8,
}

#[derive(Serialize)]
struct Again<'a> {
    key: &'a str,
    ttl_s: f64,
}

#[derive(Serialize)]
struct Named<'a> {
    key: &'a str,
}

#[derive(Serialize)]
struct Within<'a> {
    within_class: &'a str,
}

/// An answer (`altq.reserve/1`).
#[derive(Deserialize)]
struct Answer {
    granted: bool,
    id: Option<u64>,
    class: Option<String>,
    charged_bit_s: Option<u64>,
    reason: Option<String>,
    would_fit_bit_s: Option<u64>,
    rsvp_code: Option<u8>,
    rsvp_value: Option<u16>,
}

#[derive(Deserialize)]
struct Places {
    places: Vec<Place>,
}

/// A class for reservations (`altq.reservations/1`).
#[derive(Deserialize)]
struct Place {
    /// An altq that runs since before an upgrade tells neither this nor the next.
    mtu_bytes: Option<u32>,
    overhead: Option<OnWire>,
    reservable_bit_s: u64,
    charged_bit_s: u64,
    reservations: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    key: Option<String>,
}

/// An event (`altq.reserve-event/1`), or a reply, which has `ok` and none of the others.
#[derive(Deserialize)]
struct Told {
    ok: Option<bool>,
    event: Option<String>,
    id: Option<u64>,
    key: Option<String>,
}

/// What is left below a class.
#[derive(Clone, Copy)]
struct Left {
    /// On the wire.
    bit_s: u64,
    /// The link's MTU, and what it charges for a packet.
    link: Option<(u32, OnWire)>,
}

impl Left {
    fn below(place: &Place) -> Left {
        let bit_s = place.reservable_bit_s.saturating_sub(place.charged_bit_s);
        Left { bit_s, link: place.mtu_bytes.zip(place.overhead) }
    }

    /// The most bytes of IP a second that this carries of a sender with these sizes of packets.
    fn fits(&self, sender: &altq_rsvp::wire::Tspec) -> f32 {
        let (min_unit_bytes, max_packet_bytes) = (Some(sender.min_unit), Some(sender.max_packet));
        let sizes = Tspec { rate_bit_s: 1, burst_bytes: 1, peak_bit_s: None, min_unit_bytes, max_packet_bytes };
        let fits = self.link.map(|(mtu, overhead)| overhead.cost(&sizes, mtu).fits(self.bit_s));
        fits.unwrap_or(self.bit_s) as f32 / 8.0
    }
}

impl Altq {
    /// Reservations by the altq with this control socket, below these classes. Nothing is asked
    /// yet.
    pub fn new(path: PathBuf, classes: BTreeMap<u32, Option<String>>, say: Say) -> Altq {
        Altq {
            path,
            classes,
            client: None,
            paused: None,
            numbers: BTreeMap::new(),
            owed: BTreeSet::new(),
            offers: BTreeMap::new(),
            watch: None,
            answers: None,
            say,
        }
    }

    /// Asks altq.
    fn ask(&mut self, op: &str, fields: &impl Serialize) -> Result<String, Fault> {
        let now = Instant::now();
        if self.paused.is_some_and(|until| now < until) {
            return Err(Fault::new(Code::Failed, "altq does not answer"));
        }
        let answer = self.try_ask(op, fields);
        let lost = answer.as_ref().is_err_and(|fault| fault.code == Code::Failed);
        self.paused = lost.then(|| Instant::now() + PAUSE.max(4 * now.elapsed()));
        if lost {
            self.client = None;
        }
        if self.answers.replace(!lost) != Some(false)
            && lost
            && let Err(fault) = &answer
        {
            (self.say)(&format!("nothing can be reserved: {fault}"));
        }
        answer
    }

    /// Asks once, and once more by a new connection if that of before is closed: altq may have been
    /// started anew.
    fn try_ask(&mut self, op: &str, fields: &impl Serialize) -> Result<String, Fault> {
        if let Some(client) = &mut self.client {
            match client.ask(op, fields) {
                Err(fault) if fault.code == Code::Failed => self.client = None,
                answer => return answer,
            }
        }
        let client = Client::connect_at_once(&self.path)?.patient(PATIENCE);
        let client = client.map_err(|error| Fault::new(Code::Failed, error.to_string()))?;
        self.client.insert(client).ask(op, fields)
    }

    /// Asks for a reservation or its change.
    fn put(&mut self, op: &str, reservation: &Reservation, owner: Option<&str>) -> Result<Granted, Refused> {
        let Some(class) = self.classes.get(&reservation.interface).cloned().flatten() else {
            return Err(Refused::bandwidth("the interface has no class for reservations"));
        };
        let flow = |key: &altq_rsvp::node::FlowKey| Flow {
            src: key.src,
            sport: key.sport,
            dst: key.dst,
            dport: key.dport,
            proto: key.proto,
        };
        let asked = Asked {
            key: &reservation.key,
            owner,
            within_class: Some(&class),
            service: Service::ControlledLoad,
            ttl_s: seconds(reservation.ttl_ns),
            flows: reservation.flows.iter().map(flow).collect(),
            tspec: Tspec {
                rate_bit_s: reservation.rate_bit_s(),
                burst_bytes: reservation.burst_bytes(),
                peak_bit_s: reservation.peak_bit_s(),
                min_unit_bytes: Some(reservation.tspec.min_unit),
                max_packet_bytes: Some(reservation.tspec.max_packet),
            },
        };
        let json = self.ask(op, &asked).map_err(failed)?;
        self.owed.remove(&reservation.key);
        let answer = read(&json)?;
        if !answer.granted {
            let reason = answer.reason.unwrap_or_default();
            let code = answer.rsvp_code.unwrap_or(code::TRAFFIC_CONTROL_SYSTEM);
            let refused = Refused::new(code, answer.rsvp_value.unwrap_or(0), &reason);
            return Err(Refused { would_fit_bit_s: answer.would_fit_bit_s, ..refused });
        }
        let class = answer.class.unwrap_or_default();
        if let Some(number) = answer.id {
            self.numbers.insert(reservation.key.clone(), (number, class.clone()));
        }
        Ok(Granted { class, charged_bit_s: answer.charged_bit_s.unwrap_or(0) })
    }

    /// The class of the reservation with a key.
    pub fn class(&self, key: &str) -> Option<&str> {
        self.numbers.get(key).map(|(_, class)| class.as_str())
    }

    /// What is left below a class.
    fn left(&mut self, class: &str) -> Option<Left> {
        let json = self.ask("reserve.list", &Within { within_class: class }).ok()?;
        let listed: Places = serde_json::from_str(&json).ok()?;
        let place = listed.places.first()?;
        Some(Left::below(place))
    }

    /// The keys of all reservations that altq has. None if it does not answer.
    fn keys(&mut self) -> Option<BTreeSet<String>> {
        let json = self.ask("reserve.list", &NoFields {}).ok()?;
        let listed: Places = serde_json::from_str(&json).ok()?;
        let all = listed.places.into_iter().flat_map(|place| place.reservations);
        Some(all.filter_map(|listed| listed.key).collect())
    }

    /// The connection on which altq tells what happens, to wait for.
    pub fn told(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(|(stream, _)| stream.as_fd())
    }

    /// Connects to be told what happens, if that is not so already. If altq has been away since,
    /// returns the keys that it has now: others are lost.
    pub fn missing(&mut self) -> Option<BTreeSet<String>> {
        if self.watch.is_some() || self.paused.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let mut stream = open_at_once(&self.path).ok()?;
        // A line so short fits into the buffer of a new connection.
        stream.write_all(b"{\"v\":1,\"id\":1,\"op\":\"reserve.watch\"}\n").ok()?;
        self.watch = Some((stream, Lines::default()));
        let keys = self.keys();
        if keys.is_none() {
            // It is asked again when the connection is made anew.
            self.watch = None;
        }
        keys
    }

    /// Takes what altq has told: the reservations that it has taken away.
    pub fn take(&mut self) -> Vec<Withdrawn> {
        if !self.owed.is_empty() && self.paused.is_none_or(|until| Instant::now() >= until) {
            for key in std::mem::take(&mut self.owed) {
                self.del(0, &key);
            }
        }
        let Some((stream, lines)) = &mut self.watch else { return Vec::new() };
        let mut told: Vec<Told> = Vec::new();
        let mut piece = [0_u8; 16 << 10];
        let mut open = true;
        for _ in 0..64 {
            match stream.read(&mut piece) {
                Ok(0) => open = false,
                Ok(count) => lines.push(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => open = false,
            }
            // A line that is too long is none of ours.
            while let Some(line) = lines.take(LINE).unwrap_or(None) {
                told.extend(serde_json::from_slice::<Told>(&line).ok());
            }
            // A supervisor whose worker is away does not tell anything.
            if !open || told.iter().any(|told| told.ok == Some(false)) {
                self.watch = None;
                break;
            }
        }
        told.into_iter().filter_map(|told| self.withdrawn(told)).collect()
    }

    /// What an event says of a reservation of this daemon's. One that it has given up itself, or
    /// that has another number by now, is not meant.
    fn withdrawn(&mut self, told: Told) -> Option<Withdrawn> {
        let code = match told.event.as_deref()? {
            "preempted" | "deleted" => code::PREEMPTED,
            "expired" => code::TRAFFIC_CONTROL_SYSTEM,
            _ => return None,
        };
        let key = told.key?;
        if self.numbers.get(&key).map(|(number, _)| *number) != told.id {
            return None;
        }
        self.numbers.remove(&key);
        Some(Withdrawn { key, code })
    }
}

impl Admission for Altq {
    fn add(&mut self, _now: u64, reservation: &Reservation) -> Result<Granted, Refused> {
        let owner = Some(reservation.owner.as_str());
        match self.put("reserve.add", reservation, owner) {
            // It is there since before a restart of this daemon, and was another neighbour's then.
            Err(refused) if refused.code == code::TRAFFIC_CONTROL_SYSTEM && self.answers == Some(true) => {
                self.del(0, &reservation.key);
                self.put("reserve.add", reservation, owner)
            }
            result => result,
        }
    }

    fn modify(&mut self, _now: u64, reservation: &Reservation) -> Result<Granted, Refused> {
        // Without an owner: whoever asked for it first, it is this daemon's to change.
        self.put("reserve.modify", reservation, None)
    }

    fn refresh(&mut self, _now: u64, key: &str, ttl_ns: u64) -> Result<(), Refused> {
        match self.ask("reserve.refresh", &Again { key, ttl_s: seconds(ttl_ns) }) {
            Ok(json) => {
                let answer = read(&json)?;
                if answer.granted {
                    Ok(())
                } else {
                    Err(Refused::new(code::TRAFFIC_CONTROL_SYSTEM, 0, &answer.reason.unwrap_or_default()))
                }
            }
            // altq is away, not the reservation.
            Err(fault) if fault.code == Code::Failed => Ok(()),
            Err(fault) => Err(failed(fault)),
        }
    }

    fn del(&mut self, _now: u64, key: &str) {
        self.numbers.remove(key);
        if self.ask("reserve.del", &Named { key }).is_err_and(|fault| fault.code == Code::Failed) {
            self.owed.insert(key.to_owned());
        }
    }

    fn offer(&mut self, interface: u32, sender: &altq_rsvp::wire::Tspec) -> Offer {
        let now = Instant::now();
        let known = self.offers.get(&interface).copied();
        let left = match known {
            Some((at, left)) if now < at + FRESH => left,
            _ => {
                let class = self.classes.get(&interface).cloned().flatten();
                let left = class.and_then(|class| self.left(&class)).or(known.and_then(|(_, left)| left));
                self.offers.insert(interface, (now, left));
                left
            }
        };
        Offer { bandwidth: left.map_or(0.0, |left| left.fits(sender)), latency_us: LATENCY_UNKNOWN }
    }
}

/// altq cannot do it, or does not answer: 22/00.
fn failed(fault: Fault) -> Refused {
    Refused::new(code::TRAFFIC_CONTROL_SYSTEM, 0, &fault.to_string())
}

fn read(json: &str) -> Result<Answer, Refused> {
    serde_json::from_str(json).map_err(|error| {
        Refused::new(code::TRAFFIC_CONTROL_SYSTEM, 0, &format!("altq's answer cannot be read ({error})"))
    })
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_about_the_reservation_that_is_there_now() {
        let mut altq = Altq::new(PathBuf::from("/nonexistent/altq.sock"), BTreeMap::new(), |_| ());
        altq.numbers.insert("rsvp:a".to_owned(), (4, "res.4".to_owned()));
        assert_eq!(altq.class("rsvp:a"), Some("res.4"));
        let told = |event: &str, id: u64| Told {
            ok: None,
            event: Some(event.to_owned()),
            id: Some(id),
            key: Some("rsvp:a".to_owned()),
        };
        assert_eq!(altq.withdrawn(told("granted", 4)), None);
        assert_eq!(altq.withdrawn(told("expired", 3)), None, "an older one of the same name");
        let gone = altq.withdrawn(told("preempted", 4)).unwrap();
        assert_eq!((gone.key.as_str(), gone.code), ("rsvp:a", 12));
        assert_eq!(altq.withdrawn(told("preempted", 4)), None, "once");
    }

    /// RFC 2215 3.3: bytes of IP. On an Ethernet wire 128 bytes cost 166, so of 648,437 bit/s there
    /// 499,999 fit.
    #[test]
    fn what_fits_is_told_in_bytes_of_ip() {
        let list = r#"{"places":[{"schema":"altq.reservations/1","link":"wan","class":"res","mtu_bytes":1500,
            "overhead":{"bytes":38,"mpu_bytes":84,"framing":"plain"},"reservable_bit_s":1000000,
            "charged_bit_s":351563,"buffer_bytes":75000,"burst_bytes":10000,"reservations":[]}]}"#;
        let places: Places = serde_json::from_str(list).unwrap();
        let left = Left::below(&places.places[0]);
        let sender = altq_rsvp::wire::Tspec {
            rate: 62_500.0,
            burst: 10_000.0,
            peak: f32::INFINITY,
            min_unit: 128,
            max_packet: 1500,
        };
        assert_eq!((left.bit_s, left.fits(&sender)), (648_437, 499_999.0 / 8.0));
    }

    #[test]
    fn without_altq_nothing_is_granted_and_what_is_there_is_kept() {
        let classes = BTreeMap::from([(1, Some("res".to_owned())), (2, None)]);
        let mut altq = Altq::new(PathBuf::from("/nonexistent/altq.sock"), classes, |_| ());
        let tspec = altq_rsvp::wire::Tspec {
            rate: 62_500.0,
            burst: 10_000.0,
            peak: f32::INFINITY,
            min_unit: 128,
            max_packet: 1500,
        };
        let mut asked = Reservation {
            key: "rsvp:a".to_owned(),
            owner: "rsvp:10.0.0.1".to_owned(),
            interface: 1,
            ttl_ns: 157_500_000_000,
            flows: Vec::new(),
            tspec,
            police: Default::default(),
        };
        assert_eq!(altq.add(0, &asked).unwrap_err().code, 22);
        assert!(altq.refresh(0, "rsvp:a", 1).is_ok());
        altq.del(0, "rsvp:a");
        assert_eq!(altq.offer(1, &tspec).bandwidth, 0.0);
        asked.interface = 2;
        let refused = altq.add(0, &asked).unwrap_err();
        assert_eq!((refused.code, refused.value), (1, 2));
    }
}
