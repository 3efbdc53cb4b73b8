//! The sandboxes `docker` and `lockdown` where something is not as it should be: engines that are absent,
//! elsewhere or set up oddly, images that are not there, limits, other runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use ringfence_tests::behind::tools;
use ringfence_tests::{
    Between, Engine, PYTHON, Project, TestNet, Wall, Who, each_user, each_wall, eventually,
};
use rustix::process::Signal;
use serde_json::json;

use crate::bundles::{SMALL, files, hosts};

#[test]
fn an_engine_that_cannot_hold_a_sandbox_refuses_the_run_and_says_why() {
    each_user(|who| {
        let mut project = Project::new(who);
        project.behind(Wall::Docker);
        project.manifest(SMALL);
        project.lock();
        project.trust();
        for (host, why) in [
            ("unix:///nonexistent/engine.sock", "start Docker Engine"),
            ("ssh://somebody@elsewhere.example.com", "remote engine"),
            ("tcp://198.51.100.7:2376", "remote engine"),
            ("nonsense", "expected unix:///path"),
        ] {
            project.env("DOCKER_HOST", host);
            let output = project.run(&["true"]);
            assert_ne!(output.status, 0, "{host}");
            assert!(output.stderr.contains(why), "{host}: {}", output.stderr);
            assert!(!output.stderr.contains("ENFORCED"), "{host}: {}", output.stderr);
        }
        // Nothing weaker was used in its place, and what was tried is in the record.
        project.events().has("run_finished", &[("ended_by", "error")]);
    });
}

#[test]
fn a_bundle_without_an_image_is_refused_before_anything_is_asked() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        for sandbox in ["docker", "lockdown"] {
            let output = project.ringfence(&["run", "--sandbox", sandbox, "--", "true"]).expect(1);
            assert!(output.stderr.contains("needs an image"), "{}", output.stderr);
            assert!(output.stderr.contains("[sandbox]"), "{}", output.stderr);
        }
        assert!(project.runs().is_empty());
    });
}

#[test]
fn what_is_not_in_the_engine_is_not_pulled_and_odd_engines_hold_too() {
    assert!(Who::suite_is_root(), "an engine is root's to start");
    let net = TestNet::new(Who::Itself, &[("allowed.example.com", json!([TestNet::PUBLIC]))]);
    // IPv6 for all containers by default, and networks from a pool of somebody's own.
    let settings = json!({
        "ipv6": true,
        "fixed-cidr-v6": "fd00:dead::/64",
        "default-address-pools": [{ "base": "10.201.0.0/16", "size": 24 }],
        // The same program under a name of its own: what is asked for is what is used.
        "runtimes": { "own": { "path": tools().join("debian/bin/runc") } },
    });
    let engine = Engine::with(&net, &settings.to_string(), &[Engine::AGENT]);
    let mut project = Project::new(Who::Itself);
    net.host(&mut project);
    project.behind(Wall::Docker).env("DOCKER_HOST", &engine.host());
    project.manifest(&hosts(&["allowed.example.com"]));
    project.lock();
    project.trust();
    let cases = project.agent(
        r#"https("allowed", "allowed.example.com:443")
say("six", body=read("/proc/net/if_inet6"))
say("address", body=proxy()[0][0])"#,
    );
    assert!(cases.body("allowed").contains("tls host"), "{}", cases.get("allowed"));
    assert!(cases.body("address").starts_with("10.201."), "{}", cases.get("address"));
    let six = cases.body("six");
    assert!(six.lines().all(|line| line.ends_with("lo")), "{six}");

    for (runtime, known) in [("own", true), ("runsc", false)] {
        let manifest = hosts(&["allowed.example.com"]);
        project.manifest(&format!("{manifest}\n[sandbox]\nruntime = \"{runtime}\"\n"));
        project.lock();
        project.trust();
        let output = project.run(&["sh", "-c", "echo it runs"]);
        assert_eq!(output.stdout == "it runs\n", known, "{runtime}: {}", output.stderr);
        if known {
            project.events().has("sandbox_image", &[("runtime", runtime)]);
        } else {
            assert!(output.stderr.contains("has no runtime `runsc`"), "{}", output.stderr);
        }
    }

    project.manifest("version = 1\n[sandbox]\nimage = \"not-there:1\"\n[agent]\nname = \"case\"\n");
    let text = fs::read_to_string(project.path().join(".ringfence/ringfence.toml")).unwrap();
    let text = text.replace("image = \"agent:1\"\n", "");
    project.file(".ringfence/ringfence.toml", text);
    project.lock();
    project.trust();
    let output = project.run(&["true"]);
    assert_ne!(output.status, 0);
    assert!(output.stderr.contains("none is pulled"), "{}", output.stderr);
    assert_eq!(engine.left(), Vec::<String>::new());
}

