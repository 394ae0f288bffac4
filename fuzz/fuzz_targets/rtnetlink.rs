//! Any bytes as a datagram of rtnetlink: no panic, an end, and what is read is no longer than the
//! datagram. What a kernel shows so is compared with a tree without a panic.

#![no_main]

use std::sync::LazyLock;

use altq_config::{Language, parse_str};
use altq_kernel::message::{Message, Messages};
use altq_kernel::plan::{Shown, class_changes, differences};
use altq_kernel::{Host, Place, Tree, translate};
use libfuzzer_sys::fuzz_target;

/// A tree with nested schedulers, several queues and filters.
static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let text = "link wan { device eth0  rate 10Mbit/s  overhead 8 bytes  scheduler hfsc
        class site { linkshare 9Mbit/s  scheduler drr
            class a { quantum 3000  queue codel {} }  class b { quantum 1600  queue sfq {} } }
        class rest { linkshare 1Mbit/s  default  queue fq_codel {} }
        match dport 80 -> a  match mark 3 -> b  match length 0-99 -> b }";
    let policy = parse_str(text, "fuzz.altq", Language::Native).unwrap();
    translate(&policy.links[0], &Host::default(), Place::ROOT).unwrap()
});

fuzz_target!(|datagram: &[u8]| {
    let (mut shown, mut count) = (Shown::default(), 0);
    for message in Messages::new(datagram) {
        count += 1;
        match message {
            Message::Qdisc(found) => shown.qdiscs.push(found),
            Message::Class(found) => shown.classes.push(found),
            Message::Filter(found) => shown.filters.push(found),
            Message::Answer(_, _, text) => assert!(text.len() <= 3 * datagram.len()),
            _ => {}
        }
    }
    assert!(count <= datagram.len());
    let all = [&shown.qdiscs, &shown.classes, &shown.filters];
    assert!(all.iter().flat_map(|list| list.iter()).all(|found| found.options.len() <= datagram.len()));
    let differ = differences(&TREE, 1, &shown, &|class| class.to_string());
    let changes = class_changes(&TREE, 1, &shown);
    assert!(changes.is_none_or(|changes| changes.len() == differ.len()));
});
