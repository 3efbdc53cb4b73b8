//! What of the file system is there, and what of it may be written.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use ringfence_sandbox::Rule;

use crate::Test;
use crate::support::{Case, Placeholder, REFUSED, User};

pub const TESTS: &[Test] = &[
    ("nothing_of_the_host_but_the_allow_list", nothing_of_the_host_but_the_allow_list),
    ("the_root_is_read_only", the_root_is_read_only),
    ("writes_go_where_they_are_declared", writes_go_where_they_are_declared),
    ("a_masked_path_shows_nothing", a_masked_path_shows_nothing),
    ("git_works_but_its_settings_hold", git_works_but_its_settings_hold),
    ("a_parent_cannot_be_renamed_away", a_parent_cannot_be_renamed_away),
    ("a_symlink_on_the_way_is_refused", a_symlink_on_the_way_is_refused),
    ("missing_paths_are_held_and_put_back", missing_paths_are_held_and_put_back),
    ("a_missing_path_in_a_missing_folder_is_held", a_missing_path_in_a_missing_folder_is_held),
    ("a_placeholder_that_was_filled_stays", a_placeholder_that_was_filled_stays),
    ("granted_paths_are_read_only", granted_paths_are_read_only),
    ("new_files_belong_to_the_owner", new_files_belong_to_the_owner),
    ("secret_files_of_the_machine_stay_shut", secret_files_of_the_machine_stay_shut),
    ("a_missing_present_path_is_refused", a_missing_present_path_is_refused),
    ("a_lock_of_somebody_else_does_not_matter", a_lock_of_somebody_else_does_not_matter),
    ("a_symlink_itself_can_be_held", a_symlink_itself_can_be_held),
];

fn nothing_of_the_host_but_the_allow_list(user: User) {
    let mut case = Case::new(user);
    // On the host, in the folder beside the project and in /tmp, there is something to see.
    let secret = case.outside().join("secret");
    fs::write(&secret, "s").unwrap();
    let root = case.sh("ls -A /").fine();
    let names: Vec<&str> = root.lines().collect();
    for name in &names {
        let known = ["bin", "dev", "etc", "home", "lib", "proc", "sbin", "tmp", "usr", "var"];
        assert!(known.contains(name) || name.starts_with("lib"), "{name}");
    }
    assert!(names.contains(&"usr"));
    assert_eq!(
        case.sh("ls -A /home /home/agent /var").fine(),
        "/home:\nagent\n\n/home/agent:\n\n/var:\ntmp\n"
    );
    let beside = case.sh(&format!("ls -A {}", case.outside().display())).fine();
    assert_eq!(beside, "project\n");
    let script = format!(
        "for p in /run /sys /root /opt /mnt {}; do ls $p && echo seen; done; true",
        secret.display()
    );
    assert_eq!(case.sh(&script).fine(), "");
}

fn the_root_is_read_only(user: User) {
    let mut case = Case::new(user);
    let script = "for d in / /usr /usr/bin /etc /dev /var /home /proc /proc/sys/kernel; do
            (echo x > $d/attempt) 2>/dev/null && echo wrote $d
            mkdir $d/attempt 2>/dev/null && echo made $d
        done
        for d in /tmp /home/agent /dev/shm /var/tmp; do echo x > $d/attempt && echo fine; done
        echo 1 > /proc/sys/kernel/panic && echo set
        chmod 777 /etc && echo changed
        true";
    assert_eq!(case.sh(script).fine(), "fine\nfine\nfine\nfine\n");
}

fn writes_go_where_they_are_declared(user: User) {
    let mut case = Case::new(user);
    case.file("src/a", "a");
    case.file("src/fixed/b", "b");
    case.file("docs/c", "c");
    case.file("alone", "d");
    case.rule("src", Rule::Writable)
        .rule("src/fixed", Rule::ReadOnly)
        .rule("alone", Rule::Writable);
    let script =
        "echo x > src/a && echo x > src/new && mkdir src/sub && mv src/new src/sub && echo fine
        echo y > alone && echo fine
        for f in src/fixed/b docs/c top docs/new src/fixed/new; do
            (echo x > $f) 2>/dev/null && echo wrote $f
            rm -f $f 2>/dev/null && [ -e $f ] || true
        done
        mv docs moved 2>/dev/null && echo moved
        cat src/fixed/b docs/c";
    assert_eq!(case.sh(script).fine(), "fine\nfine\nbc");
    let read = |path: &str| fs::read_to_string(case.project().join(path)).unwrap();
    assert_eq!(
        (read("src/a"), read("src/sub/new"), read("alone")),
        ("x\n".into(), "x\n".into(), "y\n".into())
    );
    assert_eq!((read("src/fixed/b"), read("docs/c")), ("b".into(), "c".into()));
}

