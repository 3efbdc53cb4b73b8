//! A Python agent inside `ringfence run`, and what it found.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Output, PYTHON, Project};

const LIBRARY: &str = include_str!("../agents/agent.py");
const MIRROR: &str = include_str!("../agents/servers.py");
const OFFERS: &str = include_str!("../agents/offers.py");

/// The findings of an agent, by the name of the case.
#[derive(Debug)]
pub struct Cases {
    found: BTreeMap<String, Value>,
    /// How the run ended and what it said.
    pub output: Output,
}

impl Cases {
    /// The finding of a case.
    ///
    /// # Panics
    /// When the agent did not come that far.
    #[track_caller]
    #[must_use]
    pub fn get(&self, case: &str) -> &Value {
        self.found.get(case).unwrap_or_else(|| {
            panic!(
                "the agent reported no {case:?}\n--- stdout\n{}\n--- stderr\n{}",
                self.output.stdout, self.output.stderr
            )
        })
    }

    /// Names of the cases reported.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.found.keys().map(String::as_str)
    }

    /// Panics unless the kernel let this attempt happen.
    #[track_caller]
    pub fn happened(&self, case: &str) {
        assert_eq!(self.get(case)["done"], true, "{case} must work: {}", self.get(case));
    }

    /// Panics unless the kernel refused this attempt.
    #[track_caller]
    pub fn refused(&self, case: &str) {
        assert_eq!(self.get(case)["done"], false, "{case} must be refused: {}", self.get(case));
    }

    /// The HTTP status of a case.
    #[track_caller]
    #[must_use]
    pub fn status(&self, case: &str) -> u64 {
        self.get(case)["status"].as_u64().unwrap_or(0)
    }

    /// The body of a case.
    #[track_caller]
    #[must_use]
    pub fn body(&self, case: &str) -> &str {
        self.get(case)["body"].as_str().unwrap_or("")
    }

    /// Panics unless this MCP call was answered with a result.
    #[track_caller]
    pub fn answered(&self, case: &str) {
        assert_eq!(self.status(case), 200, "{case}: {}", self.get(case));
        assert!(
            self.body(case).contains("\"result\""),
            "{case} must be answered: {}",
            self.get(case)
        );
    }

    /// Panics if this MCP call was answered with a result of the server.
    #[track_caller]
    pub fn not_answered(&self, case: &str) {
        let body = self.body(case);
        let served = body.contains("\"result\"")
            && !body.contains("\"isError\":true")
            && !body.contains("\"isError\": true");
        assert!(!served, "{case} must be refused: {}", self.get(case));
        assert!(
            self.status(case) >= 400 || !body.is_empty(),
            "{case} hung up without a word: {}",
            self.get(case)
        );
    }
}

impl Project {
    /// Puts the agent's library and the mirror server into the project.
    pub fn python(&self) {
        self.file("agent.py", LIBRARY);
        self.file("mirror.py", MIRROR);
        self.file("offers.py", OFFERS);
    }

    /// Runs this Python text inside `ringfence run`, with the library at hand.
    #[track_caller]
    pub fn agent(&self, script: &str) -> Cases {
        self.python();
        self.file("case.py", format!("from agent import *\n{script}"));
        Self::cases(self.run(&[PYTHON, "-B", "case.py"]))
    }

    /// Runs the same text outside, as the positive control of a probe: it must work there.
    #[track_caller]
    pub fn outside(&self, script: &str) -> Cases {
        self.python();
        self.file("case.py", format!("from agent import *\n{script}"));
        let script = self.path().join("case.py").display().to_string();
        let output = crate::Started::new(self.command(&[PYTHON, "-B", &script])).finish();
        Self::cases(output)
    }

    /// Reads the findings from what an agent printed.
    #[must_use]
    pub fn cases(output: Output) -> Cases {
        let found = output
            .stdout
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|v| Some((v["case"].as_str()?.to_owned(), v)))
            .collect();
        Cases { found, output }
    }
}
