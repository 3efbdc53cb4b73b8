use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::{Blob, Content, Objects};
use crate::{Digest, Error, Kind};

/// Lays a copy at its address, as the store's writer does.
fn lay(home: &Path, kind: Kind, content: &Content) -> Digest {
    let digest = content.digest(kind);
    let place = Objects::of(home).place(kind, &digest);
    fs::create_dir_all(&place).expect("made");
    match content {
        Content::File(blob) => put(&place.join("content"), blob),
        Content::Tree(blobs) => {
            for (path, blob) in blobs {
                let file = place.join("content").join(path);
                fs::create_dir_all(file.parent().expect("a parent")).expect("made");
                put(&file, blob);
            }
        }
    }
    digest
}

fn put(path: &Path, blob: &Blob) {
    fs::write(path, &blob.bytes).expect("written");
    let mode = if blob.executable { 0o700 } else { 0o600 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

fn file(text: &str, executable: bool) -> Content {
    Content::File(Blob { bytes: text.as_bytes().to_vec(), executable })
}

fn tree(files: &[(&str, &str)]) -> Content {
    let blob = |text: &str| Blob { bytes: text.as_bytes().to_vec(), executable: false };
    Content::Tree(files.iter().map(|(path, text)| ((*path).to_owned(), blob(text))).collect())
}

fn every_kind() -> Vec<(Kind, Content)> {
    vec![
        (Kind::Server, file("{}", false)),
        (Kind::Instruction, file("be kind", false)),
        (Kind::Program, file("#!/bin/sh", true)),
        (Kind::Skill, tree(&[("SKILL.md", "a"), ("sub/b", "b")])),
        (Kind::Workflow, file("flow", false)),
        (Kind::Extension, tree(&[("index.js", "x")])),
    ]
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn what_lies_at_its_address_is_proved_and_read() {
    let home = home();
    let objects = Objects::of(home.path());
    let all = every_kind();
    let asks: Vec<_> =
        all.iter().map(|(kind, content)| (*kind, lay(home.path(), *kind, content))).collect();
    for ((kind, digest), (_, content)) in asks.iter().zip(&all) {
        assert_eq!(objects.proved(*kind, digest).expect("read"), Some(*digest));
        assert_eq!(objects.read(*kind, digest).expect("read").as_ref(), Some(content));
    }
    let together = objects.all_proved(&asks);
    for (found, (_, digest)) in together.into_iter().zip(&asks) {
        assert_eq!(found.expect("read"), Some(*digest));
    }
}

#[test]
fn what_is_not_there_is_none() {
    let home = home();
    let objects = Objects::of(home.path());
    let digest = file("x", false).digest(Kind::Instruction);
    assert_eq!(objects.proved(Kind::Instruction, &digest).expect("read"), None);
    assert_eq!(objects.read(Kind::Instruction, &digest).expect("read"), None);
    fs::create_dir_all(objects.place(Kind::Instruction, &digest)).expect("made");
    assert_eq!(objects.proved(Kind::Instruction, &digest).expect("read"), None, "half made");
    assert_eq!(objects.read(Kind::Instruction, &digest).expect("read"), None);
}

#[test]
fn other_bytes_at_an_address_are_never_given_back() {
    let home = home();
    let objects = Objects::of(home.path());
    for (kind, content) in every_kind() {
        let digest = lay(home.path(), kind, &content);
        let place = objects.place(kind, &digest);
        let changed = match &content {
            Content::File(_) => place.join("content"),
            Content::Tree(files) => {
                place.join("content").join(files.keys().next().expect("a file"))
            }
        };
        fs::write(&changed, "other").expect("written");
        assert_ne!(objects.proved(kind, &digest).expect("read"), Some(digest), "{kind}");
        let error = objects.read(kind, &digest).expect_err("damaged");
        let Error::Object { path, reason } = &error else { panic!("{error:?}") };
        assert_eq!(path, &place);
        assert!(reason.contains("remove it and get it again"), "{reason}");
        // A link is not followed, even to the right bytes.
        let right = home.path().join("right");
        fs::remove_file(&changed).expect("removed");
        fs::write(&right, "other").expect("written");
        symlink(&right, &changed).expect("linked");
        assert!(matches!(objects.read(kind, &digest), Err(Error::Object { .. })), "{kind}");
        assert!(matches!(objects.proved(kind, &digest), Err(Error::Object { .. })), "{kind}");
    }
}

#[test]
fn an_object_taken_away_while_it_is_read_is_not_there() {
    let home = home();
    let objects = Objects::of(home.path());
    let (kind, content) = every_kind().pop().expect("a kind");
    let place = objects.place(kind, &lay(home.path(), kind, &content));
    let opened = crate::files::open_root(&place).expect("it is there");
    assert!(!super::taken_away(&place, &opened), "control: it is where it was");
    fs::rename(&place, home.path().join("aside")).expect("moved");
    assert!(super::taken_away(&place, &opened));
    lay(home.path(), kind, &content);
    assert!(super::taken_away(&place, &opened), "another one is there now");
}

#[test]
fn the_same_bytes_are_another_object_for_each_kind_and_mode() {
    let mut seen = BTreeMap::new();
    for kind in Kind::ALL {
        for content in [file("x", false), file("x", true), tree(&[("x", "x")])] {
            let form = kind.form();
            if form == crate::Form::Definition && content != file("x", false) {
                continue;
            }
            let other = seen.insert(content.digest(kind), (kind, content.clone()));
            assert_eq!(other, None, "{kind} {content:?}");
        }
    }
    let moved = [tree(&[("a", "bc")]), tree(&[("ab", "c")]), tree(&[("a", "b"), ("c", "")])];
    for content in moved {
        assert_eq!(seen.insert(content.digest(Kind::Skill), (Kind::Skill, content)), None);
    }
}

#[test]
fn hidden_text_in_the_store_is_refused_with_its_place() {
    let home = home();
    let digest = lay(home.path(), Kind::Skill, &tree(&[("SKILL.md", "a\nb\u{e0041}")]));
    let objects = Objects::of(home.path());
    let Err(Error::Invalid(findings)) = objects.proved(Kind::Skill, &digest) else {
        panic!("refused")
    };
    let at = findings[0].at.as_ref().expect("a place");
    assert_eq!((findings[0].rule, at.line, at.column), ("hidden-text", 2, 2));
    assert!(at.file.ends_with("content/SKILL.md"), "{}", at.file.display());
}
