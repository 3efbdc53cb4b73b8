//! One server, as a door asks for it.

use std::sync::Arc;

use ringfence_bundle::ServerId;
use ringfence_mcp::{
    Answer, Asker, Backend, Boxed, Client, HeaderParam, Listening, RpcError, Wanted,
};
use serde_json::Value;

use super::hello;
use crate::{Caller, Gateway, JudgedRequest};

pub(super) struct Transparent {
    gateway: Arc<Gateway>,
    caller: Caller,
    server: ServerId,
}

impl Transparent {
    pub(super) fn new(gateway: Arc<Gateway>, caller: Caller, server: ServerId) -> Self {
        Self { gateway, caller, server }
    }
}

impl Backend for Transparent {
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        Box::pin(async move {
            let request = JudgedRequest::from_door(method, params);
            let caller = self.caller.at(asker);
            let called = self.gateway.call(&caller, client, &self.server, request).await;
            let mut result = called.map_err(|error| error.to_rpc())?;
            if matches!(method, "initialize" | "server/discover") {
                hello::narrow(&mut result, self.gateway.methods(&self.server));
            }
            Ok(result)
        })
    }

    fn notification<'a>(
        &'a self,
        asker: &'a Asker,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, ()> {
        Box::pin(async move {
            // Nobody waits for an answer; the record says what became of it.
            let caller = self.caller.at(asker);
            let party = asker.into();
            let _ = self.gateway.tell(&caller, &party, &self.server, method, params).await;
        })
    }

    fn header_params<'a>(
        &'a self,
        _asker: &'a Asker,
        tool: &'a str,
    ) -> Option<Boxed<'a, Vec<HeaderParam>>> {
        Some(Box::pin(self.gateway.header_params(&self.server, tool)))
    }

    fn listen<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        Box::pin(async move {
            let caller = self.caller.at(asker);
            let listening = self.gateway.listen(&caller, client, &self.server, wanted).await;
            listening.map_err(|error| error.to_rpc())
        })
    }

    fn ended(&self, session: &str) {
        self.gateway.left(session);
    }
}
