//! The protocol between client and server. Its input may come from anyone on the network: any bytes
//! give a message or an error, never a panic.
//!
//! Every TCP connection begins with the client's [`Preamble`]; the server sends nothing before it
//! is complete. A control connection goes on with lines of JSON: the server's challenge, the
//! client's proof that it knows the token, its plan. The preamble of a connection that carries
//! traffic names its flow, with a proof made with the session's key.
//!
//! Over UDP the server sends no more to an address than the address has sent, until the address is
//! proved:
//!
//! ```text
//! client                                   server
//!   Probe (session, flow, proof)     ──►     known session, right proof, or silence
//!                                    ◄──     Cookie: a proof over the address that the probe came
//!                                             from; as long as the probe
//!   Echo (the same, and the cookie)  ──►     the cookie is that of this address: it is the flow's
//! ```

use serde::{Deserialize, Serialize};

use crate::error::Refusal;
use crate::plan::FlowSpec;
use crate::report::{FlowEnd, FlowReport};
use crate::token::{Key, NONCE, TAG};

/// The protocol's version.
pub const VERSION: u8 = 2;

const MAGIC: &[u8; 4] = b"ALTQ";

/// The longest line, in bytes, that a client may send before it has proved that it knows the token.
pub const LINE_OF_A_STRANGER: usize = 1 << 10;

/// The longest line of other clients, in bytes.
pub const LINE: usize = 1 << 20;

/// The first bytes of a TCP connection, which say what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// A control connection, with the client's random number.
    Control([u8; NONCE]),
    /// A connection that carries traffic: its flow, and the proof.
    Data(Address, [u8; TAG]),
}

/// Names a connection of a flow of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The session's number, which the server chose.
    pub session: u64,
    /// The flow's place in the plan.
    pub flow: u16,
    /// The connection's number in its flow.
    pub stream: u32,
}

impl Address {
    fn bytes(&self) -> [u8; 14] {
        let mut bytes = [0; 14];
        let fields =
            self.session.to_be_bytes().into_iter().chain(self.flow.to_be_bytes()).chain(self.stream.to_be_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Address> {
        let (session, rest) = bytes.split_first_chunk()?;
        let (flow, rest) = rest.split_first_chunk()?;
        let stream = rest.first_chunk()?;
        Some(Address {
            session: u64::from_be_bytes(*session),
            flow: u16::from_be_bytes(*flow),
            stream: u32::from_be_bytes(*stream),
        })
    }
}

impl Preamble {
    /// Bytes on the wire: magic, kind, version, address, proof or random number.
    pub const BYTES: usize = 36;

    /// The preamble of a connection that carries traffic.
    pub fn data(address: Address, key: &Key) -> Preamble {
        Preamble::Data(address, key.tag(&[b"connection", &address.bytes()]))
    }

    /// True if it belongs to a connection that carries traffic, and its proof was made with this
    /// key.
    pub fn proved(&self, key: &Key) -> bool {
        match self {
            Preamble::Control(_) => false,
            Preamble::Data(address, tag) => key.proves(&[b"connection", &address.bytes()], tag),
        }
    }

    /// The preamble as bytes.
    pub fn bytes(&self) -> [u8; Preamble::BYTES] {
        let (kind, address, last) = match self {
            Preamble::Control(nonce) => (b'C', [0; 14], nonce),
            Preamble::Data(address, tag) => (b'D', address.bytes(), tag),
        };
        let mut bytes = [0; Preamble::BYTES];
        let fields = MAGIC.iter().copied().chain([kind, VERSION]).chain(address).chain(last.iter().copied());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Reads a preamble; `None` if the bytes are not a preamble.
    pub fn read(bytes: &[u8]) -> Option<Preamble> {
        let bytes: &[u8; Preamble::BYTES] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let ([kind, version], rest) = rest.split_first_chunk::<2>()?;
        let (address, last) = rest.split_first_chunk::<14>()?;
        let last = last.first_chunk()?;
        match kind {
            _ if magic != MAGIC || *version != VERSION => None,
            b'C' if *address == [0; 14] => Some(Preamble::Control(*last)),
            b'D' => Some(Preamble::Data(Address::read(address)?, *last)),
            _ => None,
        }
    }
}

/// A datagram of the handshake that proves an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The step of the handshake.
    pub step: Step,
    /// The connection that it is about.
    pub address: Address,
    /// The server's proof of the address that the probe came from; zeros in a probe.
    pub cookie: [u8; TAG],
    /// Proof that its sender knows the session's key.
    pub tag: [u8; TAG],
}

/// Steps of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client asks for a cookie.
    Probe,
    /// The server sends a cookie to the address that the probe came from.
    Cookie,
    /// The client sends the cookie back, from the same address.
    Echo,
}

impl Step {
    fn letter(self) -> u8 {
        match self {
            Step::Probe => b'P',
            Step::Cookie => b'K',
            Step::Echo => b'E',
        }
    }
}

impl Datagram {
    /// Bytes on the wire. All steps have the same length, so an answer is never longer than its
    /// request.
    pub const BYTES: usize = 52;

