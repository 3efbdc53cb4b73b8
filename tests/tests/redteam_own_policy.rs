//! Row 12: an agent that writes its own policy, lock, trust or settings, makes a missing one, renames
//! over it, links to it, or makes its parent.

use ringfence_tests::{Project, each_user};

use crate::bundles::files;

const SCRIPT: &str = r##"
def remove(p): os.unlink(p); return True
def link_then_write(p):
    os.link(p, "linked"); write("linked"); return True
def over(p):
    write("mine"); os.rename("mine", p); return True
def swap(p):
    os.rename(p, p + ".old"); os.makedirs(p); return True

attempt("control write", lambda: write("src/free.txt"))
attempt("control rename", lambda: over("src/free.txt"))
attempt("control folder", lambda: (os.makedirs("src/a/b"), True)[1])
attempt("control set-id", lambda: (os.chmod("src/free.txt", 0o755), True)[1])
for bits in [0o4755, 0o2755, 0o6711]:
    attempt(f"set-id {bits:o}", lambda: (os.chmod("src/free.txt", bits), True)[1])
    attempt(f"set-id {bits:o} made", lambda: (os.close(os.open(f"src/id{bits}", os.O_CREAT | os.O_WRONLY, bits)), True)[1])
attempt("control link", lambda: (os.link("src/free.txt", "src/linked"), True)[1])

there = [".ringfence/ringfence.toml", ".ringfence/ringfence.lock", ".mcp.json", ".claude/settings.json", ".codex/config.toml"]
missing = [".ringfence/ringfence.local.toml", ".ringfence/new", ".ringfence/skills/x", ".claude/settings.local.json",
           ".cursor/mcp.json", ".gemini/settings.json", "opencode.json",
           # Neither the folder nor what is in it is there: the folder itself is the agent's to use.
           ".github/hooks/x.json", ".github/mcp.json"]
for p in there:
    attempt("write " + p, lambda: write(p))
    attempt("append " + p, lambda: (open(p, "a").write("x"), True)[1])
    attempt("unlink " + p, lambda: remove(p))
    attempt("link " + p, lambda: link_then_write(p))
    attempt("over " + p, lambda: over(p))
    attempt("symlink over " + p, lambda: (os.symlink("src/free.txt", "sym"), os.rename("sym", p), True)[2])
    attempt("chmod " + p, lambda: (os.chmod(p, 0o777), True)[1])
    attempt("truncate " + p, lambda: (os.truncate(p, 0), True)[1])
for p in missing:
    def make(p=p):
        os.makedirs(os.path.dirname(p) or ".", exist_ok=True)
        return write(p)
    attempt("make " + p, make)
    attempt("rename to " + p, lambda: over(p))
for folder in [".ringfence", ".claude", ".codex"]:
    attempt("swap " + folder, lambda: swap(folder))
    attempt("rmdir " + folder, lambda: (__import__("shutil").rmtree(folder), True)[1])
attempt("symlink .ringfence", lambda: (os.rename(".ringfence", "r"), os.symlink("src", ".ringfence"), True)[2])

project = os.getcwd()
home = os.path.join(os.path.dirname(project), "state")
attempt("machine state read", lambda: os.listdir(home))
attempt("machine trust write", lambda: write(os.path.join(home, "trust.json")))
attempt("machine policy write", lambda: write(os.path.join(home, "machine.toml")))
attempt("project parent rename", lambda: (os.rename(project, project + "2"), True)[1])
attempt("through proc root", lambda: write("/proc/self/root" + project + "/.ringfence/ringfence.toml"))
attempt("through proc 1 root", lambda: write("/proc/1/root" + project + "/.ringfence/ringfence.toml"))
attempt("through cwd", lambda: write("/proc/self/cwd/.ringfence/ringfence.toml"))
import subprocess
for name, line in {
    "remount": "mount -o remount,rw,bind " + project + "/.ringfence",
    "unmount": "umount -l " + project + "/.ringfence",
    "namespace": "unshare -Urm sh -c 'umount -l " + project + "/.ringfence; echo x >> " + project + "/.ringfence/ringfence.toml'",
}.items():
    say(name, done=subprocess.run(line, shell=True, stderr=subprocess.DEVNULL).returncode == 0)
"##;

#[test]
fn an_agent_cannot_change_what_holds_it() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]"));
        project.file(".mcp.json", "{}\n");
        project.file(".claude/settings.json", "{}\n");
        project.file(".codex/config.toml", "\n");
        project.file("src/free.txt", "free\n");
        project.file("agent.py", "");
        project.lock();
        project.trust();
        project.python();
        let before = project.picture(&project.path());
        let trust = std::fs::read(project.state().join("trust.json")).expect("there is trust");
        let cases = project.agent(SCRIPT);
        let controls: Vec<&str> = cases.names().filter(|n| n.starts_with("control")).collect();
        assert_eq!(controls.len(), 5);
        for case in cases.names() {
            if case.starts_with("control") { cases.happened(case) } else { cases.refused(case) }
        }
        assert!(cases.names().count() > 60, "only {} cases ran", cases.names().count());

        // From outside: every protected file is as it was, and no placeholder is left.
        let after = project.picture(&project.path());
        for (path, bytes) in &before {
            let name = path.strip_prefix(project.path()).expect("in the project");
            if !name.starts_with("src") && name.to_str() != Some("case.py") {
                assert_eq!(after.get(path), Some(bytes), "{} changed", name.display());
            }
        }
        let ours = ["src", "case.py", "mine", "linked", "sym"];
        for path in after.keys().filter(|p| !before.contains_key(*p)) {
            let name = path.strip_prefix(project.path()).expect("in the project");
            assert!(ours.iter().any(|o| name.starts_with(o)), "{} was left behind", name.display());
        }
        assert_eq!(
            std::fs::read(project.state().join("trust.json")).expect("there is trust"),
            trust
        );
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn without_a_write_scope_the_project_is_read_only() {
    each_user(|who| {
        let project = Project::ready(who, crate::bundles::SMALL);
        project.file("a.txt", "a\n");
        let cases = project.agent(
            "attempt('read', lambda: read('a.txt'))\n\
             attempt('write', lambda: write('a.txt'))\n\
             attempt('make', lambda: write('b.txt'))\n\
             attempt('home', lambda: write(os.path.expanduser('~/x')))\n\
             attempt('tmp', lambda: write('/tmp/x'))\n\
             attempt('usr', lambda: write('/usr/x'))\n\
             attempt('etc', lambda: write('/etc/x'))\n",
        );
        for case in ["read", "home", "tmp"] {
            cases.happened(case);
        }
        for case in ["write", "make", "usr", "etc"] {
            cases.refused(case);
        }
    });
}

