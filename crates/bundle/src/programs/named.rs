//! Which files of a project the manifest's commands name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use super::Who;
use crate::{Manifest, Template, Transport, files};

#[cfg(test)]
mod tests;

/// Names that an interpreter runs, whatever their mode.
const CODE: [&str; 41] = [
    "awk", "bash", "bat", "cjs", "class", "cmd", "cts", "dll", "ex", "exe", "exs", "fish", "go",
    "groovy", "jar", "jl", "js", "jsx", "ksh", "kts", "lua", "mjs", "mts", "node", "nu", "phar",
    "php", "pl", "ps1", "py", "pyc", "pyw", "pyz", "r", "rb", "sh", "so", "ts", "tsx", "wasm",
    "zsh",
];

/// Programs whose arguments are what is run. What another agent program is given is what it works on.
const INTERPRETERS: [&str; 49] = [
    "ash",
    "awk",
    "bash",
    "bun",
    "bunx",
    "busybox",
    "cargo",
    "dash",
    "deno",
    "dotnet",
    "elixir",
    "fastmcp",
    "fish",
    "flask",
    "go",
    "gunicorn",
    "hatch",
    "java",
    "julia",
    "ksh",
    "lua",
    "luajit",
    "mcp",
    "node",
    "npm",
    "npx",
    "pdm",
    "perl",
    "php",
    "pipenv",
    "pipx",
    "pnpm",
    "poetry",
    "pwsh",
    "pypy",
    "python",
    "Rscript",
    "ruby",
    "rye",
    "sh",
    "streamlit",
    "ts-node",
    "tsx",
    "uv",
    "uvicorn",
    "uvx",
    "yarn",
    "zsh",
    "pythonw",
];

/// Programs that start another, which their arguments name.
const STARTERS: [&str; 13] = [
    "catatonit",
    "chrt",
    "doas",
    "dumb-init",
    "env",
    "ionice",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "sudo",
    "timeout",
    "tini",
];

/// Programs that read an argument as several words.
const SHELLS: [&str; 10] =
    ["ash", "bash", "busybox", "dash", "env", "fish", "ksh", "pwsh", "sh", "zsh"];

/// Programs that find `./main.js` where `./main` is said, and what a folder begins with.
const NODE: [&str; 5] = ["bun", "deno", "node", "ts-node", "tsx"];

/// How a file that is named without its ending may end.
const NODE_ENDS: [&str; 6] = ["js", "mjs", "cjs", "ts", "node", "tsx"];

/// Most values of one manifest that are looked for. More than any command has; a hostile manifest would
/// make every look a long one.
const MOST_VALUES: usize = 20_000;

/// Most bytes of a `package.json`.
const MOST_PACKAGE: u64 = 1 << 20;

/// Most folders that other arguments are looked for in.
const MOST_FOLDERS: usize = 16;

/// A path that a command of the manifest names: whose it is, where it lies (links not followed, it
/// may lead anywhere) and the key that names it.
pub type Named = (Who, PathBuf, String);

