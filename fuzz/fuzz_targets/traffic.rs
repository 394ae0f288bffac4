//! Any bytes as what strangers and clients say to a traffic server: preambles, datagrams, and lines
//! in any pieces.

#![no_main]

use altq_traffic::protocol::{Caps, ClientMessage, Datagram, Lines, Preamble, ServerMessage, line};
use altq_traffic::server::{Action, Conversation, State};
use altq_traffic::token::Token;
use libfuzzer_sys::fuzz_target;

const CAPS: Caps = Caps { rate_bit_s: 1_000_000_000, duration_ns: 60_000_000_000, clients: 1, flows: 8, streams: 64 };

fuzz_target!(|input: &[u8]| {
    let secrets = Token::new("a good secret").unwrap().secrets(&[1; 16], &[2; 16]);
    if let Some(preamble) = Preamble::read(input) {
        assert_eq!(preamble.bytes(), input);
        assert!(!preamble.proved(&secrets.session), "a guess of 128 bits");
    }
    if let Some(datagram) = Datagram::read(input) {
        assert_eq!(datagram.bytes(), input);
        assert!(!datagram.proved(&secrets.session), "a guess of 128 bits");
    }
    let _ = ServerMessage::read(input);

    // The first byte says whether the client knows the token, and into which pieces the rest is
    // cut.
    let Some((first, said)) = input.split_first() else { return };
    let knows = first & 1 == 1;
    let mut conversation = Conversation::new(secrets.clone(), CAPS);
    let mut lines = Lines::default();
    if knows {
        lines.push(&line(&ClientMessage::Know { proof: secrets.client() }));
    }
    for piece in said.chunks(usize::from(first / 2) + 1) {
        lines.push(piece);
        while let Ok(Some(line)) = lines.next(conversation.longest()) {
            match conversation.handle(&line) {
                Action::Welcome | Action::Begin => assert!(knows),
                Action::Prepare(plan) => {
                    assert!(knows && plan.check(&CAPS).is_ok() && plan.flows.len() <= 8);
                    let streams: u32 = plan.flows.iter().map(|flow| flow.work.streams()).sum();
                    assert!(streams <= 64 && plan.flows.iter().all(|flow| flow.stop_ns <= 60_000_000_000));
                }
                Action::Refuse(..) | Action::End => assert_eq!(conversation.state(), State::Over),
                Action::Nothing => {}
            }
        }
    }
});
