//! A tap into a pipe whose reader stands still.

use std::io::pipe;
use std::os::fd::OwnedFd;

use altq_config::{Language, parse_str};

use super::*;
use crate::channel::Channel;
use crate::running::{Senders, channel};
use crate::shaper::{Shaper, Tuning};
use crate::stop::Stop;

/// A loop that does not run, and the handle to it.
fn idle() -> (Shaper<Channel>, Handle) {
    let text = "link l { rate 1Mbit/s  scheduler fifo  class all { default } }";
    let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let (link, tuning) = (&policy.links[0], Tuning { memory: 64 << 20, ..Tuning::default() });
    let mut shaper = Shaper::new(link, "a", Channel::new(0), tuning).unwrap();
    let mut senders = Senders::new();
    channel(&mut senders, link, Stop::new().unwrap(), &mut shaper);
    let handle = senders.remove("l").unwrap();
    (shaper, handle)
}

/// Whether a pipe takes bytes at once.
fn has_room(file: &File) -> bool {
    poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

/// Whoever has tapped is gone, and the pipe is full, with a reader that holds it open and does not
/// read. A write would wait for it for ever, and the link could not be tapped again.
#[test]
fn a_tap_into_a_pipe_that_stands_still_ends_if_nobody_asks_about_it() {
    let (reader, writer) = pipe().unwrap();
    let mut file = File::from(OwnedFd::from(writer));
    while has_room(&file) {
        file.write_all(&[0; 4096]).unwrap();
    }
    let (_shaper, handle) = idle();
    let tapping = start(&handle, ALL, file).unwrap();
    assert_eq!(tapping.tapped().ended, None);
    // As if nobody had asked for so long.
    tapping.0.done().1 = Instant::now().checked_sub(LEASE + WAITED).unwrap();
    let begun = Instant::now();
    while tapping.0.done().0.ended.is_none() {
        assert!(begun.elapsed() < LEASE, "it waits for a reader that does not read");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(tapping.tapped().ended, Some(Ended::Left));
    drop(reader);
}
