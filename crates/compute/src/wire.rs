//! What the parties send each other. Specified in `docs/protocols/yao.md` and `gmw.md`.

mod begin;
mod frame;
mod hello;

pub(crate) use begin::Begin;
pub(crate) use frame::{Frame, HEADER_LEN, Kind, parse_header};
pub(crate) use hello::Hello;
