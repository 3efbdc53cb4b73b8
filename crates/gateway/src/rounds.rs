//! Questions of a server that a request waits for (2026-07-28, multi-round-trip requests).

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_mcp::{Client, Wants};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::list::nonsense;

/// Rounds of one call.
const ROUNDS: usize = 16;
/// Questions of one round.
const QUESTIONS: usize = 16;

/// What a server may ask a client.
const ASKABLE: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// Asks the client all questions of a round at once.
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
    let mut asking = JoinSet::new();
    for (key, (method, params)) in &wants.requests {
        let client = Arc::clone(client);
        let (key, method, params) = (key.clone(), method.clone(), params.clone());
        asking.spawn(async move {
            let answer = client.ask_as(&key, &method, params).await;
            (key, answer)
        });
    }
    let mut answers = BTreeMap::new();
    while let Some(asked) = asking.join_next().await {
        let Ok((key, answer)) = asked else {
            return Err(nonsense("its question could not be asked"));
        };
        answers.insert(key, answer.map_err(Error::Answered)?);
    }
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
