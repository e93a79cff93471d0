//! Requests to the kernel about the network.

use std::io;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::Handle;
use thiserror::Error;

/// Why the kernel did not do or answer something about the network.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// There is no interface with this name.
    #[error("no interface {0}")]
    NoInterface(String),
    /// There is no route to the address.
    #[error("no route")]
    NoRoute,
    /// The kernel refuses an address or a route.
    #[error("cannot set the {what} {network}: {source}")]
    Refused {
        /// `address` or `route`.
        what: &'static str,
        /// The address with the prefix of its network, or the route's destination.
        network: IpNet,
        /// The kernel's answer.
        source: Box<rtnetlink::Error>,
    },
    /// The kernel refuses anything else.
    #[error(transparent)]
    Kernel(Box<rtnetlink::Error>),
    /// There is no connection to the kernel.
    #[error(transparent)]
    Connection(#[from] io::Error),
}

impl From<rtnetlink::Error> for NetlinkError {
    fn from(error: rtnetlink::Error) -> Self {
        Self::Kernel(Box::new(error))
    }
}

/// Sends a request about the network to the kernel, and waits for the answer.
pub(crate) fn with_netlink<T>(
    request: impl AsyncFnOnce(Handle) -> Result<T, NetlinkError>,
) -> Result<T, NetlinkError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let answer = request(handle).await;
        connection.abort();
        answer
    })
}

/// The index of the interface with this name.
pub(crate) async fn index(netlink: &Handle, name: &str) -> Result<u32, NetlinkError> {
    let mut links = netlink.link().get().match_name(name.to_owned()).execute();
    let link = links.try_next().await?;
    link.map(|link| link.header.index).ok_or_else(|| NetlinkError::NoInterface(name.to_owned()))
}
