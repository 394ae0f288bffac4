//! Sends frames unchanged by an interface. It is for traffic that no socket of the kernel can send:
//! a capture that is sent again, fragments, tags, addresses that no host has.

use std::time::Duration;

use crate::edge::BATCH;
use crate::error::Error;
use crate::pool::Pool;
use crate::running::find;
use crate::sys::packet::Sender;

/// How long a device that is full is left alone.
const REST: Duration = Duration::from_micros(50);

/// Sends frames by an interface, past its qdisc.
pub struct Injector {
    sender: Sender,
    pool: Pool,
    handles: Vec<u32>,
}

impl Injector {
    /// Opens an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::NotPermitted`] without CAP_NET_RAW;
    /// [`Error::Unsupported`].
    pub fn open(interface: &str) -> Result<Injector, Error> {
        let index = find(interface)?.index;
        let sender = Sender::open(index).map_err(|error| Error::of("sending on packet sockets", error))?;
        Ok(Injector { sender, pool: Pool::new(BATCH, BATCH), handles: Vec::with_capacity(BATCH) })
    }

    /// Sends Ethernet frames in order, with their tags and without a check sequence. Waits while
    /// the device is full.
    ///
    /// # Errors
    /// [`Error::Io`]: the interface is down or gone, or a frame is longer than its MTU or than 64
    /// KB. The frames before it have been sent.
    pub fn send<B: AsRef<[u8]>>(&mut self, frames: &[B]) -> Result<(), Error> {
        frames.chunks(BATCH).try_for_each(|batch| {
            let result = self.send_batch(batch);
            for handle in self.handles.drain(..) {
                self.pool.free(handle);
            }
            result.map_err(|error| Error::of("sending frames", error))
        })
    }

    fn send_batch<B: AsRef<[u8]>>(&mut self, batch: &[B]) -> std::io::Result<()> {
        let too_long = || std::io::Error::from_raw_os_error(libc::EMSGSIZE);
        for frame in batch {
            let handle = self.pool.take_large().ok_or_else(too_long)?;
            self.handles.push(handle);
            if !self.pool.fill(handle, frame.as_ref()) {
                return Err(too_long());
            }
        }
        let mut done = 0;
        while done < self.handles.len() {
            match self.sender.send(&mut self.pool, &self.handles[done..]) {
                Ok(sent) => done += sent,
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR)) => {
                    std::thread::sleep(REST);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
