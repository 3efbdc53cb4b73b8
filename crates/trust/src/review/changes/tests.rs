use std::collections::BTreeMap;

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_assume, proptest};
use ringfence_bundle::{Blob, Content, Kind};

use super::{Change, Piece, Side, What, between};

fn blob(bytes: &[u8]) -> Blob {
    Blob { bytes: bytes.to_owned(), executable: false }
}

fn side(kind: Kind, content: Option<Content>) -> Side {
    let digest = content.as_ref().map(|content| content.digest(kind));
    let piece = Piece { file: ".ringfence/it".to_owned(), line: 7, digest, content };
    let pieces = BTreeMap::from([((kind, "it".to_owned()), piece)]);
    Side { pieces, ..Side::default() }
}

fn file(old: &[u8], new: &[u8]) -> Vec<Change> {
    let side = |bytes| side(Kind::Instruction, Some(Content::File(blob(bytes))));
    between(&side(old), &side(new))
}

fn text(changes: &[Change]) -> String {
    changes.iter().flat_map(Change::lines).map(|line| line + "\n").collect()
}

#[test]
fn a_line_that_moved_is_named_with_its_file() {
    let changes = file(b"a\nb\nc\nd\ne\nf\n", b"a\nb\nc\nd\nE\nf\n");
    assert_eq!(
        text(&changes),
        ".ringfence/it:5: changed (instruction it)\n    c\n    d\n  - e\n  + E\n    f\n"
    );
    let far: String = (1..=30).map(|n| format!("{n}\n")).collect();
    let both = far.replace("3\n4\n", "3\nfour\n").replace("\n28\n", "\n");
    let changes = file(far.as_bytes(), both.as_bytes());
    let shown = text(&changes);
    assert!(shown.contains(".ringfence/it:4: ") && shown.contains(".ringfence/it:28: "), "{shown}");
}

#[test]
fn what_does_not_show_is_shown() {
    for (old, new, sign) in [
        ("a\nb\n", "a\nb", "+ b (no line end)"),
        ("a\nb\n", "a\r\nb\n", "+ a\\r"),
        ("a\nb\n", "a \nb\n", "+ a\\u{20}"),
        ("a\nb\n", "a\u{200b}\nb\n", "+ a\\u{200b}"),
        ("a\nb\n", "a\u{1b}[2J\nb\n", "+ a\\u{1b}[2J"),
        ("a\nb\n", "a\u{202e}\nb\n", "+ a\\u{202e}"),
    ] {
        let shown = text(&file(old.as_bytes(), new.as_bytes()));
        assert!(shown.contains(sign), "{sign} is not in {shown}");
        assert!(shown.lines().all(|line| line.chars().all(|c| !c.is_control())), "{shown:?}");
    }
}

#[test]
fn a_long_line_is_cut_around_what_differs() {
    let old = format!("{}x{}\n", "a".repeat(5000), "b".repeat(5000));
    let new = old.replace('x', "y");
    let shown = text(&file(old.as_bytes(), new.as_bytes()));
    assert!(shown.contains("(4960 characters before) …") && shown.contains("ay"), "{shown}");
    assert!(shown.len() < 3000);
}

#[test]
fn what_is_no_text_has_a_line_sizes_and_digests() {
    let changes = file(b"a\n\0b\n", b"a\n\0c\n");
    assert_eq!((changes[0].line, changes[0].what), (2, What::Changed));
    assert!(text(&changes).contains("not text: was 5 bytes, sha256:"), "{}", text(&changes));
}

#[test]
fn a_mode_a_new_file_and_one_that_is_gone() {
    let tree = |files: &[(&str, &[u8], bool)]| {
        let files = files.iter().map(|(path, bytes, executable)| {
            ((*path).to_owned(), Blob { bytes: bytes.to_vec(), executable: *executable })
        });
        side(Kind::Skill, Some(Content::Tree(files.collect())))
    };
    let changes = between(
        &tree(&[("same", b"s", false), ("run", b"r", false), ("old", b"o\n", false)]),
        &tree(&[("same", b"s", false), ("run", b"r", true), ("new", b"n\n", false)]),
    );
    let found: Vec<_> = changes.iter().map(|it| (it.file.as_str(), it.what)).collect();
    let at = |name: &str| format!(".ringfence/it/{name}");
    let (new, old, run) = (at("new"), at("old"), at("run"));
    assert_eq!(found, [(new.as_str(), What::Added), (&old, What::Removed), (&run, What::Mode)]);
    let shown = text(&changes);
    assert!(shown.contains("+ n\n") && shown.contains("- o\n"), "{shown}");
    assert!(shown.contains(":1: mode changed (skill it): may be executed now"), "{shown}");
}

