//! `altq rsvpd` in three network namespaces in a row: `a` announces a sender, `b` is a router, and
//! `c` answers for receivers. The tests are skipped with a message where the host does not allow
//! them.

mod client;
mod row;
mod unread;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::io::pipe;
use std::net::IpAddr;
use std::process::Command;

use altq_dataplane::netns::Namespace;
use altq_dataplane::raw::{self, Kind};
use altq_rsvp::integrity::{Algorithm, Key, sign};
use altq_rsvp::node::Transmit;
use altq_rsvp::wire::{
    Flow, Flowspec, Hop, Message, Path, PathTear, Resv, ResvTear, Sender, Session, Style, Tspec, encode, set_checksum,
};
use altq_rsvpd::packet;
use client::{err, out};
use row::{Capture, Folder, Host, OFTEN, POLICY, check_headers, dissect, sender, until};
use unread::{check_lost, fill, there};

/// Two keys: of a and b, and of b and c.
const KEYS: &str = "[[key]]\nid = 1\nalgorithm = \"hmac-sha256\"\nsecret = \"between a and b\"\n\
                    [[key]]\nid = 2\nalgorithm = \"hmac-md5\"\nsecret = \"between b and c\"\n";

/// The three hosts. 10.0.1.0/24 and fd01::/64 lie behind `a`, 10.0.3.0/24 and fd03::/64 behind `c`.
/// None, with a message, if this host allows no namespaces. IPv6 asks for neighbours from the
/// link-local address, which the kernel would make only after a second.
fn three(folder: &Folder) -> Option<[Host; 3]> {
    let made = || -> std::io::Result<[Namespace; 3]> { Ok([Namespace::new()?, Namespace::new()?, Namespace::new()?]) };
    let [a, b, c] = match made() {
        Ok(made) => made,
        Err(error) => {
            eprintln!("SKIPPED: this test makes network namespaces, which needs root ({error})");
            return None;
        }
    };
    let wires = format!(
        "link set lo up\nlink add ba type veth peer name ab netns {}\nlink add bc type veth peer name cb netns {}\n\
         link set dev ba addrgenmode none up\nlink set dev bc addrgenmode none up\n\
         addr add 10.0.12.2/24 dev ba\naddr add fd12::2/64 dev ba nodad\n\
         addr add 10.0.23.1/24 dev bc\naddr add fd23::1/64 dev bc nodad\n\
         addr add fe80::2/64 dev ba nodad\naddr add fe80::1/64 dev bc nodad\n",
        a.path().display(),
        c.path().display()
    );
    if let Err(error) = world::ip(&b, &wires) {
        eprintln!("SKIPPED: this test needs iproute2 and veth interfaces ({error})");
        return None;
    }
    world::ip(
        &a,
        "link set lo up\nlink set dev ab addrgenmode none up\naddr add 10.0.12.1/24 dev ab\n\
         addr add fd12::1/64 dev ab nodad\naddr add fe80::1/64 dev ab nodad\n\
         route add default via 10.0.12.2\nroute add fd03::/64 via fd12::2\n",
    )
    .unwrap();
    world::ip(
        &b,
        "route add 10.0.1.0/24 via 10.0.12.1\nroute add 10.0.3.0/24 via 10.0.23.2\n\
         route add fd01::/64 via fd12::1\nroute add fd03::/64 via fd23::2\n",
    )
    .unwrap();
    world::ip(
        &c,
        "link set lo up\nlink set dev cb addrgenmode none up\naddr add 10.0.23.2/24 dev cb\n\
         addr add fd23::2/64 dev cb nodad\naddr add fe80::2/64 dev cb nodad\nlink add lan type veth peer name lanp\n\
         link set dev lan addrgenmode none up\nlink set dev lanp addrgenmode none up\n\
         addr add 10.0.3.1/24 dev lan\naddr add fd03::1/64 dev lan nodad\n\
         route add default via 10.0.23.1\nroute add fd01::/64 via fd23::1\n",
    )
    .unwrap();
    for router in [&b, &c] {
        router
            .run(|| {
                std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
                std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
                std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0").unwrap();
            })
            .unwrap();
    }
    Some([Host::new("a", a, folder), Host::new("b", b, folder), Host::new("c", c, folder)])
}

