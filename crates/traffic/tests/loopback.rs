//! Server and client over loopback: which flows pass, which clients are refused, and that an
//! unproved address never gets more bytes than it has sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use altq_traffic::client::{self, Flow, RunOptions, Session};
use altq_traffic::plan::{Beat, Datagrams, Direction, Schedule, Work};
use altq_traffic::plan_file::{Family, FlowOptions, Ways};
use altq_traffic::protocol::{Address, Caps, Datagram, Plan, Preamble, Step};
use altq_traffic::result::TrafficResult;
use altq_traffic::server::{CAPS, Options, Server};
use altq_traffic::token::Token;
use altq_traffic::{Error, Refusal};

fn token() -> Token {
    Token::new("a good secret").unwrap()
}

fn server(caps: Caps) -> (Server, SocketAddr) {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(Options { listen, token: token(), caps }, Box::new(|_| ())).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

fn open(address: SocketAddr) -> Session {
    Session::open(address, "127.0.0.1:0".parse().unwrap(), &token()).unwrap()
}

fn played(address: SocketAddr, flows: &[FlowOptions], duration: u64) -> Result<TrafficResult, Error> {
    let session = open(address);
    let one_clock = session.one_clock;
    let flows: Vec<Flow> =
        flows.iter().flat_map(|flow| flow.flows(Family::Ipv4, false, address.port(), duration)).collect();
    let rows: Vec<_> = flows.iter().map(|flow| (flow.clone(), true, one_clock)).collect();
    let options = RunOptions { warmup: 0, interval: Duration::from_millis(100), seed: 1 };
    let outcome = client::run(&mut [(session, flows)], options, &|| false, &mut |_| ())?;
    Ok(TrafficResult::new("test".into(), String::new(), 0, 1, &rows, outcome))
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn every_kind_comes_through() {
    let (server, address) = server(CAPS);
    let udp = Work::Udp(Datagrams { sizes: vec![500], schedule: Schedule::Constant(Beat::RateBitS(4_000_000)) });
    let flows = [
        FlowOptions {
            ways: Ways::Both,
            ..FlowOptions::new("bulk", Work::TcpBulk { streams: 2, bytes: Some(300_000) })
        },
        FlowOptions::new("rr", Work::TcpRr { streams: 1, request: 10, response: 2_000, interval_ns: Some(2_000_000) }),
        FlowOptions::new("udp-rr", Work::UdpRr { streams: 2, request: 1, response: 8192, interval_ns: None }),
        FlowOptions::new("beat", Work::UdpRr { streams: 1, request: 64, response: 64, interval_ns: Some(5_000_000) }),
        FlowOptions::new("connect", Work::TcpConnect { streams: 2, close: Default::default() }),
        FlowOptions { ways: Ways::Both, ..FlowOptions::new("udp", udp) },
    ];
    let result = played(address, &flows, SECOND).unwrap();
    server.stop().unwrap();
    let flow = |name: &str| result.flows.iter().find(|flow| flow.name == name).unwrap_or_else(|| panic!("no {name}"));
    for flow in &result.flows {
        assert_eq!(flow.error, None, "{}", flow.name);
    }
    for name in ["bulk up", "bulk down"] {
        // Two connections with all their bytes, which the kernel reports as acknowledged.
        let flow = flow(name);
        assert_eq!((flow.bytes, flow.connections.len()), (600_000, 2), "{name}");
        assert!(flow.window_ns < SECOND && flow.connections.iter().all(|c| c.mss > 0), "{name}");
    }
    for name in ["rr", "udp-rr", "connect", "beat"] {
        let flow = flow(name);
        assert!(flow.transactions_per_s.unwrap() > 20.0 && flow.rtt_ns.unwrap().p50 > 0, "{name}: {flow:?}");
    }
    for name in ["udp up", "udp down"] {
        // 4 Mbit/s of 500 bytes are 1000 packets a second; loopback loses none.
        let packets = flow(name).packets.unwrap();
        assert!(
            (995..=1001).contains(&packets.sent) && packets.lost == 0 && packets.duplicates == 0,
            "{name}: {packets:?}"
        );
        let gaps = flow(name).gaps.as_ref().unwrap();
        assert!((gaps.mean_ns as i64 - 1_000_000).abs() < 50_000, "{name}: {gaps:?}");
        assert!(flow(name).delay_ns.is_some(), "one host, one clock");
    }
}

#[test]
fn who_may_not_is_refused() {
    let caps = Caps { clients: 1, streams: 2, duration_ns: SECOND, ..CAPS };
    let (_server, address) = server(caps);
    let wrong = Token::new("another secret").unwrap();
    let refused = Session::open(address, "127.0.0.1:0".parse().unwrap(), &wrong);
    assert!(matches!(refused, Err(Error::Refused { why: Refusal::Token, .. })), "{refused:?}");
    for (flow, duration) in [
        (FlowOptions::new("a", Work::TcpBulk { streams: 3, bytes: None }), SECOND),
        (FlowOptions::new("a", Work::TcpBulk { streams: 1, bytes: None }), 2 * SECOND),
    ] {
        let refused = played(address, &[flow], duration);
        assert!(matches!(refused, Err(Error::Refused { why: Refusal::Cap, .. })), "{refused:?}");
    }
    let first = open(address);
    let second = Session::open(address, "127.0.0.1:0".parse().unwrap(), &token());
    assert!(matches!(second, Err(Error::Refused { why: Refusal::Busy, .. })), "{second:?}");
    drop(first);
    // When a client leaves, another one is accepted.
    let begin = Instant::now();
    while Session::open(address, "127.0.0.1:0".parse().unwrap(), &token()).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5), "the seat stays taken");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_says_nothing_or_nonsense_gets_nothing() {
    let (_server, address) = server(CAPS);
    // A preamble of an unknown session, half a preamble, and random bytes: no byte comes back.
    let preamble =
        Preamble::data(Address { session: 1, flow: 0, stream: 0 }, &altq_traffic::token::Key::random().unwrap())
            .bytes();
    for said in [&preamble[..], &preamble[..20], &[b'x'; 100]] {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(said).unwrap();
        connection.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert!(!matches!(connection.read(&mut [0; 16]), Ok(1..)), "{} bytes", said.len());
    }
}

/// Bytes that arrive at a socket within a time.
fn heard(socket: &UdpSocket, time: Duration) -> usize {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (begin, mut bytes, mut buffer) = (Instant::now(), 0, [0; 65_536]);
    while begin.elapsed() < time {
        bytes += socket.recv(&mut buffer).unwrap_or(0);
    }
    bytes
}

#[test]
fn an_address_that_has_not_proved_itself_is_sent_no_more_than_it_sent() {
    let (_server, address) = server(CAPS);
    let mut session = open(address);
    let udp = Work::Udp(Datagrams { sizes: vec![1500], schedule: Schedule::Constant(Beat::RateBitS(10_000_000)) });
    let flow = FlowOptions { ways: Ways::Down, ..FlowOptions::new("down", udp) };
    let flows = flow.flows(Family::Ipv4, false, address.port(), 5 * SECOND);
    assert_eq!(flows[0].spec.direction, Direction::Down);
    let plan = Plan {
        flows: flows.into_iter().map(|flow| flow.spec).collect(),
        warmup_ns: 0,
        interval_ns: SECOND,
        rtt_ns: 0,
        one_clock: false,
        seed: 1,
    };
    session.propose(plan).unwrap();
    let of = Address { session: session.number, flow: 0, stream: 0 };
    let probe = Datagram::new(Step::Probe, of, [0; 16], &session.key).bytes();

    // Without the key nothing comes back at all, nor after a datagram that is cut or lengthened.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(address).unwrap();
    let forged = Datagram::new(Step::Probe, of, [0; 16], &altq_traffic::token::Key::random().unwrap()).bytes();
    for said in [&forged[..], &probe[..51], &[&probe[..], b"x"].concat(), &[0u8; 1400]] {
        stranger.send(said).unwrap();
    }
    assert_eq!(heard(&stranger, Duration::from_millis(300)), 0);

    // With the key, a cookie as long as the probe goes to the address from which the probe came. If
    // that address was forged, its owner gets the cookie.
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    victim.connect(address).unwrap();
    for _ in 0..10 {
        victim.send(&probe).unwrap();
    }
    assert!(heard(&victim, Duration::from_millis(300)) <= 10 * probe.len());
    // The cookie for one address does not prove another one.
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    own.connect(address).unwrap();
    own.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let echo = session.prove(&own, 0, 0).unwrap();
    victim.send(&echo.bytes()).unwrap();
    assert_eq!(heard(&victim, Duration::from_millis(200)), 0);
    drop(session);
    assert_eq!(heard(&own, Duration::from_millis(200)), 0, "nothing starts by itself");
}

#[test]
fn traffic_ends_with_the_control_connection() {
    let (_server, address) = server(CAPS);
    let mut session = open(address);
    let udp = Work::Udp(Datagrams { sizes: vec![500], schedule: Schedule::Constant(Beat::RateBitS(4_000_000)) });
    let flows = FlowOptions { ways: Ways::Down, ..FlowOptions::new("down", udp) }.flows(
        Family::Ipv4,
        false,
        address.port(),
        20 * SECOND,
    );
    let flows = flows.into_iter().map(|flow| flow.spec).collect();
    session.propose(Plan { flows, warmup_ns: 0, interval_ns: SECOND, rtt_ns: 0, one_clock: false, seed: 1 }).unwrap();
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    own.connect(address).unwrap();
    own.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    session.prove(&own, 0, 0).unwrap();
    assert!(matches!(
        session.answer().unwrap(),
        altq_traffic::protocol::ServerMessage::Attached { flow: 0, stream: 0 }
    ));
    session.send(&altq_traffic::protocol::ClientMessage::Start).unwrap();
    // The server begins a moment after the request, and a busy host may take longer than that.
    let (begin, mut bytes) = (Instant::now(), 0);
    while bytes <= 10_000 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it does not run: {bytes} bytes");
        bytes += heard(&own, Duration::from_millis(50));
    }
    drop(session);
    // Without an end, traffic would go on for 20 s: silence long before that is the end.
    let begin = Instant::now();
    while heard(&own, Duration::from_millis(300)) != 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it does not end");
    }
}
