use std::fs;
use std::path::Path;

use super::of_project;
use crate::parse_manifest;

/// What a manifest's commands name in a project that holds these files.
fn named(manifest: &str, files: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let project = dir.path().canonicalize().expect("real");
    for file in files {
        let path = project.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, "x").expect("written");
    }
    let text = format!("version = 1\n{manifest}\n");
    let (manifest, _) = parse_manifest(Path::new("m"), &text, None).expect("a manifest");
    of_project(&manifest, &project).into_iter().map(|(path, key)| format!("{path} {key}")).collect()
}

fn server(command: &str, args: &str) -> String {
    format!("[servers.s]\ntype = \"stdio\"\ncommand = \"{command}\"\nargs = {args}")
}

#[test]
fn files_modules_and_folders_that_arguments_name_are_found() {
    let files = ["server.py", "weather/server.py", "weather/__init__.py", "notes.md"];
    for (command, args, found) in [
        ("python3", r#"["server.py"]"#, vec!["server.py servers.s.args"]),
        ("python3", r#"["--entry=server.py"]"#, vec!["server.py servers.s.args"]),
        ("python3", r#"["notes.md", "absent.py", "/usr/bin/env"]"#, vec![]),
        (
            "uv",
            r#"["--directory", "./weather", "run", "server.py"]"#,
            vec!["server.py servers.s.args", "weather/server.py servers.s.args"],
        ),
        ("python3", r#"["-m", "weather.server"]"#, vec!["weather/server.py servers.s.args"]),
        ("python3", r#"["-m", "weather"]"#, vec!["weather/__init__.py servers.s.args"]),
        ("python3", r#"["-x", "weather.server"]"#, vec![]),
    ] {
        assert_eq!(named(&server(command, args), &files), found, "{command} {args}");
    }
}

#[test]
fn an_agents_script_is_found_and_what_it_works_on_is_not() {
    let command =
        |words: &str| named(&format!("[sandbox]\ncommand = {words}"), &["jobs/report.py"]);
    let found = ["jobs/report.py sandbox.command"];
    assert_eq!(command(r#"["python3.13", "jobs/report.py"]"#), found);
    assert_eq!(command(r#"["/usr/bin/python3", "jobs/report.py"]"#), found);
    assert!(command(r#"["editor", "jobs/report.py"]"#).is_empty());
}

#[test]
fn what_a_hook_runs_is_found_between_the_signs_of_a_shell() {
    let hook = |command: &str| {
        let text = format!("[hooks.h]\nevent = \"stop\"\ncommand = '''{command}'''");
        named(&text, &["bin/lint.sh", "doc.txt"])
    };
    let found = ["bin/lint.sh hooks.h.command"];
    for command in [
        "./bin/lint.sh",
        "sh bin/lint.sh --fix",
        "true;bin/lint.sh",
        "x && \"./bin/lint.sh\" doc.txt",
    ] {
        assert_eq!(hook(command), found, "{command}");
    }
    assert!(hook("cat doc.txt").is_empty());
}