#[test]
fn limits_bind_and_what_another_run_has_is_left_alone() {
    assert!(Who::suite_is_root(), "an engine is root's to start");
    let net = TestNet::new(Who::Itself, &[]);
    let mut project = Project::new(Who::Itself);
    let engine = Wall::Docker.around(&mut project, &net).expect("it has an engine");
    project.manifest(&format!("{SMALL}\n[sandbox]\ndisk_mb = 64\npids = 40\n"));
    project.lock();
    project.trust();
    let cases = project.agent(
        r#"
def fill(folder):
    def go():
        with open(folder + "/big", "wb") as file:
            for _ in range(80): file.write(b"x" * (1 << 20)); file.flush()
        return True
    return go
attempt("small file", lambda: write("/tmp/small", "x" * 1000))
for folder in ["/tmp", os.path.expanduser("~"), "/dev/shm"]:
    attempt("fill " + folder, fill(folder))
def many():
    children = []
    try:
        for _ in range(100):
            pid = os.fork()
            if pid == 0: time.sleep(5); os._exit(0)
            children.append(pid)
        return True
    finally:
        for pid in children: os.kill(pid, 9); os.waitpid(pid, 0)
attempt("one child", lambda: (os.waitpid(os.fork() or os._exit(0), 0), True)[1])
attempt("many children", many)
"#,
    );
    for case in ["small file", "one child"] {
        cases.happened(case);
    }
    for case in ["fill /tmp", "fill /home/agent", "fill /dev/shm", "many children"] {
        cases.refused(case);
    }

    // All that can be written anywhere is what the limit says, volumes of the image with it; and so are
    // files that hold nothing.
    let tar = at(&tools(), "image/agent.tar");
    engine.docker(&["import", "--change", "VOLUME /data/ /more /tmp", &tar, "volumes:1"]);
    let text = format!("{SMALL}\n[sandbox]\ndisk_mb = 64\nimage = \"volumes:1\"\n");
    project.file(".ringfence/ringfence.toml", text);
    project.lock();
    project.trust();
    let cases = project.agent(
        r#"
written, made = 0, 0
folders = ["/tmp", os.path.expanduser("~"), "/dev/shm", "/data", "/more"]
for folder in folders:
    try:
        for number in range(100000):
            open(f"{folder}/{number}", "w").close(); made += 1
    except OSError: pass
    for number in range(100000):
        try: os.unlink(f"{folder}/{number}")
        except OSError: break
for folder in folders:
    try:
        with open(folder + "/big", "wb", buffering=0) as file:
            for _ in range(1 << 16): written += file.write(b"x" * 4096)
    except OSError: pass
say("all", written=written, made=made)
"#,
    );
    let all = cases.get("all");
    let written = all["written"].as_u64().expect("a number");
    assert!((48 << 20..=64 << 20).contains(&written), "{all}");
    assert!((1000..=20_000).contains(&all["made"].as_u64().expect("a number")), "{all}");

    // Memory: the kernel ends what asks for more, and the run says which limit it was.
    project.manifest(&format!("{SMALL}\n[sandbox]\nmemory_mb = 64\n"));
    project.lock();
    project.trust();
    let python = |script: &str| {
        project.ringfence(&["run", "--sandbox", "docker", "--json", "--", PYTHON, "-c", script])
    };
    let output = python("b = bytearray(500 << 20); print(len(b))").expect(124);
    assert_eq!(output.last_json()["finished"]["limit"], "memory");
    project.events().has("limit_reached", &[("limit", "memory")]);
    let output = python("b = bytearray(5 << 20); print(len(b))").expect(0);
    assert!(output.last_json()["finished"]["limit"].is_null(), "the control");

    // One run lives, another has crashed: only the second one's things go.
    let live = project.start(&["run", "--sandbox", "docker", "--", "sleep", "600"]);
    eventually("the first run", || engine.left().len() == 4);
    let dead = project.start(&["run", "--sandbox", "docker", "--", "sleep", "601"]);
    eventually("the second run", || engine.left().len() == 8);
    dead.signal(Signal::KILL);
    dead.finish().done();
    project.ringfence(&["clean"]).ok().done();
    assert_eq!(engine.left().len(), 4, "{:?}", engine.left());
    live.signal(Signal::TERM);
    live.finish().done();
    assert_eq!(engine.left(), Vec::<String>::new());
}

