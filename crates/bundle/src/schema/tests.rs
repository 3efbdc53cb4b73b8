use serde_json::{Value, json};

use super::schema;
use crate::fields::fields;
use crate::parse::tests::FULL;

fn toml(text: &str) -> Value {
    let table: toml::Table = toml::from_str(text).expect("TOML");
    serde_json::to_value(table).expect("JSON")
}

fn validator() -> jsonschema::Validator {
    let schema = schema();
    assert!(jsonschema::meta::is_valid(&schema), "the schema is one");
    jsonschema::validator_for(&schema).expect("the schema compiles")
}

#[test]
fn valid_manifests_are_valid() {
    let validator = validator();
    for text in [FULL, "version = 1\n"] {
        let instance = toml(text);
        let errors: Vec<String> = validator
            .iter_errors(&instance)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert_eq!(errors, Vec::<String>::new());
    }
}

#[test]
fn what_the_parse_refuses_by_form_the_schema_refuses_too() {
    let validator = validator();
    let server = "[servers.s]\ntype = \"http\"\nurl = \"https://a.com\"\n";
    assert!(validator.is_valid(&toml(&format!("version = 1\n{server}"))), "control");
    for text in [
        "[meta]\n",
        "version = 2\n",
        "version = 1\nnothing = 1\n",
        "version = 1\n[sandbox]\npids = \"5\"\n",
        "version = 1\n[sandbox]\npids = 0\n",
        "version = 1\n[sandbox]\nisolation = \"strong\"\n",
        "version = 1\n[agent]\nversion = \"1\"\n",
        "version = 1\n[servers.s]\ntype = \"http\"\n",
        "version = 1\n[servers.s]\ntype = \"http\"\nurl = \"https://a.com\"\ncommand = \"x\"\n",
        "version = 1\n[servers.s]\ntype = \"stdio\"\ncommand = \"x\"\n[servers.s.pricing]\n",
        "version = 1\n[skills.s]\npath = \"./s\"\ngit = \"https://a.com\"\nrev = \"1\"\n",
        "version = 1\n[skills.s]\ngit = \"https://a.com\"\n",
        "version = 1\n[[approvals.require]]\nserver = \"*\"\ntool = \"t\"\nwhen = { pointer = \"\" }\n",
        "version = 1\n[spending]\nmax_per_run_usd = \"1e3\"\n",
        "version = 1\n[policy.network]\n",
    ] {
        assert!(!validator.is_valid(&toml(text)), "{text}");
        assert!(crate::parse_manifest("m".as_ref(), text, None).is_err(), "{text}");
    }
}

#[test]
fn every_field_is_described() {
    let schema = schema();
    for field in fields() {
        let mut at = &schema;
        for part in field.path.replace("[]", ".[]").split('.') {
            at = match part {
                "*" => &at["additionalProperties"],
                "[]" => &at["items"],
                name => &at["properties"][name],
            };
        }
        let text = at["description"].as_str().unwrap_or_default();
        assert!(text.starts_with(field.doc), "{}: {at}", field.path);
    }
    assert_eq!(schema["properties"]["version"]["maximum"], json!(1));
}
