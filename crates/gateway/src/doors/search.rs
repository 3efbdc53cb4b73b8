//! Finds tools by words. Pure.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use ringfence_bundle::ServerId;
use serde_json::Value;

use super::names;
use crate::catalog::{Shown, Tools};
use std::sync::Arc;

/// Words of one definition that are read.
const WORDS: usize = 400;
/// Characters of a word.
const LETTERS: usize = 40;
/// Words of a query that are looked up.
const ASKED: usize = 8;
/// Words of definitions that the beginning of one stands for.
const BEGINNINGS: usize = 64;
/// Letters of a beginning.
const BEGINNING: usize = 3;
/// Tools that words which most tools have still put in order.
const ORDERED: usize = 5_000;
/// Characters of a description that a search shows.
const SHOWN: usize = 200;
/// Parameters' names are read so deep in a schema.
const DEPTH: usize = 4;

/// What a word counts, by where it stands.
const NAME: f32 = 6.0;
const TITLE: f32 = 4.0;
const SERVER: f32 = 3.0;
const PARAMETER: f32 = 2.0;
const DESCRIPTION: f32 = 1.0;
/// What the whole name adds.
const WHOLE: f32 = 100.0;
/// What a word counts of which only the beginning was asked for.
const BEGUN: f32 = 0.5;

/// Which tools have a word, and what it counts there.
type Places = Box<[(u32, f32)]>;

/// A tool that was found.
#[derive(Debug, PartialEq)]
pub(super) struct Found<'i> {
    /// `<server>__<tool>`
    pub(super) name: String,
    pub(super) title: Option<&'i str>,
    /// The beginning of it.
    pub(super) description: &'i str,
}

/// An inverted index over names, titles, descriptions and parameter names.
#[derive(Debug, Default)]
pub(super) struct Index {
    tools: Vec<Row>,
    servers: Vec<ServerId>,
    /// By word, sorted: which tools have it, and what it counts there.
    words: Vec<(Box<str>, Places)>,
    /// By name in small letters.
    names: HashMap<String, Vec<u32>>,
}

#[derive(Debug)]
struct Row {
    server: u32,
    tool: Arc<Shown>,
    title: Option<Box<str>>,
    description: Box<str>,
}

impl Index {
    pub(super) fn new(offered: &BTreeMap<ServerId, Tools>) -> Self {
        let mut index = Self::default();
        let mut words: HashMap<String, Vec<(u32, f32)>> = HashMap::new();
        for (server, tools) in offered {
            let place = u32::try_from(index.servers.len()).unwrap_or(u32::MAX);
            index.servers.push(server.clone());
            for tool in tools.iter() {
                // What was kept is what a value gave.
                let Ok(definition) = serde_json::from_str::<Value>(&tool.text) else { continue };
                let Ok(nth) = u32::try_from(index.tools.len()) else { break };
                let text = |key: &str| definition.get(key).and_then(Value::as_str);
                let title = text("title").or_else(|| definition["annotations"]["title"].as_str());
                let description = text("description").unwrap_or_default();
                let mut of: HashMap<String, f32> = HashMap::new();
                let mut read = 0;
                let mut add = |text: &str, weight: f32| {
                    for_words(text, |word| {
                        read += 1;
                        if read <= WORDS {
                            // A word that stands often counts little more than once.
                            let known = of.entry(word.to_owned()).or_insert(0.0);
                            *known = if *known == 0.0 { weight } else { known.max(weight) + 0.1 };
                        }
                    });
                };
                add(&tool.name, NAME);
                add(title.unwrap_or_default(), TITLE);
                add(server.as_str(), SERVER);
                parameters(&definition["inputSchema"], DEPTH, &mut |name| add(name, PARAMETER));
                add(description, DESCRIPTION);
                for (word, weight) in of {
                    words.entry(word).or_default().push((nth, weight));
                }
                let cut = |text: &str| text.chars().take(SHOWN).collect::<String>().into();
                let (title, description) = (title.map(cut), cut(description));
                index.names.entry(tool.name.to_lowercase()).or_default().push(nth);
                index.tools.push(Row { server: place, tool: Arc::clone(tool), title, description });
            }
        }
        index.words =
            words.into_iter().map(|(word, at)| (word.into(), at.into_boxed_slice())).collect();
        index.words.sort_by(|(a, _), (b, _)| a.cmp(b));
        index
    }

