//! `[approvals]`

use crate::decode::{Table, Value};
use crate::manifest::{ApprovalRule, Approvals, Notify, OnTimeout, Predicate, PredicateTest};
use crate::money::is_decimal;
use crate::{SecretName, ToolName, check_key, text};

pub(super) fn approvals(root: &Table<'_>) -> Approvals {
    let usual = Approvals::default();
    let Some(table) = root.table("approvals") else { return usual };
    let approvals = Approvals {
        timeout_seconds: table
            .get("timeout_seconds")
            .and_then(|v| v.integer(1..=86_400))
            .unwrap_or(usual.timeout_seconds),
        on_timeout: table
            .get("on_timeout")
            .and_then(|v| {
                v.choice(&[
                    ("deny", OnTimeout::Deny),
                    ("abort", OnTimeout::Abort),
                    ("proceed", OnTimeout::Proceed),
                ])
            })
            .unwrap_or_default(),
        require: table.tables("require").into_iter().filter_map(rule).collect(),
        notify: table.tables("notify").into_iter().filter_map(notify).collect(),
    };
    table.finish();
    approvals
}

fn rule(table: Table<'_>) -> Option<ApprovalRule> {
    let server = table.require("server").and_then(|value| match value.text()? {
        "*" => Some(None),
        _ => super::id(&value).map(Some),
    });
    let tool = table.require("tool").and_then(|v| v.parsed("bad-name", ToolName::parse));
    let (when, bad) = match table.table("when") {
        Some(when) => {
            let predicate = predicate(when);
            let bad = predicate.is_none();
            (predicate, bad)
        }
        None => (None, false),
    };
    table.finish();
    // A rule whose predicate is bad is never kept without it: the finding is an error anyway.
    if bad { None } else { Some(ApprovalRule { server: server?, tool: tool?, when }) }
}

fn predicate(table: Table<'_>) -> Option<Predicate> {
    let pointer = table.require("pointer").and_then(|v| v.parsed("bad-pointer", pointer));
    let mut tests = Vec::new();
    let mut count = 0;
    for (key, read) in [
        ("equals", equals as fn(&Value<'_>) -> Option<PredicateTest>),
        ("prefix", prefix),
        ("matches", matches),
        ("greater_than", greater_than),
        ("one_of", one_of),
    ] {
        if let Some(value) = table.get(key) {
            count += 1;
            tests.extend(read(&value));
        }
    }
    if count != 1 {
        let message =
            "expected exactly one of `equals`, `prefix`, `matches`, `greater_than` and `one_of`";
        table.error("bad-predicate", message.to_owned(), None);
    }
    table.finish();
    (count == 1)
        .then(|| tests.pop())
        .flatten()
        .and_then(|test| Some(Predicate { pointer: pointer?, test }))
}

/// RFC 6901.
fn pointer(given: &str) -> Result<String, String> {
    let escapes = given.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if (given.is_empty() || given.starts_with('/')) && escapes && given.len() <= 1024 {
        return Ok(given.to_owned());
    }
    Err(format!("`{}` is not a JSON pointer such as `/amount` (RFC 6901)", text::shown(given)))
}

fn equals(value: &Value<'_>) -> Option<PredicateTest> {
    value.json(false).map(PredicateTest::Equals)
}

fn prefix(value: &Value<'_>) -> Option<PredicateTest> {
    value.text_within(1024).map(|text| PredicateTest::Prefix(text.to_owned()))
}

fn matches(value: &Value<'_>) -> Option<PredicateTest> {
    let pattern = value.text_within(1024)?;
    let parsed = regex_syntax::ParserBuilder::new().nest_limit(32).build().parse(pattern);
    if let Err(error) = parsed {
        let cause = match &error {
            regex_syntax::Error::Parse(error) => error.kind().to_string(),
            regex_syntax::Error::Translate(error) => error.kind().to_string(),
            _ => "it does not parse".to_owned(),
        };
        value.error("bad-pattern", format!("not a regular expression: {cause}"), None);
        return None;
    }
    Some(PredicateTest::Matches(pattern.to_owned()))
}

fn greater_than(value: &Value<'_>) -> Option<PredicateTest> {
    let given = value.text()?;
    if !is_decimal(given) {
        let message = format!("`{}` is not a decimal such as `\"100.00\"`", text::shown(given));
        value.error("bad-amount", message, None);
        return None;
    }
    Some(PredicateTest::GreaterThan(given.to_owned()))
}

fn one_of(value: &Value<'_>) -> Option<PredicateTest> {
    let list = value.set_of(|item| item.json(false))?;
    if list.is_empty() {
        value.error("bad-value", "expected at least one value".to_owned(), None);
        return None;
    }
    Some(PredicateTest::OneOf(list))
}

fn notify(table: Table<'_>) -> Option<Notify> {
    let channel = table.require("channel").and_then(|v| v.choice(&[("webhook", "webhook")]));
    let url_ref = table.get("url_ref");
    let keys = table.get("approver_keys");
    if channel.is_some() && url_ref.is_none() {
        let help =
            "name the host variable that holds the address: `url_ref = \"APPROVALS_WEBHOOK_URL\"`";
        table.error(
            "webhook-without-url",
            "a webhook needs `url_ref`".to_owned(),
            Some(help.to_owned()),
        );
    }
    let url_ref = url_ref.and_then(|v| v.parsed("bad-name", SecretName::parse));
    let approver_keys = keys
        .and_then(|v| v.set_of(|item| item.parsed("bad-key", check_key).map(str::to_owned)))
        .unwrap_or_default();
    if channel.is_some() && approver_keys.is_empty() {
        let help =
            "list the keys that may sign a decision: `approver_keys = [\"z6Mk…\"]`".to_owned();
        table.error(
            "webhook-without-key",
            "a webhook needs an approver key".to_owned(),
            Some(help),
        );
    }
    table.finish();
    Some(Notify { channel: channel?.to_owned(), url_ref: url_ref?, approver_keys })
}
