//! The kernel's tables of sockets.

/// The tables, and the state in each of a socket that waits for others: TCP's listening sockets and
/// UDP's without a peer.
pub(crate) const TABLES: [(&str, &str); 4] =
    [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];

/// A socket in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingSocket<'a> {
    /// Its address and its port, in hexadecimal.
    pub(crate) local: &'a str,
    /// Its number, which the kernel calls an inode.
    pub(crate) inode: &'a str,
}

/// The sockets of a table that are in a state.
pub(crate) fn waiting_sockets<'a>(
    table: &'a str,
    state: &'a str,
) -> impl Iterator<Item = WaitingSocket<'a>> {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        let is_waiting = fields.nth(1)? == state;
        // Queues, timers, user and timeout are between.
        let inode = fields.nth(5)?;
        is_waiting.then_some(WaitingSocket { local, inode })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_in_a_table() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1
   1: 0100007F:1F91 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1
";
        let found: Vec<_> = waiting_sockets(table, "0A").collect();
        assert_eq!(found, [WaitingSocket { local: "0100007F:1F90", inode: "4711" }]);
    }
}