fn a_masked_path_shows_nothing(user: User) {
    let mut case = Case::new(user);
    case.file(".env", "SECRET");
    case.file("keys/id", "SECRET");
    case.file("plain", "visible");
    case.rule("", Rule::Writable).rule(".env", Rule::Masked).rule("keys", Rule::Masked);
    let script = "cat .env keys/id; ls keys; head -c 9 < .env; echo x > .env; echo x > keys/new
        rm -f .env; rm -rf keys; mv .env other; mv keys others; chmod 777 .env keys
        ln .env hard; ln -s .env soft; cat soft; cat /proc/self/root$PWD/.env
        cat plain";
    assert_eq!(case.sh(script).ends(0), "visible");
    assert_eq!(fs::read_to_string(case.project().join(".env")).unwrap(), "SECRET");
    assert_eq!(fs::read_to_string(case.project().join("keys/id")).unwrap(), "SECRET");
    assert!(!case.project().join("hard").exists());
}

fn git_works_but_its_settings_hold(user: User) {
    let mut case = Case::new(user);
    case.file("a", "a");
    let project = case.project().to_path_buf();
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        assert!(command.arg("-C").arg(&project).args(words).output().unwrap().status.success());
    };
    git(&["init", "-q", "."]);
    let chown = std::process::Command::new("chown")
        .arg("-R")
        .arg(format!("--reference={}", project.display()))
        .arg(project.join(".git"))
        .status();
    assert!(chown.unwrap().success());
    case.rule("", Rule::Writable).rule(".git", Rule::Pinned);
    for fixed in ["hooks", "config", "info"] {
        case.rule(&format!(".git/{fixed}"), Rule::ReadOnly);
    }
    case.missing(".git/modules", Rule::Masked, Placeholder::Dir);
    let script =
        "git add a && git -c user.name=a -c user.email=a@a commit -qm one && git log --format=%s
        git checkout -q -b other && git branch --list other | grep -q other && echo branched
        (echo x > .git/hooks/pre-commit) 2>/dev/null && echo hooked
        git config core.hooksPath /tmp 2>/dev/null && echo configured
        (echo x > .git/info/attributes) 2>/dev/null && echo attributes
        mkdir .git/modules/x 2>/dev/null && echo modules
        mv .git git 2>/dev/null && echo renamed
        mv .git/hooks .git/h 2>/dev/null && echo renamed hooks
        rm -rf .git/config 2>/dev/null; [ -s .git/config ] && echo there";
    assert_eq!(case.sh(script).fine(), "one\nbranched\nthere\n");
    assert!(!project.join(".git/modules").exists());
    let log = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "-C"])
        .arg(&project)
        .args(["log", "--format=%s"])
        .output();
    assert_eq!(log.unwrap().stdout, b"one\n");
}

fn a_parent_cannot_be_renamed_away(user: User) {
    let mut case = Case::new(user);
    case.file("a/b/settings.json", "{}");
    case.file("free/b/x", "x");
    case.rule("", Rule::Writable).rule("a/b/settings.json", Rule::ReadOnly);
    let script =
        "for p in a a/b a/b/settings.json; do mv $p moved 2>/dev/null && echo moved $p; done
        rm -rf a 2>/dev/null
        echo evil > new && mv -T new a/b/settings.json 2>/dev/null && echo replaced
        ln -f new a/b/settings.json 2>/dev/null && echo linked
        mv free away && echo control
        cat a/b/settings.json; echo x > a/b/other && echo sibling";
    assert_eq!(case.sh(script).fine(), "control\n{}sibling\n");
    let settings = case.project().join("a/b/settings.json");
    assert_eq!(fs::read_to_string(settings).unwrap(), "{}");
}

