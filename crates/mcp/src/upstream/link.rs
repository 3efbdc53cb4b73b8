//! A connection, whichever way it goes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::UpstreamError;
use super::desk::Desk;
use super::listener::Listener;
use super::pipe::Pipe;
use crate::Client;
use crate::http_client::{Http, On};

pub(super) enum Wire {
    Pipe(Pipe),
    Http(Arc<Http>),
}

pub(super) struct Link {
    pub(super) wire: Wire,
    pub(super) desk: Arc<Desk>,
    /// Held while resources are subscribed to, or no longer.
    pub(super) following: tokio::sync::Mutex<()>,
}

impl Link {
    pub(super) fn new(wire: Wire, desk: Arc<Desk>) -> Arc<Self> {
        Arc::new(Self { wire, desk, following: tokio::sync::Mutex::default() })
    }

    /// Asks on behalf of a client. `params` are in the revision of the server.
    pub(super) async fn request(
        &self,
        client: &Arc<dyn Client>,
        method: &str,
        mut params: Option<Value>,
        timeout: Duration,
    ) -> Result<Value, UpstreamError> {
        let entered = self.desk.enter(client, method, &mut params, timeout)?;
        let exchange = &entered.exchange;
        let answer = match &self.wire {
            Wire::Pipe(pipe) => {
                let on = On::Request(exchange);
                exchange.carry(pipe.ask(method, params, on)).await
            }
            Wire::Http(http) => {
                let on = On::Request(exchange);
                exchange.carry(http.ask(on, method, params.as_ref())).await
            }
        };
        answer.map_err(|error| match error {
            UpstreamError::Rpc(error) => UpstreamError::Rpc(exchange.questions.heard_as(error)),
            error => error,
        })
    }

    /// Opens a stream that lasts until the server answers.
    pub(super) async fn open(
        &self,
        listener: &Arc<Listener>,
        method: &str,
        params: Option<Value>,
    ) -> Result<Value, UpstreamError> {
        match &self.wire {
            Wire::Pipe(pipe) => pipe.ask(method, params, On::Listener(listener)).await,
            Wire::Http(http) => http.ask(On::Listener(listener), method, params.as_ref()).await,
        }
    }

    /// Sends a notification.
    pub(super) async fn tell(
        &self,
        method: &str,
        params: Option<Value>,
    ) -> Result<(), UpstreamError> {
        match &self.wire {
            Wire::Pipe(pipe) => pipe.tell(method, params).await,
            Wire::Http(http) => http.tell(method, params.as_ref()).await,
        }
    }
}
