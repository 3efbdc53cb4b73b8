use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};
use ringfence_bundle::SecretName;

use super::DotEnv;
use super::parse::entries;
use crate::source::Answer;
use crate::{Reached, Source};

fn value(text: &str, name: &str) -> Result<String, String> {
    let entries = entries(text)?;
    let entry = entries.iter().find(|entry| entry.name == name).ok_or("missing")?;
    entry.value.as_ref().map(|value| value.to_string()).map_err(|why| (*why).to_owned())
}

#[test]
fn the_part_on_which_readers_agree() {
    let text = "# a comment\n\nA=plain\nexport B = spaced # comment\nC='single $X `no` \\n'\n\
                D=\"a\\nb \\\"c\\\" \\$d\"\nE=\nF=with#hash\nG='two\nlines' # after\nH=last\r\n\
                I=\"-----BEGIN\nKEY\n-----END\"\nJ=a=b==";
    for (name, expected) in [
        ("A", "plain"),
        ("B", "spaced"),
        ("C", "single $X `no` \\n"),
        ("D", "a\nb \"c\" $d"),
        ("E", ""),
        ("F", "with#hash"),
        ("G", "two\nlines"),
        ("H", "last"),
        ("I", "-----BEGIN\nKEY\n-----END"),
        ("J", "a=b=="),
    ] {
        assert_eq!(value(text, name).as_deref(), Ok(expected), "{name}");
    }
    let lines: Vec<usize> = entries(text).unwrap().iter().map(|entry| entry.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7, 8, 9, 11, 12, 15]);
}

#[test]
fn what_others_expand_is_refused_when_it_is_asked_for() {
    for bad in ["$B", "${B}", "$(id)", "`id`", "a$1", "\"x$(id)\"", "\"${B}\"", "a\\b", "a\"b\""] {
        let text = format!("A={bad}\nB=fine\n");
        assert!(value(&text, "A").is_err(), "{bad}");
        assert_eq!(value(&text, "B").as_deref(), Ok("fine"), "control: {bad}");
    }
    // A dollar that nobody expands is one.
    assert_eq!(value("A=a$", "A").as_deref(), Ok("a$"));
    assert_eq!(value("A='$(id)'", "A").as_deref(), Ok("$(id)"));
}

#[test]
fn a_line_that_is_none_refuses_the_file_and_is_not_quoted() {
    for (text, line) in
        [("A=1\nhunter2\n", 2), ("A='open\n", 1), ("\n\n1A=hunter2", 3), ("A='x' hunter2", 1)]
    {
        let problem = entries(text).err().expect("refused");
        assert!(problem.starts_with(&format!("line {line}: ")), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}

async fn ask(source: &DotEnv) -> Result<String, String> {
    match source.find(&SecretName::parse("A").unwrap()).await {
        Answer::Found(secret) => Ok(secret.expose().to_owned()),
        Answer::Missing => Err("missing".into()),
        Answer::Failed(reason) => Err(reason),
    }
}

#[tokio::test]
async fn only_a_file_of_the_persons_own_and_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".env");
    let reach =
        |read, write| DotEnv::new(folder.path(), Arc::new(move |_| Reached { read, write }));
    let new = |write| reach(false, write);
    assert_eq!(ask(&new(false)).await.unwrap_err(), "missing", "no file");
    assert_eq!(ask(&new(true)).await.unwrap_err(), "missing", "no file, whoever may write it");

    fs::write(&path, "A=first\n").unwrap();
    let source = new(false);
    assert_eq!(ask(&source).await.unwrap(), "first", "control");
    fs::write(&path, "A=second\n").unwrap();
    assert_eq!(ask(&source).await.unwrap(), "first", "what is written later does not count");
    assert!(ask(&new(true)).await.unwrap_err().contains("the agent may write"));
    assert!(ask(&reach(true, false)).await.unwrap_err().contains("the agent may read"));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(ask(&new(false)).await.unwrap_err().contains("everybody"));
    fs::remove_file(&path).unwrap();
    fs::write(folder.path().join("real"), "A=linked\n").unwrap();
    std::os::unix::fs::symlink("real", &path).unwrap();
    assert!(ask(&new(false)).await.is_err(), "a link is not followed");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(ask(&new(false)).await.unwrap_err().contains("not a regular file"));
    fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(ask(&new(false)).await.unwrap_err().contains("not a regular file"), "and no waiting");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "A=x\nA=y\n").unwrap();
    assert!(ask(&new(false)).await.unwrap_err().contains("set twice"));
    fs::write(&path, format!("A={}\n", "x".repeat(1 << 20))).unwrap();
    assert!(ask(&new(false)).await.unwrap_err().contains("larger"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), lines in "[A-C]=[\"'$`\\\\ #\n=ax]{0,40}") {
        for text in [text, lines] {
            if let Ok(entries) = entries(&text) {
                let count = text.lines().count();
                prop_assert!(entries.iter().all(|entry| (1..=count).contains(&entry.line)));
            }
        }
    }

    #[test]
    fn what_stands_between_single_quotes_is_the_value(inner in "[^']{0,60}") {
        prop_assert_eq!(value(&format!("A='{inner}'\nB=x"), "A"), Ok(inner));
    }
}