    /// The best tools for a query, and how many there are. Equal ones are in the order of their
    /// names; the same query over the same tools gives the same answer.
    pub(super) fn search(
        &self,
        query: &str,
        server: Option<&ServerId>,
        limit: usize,
    ) -> (Vec<Found<'_>>, usize) {
        let only = server.map(|wanted| self.servers.iter().position(|server| server == wanted));
        let only = match only {
            Some(None) => return (Vec::new(), 0),
            Some(Some(place)) => u32::try_from(place).ok(),
            None => None,
        };
        let here = |nth: u32| only.is_none_or(|only| self.tools[nth as usize].server == only);
        let mut asked = Vec::new();
        for_words(query, |word| {
            if asked.len() < ASKED && !asked.iter().any(|known| known == word) {
                asked.push(word.to_owned());
            }
        });
        if asked.is_empty() {
            let count = u32::try_from(self.tools.len()).unwrap_or(u32::MAX);
            let all: Vec<_> = (0..count).filter(|nth| here(*nth)).collect();
            let found = all.iter().take(limit).map(|nth| self.found(*nth)).collect();
            return (found, all.len());
        }
        // Words that few tools have come first: what is asked beside them only orders what they found.
        let mut words: Vec<_> = asked
            .iter()
            .map(|word| {
                let spellings: Vec<_> = self.spellings(word).collect();
                let places: usize = spellings.iter().map(|(at, _)| at.len()).sum();
                (places, spellings)
            })
            .filter(|(places, _)| *places > 0)
            .collect();
        words.sort_by_key(|(places, _)| *places);
        let mut scores = vec![0.0_f32; self.tools.len()];
        let (mut hit, mut best, mut touched) = (Vec::new(), scores.clone(), Vec::new());
        for (places, spellings) in &words {
            let common = *places > self.tools.len() / 2;
            if common && !hit.is_empty() {
                if hit.len() <= ORDERED {
                    for (at, factor) in spellings {
                        let rare = rarity(self.tools.len(), at.len());
                        for nth in &hit {
                            if let Ok(place) = at.binary_search_by_key(nth, |(nth, _)| *nth) {
                                scores[*nth as usize] += at[place].1 * factor * rare;
                            }
                        }
                    }
                }
                continue;
            }
            // What one word adds to one tool is the best of its spellings.
            for (at, factor) in spellings {
                let factor = factor * rarity(self.tools.len(), at.len());
                for (nth, weight) in *at {
                    let known = &mut best[*nth as usize];
                    if *known == 0.0 {
                        touched.push(*nth);
                    }
                    *known = known.max(weight * factor);
                }
            }
            for nth in touched.drain(..) {
                let score = &mut scores[nth as usize];
                if *score == 0.0 {
                    hit.push(nth);
                }
                *score += std::mem::take(&mut best[nth as usize]);
            }
        }
        for nth in self.named(query.trim()) {
            // Only what was found by its words, too.
            if scores[nth as usize] > 0.0 {
                scores[nth as usize] += WHOLE;
            }
        }
        hit.retain(|nth| here(*nth));
        let total = hit.len();
        let order = |a: &u32, b: &u32| {
            scores[*b as usize].total_cmp(&scores[*a as usize]).then_with(|| a.cmp(b))
        };
        if total > limit && limit > 0 {
            hit.select_nth_unstable_by(limit - 1, order);
            hit.truncate(limit);
        }
        hit.sort_unstable_by(order);
        (hit.into_iter().map(|nth| self.found(nth)).collect(), total)
    }

    /// The tools whose name, or full name, is this.
    fn named(&self, name: &str) -> Vec<u32> {
        let full = self.place(name);
        let own = self.names.get(&name.to_lowercase()).into_iter().flatten().copied();
        own.chain(full).collect()
    }

    /// Where a tool of this full name is.
    fn place(&self, name: &str) -> Option<u32> {
        let (server, tool) = names::parted(name)?;
        let place = u32::try_from(self.servers.binary_search(&server).ok()?).ok()?;
        let nth = self
            .tools
            .binary_search_by(|row| (row.server, row.tool.name.as_str()).cmp(&(place, tool)))
            .ok()?;
        u32::try_from(nth).ok()
    }

    /// A tool's definition under its full name.
    pub(super) fn definition(&self, name: &str) -> Option<Value> {
        let row = &self.tools[self.place(name)? as usize];
        let mut definition: Value = serde_json::from_str(&row.tool.text).ok()?;
        definition["name"] = name.into();
        Some(definition)
    }

    fn found(&self, nth: u32) -> Found<'_> {
        let row = &self.tools[nth as usize];
        Found {
            name: names::joined(&self.servers[row.server as usize], &row.tool.name),
            title: row.title.as_deref(),
            description: &row.description,
        }
    }

    /// Where the word itself is, and words that begin with it.
    fn spellings(&self, word: &str) -> impl Iterator<Item = (&[(u32, f32)], f32)> {
        let from = self.words.partition_point(|(known, _)| **known < *word);
        let long = word.chars().nth(BEGINNING - 1).is_some();
        self.words[from..]
            .iter()
            .take_while(move |(known, _)| known.starts_with(word))
            .take(BEGINNINGS)
            .filter(move |(known, _)| long || **known == *word)
            .map(move |(known, at)| (&**at, if **known == *word { 1.0 } else { BEGUN }))
    }
}

/// A word that many tools have says less.
fn rarity(tools: usize, places: usize) -> f32 {
    1.0 + (tools as f32 / (places as f32 + 1.0)).max(1.0).ln()
}

/// The names of a schema's parameters.
fn parameters(schema: &Value, depth: usize, take: &mut impl FnMut(&str)) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        take(name);
        if depth > 1 {
            parameters(property, depth - 1, take);
            parameters(&property["items"], depth - 1, take);
        }
    }
}

/// Words in small letters: what other signs part, and where a small letter meets a capital.
fn for_words(text: &str, mut take: impl FnMut(&str)) {
    let mut word = String::new();
    let mut letters = 0;
    let mut small = false;
    for sign in text.chars() {
        let parts = !sign.is_alphanumeric() || small && sign.is_uppercase();
        if parts && !word.is_empty() {
            take(&word);
            word.clear();
            letters = 0;
        }
        small = sign.is_lowercase() || sign.is_numeric();
        if sign.is_alphanumeric() && letters < LETTERS {
            word.extend(sign.to_lowercase());
            letters += 1;
        }
    }
    if !word.is_empty() {
        take(&word);
    }
}