/// What is believed of what neighbours send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Anything,
    /// What is signed.
    Signed,
    /// What is signed, once they have answered a challenge (RFC 2747 4.3).
    Challenged,
}

/// Starts altq and daemons.
fn start([a, b, c]: &mut [Host; 3], trust: Trust) -> bool {
    let neighbour = |key: u64, addresses: [&str; 2]| {
        let one = |address: &str| match trust {
            Trust::Anything => format!("\"{address}\""),
            Trust::Signed => format!("{{ address = \"{address}\", keys = [{key}] }}"),
            Trust::Challenged => format!("{{ address = \"{address}\", keys = [{key}], handshake = true }}"),
        };
        let sign = if trust == Trust::Anything { String::new() } else { format!("sign = {key}\n") };
        format!("{sign}neighbours = [{}]\n", addresses.map(one).join(", "))
    };
    let all = if trust == Trust::Anything { "" } else { KEYS };
    let class = "class = \"down/res\"\n";
    let interface = |name: &str, class: &str, rest: String| format!("[[interface]]\nname = \"{name}\"\n{class}{rest}");
    let behind_a = interface("ab", class, neighbour(1, ["10.0.12.2", "fd12::2"]));
    a.configure(&format!("{OFTEN}{behind_a}{all}"));
    let both = interface("ba", "", neighbour(1, ["10.0.12.1", "fd12::1"]))
        + &interface("bc", class, neighbour(2, ["10.0.23.2", "fd23::2"]));
    b.configure(&format!("{OFTEN}{both}{all}"));
    // A key of the top level stands before all tables.
    let proxy = "receiver-proxy = [\"10.0.3.0/24\", \"fd03::/64\"]\n";
    let before_c = interface("cb", "", neighbour(2, ["10.0.23.1", "fd23::1"]));
    c.configure(&format!("{proxy}{OFTEN}{before_c}{all}"));
    let policy = |device: &str| POLICY.replace("DEVICE", device);
    a.shape(&policy("ab")) && b.shape(&policy("bc")) && a.speak() && b.speak() && c.speak()
}

const FROM: &str = "10.0.1.9:4000";
const TO: &str = "10.0.3.9:5004";

