//! The load generator: one for everything that is compared. It takes an order a line on standard
//! input.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

use super::link::{Link, Place};
use crate::Result;

/// How long the calls of one round may take.
const LONGEST: Duration = Duration::from_millis(500);

/// Does orders until there are no more.
pub(super) fn main() -> Result {
    super::fast::run(async {
        let mut state = State::default();
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let order: Value = serde_json::from_str(&line).map_err(|e| e.to_string())?;
            let reply = match state.carry_out(&order).await {
                Ok(reply) => reply,
                Err(error) => json!({ "error": error }),
            };
            println!("{reply}");
        }
        Ok(())
    })
}

#[derive(Default)]
struct State {
    place: Option<Place>,
    tool: String,
    one: Option<Link>,
    held: Vec<Link>,
}

impl State {
    async fn carry_out(&mut self, order: &Value) -> Result<Value> {
        let number = |name: &str| order[name].as_u64().unwrap_or(0);
        match order["do"].as_str() {
            Some("open") => {
                let place = Place::parse(order)?;
                self.tool = order["tool"].as_str().unwrap_or("echo").to_owned();
                self.one = Some(Link::open(&place, &self.tool).await?);
                self.place = Some(place);
                Ok(json!({}))
            }
            Some("latency") => {
                let one = self.one.as_mut().ok_or("nothing is open")?;
                let mut times = Vec::new();
                let begun = Instant::now();
                for _ in 0..number("calls") {
                    let start = Instant::now();
                    one.call().await?;
                    times.push(nanoseconds(start.elapsed()));
                    // Who takes longer than that is measured by fewer calls.
                    if begun.elapsed() > LONGEST {
                        break;
                    }
                }
                Ok(json!({ "ns": times }))
            }
            Some("ask") => {
                let one = self.one.as_mut().ok_or("nothing is open")?;
                let method = order["method"].as_str().ok_or("no method")?;
                let start = Instant::now();
                let result = one.ask(method, &order["params"]).await?;
                Ok(json!({ "ns": nanoseconds(start.elapsed()), "result": result }))
            }
            Some("rate") => self.rate(number("connections"), number("ms")).await,
            Some("hold") => {
                let place = self.place.as_ref().ok_or("nothing is open")?;
                for _ in 0..number("sessions") {
                    self.held.push(Link::open(place, &self.tool).await?);
                }
                Ok(json!({ "held": self.held.len() }))
            }
            _ => Err("an order that is unknown".into()),
        }
    }

    /// Calls on many connections at once, each waiting for its answer before the next call.
    async fn rate(&self, connections: u64, milliseconds: u64) -> Result<Value> {
        let place = self.place.as_ref().ok_or("nothing is open")?;
        let mut links = Vec::new();
        for _ in 0..connections {
            links.push(Link::open(place, &self.tool).await?);
        }
        let start = Instant::now();
        let end = start + Duration::from_millis(milliseconds);
        let mut all = JoinSet::new();
        for mut link in links {
            all.spawn(async move {
                let mut calls = 0_u64;
                while Instant::now() < end {
                    link.call().await?;
                    calls += 1;
                }
                Ok::<_, String>(calls)
            });
        }
        let mut calls = 0;
        while let Some(done) = all.join_next().await {
            calls += done.map_err(|e| e.to_string())??;
        }
        Ok(json!({ "calls": calls, "ns": nanoseconds(start.elapsed()) }))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