/// What of the project the manifest's commands name: the program of the agent, of a stdio server, of
/// a hook, and what their arguments name that looks like code: a file, from the project or from a
/// folder that another argument names (`uv --directory ./weather run server.py`), a Python module
/// (`python -m weather.server`, `uvicorn weather:app`), what a folder begins with (`node dist`), and
/// each word of what a shell is given (`sh -c "exec python server.py"`). Of the agent's arguments only
/// those of an interpreter count: another program's may be what it works on. Whoever may write these decides what runs with the server's secrets
/// and hosts. What they load in turn is not known here.
#[must_use]
pub fn named(manifest: &Manifest, project: &Path) -> Vec<Named> {
    let mut found = Vec::new();
    let mut room = MOST_VALUES;
    let command = &manifest.sandbox.command;
    if let Some((program, args)) = command.split_first() {
        let mut found = |path, _| found.push((Who::Agent, path, "sandbox.command".to_owned()));
        of_words(project, program, interpreted(command), &mut room, &mut found);
        // What another program starts is a program too.
        let started = if is_one_of(program, &STARTERS) { args } else { &[] };
        for word in started.iter().filter(|word| word.contains('/')) {
            let path = project.join(word);
            if is_code(&path) {
                found(path, Part::Program);
            }
        }
    }
    for (id, server) in &manifest.servers {
        let Transport::Stdio { command, args, .. } = &server.transport else { continue };
        let args = literals(args);
        of_words(project, command, &args, &mut room, &mut |path, part| {
            let key = match part {
                Part::Program => format!("servers.{id}.command"),
                Part::Argument => format!("servers.{id}.args"),
            };
            found.push((Who::Server(id.to_string()), path, key));
        });
    }
    for (id, hook) in &manifest.hooks {
        // A shell reads it; what stands between its signs may be a file.
        let words = std::slice::from_ref(&hook.command);
        of_words(project, "sh", words, &mut room, &mut |path, _| {
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

/// Files that say what a program starts or where it gets it from, by the programs that read them.
const STEERS: [(&[&str], &[&str]); 4] = [
    (
        &["bun", "bunx", "deno", "node", "npm", "npx", "pnpm", "ts-node", "tsx", "yarn"],
        &[
            ".npmrc",
            ".yarnrc.yml",
            "bunfig.toml",
            "deno.json",
            "deno.jsonc",
            "package.json",
            "tsconfig.json",
        ],
    ),
    (
        &["hatch", "pdm", "pipenv", "pipx", "poetry", "python", "rye", "uv", "uvx"],
        &[".python-version", "Pipfile", "pyproject.toml", "uv.toml"],
    ),
    (&["cargo"], &[".cargo/config.toml", "Cargo.toml", "build.rs"]),
    (&["just", "make"], &["GNUmakefile", "Makefile", "justfile", "makefile"]),
];

/// What of the project the agent and each stdio server name or are steered by, and [`of_project`] does
/// not have: folders, files that do not look like code, and what an interpreter reads beside
/// (`package.json`, `.npmrc`, `pyproject.toml`). For the eye: it may be changed without a question.
#[must_use]
pub fn unpinned(manifest: &Manifest, project: &Path) -> BTreeMap<Who, BTreeSet<String>> {
    let pinned = of_project(manifest, project);
    let mut room = MOST_VALUES;
    let mut found: BTreeMap<Who, BTreeSet<String>> = BTreeMap::new();
    for (who, program, args) in commands(manifest) {
        let words = || std::iter::once(&program).chain(&args);
        let shell = words().any(|word| is_one_of(word, &SHELLS));
        let mut values = values(&args, shell);
        values.truncate(room);
        room -= values.len();
        let mut bases = vec![project.to_owned()];
        let folders = values.iter().map(|value| project.join(value)).filter(|path| path.is_dir());
        bases.extend(folders.take(MOST_FOLDERS));
        let read = |(programs, _): &&(&[&str], &[&str])| {
            words().chain(&values).any(|word| is_one_of(word, programs))
        };
        let beside = STEERS.iter().filter(read).flat_map(|(_, files)| *files);
        let steers = bases.iter().flat_map(|base| beside.clone().map(|file| base.join(file)));
        let named = values.iter().map(|value| project.join(value));
        for path in steers.chain(named) {
            let Some(name) = within(project, &path).filter(|name| !pinned.contains_key(name))
            else {
                continue;
            };
            let end = if path.is_dir() { "/" } else { "" };
            found.entry(who.clone()).or_default().insert(format!("{name}{end}"));
        }
    }
    found
}

/// The commands of the agent, where it is one of the known interpreters, and of each stdio server.
fn commands(manifest: &Manifest) -> Vec<(Who, String, Vec<String>)> {
    let mut all = Vec::new();
    let command = &manifest.sandbox.command;
    let started = interpreted(command);
    if let Some(program) =
        command.len().checked_sub(started.len() + 1).and_then(|at| command.get(at))
        && is_one_of(program, &INTERPRETERS)
    {
        all.push((Who::Agent, program.clone(), started.to_vec()));
    }
    for (id, server) in &manifest.servers {
        let Transport::Stdio { command, args, .. } = &server.transport else { continue };
        all.push((Who::Server(id.to_string()), command.clone(), literals(args)));
    }
    all
}

/// The arguments that hold no reference.
fn literals(args: &[Template]) -> Vec<String> {
    args.iter().filter_map(|arg| arg.render(|_| Err::<&str, _>(())).ok()).collect()
}

/// Where in a command a path stands.
#[derive(Clone, Copy)]
enum Part {
    Program,
    Argument,
}

fn of_words(
    project: &Path,
    program: &str,
    args: &[String],
    room: &mut usize,
    found: &mut dyn FnMut(PathBuf, Part),
) {
    if program.contains('/') {
        found(project.join(program), Part::Program);
    }
    let words = || std::iter::once(program).chain(args.iter().map(String::as_str));
    let node = words().any(|word| is_one_of(word, &NODE));
    let shell = words().any(|word| is_one_of(word, &SHELLS));
    let mut values = values(args, shell);
    values.truncate(*room);
    *room -= values.len();
    let mut bases = vec![project.to_owned()];
    for value in &values {
        let path = project.join(value);
        if bases.len() <= MOST_FOLDERS && path.is_dir() && !bases.contains(&path) {
            bases.push(path);
        }
    }
    let mut add = |path: PathBuf| {
        if is_code(&path) {
            found(path, Part::Argument);
        }
    };
    for (nth, value) in values.iter().enumerate() {
        let module = match value.split_once(':') {
            Some((module, object)) if !object.starts_with('/') => Some(module),
            Some(_) => None,
            None => (nth > 0 && values[nth - 1] == "-m").then_some(value.as_str()),
        };
        let module = module.or_else(|| value.strip_prefix("-m")).filter(|it| is_module(it));
        for base in &bases {
            let path = base.join(value);
            if let Some(module) = module {
                of_module(base.join(module.replace('.', "/")), &mut add);
            }
            if path.is_dir() {
                // A folder that is run: what it begins with.
                if path != *project || value == "." || value == "./" {
                    of_folder(&path, node, &mut add);
                }
            } else if node && !path.is_file() {
                NODE_ENDS.iter().for_each(|end| add(path.with_added_extension(end)));
            }
            add(path);
        }
    }
}

/// What arguments may name: each, what stands behind a `=`, a `:` or the letter of an option, the parts of
/// a list of paths, and where a shell reads them each word.
fn values(args: &[String], shell: bool) -> Vec<String> {
    let sign = |c: char| c.is_whitespace() || "\"'`;|&()<>$={}".contains(c);
    let mut words: Vec<&str> = Vec::new();
    for arg in args {
        words.push(arg);
        if shell && arg.contains(sign) {
            words.extend(arg.split(sign));
        }
    }
    let mut values = Vec::new();
    for word in words {
        // An option with its value counts as the value.
        match word.split_once('=') {
            Some((_, value)) if word.starts_with('-') => values.push(value),
            _ => values.push(word),
        }
        if word.contains([':', ',']) {
            values.extend(word.split([':', ',']));
        }
        if word.starts_with('-') && !word.starts_with("--") {
            values.extend(word.get(2..));
        }
        values.extend(word.strip_prefix('@'));
    }
    values.into_iter().filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// `weather.server`: letters, digits, `_` and dots.
fn is_module(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
}

fn of_module(module: PathBuf, add: &mut dyn FnMut(PathBuf)) {
    let inside = ["__init__.py", "__main__.py"].map(|name| module.join(name));
    add(module.with_added_extension("py"));
    inside.into_iter().for_each(add);
}

/// What Python and Node.js begin with in a folder.
fn of_folder(folder: &Path, node: bool, add: &mut dyn FnMut(PathBuf)) {
    add(folder.join("__main__.py"));
    if !node {
        return;
    }
    NODE_ENDS.iter().for_each(|end| add(folder.join("index").with_extension(end)));
    let Some(main) = package_main(folder) else { return };
    let main = folder.join(main);
    if main.is_dir() {
        NODE_ENDS.iter().for_each(|end| add(main.join("index").with_extension(end)));
    } else {
        NODE_ENDS.iter().for_each(|end| add(main.with_added_extension(end)));
        add(main);
    }
}

/// The `main` of a folder's `package.json`.
fn package_main(folder: &Path) -> Option<String> {
    let root = files::open_root(folder).ok()?;
    let bytes = files::read_file(root.as_fd(), "package.json", MOST_PACKAGE).ok()?;
    let package: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    package.get("main")?.as_str().map(str::to_owned)
}

/// The arguments that an interpreter is given: those of the program, or of the one that it starts.
fn interpreted(command: &[String]) -> &[String] {
    let Some((program, args)) = command.split_first() else { return &[] };
    if is_one_of(program, &INTERPRETERS) {
        return args;
    }
    if !is_one_of(program, &STARTERS) {
        return &[];
    }
    let at = args.iter().position(|word| is_one_of(word, &INTERPRETERS));
    at.map_or(&[], |at| &args[at + 1..])
}

/// By its name, without a version: `python3.13` is `python`.
fn is_one_of(program: &str, names: &[&str]) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.split(|c: char| c.is_ascii_digit()).next().unwrap_or(name);
    names.contains(&name.trim_end_matches(['-', '.']))
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
