//! What goes wrong between real sockets, and that every end learns of it: a channel that is cut,
//! changed or stuck, a peer that does not follow the protocol, a service that is not to be had,
//! a stop in the middle. An application sees a reset then, or a SOCKS5 reply that says no; what it
//! never sees is the plain end of a stream that was not over.

mod avoidance;
mod channels;
mod meddler;
mod notice;
mod pool;
mod refusals;
mod scene;
mod stop;
mod strangers;
mod timers;
