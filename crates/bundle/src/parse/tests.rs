use std::path::Path;

use proptest::prelude::{any, proptest};

use crate::manifest::{PredicateTest, Transport};
use crate::{Diagnostic, Manifest, Severity, parse_manifest};

mod hints;
mod rules;

pub(crate) const FULL: &str = include_str!("../../testdata/full.toml");

fn parse(text: &str) -> Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>> {
    parse_manifest(Path::new("ringfence.toml"), text, None)
}

fn findings(text: &str) -> Vec<Diagnostic> {
    match parse(text) {
        Ok((_, warnings)) => warnings,
        Err(findings) => findings,
    }
}

/// `line:rule` of each finding.
fn brief(text: &str) -> Vec<String> {
    findings(text)
        .iter()
        .map(|f| format!("{}:{}", f.at.as_ref().map_or(0, |at| at.line), f.rule))
        .collect()
}

#[test]
fn the_full_manifest_parses_without_a_finding() {
    let (manifest, warnings) = parse(FULL).unwrap_or_else(|found| panic!("{found:#?}"));
    assert_eq!(warnings, []);
    let agent = manifest.agent.as_ref().expect("an agent");
    assert_eq!(agent.name, "invoice-processor");
    assert_eq!(manifest.capabilities.len(), 3);
    assert_eq!(manifest.sandbox.memory_mb, Some(512));
    assert_eq!(manifest.sandbox.network.allowed_hosts.len(), 3);
    assert_eq!(manifest.servers.len(), 2);
    let (_, accounting) = manifest.servers.iter().next().expect("the first");
    assert_eq!(accounting.tools.as_ref().map(Vec::len), Some(2));
    assert_eq!(accounting.pricing.as_ref().map(|p| p.meters.len()), Some(1));
    let Transport::Http { headers, .. } = &accounting.transport else { panic!("http") };
    assert_eq!(headers["Authorization"].references()[0].as_str(), "ACCOUNTING_TOKEN");
    let when = manifest.approvals.require[0].when.as_ref().expect("a predicate");
    assert_eq!(when.test, PredicateTest::GreaterThan("100.00".to_owned()));
    assert_eq!(manifest.policy.filesystem.deny[1].text, ".git/hooks/**");
    let line = manifest.policy.filesystem.deny[1].line;
    assert!(FULL.lines().nth(line - 1).expect("a line").starts_with("deny"));
}

#[test]
fn the_least_manifest_is_a_version() {
    let (manifest, warnings) = parse("version = 1\n").expect("valid");
    assert_eq!(manifest, Manifest { places: manifest.places.clone(), ..Manifest::default() });
    assert_eq!(warnings, []);
}

#[test]
fn everything_is_found_in_one_go_and_placed() {
    let text = "version = 1\n\
                [sandbx]\n\
                [sandbox]\n\
                memory_mb = \"lots\"\n\
                pids = 0\n\
                isolation = \"kernl\"\n\
                disk_mb = 5\n\
                disk_mb = 6\n\
                [servers.a]\n\
                type = \"http\"\n\
                [servers.b]\n\
                type = \"stdio\"\n\
                command = \"x\"\n\
                env = { PATH = \"y\" }\n";
    assert_eq!(
        brief(text),
        [
            "2:unknown-key",
            "4:wrong-type",
            "5:out-of-range",
            "6:bad-value",
            "8:duplicate-key",
            "9:missing-key",
            "14:reserved-variable"
        ]
    );
    let found = findings(text);
    assert_eq!(found[0].help.as_deref(), Some("did you mean `sandbox`?"));
    assert_eq!(found[3].help.as_deref(), Some("did you mean `kernel`?"));
    let at = found[1].at.as_ref().expect("placed");
    assert_eq!((at.column, at.width, at.text.as_str()), (13, 6, "memory_mb = \"lots\""));
    assert!(found.iter().all(|f| f.next.is_some() && f.severity == Severity::Error));
}

#[test]
fn syntax_errors_are_found_together_with_the_rest() {
    let found =
        brief("version = 1\n[limits]\nmax_duration_seconds = = 3\n[meta]\ngitignroe = true\n");
    assert!(found.contains(&"3:syntax".to_owned()), "{found:?}");
    assert!(found.contains(&"5:unknown-key".to_owned()), "{found:?}");
    assert!(!found.iter().any(|f| f.starts_with("3:wrong") || f.contains("missing")), "{found:?}");
}

#[test]
fn columns_count_characters() {
    let found = findings("version = 1\n[settings.pi]\n\"ü\" = { \"ä\" = 1979-05-27 }\n");
    let at = found[0].at.as_ref().expect("placed");
    assert_eq!((at.line, at.column, at.width), (3, 15, 10));
}

