//! What a repository, a remote or a host may try.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::{machine, remote, rev};
use crate::Error;
use crate::git::{Change, Commit, Git, Remote, distinct};

/// A hook, or whatever else is run.
fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(path, mode).unwrap();
}

#[test]
fn a_folder_that_is_pushed_to_runs_nothing() {
    let m = machine();
    let ran = m.path("RAN");
    let touch = format!("touch {}", ran.display());
    let origin = m.path("origin");
    fs::create_dir(&origin).unwrap();
    m.raw(&origin, &["init", "-q", "--bare"], b"");
    let here = m.git.clone_owned(&remote(&origin), &m.path("here")).unwrap();
    for hook in ["pre-receive", "update", "post-receive", "post-update", "reference-transaction"] {
        script(&origin.join("hooks").join(hook), &touch);
    }
    fs::write(m.path("here/a"), "1").unwrap();
    here.commit(&["a"], "first").unwrap();
    here.push().unwrap();
    assert!(!ran.exists(), "a hook of the folder ran");
    // Control: plain git runs them.
    m.save(&m.path("here"), &[("b", "2")]);
    m.raw(&m.path("here"), &["push", "-q"], b"");
    assert!(ran.exists(), "the control ran nothing");

    // What its own configuration starts, whoever asks it.
    let there = m.path("there");
    for (key, value) in [
        ("core.alternateRefsCommand", &*touch),
        ("core.hooksPath", "hooks"),
        ("remote.x.uploadpack", &touch),
        ("uploadpack.packObjectsHook", &touch),
        ("extensions.partialClone", "x"),
        ("gc.recentObjectsHook", &touch),
        ("include.path", "more"),
    ] {
        let config = fs::read_to_string(origin.join("config")).unwrap();
        let (section, name) = key.rsplit_once('.').unwrap();
        let section = section.replacen(".x", " \"x\"", 1);
        fs::write(origin.join("config"), format!("{config}[{section}]\n{name} = {value}\n"))
            .unwrap();
        let said = |error: Error| {
            let words = error.to_string();
            assert!(words.contains(&key.to_lowercase()), "{key}: {words}");
        };
        said(m.git.clone_owned(&remote(&origin), &there).unwrap_err());
        said(m.git.fetch(&remote(&origin), &rev("main"), &m.path("bare")).unwrap_err());
        said(here.fetch().unwrap_err());
        said(here.push().unwrap_err());
        fs::write(origin.join("config"), config).unwrap();
    }
    for name in ["commondir", "objects/info/alternates"] {
        let file = origin.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "/x\n").unwrap();
        let error = here.fetch().unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        fs::remove_file(&file).unwrap();
    }
    m.git.clone_owned(&remote(&origin), &there).unwrap();
}

#[test]
fn a_repository_in_a_repository_is_not_looked_into() {
    let m = machine();
    let ran = m.path("RAN");
    let here = m.repository("here", &[("a", "1")]);
    let inner = m.repository("here/inner", &[("b", "1"), (".gitattributes", "* filter=x\n")]);
    m.raw(&inner, &["config", "filter.x.clean", &format!("touch {}; cat", ran.display())], b"");
    m.git.owned(&here).unwrap();
    m.raw(&here, &["-c", "advice.addEmbeddedRepo=false", "add", "inner"], b"");
    // As long as before, so that only its bytes can tell.
    fs::write(inner.join("b"), "2").unwrap();
    let error = m.git.owned(&here).unwrap_err();
    assert!(matches!(&error, Error::Foreign { path, .. } if path == "inner"), "{error}");
    assert!(!ran.exists());
    m.raw(&here, &["status"], b"");
    assert!(ran.exists(), "the control ran nothing");
}

