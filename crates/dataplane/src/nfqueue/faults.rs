//! Tests with faults at each call of netlink, and with answers that are cut short: nothing is left
//! half set up, and no packet is left waiting.

use std::net::UdpSocket;
use std::time::Duration;

use super::edge::{Place, QueueEdge};
use super::steer::{Fail, Steer, Steering};
use crate::edge::{Edge, Want};
use crate::error::Error;
use crate::netns::Namespace;
use crate::pool::Pool;
use crate::stop::Stop;
use crate::sys::netlink::fault;
use crate::sys::wait::now;

/// Slots for packets.
const FRAMES: usize = 256;
/// Datagrams that are sent in a try.
const COUNT: usize = 20;

/// A queue for packets that leave by the loopback interface, or come in at it. `passes`: they pass
/// until they are held.
fn open(ingress: bool, passes: bool) -> Result<QueueEdge, Error> {
    let (frames, bytes) = (FRAMES, 1 << 20);
    let place = Place { interface: "lo", ingress, named: &[], frames, bytes, whole: false, passes, spin: 0 };
    QueueEdge::open(&place, Stop::new().unwrap())
}

/// Rules that hand packets to the queue of an edge for packets that leave. `None`, with a message,
/// if this host has no firewall for that.
fn steer(edge: &QueueEdge) -> Option<Steering> {
    let (interface, queue, dscp, fail) = ("lo".to_owned(), edge.queue(), Vec::new(), Fail::Open);
    match Steering::new(Steer { interface, ingress: false, port: false, queue, dscp, fail }) {
        Ok(steering) => Some(steering),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// Two sockets, of which the first sends to the second.
fn sockets() -> (UdpSocket, UdpSocket) {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    sink.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    source.connect(sink.local_addr().unwrap()).unwrap();
    (source, sink)
}

/// The queues of the namespace, a line each.
fn queues() -> String {
    std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap_or_default()
}

/// The queues that are left after the last one was closed. A child process of another test may hold
/// a copy of the queue's descriptor until it executes its program, so this waits.
fn left() -> String {
    for _ in 0..200 {
        if queues().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    queues()
}

/// Runs a test in a namespace whose loopback interface is up. It is skipped with a message where
/// there are no namespaces, or no queues.
fn in_a_namespace(test: impl FnOnce() + Send) {
    let work = || {
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if !up.is_ok_and(|status| status.success()) {
            return eprintln!("SKIPPED: this test needs iproute2");
        }
        match open(true, true) {
            Ok(edge) => drop(edge),
            Err(error) => return eprintln!("SKIPPED: {error}"),
        }
        test();
    };
    match Namespace::new() {
        Ok(namespace) => namespace.run(work).unwrap(),
        Err(error) => eprintln!("SKIPPED: this test makes a network namespace, which needs root ({error})"),
    }
}

/// A start makes these calls: it opens the socket; then for binding, for letting packets pass, and
/// for connection tracking, it sends a request and reads the answer.
#[test]
fn a_fault_at_any_call_of_the_start_leaves_no_queue() {
    in_a_namespace(|| {
        for (how, fail) in [(libc::ENOBUFS, 7), (libc::ENOMEM, 7), (0, 3)] {
            let mut failed = 0;
            for call in 0.. {
                fault::HOW.set(how);
                fault::UNTIL.set(call);
                let edge = open(true, true);
                let reached = fault::UNTIL.get() < 0;
                fault::UNTIL.set(-1);
                if let Err(error) = &edge {
                    failed += 1;
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                }
                let empty = if edge.is_ok() { queues().is_empty() } else { left().is_empty() };
                assert_eq!(edge.is_err(), empty, "call {call}");
                drop(edge);
                assert_eq!(left(), "", "call {call}");
                if !reached {
                    break;
                }
            }
            assert_eq!(failed, fail, "error {how}");
        }
    });
}

/// Handles the datagrams that wait: every other one goes on, the others are dropped. Returns how
/// many there were.
fn handle(edge: &mut QueueEdge) -> Result<usize, Error> {
    let (mut pool, mut arrived, mut leaving) = (Pool::new(FRAMES, 0), Vec::new(), Vec::new());
    let mut seen = 0;
    for _ in 0..50 {
        edge.receive(&mut pool, &mut arrived)?;
        for handle in arrived.drain(..) {
            if seen % 2 == 0 {
                leaving.push(handle);
            } else {
                edge.dropped(handle);
                pool.free(handle);
            }
            seen += 1;
        }
        while !leaving.is_empty() {
            let sent = edge.send(&mut pool, &leaving, &[])?;
            leaving.drain(..sent.done).for_each(|handle| pool.free(handle));
        }
        edge.wait(Some(now() + 1_000_000), Want { frames: true, room: false })?;
        if seen >= COUNT {
            break;
        }
    }
    Ok(seen)
}

/// If memory is short, the edge tries again and loses nothing. After any other error, or if
/// messages were cut short, packets that wait are let through when the queue is closed.
#[test]
fn a_fault_while_packets_wait_leaves_none_behind() {
    in_a_namespace(|| {
        let (source, sink) = sockets();
        for how in [libc::ENOBUFS, libc::EBADF, 0] {
            for call in 0.. {
                let mut edge = open(false, false).unwrap();
                let Some(mut steering) = steer(&edge) else { return };
                for number in 0..COUNT {
                    source.send(&[number as u8; 100]).unwrap();
                }
                fault::HOW.set(how);
                fault::UNTIL.set(call);
                let handled = handle(&mut edge);
                let reached = fault::UNTIL.get() < 0;
                fault::UNTIL.set(-1);
                drop(edge);
                steering.remove().unwrap();
                let mut data = [0; 200];
                let mut arrived: Vec<u8> = Vec::new();
                while let Ok(len) = sink.recv(&mut data) {
                    assert_eq!(len, 100);
                    arrived.push(data[0]);
                }
                let what = format!("error {how} at call {call}: {handled:?}, {arrived:?}");
                // The packets that go on have even numbers; each arrives once.
                let even = |number: &u8| number.is_multiple_of(2);
                let mut once = arrived.clone();
                once.sort_unstable();
                once.dedup();
                assert_eq!(once.len(), arrived.len(), "{what}");
                if how == libc::ENOBUFS || !reached {
                    assert!(handled.is_ok_and(|seen| seen == COUNT), "{what}");
                    assert!(arrived.len() == COUNT / 2 && arrived.iter().all(even), "{what}");
                } else if how == 0 {
                    // Packets whose messages were cut short are let through when the queue is
                    // closed.
                    assert!(handled.is_ok() && arrived.len() >= COUNT / 2, "{what}");
                } else {
                    assert!(handled.is_err() && arrived.len() >= COUNT / 2, "{what}");
                }
                assert_eq!(left(), "", "{what}");
                if !reached {
                    break;
                }
            }
        }
    });
}

/// Packets pass until the loop runs, and a little longer if memory is short just then.
#[test]
fn packets_pass_until_they_are_held() {
    in_a_namespace(|| {
        let (source, sink) = sockets();
        let arrives = || sink.recv(&mut [0; 200]).is_ok();
        let sent_arrives = || {
            source.send(&[7; 100]).unwrap();
            arrives()
        };
        let mut edge = open(false, true).unwrap();
        let Some(mut steering) = steer(&edge) else { return };
        assert!(sent_arrives());
        fault::HOW.set(libc::ENOBUFS);
        fault::UNTIL.set(0);
        edge.hold().unwrap();
        fault::UNTIL.set(-1);
        assert!(sent_arrives());
        edge.wait(Some(now()), Want { frames: true, room: false }).unwrap();
        assert!(!sent_arrives());
        // It goes on with the end of the queue.
        drop(edge);
        assert!(arrives());
        assert_eq!(left(), "");
        // Where nothing may pass, packets wait from the start.
        let mut edge = open(false, false).unwrap();
        assert!(!sent_arrives());
        edge.hold().unwrap();
        assert!(!sent_arrives());
        drop(edge);
        assert!(arrives() && arrives());
        steering.remove().unwrap();
        assert_eq!(left(), "");
    });
}