fn a_symlink_on_the_way_is_refused(user: User) {
    let mut case = Case::new(user);
    case.file("real/file", "x");
    std::os::unix::fs::symlink("real", case.project().join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", case.project().join("out")).unwrap();
    for path in ["link/file", "out/passwd", "../run"] {
        case.wish.mounts = vec![(path.into(), Rule::Writable, None)];
        case.sh("echo ran").ends(i32::from(REFUSED));
    }
    case.wish.mounts = vec![("real/file".into(), Rule::Writable, None)];
    assert_eq!(case.sh("echo y > real/file && cat link/file").fine(), "y\n");
}

fn missing_paths_are_held_and_put_back(user: User) {
    let mut case = Case::new(user);
    case.rule("", Rule::Writable);
    case.missing(".claude/settings.json", Rule::ReadOnly, Placeholder::File("{}".into()));
    case.missing(".claude/hooks", Rule::ReadOnly, Placeholder::Dir);
    case.missing(".mcp.json", Rule::ReadOnly, Placeholder::File("{}".into()));
    case.missing("hooks", Rule::Masked, Placeholder::Dir);
    case.missing("build/out", Rule::Writable, Placeholder::Keep);
    let script = "cat .mcp.json; ls -A .claude
        mkdir .claude/hooks 2>/dev/null && echo made
        (echo x > .claude/settings.json) 2>/dev/null && echo wrote
        (echo x > .mcp.json) 2>/dev/null && echo wrote
        ls hooks 2>/dev/null && echo listed
        mv .claude c 2>/dev/null && echo moved
        mv .mcp.json c 2>/dev/null && echo moved
        echo x > build/out/f && echo fine";
    assert_eq!(case.sh(script).fine(), "{}fine\n");
    let left: Vec<_> =
        fs::read_dir(case.project()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["build"], "placeholders are gone, the declared scope stays");
    let (project, made) = (
        fs::metadata(case.project()).unwrap(),
        fs::metadata(case.project().join("build/out/f")).unwrap(),
    );
    assert_eq!(made.uid(), project.uid());
    assert_eq!(case.journals(), 0);
}

fn a_missing_path_in_a_missing_folder_is_held(user: User) {
    let mut case = Case::new(user);
    case.rule("", Rule::Writable);
    case.missing("cfg", Rule::Pinned, Placeholder::Dir);
    case.missing("cfg/deep", Rule::Pinned, Placeholder::Dir);
    case.missing("cfg/deep/key", Rule::Masked, Placeholder::Dir);
    case.missing("cfg/hooks", Rule::ReadOnly, Placeholder::Dir);
    case.missing("cfg/mcp.json", Rule::ReadOnly, Placeholder::File("{}".into()));
    let held = "(echo x > cfg/mcp.json) 2>/dev/null && echo wrote
        (echo x > cfg/hooks/a) 2>/dev/null && echo wrote
        (rmdir cfg/hooks || rm -f cfg/mcp.json && [ ! -e cfg/mcp.json ]) 2>/dev/null && echo removed
        (echo x > cfg/deep/key || echo x > cfg/deep/key/x) 2>/dev/null && echo wrote
        for d in cfg cfg/deep cfg/deep/key cfg/hooks cfg/mcp.json; do
            mv $d moved 2>/dev/null && echo moved $d; rm -rf moved
        done; true";
    assert_eq!(case.sh(held).fine(), "");
    assert_eq!(fs::read_dir(case.project()).unwrap().count(), 0, "all of it is put back");
    // The folders themselves are the agent's to use, and what it puts there stays.
    assert_eq!(case.sh(&format!("echo x > cfg/deep/free && {held}")).fine(), "");
    assert_eq!(fs::read_to_string(case.project().join("cfg/deep/free")).unwrap(), "x\n");
    let left = |path: &str| fs::read_dir(case.project().join(path)).unwrap().count();
    assert_eq!((left("cfg"), left("cfg/deep"), case.journals()), (1, 1, 0));
}

fn a_placeholder_that_was_filled_stays(user: User) {
    let mut case = Case::new(user);
    case.missing("held", Rule::ReadOnly, Placeholder::Dir);
    case.missing("file", Rule::ReadOnly, Placeholder::File("{}".into()));
    let mut child = case.start("echo up; cat /dev/zero | head -c 1 > /dev/null; sleep 60");
    let mut line = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    // Somebody on the host puts work into them while the run goes on.
    fs::write(case.project().join("held/work"), "w").unwrap();
    fs::write(case.project().join("file"), "work").unwrap();
    let init = rustix::process::Pid::from_raw(i32::try_from(case.report().pid).unwrap()).unwrap();
    rustix::process::kill_process(init, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(case.project().join("held/work")).unwrap(), "w");
    assert_eq!(fs::read_to_string(case.project().join("file")).unwrap(), "work");
}

fn granted_paths_are_read_only(user: User) {
    let mut case = Case::new(user);
    let granted = case.outside().join("granted");
    fs::create_dir(&granted).unwrap();
    fs::write(granted.join("data"), "data").unwrap();
    fs::set_permissions(&granted, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(granted.join("data"), fs::Permissions::from_mode(0o666)).unwrap();
    case.wish.read = vec![granted.clone()];
    let at = granted.display();
    let script = format!(
        "cat {at}/data; (echo x > {at}/data) 2>/dev/null || (echo x > {at}/new) 2>/dev/null || echo no"
    );
    assert_eq!(case.sh(&script).fine(), "datano\n");
}

fn new_files_belong_to_the_owner(user: User) {
    let mut case = Case::new(user);
    if user == User::Root {
        // Neither root nor anybody that runs anything here.
        chown(case.project(), Some(4242), Some(4343)).unwrap();
    }
    let owner = fs::metadata(case.project()).unwrap();
    fs::set_permissions(case.project(), fs::Permissions::from_mode(0o700)).unwrap();
    case.rule("", Rule::Writable);
    let script = "echo x > new && mkdir folder && stat -c %u:%g . new folder && id -u && id -un";
    assert_eq!(case.sh(script).fine(), "1000:1000\n1000:1000\n1000:1000\n1000\nagent\n");
    for name in ["new", "folder"] {
        let made = fs::metadata(case.project().join(name)).unwrap();
        assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()), "{name}");
    }
}

