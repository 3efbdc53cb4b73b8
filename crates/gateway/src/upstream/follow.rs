//! What a session follows, over the connection that a server has.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringfence_mcp::{Client, Listening, UpstreamError};

use super::{Failure, Table, veiled};
use crate::permit::CallPermit;

impl Table {
    /// Follows all of these resources for this client, over the connection of that generation or over
    /// any; gives its generation. `new` is the one that was judged, and must be among what the server
    /// grants.
    pub(crate) async fn follow(
        &self,
        client: &Arc<dyn Client>,
        permit: CallPermit,
        generation: Option<u64>,
        uris: BTreeSet<String>,
        new: Option<&str>,
    ) -> Result<(Listening, u64), Failure> {
        let server = permit.server();
        let mut live = self.live(server, generation).await?;
        let mut followed =
            live.upstream.follow(&self.shade(&live, server, client), uris.clone(), new).await;
        if matches!(followed, Err(UpstreamError::SessionLost)) {
            // It did nothing, so it may be asked again.
            self.forget(server, &live).await;
            live = self.live(server, generation).await?;
            followed = live.upstream.follow(&self.shade(&live, server, client), uris, new).await;
        }
        match followed {
            // A stream keeps no server: it ends when the connection does.
            Ok(listening) => Ok((listening, live.generation)),
            Err(UpstreamError::Rpc(error)) => {
                Err(Failure::Upstream(UpstreamError::Rpc(veiled(&live.veil, error))))
            }
            Err(error) => Err(Failure::Upstream(error)),
        }
    }
}
