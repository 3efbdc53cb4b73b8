//! Text with `${NAME}` references, resolved only when it is used.

use crate::manifest::Template;
use crate::{SecretName, text};

#[cfg(test)]
mod tests;

enum Part<'a> {
    Text(&'a str),
    Reference(SecretName),
}

impl Template {
    /// Parses a template: `${NAME}` refers to a host variable, `$$` is a literal `$`.
    ///
    /// # Errors
    /// A sentence that says what is wrong: any other `$`, or a name that is not a variable name.
    pub fn parse(given: &str) -> Result<Self, String> {
        parts(given)?;
        Ok(Self(given.to_owned()))
    }

    /// The text as written, references unresolved.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names it refers to, each once, in the order of their first appearance.
    #[must_use]
    pub fn references(&self) -> Vec<SecretName> {
        let mut names = Vec::new();
        for part in parts(&self.0).unwrap_or_default() {
            if let Part::Reference(name) = part
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        names
    }

    /// The text with every reference replaced by what `lookup` gives for it. A value is put in as it
    /// is: a `$` in it means nothing.
    ///
    /// # Errors
    /// The first error of `lookup`.
    pub fn render<V: AsRef<str>, E>(
        &self,
        mut lookup: impl FnMut(&SecretName) -> Result<V, E>,
    ) -> Result<String, E> {
        let mut out = String::with_capacity(self.0.len());
        for part in parts(&self.0).unwrap_or_default() {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Reference(name) => out.push_str(lookup(&name)?.as_ref()),
            }
        }
        Ok(out)
    }
}

fn parts(given: &str) -> Result<Vec<Part<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = given;
    while let Some(at) = rest.find('$') {
        if at > 0 {
            found.push(Part::Text(&rest[..at]));
        }
        let after = &rest[at + 1..];
        if let Some(next) = after.strip_prefix('$') {
            found.push(Part::Text("$"));
            rest = next;
        } else if let Some(inner) = after.strip_prefix('{') {
            let (name, next) = inner.split_once('}').ok_or("`${` without a closing `}`")?;
            let name = SecretName::parse(name).map_err(|error| error.to_string())?;
            found.push(Part::Reference(name));
            rest = next;
        } else {
            let shown = text::shown(&after.chars().take(12).collect::<String>());
            return Err(format!(
                "`${shown}`: write `${{NAME}}` for a host variable, or `$$` for a dollar sign"
            ));
        }
    }
    if !rest.is_empty() {
        found.push(Part::Text(rest));
    }
    Ok(found)
}
