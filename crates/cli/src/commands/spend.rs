//! `ringfence spend`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_spend::{CallRow, Filter, Report, Sum, Usd, is_day, report};
use serde_json::json;

use super::{Done, find, home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

/// Show what priced calls cost, and what is left of each cap.
#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Spend {
    /// Of this agent alone
    #[arg(long, value_name = "DID")]
    did: Option<String>,
    /// Of this run alone: an id, its beginning, or `last`
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// From this UTC day on, as 2026-11-30
    #[arg(long, value_name = "DATE")]
    since: Option<String>,
    /// How many of the last calls, at most 1000
    #[arg(long, value_name = "N", default_value_t = 10)]
    calls: u16,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER: &str = "\
What a call costs is measured on its reply, by the meters of `[servers.*.pricing]`; caps are in
`[spending]`, and the machine's in machine.toml. Before a call goes on, `max_usd_per_call` is set aside
(all that is left, where it is absent); the reply says what is charged. The call that crosses a cap is
the last one through. Days and months are UTC, and count for the agent's DID across runs.

  ringfence spend                          everything on this machine, or in the shared database
  ringfence spend --run last               one run
  ringfence spend --since 2026-11-01 --json

What is set aside and stays so belongs to calls in flight, or to a run that was killed before the cost
was known: it counts as spent, and nothing gives it back.";

pub(crate) fn run(spend: &Spend) -> Done {
    let home = home()?;
    if let Some(since) = &spend.since
        && !is_day(since)
    {
        let message = format!("`{}` is not a day such as 2026-11-30", escaped(since));
        return Err(Failure::user(message).next("ringfence spend --since 2026-11-30"));
    }
    // A run of another host is in the shared database alone.
    let run = spend.run.as_ref().map(|run| {
        find(&home, run, "spend --run").map_or_else(|_| run.clone(), |id| id.to_string())
    });
    let filter = Filter {
        who: spend.did.clone(),
        run,
        since: spend.since.clone(),
        calls: usize::from(spend.calls),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::user(format!("cannot start: {error}")))?;
    let report = runtime.block_on(async {
        let state = ringfence_run::shared(&home).await?;
        Ok::<Report, Failure>(report(&state, &filter).await?)
    })?;
    if spend.json {
        out::json(&json!({
            "version": 1,
            "place": report.place,
            "sums": report.sums,
            "calls": report.calls,
            "ahead": report.ahead,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    if report.sums.is_empty() && report.calls.is_empty() {
        out::say("nothing is spent: no priced call under a cap yet");
    }
    sums(&report);
    calls(&report.calls);
    for ahead in &report.ahead {
        let (who, day) = (escaped(&ahead.who), escaped(&ahead.day));
        out::say(&format!(
            "note: a clock was ahead, and the calls of {who} count in {day} until that day is over"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// One table for each agent.
fn sums(report: &Report) {
    let mut whose: Vec<&str> = report.sums.iter().map(|sum| sum.who.as_str()).collect();
    whose.sort_unstable();
    whose.dedup();
    for who in whose {
        out::data(&escaped(who));
        out::data(&line("", "cap", "spent", "set aside", "left"));
        let mut rows: Vec<&Sum> = report.sums.iter().filter(|sum| sum.who == who).collect();
        // Months first, then days, then runs; the newest of each first.
        rows.sort_by(|a, b| b.kind.cmp(&a.kind).then_with(|| b.changed.cmp(&a.changed)));
        for sum in rows {
            let of = |amount: &Option<Usd>| amount.map_or("-".to_owned(), |it| it.to_string());
            out::data(&line(
                &format!("{} {}", sum.kind.as_str(), escaped(&sum.period)),
                &of(&sum.cap_usd),
                &sum.spent_usd.to_string(),
                &sum.reserved_usd.to_string(),
                &of(&sum.left_usd),
            ));
        }
    }
}

fn line(what: &str, cap: &str, spent: &str, aside: &str, left: &str) -> String {
    format!("  {what:<32} {cap:>12} {spent:>12} {aside:>12} {left:>12}")
}

fn calls(calls: &[CallRow]) {
    if !calls.is_empty() {
        out::data("last calls");
    }
    for call in calls {
        let cost = match (&call.cost_usd, call.result.as_str()) {
            (Some(_), "released") => "given back".to_owned(),
            (Some(cost), _) => cost.to_string(),
            (None, _) => format!("{} set aside", call.reserved_usd),
        };
        out::data(&format!(
            "  {}  {}  #{}  {}.{}  {cost}",
            escaped(&call.at),
            escaped(&call.run),
            call.call,
            escaped(&call.server),
            escaped(&call.tool),
        ));
    }
}
