//! `[spending]` and `[a2a]`

use std::net::SocketAddr;

use super::servers::cap;
use crate::decode::Table;
use crate::manifest::{A2a, Peer, Spending};
use crate::{Endpoint, check_did, text};

pub(super) fn spending(root: &Table<'_>) -> Spending {
    let Some(table) = root.table("spending") else { return Spending::default() };
    let amount = |key| table.get(key).and_then(|value| cap(&value));
    let spending = Spending {
        max_per_run_usd: amount("max_per_run_usd"),
        max_per_day_usd: amount("max_per_day_usd"),
        max_per_month_usd: amount("max_per_month_usd"),
        warn_at_percent: table.get("warn_at_percent").and_then(|v| v.integer(1..=100)),
    };
    table.finish();
    spending
}

pub(super) fn a2a(root: &Table<'_>) -> Option<A2a> {
    let table = root.table("a2a")?;
    let listen = table.get("listen").and_then(|value| {
        value.parsed("bad-value", |given| match given.parse::<SocketAddr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err(format!(
                "`{}` is not `address:port` such as `127.0.0.1:9443`",
                text::shown(given)
            )),
        })
    });
    let peers = table.tables("peers").into_iter().filter_map(peer).collect();
    table.finish();
    Some(A2a { listen, peers })
}

fn peer(table: Table<'_>) -> Option<Peer> {
    let name = table.require("name").and_then(|v| super::id(&v));
    let did = table.require("did").and_then(|v| v.parsed("bad-did", check_did));
    let endpoint = table.require("endpoint").and_then(|value| {
        value.parsed("bad-url", |given| {
            let endpoint = Endpoint::parse(given)?;
            if endpoint.tls {
                Ok(endpoint.to_string())
            } else {
                Err("a peer is reached over `https`".to_owned())
            }
        })
    });
    table.finish();
    Some(Peer { name: name?, did: did?.to_owned(), endpoint: endpoint? })
}