#[test]
fn a_remote_that_is_called_like_an_address_is_refused() {
    let m = machine();
    let here = m.repository("here", &[("a", "1")]);
    for name in ["https://example.com/a", "/srv/a"] {
        fs::write(
            here.join(".git/config"),
            format!("[remote \"{name}\"]\nurl = https://other.example/\n"),
        )
        .unwrap();
        let error = m.git.owned(&here).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    fs::write(here.join(".git/config"), "[remote \"up\"]\nurl = https://other.example/\n").unwrap();
    m.git.owned(&here).unwrap();
}

#[test]
fn an_address_names_one_host_to_every_reader() {
    for bad in [
        "https://evil.example?@good.example/a",
        "https://evil.example#@good.example/a",
        "https://good.example\\@evil.example/a",
        "https://good.example@x@evil.example/a",
        "https://good%2eexample/a",
        "ssh://%2DoProxyCommand=x/a",
        "ssh://git@-oProxyCommand=x/a",
        "https://me@/a",
    ] {
        assert!(Remote::declared(bad).is_err(), "{bad}");
    }
    for (good, host) in [
        ("https://example.com/a?b#c@d", "example.com"),
        ("https://me:a%40b@example.com:8443/a", "example.com:8443"),
        ("ssh://git@[::1]:22/a", "[::1]:22"),
        ("https://xn--bcher-kva.example/~me/a.git", "xn--bcher-kva.example"),
    ] {
        assert_eq!(Remote::declared(good).unwrap().host(), Some(host), "{good}");
    }
}

#[test]
fn ssh_hands_a_host_nothing_of_the_persons() {
    let m = machine();
    let said = m.path("said");
    script(&m.path("bin/ssh"), &format!("echo \"$@\" > {}; exit 1", said.display()));
    let path = format!("{}:{}", m.path("bin").display(), std::env::var("PATH").unwrap());
    let git = Git::with([
        (OsString::from("PATH"), OsString::from(path)),
        ("HOME".into(), m.folder.path().into()),
        ("SSH_AUTH_SOCK".into(), "/run/agent".into()),
    ])
    .unwrap();
    let there = Remote::declared("ssh://git@example.com/a").unwrap();
    git.fetch(&there, &rev("main"), &m.path("b")).unwrap_err();
    let words = fs::read_to_string(said).unwrap();
    for option in ["BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes"] {
        assert!(words.contains(option), "{words}");
    }
}

#[test]
fn a_commit_is_visited_with_all_that_it_says() {
    let m = machine();
    let here = m.repository("here", &[("a", "1")]);
    let tree = m.raw(&here, &["rev-parse", "HEAD^{tree}"], b"");
    let who = "P SECRET-NAME <p@example.com> 1700000000 +0000";
    let raw = format!("tree {tree}\nauthor {who}\ncommitter {who}\nnote SECRET-HEADER\n\nx\n");
    let words = ["hash-object", "-t", "commit", "-w", "--literally", "--stdin"];
    let id = m.raw(&here, &words, raw.as_bytes());
    let owned = m.git.owned(&here).unwrap();
    let commit = Commit::parse(&id).unwrap();
    let change = Change { commit, subject: String::new() };
    let mut seen = String::new();
    owned
        .visit(&[change], &mut |_, path, bytes| {
            seen += &format!("{path}={}\n", String::from_utf8_lossy(bytes));
            Ok(())
        })
        .unwrap();
    for what in ["SECRET-NAME", "SECRET-HEADER", "a=1"] {
        assert!(seen.contains(what), "{seen}");
    }
}

#[test]
fn what_is_ignored_is_not_written_over() {
    let m = machine();
    let origin = m.repository("origin", &[("a", "1"), (".gitignore", "mine\n")]);
    let here = m.git.clone_owned(&remote(&origin), &m.path("here")).unwrap();
    fs::write(m.path("here/mine"), "the person's").unwrap();
    fs::write(origin.join("mine"), "theirs").unwrap();
    m.raw(&origin, &["add", "-f", "mine"], b"");
    m.save(&origin, &[("b", "2")]);
    here.fetch().unwrap();
    assert!(here.forward().is_err());
    assert_eq!(fs::read_to_string(m.path("here/mine")).unwrap(), "the person's");
    fs::remove_file(m.path("here/mine")).unwrap();
    here.forward().unwrap();
    assert_eq!(fs::read_to_string(m.path("here/mine")).unwrap(), "theirs");
}

#[test]
fn names_that_take_much_more_room_than_they_have_are_refused() {
    let names = |count: usize| -> Vec<String> {
        (0..count).map(|n| format!("{n}{}/f", "/abcdefghijklmnop".repeat(30))).collect()
    };
    distinct(names(100).iter().map(String::as_str)).unwrap();
    let error = distinct(names(20_000).iter().map(String::as_str)).unwrap_err().to_string();
    assert!(error.contains("64 MiB"), "{error}");
}
