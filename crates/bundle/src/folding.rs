//! Names that another file system takes for one.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

#[cfg(test)]
mod tests;

/// Two of these names that would be one file on a file system that does not tell case apart, nor
/// composed from decomposed letters, or that drops dots and spaces at the end of a name.
pub(crate) fn collision<'n>(names: &[&'n str]) -> Option<(&'n str, &'n str)> {
    let mut folded: Vec<(Cow<'n, str>, &'n str)> =
        names.iter().map(|name| (fold(name), *name)).collect();
    folded.sort_unstable();
    let pairs = folded.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
    Some((pairs[0].1, pairs[1].1))
}

/// What a name is compared by: upper and lower case as one (`ß` as `ss`), canonical composition.
pub(crate) fn fold(name: &str) -> Cow<'_, str> {
    let name = name.trim_end_matches(['.', ' ']);
    if name.is_ascii() {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Cow::Owned(name.to_ascii_lowercase());
        }
        return Cow::Borrowed(name);
    }
    // By way of upper case, so that letters with several small forms become one.
    let folded: String =
        name.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    Cow::Owned(folded.nfc().collect())
}
