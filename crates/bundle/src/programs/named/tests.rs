use std::fs;
use std::path::Path;

use super::{of_project, unpinned};
use crate::parse_manifest;

/// What a manifest's commands name in a project that holds these files.
fn named(manifest: &str, files: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let project = dir.path().canonicalize().expect("real");
    for file in files {
        let path = project.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        let text = if file.ends_with(".json") { r#"{"main": "out/main"}"# } else { "x" };
        fs::write(path, text).expect("written");
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
fn however_an_argument_says_it_the_file_is_found() {
    let files = [
        "server.py",
        "app/api.py",
        "dist/index.js",
        "lib/hook.mjs",
        "pkg/package.json",
        "pkg/out/main.js",
        "weather/__main__.py",
        "lib/a.jar",
        "lib/b.jar",
        "bin/run.dll",
        "index.js",
    ];
    for (command, args, found) in [
        ("sh", r#"["-c", "cd . && exec python3 server.py --x"]"#, vec!["server.py"]),
        ("env", r#"["sh", "-c", "cd app; python3 api.py"]"#, vec!["app/api.py"]),
        ("fastmcp", r#"["run", "server.py:mcp"]"#, vec!["server.py"]),
        ("uvicorn", r#"["app.api:app"]"#, vec!["app/api.py"]),
        ("python3", r#"["-mapp.api"]"#, vec!["app/api.py"]),
        ("python3", r#"["weather"]"#, vec!["weather/__main__.py"]),
        ("node", r#"["dist/index"]"#, vec!["dist/index.js"]),
        ("node", r#"["dist"]"#, vec!["dist/index.js"]),
        ("node", r#"["."]"#, vec!["index.js"]),
        ("node", r#"["./pkg"]"#, vec!["pkg/out/main.js"]),
        ("node", r#"["--import=./lib/hook.mjs", "-r", "./lib/hook"]"#, vec!["lib/hook.mjs"]),
        ("java", r#"["-cp", "lib/a.jar:lib/b.jar", "Main"]"#, vec!["lib/a.jar", "lib/b.jar"]),
        ("java", r#"["-javaagent:lib/a.jar", "Main"]"#, vec!["lib/a.jar"]),
        ("dotnet", r#"["bin/run.dll"]"#, vec!["bin/run.dll"]),
        // What a server works on is not what it runs.
        ("npx", r#"["-y", "@x/filesystem", "."]"#, vec![]),
        ("python3", r#"["-c", "see server.py"]"#, vec![]),
    ] {
        let mut paths: Vec<_> = named(&server(command, args), &files)
            .iter()
            .map(|row| row.split(' ').next().expect("a path").to_owned())
            .collect();
        paths.dedup();
        assert_eq!(paths, found, "{command} {args}");
    }
}

#[test]
fn an_agent_that_another_program_starts_is_found() {
    let command = |words: &str| named(&format!("[sandbox]\ncommand = {words}"), &["main.py"]);
    let found = ["main.py sandbox.command"];
    assert_eq!(command(r#"["env", "-i", "A=1", "python3", "main.py"]"#), found);
    assert_eq!(command(r#"["timeout", "60", "/usr/bin/python3.13t", "main.py"]"#), found);
    assert_eq!(command(r#"["sh", "-c", "python3 main.py"]"#), found);
    assert!(command(r#"["env", "A=1", "editor", "main.py"]"#).is_empty());
}

#[test]
fn what_steers_a_command_and_is_not_pinned_is_told() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let project = dir.path().canonicalize().expect("real");
    for file in
        ["package.json", ".npmrc", "pyproject.toml", "w/pyproject.toml", "w/server.py", "conf.yaml"]
    {
        fs::create_dir_all(project.join(file).parent().expect("a parent")).expect("made");
        fs::write(project.join(file), "{}").expect("written");
    }
    for (command, args, expected) in [
        ("npx", r#"["-y", "@x/y"]"#, &[".npmrc", "package.json"][..]),
        (
            "uv",
            r#"["--directory", "w", "run", "server.py"]"#,
            &["pyproject.toml", "w/", "w/pyproject.toml"],
        ),
        ("sh", r#"["-c", "exec npx x"]"#, &[".npmrc", "package.json"]),
        ("tool", r#"["--config=conf.yaml", "/etc/passwd", "absent", "."]"#, &["conf.yaml"]),
        ("tool", r#"["w/server.py"]"#, &[]),
    ] {
        let text = format!("version = 1\n{}\n", server(command, args));
        let (manifest, _) = parse_manifest(Path::new("m"), &text, None).expect("a manifest");
        let found: Vec<_> = unpinned(&manifest, &project).into_values().flatten().collect();
        assert_eq!(found, expected, "{command} {args}");
    }
}

#[test]
fn a_hostile_list_of_folders_does_not_make_each_look_a_long_one() {
    let folders: Vec<String> = (0..40).map(|nth| format!("d{nth}")).collect();
    let args = format!("{:?}", [&folders[..], &["main.py".to_owned()]].concat());
    let files: Vec<String> = folders.iter().map(|folder| format!("{folder}/main.py")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let found = named(&server("python3", &args), &files);
    assert_eq!(found.len(), super::MOST_FOLDERS, "{found:?}");
    assert!(found.contains(&"d0/main.py servers.s.args".to_owned()), "control");
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