#[test]
fn a_reservation_is_made_along_the_path_and_goes_with_its_receiver() {
    let folder = Folder::new("row");
    let Some(mut hosts) = three(&folder) else { return };
    if !start(&mut hosts, Trust::Anything) {
        return;
    }
    let [a, b, c] = &mut hosts;
    let capture = Capture::start(&b.namespace);
    // Nothing but CAP_NET_RAW, number 13 (linux/capability.h).
    let status = std::fs::read_to_string(format!("/proc/{}/status", b.daemon.as_ref().unwrap().id())).unwrap();
    for set in ["CapPrm:", "CapEff:"] {
        let line = status.lines().find(|line| line.starts_with(set)).unwrap();
        assert_eq!(line.split_whitespace().last(), Some("0000000000002000"), "{line}");
    }
    let added = a.ask(&sender("add", FROM, TO, "500kbit/s"));
    assert_eq!((added.status.code(), out(&added).as_str()), (Some(0), "announced\n"), "{}", err(&added));
    until("a reservation in a and in b", || a.rates() == [500_000] && b.rates() == [500_000]);
    let there = b.reserved().remove(0);
    assert_eq!(there["owner"], "rsvp:10.0.23.2");
    assert!(there["key"].as_str().unwrap().starts_with("rsvp:10.0.3.9/17/5004/10.0.1.9/4000#"), "{there}");
    let flow = serde_json::json!({"src":"10.0.1.9","sport":4000,"dst":"10.0.3.9","dport":5004,"proto":"udp"});
    assert_eq!(there["flows"], serde_json::json!([flow]));
    assert_eq!(there["tspec"]["min_unit_bytes"], 128);
    // What the daemons show of it.
    let path = b.rsvp("path", "paths").remove(0);
    let expected = [("previous_hop", "10.0.12.1"), ("incoming", "ba"), ("outgoing", "bc"), ("src", "10.0.1.9")];
    for (key, value) in expected {
        assert_eq!(path[key], value, "{path}");
    }
    // One hop before, which could give the 8 Mbit/s that were free when it sent the Path.
    assert_eq!((&path["hops"], &path["gap"]), (&1.into(), &false.into()), "{path}");
    assert!(path["bandwidth_bit_s"].as_u64().is_some_and(|rate| (7_000_000..=8_000_000).contains(&rate)), "{path}");
    let resv = b.rsvp("resv", "reservations").remove(0);
    assert_eq!((&resv["class"], &resv["next_hop"]), (&there["class"], &"10.0.23.2".into()), "{resv}");
    assert!(out(&b.ask(&["rsvp", "resv"])).contains("500kbit/s"));
    // State lives for no more than 5.25 s without a refresh.
    assert!(resv["expires_s"].as_f64().is_some_and(|left| left <= 5.25), "{resv}");

    // IPv6 beside it: two more daemons' sockets of the same kernel do not take its messages.
    assert_eq!(a.ask(&sender("add", "[fd01::9]:4000", "[fd03::9]:5004", "700kbit/s")).status.code(), Some(0));
    until("one of IPv6 as well", || a.rates() == [500_000, 700_000] && b.rates() == [500_000, 700_000]);

    // More than 8 Mbit/s: refused at b, where the old one stands, and so it does at a.
    assert_eq!(a.ask(&sender("add", FROM, TO, "9Mbit/s")).status.code(), Some(0));
    until("b refuses", || b.refused("traffic control") > 0);
    until("c is told", || c.log(".rsvp.log").contains("the bandwidth is not there (01/02)"));
    assert_eq!((a.rates(), b.rates()), (vec![500_000, 700_000], vec![500_000, 700_000]));
    let paths = b.rsvp("path", "paths");
    assert!(paths.iter().any(|path| path["tspec"]["rate_bit_s"] == 9_000_000), "{paths:?}");
    // What fits is changed in place.
    let number = b.reserved()[0]["id"].clone();
    assert_eq!(a.ask(&sender("add", FROM, TO, "1Mbit/s")).status.code(), Some(0));
    until("the change", || a.rates() == [1_000_000, 700_000] && b.rates() == [1_000_000, 700_000]);
    assert_eq!(b.reserved()[0]["id"], number);

    // The router in the middle is started anew: its neighbours bring its state back.
    b.fall_silent();
    assert!(b.speak());
    until("paths and reservations are back", || {
        let resv = b.rsvp("resv", "reservations");
        resv.len() == 2 && resv.iter().all(|resv| resv["reserved"].is_object() && resv["class"].is_string())
    });
    until("as they were", || a.rates().len() == 2 && b.rates().len() == 2);

    // So they do after a new start of altq, where they are lost.
    b.lose_altq();
    assert!(b.shape(&POLICY.replace("DEVICE", "bc")));
    until("altq has them again", || b.rates().len() == 2);

    // The receiver's host falls silent: all is gone within the lifetime of its state.
    c.fall_silent();
    until("nothing is reserved", || b.rates().is_empty() && a.rates().is_empty());
    assert!(b.rsvp("resv", "reservations").is_empty());
    assert_eq!(b.rsvp("path", "paths").len(), 2, "the senders are there");
    assert_eq!(a.ask(&sender("del", FROM, TO, "")).status.code(), Some(0));
    until("the PathTear comes", || b.rsvp("path", "paths").len() == 1);

    let frames = capture.rsvp();
    assert!(frames.len() > 20, "{} messages", frames.len());
    frames.iter().for_each(|frame| check_headers(frame));
    has(&frames, &[1, 2, 3, 4, 5]);
    dissect(&folder, &frames);
}

/// Checks that there are messages of these types.
fn has(frames: &[Vec<u8>], kinds: &[u8]) {
    for kind in kinds {
        assert!(frames.iter().any(|frame| row::message(frame)[1] == *kind), "no message of type {kind}");
    }
}