    /// A datagram with its proof.
    pub fn new(step: Step, address: Address, cookie: [u8; TAG], key: &Key) -> Datagram {
        let tag = key.tag(&[b"datagram", &[step.letter()], &address.bytes(), &cookie]);
        Datagram { step, address, cookie, tag }
    }

    /// True if its sender knows the key.
    pub fn proved(&self, key: &Key) -> bool {
        key.proves(&[b"datagram", &[self.step.letter()], &self.address.bytes(), &self.cookie], &self.tag)
    }

    /// The datagram as bytes.
    pub fn bytes(&self) -> [u8; Datagram::BYTES] {
        let mut bytes = [0; Datagram::BYTES];
        let head = MAGIC.iter().copied().chain([self.step.letter(), VERSION]);
        let fields = head.chain(self.address.bytes()).chain(self.cookie).chain(self.tag);
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Reads a datagram; `None` if it is not one of the handshake.
    pub fn read(bytes: &[u8]) -> Option<Datagram> {
        let bytes: &[u8; Datagram::BYTES] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let ([letter, version], rest) = rest.split_first_chunk::<2>()?;
        let (address, rest) = rest.split_first_chunk::<14>()?;
        let (cookie, tag) = rest.split_first_chunk()?;
        let step = [Step::Probe, Step::Cookie, Step::Echo].into_iter().find(|step| step.letter() == *letter)?;
        if magic != MAGIC || *version != VERSION {
            return None;
        }
        Some(Datagram { step, address: Address::read(address)?, cookie: *cookie, tag: *tag.first_chunk()? })
    }

    /// True if the bytes look like a datagram of the handshake, by length and first bytes.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.len() == Datagram::BYTES && bytes.starts_with(MAGIC)
    }
}

/// A message of the client, one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientMessage {
    /// Proof that the client knows the token.
    Know {
        /// The text of [`crate::token::Secrets::client`].
        proof: String,
    },
    /// The plan of the run.
    Plan(Plan),
    /// All connections are open; the server must start the run.
    Start,
    /// Shows that the client is still there.
    Here,
    /// The run is over; the server must send its result.
    Stop,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The flows. A flow's number is its index here.
    pub flows: Vec<FlowSpec>,
    /// Figures begin this long after each flow's start, in ns.
    pub warmup_ns: u64,
    /// Time between the server's reports, in ns.
    pub interval_ns: u64,
    /// The round trip between client and server, in ns. The server's window for data that it
    /// receives is later by this time.
    pub rtt_ns: u64,
    /// Client and server are on one host and so have one clock.
    pub one_clock: bool,
    /// Seed of the sources' random choices.
    pub seed: u64,
}

/// A message of the server, one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerMessage {
    /// The server's random number.
    Challenge {
        /// The number in hexadecimal digits.
        nonce: String,
    },
    /// The client's proof is right.
    Welcome {
        /// The text of [`crate::token::Secrets::server`].
        proof: String,
        /// The session's number.
        session: u64,
        /// The server's limits for a client.
        caps: Caps,
        /// Identifies the server's clock: a proof over the kernel's boot id and time namespace.
        clock: String,
    },
    /// The plan is accepted.
    Accepted,
    /// A connection was assigned to its flow, or a UDP address was proved.
    Attached {
        /// The flow's place.
        flow: u16,
        /// The connection's number in it.
        stream: u32,
    },
    /// The run has started.
    Started,
    /// Progress of the run.
    Report {
        /// Time since the start, in ns.
        at_ns: u64,
        /// The counters of each flow, in the plan's order.
        flows: Vec<FlowReport>,
    },
    /// The result of the run.
    Result {
        /// The figures of each flow, in the plan's order.
        flows: Vec<FlowEnd>,
        /// Reasons why the server's figures cannot be trusted; empty if they can.
        invalid: Vec<String>,
        /// Notes for the reader.
        notes: Vec<String>,
    },
    /// The server refuses, or cannot go on.
    Refused {
        /// The kind of reason.
        why: Refusal,
        /// The reason as text.
        reason: String,
    },
}

