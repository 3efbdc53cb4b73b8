//! `WWW-Authenticate` (RFC 9110, section 11.6.1; RFC 6750, section 3; RFC 9728, section 5.1).

/// Bytes of the header, at most: a longer one is not read.
const MAX_BYTES: usize = 8 * 1024;
/// Parameters in it, at most.
const MAX_PARAMETERS: usize = 32;

/// What a server says of the token that it wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where its metadata is.
    pub resource_metadata: Option<String>,
    /// What the token must be good for, as it was said.
    pub scope: Option<String>,
    /// `invalid_token`, `insufficient_scope`, ….
    pub error: Option<String>,
}

impl Challenge {
    /// The challenge of the scheme `Bearer`. What cannot be read, or is said twice, is not there.
    #[must_use]
    pub fn parse(header: &str) -> Self {
        let mut found = Self::default();
        if header.len() > MAX_BYTES {
            return found;
        }
        let mut rest = header;
        let mut bearer = false;
        let mut twice = Vec::new();
        for _ in 0..MAX_PARAMETERS {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let (word, after) = token(rest);
            if word.is_empty() {
                break;
            }
            let spaced = after.trim_start_matches([' ', '\t']);
            // A word with a space and no `=` behind it begins a challenge.
            let Some(value) = spaced.strip_prefix('=') else {
                if bearer && found != Self::default() {
                    break;
                }
                bearer = word.eq_ignore_ascii_case("bearer");
                rest = past_token68(spaced);
                continue;
            };
            let Some((value, next)) = value_of(value.trim_start_matches([' ', '\t'])) else {
                break;
            };
            rest = next;
            if !bearer {
                continue;
            }
            let slot = match word.to_ascii_lowercase().as_str() {
                "resource_metadata" => &mut found.resource_metadata,
                "scope" => &mut found.scope,
                "error" => &mut found.error,
                _ => continue,
            };
            match slot {
                Some(_) => twice.push(word.to_ascii_lowercase()),
                empty => *empty = Some(value),
            }
        }
        for name in twice {
            match name.as_str() {
                "resource_metadata" => found.resource_metadata = None,
                "scope" => found.scope = None,
                _ => found.error = None,
            }
        }
        found
    }

    /// Whether the token is good, and not for this.
    #[must_use]
    pub fn insufficient(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// What stands behind a token68, where one is all that follows a scheme (`Negotiate YII=`).
fn past_token68(text: &str) -> &str {
    let (word, rest) = text.split_at(text.find([',', ' ', '\t']).unwrap_or(text.len()));
    let bare = word.trim_end_matches('=');
    let part = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
    let alone = matches!(rest.trim_start_matches([' ', '\t']).chars().next(), None | Some(','));
    if alone && !bare.is_empty() && bare.chars().all(part) { rest } else { text }
}

fn token(text: &str) -> (&str, &str) {
    let part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !part(c)).unwrap_or(text.len()))
}

/// A token or a quoted string, and what stands behind it.
fn value_of(text: &str) -> Option<(String, &str)> {
    let Some(inner) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &inner[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}
