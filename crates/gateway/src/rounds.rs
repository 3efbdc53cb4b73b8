//! Questions of a server that a request waits for (2026-07-28, multi-round-trip requests).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use ringfence_mcp::{Client, Wants};
use serde_json::Value;

use crate::error::Error;
use crate::list::nonsense;

/// Rounds of one call.
const ROUNDS: usize = 16;
/// Questions of one round.
const QUESTIONS: usize = 16;

/// What a server may ask a client.
const ASKABLE: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// Asks the client all questions of a round at once, each under the server's own key. Its first error
/// ends the round.
pub(crate) async fn ask(
    client: &Arc<dyn Client>,
    wants: &Wants,
    round: usize,
) -> Result<BTreeMap<String, Value>, Error> {
    if round > ROUNDS {
        return Err(nonsense("it asks and asks: a call has 16 rounds at most"));
    }
    if wants.requests.len() > QUESTIONS {
        return Err(nonsense("it asks more than 16 questions at once"));
    }
    if wants.requests.values().any(|(method, _)| !ASKABLE.contains(&method.as_str())) {
        return Err(nonsense("it asks what no client is asked"));
    }
    let ask = |(key, (method, params)): (&'_ String, &'_ (String, Option<Value>))| {
        let (client, key) = (Arc::clone(client), key.clone());
        let (method, params) = (method.clone(), params.clone());
        Box::pin(async move {
            let answer = client.ask_as(&key, &method, params).await;
            (key, answer)
        })
    };
    let mut asking: Vec<_> = wants.requests.iter().map(ask).collect();
    let mut answers = BTreeMap::new();
    // Not one task each: all are put to the client before it can be told of the first, so that it has
    // them in one result where it is asked by results.
    std::future::poll_fn(|cx| {
        let mut failed = None;
        asking.retain_mut(|asked| match asked.as_mut().poll(cx) {
            Poll::Ready((key, Ok(answer))) => {
                answers.insert(key, answer);
                false
            }
            Poll::Ready((_, Err(error))) => {
                failed.get_or_insert(Error::Answered(error));
                false
            }
            Poll::Pending => true,
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if asking.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await?;
    Ok(answers)
}

/// For the record.
pub(crate) fn words(wants: &Wants) -> String {
    let mut methods: Vec<_> = wants.requests.values().map(|(method, _)| method.as_str()).collect();
    methods.sort_unstable();
    methods.dedup();
    methods.truncate(3);
    let methods: Vec<_> = methods.into_iter().map(crate::tools::shown).collect();
    match methods[..] {
        [] => "it wants to be asked again".into(),
        _ => format!("it asks for {}", methods.join(", ")),
    }
}
