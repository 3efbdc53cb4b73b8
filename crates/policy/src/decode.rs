//! A small strict TOML decoder that keeps every place and reports every problem.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ringfence_bundle::{Diagnostic, Place, Severity};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key with its value and where the key stands.
pub(crate) type Entry<'a, 'i> = (&'a str, Range<usize>, &'a Spanned<DeValue<'i>>);

/// Reads one document and collects what is wrong with it.
pub(crate) struct Decoder<'a> {
    file: PathBuf,
    text: &'a str,
    /// Byte at which each line begins.
    starts: Vec<usize>,
    /// What was found so far.
    pub(crate) found: Vec<Diagnostic>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(file: &Path, text: &'a str) -> Self {
        let starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(n, _)| n + 1)).collect();
        Self { file: file.to_owned(), text, starts, found: Vec::new() }
    }

    /// Parses the text; syntax errors and duplicate keys are collected and the rest is still read.
    pub(crate) fn parse(&mut self) -> Spanned<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            self.error("syntax", span, error.message().to_owned(), None);
        }
        table
    }

    pub(crate) fn error(
        &mut self,
        rule: &'static str,
        span: Range<usize>,
        message: String,
        help: Option<String>,
    ) {
        let at = Some(self.place(span));
        self.found.push(Diagnostic {
            severity: Severity::Error,
            rule,
            message,
            at,
            help,
            next: Some("ringfence validate".to_owned()),
        });
    }

    /// Where a span begins, and how much of that line it takes.
    pub(crate) fn place(&self, span: Range<usize>) -> Place {
        let at = span.start.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= at).max(1);
        let start = self.starts[line - 1];
        let rest = &self.text[start..];
        let text = rest.lines().next().unwrap_or_default();
        let count =
            |from: usize, to: usize| self.text.get(from..to).map_or(1, |part| part.chars().count());
        let end = span.end.clamp(at, start + text.len().max(at - start));
        Place {
            file: self.file.clone(),
            line,
            column: count(start, at) + 1,
            text: text.to_owned(),
            width: count(at, end).max(1),
        }
    }

    /// Line of a span, from 1.
    pub(crate) fn line(&self, span: Range<usize>) -> usize {
        self.place(span).line
    }

    /// The entries of a table, in no promised order. Not a table: reported, empty.
    pub(crate) fn table<'v, 'i>(
        &mut self,
        name: &str,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Vec<Entry<'v, 'i>> {
        match value.get_ref() {
            DeValue::Table(table) => entries(table),
            other => {
                self.wrong_type::<()>(name, "a table", other, value.span());
                Vec::new()
            }
        }
    }

    pub(crate) fn string(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            other => self.wrong_type(name, "a string", other, value.span()),
        }
    }

    /// Strings with where each stands.
    pub(crate) fn strings(
        &mut self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Vec<(String, Range<usize>)>> {
        let DeValue::Array(items) = value.get_ref() else {
            return self.wrong_type(name, "a list of strings", value.get_ref(), value.span());
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items.iter() {
            if let Some(text) = self.string(name, item) {
                texts.push((text, item.span()));
            }
        }
        Some(texts)
    }

    pub(crate) fn boolean(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(yes) => Some(*yes),
            other => self.wrong_type(name, "true or false", other, value.span()),
        }
    }

    /// A whole number in a range.
    pub(crate) fn whole(
        &mut self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Option<u64> {
        let DeValue::Integer(number) = value.get_ref() else {
            return self.wrong_type(name, "a whole number", value.get_ref(), value.span());
        };
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                let message = format!("`{name}` is not from {} to {}", range.start(), range.end());
                self.error("out-of-range", value.span(), message, None);
                None
            }
        }
    }

    /// Reports a key that is not one of those known, with the nearest of them.
    pub(crate) fn unknown(&mut self, table: &str, key: &str, span: Range<usize>, known: &[&str]) {
        let near = known
            .iter()
            .map(|name| (strsim::damerau_levenshtein(key, name), *name))
            .filter(|(distance, name)| *distance <= name.len().div_ceil(3).max(1))
            .min();
        let help = near.map_or_else(
            || format!("known here: {}", known.join(", ")),
            |(_, name)| format!("did you mean `{name}`?"),
        );
        let key: String = key.escape_debug().take(80).collect();
        self.error("unknown-key", span, format!("unknown key `{key}` in {table}"), Some(help));
    }

    fn wrong_type<T>(
        &mut self,
        name: &str,
        expected: &str,
        found: &DeValue<'_>,
        span: Range<usize>,
    ) -> Option<T> {
        let message = format!("`{name}` is {expected}, found {}", found.type_str());
        self.error("wrong-type", span, message, None);
        None
    }
}

/// The entries of a table.
pub(crate) fn entries<'v, 'i>(table: &'v DeTable<'i>) -> Vec<Entry<'v, 'i>> {
    table.iter().map(|(key, value)| (&**key.get_ref(), key.span(), value)).collect()
}