/// Sends a message as anybody on the wire could, from the namespace of a host.
fn forge(host: &Host, device: &str, (source, destination): (IpAddr, IpAddr), router_alert: bool, message: Vec<u8>) {
    let transmit = Transmit { interface: 1, source, destination, ttl: 63, router_alert, message };
    let packet = packet::write(&transmit).unwrap();
    host.namespace.run(|| raw::send(raw::open(Kind::FourOut, device).unwrap(), destination, &packet).unwrap()).unwrap();
}

#[test]
fn what_is_forged_or_replayed_changes_nothing_and_is_counted() {
    let folder = Folder::new("forged");
    let Some(mut hosts) = three(&folder) else { return };
    if !start(&mut hosts, Trust::Signed) {
        return;
    }
    let [a, b, c] = &hosts;
    let capture = Capture::start(&b.namespace);
    assert_eq!(a.ask(&sender("add", FROM, TO, "500kbit/s")).status.code(), Some(0));
    until("a signed reservation", || a.rates() == [500_000] && b.rates() == [500_000]);
    let number = b.reserved()[0]["id"].clone();
    for why in ["no INTEGRITY", "wrong INTEGRITY", "replayed"] {
        assert_eq!(b.refused(why), 0, "{why}");
    }
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    let session = Session { address: ip("10.0.3.9"), protocol: 17, port: 5004 };
    let source = Sender::new(ip("10.0.1.9"), 4000);
    // What comes from a: a Path with twice the rate, and its tear.
    let tspec = Tspec { rate: 125_000.0, burst: 1e4, peak: f32::INFINITY, min_unit: 128, max_packet: 1500 };
    let hop = Hop { address: ip("10.0.12.1"), handle: 1 };
    let (session_flags, refresh_ms, adspec, passed_on) = (0, 1_000, None, Vec::new());
    let path =
        Message::Path(Path { session, session_flags, hop, refresh_ms, sender: source, tspec, adspec, passed_on });
    let path_tear = Message::PathTear(PathTear { session, hop, sender: source });
    // What comes from c: a Resv for as much, and its tear. The handle is not looked at before
    // INTEGRITY.
    let hop = Hop { address: ip("10.0.23.2"), handle: 2 };
    let (style, scope, confirm, passed_on) = (Style::Fixed, Vec::new(), None, Vec::new());
    let flows = vec![Flow { flowspec: Flowspec::ControlledLoad(tspec), filters: vec![source] }];
    let resv = Message::Resv(Resv { session, hop, refresh_ms, confirm, scope, style, flows, passed_on });
    let resv_tear = Message::ResvTear(ResvTear { session, hop, scope: Vec::new(), style, filters: vec![source] });
    let bytes = |message: &Message| encode(message, 63).unwrap();
    let unsigned = |message: &Message| {
        let mut bytes = bytes(message);
        set_checksum(&mut bytes);
        bytes
    };
    let down = (source.address, session.address);
    let up = (ip("10.0.23.2"), ip("10.0.23.1"));
    for (path, resv) in [(&path, &resv), (&path_tear, &resv_tear)] {
        forge(a, "ab", down, true, unsigned(path));
        forge(c, "cb", up, false, unsigned(resv));
    }
    until("all four are refused", || b.refused("no INTEGRITY") == 4);
    // Signed by who does not know the secret, with a number of the far future.
    let guessed = |id: u64, algorithm: Algorithm| Key { id, algorithm, secret: b"a guess".to_vec() };
    let signed = |message: &Message, key: Key| sign(&bytes(message), &key, u64::MAX - 1).unwrap();
    for (path, resv) in [(&path, &resv), (&path_tear, &resv_tear)] {
        forge(a, "ab", down, true, signed(path, guessed(1, Algorithm::HmacSha256)));
        forge(c, "cb", up, false, signed(resv, guessed(2, Algorithm::HmacMd5)));
    }
    forge(a, "ab", down, true, signed(&path_tear, guessed(7, Algorithm::HmacSha256)));
    until("all five are refused", || b.refused("wrong INTEGRITY") == 5);
    // A true Path again, as it was recorded.
    let recorded = capture.rsvp().into_iter().find(|frame| frame[14] == 0x46 && frame[38 + 1] == 1).unwrap();
    until("a later one was taken", || {
        capture.rsvp().iter().filter(|frame| frame[14] == 0x46 && frame[38 + 1] == 1).count() > 4
    });
    forge(a, "ab", down, true, recorded[38..].to_vec());
    until("it is refused", || b.refused("replayed") == 1);
    // A stranger on the wire, who is no neighbour.
    let far =
        Message::PathTear(PathTear { session, hop: Hop { address: ip("10.0.12.99"), handle: 1 }, sender: source });
    forge(a, "ab", down, true, unsigned(&far));
    until("who is no neighbour is not believed", || b.refused("the neighbour is not listed") == 1);
    // All is as it was, and the state goes on to be refreshed.
    assert_eq!(b.reserved()[0]["id"], number);
    assert_eq!((a.rates(), b.rates()), (vec![500_000], vec![500_000]));
    let path = b.rsvp("path", "paths").remove(0);
    assert_eq!((&path["tspec"]["rate_bit_s"], &path["previous_hop"]), (&500_000.into(), &"10.0.12.1".into()));
    let before = b.json(&["rsvp", "neighbours"])["received"]["Path"].as_u64().unwrap();
    until("refreshes are taken", || b.json(&["rsvp", "neighbours"])["received"]["Path"].as_u64() > Some(before));
    let frames = capture.rsvp();
    frames.iter().filter(|frame| frame[15] == 0xc0).for_each(|frame| check_headers(frame));
    dissect(&folder, &frames);
}

