//! The sockets of the listed interfaces, and what the host says of these.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use altq_dataplane::Interface;
use altq_dataplane::raw::{self, Kind};
use altq_dataplane::routes::{Kernel, Own};
use altq_rsvp::node::{Arrived, Transmit};

use crate::packet::{self, PROTOCOL, Packet};
use crate::settings::{Listed, Present};

/// An interface, and what is wrong with it.
pub type Failed = (String, io::Error);

/// The largest IP packet.
const PACKET: usize = 1 << 16;

/// The sockets of an interface.
struct Port {
    index: u32,
    four: Option<Four>,
    six: Option<Six>,
}

struct Four {
    receives: OwnedFd,
    sends: OwnedFd,
}

struct Six {
    /// What goes to this host.
    receives: OwnedFd,
    /// What passes it; it also sends.
    passing: OwnedFd,
}

/// The sockets of all interfaces.
pub struct Ports {
    ports: Vec<Port>,
    buffer: Vec<u8>,
}

/// Which socket of which interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Which {
    port: usize,
    kind: Kind,
}

/// What the host says of the listed interfaces, in their order.
///
/// # Errors
/// ENODEV and its name if one is not there; a name and a reason if one has no address.
pub fn look(listed: &[Listed], kernel: &mut Kernel) -> Result<Vec<Present>, Failed> {
    let all = kernel.addresses().map_err(|error| ("addresses".to_owned(), error))?;
    listed
        .iter()
        .map(|listed| {
            let failed = |error: io::Error| (listed.name.clone(), error);
            let interface = Interface::find(&listed.name).map_err(failed)?;
            let addresses = own(&all, interface.index);
            if addresses.is_empty() {
                return Err(failed(io::Error::other("it has no address")));
            }
            Ok(Present { index: interface.index, mtu: interface.mtu().map_err(failed)?, addresses })
        })
        .collect()
}

/// The usable addresses of an interface: those that reach farther first, which is where neighbours
/// on the other side of a link look for a router.
fn own(all: &[Own], index: u32) -> Vec<IpAddr> {
    let mut own: Vec<&Own> = all.iter().filter(|own| own.device == index && own.usable).collect();
    // Among equals the kernel's order stays: the first one is its own choice.
    own.sort_by_key(|own| own.scope);
    own.into_iter().map(|own| own.address).collect()
}

impl Ports {
    /// Opens the sockets of the listed interfaces, which are as `present` says.
    ///
    /// # Errors
    /// The interface, and why not.
    pub fn open(listed: &[Listed], present: &[Present]) -> Result<Ports, Failed> {
        let port = |(listed, present): (&Listed, &Present)| {
            let open = |kind: Kind| raw::open(kind, &listed.name).map_err(|error| (listed.name.clone(), error));
            let four = present.addresses.iter().any(IpAddr::is_ipv4).then(|| {
                Ok::<Four, Failed>(Four { receives: open(Kind::Four(PROTOCOL))?, sends: open(Kind::FourOut)? })
            });
            let six = present.addresses.iter().any(IpAddr::is_ipv6).then(|| {
                Ok::<Six, Failed>(Six { receives: open(Kind::Six(PROTOCOL))?, passing: open(Kind::SixPassing)? })
            });
            Ok::<Port, Failed>(Port { index: present.index, four: four.transpose()?, six: six.transpose()? })
        };
        let ports = listed.iter().zip(present).map(port).collect::<Result<_, _>>()?;
        Ok(Ports { ports, buffer: vec![0; PACKET] })
    }

    /// The sockets that receive, to wait for.
    pub fn watched(&self) -> Vec<(Which, BorrowedFd<'_>)> {
        let mut all = Vec::new();
        for (at, port) in self.ports.iter().enumerate() {
            let which = |kind: Kind| Which { port: at, kind };
            if let Some(four) = &port.four {
                all.push((which(Kind::Four(PROTOCOL)), four.receives.as_fd()));
            }
            if let Some(six) = &port.six {
                all.push((which(Kind::Six(PROTOCOL)), six.receives.as_fd()));
                all.push((which(Kind::SixPassing), six.passing.as_fd()));
            }
        }
        all
    }

    /// Takes a packet from a socket, without waiting, and hands its message to `take`. False if
    /// none was there.
    pub fn receive(&mut self, which: Which, take: &mut dyn FnMut(&Arrived<'_>)) -> bool {
        let Some(port) = self.ports.get(which.port) else { return false };
        let socket = match (which.kind, &port.four, &port.six) {
            (Kind::Four(_), Some(four), _) => &four.receives,
            (Kind::Six(_), _, Some(six)) => &six.receives,
            (Kind::SixPassing, _, Some(six)) => &six.passing,
            _ => return false,
        };
        let datagram = match raw::receive(socket, &mut self.buffer) {
            Ok(Some(datagram)) => datagram,
            // Too long for any packet.
            Ok(None) => return true,
            Err(error) => return error.kind() == io::ErrorKind::Interrupted,
        };
        let bytes = self.buffer.get(..datagram.length).unwrap_or_default();
        let packet = match which.kind {
            Kind::Four(_) => packet::read4(bytes),
            Kind::SixPassing => packet::read6(bytes),
            _ => datagram.source.zip(datagram.destination).zip(datagram.hops).map(|((source, destination), ttl)| {
                Packet { source: IpAddr::from(source), destination: IpAddr::from(destination), ttl, message: bytes }
            }),
        };
        // A packet that cannot be read, such as a fragment, counts as a malformed message.
        let nobody = IpAddr::from([0; 4]);
        let unread = Packet { source: nobody, destination: nobody, ttl: 0, message: &[] };
        let Packet { source, destination, ttl, message } = packet.unwrap_or(unread);
        take(&Arrived { interface: port.index, source, destination, ttl, message });
        true
    }

    /// Sends a message. It leaves with the class of network control.
    ///
    /// # Errors
    /// EMSGSIZE if it is longer than the MTU; those of the interface and of routes.
    pub fn send(&self, transmit: &Transmit) -> io::Result<()> {
        let port = self.ports.iter().find(|port| port.index == transmit.interface);
        let socket = port.and_then(|port| match transmit.destination {
            IpAddr::V4(_) => port.four.as_ref().map(|four| &four.sends),
            IpAddr::V6(_) => port.six.as_ref().map(|six| &six.passing),
        });
        let (Some(socket), Some(packet)) = (socket, packet::write(transmit)) else {
            return Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
        };
        raw::send(socket, transmit.destination, &packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_reach_farther_come_first() {
        let one = |device: u32, scope: u8, address: &str, usable: bool| {
            let address = address.parse().unwrap();
            Own { device, scope, address, usable }
        };
        let all = [
            one(2, 253, "fe80::1", true),
            one(2, 0, "10.0.0.1", true),
            one(3, 0, "10.0.3.1", true),
            one(2, 0, "2001:db8::1", false),
            one(2, 0, "10.0.0.2", true),
        ];
        let found: Vec<String> = own(&all, 2).iter().map(IpAddr::to_string).collect();
        assert_eq!(found, ["10.0.0.1", "10.0.0.2", "fe80::1"]);
    }
}
