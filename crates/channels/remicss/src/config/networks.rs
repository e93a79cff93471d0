//! Networks in a configuration.

use ipnet::IpNet;
use service::config::ConfigValue;

/// What to write for a network.
const NETWORK: &str = "give an address and the length of its network's prefix, as in 10.9.0.1/24";

/// Networks, or addresses in them.
pub(super) fn networks(list: &ConfigValue<'_>) -> Vec<IpNet> {
    let texts = list.list().unwrap_or_default();
    texts.iter().filter_map(|text| text.parsed_or(NETWORK)).collect()
}

/// Networks without host bits.
pub(super) fn whole_networks(list: &ConfigValue<'_>) -> Vec<IpNet> {
    list.list().unwrap_or_default().iter().filter_map(whole_network).collect()
}

/// A network without host bits.
pub(super) fn whole_network(text: &ConfigValue<'_>) -> Option<IpNet> {
    let network: IpNet = text.parsed_or(NETWORK)?;
    let whole = network.trunc();
    if whole != network {
        text.refuse(format!("{network} has host bits"), format!("write {whole}"));
    }
    Some(whole)
}
