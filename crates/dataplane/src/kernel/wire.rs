//! Sends requests to the kernel's rtnetlink, and reads their answers.

use std::io;
use std::os::fd::OwnedFd;

use altq_kernel::message::{Message, Messages, number};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::sys::netlink;

/// The longest datagram of a dump. The kernel fills them up to 32 KB.
const DATAGRAM: usize = 1 << 18;

/// Why a request was not carried out, or why that is not known.
#[derive(Debug)]
pub struct Refused {
    /// The number of the error; `InvalidData` for an answer that is cut short or missing.
    pub error: io::Error,
    /// The kernel's text about it; may be empty.
    pub said: String,
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused { error, said: String::new() }
    }
}

/// What answers requests: the kernel, or in tests a kernel that can fail.
pub trait Ask {
    /// Sends a request and returns the messages that come before its end.
    ///
    /// # Errors
    /// The kernel's answer.
    fn ask(&mut self, request: &[u8]) -> Result<Vec<Message>, Refused>;
}

/// A socket of rtnetlink, in the network namespace of the thread that opened it.
pub struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket.
    ///
    /// # Errors
    /// That of the system call.
    pub fn open() -> io::Result<Socket> {
        // The protocol NETLINK_ROUTE is 0. The kernel gives the socket an address when it sends.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        // Optional: kernels before 4.12 say less about errors.
        let _ = netlink::explain(&socket);
        Ok(Socket { socket, sequence: 0, buffer: vec![0; DATAGRAM] })
    }
}

impl Ask for Socket {
    fn ask(&mut self, request: &[u8]) -> Result<Vec<Message>, Refused> {
        // Throws away the rest of an earlier answer that was not read to its end.
        while recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT).is_ok_and(|(_, len)| len > 0) {}
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = request.to_vec();
        number(&mut request, self.sequence);
        send(&self.socket, &request, SendFlags::empty()).map_err(io::Error::from)?;
        let mut found = Vec::new();
        loop {
            // The kernel answers before `send` returns, and continues a dump when it is read. So
            // there is no need to wait: an answer that is not there will never come.
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let (_, len) = match recv(&self.socket, self.buffer.as_mut_slice(), flags) {
                Ok(received) => received,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return Err(cut_short()),
                Err(error) => return Err(io::Error::from(error).into()),
            };
            let datagram = self.buffer.get(..len).ok_or_else(cut_short)?;
            for message in Messages::new(datagram) {
                match message {
                    Message::Answer(to, error, said) if to == self.sequence => {
                        return match error {
                            0 => Ok(found),
                            error => Err(Refused { error: io::Error::from_raw_os_error(error), said }),
                        };
                    }
                    Message::Done(to) if to == self.sequence => return Ok(found),
                    // The answer to another request.
                    Message::Answer(..) | Message::Done(_) => {}
                    Message::Broken => return Err(cut_short()),
                    message => found.push(message),
                }
            }
        }
    }
}

/// The error for an answer that is cut short.
pub(super) fn cut_short() -> Refused {
    io::Error::new(io::ErrorKind::InvalidData, "its answer is cut short").into()
}