fn secret_files_of_the_machine_stay_shut(user: User) {
    let mut case = Case::new(user);
    let private = case.outside().join("private");
    fs::write(&private, "SECRET").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    let script = "cat /etc/shadow /etc/gshadow /proc/kcore /proc/kallsyms /proc/1/environ /proc/1/mem 2>/dev/null | head -c 1
        ls /proc/1/root/ /proc/1/cwd/ /proc/1/fd 2>/dev/null
        cat /proc/keys 2>/dev/null; cat /etc/passwd | grep -c agent";
    assert_eq!(case.sh(script).fine(), "1\n");
    if user == User::Root {
        // Granted by path, but root's alone: root's agent is not root.
        case.wish.read = vec![private.clone()];
        assert_eq!(
            case.sh(&format!("cat {} 2>/dev/null; echo end", private.display())).fine(),
            "end\n"
        );
    }
}

fn a_missing_present_path_is_refused(user: User) {
    let mut case = Case::new(user);
    case.rule("not/there", Rule::ReadOnly);
    let ran = case.sh("echo ran");
    ran.ends(i32::from(REFUSED));
    assert!(ran.stderr().contains("not/there"), "{}", ran.stderr());
}

fn a_symlink_itself_can_be_held(user: User) {
    let mut case = Case::new(user);
    case.file("target", "t");
    for name in ["shut", "fixed", "free"] {
        std::os::unix::fs::symlink("target", case.project().join(name)).unwrap();
        rustix::fs::chownat(
            rustix::fs::CWD,
            case.project().join(name),
            None,
            None,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
    }
    case.rule("", Rule::Writable).rule("shut", Rule::Masked).rule("fixed", Rule::ReadOnly);
    let script = "cat shut 2>/dev/null && echo seen; cat fixed
        for f in shut fixed; do
            rm -f $f 2>/dev/null && echo removed $f
            mv $f moved 2>/dev/null && echo moved $f
            ln -sfn other $f 2>/dev/null && echo linked $f
        done
        ln -sfn other free && readlink free";
    assert_eq!(case.sh(script).fine(), "tother\n");
}

fn a_lock_of_somebody_else_does_not_matter(user: User) {
    let mut case = Case::new(user);
    let path = case.file("settings.json", "{}");
    let file = fs::File::open(path).unwrap();
    file.lock().unwrap();
    case.rule("", Rule::Writable);
    case.missing("settings.json", Rule::ReadOnly, Placeholder::File("{}".into()));
    case.missing("held", Rule::ReadOnly, Placeholder::Dir);
    let script = "(echo x > settings.json) 2>/dev/null || (echo x > held/x) 2>/dev/null || echo no";
    assert_eq!(case.sh(script).fine(), "no\n");
    assert!(!case.project().join("held").exists() && case.project().join("settings.json").exists());
}
