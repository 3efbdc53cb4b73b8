//! Row 13: git as a way to run something later, outside: hooks, `core.hooksPath`, a swapped `.git`,
//! fsmonitor, filters. Ordinary commits still work.

use ringfence_tests::{Project, each_user};

use crate::bundles::files;

const SCRIPT: &str = r##"
import shutil, subprocess
def git(case, *words):
    done = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *words], capture_output=True, text=True)
    say(case, done=done.returncode == 0, value=done.stdout, error=done.stderr)

write("src/new.txt", "new\n")
git("control add", "add", "src/new.txt")
git("control commit", "commit", "-q", "-m", "by the agent")
git("control branch", "branch", "topic")
git("control log", "log", "--oneline")

for hook in ["pre-commit", "post-checkout", "fsmonitor-watchman", "reference-transaction"]:
    attempt("hook " + hook, lambda: write(".git/hooks/" + hook, "#!/bin/sh\ntouch /tmp/owned\n"))
attempt("chmod hook", lambda: (os.chmod(".git/hooks/pre-push.sample", 0o755), True)[1])
attempt("rename hooks", lambda: (os.rename(".git/hooks", ".git/h"), os.mkdir(".git/hooks"), True)[2])
attempt("rename git", lambda: (os.rename(".git", ".g"), os.mkdir(".git"), True)[2])
attempt("remove git", lambda: (shutil.rmtree(".git/hooks"), True)[1])
attempt("symlink git", lambda: (os.rename(".git", ".g"), os.symlink("src", ".git"), True)[2])
attempt("config write", lambda: write(".git/config", "[core]\n\tfsmonitor = touch x\n"))
attempt("config over", lambda: (write("src/c"), os.rename("src/c", ".git/config"), True)[2])
attempt("config.worktree", lambda: write(".git/config.worktree", "[core]\n\thooksPath = src\n"))
git("git config hooksPath", "config", "core.hooksPath", "src")
git("git config fsmonitor", "config", "core.fsmonitor", "touch owned")
git("git config filter", "config", "filter.x.clean", "touch owned")
git("git config alias", "config", "alias.st", "!touch owned")
attempt("config.lock", lambda: (write(".git/config.lock"), os.rename(".git/config.lock", ".git/config"), True)[2])
attempt("attributes", lambda: write(".git/info/attributes", "* filter=x\n"))
attempt("rename info", lambda: (os.rename(".git/info", ".git/i"), os.mkdir(".git/info"), True)[2])
attempt("modules", lambda: (os.makedirs(".git/modules/x/hooks", exist_ok=True), write(".git/modules/x/hooks/post-checkout"), True)[2])
attempt("commondir", lambda: write(".git/commondir", "../src\n"))
attempt("worktree commondir", lambda: write(".git/worktrees/worktree/commondir", "../../../src\n"))
attempt("worktree gitdir", lambda: write(".git/worktrees/worktree/config.worktree", "[core]\n\tfsmonitor = touch x\n"))
attempt("nested hook", lambda: write("vendor/lib/.git/hooks/post-checkout"))
attempt("nested config", lambda: write("vendor/lib/.git/config"))
attempt("rename nested git", lambda: (os.rename("vendor/lib/.git", "vendor/lib/g"), os.mkdir("vendor/lib/.git"), True)[2])
attempt("rename nested parent", lambda: (os.rename("vendor/lib", "vendor/l"), os.makedirs("vendor/lib/.git/hooks"), True)[2])
attempt("rename nested grandparent", lambda: (os.rename("vendor", "v"), os.makedirs("vendor/lib/.git/hooks"), True)[2])
attempt("gitfile", lambda: write("worktree/.git", "gitdir: ../src\n"))
"##;

#[test]
fn git_runs_nothing_later_and_commits_still_work() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]"));
        project.file("src/old.txt", "old\n");
        let git = |words: &[&str], folder: &str| {
            let mut all =
                vec!["git", "-c", "user.name=p", "-c", "user.email=p@example.com", "-C", folder];
            all.extend(words);
            project.shell(&all).ok()
        };
        git(&["init", "-q", "."], ".").done();
        project.file("vendor/lib/x.txt", "x\n");
        git(&["init", "-q", "."], "vendor/lib").done();
        git(&["add", "src"], ".").done();
        git(&["commit", "-q", "-m", "by the person"], ".").done();
        git(&["worktree", "add", "-q", "worktree"], ".").done();
        let config = std::fs::read(project.path().join(".git/config")).expect("git made it");
        let nested =
            std::fs::read(project.path().join("vendor/lib/.git/config")).expect("git made it");
        project.lock();
        project.trust();
        let cases = project.agent(SCRIPT);
        for case in cases.names() {
            if case.starts_with("control") { cases.happened(case) } else { cases.refused(case) }
        }
        assert!(cases.names().count() > 25);
        // From outside: the commit is there, the configuration is as it was, no hook was added.
        assert!(git(&["log", "--oneline"], ".").stdout.contains("by the agent"));
        assert_eq!(std::fs::read(project.path().join(".git/config")).expect("still there"), config);
        assert_eq!(
            std::fs::read(project.path().join("vendor/lib/.git/config")).expect("still there"),
            nested
        );
        let hooks = project.picture(&project.path().join(".git/hooks"));
        assert!(
            hooks.keys().all(|p| p.extension().is_some_and(|e| e == "sample")),
            "{:?}",
            hooks.keys()
        );
    });
}

const CONFIGURED: &str = r##"
attempt("control", lambda: write("src/free.txt"))
for p in ["hooks-of-mine/pre-commit", "hooks-of-mine/new", ".gitconfig", "included", "tools/clean.sh", "tools/new.sh", "personal/post-commit"]:
    attempt("write " + p, lambda: write(p))
    attempt("over " + p, lambda: (write("src/c"), os.rename("src/c", p), True)[2])
for p in ["hooks-of-mine", "tools", "personal"]:
    attempt("rename " + p, lambda: (os.rename(p, p + ".old"), os.mkdir(p), True)[2])
"##;

#[test]
fn what_git_is_configured_to_run_cannot_be_changed() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]"));
        for path in
            ["src/x", "hooks-of-mine/pre-commit", "tools/clean.sh", "included", "personal/x"]
        {
            project.file(path, "");
        }
        project.shell(&["git", "init", "-q", "."]).ok().done();
        project.lock();
        project.trust();
        let before = project.agent(CONFIGURED);
        assert!(before.names().count() > 15);
        before.happened("write included");
        for path in ["hooks-of-mine.old", "tools.old", "personal.old", ".gitconfig"] {
            let _ = project.shell(&["rm", "-rf", path]);
        }
        project.file("hooks-of-mine/pre-commit", "");
        project.file("tools/clean.sh", "");
        project.file("included", "");
        for (key, value) in [
            ("core.hooksPath", "hooks-of-mine"),
            ("include.path", "../.gitconfig"),
            ("includeIf.gitdir:/.path", "../included"),
            ("filter.x.clean", "./tools/clean.sh %f"),
            ("filter.x.smudge", "tools/new.sh"),
        ] {
            project.shell(&["git", "config", key, value]).ok().done();
        }
        project.shell(&["git", "config", "--global", "core.hooksPath", "personal"]).ok().done();
        let cases = project.agent(CONFIGURED);
        for case in cases.names() {
            if case.starts_with("control") { cases.happened(case) } else { cases.refused(case) }
        }
    });
}
