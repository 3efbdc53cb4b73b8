use std::collections::BTreeSet;
use std::path::Path;

use super::{Label, field, fields};
use crate::parse::{decode, tests::FULL};
use crate::{Capability, Document, parse_manifest};

#[test]
fn the_table_and_the_decoder_know_the_same_keys() {
    let document = Document::parse(Path::new("full.toml"), FULL);
    let _ = decode(&document);
    let decoded = document.asked();
    let table: BTreeSet<String> = fields().iter().map(|field| field.path.to_owned()).collect();
    assert_eq!(
        table.difference(&decoded).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "not decoded"
    );
    assert_eq!(
        decoded.difference(&table).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "not in the table"
    );
    assert_eq!(table.len(), fields().len(), "each path once");
}

#[test]
fn each_field_follows_the_one_that_holds_it_and_says_what_it_is() {
    let mut seen = BTreeSet::new();
    for field in fields() {
        if let Some((holder, _)) = field.path.rsplit_once('.') {
            let holder = holder.trim_end_matches("[]");
            assert!(seen.contains(holder), "{} before {holder}", field.path);
        }
        seen.insert(field.path);
        assert!(!field.doc.is_empty() && !field.doc.contains('\n'), "{}", field.path);
    }
}

#[test]
fn a_path_of_a_manifest_leads_to_its_field() {
    for (keys, path) in [
        ("version", "version"),
        ("servers.search.env.API_KEY", "servers.*.env.*"),
        ("servers.a.pricing.meters[2].usage_path", "servers.*.pricing.meters[].usage_path"),
        ("approvals.require[0].when.one_of[1]", "approvals.require[].when.one_of"),
        ("settings.claude-code.a.b.c", "settings.*.*"),
        ("policy.tools.*[0]", "policy.tools.*"),
    ] {
        assert_eq!(field(keys).map(|field| field.path), Some(path), "{keys}");
    }
    assert_eq!(field("nothing"), None);
}

#[test]
fn declared_fields_come_with_their_labels() {
    let text = "version = 1\n[sandbox]\npids = 5\nstate = \"x\"\n[settings.a]\n\"b.c\" = 1\n";
    let (manifest, _) = parse_manifest(Path::new("m"), text, None).expect("valid");
    let labels: Vec<(&str, String)> =
        manifest.declared().iter().map(|(keys, field)| (*keys, field.label.to_string())).collect();
    assert_eq!(
        labels,
        [
            ("sandbox.pids", "enforced (sandbox)".to_owned()),
            ("sandbox.state", "declared".to_owned()),
            ("version", "validated".to_owned()),
        ],
        "free-form keys with a dot of their own are left to their table"
    );
}

#[test]
fn words_of_the_table_are_those_of_the_decoder() {
    let super::FieldType::ManyOf(words) = field("capabilities").expect("known").kind else {
        panic!("a list of words")
    };
    assert_eq!(words, Capability::ALL.map(Capability::as_str));
}

/// Each range and word list of the table is the decoder's: the ends pass, what lies beyond does not.
#[test]
fn ranges_of_the_table_are_those_of_the_decoder() {
    let accepted = |path: &str, value: &str| {
        let (table, key) = path.rsplit_once('.').expect("a table and a key");
        let text = format!("version = 1\n[{table}]\n{key} = {value}\n");
        parse_manifest(Path::new("m"), &text, None).is_ok()
    };
    let mut checked = 0;
    for field in fields().iter().filter(|f| f.path.contains('.') && !f.path.contains(['*', '['])) {
        match field.kind {
            super::FieldType::Integer(from, to) => {
                assert!(accepted(field.path, &from.to_string()), "{}", field.path);
                assert!(accepted(field.path, &to.to_string()), "{}", field.path);
                assert!(!accepted(field.path, &(from - 1).to_string()), "{}", field.path);
                assert!(!accepted(field.path, &(to + 1).to_string()), "{}", field.path);
            }
            super::FieldType::Number(from, to) => {
                assert!(accepted(field.path, &format!("{from:?}")), "{}", field.path);
                assert!(!accepted(field.path, &format!("{:?}", from / 2.0)), "{}", field.path);
                assert!(!accepted(field.path, &format!("{:?}", to * 2.0)), "{}", field.path);
            }
            super::FieldType::OneOf(words) => {
                for word in words {
                    assert!(accepted(field.path, &format!("\"{word}\"")), "{} {word}", field.path);
                }
                assert!(!accepted(field.path, "\"nonsense\""), "{}", field.path);
            }
            _ => continue,
        }
        checked += 1;
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn labels_print_and_serialise() {
    let label = Label::Enforced("MCP gate");
    assert_eq!(label.to_string(), "enforced (MCP gate)");
    let json = serde_json::to_value(label).expect("plain");
    assert_eq!(json, serde_json::json!({ "label": "enforced", "by": "MCP gate" }));
    assert_eq!(
        serde_json::to_value(Label::Declared).expect("plain"),
        serde_json::json!({ "label": "declared" })
    );
}
