use std::path::Path;

use super::Effective;
use crate::parse::tests::FULL;
use crate::parse_manifest;
use crate::source::Source;

fn laid(base: &str, over: &str) -> Effective {
    let source = |name: &str, text: &str| Source::new(&Path::new(".ringfence").join(name), text);
    Effective::of(vec![source("ringfence.toml", base), source("ringfence.local.toml", over)])
}

/// `key=value@file:line` of every value.
fn rows(base: &str, over: &str) -> Vec<String> {
    let brief = |row: super::Row| {
        let file = row.file.file_name().expect("a name").to_string_lossy().into_owned();
        format!("{}={}@{}:{}", row.key, row.value, file.replace("ringfence.", ""), row.line)
    };
    laid(base, over).rows().into_iter().map(brief).collect()
}

#[test]
fn tables_merge_and_all_else_is_replaced() {
    let base = "version = 1\n\
                [a]\nkeep = 1\nlist = [1, 2]\ninline = { x = 1, y = 2 }\n\
                [a.deep]\nx = 1\n\
                [[a.rows]]\nn = 1\n[[a.rows]]\nn = 2\n";
    let over = "a.list = [3]\na.inline.y = 9\na.deep = { y = 2 }\na.rows = [{ n = 7 }]\nb = true\n";
    assert_eq!(
        rows(base, over),
        [
            "a.deep.x=1@toml:7",
            "a.deep.y=2@local.toml:3",
            "a.inline.x=1@toml:5",
            "a.inline.y=9@local.toml:2",
            "a.keep=1@toml:3",
            "a.list=[3]@local.toml:1",
            "a.rows[0].n=7@local.toml:4",
            "b=true@local.toml:5",
            "version=1@toml:1",
        ]
    );
}

#[test]
fn the_text_parses_to_the_same_manifest() {
    for over in ["", "[limits]\nmax_duration_seconds = 7\n"] {
        let effective = laid(FULL, over);
        for origin in [false, true] {
            let text = effective.toml(origin);
            let again = laid(&text, "");
            let values = |effective: &Effective| -> Vec<_> {
                effective.rows().into_iter().map(|row| (row.key, row.value)).collect()
            };
            assert_eq!(values(&again), values(&effective), "{text}");
            let overlay = (!over.is_empty()).then_some((Path::new("l"), over));
            let (mut one, _) = parse_manifest(Path::new("m"), FULL, overlay).expect("valid");
            let (mut other, _) = parse_manifest(Path::new("m"), &text, None)
                .unwrap_or_else(|found| panic!("{found:?}\n{text}"));
            (one.places, other.places) = Default::default();
            // Lines differ; what is declared does not.
            let json = |it: &crate::Manifest| serde_json::to_string(&it.servers).expect("JSON");
            assert_eq!(json(&one), json(&other));
            assert_eq!(one.limits, other.limits);
        }
    }
}

#[test]
fn odd_values_are_spelt_so_that_they_parse() {
    let base = "[s]\n\"odd key.\" = 1\n\"\" = 2\nf = 1e300\ng = 1.0\nh = -inf\n\
                t = \"a\\n\\\"b\\\\\"\nm = [[1], [{ a = {} }], []]\ne = {}\n";
    let text = laid(base, "").toml(false);
    let table = |text: &str| text.parse::<toml::Table>().unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(table(&text), table(base), "{text}");
}

#[test]
fn each_line_names_its_file() {
    let text = laid(
        "version = 1\n[limits]\nmax_duration_seconds = 5\n",
        "limits.max_duration_seconds = 6",
    )
    .toml(true);
    assert!(text.starts_with("version = 1  # ringfence.toml:1\n\n[limits]\n"), "{text}");
    assert!(text.contains("max_duration_seconds = 6  # ringfence.local.toml:1\n"), "{text}");
    assert!(text.contains("\n# sandbox.network.egress: restricted  # default\n"), "{text}");
}

#[test]
fn defaults_are_of_what_is_not_declared() {
    let base = "[servers.a]\ntype = \"stdio\"\ncommand = \"x\"\n\
                [servers.b]\ntype = \"http\"\nurl = \"x\"\ntools = []\n\
                [sandbox.network]\negress = \"none\"\n";
    let keys: Vec<String> = laid(base, "").defaults().into_iter().map(|(key, _)| key).collect();
    let has = |key: &str| keys.iter().any(|it| it == key);
    for key in ["servers.a.tools", "servers.a.allowed_hosts", "capabilities", "sandbox.credentials"]
    {
        assert!(has(key), "{key}: {keys:?}");
    }
    for key in ["servers.b.tools", "servers.b.args", "sandbox.network.egress", "agent.capabilities"]
    {
        assert!(!has(key), "{key}: {keys:?}");
    }
}

#[test]
fn a_table_over_no_table_is_a_conflict_with_both_places() {
    let found = |base: &str, over: &str| -> Vec<String> {
        let overlay = Some((Path::new("over.toml"), over));
        let findings =
            parse_manifest(Path::new("base.toml"), base, overlay).err().unwrap_or_default();
        let brief = |f: &crate::Diagnostic| {
            let at = f.at.as_ref().expect("a place");
            format!("{}:{}:{} {}", at.file.display(), at.line, f.rule, f.message)
        };
        findings.iter().map(brief).collect()
    };
    let base = "version = 1\n[limits]\nmax_duration_seconds = 5\n[settings.pi]\nmodel = \"x\"\n";
    assert_eq!(found(base, "[limits]\nmax_duration_seconds = 6\n"), [] as [&str; 0], "control");
    assert_eq!(found(base, "[settings.pi]\nmodel = 3\n"), [] as [&str; 0], "control");
    let conflict = |place: &str, what: &str| {
        format!("{place}:overlay-conflict {what}: neither can be laid over the other")
    };
    assert_eq!(
        found(base, "limits = 3\n"),
        [conflict("over.toml:1", "`limits` is no table here and a table at base.toml:2")]
    );
    assert_eq!(
        found(base, "\n[settings.pi.model]\nname = \"x\"\n"),
        [conflict(
            "over.toml:2",
            "`settings.pi.model` is a table here and no table at base.toml:5"
        )]
    );
}