/// Nothing of a neighbour is believed before it has answered a challenge: not even what it has
/// signed, if somebody recorded that before this router was started.
#[test]
fn neighbours_are_challenged_first() {
    let folder = Folder::new("challenge");
    let Some(mut hosts) = three(&folder) else { return };
    if !start(&mut hosts, Trust::Challenged) {
        return;
    }
    let [a, b, _] = &mut hosts;
    let capture = Capture::start(&b.namespace);
    a.announce(FROM, TO, "500kbit/s");
    until("a reservation", || a.rates() == [500_000] && b.rates() == [500_000]);
    // Type 25, to a (the destination of IPv4).
    let challenges = || {
        let frames = capture.rsvp();
        frames.iter().filter(|frame| row::message(frame)[1] == 25 && frame[30..34] == [10, 0, 12, 1]).count()
    };
    assert!(challenges() > 0);
    let is_path = |frame: &Vec<u8>| frame[14] == 0x46 && row::message(frame)[1] == 1 && frame[26..30] == [10, 0, 1, 9];
    let recorded = capture.rsvp().into_iter().find(is_path).unwrap();
    // Both start anew. Before a does, somebody sends what a had sent.
    a.fall_silent();
    b.fall_silent();
    assert!(b.speak());
    let before = challenges();
    let down = ("10.0.1.9".parse().unwrap(), "10.0.3.9".parse().unwrap());
    forge(a, "ab", down, true, row::message(&recorded).to_vec());
    until("a is challenged", || challenges() > before);
    assert!(b.refused("a handshake is under way") > 0);
    assert!(b.rsvp("path", "paths").is_empty());
    assert!(a.speak());
    a.announce(FROM, TO, "600kbit/s");
    until("a has answered", || a.rates() == [600_000] && b.rates() == [600_000]);
    let frames = capture.rsvp();
    frames.iter().for_each(|frame| check_headers(frame));
    has(&frames, &[1, 2, 25, 26]);
    dissect(&folder, &frames);
}

