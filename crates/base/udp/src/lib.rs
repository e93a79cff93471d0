//! Building blocks for transports over UDP: sockets that send and receive many datagrams in one
//! system call, a pacer, path MTU discovery, proofs of clients' addresses ([`cookies`]), and, in
//! [`streams`], the driver of protocols with reliable streams.
//!
//! [`UdpBatchSocket`] and [`DatagramReceiveBuffer`] are for Linux, with generic segmentation and
//! receive offload (GSO, GRO) if the kernel and the device support them. [`DatagramBatch`] holds
//! the datagrams to send. [`TokenBucketPacer`] and [`PathMtuDiscovery`] are state machines without
//! I/O: the time is an argument, as a [`Duration`](std::time::Duration) since an epoch of the
//! caller's choice.
//!
//! ```
//! use sunder_udp::{DatagramBatch, DatagramReceiveBuffer, SocketBinding, UdpBatchSocket};
//!
//! # fn main() -> std::io::Result<()> {
//! let localhost = SocketBinding { local: ([127, 0, 0, 1], 0).into(), device: None };
//! let (mut sender, receiver) =
//!     (UdpBatchSocket::bind(&localhost)?, UdpBatchSocket::bind(&localhost)?);
//!
//! let mut batch = DatagramBatch::default();
//! for number in 0..3 {
//!     batch.reserve(1200).fill(number);
//! }
//! let sent = sender.send(&batch, receiver.local_addr()?);
//! assert_eq!(sent.datagrams, 3);
//!
//! let (mut buffer, mut received) = (DatagramReceiveBuffer::new(), 0);
//! while received < 3 {
//!     buffer.receive(&receiver)?;
//!     for (from, datagram) in buffer.datagrams() {
//!         assert_eq!((from, datagram.len()), (sender.local_addr()?, 1200));
//!         received += 1;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! - `socket`, `recv_buffer`: batches in one system call. `batch`: the datagrams to send. `sys`:
//!   socket options.
//! - `pacer`, `mtu_discovery`, [`cookies`]: pure.
//! - [`streams`]: the driver. A protocol implements the interface in `connection`, and is pure.
//!   `connect` and `acceptor` open connections, `driver` is the thread of a socket, and programs
//!   use a `stream`. They share a `slot` for each connection and the `backlog`; `wake` wakes the
//!   driver.

mod batch;
pub mod cookies;
mod mtu_discovery;
mod pacer;
mod recv_buffer;
mod socket;
pub mod streams;
mod sys;

pub use batch::DatagramBatch;
pub use mtu_discovery::{BlackHole, MAX_MTU, MIN_MTU, MtuProbe, PathMtuDiscovery};
pub use pacer::{PacerRateLimit, TokenBucketPacer};
pub use recv_buffer::DatagramReceiveBuffer;
pub use socket::{BatchSendResult, SocketBinding, UdpBatchSocket};
