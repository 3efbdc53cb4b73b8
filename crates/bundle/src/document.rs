//! One or two TOML files, parsed with spans, and everything that is found about them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;
use toml_parser::lexer::TokenKind;

use crate::decode::{MAX_ITEMS, Path as Keys, Table};
use crate::source::Source;
use crate::tree::{Data, Entries, Node, Span};
use crate::{Diagnostic, Place, Places, Severity, text, tree};

/// No more findings than this are kept; a file with more has one cause.
const MAX_FINDINGS: usize = 100;

/// Key parts times open brackets: no deeper than this, so that no input can exhaust the stack.
const MAX_DEPTH: usize = 128;

/// TOML text with spans, being decoded. Errors are collected, not returned, so that one pass
/// reports all of them; take them with [`Document::into_findings`].
///
/// ```
/// use ringfence_bundle::Document;
/// let document = Document::parse("m.toml".as_ref(), "[policy]\nmax_duration_secs = 60\n");
/// let root = document.root();
/// if let Some(policy) = root.table("policy") {
///     let _limit = policy.get("max_duration_seconds").and_then(|value| value.integer(1..=60));
///     policy.finish();
/// }
/// root.finish();
/// let findings = document.into_findings();
/// assert_eq!(findings[0].rule, "unknown-key");
/// assert_eq!(findings[0].help.as_deref(), Some("did you mean `max_duration_seconds`?"));
/// ```
#[derive(Debug)]
pub struct Document {
    sources: Arc<Vec<Source>>,
    root: Node,
    next: &'static str,
    max_items: usize,
    findings: RefCell<Vec<Finding>>,
    spans: RefCell<BTreeMap<String, Span>>,
    asked: RefCell<BTreeSet<String>>,
    /// Lines that do not parse: what is decoded from them means nothing.
    broken_lines: BTreeSet<(usize, usize)>,
}

#[derive(Debug)]
struct Finding {
    order: (usize, usize),
    diagnostic: Diagnostic,
}

impl Document {
    /// Parses one file. The path is only shown, never opened.
    #[must_use]
    pub fn parse(file: &Path, text: &str) -> Self {
        Self::from_sources(vec![Source::new(file, text)])
    }