/// A server's limits for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caps {
    /// Rate of all flows of a client together, in each direction, in bit/s.
    pub rate_bit_s: u64,
    /// Latest end of a flow, in ns from the start.
    pub duration_ns: u64,
    /// The most clients at a time.
    pub clients: u32,
    /// The most flows of a client.
    pub flows: u32,
    /// The most connections of all flows of a client.
    pub streams: u32,
}

/// Splits a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    searched: usize,
}

/// A line is longer than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete line, without its newline; `None` if there is none yet.
    ///
    /// # Errors
    /// [`TooLong`] if a line has more than `most` bytes.
    pub fn next(&mut self, most: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes.get(self.searched..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'));
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return if self.bytes.len() > most { Err(TooLong) } else { Ok(None) };
        };
        let end = self.searched + end;
        if end > most {
            return Err(TooLong);
        }
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        self.searched = 0;
        Ok(Some(line))
    }
}

impl ClientMessage {
    /// Reads a message from a line.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn read(line: &[u8]) -> Result<ClientMessage, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

impl ServerMessage {
    /// Reads a message from a line.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn read(line: &[u8]) -> Result<ServerMessage, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

/// A message as a line.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // It fails only for maps with keys that are not text, which no message has.
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = Address> {
        (any::<u64>(), any::<u16>(), any::<u32>()).prop_map(|(session, flow, stream)| Address { session, flow, stream })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(address in address(), nonce in any::<[u8; NONCE]>(), cookie in any::<[u8; TAG]>()) {
            let key = Key::random().unwrap();
            let other = Key::random().unwrap();
            let control = Preamble::Control(nonce);
            prop_assert_eq!(Preamble::read(&control.bytes()), Some(control));
            prop_assert!(!control.proved(&key));
            let data = Preamble::data(address, &key);
            prop_assert_eq!(Preamble::read(&data.bytes()), Some(data));
            prop_assert!(data.proved(&key) && !data.proved(&other));
            for step in [Step::Probe, Step::Cookie, Step::Echo] {
                let datagram = Datagram::new(step, address, cookie, &key);
                prop_assert_eq!(Datagram::read(&datagram.bytes()), Some(datagram));
                prop_assert!(datagram.proved(&key) && !datagram.proved(&other) && Datagram::is_one(&datagram.bytes()));
                // If any bit is changed, the proof is wrong or the datagram cannot be read.
                for bit in 0..Datagram::BYTES * 8 {
                    let mut bytes = datagram.bytes();
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    prop_assert!(!Datagram::read(&bytes).is_some_and(|changed| changed.proved(&key)), "bit {}", bit);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Preamble::read(&bytes), Datagram::read(&bytes));
            let _ = (ClientMessage::read(&bytes), ServerMessage::read(&bytes));
        }

        /// The lines are the same in whatever pieces the bytes arrive.
        #[test]
        fn lines_do_not_depend_on_how_bytes_come(
            text in "[a-c\n]{0,60}",
            cuts in prop::collection::vec(1usize..9, 0..40),
        ) {
            let mut lines = Lines::default();
            let (mut found, mut rest) = (Vec::new(), text.as_bytes());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                lines.push(now);
                rest = later;
                while let Some(line) = lines.next(100).unwrap() {
                    found.push(String::from_utf8(line).unwrap());
                }
            }
            let mut expected: Vec<&str> = text.split('\n').collect();
            expected.pop();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn lines_are_bounded() {
        let mut lines = Lines::default();
        lines.push(&[b'x'; 101]);
        assert_eq!(lines.next(101), Ok(None));
        assert_eq!(lines.next(100), Err(TooLong));
        lines.push(b"\n");
        assert_eq!(lines.next(100), Err(TooLong));
        assert_eq!(lines.next(101), Ok(Some(vec![b'x'; 101])));
    }

    #[test]
    fn words_are_those_that_are_known() {
        assert_eq!(ClientMessage::read(br#"{"say":"start"}"#), Ok(ClientMessage::Start));
        assert_eq!(
            ClientMessage::read(br#"{"say":"know","proof":"ab"}"#),
            Ok(ClientMessage::Know { proof: "ab".into() })
        );
        for wrong in ["", "{}", "[]", r#"{"say":"sing"}"#, r#"{"say":"know"}"#, r#"{"say":"know","proof":1}"#] {
            assert!(ClientMessage::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        // Nested deeper than any message.
        assert!(ClientMessage::read("[".repeat(100_000).as_bytes()).is_err());
    }
}
