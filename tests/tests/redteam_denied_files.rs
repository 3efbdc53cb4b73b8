//! Row 15: a denied file read through a symlink, a hard link, a bind mount, a child process or another
//! process's descriptors.

use ringfence_tests::{PYTHON, Project, TestNet, each_user, each_wall, eventually};

use crate::bundles::files;

const SCRIPT: &str = r##"
import subprocess
def sh(case, line):
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    say(case, done="SECRET-WORD" in done.stdout, value=done.stdout)
def has(p):
    text = read(p)
    if "SECRET-WORD" not in text:
        raise OSError(2, "masked")
    return True

attempt("control direct", lambda: has("open.txt"))
os.symlink(os.path.abspath("open.txt"), "/tmp/open"); attempt("control symlink", lambda: has("/tmp/open"))
sh("control child", "cat open.txt")
sh("control grandchild", "sh -c 'sh -c \"cat open.txt\"'")
attempt("control link in the project", lambda: has("link-to-open"))
fd = os.open("open.txt", os.O_RDONLY); sh("control descriptor", f"cat /proc/{os.getpid()}/fd/{fd}")

sh("control descriptors", f"for f in /proc/[0-9]*/fd/*; do test -f $f && cat $f; done 2>/dev/null")
os.close(fd)

for p in [".env", ".env.local", "config/.env", "keys/private.pem"]:
    absolute = os.path.abspath(p)
    attempt("direct " + p, lambda: has(p))
    attempt("absolute " + p, lambda: has(absolute))
    attempt("dots " + p, lambda: has("config/../" + p))
    attempt("proc root " + p, lambda: has("/proc/self/root" + absolute))
    attempt("proc cwd " + p, lambda: has("/proc/self/cwd/" + p))
    attempt("proc 1 root " + p, lambda: has("/proc/1/root" + absolute))
    def linked():
        name = "/tmp/" + p.replace("/", "_"); os.symlink(absolute, name); return has(name)
    attempt("symlink " + p, linked)
    def hard():
        os.link(p, "src/hard"); return has("src/hard")
    attempt("hard link " + p, hard)
    def renamed():
        os.rename(p, "src/renamed"); return has("src/renamed")
    attempt("rename " + p, renamed)
    sh("child " + p, f"cat {p}")
    sh("grandchild " + p, f"sh -c 'sh -c \"exec cat {p}\"'")
    sh("background " + p, f"setsid sh -c 'cat {p}'")
    sh("bind " + p, f"touch /tmp/b; unshare -Urm sh -c 'mount --bind {p} /tmp/b; cat /tmp/b'")
    sh("unmount " + p, f"unshare -Urm sh -c 'umount -l {absolute}; cat {p}'")
    sh("descriptors " + p, "for f in /proc/[0-9]*/fd/*; do test -f $f && cat $f; done 2>/dev/null")
    sh("git " + p, f"git --no-pager diff --no-index /dev/null {p}")
attempt("symlink in the project", lambda: has("link-to-env"))
attempt("chained symlink in the project", lambda: has("link-to-link"))
attempt("through a linked folder", lambda: has("linked-config/.env"))
"##;

fn secrets(project: &Project) {
    for path in [".env", ".env.local", "config/.env", "keys/private.pem", "open.txt"] {
        project.file(path, "SECRET-WORD\n");
    }
    project.file("src/x", "");
    project.manifest(&files("write = [\"src/**\"]\ndeny = [\".env*\", \"keys/**\"]"));
    for (link, target) in [
        ("link-to-env", ".env"),
        ("link-to-link", "link-to-env"),
        ("linked-config", "config"),
        ("link-to-open", "open.txt"),
    ] {
        project.shell(&["ln", "-s", target, link]).ok().done();
    }
    project.lock();
    project.trust();
}

#[test]
fn a_denied_file_is_denied_to_every_descendant() {
    each_user(|who| {
        let project = Project::new(who);
        secrets(&project);
        let cases = project.agent(SCRIPT);
        for case in cases.names() {
            if case.starts_with("control") { cases.happened(case) } else { cases.refused(case) }
        }
        assert!(cases.names().count() > 60);
        assert_eq!(
            std::fs::read(project.path().join(".env")).expect("untouched"),
            b"SECRET-WORD\n"
        );
    });
}