/// The style SE: one reservation, which its senders share.
#[test]
fn senders_share_a_reservation() {
    let folder = Folder::new("shared");
    let Some(mut hosts) = three(&folder) else { return };
    if !start(&mut hosts, Trust::Anything) {
        return;
    }
    let [a, b, c] = &hosts;
    let capture = Capture::start(&b.namespace);
    let (first, second, to) = (FROM, "10.0.1.9:4002", "10.0.23.2:6000");
    for from in [first, second] {
        a.announce(from, to, "500kbit/s");
    }
    until("both paths come to c", || c.rsvp("path", "paths").len() == 2);
    let senders = ["rsvp", "receiver", "add", "--shared", "--from", first, "--from", second];
    let asked = c.ask(&[&senders[..], &["--to", to, "--rate", "300kbit/s", "--burst", "5kbytes"]].concat());
    assert_eq!(asked.status.code(), Some(0), "{}", err(&asked));
    // The ports of the senders of the only reservation.
    let ports = |host: &Host| match host.reserved().as_slice() {
        [one] => one["flows"].as_array().unwrap().iter().map(|flow| flow["sport"].as_u64().unwrap()).collect(),
        _ => Vec::new(),
    };
    until("one for both", || ports(a) == [4000, 4002] && ports(b) == [4000, 4002]);
    let there = b.reserved().remove(0);
    assert!(there["key"].as_str().unwrap().starts_with("rsvp:10.0.23.2/17/6000#"), "{there}");
    assert_eq!(b.rates(), [300_000]);
    assert_eq!(b.rsvp("resv", "reservations")[0]["style"], "se");
    // One of them ends. The other one has it alone.
    assert_eq!(a.ask(&sender("del", first, to, "")).status.code(), Some(0));
    until("one for the second", || ports(a) == [4002] && ports(b) == [4002]);
    assert_eq!((b.rates(), &b.reserved()[0]["id"]), (vec![300_000], &there["id"]));
    assert_eq!(out(&c.ask(&["rsvp", "receiver", "del", "--to", to])), "given up\n");
    until("it is gone", || a.rates().is_empty() && b.rates().is_empty());
    let frames = capture.rsvp();
    frames.iter().for_each(|frame| check_headers(frame));
    has(&frames, &[1, 2, 5, 6]);
    // The object STYLE with the options of SE (RFC 2205 A.7).
    let shared = |frame: &Vec<u8>| row::message(frame).windows(8).any(|object| object == [0, 8, 8, 1, 0, 0, 0, 18]);
    assert!(frames.iter().any(|frame| row::message(frame)[1] == 2 && shared(frame)));
    dissect(&folder, &frames);
}

