//! Which files of a project the manifest's commands name.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use super::Who;
use crate::{Manifest, Template, Transport};

#[cfg(test)]
mod tests;

/// Names that an interpreter runs, whatever their mode.
const CODE: [&str; 15] = [
    "bash", "cjs", "jar", "js", "jsx", "lua", "mjs", "php", "pl", "ps1", "py", "rb", "sh", "ts",
    "wasm",
];

/// Programs whose arguments are what is run. What another agent program is given is what it works on.
const INTERPRETERS: [&str; 19] = [
    "bash", "bun", "dash", "deno", "java", "lua", "node", "npx", "perl", "php", "pwsh", "python",
    "ruby", "sh", "ts-node", "tsx", "uv", "uvx", "zsh",
];

/// A path that a command of the manifest names: whose it is, where it lies (links not followed, it
/// may lead anywhere) and the key that names it.
pub type Named = (Who, PathBuf, String);

/// What of the project the manifest's commands name: the program of the agent, of a stdio server, of
/// a hook, and what their arguments name that looks like code: a file, from the project or from a
/// folder that another argument names (`uv --directory ./weather run server.py`), or a Python module
/// (`python -m weather.server`). Of the agent's arguments only those of an interpreter count: another
/// program's may be what it works on. Whoever may write these decides what runs with the server's secrets
/// and hosts. What they load in turn is not known here.
#[must_use]
pub fn named(manifest: &Manifest, project: &Path) -> Vec<Named> {
    let mut found = Vec::new();
    let command = &manifest.sandbox.command;
    if let Some((program, args)) = command.split_first() {
        let args = if is_interpreter(program) { args } else { &[] };
        of_words(project, program, args, &mut |path, _| {
            found.push((Who::Agent, path, "sandbox.command".to_owned()));
        });
    }
    for (id, server) in &manifest.servers {
        let Transport::Stdio { command, args, .. } = &server.transport else { continue };
        let literal = |arg: &Template| arg.render(|_| Err::<&str, _>(())).ok();
        let args: Vec<String> = args.iter().filter_map(literal).collect();
        of_words(project, command, &args, &mut |path, part| {
            let key = match part {
                Part::Program => format!("servers.{id}.command"),
                Part::Argument => format!("servers.{id}.args"),
            };
            found.push((Who::Server(id.to_string()), path, key));
        });
    }
    for (id, hook) in &manifest.hooks {
        // A shell reads it; what stands between its signs may be a file.
        let between = |c: char| c.is_whitespace() || "\"'`;|&()<>$={}".contains(c);
        let words: Vec<String> = hook.command.split(between).map(str::to_owned).collect();
        of_words(project, "", &words, &mut |path, _| {
            found.push((Who::Hook(id.to_string()), path, format!("hooks.{id}.command")));
        });
    }
    found
}

/// As [`named`], each where it really is, relative to the project, which must be canonical; sorted,
/// with the manifest key that names it. These are what a lock pins.
#[must_use]
pub fn of_project(manifest: &Manifest, project: &Path) -> BTreeMap<String, String> {
    let named = named(manifest, project).into_iter();
    named.filter_map(|(_, path, keys)| Some((within(project, &path)?, keys))).collect()
}

/// Where in a command a path stands.
#[derive(Clone, Copy)]
enum Part {
    Program,
    Argument,
}

fn of_words(project: &Path, program: &str, args: &[String], found: &mut dyn FnMut(PathBuf, Part)) {
    if program.contains('/') {
        found(project.join(program), Part::Program);
    }
    let value = |arg: &'_ String| match arg.split_once('=') {
        Some((_, value)) if arg.starts_with('-') => value.to_owned(),
        _ => arg.clone(),
    };
    let values: Vec<String> = args.iter().map(value).filter(|it| !it.is_empty()).collect();
    let mut bases = vec![project.to_owned()];
    let folders = values.iter().map(|value| project.join(value));
    bases.extend(folders.filter(|path| path != project && path.is_dir()));
    for (nth, value) in values.iter().enumerate() {
        for base in &bases {
            let path = base.join(value);
            if is_code(&path) {
                found(path, Part::Argument);
            }
            if nth > 0 && values[nth - 1] == "-m" {
                let module = base.join(value.replace('.', "/"));
                for file in [
                    module.with_added_extension("py"),
                    module.join("__init__.py"),
                    module.join("__main__.py"),
                ] {
                    if is_code(&file) {
                        found(file, Part::Argument);
                    }
                }
            }
        }
    }
}

/// By its name, without a version: `python3.13` is `python`.
fn is_interpreter(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name.trim_end_matches('-'))
}

fn is_code(path: &Path) -> bool {
    let named = path.extension().and_then(|name| name.to_str());
    let named = named.is_some_and(|name| CODE.contains(&name.to_ascii_lowercase().as_str()));
    fs::metadata(path).is_ok_and(|m| m.is_file() && (named || m.permissions().mode() & 0o111 != 0))
}

/// Where a file really is, relative to the project; `None` where it is not there, leads out of it or
/// is not UTF-8. A link that is turned elsewhere shows as another path.
fn within(project: &Path, path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    let mut relative = Vec::new();
    for component in real.strip_prefix(project).ok()?.components() {
        match component {
            Component::Normal(name) => relative.push(name.to_str()?),
            _ => return None,
        }
    }
    (!relative.is_empty()).then(|| relative.join("/"))
}
