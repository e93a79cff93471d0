//! An end of a link: a TUN device and the memory of the packets in flight.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};

use bytes::{Bytes, BytesMut};
use tun::{MAX_FRAME_LEN, TunDevice, TunFrame};

/// The size of a slab, in bytes: room for 16 superpackets.
const SLAB: usize = 1 << 20;

/// The maximum number of slabs in use. A packet in flight keeps its whole slab; if this many slabs
/// are in use, packets are copied.
const MAX_SLABS: usize = 1024;

/// A TUN device and the memory for its packets. The device exists until this is dropped.
#[derive(Debug)]
pub(super) struct LinkDevice {
    device: TunDevice,
    /// The memory for the next packets.
    slab: BytesMut,
    /// Slabs whose packets may still be in flight, the oldest first. Reusing them saves the kernel
    /// from clearing new pages, which would take a sixth of a fast link's time.
    slabs_in_flight: VecDeque<BytesMut>,
}

impl LinkDevice {
    /// Creates a device in the network namespace of the thread.
    ///
    /// # Errors
    /// If the device cannot be created.
    pub(super) fn new(name: &str) -> io::Result<Self> {
        Ok(Self {
            device: TunDevice::new(name)?,
            slab: BytesMut::new(),
            slabs_in_flight: VecDeque::new(),
        })
    }

    /// The next packet that the kernel sends through the device; `None` if none is waiting.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn read(&mut self) -> io::Result<Option<TunFrame>> {
        if self.slab.len() < MAX_FRAME_LEN {
            self.take_slab();
        }
        match self.device.read(&mut self.slab[..MAX_FRAME_LEN]) {
            Ok(length) if self.slabs_in_flight.len() < MAX_SLABS => {
                Ok(TunFrame::parse(self.slab.split_to(length).freeze()))
            }
            Ok(length) => {
                let frame = TunFrame::parse(Bytes::copy_from_slice(&self.slab[..length]));
                self.drop_unused_slabs();
                Ok(frame)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the slabs at the front that no packet uses, and returns the last of them.
    fn drop_unused_slabs(&mut self) -> Option<BytesMut> {
        let mut slab = None;
        while self.slabs_in_flight.front_mut().is_some_and(|spent| spent.try_reclaim(SLAB)) {
            slab = self.slabs_in_flight.pop_front();
        }
        slab
    }

    /// Replaces the current slab by an unused or a new one.
    fn take_slab(&mut self) {
        let mut slab = self.drop_unused_slabs().unwrap_or_else(|| BytesMut::with_capacity(SLAB));
        slab.resize(SLAB, 0);
        let mut spent = mem::replace(&mut self.slab, slab);
        if spent.capacity() > 0 {
            spent.clear();
            self.slabs_in_flight.push_back(spent);
        }
    }

    /// Passes a packet to the kernel as if it had arrived on a wire. Returns whether the kernel
    /// accepted it.
    pub(super) fn write(&self, frame: &TunFrame) -> bool {
        self.device.write(&frame.slices()).is_ok()
    }
}

impl AsFd for LinkDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
