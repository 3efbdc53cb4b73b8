use std::path::{Path, PathBuf};

use ringfence_adapters::{Kind, Protected};
use ringfence_policy::FsScopes;
use ringfence_sandbox::{Missing, Mount, Rule};

use super::{Rules, mounts};
use crate::Error;

struct Case {
    dir: tempfile::TempDir,
    scopes: FsScopes,
    protected: Vec<Protected>,
    deny: Vec<&'static str>,
    literals: Vec<PathBuf>,
    programs: Vec<PathBuf>,
}

impl Case {
    fn new(write: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".ringfence")).unwrap();
        let scopes = FsScopes {
            write: write.iter().map(PathBuf::from).collect(),
            read_only: Vec::new(),
            read_outside: Vec::new(),
            read_inside: None,
        };
        Self {
            dir,
            scopes,
            protected: Vec::new(),
            deny: Vec::new(),
            literals: Vec::new(),
            programs: Vec::new(),
        }
    }

    fn file(&self, path: &str) -> &Self {
        let full = self.dir.path().join(path);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(full, path).unwrap();
        self
    }

    fn mounts(&self) -> Result<Vec<Mount>, Error> {
        let project = self.dir.path().canonicalize().unwrap();
        mounts(&Rules {
            project: &project,
            scopes: &self.scopes,
            protected: &self.protected,
            literals: &self.literals,
            programs: &self.programs,
            denied: &|relative, _| {
                self.deny.iter().any(|d| Path::new(relative).file_name() == Some(d.as_ref()))
            },
        })
    }
}

fn rule_of(mounts: &[Mount], path: &str) -> Option<Rule> {
    mounts.iter().find(|m| m.path == Path::new(path)).map(|m| m.rule)
}

#[test]
fn what_a_server_runs_is_not_written_by_the_agent() {
    let mut case = Case::new(&[""]);
    case.file("server.py").file("tools/mcp/main.js").file("venv/real/python").file("data.db");
    let project = case.dir.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("real/python", project.join("venv/python")).unwrap();
    std::os::unix::fs::symlink("tools/mcp", project.join("linked")).unwrap();
    let found = |file: &str, args: &[&str]| {
        let found = super::programs(&project, &project.join(file), args.iter().copied());
        found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    let outside = "/usr/bin/env";
    assert_eq!(found(outside, &["server.py", "-v", "data.db", "absent.py", "."]), ["server.py"]);
    assert_eq!(found(outside, &["--main=./tools/mcp/../mcp/main.js"]), ["tools/mcp/main.js"]);
    assert_eq!(found(outside, &["linked/main.js"]), ["linked", "tools/mcp/main.js"]);
    assert_eq!(found("./venv/python", &[]), ["venv/python", "venv/real/python"]);

    case.programs = ["server.py", "tools/mcp/main.js", "venv/python"].map(PathBuf::from).to_vec();
    let mounts = case.mounts().unwrap();
    for (path, rule) in [
        ("server.py", Some(Rule::ReadOnly)),
        ("tools/mcp/main.js", Some(Rule::ReadOnly)),
        ("tools/mcp", Some(Rule::Pinned)),
        ("tools", Some(Rule::Pinned)),
        ("venv", Some(Rule::ReadOnly)),
        ("data.db", None),
    ] {
        assert_eq!(rule_of(&mounts, path), rule, "{path}");
    }
    // A link at the top cannot be kept.
    case.programs = vec!["linked".into()];
    assert!(matches!(case.mounts(), Err(Error::Project { .. })));
    // Nothing is needed where the agent writes elsewhere.
    case.scopes.write = vec!["src".into()];
    case.file("src/x");
    assert!(rule_of(&case.mounts().unwrap(), "linked").is_none());
}

#[test]
fn a_repository_keeps_its_hooks_even_where_everything_is_writable() {
    let case = Case::new(&[""]);
    case.file(".git/HEAD").file(".git/config").file("deep/nested/.git/config").file("work/.git");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, ""), Some(Rule::Writable));
    assert_eq!(rule_of(&mounts, ".ringfence"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, ".git"), Some(Rule::Pinned));
    for name in ["hooks", "config", "info", "modules", "worktrees", "config.worktree", "commondir"]
    {
        for git in [".git", "deep/nested/.git"] {
            assert_eq!(
                rule_of(&mounts, &format!("{git}/{name}")),
                Some(Rule::ReadOnly),
                "{git}/{name}"
            );
        }
    }
    assert_eq!(rule_of(&mounts, "work/.git"), Some(Rule::ReadOnly));
    for parent in ["deep", "deep/nested", "work"] {
        assert_eq!(rule_of(&mounts, parent), Some(Rule::Pinned), "{parent}");
    }
    let order: Vec<_> = mounts.iter().map(|m| m.path.clone()).collect();
    let mut sorted = order.clone();
    sorted.sort();
    assert_eq!(order, sorted, "parents come first");
}

#[test]
fn a_read_only_repository_needs_no_mounts() {
    let case = Case::new(&["src"]);
    case.file(".git/config").file("src/main.rs");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, "src"), Some(Rule::Writable));
    assert!(mounts.iter().all(|m| !m.path.starts_with(".git")));
}

