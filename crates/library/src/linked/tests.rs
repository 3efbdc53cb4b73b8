use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use ringfence_bundle::{Content, Id, Kind};
use tempfile::TempDir;

use super::{Library, Piece};
use crate::Error;

fn id(name: &str) -> Id {
    Id::parse(name).unwrap()
}

fn write(folder: &Path, path: &str, text: &str) {
    let file = folder.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// A home with two linked folders, `one` before `two`.
fn two() -> (TempDir, Library) {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let mut library = Library::open(&state).unwrap();
    for name in ["one", "two"] {
        let folder = home.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        library.link(id(name), &folder).unwrap();
    }
    (home, library)
}

fn text(library: &Library, kind: Kind, given: &str) -> Option<String> {
    library.find(kind, given).unwrap().map(|found| match found.content {
        Content::File(blob) => String::from_utf8(blob.bytes).unwrap(),
        Content::Tree(blobs) => blobs.keys().cloned().collect::<Vec<_>>().join(","),
    })
}

#[test]
fn the_first_folder_wins_and_a_source_says_which() {
    let (home, library) = two();
    write(home.path(), "one/instructions/team.md", "one");
    write(home.path(), "two/instructions/team.md", "two");
    write(home.path(), "two/skills/sum/SKILL.md", "s");
    write(home.path(), "two/workflows/w.js", "w");
    write(home.path(), "two/extensions/e/index.ts", "e");
    write(home.path(), "two/README.md", "no entry");
    let find = |kind, given| text(&library, kind, given);
    assert_eq!(find(Kind::Instruction, "team").as_deref(), Some("one"));
    assert_eq!(find(Kind::Instruction, "two:team").as_deref(), Some("two"));
    assert_eq!(find(Kind::Skill, "sum").as_deref(), Some("SKILL.md"));
    assert_eq!(find(Kind::Skill, "one:sum"), None);
    assert_eq!(find(Kind::Workflow, "w").as_deref(), Some("w"));
    assert_eq!(find(Kind::Extension, "e").as_deref(), Some("index.ts"));
    assert!(library.find(Kind::Skill, "three:sum").is_err());
    for bad in ["../one", "a/b", "", "one:", ".new-x"] {
        assert!(library.find(Kind::Skill, bad).is_err(), "{bad}");
    }
    let list = library.list().unwrap();
    assert_eq!(list.len(), 5);
    let hidden: Vec<_> =
        list.iter().filter_map(|it| Some((it.source.as_str(), it.hidden_by.as_ref()?))).collect();
    assert_eq!(hidden, [("two", &id("one"))]);

    // The order and the folders outlive the process.
    let again = Library::open(&home.path().join("state")).unwrap();
    assert_eq!(again.sources(), library.sources());
    let mut again = again;
    again.unlink("one").unwrap();
    assert_eq!(text(&again, Kind::Instruction, "team").as_deref(), Some("two"));
    assert!(again.unlink("one").is_err());
}

#[test]
fn what_is_no_plain_file_is_refused_and_named() {
    let (home, library) = two();
    write(home.path(), "one/skills/s/SKILL.md", "s");
    assert!(library.find(Kind::Skill, "s").unwrap().is_some(), "control");
    symlink("/etc/passwd", home.path().join("one/skills/s/link")).unwrap();
    let error = library.find(Kind::Skill, "s").unwrap_err().to_string();
    assert!(error.contains("link"), "{error}");
    let entry = &library.list().unwrap()[0];
    assert!(entry.digest.as_ref().is_err_and(|why| why.contains("link")), "{entry:?}");
    // An entry that is itself a link, and a whole folder of links.
    symlink(home.path().join("one/skills/s"), home.path().join("one/skills/t")).unwrap();
    assert!(library.find(Kind::Skill, "t").is_err());
    write(home.path(), "real/w.js", "w");
    symlink(home.path().join("real"), home.path().join("one/workflows")).unwrap();
    assert!(library.find(Kind::Workflow, "w").is_err());
    // A file and a folder of one name; a file where a folder must be; text that does not show.
    write(home.path(), "two/extensions/e.ts", "e");
    assert!(library.find(Kind::Extension, "e").unwrap().is_some(), "control");
    write(home.path(), "two/extensions/e/index.ts", "e");
    assert!(library.find(Kind::Extension, "e").is_err());
    write(home.path(), "two/skills/f", "f");
    assert!(library.find(Kind::Skill, "f").is_err());
    write(home.path(), "two/instructions/h.md", "a\u{202e}b");
    let error = library.find(Kind::Instruction, "h").unwrap_err().to_string();
    assert!(error.contains("U+202E") && error.contains("line 1"), "{error}");
}

#[test]
fn only_a_folder_of_ones_own_is_linked_once() {
    let (home, mut library) = two();
    let one = home.path().join("one");
    assert!(library.link(id("one"), &home.path().join("state")).is_err());
    assert!(library.link(id("again"), &one).is_err());
    assert!(library.link(id("none"), &home.path().join("none")).is_err());
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let somebody = rustix::process::geteuid().is_root().then_some(48_151);
    if std::os::unix::fs::chown(&other, somebody, None).is_ok() && somebody.is_some() {
        assert!(library.link(id("other"), &other).is_err());
    }
    assert!(somebody.is_some() || library.link(id("system"), Path::new("/")).is_err());
    let open = home.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(library.link(id("open"), &open).is_err());
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    library.link(id("open"), &open).unwrap();
    let list = home.path().join("state/library.toml");
    for bad in [
        "version = 2\n",
        "x = 1\n",
        "version = 1\n[[source]]\nname = \"A B\"\nfolder = \"/\"\n",
        "version = 1\n[[source]]\nname = \"a\"\nfolder = \"rel\"\n",
    ] {
        fs::write(&list, bad).unwrap();
        let error = Library::open(&home.path().join("state")).unwrap_err().to_string();
        assert!(error.contains("library.toml"), "{error}");
    }
    fs::remove_file(&list).unwrap();
    symlink("/etc/passwd", &list).unwrap();
    assert!(Library::open(&home.path().join("state")).is_err());
}

#[test]
fn what_is_added_comes_out_again_and_back() {
    let (home, library) = two();
    write(home.path(), "new/sum/SKILL.md", "s");
    write(home.path(), "new/sum/bin/run", "#!/bin/sh\n");
    let run = home.path().join("new/sum/bin/run");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    let of = |path: &str, kind| Piece::of_path(&home.path().join(path), kind, None);
    let piece = of("new/sum", None).unwrap();
    let added = library.add(&piece, None).unwrap();
    assert_eq!((added.source.as_str(), added.path.as_str()), ("one", "skills/sum"));
    let there = library.find(Kind::Skill, "sum").unwrap().unwrap();
    assert_eq!(there.content.digest(Kind::Skill), added.digest);
    assert!(library.add(&piece, None).is_err(), "it was replaced");
    library.add(&piece, Some("two")).unwrap();
    assert!(library.remove(Kind::Skill, "sum").is_err(), "two have it");
    let gone = library.remove(Kind::Skill, "one:sum").unwrap();
    assert!(!home.path().join("one/skills/sum").exists());
    assert_eq!(library.trash().unwrap(), std::slice::from_ref(&gone));
    library.restore(gone.id.as_str()).unwrap();
    let back = library.find(Kind::Skill, "one:sum").unwrap().unwrap();
    assert_eq!(back.content.digest(Kind::Skill), added.digest);
    assert_eq!(library.trash().unwrap(), []);
    assert!(library.restore(gone.id.as_str()).is_err());
    // What is there again is not overwritten.
    let gone = library.remove(Kind::Skill, "one:sum").unwrap();
    write(home.path(), "new/sum/more", "m");
    library.add(&of("new/sum", None).unwrap(), Some("one")).unwrap();
    assert!(library.restore(gone.id.as_str()).is_err());
    assert_eq!(library.trash().unwrap(), std::slice::from_ref(&gone));
    // As it is when it was killed before it took this out of the trash.
    library.remove(Kind::Skill, "one:sum").unwrap();
    library.add(&piece, Some("one")).unwrap();
    library.restore(gone.id.as_str()).unwrap();
    assert!(!library.trash().unwrap().contains(&gone));

    write(home.path(), "new/team.md", "t");
    write(home.path(), "new/x.js", "x");
    assert_eq!(
        library.add(&of("new/team.md", None).unwrap(), None).unwrap().kind,
        Kind::Instruction
    );
    assert!(of("new/x.js", None).is_err(), "what it is cannot be told");
    library.add(&of("new/x.js", Some(Kind::Workflow)).unwrap(), None).unwrap();
    assert!(home.path().join("one/workflows/x.js").is_file());
    assert!(of("new/x.js", Some(Kind::Skill)).is_err());
    assert!(of("new/x.js", Some(Kind::Server)).is_err());
    symlink("/etc/passwd", home.path().join("new/sum/link")).unwrap();
    assert!(of("new/sum", None).is_err());
}

#[test]
fn a_literal_secret_does_not_get_in() {
    let (home, library) = two();
    let token = format!("gh{}_{}", 'p', "aZ3kQ9".repeat(6));
    write(home.path(), "new/team.md", &format!("line\ntoken: {token}\n"));
    let piece = Piece::of_path(&home.path().join("new/team.md"), None, None).unwrap();
    let error = library.add(&piece, None).unwrap_err();
    let Error::Secrets(found) = &error else { panic!("{error}") };
    assert_eq!(found[0].line, 2);
    assert!(!format!("{found:?}").contains(&token));
    assert!(!home.path().join("one/instructions/team.md").exists());
}