#[test]
fn an_engine_that_made_something_else_is_found_out() {
    let net = TestNet::new(Who::Itself, &[]);
    let mut project = Project::new(Who::Itself);
    let engine = Wall::Docker.around(&mut project, &net).expect("it has one");
    project.manifest(SMALL);
    project.lock();
    project.trust();
    // As if it had not done what it was asked for, and says so.
    let open = "\"Internal\":false,\"Attachable\":null";
    for (asked, made, why) in [
        ("not of its words", "nothing to swap.", ""),
        ("\"Internal\":true,\"Attachable\":false", open, "is not internal"),
        ("\"EnableIPv6\":false", "\"EnableIPv6\":true ", "has IPv6"),
        ("\"Dns\":[\"127.0.0.1\"]", "\"Dns\":[\"127.0.0.2\"]", "asks others"),
        ("\"Runtime\":\"runc\"", "\"Runtime\":\"rund\"", "runs under `rund`"),
    ] {
        let between = Between::new(&engine.host(), &[(asked, made)], |_| {});
        project.env("DOCKER_HOST", &between.host());
        let run = project.run(&["true"]);
        assert_eq!(run.status == 0, why.is_empty(), "{asked}: {}", run.stderr);
        assert!(run.stderr.contains(why), "{why}: {}", run.stderr);
        assert_eq!(run.stderr.contains("ENFORCED"), why.is_empty(), "{why}: {}", run.stderr);
        assert_eq!(engine.left(), Vec::<String>::new());
    }
}

#[test]
fn a_granted_path_that_is_exchanged_on_the_way_to_the_engine_is_not_what_was_granted() {
    each_user(|who| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let engine = Wall::Docker.around(&mut project, &net).expect("it has one");
        let root = project.home();
        project.shell(&["mkdir", "-p", &at(&root, "shared/data"), &at(&root, "other")]).ok().done();
        fs::write(root.join("shared/data/file"), "granted").expect("our own");
        fs::write(root.join("other/file"), "not granted").expect("our own");
        let folder = at(&root, "shared/data");
        project.manifest(&files(&format!("read = [\"**\", \"{folder}/**\"]")));
        project.lock();
        project.trust();
        let read = format!("cat {folder}/file");
        let output = project.run(&["sh", "-c", &read]).ok();
        assert_eq!(output.stdout, "granted", "the control: it is mounted");
        // Whoever may write beside it exchanges it once everything has been looked at.
        let from = root.clone();
        let between = Between::at_creation(&engine.host(), move || {
            fs::rename(from.join("shared/data"), from.join("shared/gone")).expect("our own");
            symlink(from.join("other"), from.join("shared/data")).expect("our own");
        });
        project.env("DOCKER_HOST", &between.host());
        let output = project.run(&["sh", "-c", &read]);
        assert_eq!((output.status, output.stdout.as_str()), (255, ""), "{}", output.stderr);
        assert!(output.stderr.contains("mounted something else"), "{}", output.stderr);
        assert!(!output.stderr.contains("ENFORCED"), "{}", output.stderr);
        assert_eq!(engine.left(), Vec::<String>::new());
    });
}

