//! A pipe that nobody reads, as the standard error of a service.

#![allow(dead_code)]

use std::io::{PipeReader, PipeWriter, Read, Write};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ioctl_fionread;

/// Fills a pipe.
pub fn fill(writer: &mut PipeWriter) {
    let flags = fcntl_getfl(&*writer).unwrap();
    fcntl_setfl(&*writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok_and(|count| count > 0) {}
    // From now on whoever writes with this descriptor waits.
    fcntl_setfl(&*writer, flags).unwrap();
}

/// Reads what is in a pipe.
pub fn there(reader: &mut PipeReader) -> String {
    let mut bytes = vec![0; ioctl_fionread(&*reader).unwrap() as usize];
    reader.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Checks that what was said tells of more than one line that was lost, and has whole lines only.
pub fn check_lost(said: &str, who: &str) {
    let first = said.lines().find(|line| line.contains("lost because")).unwrap();
    let lost = first.strip_prefix(who).and_then(|line| line.split(' ').next());
    assert!(lost.is_some_and(|lost| lost.parse::<u32>().is_ok_and(|lost| lost > 1)), "{said}");
    assert!(said.lines().all(|line| line.starts_with(who)), "whole lines: {said}");
}
