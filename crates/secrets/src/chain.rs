//! Sources in order. The first that has a name answers for it; one that fails ends the search, so
//! that a weaker source never stands in for it unnoticed.

use std::sync::Arc;

use ringfence_bundle::SecretName;

use crate::source::{Answer, Source};
use crate::{Environment, Secret};

/// The sources of one project on this machine, strongest first.
#[derive(Debug, Clone)]
pub struct Chain {
    sources: Arc<[Box<dyn Source>]>,
}

/// What the chain as a whole says about a name.
#[derive(Debug)]
pub enum Found {
    /// This source has it.
    Value {
        /// Which.
        source: &'static str,
        /// The value.
        secret: Secret,
    },
    /// None has it.
    Nowhere {
        /// Those that were asked, in order.
        asked: Vec<&'static str>,
    },
    /// This source failed; those after it were not asked.
    Failed {
        /// Which.
        source: &'static str,
        /// Why, without the value.
        reason: String,
    },
}

impl Chain {
    /// A chain of these sources, in this order.
    #[must_use]
    pub fn new(sources: Vec<Box<dyn Source>>) -> Self {
        Self { sources: sources.into() }
    }

    /// The environment of this process alone.
    #[must_use]
    pub fn environment() -> Self {
        Self::new(vec![Box::new(Environment)])
    }

    /// Asks one source after the other until one has the name or fails.
    pub async fn find(&self, name: &SecretName) -> Found {
        let mut asked = Vec::new();
        for source in self.sources.iter() {
            match source.find(name).await {
                Answer::Found(secret) => return Found::Value { source: source.name(), secret },
                Answer::Failed(reason) => return Found::Failed { source: source.name(), reason },
                Answer::Missing => asked.push(source.name()),
            }
        }
        Found::Nowhere { asked }
    }

    /// Asks every source, whatever the others say: for a person who wants to know.
    pub async fn each(&self, name: &SecretName) -> Vec<(&'static str, Answer)> {
        let mut answers = Vec::new();
        for source in self.sources.iter() {
            answers.push((source.name(), source.find(name).await));
        }
        answers
    }
}
