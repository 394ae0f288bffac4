//! The configuration file of `altq rsvpd` (docs/rsvp.md): interfaces, neighbours, keys, limits.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use altq_config::literal;
use altq_reserve::MOST_FLOWS;
use altq_rsvp::integrity::{Algorithm, Key};
use altq_rsvp::node::{Config, Interface, Limits, Neighbour, Prefix};
use serde::Deserialize;

/// The refresh period where the file says none (RFC 2205 3.7), milliseconds.
const REFRESH_MS: u32 = 30_000;

/// What the file says.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The interfaces that speak RSVP.
    pub interfaces: Vec<Listed>,
    /// Destinations for whose hosts this one answers Paths.
    pub receiver_proxy: Vec<Prefix>,
    /// Whether sessions with destination port 0 are taken.
    pub port_zero: bool,
    /// Limits.
    pub limits: Limits,
}

/// An interface that speaks RSVP.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The class of the policy below which reservations for what leaves by it are made, `CLASS` or
    /// `LINK/CLASS`. None: nothing can be reserved there.
    pub class: Option<String>,
    /// Milliseconds between refreshes that are sent by it.
    pub refresh_ms: u32,
    /// Who is believed there.
    pub neighbours: Vec<Neighbour>,
    /// The key of messages that leave by it.
    pub sign: Option<Key>,
}

