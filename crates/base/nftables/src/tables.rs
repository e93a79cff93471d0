//! Installs tables of rules, and detects changes of them by other programs.
//!
//! The kernel sends a notification of each transaction, from any program. It queues the
//! notifications before the program that made the transaction learns of its success. This process
//! reads the queue, makes its transaction, and reads the queue again: if there was exactly one
//! transaction on the table, it is this process's own. All others are changes by other programs.
//! Listings of the rules are not compared, because another program may change the rules at any
//! time, even before they are listed.

// One call of tokio, which accepts any type with a file descriptor.
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::unix::AsyncFd;

use crate::removal;
use crate::run::apply;

/// The multicast group of messages about changes of rules, `NFNLGRP_NFTABLES`, as a bit.
const CHANGES: u32 = 1 << (7 - 1);

/// The longest datagram of messages that is read. A longer one counts as a loss of messages.
const MAX_DATAGRAM: usize = 1 << 16;

/// The kernel's number for nftables, which is the upper byte of the types of its messages.
const NFTABLES: u16 = 10;

/// The message that ends a transaction, `NFT_MSG_NEWGEN`.
const NEW_GENERATION: u16 = NFTABLES << 8 | 15;

/// The attribute with the name of a table, and the mask of an attribute's type.
const TABLE_NAME: u16 = 1;
const ATTRIBUTE_TYPE: u16 = 0x3FFF;

/// The family `inet`.
const NFPROTO_INET: u8 = 1;

/// How often the installation of a table is tried if another program changes it at the same time.
const MAX_ATTEMPTS: usize = 3;

/// The tables that this process has installed, and their changes by other programs.
pub struct InstalledNftTables {
    socket: AsyncFd<OwnedFd>,
    transactions: Mutex<NftTransactions>,
}

impl InstalledNftTables {
    /// Detects changes of tables that are installed from now on.
    ///
    /// # Errors
    /// If the kernel refuses, as without `CAP_NET_ADMIN`.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        bind(&socket, &SocketAddrNetlink::new(0, CHANGES))?;
        // SAFETY: an `OwnedFd` always is the same descriptor, which is open until it is dropped.
        let registered = unsafe { AsyncFd::register(socket) };
        Ok(Self { socket: registered?, transactions: Mutex::default() })
    }

    /// Runs `rules`, which replace a table, in one transaction. If another program changes the
    /// table at the same time, repeats this. If that fails too, [`Self::is_changed`] reports a
    /// change.
    ///
    /// # Errors
    /// If the kernel rejects the rules. Then nothing has changed.
    pub fn install(&self, table: &str, rules: &str) -> io::Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            self.read().counts.insert(table.to_owned(), Some(0));
            apply(rules)?;
            let mut transactions = self.read();
            let count = transactions.counts.entry(table.to_owned()).or_default();
            if *count == Some(1) {
                *count = Some(0);
                break;
            }
        }
        Ok(())
    }

    /// Removes a table.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&self, table: &str) -> io::Result<()> {
        self.transactions().counts.remove(table);
        apply(&removal(table))
    }

    /// Whether another program may have changed or removed a table since it was installed.
    pub fn is_changed(&self, table: &str) -> bool {
        self.read().counts.get(table) != Some(&Some(0))
    }

    /// Waits until another program may have changed or removed a table. It is cancellation-safe.
    pub async fn changed(&self) {
        if self.read().is_any_changed() {
            return;
        }
        let heard = |socket: &OwnedFd| {
            let mut transactions = self.transactions();
            transactions.read(socket)?;
            let is_changed = transactions.is_any_changed();
            is_changed.then_some(()).ok_or_else(|| io::ErrorKind::WouldBlock.into())
        };
        // After any error of the socket, the tables are installed again.
        if self.socket.async_io(tokio::io::Interest::READABLE, heard).await.is_err() {
            self.transactions().lose();
        }
    }

    /// All transactions so far.
    fn read(&self) -> MutexGuard<'_, NftTransactions> {
        let mut transactions = self.transactions();
        if transactions.read(self.socket.get_ref()).is_err() {
            transactions.lose();
        }
        transactions
    }

    fn transactions(&self) -> MutexGuard<'_, NftTransactions> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The transactions of all programs on the installed tables.
