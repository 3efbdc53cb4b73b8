use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringfence_bundle::Content;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;

use super::process::{self, Bounds};
use super::{Commit, Git, Remote, Rev};
use crate::Error;

mod hostile;

/// A machine of its own: a home, a git that reads nothing of the real person.
struct Machine {
    folder: TempDir,
    git: Git,
}

fn machine() -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let config = "[user]\nname = P\nemail = p@example.com\n[init]\ndefaultBranch = main\n";
    fs::write(folder.path().join(".gitconfig"), config).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let environment: [(OsString, OsString); 2] =
        [("PATH".into(), path), ("HOME".into(), folder.path().into())];
    Machine { git: Git::with(environment).unwrap(), folder }
}

impl Machine {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Plain git, as a person types it.
    fn raw(&self, folder: &Path, words: &[&str], input: &[u8]) -> String {
        let mut child = Command::new("git")
            .args(words)
            .current_dir(folder)
            .env("HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A repository with these files, committed.
    fn repository(&self, name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let folder = self.path(name);
        fs::create_dir_all(&folder).unwrap();
        self.raw(&folder, &["init", "-q"], b"");
        self.save(&folder, files);
        folder
    }

    fn save(&self, folder: &Path, files: &[(&str, &str)]) -> String {
        for (path, text) in files {
            let file = folder.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        self.raw(folder, &["add", "-A"], b"");
        self.raw(folder, &["commit", "-q", "-m", "more"], b"");
        self.raw(folder, &["rev-parse", "HEAD"], b"")
    }

    /// A commit whose tree has these rows of `mktree`, with no check by git.
    fn commit_of(&self, folder: &Path, rows: &str) -> Commit {
        let tree = self.raw(folder, &["mktree", "-z", "--missing"], rows.as_bytes());
        Commit::parse(&self.raw(folder, &["commit-tree", &tree, "-m", "x"], b"")).unwrap()
    }
}

fn paths(content: &Content) -> Vec<String> {
    match content {
        Content::Tree(blobs) => blobs
            .iter()
            .map(|(path, blob)| {
                format!("{path}{} {}", if blob.executable { "*" } else { "" }, blob.bytes.len())
            })
            .collect(),
        Content::File(blob) => vec![format!("{}", blob.bytes.len())],
    }
}

fn remote(folder: &Path) -> Remote {
    Remote::typed(folder.to_str().unwrap()).unwrap()
}

fn rev(text: &str) -> Rev {
    Rev::parse(text).unwrap()
}

#[test]
fn a_revision_is_fetched_without_history_and_read_as_bytes() {
    let m = machine();
    let from = m.repository("from", &[("skills/a/SKILL.md", "first"), ("top", "t")]);
    let first = m.raw(&from, &["rev-parse", "HEAD"], b"");
    m.raw(&from, &["tag", "-a", "-m", "one", "v1"], b"");
    let second = m.save(&from, &[("skills/a/bin/run", "#!/bin/sh\n")]);
    for (name, expected) in [("v1", &first), ("main", &second), (first.as_str(), &first)] {
        let bare = m.path(&format!("bare-{name}"));
        let commit = m.git.fetch(&remote(&from), &rev(name), &bare).unwrap();
        assert_eq!(commit.as_str(), expected, "{name}");
        let count = m.raw(&bare, &["rev-list", "--count", commit.as_str()], b"");
        assert_eq!(count, "1", "history came along");
        assert!(!bare.join("hooks").exists());
    }
    let bare = m.path("bare-main");
    let commit = Commit::parse(&second).unwrap();
    let read = |subpath| m.git.content(&bare, &commit, subpath);
    assert_eq!(
        paths(&read(None).unwrap()),
        ["skills/a/SKILL.md 5", "skills/a/bin/run 10", "top 1"]
    );
    assert_eq!(paths(&read(Some("skills/a")).unwrap()), ["SKILL.md 5", "bin/run 10"]);
    assert_eq!(paths(&read(Some("top")).unwrap()), ["1"]);
    for bad in ["none", "top/x", "../x", "skills/../top", ":(glob)*", "*"] {
        assert!(read(Some(bad)).is_err(), "{bad}");
    }
    assert!(m.git.fetch(&remote(&from), &rev("none"), &m.path("bare-none")).is_err());
}

#[test]
fn a_pinned_commit_is_the_pinned_one_or_nothing() {
    let m = machine();
    let from = m.repository("from", &[("a", "1")]);
    let first = Commit::parse(&m.raw(&from, &["rev-parse", "HEAD"], b"")).unwrap();
    m.save(&from, &[("a", "2")]);
    let pinned = |commit: &Commit, bare: &str| {
        m.git.fetch_pinned(&remote(&from), &rev("main"), commit, &m.path(bare))
    };
    pinned(&first, "old").unwrap();
    assert_eq!(paths(&m.git.content(&m.path("old"), &first, None).unwrap()), ["a 1"]);
    let other = Commit::parse(&"a".repeat(40)).unwrap();
    let error = pinned(&other, "other").unwrap_err().to_string();
    assert!(error.contains(&"a".repeat(40)) && error.contains("now"), "{error}");
}

#[test]
fn a_repository_of_the_other_object_format_is_read_too() {
    let m = machine();
    let from = m.path("from");
    fs::create_dir(&from).unwrap();
    m.raw(&from, &["init", "-q", "--object-format=sha256"], b"");
    let head = m.save(&from, &[("a", "x")]);
    for (name, bare) in [("main", "one"), (head.as_str(), "two")] {
        let commit = m.git.fetch(&remote(&from), &rev(name), &m.path(bare)).unwrap();
        assert_eq!(commit.as_str(), head);
        assert_eq!(paths(&m.git.content(&m.path(bare), &commit, None).unwrap()), ["a 1"]);
    }
}

#[test]
fn what_is_not_a_plain_file_refuses_the_tree_and_is_named() {
    let m = machine();
    let from = m.repository("from", &[("a", "x")]);
    let blob = m.raw(&from, &["hash-object", "-w", "--stdin"], b"../../etc/passwd");
    let tree = m.raw(&from, &["mktree", "-z"], format!("100644 blob {blob}\tin\0").as_bytes());
    let dir = from.join(".git");
    // Control: the same blob as a regular file.
    let fine = m.commit_of(&from, &format!("100644 blob {blob}\tlink\0100755 blob {blob}\tx\0"));
    assert_eq!(paths(&m.git.content(&dir, &fine, None).unwrap()), ["link 16", "x* 16"]);
    let head = fine.as_str().to_owned();
    for (rows, named, why) in [
        (format!("120000 blob {blob}\tlink\0"), "link", "symbolic link"),
        (format!("160000 commit {head}\tsub\0"), "sub", "submodule"),
        (format!("100644 blob {blob}\ta\\b\0"), "a\\b", "backslash"),
        (format!("100644 blob {blob}\ta\u{202e}b\0"), "a\u{202e}b", "does not show"),
        (format!("100644 blob {blob}\ta\nb\0"), "a\nb", "does not show"),
        (format!("040000 tree {tree}\t..\0"), "../in", "leads out"),
        (format!("040000 tree {tree}\t.Git\0"), ".Git/in", "git's own"),
        (format!("100644 blob {blob}\tREADME\0100644 blob {blob}\tReadme\0"), "Readme", "case"),
        (format!("040000 tree {tree}\tA\0040000 tree {tree}\ta\0"), "a", "case"),
    ] {
        let commit = m.commit_of(&from, &rows);
        let error = m.git.content(&dir, &commit, None).unwrap_err();
        assert!(matches!(&error, Error::Foreign { path, .. } if path == named), "{rows}: {error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    // A subpath that is a link, or leads through one.
    let commit = m.commit_of(&from, &format!("120000 blob {blob}\tlink\0"));
    assert!(m.git.content(&dir, &commit, Some("link")).is_err());
    assert!(m.git.content(&dir, &commit, Some("link/passwd")).is_err());
    let mut deep = tree;
    for _ in 0..32 {
        deep = m.raw(&from, &["mktree"], format!("040000 tree {deep}\td\n").as_bytes());
    }
    let commit = m.commit_of(&from, &format!("040000 tree {deep}\td\0"));
    let error = m.git.content(&dir, &commit, None).unwrap_err().to_string();
    assert!(error.contains("32 deep"), "{error}");
}

#[test]
fn malformed_objects_are_not_taken_in() {
    let m = machine();
    let from = m.repository("from", &[("a", "x")]);
    let good = m.git.fetch(&remote(&from), &rev("main"), &m.path("good"));
    assert!(good.is_ok());
    let tree = m.raw(&from, &["write-tree"], b"");
    let rows = format!("040000 tree {tree}\t.git\0");
    let commit = m.commit_of(&from, &rows);
    m.raw(&from, &["update-ref", "refs/heads/bad", commit.as_str()], b"");
    let error = m.git.fetch(&remote(&from), &rev("bad"), &m.path("bad")).unwrap_err().to_string();
    assert!(error.contains("fsck") || error.contains("hasDotgit"), "{error}");
}

#[test]
fn an_address_cannot_be_an_option_a_command_or_another_protocol() {
    for good in ["https://git.example.com/a", "ssh://git@git.example.com/a.git"] {
        assert!(Remote::declared(good).is_ok(), "{good}");
        assert!(Remote::typed(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "-u/tmp/x",
        "--upload-pack=touch /tmp/x",
        "ext::sh -c touch% /tmp/x",
        "file:///etc",
        "/etc",
        "git://example.com/a",
        "http://example.com/a",
        "HTTPS://example.com/a",
        "ssh://-oProxyCommand=touch/x",
        "ssh://user@-oProxyCommand=touch/x",
        "https://",
        "https:///a",
        "https://example.com/a\nb",
        "git@example.com:a",
        "fd::17",
    ] {
        assert!(Remote::declared(bad).is_err(), "{bad}");
    }
    assert!(Remote::typed("/srv/a").is_ok());
    assert_eq!(
        Remote::typed("git@example.com:a/b.git").unwrap().as_str(),
        "ssh://git@example.com/a/b.git"
    );
    for bad in ["-x", "a b:c", "git@-oProxyCommand=x:y", "ext::x", "../a", "a@b:-c"] {
        assert!(Remote::typed(bad).is_err(), "{bad}");
    }
    for bad in ["", "-x", "--all", "a..b", "a:b", "+a", "^a", "@{-1}", "a b", "refs/heads/*"] {
        assert!(Rev::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(
        Remote::declared("https://me:secret@h/a").unwrap().to_string(),
        "https://me:***@h/a"
    );
}

#[test]
fn a_folder_is_no_source_of_a_manifest_even_behind_the_persons_configuration() {
    let m = machine();
    let from = m.repository("from", &[("a", "x")]);
    let config = format!(
        "[url \"{}\"]\ninsteadOf = https://mapped.example/\n[protocol \"file\"]\nallow = always\n",
        from.display()
    );
    fs::write(m.path(".gitconfig"), config).unwrap();
    let declared = Remote::declared("https://mapped.example/").unwrap();
    let error = m.git.fetch(&declared, &rev("main"), &m.path("b")).unwrap_err().to_string();
    assert!(error.contains("not allowed"), "{error}");
    // Control: the mapping works where the person typed the address of a folder.
    assert!(m.git.fetch(&remote(&from), &rev("main"), &m.path("c")).is_ok());
}

#[test]
fn what_takes_too_long_is_ended_with_all_that_it_started() {
    let m = machine();
    let marker = m.path("marker");
    let script = format!("sleep 300 & echo $! > {}; wait", marker.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let bounds = Bounds { time: Duration::from_millis(700), ..Bounds::LOCAL };
    let begin = Instant::now();
    let error = process::run(command, Vec::new(), &bounds, "wait").unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(60));
    let child: i32 = fs::read_to_string(&marker).unwrap().trim().parse().unwrap();
    // It sleeps for minutes unless it was ended too.
    if let Ok(handle) = pidfd_open(Pid::from_raw(child).unwrap(), PidfdFlags::empty()) {
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "what it started goes on");
    }
}

#[test]
fn what_writes_or_says_too_much_is_ended() {
    let m = machine();
    let big = m.path("big");
    fs::create_dir(&big).unwrap();
    let run = |script: &str, folder: Option<&Path>| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&big);
        let bounds = Bounds { folder: folder.map(Path::to_owned), ..Bounds::LOCAL };
        process::run(command, Vec::new(), &bounds, "fetch")
    };
    assert!(run("echo fine", Some(&big)).unwrap().success);
    // Sparse files: no single one reaches the limit.
    let two = "truncate -s 700M a; truncate -s 700M b; exec sleep 300";
    let error = run(two, Some(&big)).unwrap_err().to_string();
    assert!(error.contains("1 GiB"), "{error}");
    let error = run("exec yes", None).unwrap_err().to_string();
    assert!(error.contains("64 MiB"), "{error}");
}

#[test]
fn a_repository_that_is_owned_is_cloned_committed_and_pushed() {
    let m = machine();
    let origin = m.path("origin");
    fs::create_dir(&origin).unwrap();
    m.raw(&origin, &["init", "-q", "--bare"], b"");
    let one = m.git.clone_owned(&remote(&origin), &m.path("one")).unwrap();
    assert_eq!(one.head().unwrap(), None);
    assert_eq!(one.fetch().unwrap(), None);
    fs::write(m.path("one/a"), "1").unwrap();
    assert_eq!(one.unsettled().unwrap(), ["a"]);
    let commit = one.commit(&["a"], "first\n\nbody").unwrap().unwrap();
    assert_eq!(one.commit(&["a"], "again").unwrap(), None);
    assert_eq!(one.outgoing().unwrap().len(), 1);
    one.push().unwrap();
    assert_eq!(one.outgoing().unwrap(), []);

    let two = m.git.clone_owned(&remote(&origin), &m.path("two")).unwrap();
    assert_eq!(two.head().unwrap(), Some(commit));
    assert_eq!(fs::read_to_string(m.path("two/a")).unwrap(), "1");
    fs::write(m.path("one/b"), "2").unwrap();
    one.commit(&["b"], "second").unwrap();
    one.push().unwrap();
    two.fetch().unwrap();
    let incoming = two.incoming().unwrap();
    assert_eq!(incoming.iter().map(|c| c.subject.as_str()).collect::<Vec<_>>(), ["second"]);
    two.forward().unwrap();
    assert_eq!(fs::read_to_string(m.path("two/b")).unwrap(), "2");
    assert_eq!(two.incoming().unwrap(), []);

    // Both go on: neither is forced over the other.
    fs::write(m.path("one/c"), "3").unwrap();
    one.commit(&["c"], "third").unwrap();
    one.push().unwrap();
    fs::write(m.path("two/d"), "4").unwrap();
    two.commit(&["d"], "fourth").unwrap();
    assert!(two.push().is_err());
    two.fetch().unwrap();
    assert!(two.forward().is_err());
    let mut seen = Vec::new();
    let outgoing = two.outgoing().unwrap();
    two.visit(&outgoing, &mut |_, path, bytes| {
        seen.push(format!("{path}={}", String::from_utf8_lossy(bytes).trim()));
        Ok(())
    })
    .unwrap();
    assert!(seen[0].ends_with("\n\nfourth") && seen[1] == "d=4", "{seen:?}");
}

#[test]
fn a_link_that_comes_in_is_written_nowhere() {
    let m = machine();
    let origin = m.repository("origin", &[("a", "1")]);
    let here = m.git.clone_owned(&remote(&origin), &m.path("here")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", origin.join("link")).unwrap();
    m.save(&origin, &[("b", "2")]);
    here.fetch().unwrap();
    let error = here.forward().unwrap_err();
    assert!(matches!(&error, Error::Foreign { path, .. } if path == "link"), "{error}");
    assert!(!m.path("here/b").exists() && m.path("here/link").symlink_metadata().is_err());
    let error = m.git.clone_owned(&remote(&origin), &m.path("there")).unwrap_err();
    assert!(matches!(&error, Error::Foreign { .. }), "{error}");
    assert!(!m.path("there").exists());
}

#[test]
fn what_a_repository_brings_does_not_run() {
    let m = machine();
    let ran = m.path("RAN");
    let touch = format!("touch {}", ran.display());
    let origin = m.repository("origin", &[("a", "1"), (".gitattributes", "* filter=evil\n")]);
    // The person's own configuration has the filter, as git-lfs would be.
    let filter = format!("[filter \"evil\"]\nsmudge = {touch}; cat\nclean = {touch}; cat\n");
    let config = fs::read_to_string(m.path(".gitconfig")).unwrap() + &filter;
    fs::write(m.path(".gitconfig"), config).unwrap();
    let here = m.git.clone_owned(&remote(&origin), &m.path("here")).unwrap();
    let hooks = m.path("here/.git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in ["pre-commit", "post-commit", "pre-push", "post-merge", "reference-transaction"] {
        fs::write(hooks.join(hook), format!("#!/bin/sh\n{touch}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(hooks.join(hook), mode).unwrap();
    }
    m.save(&origin, &[("b", "2")]);
    let _ = fs::remove_file(&ran);
    here.fetch().unwrap();
    here.forward().unwrap();
    fs::write(m.path("here/c"), "3").unwrap();
    here.commit(&["c"], "c").unwrap();
    let fetched = m.git.fetch(&remote(&origin), &rev("main"), &m.path("bare")).unwrap();
    m.git.content(&m.path("bare"), &fetched, None).unwrap();
    assert!(!ran.exists(), "something ran");
    // Control: plain git runs them.
    m.save(&m.path("here"), &[("d", "4")]);
    assert!(ran.exists(), "the control ran nothing");

    for key in ["core.fsmonitor", "core.sshCommand", "filter.x.smudge", "include.path", "alias.x"] {
        m.raw(&m.path("here"), &["config", key, &touch], b"");
        let error = m.git.owned(&m.path("here")).unwrap_err().to_string();
        assert!(error.contains(&key.to_lowercase()), "{key}: {error}");
        m.raw(&m.path("here"), &["config", "--unset", key], b"");
    }
    m.git.owned(&m.path("here")).unwrap();
}