/// What the host says of an interface that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Its index.
    pub index: u32,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Its addresses, that for messages first.
    pub addresses: Vec<IpAddr>,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// Says what is wrong, and where.
    pub fn open(path: &Path) -> Result<Settings, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let secret = |file: &Path| {
            let found = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
            // Editors end a file with a newline, which is none of the secret.
            Ok(found.strip_suffix(b"\n").unwrap_or(&found).to_vec())
        };
        Settings::read(&text, &secret).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Reads the text of a file. `secret` reads the file of a key.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn read(text: &str, secret: &dyn Fn(&Path) -> Result<Vec<u8>, String>) -> Result<Settings, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if written.interface.is_empty() {
            return Err("no interface is listed; `[[interface]]` with `name = \"eth0\"` lists one".to_owned());
        }
        let mut keys: Vec<Key> = Vec::new();
        for key in written.key {
            let key = key.key(secret)?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(format!("key {} is given twice", key.id));
            }
            keys.push(key);
        }
        let refresh_ms = written.refresh.as_deref().map_or(Ok(REFRESH_MS), milliseconds)?;
        let mut interfaces: Vec<Listed> = Vec::new();
        for interface in written.interface {
            if interfaces.iter().any(|other| other.name == interface.name) {
                return Err(format!("interface {} is given twice", interface.name));
            }
            let name = interface.name.clone();
            interfaces.push(interface.listed(&keys, refresh_ms).map_err(|why| format!("interface {name}: {why}"))?);
        }
        let receiver_proxy = written.receiver_proxy.iter().map(|text| prefix(text)).collect::<Result<_, _>>()?;
        let settings =
            Settings { interfaces, receiver_proxy, port_zero: written.port_zero, limits: written.limits.limits()? };
        // What the state machine checks, with interfaces as they might be.
        let present = |(at, _): (usize, &Listed)| Present {
            index: u32::try_from(at + 1).unwrap_or(u32::MAX),
            mtu: 1500,
            addresses: vec![IpAddr::from([192, 0, 2, 1])],
        };
        let present: Vec<Present> = settings.interfaces.iter().enumerate().map(present).collect();
        settings.config(&present, 1).check().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    /// What the state machine is told, if the listed interfaces are as `present` says, in the same
    /// order.
    pub fn config(&self, present: &[Present], first_sequence: u64) -> Config {
        let interface = |(listed, present): (&Listed, &Present)| Interface {
            id: present.index,
            name: listed.name.clone(),
            addresses: present.addresses.clone(),
            mtu: present.mtu,
            refresh_ms: listed.refresh_ms,
            neighbours: listed.neighbours.clone(),
            sign: listed.sign.clone(),
        };
        Config {
            interfaces: self.interfaces.iter().zip(present).map(interface).collect(),
            receiver_proxy: self.receiver_proxy.clone(),
            port_zero: self.port_zero,
            first_sequence,
            limits: self.limits,
        }
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    refresh: Option<String>,
    #[serde(default)]
    receiver_proxy: Vec<String>,
    #[serde(default)]
    port_zero: bool,
    #[serde(default)]
    interface: Vec<WrittenInterface>,
    #[serde(default)]
    key: Vec<WrittenKey>,
    #[serde(default)]
    limits: WrittenLimits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenInterface {
    name: String,
    class: Option<String>,
    refresh: Option<String>,
    sign: Option<u64>,
    #[serde(default)]
    neighbours: Vec<WrittenNeighbour>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenNeighbour {
    Address(String),
    Keyed(Keyed),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keyed {
    address: String,
    #[serde(default)]
    keys: Vec<u64>,
    #[serde(default)]
    handshake: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenKey {
    id: u64,
    algorithm: WrittenAlgorithm,
    secret: Option<String>,
    secret_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Deserialize)]
enum WrittenAlgorithm {
    #[serde(rename = "hmac-md5")]
    Md5,
    #[serde(rename = "hmac-sha256")]
    Sha256,
    #[serde(rename = "hmac-sha384")]
    Sha384,
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenLimits {
    sessions: Option<usize>,
    senders: Option<usize>,
    paths: Option<usize>,
    neighbour_paths: Option<usize>,
    reservations: Option<usize>,
    neighbour_reservations: Option<usize>,
    messages: Option<u64>,
    open_messages: Option<u64>,
    unknown_messages: Option<u64>,
    change: Option<String>,
    repair: Option<String>,
    k: Option<u32>,
}

impl WrittenInterface {
    fn listed(self, all: &[Key], refresh_ms: u32) -> Result<Listed, String> {
        let key = |id: &u64| {
            let found = all.iter().find(|key| key.id == *id).cloned();
            found.ok_or_else(|| format!("there is no key {id}; `[[key]]` with `id = {id}` makes it"))
        };
        let neighbour = |written: &WrittenNeighbour| {
            Ok::<Neighbour, String>(match written {
                WrittenNeighbour::Address(text) => {
                    Neighbour { prefix: prefix(text)?, keys: Vec::new(), handshake: false }
                }
                WrittenNeighbour::Keyed(keyed) => {
                    if keyed.handshake && keyed.keys.is_empty() {
                        return Err(format!("neighbour {}: a handshake needs `keys`", keyed.address));
                    }
                    let keys = keyed.keys.iter().map(key).collect::<Result<_, _>>()?;
                    Neighbour { prefix: prefix(&keyed.address)?, keys, handshake: keyed.handshake }
                }
            })
        };
        Ok(Listed {
            neighbours: self.neighbours.iter().map(neighbour).collect::<Result<_, _>>()?,
            sign: self.sign.as_ref().map(key).transpose()?,
            refresh_ms: self.refresh.as_deref().map_or(Ok(refresh_ms), milliseconds)?,
            name: self.name,
            class: self.class,
        })
    }
}

impl WrittenKey {
    fn key(self, secret: &dyn Fn(&Path) -> Result<Vec<u8>, String>) -> Result<Key, String> {
        let algorithm = match self.algorithm {
            WrittenAlgorithm::Md5 => Algorithm::HmacMd5,
            WrittenAlgorithm::Sha256 => Algorithm::HmacSha256,
            WrittenAlgorithm::Sha384 => Algorithm::HmacSha384,
            WrittenAlgorithm::Sha512 => Algorithm::HmacSha512,
        };
        let secret = match (self.secret, self.secret_file) {
            (Some(secret), None) => secret.into_bytes(),
            (None, Some(file)) => secret(&file)?,
            _ => return Err(format!("key {}: either `secret` or `secret-file` is needed", self.id)),
        };
        Ok(Key { id: self.id, algorithm, secret })
    }
}

impl WrittenLimits {
    fn limits(self) -> Result<Limits, String> {
        let usual = Limits::default();
        let senders = self.senders.unwrap_or(usual.senders);
        if senders > MOST_FLOWS {
            return Err(format!("a session has at most {MOST_FLOWS} senders, as a reservation has flows"));
        }
        // As many messages at once as usual, in proportion.
        let rate = |written: Option<u64>, (rate, burst): (u64, u64)| match written {
            Some(written) => (written, written.saturating_mul(burst / rate)),
            None => (rate, burst),
        };
        let time = |written: Option<String>, usual: u64| written.map_or(Ok(usual), |text| time(&text));
        Ok(Limits {
            sessions: self.sessions.unwrap_or(usual.sessions),
            senders,
            paths: self.paths.unwrap_or(usual.paths),
            paths_of_neighbour: self.neighbour_paths.unwrap_or(usual.paths_of_neighbour),
            reservations: self.reservations.unwrap_or(usual.reservations),
            reservations_of_neighbour: self.neighbour_reservations.unwrap_or(usual.reservations_of_neighbour),
            known: rate(self.messages, usual.known),
            open: rate(self.open_messages, usual.open),
            unknown: rate(self.unknown_messages, usual.unknown),
            change_ns: time(self.change, usual.change_ns)?,
            repair_ns: time(self.repair, usual.repair_ns)?,
            k: self.k.unwrap_or(usual.k),
        })
    }
}

/// A time with its unit, nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    literal::time_with_unit(text).map_err(|why| format!("`{text}`: {why}"))
}

fn milliseconds(text: &str) -> Result<u32, String> {
    u32::try_from(time(text)? / 1_000_000).map_err(|_| format!("`{text}` is too long"))
}

/// An address, or a range of addresses `10.0.0.0/8`.
fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("`{text}` is no address, and no prefix such as 10.0.0.0/8");
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().map_err(|_| wrong())?)),
        None => (text, None),
    };
    let host = Prefix::host(address.parse().map_err(|_| wrong())?);
    match length {
        Some(length) if length > host.length => Err(wrong()),
        Some(length) => Ok(Prefix { length, ..host }),
        None => Ok(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        Settings::read(text, &|file| match file.to_str() {
            Some("there") => Ok(b"from a file".to_vec()),
            _ => Err("no such file".to_owned()),
        })
    }

    const WHOLE: &str = r#"
        refresh = "10s"
        receiver-proxy = ["10.0.2.0/24"]

        [[interface]]
        name = "eth0"
        neighbours = ["10.0.1.1"]

        [[interface]]
        name = "eth1"
        class = "down/res"
        refresh = "5s"
        sign = 7
        neighbours = [{ address = "10.0.12.2", keys = [7, 8], handshake = true }, "10.0.13.0/24"]

        [[key]]
        id = 7
        algorithm = "hmac-sha256"
        secret = "between us"
        [[key]]
        id = 8
        algorithm = "hmac-md5"
        secret-file = "there"

        [limits]
        sessions = 50
        neighbour-paths = 20
        messages = 100
        repair = "500ms"
    "#;

    #[test]
    fn a_whole_file() {
        let settings = read(WHOLE).unwrap();
        let [first, second] = &settings.interfaces[..] else { panic!("{settings:?}") };
        assert_eq!((first.name.as_str(), first.class.as_deref(), first.refresh_ms), ("eth0", None, 10_000));
        assert_eq!((second.class.as_deref(), second.refresh_ms), (Some("down/res"), 5_000));
        assert_eq!(second.sign.as_ref().map(|key| key.id), Some(7));
        let [keyed, range] = &second.neighbours[..] else { panic!("{second:?}") };
        assert_eq!((keyed.keys.len(), keyed.handshake, keyed.prefix.length), (2, true, 32));
        assert_eq!((keyed.keys[1].secret.as_slice(), range.prefix.length), (&b"from a file"[..], 24));
        let limits = settings.limits;
        assert_eq!((limits.sessions, limits.paths_of_neighbour), (50, 20));
        assert_eq!((limits.known, limits.repair_ns, limits.k), ((100, 200), 500_000_000, 3));
        assert!(settings.receiver_proxy[0].contains(IpAddr::from([10, 0, 2, 9])));
    }

    #[test]
    fn an_interface_keeps_its_name_when_its_number_is_another() {
        let settings = read(WHOLE).unwrap();
        let named = |first: u32| {
            let present = |index: u32| Present { index, mtu: 1500, addresses: vec![IpAddr::from([192, 0, 2, 1])] };
            let config = settings.config(&[present(first), present(first + 1)], 1);
            let named = config.interfaces.iter().map(|interface| (interface.id, interface.name.clone()));
            named.collect::<Vec<(u32, String)>>()
        };
        assert_eq!(named(3), [(3, "eth0".to_owned()), (4, "eth1".to_owned())]);
        assert_eq!(named(8), [(8, "eth0".to_owned()), (9, "eth1".to_owned())]);
    }

    #[test]
    fn the_files_of_the_docs_are_read() {
        let docs = include_str!("../../../docs/rsvp.md");
        let files: Vec<&str> = docs.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(files.len(), 2);
        for file in files {
            let read = Settings::read(file, &|_| Ok(b"secret".to_vec()));
            assert!(
                read.is_ok_and(|settings| settings.interfaces.iter().any(|listed| listed.sign.is_some())),
                "{file}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let interface = "[[interface]]\nname = \"eth0\"\n";
        for (text, why) in [
            ("", "no interface"),
            ("interfaces = 1", "interfaces"),
            ("[[interface]]\nname = \"a\"\n[[interface]]\nname = \"a\"", "twice"),
            (&format!("refresh = \"30\"\n{interface}"), "30"),
            (&format!("refresh = \"100ms\"\n{interface}"), "refreshes more often"),
            (&format!("{interface}sign = 3"), "no key 3"),
            (&format!("{interface}neighbours = [\"10.0.0.0/33\"]"), "10.0.0.0/33"),
            (&format!("{interface}neighbours = [{{ address = \"10.0.0.1\", handshake = true }}]"), "needs `keys`"),
            (&format!("{interface}[limits]\nsenders = 65"), "at most 64"),
            (&format!("{interface}[limits]\nsessions = 0"), "sessions"),
            (&format!("{interface}[[key]]\nid = 1\nalgorithm = \"hmac-md5\""), "either `secret`"),
            (&format!("{interface}[[key]]\nid = 1\nalgorithm = \"md5\"\nsecret = \"a\""), "md5"),
            (&format!("{interface}[[key]]\nid = 1\nalgorithm = \"hmac-md5\"\nsecret-file = \"gone\""), "no such file"),
        ] {
            let said = read(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
