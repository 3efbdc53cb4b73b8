use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::{Who, Whose, named, of_project, on_machine};
use crate::{Manifest, parse_manifest};

fn manifest(text: &str) -> Manifest {
    let text = format!("version = 1\n{text}");
    parse_manifest(Path::new("ringfence.toml"), &text, None).expect("valid").0
}

struct Scene {
    _folder: tempfile::TempDir,
    root: PathBuf,
    project: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("project")).unwrap();
        Self { _folder: folder, project: root.join("project"), root }
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let file = self.root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    fn paths(&self, manifest: &Manifest, search: &str) -> Vec<(Who, PathBuf)> {
        let all = on_machine(manifest, &self.project, Some(search.as_ref()), &Whose::All);
        assert_eq!(all.missing, []);
        all.found.into_iter().map(|program| (program.who, program.path)).collect()
    }
}

const SERVER: &str = "[servers.s]\ntype = \"stdio\"\ncommand = \"tool\"\n";

#[test]
fn what_arguments_name_is_code_of_the_project() {
    let scene = Scene::new();
    scene.file("project/server.py", "");
    scene.file("project/tools/main.js", "");
    symlink("tools", scene.project.join("linked")).unwrap();
    let text = "[sandbox]\ncommand = [\"./tools/main.js\"]\n[servers.s]\ntype = \"stdio\"\ncommand = \"python3\"\nargs = [\"server.py\", \"-v\", \"--main=linked/main.js\", \"absent.py\", \".\", \"../x.py\"]\n";
    let manifest = manifest(text);
    let pinned: Vec<_> = of_project(&manifest, &scene.project).into_keys().collect();
    assert_eq!(pinned, ["server.py", "tools/main.js"]);
    let named = named(&manifest, &scene.project);
    assert!(named.iter().any(|(_, path, _)| path.ends_with("linked/main.js")), "{named:?}");
}

#[test]
fn a_script_brings_its_interpreter_and_that_ones() {
    let scene = Scene::new();
    let last = scene.file("bin/last", "binary");
    let middle = scene.file("bin/middle", &format!("#!{}\n", last.display()));
    let tool = scene.file("bin/tool", &format!("#! {} -x\n", middle.display()));
    let search = scene.root.join("bin");
    let found = scene.paths(&manifest(SERVER), search.to_str().unwrap());
    let server = Who::Server("s".to_owned());
    assert_eq!(found, [last, middle, tool].map(|path| (server.clone(), path)));
}

#[test]
fn a_first_line_is_read_as_the_kernel_and_env_read_it() {
    let scene = Scene::new();
    let sh = Path::new("/bin/sh").canonicalize().unwrap();
    symlink("/usr/bin/env", scene.root.join("other")).unwrap();
    let other = scene.root.join("other").display().to_string();
    let search = scene.root.join("bin");
    let brings = |line: &str| {
        scene.file("bin/tool", &format!("{line}\n"));
        let all = on_machine(&manifest(SERVER), &scene.project, Some(search.as_ref()), &Whose::All);
        assert!(all.missing.len() <= 1);
        all.missing.is_empty().then(|| all.found.iter().any(|program| program.path == sh))
    };
    for line in [
        "#!/usr/bin/env sh",
        "#!/usr/bin/env -S sh -e",
        "#!/usr/bin/env -Ssh",
        "#!/usr/bin/env -vS sh",
        "#!/usr/bin/env --split-string=sh -e",
        "#!/usr/bin/env -S A=1 sh",
        "#! /bin/sh -e",
        &format!("#!{other} sh"),
        "#!/usr/bin/nice sh",
    ] {
        assert_eq!(brings(line), Some(true), "{line}");
    }
    for line in [
        "#!bin/sh",
        "#!/bin/sh\r",
        "#!/bin/sh\u{c}x",
        "#!/usr/bin/env",
        "#!/usr/bin/env -S PATH=/x sh",
        "#!/usr/bin/env -u A sh",
        "#!/usr/bin/env -S 'sh'",
        "#!/usr/bin/env -S ${X} sh",
    ] {
        assert_eq!(brings(line), None, "{line}");
    }
    assert_eq!(brings(&format!("#!/bin/sh {}", "x".repeat(240))), Some(true), "control");
    assert_eq!(brings(&format!("#!/bin/sh {}", "x".repeat(250))), None, "longer than is read");
    assert_eq!(brings("no such line"), Some(false), "control");
}

