//! The status of a server with several clients, from those of the clients.

use crate::status::{
    DropCounts, MeasuredProperties, ReorderStatus, TunnelChannelStatus, TunnelClientStatus,
    TunnelStatus,
};

/// The status of a server with these clients over this number of channels: sums and means of the
/// clients. What belongs to the device is not known here.
pub(super) fn of_all(clients: Vec<TunnelClientStatus>, channels: usize) -> TunnelStatus {
    TunnelStatus {
        device: String::new(),
        uptime_s: 0.0,
        listen: Vec::new(),
        associated: clients.iter().any(|client| client.associated_s.is_some()),
        closed: None,
        achieved: achieved(&clients),
        predicted: None,
        unmet_bound: None,
        mtu: 0,
        channels: (0..channels).map(|index| channel(&clients, index)).collect(),
        waited: waited(&clients),
        dropped: dropped(&clients),
        clients,
    }
}

fn achieved(clients: &[TunnelClientStatus]) -> MeasuredProperties {
    let sum = |count: fn(&MeasuredProperties) -> u64| {
        clients.iter().map(|client| count(&client.achieved)).sum()
    };
    let sent = |it: &MeasuredProperties| it.sent_symbols;
    let mean = |value: fn(&MeasuredProperties) -> Option<f64>,
                weight: fn(&MeasuredProperties) -> u64| {
        weighted_mean(clients.iter().map(|it| (value(&it.achieved), weight(&it.achieved))))
    };
    MeasuredProperties {
        kappa: mean(|it| it.kappa, sent),
        mu: mean(|it| it.mu, sent),
        risk: mean(|it| it.risk, sent),
        loss_out: mean(|it| it.loss_out, sent),
        delay_ms: mean(|it| it.delay_ms, sent),
        cost_per_gb: mean(|it| it.cost_per_gb, sent),
        sent_symbols: sum(|it| it.sent_symbols),
        sent_bytes: sum(|it| it.sent_bytes),
        received_symbols: sum(|it| it.received_symbols),
        received_bytes: sum(|it| it.received_bytes),
        loss_in: mean(|it| it.loss_in, |it| it.received_symbols),
    }
}

/// The mean of the values that are known, by their weights.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn weighted_mean(values: impl Iterator<Item = (Option<f64>, u64)>) -> Option<f64> {
    let known = values.filter_map(|(value, weight)| Some((value?, weight as f64)));
    let (sum, weights) = known.fold((0.0, 0.0), |(sum, weights), (value, weight)| {
        (sum + value * weight, weights + weight)
    });
    (weights > 0.0).then(|| sum / weights)
}

/// A channel of all clients: up if it is for any of them.
fn channel(clients: &[TunnelClientStatus], index: usize) -> TunnelChannelStatus {
    let channels = || clients.iter().filter_map(|client| client.channels.get(index));
    let sum = |count: fn(&TunnelChannelStatus) -> u64| channels().map(count).sum();
    let state = |state: fn(&TunnelChannelStatus) -> &Option<String>| {
        let states = || channels().filter_map(|channel| state(channel).clone());
        states().find(|state| state == "up").or_else(|| states().next())
    };
    TunnelChannelStatus {
        state_out: state(|channel| &channel.state_out),
        state_in: state(|channel| &channel.state_in),
        missing_s: None,
        not_up_s: None,
        spare_s: None,
        reserve_s: None,
        shared_fate: None,
        priority: None,
        cost_per_gb: None,
        quota: None,
        risk: None,
        rate_mbit: None,
        rate_from: None,
        loss_out: None,
        delay_ms: None,
        mtu: None,
        former_mtu: None,
        black_hole_s: None,
        sent: sum(|channel| channel.sent),
        sent_bytes: sum(|channel| channel.sent_bytes),
        refused: sum(|channel| channel.refused),
        received: sum(|channel| channel.received),
        received_bytes: sum(|channel| channel.received_bytes),
        wrong: sum(|channel| channel.wrong),
        peer: None,
        wrong_source: sum(|channel| channel.wrong_source),
        wrong_token: sum(|channel| channel.wrong_token),
    }
}

fn waited(clients: &[TunnelClientStatus]) -> ReorderStatus {
    clients.iter().map(|client| client.waited).fold(ReorderStatus::default(), |sum, it| {
        ReorderStatus {
            window_ms: sum.window_ms.max(it.window_ms),
            delayed: sum.delayed + it.delayed,
            in_order: sum.in_order + it.in_order,
            after_loss: sum.after_loss + it.after_loss,
            after_time: sum.after_time + it.after_time,
            for_room: sum.for_room + it.for_room,
        }
    })
}

fn dropped(clients: &[TunnelClientStatus]) -> DropCounts {
    clients.iter().map(|client| client.dropped).fold(DropCounts::default(), |sum, it| DropCounts {
        unconnected: sum.unconnected + it.unconnected,
        below_floor: sum.below_floor + it.below_floor,
        too_long: sum.too_long + it.too_long,
        queued: sum.queued + it.queued,
        wrong_source: sum.wrong_source + it.wrong_source,
        wrong_token: sum.wrong_token + it.wrong_token,
        malformed: sum.malformed + it.malformed,
        duplicate: sum.duplicate + it.duplicate,
        tampered: sum.tampered + it.tampered,
        unjoined: sum.unjoined + it.unjoined,
        not_allowed: sum.not_allowed + it.not_allowed,
        undelivered: sum.undelivered + it.undelivered,
        between_clients: sum.between_clients + it.between_clients,
        for_no_client: sum.for_no_client + it.for_no_client,
        unrecognised: sum.unrecognised + it.unrecognised,
        unchecked: sum.unchecked + it.unchecked,
    })
}