#[test]
fn an_overlay_merges_tables_and_replaces_the_rest() {
    let base = "version = 1\n[sandbox]\npids = 5\ncredentials = [\"A\", \"B\"]\n[limits]\nmax_duration_seconds = 3\n";
    let over = "[sandbox]\ncredentials = [\"C\"]\nmemory_mb = 64\n";
    let (manifest, _) =
        parse_manifest("a.toml".as_ref(), base, Some(("b.toml".as_ref(), over))).expect("valid");
    assert_eq!(manifest.sandbox.pids, Some(5));
    assert_eq!(manifest.sandbox.memory_mb, Some(64));
    assert_eq!(manifest.sandbox.credentials.len(), 1);
    assert_eq!(manifest.limits.max_duration_seconds, Some(3));
    assert_eq!(manifest.places.find("sandbox.memory_mb").expect("known").file, Path::new("b.toml"));
    assert_eq!(manifest.places.find("sandbox.pids").expect("known").file, Path::new("a.toml"));
}

#[test]
fn findings_point_into_the_file_they_are_in() {
    let base = "version = 1\n[sandbox]\npids = \"hidden by the overlay, wrong all the same\"\n";
    let over = "[sandbox]\npids = 5\n\n[sandbox.network]\nallowed_hosts = [\"localhost\"]\n";
    let found = parse_manifest("a.toml".as_ref(), base, Some(("b.toml".as_ref(), over)))
        .expect_err("two errors");
    let places: Vec<(String, usize, &str)> = found
        .iter()
        .map(|f| {
            f.at.as_ref()
                .map(|at| (at.file.display().to_string(), at.line, f.rule))
                .expect("placed")
        })
        .collect();
    assert_eq!(
        places,
        [("a.toml".to_owned(), 3, "wrong-type"), ("b.toml".to_owned(), 5, "local-host")]
    );
}

#[test]
fn invisible_text_is_refused_in_values_keys_and_comments() {
    for text in [
        "version = 1\n[agent]\nname = \"a\"\nowner = \"x\u{202e}y\"\n",
        "version = 1\n[agent]\nname = \"a\"\nowner = \"x\\u202Ey\"\n",
        "version = 1\n[settings.pi]\n\"a\u{200b}b\" = 1\n",
        "version = 1\n[hooks.x]\nevent = \"e\"\ncommand = \"ls\\u001b[2J\"\n",
        "version = 1 # \u{202e}\n",
    ] {
        assert!(brief(text).iter().any(|f| f.ends_with(":invisible-character")), "{text:?}");
    }
    let found = findings("version = 1\n[settings.pi]\na = \"\u{200b}\"\n");
    assert!(found[0].message.contains("U+200B"), "{}", found[0].message);
    assert!(brief("version = 1 # 👩\u{200d}🚀 is a joined character\n").is_empty());
}

#[test]
fn an_empty_manifest_is_said_to_be_empty() {
    for text in ["", " \n\n"] {
        assert_eq!(brief(text), ["1:empty-file"]);
    }
}

#[test]
fn deep_nesting_is_refused_before_it_costs_anything() {
    let dotted = format!("version = 1\n{}x = 1\n", "a.".repeat(1_000_000));
    let arrays = format!("version = 1\nx = {}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
    let tables = format!("x = {}1{}\n", "{a=".repeat(100_000), "}".repeat(100_000));
    let header = format!("[{}b]\n", "a . ".repeat(100_000));
    let quoted = format!("{}x = 1\n", "\"a\".".repeat(100_000));
    for text in [dotted, arrays, tables, header, quoted] {
        assert!(brief(&text).iter().any(|f| f.ends_with("too-deep")), "{:?}", brief(&text));
    }
}

#[test]
fn findings_are_bounded() {
    let text = (0..1000).map(|n| format!("k{n} = 1\n")).collect::<String>();
    assert_eq!(findings(&text).len(), 100);
}

#[test]
fn lists_are_bounded() {
    let list = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("\"A{n}\"")).collect();
        format!("version = 1\n[sandbox]\ncredentials = [{}]\n", names.join(","))
    };
    assert!(brief(&list(1024)).is_empty());
    assert_eq!(brief(&list(1025)), ["3:too-many"]);
    let hooks = |count: usize| {
        (0..count)
            .map(|n| format!("[hooks.h{n}]\nevent = \"e\"\ncommand = \"c\"\n"))
            .collect::<String>()
    };
    assert!(brief(&format!("version = 1\n{}", hooks(1024))).is_empty());
    assert_eq!(brief(&format!("version = 1\n[hooks]\n{}", hooks(1025))), ["2:too-many"]);
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_mutation_of_a_manifest_panics(at in 0..FULL.len(), with in "[\\x00-\\x7f\u{202e}é]{0,6}", cut in 0..20_usize) {
        let mut text = FULL.to_owned();
        if text.is_char_boundary(at) {
            let end = (at + cut).min(text.len());
            text.replace_range(at..end, &with);
            let _ = parse(&text);
            let _ = parse_manifest("a".as_ref(), FULL, Some(("b".as_ref(), &text)));
        }
    }

    #[test]
    fn no_toml_soup_panics(words in proptest::collection::vec("(\\[|\\]|\\[\\[|\\]\\]|\\{|\\}|=|\\.|,|\n|\"|'|\"\"\"|#|version|servers|a2a|peers|policy|tools|approvals|require|when|1|-1|1e9|true|inf|1979-05-27| )", 0..60)) {
        let _ = parse(&words.concat());
    }
}