#[test]
fn a_path_that_is_no_text_cannot_be_said_yes_to() {
    use std::os::unix::ffi::OsStrExt as _;
    let scene = Scene::new();
    let tool = scene.file("bin/tool", "x");
    let search = scene.root.join("bin");
    let ask = || on_machine(&manifest(SERVER), &scene.project, Some(search.as_ref()), &Whose::All);
    assert_eq!(ask().missing, [], "control");
    let odd = scene.root.join(std::ffi::OsStr::from_bytes(b"t\xff"));
    fs::rename(&tool, &odd).unwrap();
    symlink(&odd, &tool).unwrap();
    let found = ask();
    assert_eq!(found.found, []);
    assert!(found.missing[0].1.contains("not UTF-8"), "{:?}", found.missing);
}

#[test]
fn env_looks_where_a_sandbox_does() {
    let scene = Scene::new();
    scene.file("bin/sh", "not the one that a sandbox finds");
    scene.file("bin/tool", "#!/usr/bin/env sh\n");
    let search = scene.root.join("bin");
    let found = scene.paths(&manifest(SERVER), search.to_str().unwrap());
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|(_, path)| *path != scene.root.join("bin/sh")), "{found:?}");
}

#[test]
fn interpreters_that_go_round_end() {
    let scene = Scene::new();
    let a = scene.root.join("bin/a");
    scene.file("bin/tool", &format!("#!{}\n", a.display()));
    scene.file("bin/a", &format!("#!{}\n", a.display()));
    let search = scene.root.join("bin");
    assert_eq!(scene.paths(&manifest(SERVER), search.to_str().unwrap()).len(), 2);
}

#[test]
fn what_path_finds_in_the_project_is_kept_where_no_lock_pins_it() {
    let scene = Scene::new();
    let tool = scene.file("project/bin/tool", "x");
    let search = scene.project.join("bin");
    let found = scene.paths(&manifest(SERVER), search.to_str().unwrap());
    assert_eq!(found, [(Who::Server("s".to_owned()), tool)]);
    let by_path = manifest("[servers.s]\ntype = \"stdio\"\ncommand = \"./bin/tool\"\n");
    assert_eq!(scene.paths(&by_path, "/usr/bin"), [], "the lock pins it");
}

#[test]
fn only_those_asked_about_are_read() {
    let scene = Scene::new();
    let text = format!("[sandbox]\ncommand = [\"absent\"]\n{SERVER}");
    let manifest = manifest(&text);
    scene.file("bin/tool", "x");
    let search = scene.root.join("bin").into_os_string();
    let ask = |whose| on_machine(&manifest, &scene.project, Some(&search), &whose);
    assert_eq!(ask(Whose::All).missing.len(), 1);
    assert_eq!(ask(Whose::Servers).missing, []);
    assert_eq!(ask(Whose::Only(Who::Agent)).found, []);
    assert_eq!(ask(Whose::Only(Who::Server("s".to_owned()))).found.len(), 1);
}

#[test]
fn our_own_name_is_the_running_program() {
    let scene = Scene::new();
    scene.file("bin/ringfence", "another");
    let path = scene.root.join("bin").into_os_string();
    let found = super::resolve_program("ringfence", &scene.project, Some(&path)).unwrap();
    assert_eq!(found, std::env::current_exe().unwrap());
}

#[test]
fn a_name_is_looked_up_on_absolute_entries_only() {
    let scene = Scene::new();
    let tool = scene.file("bin/tool", "x");
    let path = std::env::join_paths([Path::new("."), &scene.root.join("bin")]).unwrap();
    let resolve = |path: &std::ffi::OsStr| super::resolve_program("tool", &scene.root, Some(path));
    assert_eq!(resolve(&path).unwrap(), tool);
    assert!(resolve(".".as_ref()).is_err());
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(resolve(&path).is_err(), "not executable");
}