#[test]
fn bytes_that_were_not_recorded_are_said_to_be_so() {
    let old = side(Kind::Skill, None);
    let new = side(Kind::Skill, Some(Content::Tree(BTreeMap::new())));
    let changes = between(&old, &new);
    assert_eq!(changes[0].what, What::Unrecorded);
    let shown = text(&changes);
    assert!(
        shown.starts_with(".ringfence/it:7: changed (skill it): those before were not recorded")
    );
}

#[test]
fn a_definition_is_named_where_it_is_declared() {
    let json = |text: &str| side(Kind::Setting, Some(Content::File(blob(text.as_bytes()))));
    let changes = between(
        &json(r#"["claude-code","model","opus"]"#),
        &json(r#"["claude-code","model","haiku"]"#),
    );
    let shown = text(&changes);
    assert!(shown.starts_with(".ringfence/it:7: changed (setting it)\n"), "{shown}");
    assert!(shown.contains("- \u{20} \"opus\"") || shown.contains("-   \"opus\""), "{shown}");
}

#[test]
fn a_tool_is_named_at_its_row_in_the_lock() {
    let lock = |words: &str| {
        let definition = serde_json::json!({ "name": "find", "description": words });
        let digest = ringfence_bundle::tool_digest(&definition);
        format!(
            "version = 1\n\n[[tools]]\nserver = \"s\"\n\n[[tools.tool]]\nname = \"find\"\ndigest = \"{digest}\"\ndefinition = '''\n{definition:#}'''\n"
        )
    };
    let side =
        |text: String| Side { files: [None, None, Some(text.into_bytes())], ..Side::default() };
    let changes = between(&side(lock("Finds.")), &side(lock("Sends.")));
    let tool = changes.iter().find(|change| change.kind == "tool").expect("the tool");
    assert_eq!((tool.name.as_deref(), tool.line), (Some("s/find"), 7));
    assert!(text(&changes).contains("Sends."), "{}", text(&changes));
    assert!(changes.iter().any(|change| change.kind == "lock"));
}

#[test]
fn very_many_lines_are_cut_and_counted() {
    let lines = |word: &str| (0..20_000).map(|n| format!("{word} {n}\n")).collect::<String>();
    let shown = text(&file(lines("a").as_bytes(), lines("b").as_bytes()));
    assert!(shown.contains("… and 39940 more lines"), "{shown}");
    assert!(shown.len() < 10_000);
}

proptest! {
    #[test]
    fn a_changed_byte_always_comes_out_with_its_line(
        bytes in proptest::collection::vec(any::<u8>(), 1..200),
        lines in "[a-z\n]{1,200}",
        at in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
    ) {
        for old in [bytes, lines.into_bytes()] {
            let at = at.index(old.len());
            let mut new = old.clone();
            new[at] ^= flip;
            prop_assume!(new != old);
            let changes = file(&old, &new);
            prop_assert_eq!(changes.len(), 1);
            let line = old[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            let first = changes[0].line;
            // A line end that became a letter, or a letter that became one, moves two lines; equal
            // neighbours may stand for each other.
            let ends = old[at] == b'\n' || new[at] == b'\n';
            let twins = [&old, &new].into_iter().any(|text| {
                let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
                let beside = [lines.get(line.wrapping_sub(2)), lines.get(line)];
                beside.into_iter().flatten().any(|other| *other == lines[line - 1])
            });
            if !ends && !twins {
                prop_assert_eq!(first, line);
            }
            let shown = text(&changes);
            let head = format!(".ringfence/it:{first}: ");
            prop_assert!(shown.starts_with(&head), "{}", shown);
        }
    }
}
