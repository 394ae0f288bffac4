//! What prevents a bridge by AF_XDP, tested in a namespace of its own.

use std::process::Command;

use super::*;
use crate::netns::Namespace;

/// Runs `ip` with these words. True if it succeeded.
fn ip(namespace: &Namespace, words: &str) -> bool {
    let run = || Command::new("ip").args(words.split(' ')).output().is_ok_and(|output| output.status.success());
    namespace.run(run).unwrap()
}

/// Opens a bridge between two interfaces and closes it again.
fn opened(namespace: &Namespace, ends: (&str, &str)) -> Result<(), Error> {
    namespace.run(|| open(ends, [FRAMES; 2], &Stop::new().unwrap(), 0).map(drop)).unwrap()
}

/// A namespace with the interfaces `a` and `b`, each an end of a veth pair, that AF_XDP can bridge;
/// `None`, with a message, if this host lacks something.
fn namespace() -> Option<Namespace> {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => {
            eprintln!("SKIPPED: this test makes a network namespace, which needs root ({error})");
            return None;
        }
    };
    for name in ["a", "b"] {
        if !ip(&namespace, &format!("link add name {name} type veth peer name {name}2")) {
            eprintln!("SKIPPED: this test needs iproute2 and veth interfaces");
            return None;
        }
        assert!(
            ip(&namespace, &format!("link set dev {name} up")) && ip(&namespace, &format!("link set dev {name}2 up"))
        );
    }
    match opened(&namespace, ("a", "b")) {
        Ok(()) => Some(namespace),
        Err(error @ (Error::Xdp(_) | Error::NotPermitted { .. } | Error::Unsupported { .. })) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The interface at its index.
fn index(namespace: &Namespace, name: &str) -> u32 {
    namespace.run(|| find(name).unwrap().index).unwrap()
}

/// What works once the kernel has let go of what this process closed. Another test may start a
/// program meanwhile, and between fork and exec that has a copy of each descriptor.
fn soon<T, E: std::fmt::Debug>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    for _ in 0..500 {
        match attempt() {
            Ok(done) => return done,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    attempt().unwrap()
}

#[test]
fn another_program_is_named_and_left_alone() {
    let Some(namespace) = namespace() else { return };
    let b = index(&namespace, "b");
    for mode in [Mode::Native, Mode::Generic] {
        let attached = || {
            let map = xdp::sockets(1).unwrap();
            xdp::redirect_to(map.as_fd(), b, mode, None)
        };
        let other = soon(|| namespace.run(attached).unwrap());
        let refused = soon(|| match opened(&namespace, ("a", "b")) {
            Err(refused) if refused.to_string().contains("XDP program is attached to b") => Ok(refused),
            Err(refused) => Err(refused.to_string()),
            Ok(_) => Err("it opens".to_owned()),
        });
        assert!(matches!(refused, Error::Foreign(_)), "{refused}");
        assert!(may_fall_back(&refused));
        // What was attached to `a` is detached again, and `b` is free again.
        drop(other);
        soon(|| opened(&namespace, ("a", "b")));
    }
}

#[test]
fn another_socket_is_named() {
    let Some(namespace) = namespace() else { return };
    let queues = [(index(&namespace, "a"), 1), (index(&namespace, "b"), 1)];
    let memory = Arc::new(Mapping::new(64 * HEAD).unwrap());
    let held = namespace.run(|| xsk::open(queues, &memory, true).unwrap()).unwrap();
    let refused = opened(&namespace, ("a", "b")).unwrap_err();
    assert!(matches!(refused, Error::Foreign(_)) && refused.to_string().contains("has a queue"), "{refused}");
    drop(held);
    soon(|| opened(&namespace, ("a", "b")));
}

#[test]
fn an_interface_that_lies_on_others_is_refused() {
    let Some(namespace) = namespace() else { return };
    if !ip(&namespace, "link add name c type bridge") {
        return eprintln!("SKIPPED: this test needs a bridge of the kernel");
    }
    assert!(ip(&namespace, "link set dev b master c") && ip(&namespace, "link set dev c up"));
    let refused = opened(&namespace, ("a", "c")).unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, Error::Xdp(_)) && said.contains("super-packets may come to c"), "{said}");
    assert!(may_fall_back(&refused));
}

#[test]
fn an_interface_that_is_down_is_not_left_to_packet_sockets() {
    let Some(namespace) = namespace() else { return };
    assert!(ip(&namespace, "link set dev b2 down"));
    let refused = opened(&namespace, ("a", "b")).unwrap_err();
    assert!(matches!(&refused, Error::NotReady { name, .. } if name == "b") && !may_fall_back(&refused), "{refused}");
}
