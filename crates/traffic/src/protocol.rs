//! What client and server say to each other. Everything here is read from strangers: whatever the
//! bytes, there is an answer or an error, never a panic.
//!
//! Every TCP connection begins with a [`Preamble`] of the client. A control connection goes on with
//! lines of JSON: the server's challenge, the client's proof that it knows the token, its plan; a
//! server says nothing before a complete preamble. Connections that carry traffic are told apart by
//! their preamble, which is proved with the session's key.
//!
//! Over UDP the server says nothing to an address that has not proved itself:
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

/// The version of all this.
pub const VERSION: u8 = 1;

const MAGIC: &[u8; 4] = b"ALTQ";

/// The longest line that a client may say before it has shown that it knows the token.
pub const LINE_OF_A_STRANGER: usize = 1 << 10;

/// The longest line of all.
pub const LINE: usize = 1 << 20;

/// What a TCP connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// To say what is to be done; with the client's random number.
    Control([u8; NONCE]),
    /// To carry traffic.
    Data(Address, [u8; TAG]),
}

/// To which connection of which flow of which session something belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The session's number, as the server gave it.
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

    /// True if it is one that carries traffic of the key's session.
    pub fn proved(&self, key: &Key) -> bool {
        match self {
            Preamble::Control(_) => false,
            Preamble::Data(address, tag) => key.proves(&[b"connection", &address.bytes()], tag),
        }
    }

    /// As bytes.
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

    /// From bytes; `None` for anything else.
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
    /// Which step.
    pub step: Step,
    /// For which flow.
    pub address: Address,
    /// The server's proof of where the probe came from; zeros in a probe.
    pub cookie: [u8; TAG],
    /// That whoever sent it knows the session's key.
    pub tag: [u8; TAG],
}

/// Steps of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client asks.
    Probe,
    /// The server gives a cookie to the address that asked.
    Cookie,
    /// The client gives it back, from the same address.
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
    /// Bytes on the wire, the same for all steps: no answer is longer than what it answers.
    pub const BYTES: usize = 52;

    /// A datagram with its proof.
    pub fn new(step: Step, address: Address, cookie: [u8; TAG], key: &Key) -> Datagram {
        let tag = key.tag(&[b"datagram", &[step.letter()], &address.bytes(), &cookie]);
        Datagram { step, address, cookie, tag }
    }

    /// True if whoever sent it knows the key.
    pub fn proved(&self, key: &Key) -> bool {
        key.proves(&[b"datagram", &[self.step.letter()], &self.address.bytes(), &self.cookie], &self.tag)
    }

    /// As bytes.
    pub fn bytes(&self) -> [u8; Datagram::BYTES] {
        let mut bytes = [0; Datagram::BYTES];
        let head = MAGIC.iter().copied().chain([self.step.letter(), VERSION]);
        let fields = head.chain(self.address.bytes()).chain(self.cookie).chain(self.tag);
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// From bytes; `None` for anything else.
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

    /// True for what is one of the handshake, by its length and first bytes.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.len() == Datagram::BYTES && bytes.starts_with(MAGIC)
    }
}

/// What a client says, a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientMessage {
    /// It knows the token.
    Know {
        /// As [`crate::token::Secrets::client`] has it.
        proof: String,
    },
    /// What it wants to do.
    Plan(Plan),
    /// Everything is connected: the clock starts.
    Start,
    /// It is there.
    Here,
    /// The run is over: what came of it?
    Stop,
}

/// What a client wants to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The flows; their places are their numbers.
    pub flows: Vec<FlowSpec>,
    /// Figures count from so long after each flow's start.
    pub warmup_ns: u64,
    /// Time between reports.
    pub interval_ns: u64,
    /// The round trip between the two, by which what the server receives is later than the client's
    /// clock says.
    pub rtt_ns: u64,
    /// Both are on one host and have one clock.
    pub one_clock: bool,
    /// Of what sources draw.
    pub seed: u64,
}

/// What a server says, a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerMessage {
    /// Its random number.
    Challenge {
        /// In hexadecimal digits.
        nonce: String,
    },
    /// The token is right.
    Welcome {
        /// As [`crate::token::Secrets::server`] has it.
        proof: String,
        /// The session's number.
        session: u64,
        /// What a client may do here.
        caps: Caps,
        /// Which clock it has: a proof over the kernel's boot id and time namespace.
        clock: String,
    },
    /// The plan is one that it will play.
    Accepted,
    /// A connection has found its flow, or an address has been proved.
    Attached {
        /// The flow's place.
        flow: u16,
        /// The connection's number in it.
        stream: u32,
    },
    /// The clock has started.
    Started,
    /// How it goes.
    Report {
        /// Since the start.
        at_ns: u64,
        /// In the plan's order.
        flows: Vec<FlowReport>,
    },
    /// What came of it.
    Result {
        /// In the plan's order.
        flows: Vec<FlowEnd>,
        /// Why the server's figures cannot be trusted; empty if they can.
        invalid: Vec<String>,
        /// What the reader must know.
        notes: Vec<String>,
    },
    /// It will not, or cannot go on.
    Refused {
        /// On what grounds.
        why: Refusal,
        /// In words.
        reason: String,
    },
}

/// What a client may do at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caps {
    /// All flows of a client together, each way, in bit/s.
    pub rate_bit_s: u64,
    /// The end of the last flow, from the start.
    pub duration_ns: u64,
    /// Clients at a time.
    pub clients: u32,
    /// Flows of a client.
    pub flows: u32,
    /// Connections of all its flows.
    pub streams: u32,
}

/// Lines out of a stream of bytes.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    searched: usize,
}

/// A line that grows beyond what may be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Bytes have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line, without its end; `None` when there is none yet.
    ///
    /// # Errors
    /// [`TooLong`] when a line has more than `most` bytes.
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
    /// From a line.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read(line: &[u8]) -> Result<ClientMessage, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

impl ServerMessage {
    /// From a line.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read(line: &[u8]) -> Result<ServerMessage, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

/// Something to say as a line.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // Nothing that is said has keys that are no texts, the only thing that this could stumble over.
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
                // No bit can be changed without the proof being wrong, or the datagram none.
                for bit in 0..Datagram::BYTES * 8 {
                    let mut bytes = datagram.bytes();
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    prop_assert!(!Datagram::read(&bytes).is_some_and(|changed| changed.proved(&key)), "bit {}", bit);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Preamble::read(&bytes), Datagram::read(&bytes), ClientMessage::read(&bytes), ServerMessage::read(&bytes));
        }

        /// Lines are the same however the bytes are cut.
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
        // Deeper than anything that is said.
        assert!(ClientMessage::read("[".repeat(100_000).as_bytes()).is_err());
    }
}
