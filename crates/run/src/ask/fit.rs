//! Which of a server's words a person can review: those that show. Pure.

use ringfence_bundle::{ServerId, ToolPin, ToolPins, first_invisible};
use ringfence_gateway::Offer;
use serde_json::Value;

use super::Unfit;
use super::moved::{child, item};

/// The row of a server, the tools that have none, and the tools that it should have and has not.
///
/// # Errors
/// In words, when its instructions hold what does not show: there is no row without them.
pub(super) fn fit(
    server: &ServerId,
    offer: Offer,
) -> Result<(ToolPins, Vec<Unfit>, Vec<String>), String> {
    let Offer { instructions, tools, unfit, missing } = offer;
    if let Some((at, hidden)) = instructions.as_deref().and_then(first_hidden) {
        return Err(format!("its instructions hold what does not show: {hidden} at byte {at}"));
    }
    let mut unfit: Vec<Unfit> = unfit
        .into_iter()
        .map(|unfit| Unfit { server: server.clone(), name: unfit.name, why: unfit.why })
        .collect();
    let mut pins = Vec::new();
    for definition in tools {
        let hidden = hidden(&definition, "");
        // The gateway has looked at its name.
        let Some(pin) = ToolPin::of(definition) else { continue };
        match hidden {
            None => pins.push(pin),
            Some((path, hidden)) => {
                let name = pin.name.to_string();
                let why = format!("{path} holds what does not show: {hidden}");
                unfit.push(Unfit { server: server.clone(), name, why });
            }
        }
    }
    let missing = missing.into_iter().map(|tool| format!("{server}/{tool}")).collect();
    Ok((ToolPins { server: server.clone(), instructions, tools: pins }, unfit, missing))
}

/// The first place within a value that holds what does not show, with the character.
fn hidden(value: &Value, path: &str) -> Option<(String, String)> {
    let of = |text: &str, path: &str| Some((path.to_owned(), first_hidden(text)?.1));
    match value {
        Value::String(text) => of(text, path),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(nth, it)| hidden(it, &item(path, nth)))
        }
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let path = child(path, key);
            of(key, &path).or_else(|| hidden(value, &path))
        }),
        _ => None,
    }
}

/// The first character that does not show, with its byte. What asks for the coloured form of the
/// symbol before it (U+FE0F, Unicode TR 51) is seen by that symbol, and can say nothing else.
fn first_hidden(text: &str) -> Option<(usize, String)> {
    let mut from = 0;
    while let Some((at, c)) = first_invisible(&text[from..]) {
        let (at, before) = (from + at, text[..from + at].chars().next_back());
        let symbol = |c: char| matches!(c, '\u{2010}'..='\u{32ff}' | '\u{1f000}'..='\u{1faff}');
        if c != '\u{fe0f}' || !before.is_some_and(symbol) {
            return Some((at, format!("U+{:04X}", u32::from(c))));
        }
        from = at + c.len_utf8();
    }
    None
}

#[cfg(test)]
mod tests {
    use ringfence_bundle::{Id, ToolName};
    use ringfence_gateway::Offer;
    use serde_json::{Value, json};

    use super::fit;

    fn offer(instructions: Option<&str>, tools: Vec<Value>) -> Offer {
        let missing = vec![ToolName::parse("gone").unwrap()];
        let unfit = Vec::new();
        Offer { instructions: instructions.map(str::to_owned), tools, unfit, missing }
    }

    #[test]
    fn a_tool_whose_words_hide_something_has_no_row_and_its_place_is_named() {
        let server = Id::parse("s").unwrap();
        let tools = vec![
            json!({"name": "fine", "description": "two\nlines\tand ✓ é 你好 ⚠️ 🗂️"}),
            json!({"name": "a", "description": "x\u{202e}y"}),
            json!({"name": "b", "inputSchema": {"properties": {"p": {"enum": ["x", "y\u{200b}"]}}}}),
            json!({"name": "c", "_meta": {"k\u{feff}": 1}}),
            json!({"name": "d", "title": "⚠️\u{fe0f}"}),
            json!({"name": "e", "title": "plain\u{fe0f}"}),
            json!({"name": "f", "title": "\u{e0041}"}),
            json!({"name": "g", "title": "\u{1b}[2K"}),
        ];
        let (pins, unfit, missing) = fit(&server, offer(Some("be ⚠️"), tools)).unwrap();
        assert_eq!(pins.tools.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["fine"]);
        assert_eq!(missing, ["s/gone"]);
        let why: Vec<_> = unfit.iter().map(|unfit| unfit.why.as_str()).collect();
        assert_eq!(why[0], "description holds what does not show: U+202E");
        assert_eq!(why[1], "inputSchema.properties.p.enum[1] holds what does not show: U+200B");
        assert!(why[2].contains("U+FEFF") && why[2].starts_with("_meta"), "{}", why[2]);
        assert_eq!(unfit.len(), 7);
        let error = fit(&server, offer(Some("be\u{200b}"), Vec::new())).unwrap_err();
        assert!(error.contains("U+200B at byte 2"), "{error}");
    }
}
