//! Faults between real sockets, and that both ends detect them: a channel that is cut, changed or
//! silent, a peer that violates the protocol, a service that is not available, a stop during a
//! stream. The application gets a reset or a SOCKS5 error reply, and never the regular end of an
//! incomplete stream.

mod avoidance;
mod channels;
mod exchange;
mod fault_relay;
mod notice;
mod pool;
mod refusals;
mod rejoin;
mod stop;
mod strangers;
mod timers;