#[test]
fn a_denied_file_whose_folder_is_exchanged_on_the_way_to_the_engine_is_not_read() {
    each_user(|who| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let engine = Wall::Docker.around(&mut project, &net).expect("it has one");
        project.file("keys/secret.txt", "the secret");
        project.file("keys/plain.txt", "plain");
        project.manifest(&files("read = [\"**\"]\ndeny = [\"keys/secret.txt\"]"));
        project.lock();
        project.trust();
        let all = ["sh", "-c", "cat keys/plain.txt */secret.txt; true"];
        let output = project.run(&all).ok();
        assert_eq!(output.stdout, "plain", "the control: it is denied");
        // Another run with the project, or whoever else may write it, puts a decoy in its place.
        for link in [false, true] {
            let path = project.path();
            let between = Between::at_creation(&engine.host(), move || {
                fs::rename(path.join("keys"), path.join("gone")).expect("our own");
                let decoy = if link { "decoy" } else { "keys" };
                fs::create_dir(path.join(decoy)).expect("our own");
                for name in ["secret.txt", "plain.txt"] {
                    fs::write(path.join(decoy).join(name), "decoy").expect("our own");
                }
                who.own(&path.join(decoy));
                if link {
                    symlink("decoy", path.join("keys")).expect("our own");
                }
            });
            project.env("DOCKER_HOST", &between.host());
            let output = project.run(&all);
            assert!(!output.stdout.contains("the secret"), "{link}: it was read");
            assert_eq!((output.status, output.stdout.as_str()), (255, ""), "{}", output.stderr);
            assert!(!output.stderr.contains("ENFORCED"), "{}", output.stderr);
            assert!(
                project.path().join("gone/secret.txt").exists(),
                "the control: it was exchanged"
            );
            let undo = "rm -r keys; mv gone keys; rm -rf decoy";
            project.shell(&["sh", "-c", undo]).ok().done();
        }
        assert_eq!(engine.left(), Vec::<String>::new());
    });
}

#[test]
fn a_program_of_the_project_is_held_to_what_was_shown() {
    each_wall(&[11], |who, wall| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let engine = wall.around(&mut project, &net);
        let write = |text: &str| {
            let file = project.file("agent.sh", format!("#!/bin/sh\necho {text}\n"));
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("our own");
        };
        write("first");
        project.manifest("version = 1\n[sandbox]\ncommand = [\"./agent.sh\"]\n");
        project.lock();
        project.trust();
        let words = ["run", "--sandbox", wall.name()];
        assert_eq!(project.ringfence(&words).ok().stdout, "first\n", "the control");
        write("second");
        let run = project.ringfence(&words).expect(3);
        assert!(!run.stdout.contains("second"), "{}", run.stdout);
        let Some(engine) = engine else { return };
        write("first");
        let file = project.path().join("agent.sh");
        // After everything was looked at, when the engine is asked.
        let between = Between::at_creation(&engine.host(), move || {
            fs::write(&file, "#!/bin/sh\necho second\n").expect("our own");
        });
        let mut words = vec!["env".to_owned(), format!("DOCKER_HOST={}", between.host())];
        words.extend([project.program().display().to_string(), "-C".into()]);
        words.push(project.path().display().to_string());
        words.extend(["run", "--sandbox", wall.name()].map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let run = project.shell(&words).expect(3);
        assert!(!run.stdout.contains("second"), "{}", run.stdout);
        assert!(!run.stderr.contains("ENFORCED"), "{}", run.stderr);
    });
}

#[test]
fn a_name_never_leads_to_what_is_mounted() {
    let net = TestNet::new(Who::Itself, &[]);
    let mut project = Project::new(Who::Itself);
    let engine = Wall::Docker.around(&mut project, &net).expect("it has one");
    let file = project.file("bin/tool", "#!/bin/sh\necho of the project\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("our own");
    // An image may say where its programs are.
    let path = format!("ENV PATH={}:/usr/bin:/bin", at(&project.path(), "bin"));
    let tar = at(&tools(), "image/busybox.tar");
    engine.docker(&["import", "--change", &path, &tar, "odd:1"]);
    let text = format!("{SMALL}[sandbox]\nimage = \"odd:1\"\n");
    project.file(".ringfence/ringfence.toml", text);
    project.lock();
    project.trust();
    let run = project.run(&["tool"]).expect(255);
    assert!(run.stderr.contains("not the image's"), "{}", run.stderr);
    assert!(!run.stderr.contains("ENFORCED") && run.stdout.is_empty(), "{}", run.stderr);
    // The controls: by its path a person may, and the image's own are found.
    assert_eq!(project.run(&[&file.display().to_string()]).ok().stdout, "of the project\n");
    assert_eq!(project.run(&["echo", "found"]).ok().stdout, "found\n");
}

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}
