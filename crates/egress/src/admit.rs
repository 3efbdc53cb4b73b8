//! From the head of a request to a connection to its server, or to a refusal: the same for every
//! version of HTTP.

use std::future::Future;
use std::sync::Arc;

use http::header::PROXY_AUTHORIZATION;
use tokio::net::TcpStream;

use crate::connection::Peer;
use crate::decide::{Case, Permit};
use crate::dial::dial;
use crate::engine::Engine;
use crate::head::Head;
use crate::reply::Reply;
use crate::request::Request;
use crate::token::Token;

/// A request that goes through, and the connection that was made for it.
pub(crate) struct Through {
    pub(crate) request: Request,
    pub(crate) permit: Permit,
    pub(crate) server: TcpStream,
}

/// A request that does not.
pub(crate) struct Refused {
    pub(crate) reply: Reply,
    /// It had one meaning, so that what follows it on the connection has too.
    pub(crate) understood: bool,
}

/// Judges a request and connects to where it may go. `gone` ends when the client no longer waits: what
/// is being judged is still judged and recorded, and nothing is dialled.
pub(crate) async fn admit(
    engine: &Arc<Engine>,
    peer: &Peer,
    head: Head,
    gone: impl Future<Output = ()>,
) -> Result<Through, Refused> {
    let mut case = Case::open(engine, &peer.who, head.method.as_str());
    if !shows_token(&head, &peer.token) {
        let reason = "the request does not show the run's token";
        let reply = case.refuse_form("token", reason, &head.target, Reply::no_token());
        return Err(Refused { reply, understood: true });
    }
    case.pass("token", "the request shows the run's token");
    let target = head.target.clone();
    let request = match Request::new(head) {
        Ok(request) => request,
        Err(error) => {
            let reply = Reply::bad_request(error.status, error.reason);
            let reply = case.refuse_form(error.check, error.reason, &target, reply);
            return Err(Refused { reply, understood: false });
        }
    };
    case.pass("name", "one host and one port");
    let permit = match Box::pin(case.decide(&request)).await {
        Ok(permit) => permit,
        Err(reply) => return Err(Refused { reply, understood: true }),
    };
    let to = permit.to().clone();
    let dialled = tokio::select! {
        biased;
        dialled = Box::pin(dial(permit.addresses(), to.port)) => dialled.map_err(|e| e.to_string()),
        () = gone => {
            permit.close("client: gone before the server was reached");
            let reply = Reply::bad_gateway("the client is gone");
            return Err(Refused { reply, understood: true });
        }
    };
    match dialled {
        Ok(server) => Ok(Through { request, permit, server }),
        Err(error) => {
            permit.close(&format!("connect-failed: {error}"));
            let reply = Reply::bad_gateway(&format!("cannot connect to {}: {error}", to.host));
            Err(Refused { reply, understood: true })
        }
    }
}

fn shows_token(head: &Head, token: &Token) -> bool {
    let mut shown = head.headers.get_all(PROXY_AUTHORIZATION).iter();
    matches!((shown.next(), shown.next()), (Some(one), None) if token.admits(one.as_bytes()))
}