/// An application asks for a receiver, and another flowspec than the sender's; and what is wrong is
/// said with a way out.
#[test]
fn receivers_ask_and_mistakes_are_said() {
    let folder = Folder::new("asks");
    let silent = Command::new(env!("CARGO_BIN_EXE_altq"))
        .args(["rsvp", "path", "--rsvp-socket"])
        .arg(folder.0.join("nobody"))
        .output()
        .unwrap();
    assert_eq!(silent.status.code(), Some(1));
    assert!(err(&silent).contains("start `altq rsvpd`") && err(&silent).lines().count() == 1, "{}", err(&silent));
    let file = folder.0.join("wrong.toml");
    std::fs::write(&file, "[[interface]]\nname = \"eth0\"\nclas = \"res\"\n").unwrap();
    let wrong = Command::new(env!("CARGO_BIN_EXE_altq")).arg("rsvpd").arg(&file).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(err(&wrong).contains("clas") && err(&wrong).contains("line 3"), "{}", err(&wrong));
    std::fs::write(&file, "[[interface]]\nname = \"nosuch0\"\n").unwrap();
    let wrong = Command::new(env!("CARGO_BIN_EXE_altq")).arg("rsvpd").arg(&file).output().unwrap();
    assert_eq!(wrong.status.code(), Some(7), "{}", err(&wrong));
    assert!(err(&wrong).contains("no interface `nosuch0` here"), "{}", err(&wrong));

    let Some(mut hosts) = three(&folder) else { return };
    if !start(&mut hosts, Trust::Anything) {
        return;
    }
    let [a, b, c] = &mut hosts;
    let capture = Capture::start(&b.namespace);
    // An address of c itself: the path ends there, and nobody answers by himself.
    let to = "10.0.23.2:6000";
    assert_eq!(a.ask(&sender("add", FROM, to, "500kbit/s")).status.code(), Some(0));
    until("the path comes to c", || c.rsvp("path", "paths").len() == 1);
    let ask = |host: &Host, from: &str, rate: &str| {
        let words = ["rsvp", "receiver", "add", "--from", from, "--to", to, "--rate", rate, "--burst", "5kbytes"];
        host.ask(&words)
    };
    let unknown = ask(c, "10.0.1.9:4001", "300kbit/s");
    assert_eq!(unknown.status.code(), Some(5));
    assert!(err(&unknown).contains("no path of such a sender ends here"), "{}", err(&unknown));
    assert!(b.rates().is_empty());
    assert_eq!(ask(c, FROM, "300kbit/s").status.code(), Some(0));
    until("it is made", || a.rates() == [300_000] && b.rates() == [300_000]);
    until("it is confirmed", || c.log(".rsvp.log").contains("confirmed by"));
    assert!(a.log(".rsvp.log").contains("are reserved for the sender 10.0.1.9/4000"), "{}", a.log(".rsvp.log"));
    // It is given up: the ResvTear takes it away at once, and not when it expires.
    assert_eq!(out(&c.ask(&["rsvp", "receiver", "del", "--to", to])), "given up\n");
    until("it is gone", || a.rates().is_empty() && b.rates().is_empty());
    assert_eq!(out(&c.ask(&["rsvp", "receiver", "del", "--to", to])), "nothing was asked for here\n");
    // An administrator takes one away in altq: the daemon tells the receiver.
    assert_eq!(ask(c, FROM, "300kbit/s").status.code(), Some(0));
    until("it is made again", || b.rates() == [300_000]);
    let key = b.reserved()[0]["key"].as_str().unwrap().to_owned();
    assert_eq!(b.ask(&["reserve", "del", "--key", &key]).status.code(), Some(0));
    until("the receiver is told", || c.log(".rsvp.log").contains("preempted (12/00)"));
    // The sender is away for longer than its path lives. When that comes again, the receiver asks
    // again.
    a.fall_silent();
    until("the path is gone", || c.rsvp("path", "paths").is_empty());
    assert!(a.speak());
    assert_eq!(a.ask(&sender("add", FROM, to, "500kbit/s")).status.code(), Some(0));
    until("it is made once more", || a.rates() == [300_000] && b.rates() == [300_000]);
    // The ResvTear and the ResvConf are among the messages, and all are right.
    let frames = capture.rsvp();
    frames.iter().for_each(|frame| check_headers(frame));
    has(&frames, &[1, 2, 5, 6, 7]);
    dissect(&folder, &frames);
    // At the end of a daemon its socket goes.
    let daemon = a.daemon.as_mut().unwrap();
    assert!(Command::new("kill").args(["-TERM", &daemon.id().to_string()]).status().unwrap().success());
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", a.log(".rsvp.log"));
    assert!(!a.path(".rsvp").exists());
}

/// What neighbours and clients ask for is done whether or not somebody reads what is said of it.
#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let folder = Folder::new("unread");
    let Some(mut hosts) = three(&folder) else { return };
    let (mut reader, mut writer) = pipe().unwrap();
    fill(&mut writer);
    hosts[1].stderr = Some(writer.try_clone().unwrap());
    if !start(&mut hosts, Trust::Anything) {
        return;
    }
    let [a, b, _] = &mut hosts;
    a.announce(FROM, TO, "500kbit/s");
    until("a reservation", || b.rates() == [500_000]);
    // Clients are answered by the thread that says of reservations that they are made.
    assert_eq!(b.rsvp("resv", "reservations").len(), 1);
    let before = there(&mut reader);
    assert!(before.bytes().all(|byte| byte == b'.'), "there was no room: {before}");
    // Now somebody reads.
    a.announce("10.0.1.9:4002", "10.0.3.9:5006", "700kbit/s");
    let mut said = String::new();
    until("what is missing and what is new is said", || {
        said += &there(&mut reader);
        said.contains("lost because standard error was not read\n") && said.contains("700000 bit/s are reserved at bc")
    });
    check_lost(&said, "altq rsvpd: ");
    // Nobody reads once more. A reservation goes, and the daemon ends when it is asked to.
    fill(&mut writer);
    assert_eq!(a.ask(&sender("del", FROM, TO, "")).status.code(), Some(0));
    until("it is given up", || b.rates() == [700_000]);
    let daemon = b.daemon.as_mut().unwrap();
    assert!(Command::new("kill").args(["-TERM", &daemon.id().to_string()]).status().unwrap().success());
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}