    /// Parses the bytes of one file.
    ///
    /// # Errors
    /// A [`Diagnostic`] when they are no text: longer than 4 MiB, not UTF-8, a byte order mark, a
    /// NUL byte.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self, Box<Diagnostic>> {
        Source::from_bytes(file, bytes).map(|source| Self::from_sources(vec![source]))
    }

    /// Parses files and lays each over those before it.
    pub(crate) fn from_sources(sources: Vec<Source>) -> Self {
        let mut document = Self {
            root: Node {
                at: Span { source: 0, start: 0, end: 0 },
                data: Data::Table(Entries::new()),
            },
            sources: Arc::new(sources),
            next: "ringfence validate",
            max_items: MAX_ITEMS,
            findings: RefCell::default(),
            spans: RefCell::default(),
            asked: RefCell::default(),
            broken_lines: BTreeSet::new(),
        };
        let mut merged = Entries::new();
        for index in 0..document.sources.len() {
            let entries = document.parse_source(index);
            document.check_visible(index);
            document.check_values(&entries);
            tree::lay_over(&mut merged, &entries);
        }
        document.root.data = Data::Table(merged);
        document
    }

    /// Names the command that a person types after mending the file; `ringfence validate` if unset.
    #[must_use]
    pub const fn with_next(mut self, command: &'static str) -> Self {
        self.next = command;
        self
    }

    /// Sets how many values an array and how many names a table may hold; 1,024 if unset.
    #[must_use]
    pub const fn with_max_items(mut self, max: usize) -> Self {
        self.max_items = max;
        self
    }

    /// The top table.
    #[must_use]
    pub fn root(&self) -> Table<'_> {
        let Data::Table(entries) = &self.root.data else {
            unreachable!("the root is made a table by the constructor and never replaced")
        };
        Table::new(self, Keys::default(), entries, self.root.at)
    }

    /// Whether some text could not be parsed: what is missing may only be unreadable.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        !self.broken_lines.is_empty()
    }

    /// Whether an error was found so far.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.borrow().iter().any(|f| f.diagnostic.severity == Severity::Error)
    }

    /// Reports an error at a decoded key (`servers.search.env.PATH`, `approvals.require[0].tool`),
    /// or at the nearest table around it that was decoded.
    pub fn error_at(&self, keys: &str, rule: &'static str, message: String, help: Option<String>) {
        self.report(Severity::Error, self.nearest(keys), rule, message, help);
    }

    /// Reports a warning, placed as in [`Document::error_at`].
    pub fn warn_at(&self, keys: &str, rule: &'static str, message: String, help: Option<String>) {
        self.report(Severity::Warning, self.nearest(keys), rule, message, help);
    }

    /// Whether a key that was asked for is there, well-formed or not.
    #[must_use]
    pub fn has(&self, keys: &str) -> bool {
        self.spans.borrow().contains_key(keys)
    }

    /// Where a decoded key stands.
    #[must_use]
    pub fn place(&self, keys: &str) -> Option<Place> {
        self.spans.borrow().get(keys).map(|span| self.place_of(*span))
    }

    /// All findings, in the order of the text.
    #[must_use]
    pub fn into_findings(self) -> Vec<Diagnostic> {
        let mut findings = self.findings.into_inner();
        findings.sort_by_key(|finding| finding.order);
        let mut list: Vec<Diagnostic> = Vec::new();
        for finding in findings {
            if !list.contains(&finding.diagnostic) {
                list.push(finding.diagnostic);
            }
        }
        list
    }

    /// Where every decoded key stands, for those who ask after the document is gone.
    #[must_use]
    pub fn places(&self) -> Places {
        Places { spans: self.spans.borrow().clone(), sources: Arc::clone(&self.sources) }
    }

    /// Whether no further finding would be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.findings.borrow().len() >= MAX_FINDINGS
    }

    pub(crate) const fn max_items(&self) -> usize {
        self.max_items
    }

    pub(crate) fn line_of(&self, span: Span) -> usize {
        self.sources.get(span.source).map_or(1, |source| source.line(span.start))
    }

    pub(crate) fn remember(&self, keys: &Keys, span: Span) {
        self.spans.borrow_mut().insert(keys.path.clone(), span);
    }

    pub(crate) fn ask(&self, pattern: String) {
        self.asked.borrow_mut().insert(pattern);
    }

    /// Every key that a decoder asked for, names as `*` and positions as `[]`: what a reference page
    /// of a format must have.
    #[must_use]
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }

    pub(crate) fn report(
        &self,
        severity: Severity,
        span: Span,
        rule: &'static str,
        message: String,
        help: Option<String>,
    ) {
        if self.broken_lines.contains(&(span.source, self.line_of(span))) {
            return;
        }
        self.push(severity, span, rule, message, help);
    }

    fn push(
        &self,
        severity: Severity,
        span: Span,
        rule: &'static str,
        message: String,
        help: Option<String>,
    ) {
        if self.is_full() {
            return;
        }
        self.findings.borrow_mut().push(Finding {
            order: (span.source, span.start),
            diagnostic: Diagnostic {
                severity,
                rule,
                message,
                at: self.sources.get(span.source).map(|source| source.place(span.start..span.end)),
                help,
                next: Some(self.next.to_owned()),
            },
        });
    }

    fn place_of(&self, span: Span) -> Place {
        self.sources[span.source].place(span.start..span.end)
    }

    fn nearest(&self, keys: &str) -> Span {
        let spans = self.spans.borrow();
        let mut keys = keys;
        loop {
            if let Some(span) = spans.get(keys) {
                return *span;
            }
            match keys.rfind(['.', '[']) {
                Some(at) => keys = &keys[..at],
                None => return self.root.at,
            }
        }
    }

    fn parse_source(&mut self, index: usize) -> Entries {
        let sources = Arc::clone(&self.sources);
        let source = &sources[index];
        if let Some(at) = too_deep(source.text()) {
            let span = Span { source: index, start: at, end: at + 1 };
            self.push(
                Severity::Error,
                span,
                "too-deep",
                "tables nested too deeply".to_owned(),
                None,
            );
            self.broken_lines.insert((index, source.line(at)));
            return Entries::new();
        }
        let (table, errors) = DeTable::parse_recoverable(source.text());
        for error in errors {
            if self.is_full() {
                break;
            }
            let range = error.span().unwrap_or(0..0);
            let span = Span { source: index, start: range.start, end: range.end };
            let (rule, message) = if error.message() == "duplicate key" {
                let key = text::shown(source.text().get(range.clone()).unwrap_or_default());
                ("duplicate-key", format!("`{key}` is set twice"))
            } else {
                self.broken_lines.insert((index, source.line(range.start)));
                ("syntax", text::shown(error.message()))
            };
            self.push(Severity::Error, span, rule, message, None);
        }
        tree::from_table(index, table.get_ref())
    }

    /// Bidirectional formatting is refused anywhere, comments too: it shows another text than the
    /// one that is parsed.
    fn check_visible(&self, index: usize) {
        let source = &self.sources[index];
        if let Some((start, c)) = text::first_bidi(source.text()) {
            let span = Span { source: index, start, end: start + c.len_utf8() };
            self.report_invisible(span, c);
        }
    }

    fn check_values(&self, entries: &Entries) {
        for (key, entry) in entries {
            if let Some((_, c)) = text::first_invisible(key) {
                self.report_invisible(entry.key_at, c);
            }
            self.check_value(&entry.value);
        }
    }

    fn check_value(&self, node: &Node) {
        match &node.data {
            Data::Text(value) => {
                if let Some((_, c)) = text::first_invisible(value) {
                    self.report_invisible(node.at, c);
                }
            }
            Data::Array(items) => items.iter().for_each(|item| self.check_value(item)),
            Data::Table(entries) => self.check_values(entries),
            _ => {}
        }
    }

    fn report_invisible(&self, span: Span, c: char) {
        let message = format!(
            "the text holds U+{:04X}, which does not show or changes how the text around it shows",
            u32::from(c)
        );
        let help = Some("delete it: what a person reviews must be what is used".to_owned());
        self.report(Severity::Error, span, "invisible-character", message, help);
    }
}

/// Where key parts and brackets nest deeper than any manifest needs, found before the parse that
/// would build them.
fn too_deep(text: &str) -> Option<usize> {
    let (mut open, mut dots, mut deepest_open, mut deepest_dots) = (0_usize, 0_usize, 0, 0);
    for token in toml_parser::Source::new(text).lex() {
        match token.kind() {
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => {
                open += 1;
                dots = 0;
            }
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => {
                open = open.saturating_sub(1);
                dots = 0;
            }
            TokenKind::Dot => dots += 1,
            TokenKind::Whitespace
            | TokenKind::Atom
            | TokenKind::LiteralString
            | TokenKind::BasicString => {}
            _ => dots = 0,
        }
        deepest_open = deepest_open.max(open);
        deepest_dots = deepest_dots.max(dots);
        if (deepest_open + 1) * (deepest_dots + 1) > MAX_DEPTH {
            return Some(token.span().start());
        }
    }
    None
}