#[derive(Debug, Default)]
struct NftTransactions {
    /// The number of transactions for each table. `None` if messages were lost.
    counts: HashMap<String, Option<usize>>,
    /// The tables of the transaction whose messages are being read.
    current: HashSet<String>,
}

impl NftTransactions {
    fn is_any_changed(&self) -> bool {
        self.counts.values().any(|count| *count != Some(0))
    }

    fn lose(&mut self) {
        self.counts.values_mut().for_each(|count| *count = None);
        self.current.clear();
    }

    /// Reads all queued messages.
    fn read(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            match recv(socket, &mut buffer, RecvFlags::TRUNC) {
                Ok((_, len)) => match buffer.get(..len) {
                    Some(datagram) => self.handle_datagram(datagram),
                    None => self.lose(),
                },
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::NOBUFS) => self.lose(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn handle_datagram(&mut self, mut rest: &[u8]) {
        // The length, the type, the flags, the sequence number and the sender of a message.
        while let Some((header, _)) = rest.split_first_chunk::<16>() {
            let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let kind = u16::from_ne_bytes([header[4], header[5]]);
            let Some(body) = rest.get(16..len) else { return self.lose() };
            if kind == NEW_GENERATION {
                for table in self.current.drain() {
                    if let Some(Some(count)) = self.counts.get_mut(&table) {
                        *count += 1;
                    }
                }
            } else if let Some(table) = table_name(body)
                && self.counts.contains_key(table)
            {
                self.current.insert(table.to_owned());
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The name of the table that a message refers to. It is the attribute of type 1 in all messages
/// except the one about the generation, which ends a transaction.
fn table_name(body: &[u8]) -> Option<&str> {
    // The family, the version and the resource.
    let (header, mut attributes) = body.split_first_chunk::<4>()?;
    if header[0] != NFPROTO_INET {
        return None;
    }
    loop {
        let (header, _) = attributes.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..len)?;
        if u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_TYPE == TABLE_NAME {
            return CStr::from_bytes_until_nul(value).ok()?.to_str().ok();
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message about a table, or the one that ends a transaction.
    fn message(kind: u16, family: u8, table: Option<&str>) -> Vec<u8> {
        let mut body = vec![family, 0, 0, 0];
        // Another attribute is first.
        body.extend([6, 0, 9, 0, 1, 2, 0, 0]);
        if let Some(table) = table {
            let len = u16::try_from(table.len() + 5).unwrap();
            body.extend(len.to_ne_bytes());
            body.extend(TABLE_NAME.to_ne_bytes());
            body.extend(table.as_bytes());
            body.push(0);
        }
        body.resize(body.len().next_multiple_of(4), 0);
        let mut message = u32::try_from(body.len() + 16).unwrap().to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    /// `NFT_MSG_DELRULE`.
    const DELETED_RULE: u16 = NFTABLES << 8 | 8;

    fn transaction(table: &str) -> Vec<u8> {
        let rule = || message(DELETED_RULE, NFPROTO_INET, Some(table));
        [rule(), rule(), message(NEW_GENERATION, 0, None)].concat()
    }

    #[test]
    fn transactions_on_installed_tables_are_counted() {
        let mut transactions = NftTransactions::default();
        transactions.counts.insert("own".into(), Some(0));
        for (datagram, expected) in [
            (transaction("another"), Some(0)),
            (message(DELETED_RULE, 2, Some("own")), Some(0)),
            (transaction("own"), Some(1)),
            ([transaction("own"), transaction("own")].concat(), Some(3)),
            // It is not complete.
            (message(DELETED_RULE, NFPROTO_INET, Some("own")), Some(3)),
            (message(NEW_GENERATION, 0, None), Some(4)),
            (vec![0xFF; 20], None),
            (transaction("own"), None),
        ] {
            transactions.handle_datagram(&datagram);
            assert_eq!(transactions.counts["own"], expected);
        }
        assert!(transactions.is_any_changed() && transactions.counts.len() == 1);
    }

    #[test]
    fn no_datagram_makes_it_panic() {
        let whole = transaction("own");
        for byte in 0..whole.len() {
            for value in [0, 1, 4, 0x7F, 0xFF] {
                let mut datagram = whole.clone();
                datagram[byte] = value;
                let mut transactions = NftTransactions::default();
                transactions.counts.insert("own".into(), Some(0));
                transactions.handle_datagram(&datagram[..]);
                transactions.handle_datagram(&datagram[..byte]);
            }
        }
    }
}
