//! Tools that need something of the client before they can go on.

use ringfence_mcp::{Answer, Client};
use serde_json::json;

use super::text;
use crate::questions::{elicit, form, roots, sample};

/// Names and descriptions.
pub(super) const NAMES: [(&str, &str); 8] = [
    ("test_input_required_result_elicitation", "Asks for a name"),
    ("test_input_required_result_sampling", "Asks the client's model"),
    ("test_input_required_result_list_roots", "Asks for the client's roots"),
    ("test_input_required_result_request_state", "Asks for a yes"),
    ("test_input_required_result_multiple_inputs", "Asks three things at once"),
    ("test_input_required_result_multi_round", "Asks one thing after another"),
    ("test_input_required_result_tampered_state", "Asks for a yes that cannot be forged"),
    ("test_input_required_result_capabilities", "Asks what the client can answer"),
];

const NAME: &str = "What is your name?";

pub(super) async fn call(client: &dyn Client, name: &str) -> Answer {
    let word = |answer: &serde_json::Value, field: &str| {
        answer["content"][field].as_str().unwrap_or("nobody").to_owned()
    };
    match name {
        "test_input_required_result_elicitation" => {
            let answer = elicit(client, "user_name", form(NAME, "name", "string")).await?;
            text(format!("Hello, {}!", word(&answer, "name")))
        }
        "test_input_required_result_sampling" => {
            let question = "What is the capital of France?";
            let answer = sample(client, "capital_question", question).await?;
            text(answer["content"]["text"].as_str().unwrap_or_default())
        }
        "test_input_required_result_list_roots" => {
            let answer = roots(client, "client_roots").await?;
            text(format!("Roots: {}", answer["roots"]))
        }
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            let question = form("Please confirm", "ok", "boolean");
            let answer = elicit(client, "confirm", question).await?;
            text(format!("state-ok: {}", answer["content"]["ok"]))
        }
        "test_input_required_result_multiple_inputs" => {
            let (name, greeting, roots) = tokio::join!(
                elicit(client, "user_name", form(NAME, "name", "string")),
                sample(client, "greeting", "Generate a greeting"),
                roots(client, "client_roots"),
            );
            let (name, greeting, roots) = (name?, greeting?, roots?);
            let said = greeting["content"]["text"].as_str().unwrap_or_default();
            text(format!("{said} {} {}", word(&name, "name"), roots["roots"]))
        }
        "test_input_required_result_multi_round" => {
            let question = form("Step 1: What is your name?", "name", "string");
            let first = elicit(client, "step1", question).await?;
            let question = form("Step 2: What is your favorite color?", "color", "string");
            let second = elicit(client, "step2", question).await?;
            text(format!("{} likes {}", word(&first, "name"), word(&second, "color")))
        }
        _ => {
            let can = |what: &str| client.capabilities().get(what).is_some();
            let mut said = Vec::new();
            if can("sampling") {
                said.push(sample(client, "sampled", "Say something").await?);
            }
            if can("elicitation") {
                let question = form(NAME, "name", "string");
                said.push(elicit(client, "user_name", question).await?);
            }
            text(json!(said).to_string())
        }
    }
}
