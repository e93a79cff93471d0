//! Ends with different settings.

use crate::pair::{Pair, SERVER, THREE_LINKS, network, over};
use crate::stream::{Stream, StreamRate};

/// The server then keeps the floor as well, although its own is lower.
pub(crate) fn a_client_may_raise_the_floor() {
    for scheduler in ["planned", "dynamic"] {
        let network = network(THREE_LINKS);
        let channels = over(&network, &["a", "b", "c"]);
        let server = format!("kappa = 1.5\nmu = 1.5\nscheduler = \"{scheduler}\"");
        let pair = Pair::start_unlike(network, ["kappa = 2\nmu = 3", &server], &channels);
        let stream =
            Stream::start(pair.host("client"), pair.host("server"), SERVER, StreamRate::LIGHT);
        stream.wait_for(300);
        let status = pair.status("server");
        assert!(status.associated && status.predicted.unwrap().kappa > 2.0 - 1e-9, "{status:?}");
        assert_eq!(pair.log("server").matches("associated").count(), 1, "{}", pair.log("server"));
        assert_eq!(stream.wrong(), 0);
    }
}
