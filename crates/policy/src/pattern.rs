//! One pattern as it is written, checked and brought into the form it is matched in.

use ringfence_bundle::Host;

use crate::glob::{MAX_PATTERN, is_literal};

/// What a pattern is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tool names.
    Tool,
    /// Variable names.
    Secret,
    /// Hosts, optionally with a port.
    Egress,
}

/// The ports that a pattern covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Any; also what names without ports have.
    Any,
    /// This one.
    One(u16),
    /// 443 and 80: an `allowed_hosts` entry without a port.
    Web,
}

impl Ports {
    pub(crate) fn cover(self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => one == port,
            Self::Web => matches!(port, 443 | 80),
        }
    }
}

/// A checked pattern over names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamePattern {
    /// It began with `!`.
    pub(crate) negative: bool,
    /// Without the `!` and the port; a host in canonical form.
    pub(crate) glob: Box<str>,
    /// For hosts.
    pub(crate) ports: Ports,
}

/// What is wrong with a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: String,
    pub(crate) help: Option<String>,
}

impl Problem {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), help: None }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Splits off `!` and refuses what no pattern may be.
fn split(text: &str) -> Result<(bool, &str), Problem> {
    if text.is_empty() {
        return Err(Problem::new("the pattern is empty")
            .help("`[]` allows nothing; leave the key out to add no rule"));
    }
    if text.len() > MAX_PATTERN {
        return Err(Problem::new(format!("the pattern is longer than {MAX_PATTERN} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(Problem::new("the pattern holds a control character"));
    }
    let (negative, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    if rest.is_empty() {
        return Err(Problem::new("`!` denies nothing by itself").help("`!*` denies everything"));
    }
    Ok((negative, rest))
}

impl NamePattern {
    /// Checks one pattern of a table.
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Self, Problem> {
        let (negative, rest) = split(text)?;
        match kind {
            Kind::Tool | Kind::Secret => {
                Ok(Self { negative, glob: rest.into(), ports: Ports::Any })
            }
            Kind::Egress => {
                let (host, ports) = split_port(rest)?;
                Ok(Self { negative, glob: canonical_host(host)?.into(), ports })
            }
        }
    }
}

/// Splits `host:port`; an IPv6 literal stands in brackets.
fn split_port(text: &str) -> Result<(&str, Ports), Problem> {
    let (host, port) = if text.starts_with('[') {
        let end = text.find(']').ok_or_else(|| Problem::new("`[` without `]`"))?;
        let (host, rest) = text.split_at(end + 1);
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(Problem::new("expected `:port` or nothing after `]`")),
        }
    } else {
        match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err(Problem::new("more than one `:`")
                    .help("an IPv6 address stands in brackets: `[2001:db8::1]:443`"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let Some(port) = port else { return Ok((host, Ports::Any)) };
    let plain = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if plain && number != 0 && !port.starts_with('0') => {
            Ok((host, Ports::One(number)))
        }
        _ => Err(Problem::new("the port is not a number from 1 to 65535")
            .help("leave `:port` out for any port")),
    }
}

/// A host glob in the form in which hosts are matched: lower case, A-labels, no trailing dot.
fn canonical_host(text: &str) -> Result<String, Problem> {
    if text.contains('/') || text.contains('@') {
        return Err(Problem::new("a host is expected, without scheme, user or path"));
    }
    if let Some(suffix) = text.strip_prefix('.') {
        return Err(Problem::new("a pattern that begins with `.` matches no host")
            .help(format!("write `*.{suffix}`: `*` is any run of characters")));
    }
    if text == "[*]" {
        return Ok(text.to_owned());
    }
    if is_literal(text) {
        return Host::parse(text).map(|host| host.to_string()).map_err(|e| Problem::new(e.reason));
    }
    if text.starts_with('[') {
        return Err(
            Problem::new("an IPv6 address is matched whole").help("`[*]` is any IPv6 address")
        );
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut labels = Vec::new();
    for label in text.split('.') {
        labels.push(canonical_label(label)?);
    }
    Ok(labels.join("."))
}

fn canonical_label(label: &str) -> Result<String, Problem> {
    if label.is_empty() {
        return Err(Problem::new("a host has no empty label"));
    }
    if label.is_ascii() {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'*' | b'?');
        if !label.bytes().all(known) {
            return Err(Problem::new("the pattern holds a character that no host has"));
        }
        return Ok(label.to_ascii_lowercase());
    }
    if !is_literal(label) {
        return Err(Problem::new("a wildcard in a label that is not ASCII matches no host")
            .help("hosts are matched as A-labels (`xn--…`)"));
    }
    match Host::parse(label) {
        Ok(Host::Name(name)) => Ok(name),
        Ok(_) => Err(Problem::new("an address where a label is expected")),
        Err(error) => Err(Problem::new(error.reason)),
    }
}

/// Where a path pattern begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// In the project.
    Project,
    /// At `/`.
    Absolute,
    /// In the person's home, written `~/`.
    Home,
}

/// A checked pattern over paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathPattern {
    pub(crate) negative: bool,
    pub(crate) root: Root,
    /// Relative to its root, without `./`, `/` or `~/` in front and without `/` behind. Empty is
    /// the root itself.
    pub(crate) glob: String,
}

impl PathPattern {
    /// Checks one pattern of `[policy.filesystem]`.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let (negative, rest) = split(text)?;
        let (root, rest) = if let Some(rest) = rest.strip_prefix('/') {
            (Root::Absolute, rest)
        } else if rest == "~" {
            (Root::Home, "")
        } else if let Some(rest) = rest.strip_prefix("~/") {
            (Root::Home, rest)
        } else if rest.starts_with('~') {
            return Err(Problem::new("only `~/` stands for a home"));
        } else if rest == "." || rest == "./" {
            (Root::Project, "")
        } else {
            (Root::Project, rest.strip_prefix("./").unwrap_or(rest))
        };
        let glob = rest.strip_suffix('/').unwrap_or(rest);
        if !glob.is_empty() && glob.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Problem::new("the path holds an empty, `.` or `..` component"));
        }
        Ok(Self { negative, root, glob: glob.to_owned() })
    }
}

/// Checks a pattern of a `deny` list, which no `!` can soften.
pub(crate) fn parse_deny(text: &str) -> Result<PathPattern, Problem> {
    let pattern = PathPattern::parse(text)?;
    if pattern.negative {
        return Err(Problem::new("a denial is not lifted by `!`").help(format!(
            "write `{}` to deny it, or take the broader pattern out",
            text.trim_start_matches('!')
        )));
    }
    Ok(pattern)
}

#[cfg(test)]
mod tests;
