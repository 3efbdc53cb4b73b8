//! What a server offers now: its handshake and its whole tool list, asked for a person to review.

use std::sync::Arc;

use ringfence_bundle::{ServerId, ToolName};
use ringfence_mcp::UpstreamError;
use serde_json::Value;

use crate::Gateway;
use crate::call::{Attempt, JudgedRequest};
use crate::error::Error;
use crate::list::{GATEWAY, nonsense};
use crate::tools::{Dropped, Listed, fit, lists};

/// Bytes of all definitions of a server. A lock has no room for more.
const BYTES: usize = 16 << 20;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// What it tells a model about itself, if anything.
    pub instructions: Option<String>,
    /// The whole definition of each tool that the gateway would offer, by the server's declaration
    /// and by its name; sorted by name.
    pub tools: Vec<Value>,
    /// Tools that the gateway offers to nobody, whatever is declared.
    pub unfit: Vec<Unfit>,
    /// Tools that the declaration lists and the server does not offer.
    pub missing: Vec<ToolName>,
}

/// A tool that is offered to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Its name as the server spells it, hostile text; at most 80 characters.
    pub name: String,
    /// In words, fit to print.
    pub why: String,
}

impl Gateway {
    /// Asks a server for its handshake and its whole tool list, over one connection. Each request is
    /// a decision in the record, as any other.
    ///
    /// # Errors
    /// As [`Gateway::call`]; and when the definitions are more than a lock can hold.
    pub async fn offer(self: &Arc<Self>, server: &ServerId) -> Result<Offer, Error> {
        let patience = self.upstreams.patience();
        let offer = tokio::time::timeout(patience, self.ask(server)).await;
        let Ok(offer) = offer else {
            let error = UpstreamError::Timeout { after: patience };
            self.upstreams.hung(server, &error).await;
            return Err(Error::Upstream { error });
        };
        offer
    }

    async fn ask(&self, server: &ServerId) -> Result<Offer, Error> {
        let hello = JudgedRequest::from_door("initialize", None);
        let course = self.first_steps(server, &hello, 0);
        let passed = self.pass_own(GATEWAY, course, server, &hello, None).await;
        let (hello, over) = passed.map_err(|attempt| match attempt {
            Attempt::Failed(error) => error,
            Attempt::Again => nonsense("it was restarted while it was asked"),
        })?;
        let instructions = match hello.get("instructions") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(nonsense("its instructions are not a text")),
        };
        let mut bytes = 0;
        let keep = |tool: &Value| {
            bytes += tool.to_string().len();
            if bytes > BYTES {
                return Err(nonsense("its tool definitions are larger than 16 MiB"));
            }
            Ok((Listed::of(tool), tool.clone()))
        };
        let (tools, _) = self.whole_list(server, Some(over), keep).await?;
        let (listed, mut tools): (Vec<_>, Vec<_>) = tools.into_iter().unzip();
        let (fit, dropped) = fit(&listed);
        let declared = self.declared(server);
        let name = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
        tools.retain(|tool| {
            name(tool).is_some_and(|name| fit.contains_key(&name) && lists(declared, &name))
        });
        tools.sort_by_cached_key(name);
        let missing = declared.unwrap_or_default().iter();
        let missing = missing.filter(|tool| !fit.contains_key(tool.as_str())).cloned().collect();
        let unfit = |dropped: &Dropped| {
            let (name, why) = (dropped.given.clone(), dropped.why().to_owned());
            Unfit { name, why }
        };
        let unfit = dropped.iter().map(unfit).collect();
        Ok(Offer { instructions, tools, unfit, missing })
    }

    /// Lets every server go. To be called when nothing is asked any more.
    pub async fn close(&self) {
        self.upstreams.close().await;
    }
}