/// The maker of the placeholders ends first; the other run stood on them.
#[test]
fn the_end_of_one_run_opens_nothing_to_another() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]\ndeny = [\"keys/private\"]"));
        project.lock();
        project.trust();
        let wait = |name: &str, then: &str| {
            let line =
                format!("touch {name}.up; until [ -e {name}.go ]; do sleep 0.02; done; {then}");
            let run = project.start(&["run", "--", "/bin/bash", "-c", &line]);
            let up = project.path().join(format!("{name}.up"));
            while !up.exists() {
                std::thread::yield_now();
            }
            run
        };
        let maker = wait("maker", "true");
        let other = wait(
            "other",
            "for f in .mcp.json .claude/settings.json .github/hooks/x keys/private; do \
             mkdir -p ${f%/*}; (echo evil > $f) 2>/dev/null && echo wrote $f; done; \
             echo x > control && echo control; ls -d .claude",
        );
        project.file("maker.go", "");
        maker.finish().ok().done();
        project.file("other.go", "");
        let said = other.finish().ok().stdout;
        assert!(said.contains("control"), "{said}");
        assert!(!said.contains("wrote") && said.contains(".claude"), "{said}");
        for path in [".mcp.json", ".claude", ".github", "keys"] {
            assert!(!project.path().join(path).exists(), "{path} was left behind");
        }
        let left = std::fs::read_dir(project.state().join("live")).expect("there is a list");
        assert_eq!(left.count(), 0);
    });
}

/// The machine's state has another name where a symlink is on the way to it.
#[test]
fn the_machines_state_cannot_be_granted_by_its_real_name() {
    each_user(|who| {
        let mut project = Project::new(who);
        let root = project.root().canonicalize().expect("it is there");
        std::os::unix::fs::symlink(".", root.join("elsewhere")).expect("it can be made");
        let state = root.join("elsewhere").join("state");
        project.env("RINGFENCE_HOME", &state.display().to_string());
        project.env("HOME", &root.join("elsewhere").join("home").display().to_string());
        std::fs::create_dir(root.join("granted")).expect("it can be made");
        let read = |name: &str| {
            let folder = root.join(name).display().to_string();
            project.manifest(&files(&format!("read = [\"**\", \"{folder}/**\"]")));
            project.lock();
            project.trust();
            project.run(&["ls", "-A", &folder])
        };
        read("granted").ok().done();
        for name in ["state", "state/identities", "state/runs"] {
            let refused = read(name);
            assert!(refused.status != 0 && refused.stdout.is_empty(), "{name}: {}", refused.stdout);
        }
    });
}

#[test]
fn a_machine_policy_of_another_user_is_not_obeyed() {
    each_user(|who| {
        let project = Project::ready(who, crate::bundles::SMALL);
        let file = project.machine("[policy]\nmax_duration_seconds = 60\n");
        project.run(&["true"]).ok().done();
        if !ringfence_tests::Who::suite_is_root() {
            return;
        }
        std::os::unix::fs::chown(&file, Some(0), Some(0)).expect("root may");
        project.run(&["true"]).ok().done();
        std::os::unix::fs::chown(&file, Some(1234), None).expect("root may");
        project.run(&["true"]).expect(1).says(&["machine.toml", "1234"]).done();
    });
}

#[test]
fn the_machines_state_is_not_read_by_another_name_of_it() {
    each_user(|who| {
        let mut project = Project::new(who);
        // The state by a path with a symlink in it, the grant by the real one.
        for name in ["real/state", "real/free"] {
            std::fs::create_dir_all(project.root().join(name)).expect("our own folder");
        }
        who.own(&project.root().join("real"));
        std::os::unix::fs::symlink("real", project.root().join("link")).expect("our own folder");
        let state = project.root().join("link/state").display().to_string();
        project.env("RINGFENCE_HOME", &state);
        let real = project.root().join("real").canonicalize().expect("it is there");
        let grant = |path: &str| {
            project.manifest(&format!(
                "version = 1\n[policy.filesystem]\nread = [\"**\", \"{}{path}/**\"]\n",
                real.display()
            ));
            project.lock();
            project.trust();
            project.run(&["ls", &format!("{}{path}", real.display())])
        };
        grant("/free").ok().done();
        for path in ["", "/state", "/state/identities"] {
            let run = grant(path);
            assert_eq!(run.status, 3, "{path}: {}{}", run.stdout, run.stderr);
        }
    });
}