#[test]
fn adapter_paths_are_protected_where_present_and_where_missing() {
    let mut case = Case::new(&[""]);
    case.protected = vec![
        Protected { path: ".mcp.json".into(), kind: Kind::Json },
        Protected { path: ".claude".into(), kind: Kind::Dir },
        Protected { path: ".github/hooks".into(), kind: Kind::Dir },
    ];
    case.file(".claude/settings.json").file("sub/.mcp.json");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, ".claude"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, "sub/.mcp.json"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, "sub"), Some(Rule::Pinned));
    let missing = mounts.iter().find(|m| m.path == Path::new(".mcp.json")).unwrap();
    assert_eq!(
        (&missing.rule, &missing.missing),
        (&Rule::ReadOnly, &Missing::File(b"{}\n".to_vec()))
    );
    let github = mounts.iter().find(|m| m.path == Path::new(".github")).unwrap();
    assert_eq!((&github.rule, &github.missing), (&Rule::Pinned, &Missing::Dir));
    assert_eq!(rule_of(&mounts, ".github/hooks"), Some(Rule::ReadOnly));
}

#[test]
fn a_protected_symlink_in_a_writable_folder_is_refused() {
    let mut case = Case::new(&[""]);
    case.protected = vec![Protected { path: ".mcp.json".into(), kind: Kind::Json }];
    case.file("other.json");
    assert!(case.mounts().is_ok(), "control: without the link it is fine");
    std::os::unix::fs::symlink("other.json", case.dir.path().join(".mcp.json")).unwrap();
    assert!(matches!(case.mounts(), Err(Error::Project { .. })));
}

#[test]
fn denied_paths_are_masked_with_what_they_point_to() {
    let mut case = Case::new(&[""]);
    case.deny = vec![".env", "secrets", "link"];
    case.file(".env").file("a/.env").file("secrets/key").file("target.txt").file("open.txt");
    std::os::unix::fs::symlink("target.txt", case.dir.path().join("link")).unwrap();
    let mounts = case.mounts().unwrap();
    for path in [".env", "a/.env", "secrets", "target.txt"] {
        assert_eq!(rule_of(&mounts, path), Some(Rule::Masked), "{path}");
    }
    assert_eq!(rule_of(&mounts, "open.txt"), None);
    assert_eq!(rule_of(&mounts, "secrets/key"), None, "its folder covers it");
}

#[test]
fn a_denied_file_with_another_name_refuses_the_run() {
    let mut case = Case::new(&[""]);
    case.deny = vec![".env", "also"];
    case.file(".env");
    assert!(case.mounts().is_ok(), "control: one name is fine");
    std::fs::hard_link(case.dir.path().join(".env"), case.dir.path().join("also")).unwrap();
    assert!(case.mounts().is_ok(), "control: all names denied is fine");
    std::fs::hard_link(case.dir.path().join(".env"), case.dir.path().join("open")).unwrap();
    assert!(matches!(case.mounts(), Err(Error::HardLink { links: 3, masked: 2, .. })));
}

#[test]
fn sockets_and_unreadable_paths_are_masked() {
    let mut case = Case::new(&[]);
    case.file("docs/a.md").file("docs/deep/b.md").file("src/main.rs");
    let _socket =
        std::os::unix::net::UnixListener::bind(case.dir.path().join("docs/s.sock")).unwrap();
    case.scopes.read_inside = Some(vec!["docs".into()]);
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, "docs/s.sock"), Some(Rule::Masked));
    assert_eq!(rule_of(&mounts, "src"), Some(Rule::Masked));
    assert_eq!(rule_of(&mounts, "docs"), None);
}

#[test]
fn a_missing_scope_becomes_a_folder_and_a_missing_file_is_an_error() {
    let case = Case::new(&["out"]);
    let mounts = case.mounts().unwrap();
    assert_eq!(mounts.iter().find(|m| m.path == Path::new("out")).unwrap().missing, Missing::Keep);
    assert!(matches!(Case::new(&["notes.md"]).mounts(), Err(Error::Project { .. })));
}

#[test]
fn guards_win_over_scopes() {
    let case = Case::new(&["", ".git/hooks", ".ringfence"]);
    case.file(".git/config").file(".git/hooks/pre-commit");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, ".git/hooks"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, ".ringfence"), Some(Rule::ReadOnly));
}

#[test]
fn a_denied_path_that_is_missing_cannot_be_made() {
    let mut case = Case::new(&[""]);
    case.deny = vec!["deploy"];
    case.literals = vec!["ci/deploy".into()];
    let mounts = case.mounts().unwrap();
    let deploy = mounts.iter().find(|m| m.path == Path::new("ci/deploy")).unwrap();
    assert_eq!((&deploy.rule, &deploy.missing), (&Rule::Masked, &Missing::Dir));
    assert_eq!(rule_of(&mounts, "ci"), Some(Rule::Pinned));
    let read_only = Case::new(&[]);
    assert!(read_only.mounts().unwrap().iter().all(|m| m.rule != Rule::Masked));
}