#[test]
fn a_denied_file_with_a_second_name_refuses_the_run() {
    each_user(|who| {
        let project = Project::new(who);
        secrets(&project);
        project.run(&["true"]).ok().done();
        // A second name that is denied too masks every way in: the run may go on.
        project.shell(&["ln", ".env", ".env.copy"]).ok().done();
        project.run(&["true"]).ok().done();
        // A second name that is not: nobody can mask the bytes, so nothing runs.
        project.shell(&["ln", ".env", "innocent.txt"]).ok().done();
        let refused = project.run(&["cat", "innocent.txt"]);
        assert_ne!(refused.status, 0, "{}", refused.stdout);
        assert!(!refused.stdout.contains("SECRET-WORD"), "{}", refused.stdout);
        refused.says(&[".env"]).done();
    });
}

#[test]
fn a_denied_name_through_a_linked_folder_is_denied() {
    each_user(|who| {
        let project = Project::new(who);
        for path in ["real/secret", "real/x.key", "real/open"] {
            project.file(path, "SECRET-WORD\n");
        }
        project.shell(&["ln", "-s", "real", "link"]).ok().done();
        let read =
            "cat link/open link/secret link/x.key real/secret real/x.key | grep -c SECRET-WORD";
        let times = |deny: &str| {
            project.manifest(&files(&format!("deny = [{deny}]")));
            project.lock();
            project.trust();
            project.run(&["/bin/sh", "-c", read]).stdout
        };
        assert_eq!(times("").trim(), "5", "control: nothing is denied");
        assert_eq!(times("\"link/secret\"").trim(), "3");
        assert_eq!(times("\"link/secret\", \"link/*.key\"").trim(), "1");
        // A symlink to the denied file does not stand for its other name.
        project.shell(&["ln", "real/secret", "innocent"]).ok().done();
        project.shell(&["ln", "-s", "real/secret", "denied-link"]).ok().done();
        project.manifest(&files("deny = [\"denied-link\", \"real/secret\"]"));
        project.lock();
        project.trust();
        let refused = project.run(&["cat", "innocent"]);
        assert!(
            refused.status != 0 && !refused.stdout.contains("SECRET-WORD"),
            "{}",
            refused.stdout
        );
    });
}

#[test]
fn what_every_sandbox_sees_is_not_said_to_be_denied() {
    each_user(|who| {
        let project = Project::new(who);
        let run = |deny: &str| {
            project.manifest(&files(&format!("deny = [\"{deny}\"]")));
            project.lock();
            project.trust();
            project.run(&["true"])
        };
        run("/usr/no/such/file").ok().done();
        let refused = run("/usr/bin/env");
        assert_ne!(refused.status, 0);
        refused.says(&["/usr/bin/env", "deny", "system"]).done();
    });
}

/// Waits for a person's change, and tells what it can do then.
const WAITS: &str = r#"
import os, time
open("there", "w").close()
while not os.path.exists("go"): time.sleep(0.02)
"#;

#[test]
fn what_is_uncovered_from_outside_ends_the_run() {
    each_wall(&[], |who, wall| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.file(".env", "SECRET=1\n");
        project.manifest(&files("write = [\"**\"]\ndeny = [\".env\"]"));
        project.lock();
        project.trust();
        for replaced in [None, Some(".env")] {
            project.file("wait.py", WAITS);
            let words = ["run", "--sandbox", wall.name(), "--json", "--", PYTHON, "wait.py"];
            let run = project.start(&words);
            eventually("the agent's start", || project.path().join("there").exists());
            std::fs::remove_file(project.path().join("there")).expect("our own");
            // In place it stays what it is; and other files are a person's own business.
            std::fs::write(project.path().join(".env"), "SECRET=2\n").expect("our own");
            std::fs::write(project.path().join("new"), "SECRET=3\n").expect("our own");
            match replaced {
                // As editors do, and git with its configuration.
                Some(file) => {
                    std::fs::rename(project.path().join("new"), project.path().join(file))
                        .expect("our own");
                    let output = run.finish().expect(124);
                    assert_eq!(output.last_json()["finished"]["limit"], "guard");
                    assert!(output.stderr.contains(".env"), "{}", output.stderr);
                    project.events().has("limit_reached", &[("limit", "guard")]);
                }
                None => {
                    project.file("go", "");
                    run.finish().ok().done();
                    std::fs::remove_file(project.path().join("go")).expect("our own");
                }
            }
        }
    });
}
