//! Commands in exec form: what a shell would have done to them.

use crate::decode::Value;
use crate::text;

/// Warns of a command that is more than one word, and of words that only a shell would expand. What
/// is no text has its finding elsewhere.
pub(super) fn check(command: Option<&Value<'_>>, args: &[Value<'_>]) {
    if let Some(command) = command
        && let Some(given) = command.peek()
        && given.trim().contains(char::is_whitespace)
    {
        let first = text::shown(given.split_whitespace().next().unwrap_or_default());
        command.warn(
            "command-with-spaces",
            "it has spaces and is taken as the name of one program".to_owned(),
            Some(format!(
                "`{first}` alone is the program: the other words are arguments, one by one"
            )),
        );
    }
    for value in command.into_iter().chain(args) {
        if value.peek().is_some_and(|word| word == "~" || word.starts_with("~/")) {
            value.warn(
                "tilde",
                "`~` stays as it is: no shell expands it".to_owned(),
                Some("write the whole path, or one in the project".to_owned()),
            );
        }
    }
}
