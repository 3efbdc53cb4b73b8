//! Making a connection: host-side headers for HTTP, a launched process for stdio.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_bundle::{ServerId, Template, Transport};
use ringfence_mcp::{
    Authorize, HttpOptions, Opening, Share, Upstream, UpstreamError, UpstreamLimits,
};
use ringfence_secrets::Secret;

use super::Table;
use crate::fate::{self, Fate};
use crate::scrub::Veil;
use crate::signin::{Authority, Both};

type Made =
    (Upstream, Veil, Option<Arc<dyn Authority>>, Option<(Box<dyn Send>, Option<Box<dyn Fate>>)>);

/// Why there is no connection, and what is known of the process that was started for it.
pub(super) struct Fallen {
    pub(super) error: UpstreamError,
    pub(super) words: Option<String>,
}

impl From<UpstreamError> for Fallen {
    fn from(error: UpstreamError) -> Self {
        Self { error, words: None }
    }
}

/// What a person can do about a server that refuses the token that it gets, or gets none.
pub(super) fn refused(error: &UpstreamError, authority: Option<&dyn Authority>) -> Option<String> {
    match error {
        UpstreamError::Unauthorized { .. } => authority?.words(),
        _ => None,
    }
}

fn down(reason: &str, detail: String) -> UpstreamError {
    UpstreamError::Down { reason: reason.into(), detail }
}

impl Table {
    pub(super) async fn connect(
        &self,
        server: &ServerId,
        transport: &Transport,
        replies: &Share,
        opening: &mut Opening,
    ) -> Result<Made, Fallen> {
        match transport {
            Transport::Http { url, headers } => self.http(server, url, headers, replies).await,
            Transport::Stdio { .. } => match self.stdio(server, replies, *opening).await {
                // Perhaps one that knows no handshake and ended when it was sent one.
                Err(first)
                    if *opening == Opening::Handshake
                        && matches!(
                            first.error,
                            UpstreamError::Closed { .. } | UpstreamError::Rpc(_)
                        ) =>
                {
                    let made =
                        self.stdio(server, replies, Opening::Stateless).await.map_err(|_| first)?;
                    *opening = Opening::Stateless;
                    Ok(made)
                }
                made => made,
            },
        }
    }

    async fn http(
        &self,
        server: &ServerId,
        url: &str,
        headers: &BTreeMap<String, Template>,
        replies: &Share,
    ) -> Result<Made, Fallen> {
        let mut secrets: Vec<(String, Secret)> = Vec::new();
        let mut filled_headers = Vec::new();
        for (name, template) in headers {
            let filled = self.vault.fill(server, template).await.map_err(|detail| {
                down("a header of its own could not be filled in on the host", detail)
            })?;
            filled_headers.push((name.clone(), filled.text));
            secrets.extend(filled.secrets);
        }
        let own = headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        let authority = if own { None } else { self.vault.authority(server, url) };
        let mut scrubber = self.vault.scrubber(secrets);
        if let Some(authority) = &authority {
            scrubber = Arc::new(Both(scrubber, Arc::clone(authority)));
        }
        let authorize = authority.clone().map(|authority| authority as Arc<dyn Authorize>);
        let replies = replies.clone();
        let options =
            HttpOptions { headers: filled_headers, authorize, replies, ..HttpOptions::default() };
        let veil = Veil::new(scrubber, Some(url));
        let upstream =
            Upstream::http(url, &options, UpstreamLimits::default(), self.waits.connect).await;
        match upstream {
            Ok(upstream) => Ok((upstream, veil, authority, None)),
            Err(error) => Err(Fallen { words: refused(&error, authority.as_deref()), error }),
        }
    }

    async fn stdio(
        &self,
        server: &ServerId,
        replies: &Share,
        opening: Opening,
    ) -> Result<Made, Fallen> {
        let launch = tokio::time::timeout(self.waits.connect, self.launcher.launch(server));
        let launched = launch
            .await
            .map_err(|_| UpstreamError::Timeout { after: self.waits.connect })?
            .map_err(|detail| down("it could not be started", detail))?;
        let veil = Veil::new(self.vault.scrubber(launched.secrets), None);
        let upstream = Upstream::stdio(
            launched.stdout,
            launched.stdin,
            UpstreamLimits::default(),
            replies.clone(),
            opening,
            self.waits.connect,
        )
        .await;
        match upstream {
            Ok(upstream) => Ok((upstream, veil, None, Some((launched.guard, launched.fate)))),
            Err(error) => {
                // Asked while it may still live: its guard ends it.
                let words = fate::words(launched.fate.as_deref(), &error, &veil).await;
                drop(launched.guard);
                Err(Fallen { error, words })
            }
        }
    }
}
