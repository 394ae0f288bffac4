//! The client's end of the socket, for commands that send one request after another.

use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, Write};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, sendmsg, socket_with,
};
use serde::Serialize;

use crate::fault::{Code, Fault};
use crate::reply;

/// A connection to a running altq.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    next: u64,
    /// What has come of a line.
    begun: Vec<u8>,
    /// How long a reply may take.
    patience: Duration,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

/// A request as it is sent.
#[derive(Serialize)]
struct Numbered<'a, T> {
    v: u64,
    id: u64,
    op: &'a str,
    #[serde(flatten)]
    fields: &'a T,
}

/// The fields of a request without any.
#[derive(Serialize)]
pub struct NoFields {}

/// How long a reply may take unless the client says otherwise. A document about 100,000 classes
/// takes a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Connects to a Unix socket without waiting, and returns a stream that does not block.
///
/// # Errors
/// Those of connect(2); EAGAIN where the listener takes no connections and enough of them wait.
pub fn open_at_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Why there is no connection, and what to do.
fn not_connected(path: &Path, error: &io::Error) -> Fault {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            Fault::new(Code::Failed, format!("no altq runs with the control socket {shown}"))
                .help("start `altq run`, or say where its socket is with --socket or ALTQ_SOCKET")
        }
        ErrorKind::PermissionDenied => Fault::new(Code::NotPermitted, format!("{shown}: permission denied"))
            .help("run this as root, or as a member of the group that owns the socket"),
        _ => Fault::new(Code::Failed, format!("{shown}: {error}")),
    }
}

impl Client {
    /// Connects to the socket of a running altq.
    ///
    /// # Errors
    /// Nobody listens there, or the socket's mode does not allow it. The fault says what to do.
    pub fn connect(path: &Path) -> Result<Client, Fault> {
        let stream = UnixStream::connect(path).map_err(|error| not_connected(path, &error))?;
        Client::over(path, stream)
    }

    /// As [`connect`](Client::connect), for a caller that must not be held up. Where altq has
    /// stopped taking connections and as many wait as the kernel keeps, this fails, and `connect`
    /// would wait without end.
    ///
    /// # Errors
    /// As `connect`.
    pub fn connect_at_once(path: &Path) -> Result<Client, Fault> {
        let stream = open_at_once(path).map_err(|error| not_connected(path, &error))?;
        stream.set_nonblocking(false).map_err(|error| not_connected(path, &error))?;
        Client::over(path, stream)
    }

    fn over(path: &Path, stream: UnixStream) -> Result<Client, Fault> {
        let stream = BufReader::with_capacity(PIECE, stream);
        let client = Client { stream, next: 1, begun: Vec::new(), patience: PATIENCE };
        client.patient(PATIENCE).map_err(|error| not_connected(path, &error))
    }

    /// The same client, which waits for a reply no longer than this, 20 s otherwise.
    ///
    /// # Errors
    /// That of setting the socket; a time of 0 is one.
    pub fn patient(mut self, patience: Duration) -> io::Result<Client> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        self.stream.get_ref().set_write_timeout(Some(patience))?;
        self.patience = patience;
        Ok(self)
    }

    /// Sends a request, and returns its result as JSON.
    ///
    /// # Errors
    /// The fault in altq's answer, or one of the connection if no answer came.
    pub fn ask(&mut self, op: &str, fields: &impl Serialize) -> Result<String, Fault> {
        self.ask_with(op, fields, None)
    }

    /// As [`ask`](Client::ask), with a file that is sent along with the request.
    ///
    /// # Errors
    /// Those of [`ask`](Client::ask).
    pub fn ask_with(
        &mut self,
        op: &str,
        fields: &impl Serialize,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<String, Fault> {
        let id = self.next;
        self.next += 1;
        let request = Numbered { v: crate::request::VERSION, id, op, fields };
        let mut line = serde_json::to_vec(&request).map_err(|error| Fault::new(Code::Failed, error.to_string()))?;
        line.push(b'\n');
        let patience = self.patience.as_secs();
        let lost = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Fault::new(Code::Failed, format!("altq has not answered within {patience} s"))
            }
            _ => Fault::new(Code::Failed, format!("the connection to altq is lost: {error}")),
        };
        // If altq refuses the connection, it sends the reason before it closes: that is read below.
        let sent = self.send(&line, file);
        let answer = self.line().map_err(lost)?;
        let Some(answer) = answer else {
            return Err(match sent {
                Err(error) => lost(error),
                Ok(()) => Fault::new(Code::Failed, "altq has closed the connection"),
            });
        };
        let (number, result) = reply::take(answer).map_err(|why| Fault::new(Code::Failed, why))?;
        match (number == Some(id), result) {
            // A fault without a number is about the connection.
            (true, result) | (false, result @ Err(_)) => result,
            (false, Ok(_)) => Err(Fault::new(Code::Failed, "altq has answered another request")),
        }
    }

    /// Sends a line, and a file with its first bytes.
    fn send(&mut self, line: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut stream = self.stream.get_ref();
        let Some(file) = file else { return stream.write_all(line) };
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        along.push(SendAncillaryMessage::ScmRights(&files));
        let sent = sendmsg(stream, &[IoSlice::new(line)], &mut along, SendFlags::NOSIGNAL)?;
        stream.write_all(line.get(sent..).unwrap_or_default())
    }

    /// The next line that altq sends by itself to a client that watches, without its newline. Waits
    /// as long as it takes. `None` at the end of the connection.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.stream.get_ref().set_read_timeout(None)?;
        self.line()
    }

    /// The next line; `None` at the end of the connection.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.stream.read_until(b'\n', &mut self.begun) {
            Ok(_) => {}
            // The other end has closed before it read all that was sent.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
        if self.begun.pop_if(|last| *last == b'\n').is_none() {
            return Ok(None);
        }
        Ok(Some(mem::take(&mut self.begun)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listener_that_takes_no_connections_holds_nobody_up() {
        let path = std::env::temp_dir().join(format!("altq-client-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        // Linux keeps no more than net.core.somaxconn of them, usually 4096; std asks for fewer.
        let mut waiting = Vec::new();
        let refused = loop {
            match open_at_once(&path) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 10_000);
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let fault = Client::connect_at_once(&path).err().unwrap();
        assert_eq!(fault.code, Code::Failed);
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        let fault = Client::connect_at_once(&path).err().unwrap();
        assert!(fault.to_string().contains("no altq runs"), "{fault}");
    }
}
