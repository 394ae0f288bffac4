//! The server's state machine for a client's messages. It has no sockets and no clock, so that
//! tests can try any input.

use crate::error::Refusal;
use crate::protocol::{Caps, ClientMessage, LINE, LINE_OF_A_STRANGER, Plan, ServerMessage};
use crate::token::Secrets;

/// The state of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The client has not proved that it knows the token.
    Stranger,
    /// The client has proved it, and there is no plan yet.
    Known,
    /// There is a plan; the client opens its connections.
    Planned,
    /// The run goes on.
    Running,
    /// All further messages are ignored.
    Over,
}

/// What the server must do after a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Welcome the client: it knows the token.
    Welcome,
    /// Prepare this plan, which is within the limits.
    Prepare(Plan),
    /// Start the run.
    Begin,
    /// End the run.
    End,
    /// Send this refusal and close.
    Refuse(Refusal, String),
}

/// A conversation with one client.
#[derive(Debug)]
pub struct Conversation {
    state: State,
    secrets: Secrets,
    caps: Caps,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(…)")
    }
}

impl Conversation {
    /// A new conversation. `secrets` has the proof that the client must send.
    pub fn new(secrets: Secrets, caps: Caps) -> Conversation {
        Conversation { state: State::Stranger, secrets, caps }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The longest line that is read in this state, in bytes.
    pub fn longest(&self) -> usize {
        if self.state == State::Stranger { LINE_OF_A_STRANGER } else { LINE }
    }

    /// Handles a line and returns what to do.
    pub fn handle(&mut self, line: &[u8]) -> Action {
        if self.state == State::Over {
            return Action::Nothing;
        }
        let heard = match ClientMessage::read(line) {
            // A stranger is not told details.
            Err(_) if self.state == State::Stranger => {
                Action::Refuse(Refusal::Message, "the message does not prove that you know the token".into())
            }
            Err(why) => Action::Refuse(Refusal::Message, format!("the message cannot be read: {why}")),
            Ok(say) => self.understood(say),
        };
        self.state = match &heard {
            Action::Nothing => self.state,
            Action::Welcome => State::Known,
            Action::Prepare(_) => State::Planned,
            Action::Begin => State::Running,
            Action::End | Action::Refuse(..) => State::Over,
        };
        heard
    }

    fn understood(&self, say: ClientMessage) -> Action {
        match (self.state, say) {
            (State::Stranger, ClientMessage::Know { proof }) if self.secrets.is_client(&proof) => Action::Welcome,
            (State::Stranger, ClientMessage::Know { .. }) => {
                Action::Refuse(Refusal::Token, "the token is not that of this server".into())
            }
            (State::Stranger, _) => {
                Action::Refuse(Refusal::Message, "the message does not prove that you know the token".into())
            }
            (State::Known, ClientMessage::Plan(plan)) => match plan.check(&self.caps) {
                Ok(()) => Action::Prepare(plan),
                Err((true, why)) => Action::Refuse(Refusal::Cap, why),
                Err((false, why)) => Action::Refuse(Refusal::Message, why),
            },
            (State::Planned, ClientMessage::Start) => Action::Begin,
            (_, ClientMessage::Here) => Action::Nothing,
            (_, ClientMessage::Stop) => Action::End,
            _ => Action::Refuse(Refusal::Message, "the message came at the wrong time".into()),
        }
    }

    /// The message of a refusal.
    pub fn refusal(why: Refusal, reason: String) -> ServerMessage {
        ServerMessage::Refused { why, reason }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Direction, FlowSpec, Work};
    use crate::protocol::line;
    use crate::token::Token;

    const CAPS: Caps = Caps { rate_bit_s: 1_000_000, duration_ns: 1_000_000_000, clients: 1, flows: 1, streams: 2 };

    fn secrets() -> Secrets {
        Token::new("a good secret").unwrap().secrets(&[1; 16], &[2; 16])
    }

    fn plan(streams: u32) -> ClientMessage {
        let work = Work::TcpBulk { streams, bytes: None };
        let (congestion, buffers) = (None, None);
        let flow = FlowSpec {
            name: "a".into(),
            direction: Direction::Up,
            work,
            start_ns: 0,
            stop_ns: 1000,
            dscp: 0,
            congestion,
            buffers,
            port: 1,
        };
        ClientMessage::Plan(Plan {
            flows: vec![flow],
            warmup_ns: 0,
            interval_ns: 1_000_000_000,
            rtt_ns: 0,
            one_clock: false,
            seed: 1,
        })
    }

    fn heard(conversation: &mut Conversation, say: &ClientMessage) -> Action {
        conversation.handle(line(say).trim_ascii_end())
    }

    #[test]
    fn from_the_token_to_the_end() {
        let mut conversation = Conversation::new(secrets(), CAPS);
        assert_eq!(heard(&mut conversation, &ClientMessage::Know { proof: secrets().client() }), Action::Welcome);
        assert!(matches!(heard(&mut conversation, &plan(2)), Action::Prepare(_)));
        assert_eq!(heard(&mut conversation, &ClientMessage::Here), Action::Nothing);
        assert_eq!(heard(&mut conversation, &ClientMessage::Start), Action::Begin);
        assert_eq!(heard(&mut conversation, &ClientMessage::Stop), Action::End);
        assert_eq!(heard(&mut conversation, &ClientMessage::Start), Action::Nothing);
    }

    #[test]
    fn who_does_not_know_the_token_gets_nowhere() {
        let server = secrets().server();
        for say in [
            plan(1),
            ClientMessage::Start,
            ClientMessage::Know { proof: String::new() },
            ClientMessage::Know { proof: server },
        ] {
            let mut conversation = Conversation::new(secrets(), CAPS);
            assert!(matches!(heard(&mut conversation, &say), Action::Refuse(..)), "{say:?}");
            // The right token does not help afterwards: each guess takes a connection.
            assert_eq!(heard(&mut conversation, &ClientMessage::Know { proof: secrets().client() }), Action::Nothing);
        }
    }

    #[test]
    fn caps_are_named() {
        let mut conversation = Conversation::new(secrets(), CAPS);
        heard(&mut conversation, &ClientMessage::Know { proof: secrets().client() });
        let said = heard(&mut conversation, &plan(3));
        assert!(matches!(&said, Action::Refuse(Refusal::Cap, why) if why.contains("--max-streams")), "{said:?}");
    }

    proptest! {
        /// Whatever messages come, in whatever order: without the token nothing is prepared or
        /// begun.
        #[test]
        fn nothing_without_the_token(lines in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            (0usize..5).prop_map(|which| {
                let know = ClientMessage::Know { proof: "00".repeat(32) };
                let say = [plan(1), ClientMessage::Start, ClientMessage::Here, ClientMessage::Stop, know];
                line(&say[which])
            }),
        ], 0..12)) {
            let mut conversation = Conversation::new(secrets(), CAPS);
            for line in lines {
                let heard = conversation.handle(&line);
                prop_assert!(matches!(heard, Action::Nothing | Action::End | Action::Refuse(..)), "{:?}", heard);
            }
        }
    }
}
