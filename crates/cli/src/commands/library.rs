//! `ringfence library`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_bundle::{Id, Kind, Snapshot};
use ringfence_library::{
    Added, Entry, Error, Git, Library as Folders, Linked, Piece, Remote, Store, Synced, Trashed,
};
use serde_json::{Value, json};

use super::{Done, home};
use crate::args::Args;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// Folders of your own, linked in an order: the first that has a name wins, `<source>:<name>` says
/// which one. A manifest takes from them with `library = "<source>:<name>"`; what is locked is a copy
/// of the bytes at that moment.
///
/// A folder holds skills/<name>/, instructions/<name>.md, extensions/<name>.ts (or a folder) and
/// workflows/<name>.js (or a folder). Nothing in it is run, and no link in it is followed.
#[derive(Debug, ClapArgs)]
pub(crate) struct Library {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Link a folder, after those that are linked
    Link {
        /// What it is called in `<source>:<name>`
        name: String,
        /// The folder
        folder: PathBuf,
    },
    /// Forget a folder; nothing in it changes
    Unlink {
        /// What it is called
        name: String,
    },
    /// List what the folders hold, and which of two with one name wins
    List(Json),
    /// Copy something into a folder
    Add(Add),
    /// Move something to the trash
    Remove {
        /// `<kind>:<name>` or `<kind>:<source>:<name>`, for example skill:summarize
        entry: String,
    },
    /// List the trash
    Trash(Json),
    /// Put something back from the trash
    Restore {
        /// Its id, as `ringfence library trash` lists it
        id: String,
    },
    /// Bring each folder and its git remote together, unless a literal secret would go out
    Sync(Sync),
}

#[derive(Debug, ClapArgs)]
struct Json {
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
struct Add {
    /// A path, or `<kind>:<name>` of what this project's manifest declares
    what: String,
    /// What it is: skill, instruction, extension or workflow
    #[arg(long)]
    kind: Option<String>,
    /// Its name there, when it is to be another
    #[arg(long)]
    name: Option<String>,
    /// The linked folder; the first when absent
    #[arg(long, value_name = "SOURCE")]
    to: Option<String>,
}

#[derive(Debug, ClapArgs)]
struct Sync {
    /// One linked folder; all when absent
    source: Option<String>,
    /// Only fetch, and show what would come in and go out
    #[arg(long)]
    dry_run: bool,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

impl Library {
    /// Whether errors are to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::List(Json { json })
            | Verb::Trash(Json { json })
            | Verb::Sync(Sync { json, .. }) => *json,
            _ => false,
        }
    }
}

pub(crate) fn run(args: &Args, library: &Library) -> Done {
    let home = home()?;
    let mut folders = Folders::open(&home)?;
    match &library.verb {
        Verb::Link { name, folder } => {
            let linked = folders.link(id(name)?, folder)?;
            out::say(&format!("linked {} to {}", linked.name, shown(&linked.folder)));
        }
        Verb::Unlink { name } => {
            let gone = folders.unlink(name)?;
            out::say(&format!("unlinked {}; {} stays as it is", gone.name, shown(&gone.folder)));
        }
        Verb::List(Json { json }) => list(&folders, *json)?,
        Verb::Add(add) => {
            let piece = piece(args, &home, add)?;
            let Added { kind, name, source, path, digest } =
                folders.add(&piece, add.to.as_deref())?;
            out::say(&format!("added {kind} {name} to {source}: {path}, {digest}"));
            commit(&folders, &source, &path, &format!("add {kind} {name}"));
        }
        Verb::Remove { entry } => {
            let (kind, name) = entry_of(entry)?;
            let Trashed { id, kind, name, source, path } = folders.remove(kind, name)?;
            out::say(&format!("moved {kind} {name} of {source} to the trash"));
            commit(&folders, &source, &path, &format!("remove {kind} {name}"));
            out::say(&format!("  back: ringfence library restore {id}"));
        }
        Verb::Trash(Json { json }) => trash(&folders, *json)?,
        Verb::Restore { id } => {
            let Trashed { kind, name, source, path, .. } = folders.restore(id)?;
            out::say(&format!("restored {kind} {name} in {source}: {path}"));
            commit(&folders, &source, &path, &format!("restore {kind} {name}"));
        }
        Verb::Sync(args) => return sync(&folders, args),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(folders: &Folders, json: bool) -> Result<(), Failure> {
    let entries = folders.list()?;
    if json {
        let rows: Vec<Value> = entries.iter().map(row).collect();
        out::json(&json!({ "version": 1, "sources": folders.sources(), "entries": rows }));
        return Ok(());
    }
    for Linked { name, folder } in folders.sources() {
        out::data(&format!("{name} {}", shown(folder)));
    }
    for Entry { kind, name, source, path, digest, hidden_by } in &entries {
        let state = match (digest, hidden_by) {
            (Err(why), _) => out::paint(Colour::Red, &format!("refused: {}", escaped(why))),
            (Ok(_), Some(first)) => out::paint(
                Colour::Yellow,
                &format!("hidden by {first}; `{source}:{name}` means it"),
            ),
            (Ok(digest), None) => digest.to_string(),
        };
        out::data(&format!("  {kind:<12} {name} {source} {} {state}", escaped(path)));
    }
    if folders.sources().is_empty() {
        out::say("no folder is linked");
        out::say("  next: ringfence library link mine ~/my-library");
    }
    Ok(())
}

fn row(entry: &Entry) -> Value {
    let Entry { kind, name, source, path, digest, hidden_by } = entry;
    json!({
        "kind": kind, "name": name, "source": source, "path": path,
        "digest": digest.as_ref().ok(), "problem": digest.as_ref().err(), "hidden_by": hidden_by,
    })
}

fn trash(folders: &Folders, json: bool) -> Result<(), Failure> {
    let rows = folders.trash()?;
    if json {
        out::json(&json!({ "version": 1, "trash": rows }));
        return Ok(());
    }
    for Trashed { id, kind, name, source, path } in &rows {
        out::data(&format!("  {id} {kind} {name} {source} {}", escaped(path)));
    }
    out::say(&format!("{} in the trash", rows.len()));
    Ok(())
}

fn piece(args: &Args, home: &Path, add: &Add) -> Result<Piece, Failure> {
    let name = add.name.as_deref().map(id).transpose()?;
    if let Some((kind, entry)) = add.what.split_once(':')
        && let Some(kind) = kind_of(kind)
    {
        let snapshot = Snapshot::read(args.project())?;
        return Ok(Piece::of_bundle(&snapshot, &Store::of(home), kind, entry, name)?);
    }
    let kind = match &add.kind {
        Some(kind) => Some(kind_of(kind).ok_or_else(|| unknown_kind(kind))?),
        None => None,
    };
    Ok(Piece::of_path(Path::new(&add.what), kind, name)?)
}

fn entry_of(entry: &str) -> Result<(Kind, &str), Failure> {
    let (kind, name) = entry.split_once(':').ok_or_else(|| {
        Failure::user(format!("`{entry}` is not `<kind>:<name>`")).next("ringfence library list")
    })?;
    Ok((kind_of(kind).ok_or_else(|| unknown_kind(kind))?, name))
}

fn kind_of(word: &str) -> Option<Kind> {
    let kinds = [Kind::Skill, Kind::Instruction, Kind::Extension, Kind::Workflow];
    kinds.into_iter().find(|kind| kind.as_str() == word)
}

fn unknown_kind(word: &str) -> Failure {
    Failure::user(format!("a library holds no `{word}`: skill, instruction, extension or workflow"))
}

fn id(text: &str) -> Result<Id, Failure> {
    Id::parse(text).map_err(|error| Failure::user(error.to_string()))
}

/// Commits what changed, where the folder is a repository. The change stands without.
fn commit(folders: &Folders, source: &Id, path: &str, message: &str) {
    let done = Git::of_machine().and_then(|git| folders.commit(source, &git, path, message));
    match done {
        Ok(true) => out::say("  committed; next: ringfence library sync"),
        Ok(false) => {}
        Err(error) => {
            let word = out::paint(Colour::Yellow, "warning");
            out::say(&format!("{word}: not committed: {}", escaped(&error.to_string())));
        }
    }
}

fn sync(folders: &Folders, args: &Sync) -> Done {
    let git = Git::of_machine()?;
    let chosen = |it: &&Linked| args.source.as_deref().is_none_or(|name| it.name.as_str() == name);
    let sources: Vec<&Linked> = folders.sources().iter().filter(chosen).collect();
    if sources.is_empty() {
        return Err(Failure::user("no such folder is linked").next("ringfence library list"));
    }
    let (mut synced, mut failed) = (Vec::new(), Vec::new());
    for source in sources {
        let result = folders.sync(source, &git, args.dry_run, &say);
        match result {
            Ok(done) => {
                if !args.json {
                    show_synced(&done, args.dry_run);
                }
                synced.push(done);
            }
            Err(error) => failed.push((source, error)),
        }
    }
    let mut code = ExitCode::SUCCESS;
    let mut problems = Vec::new();
    for (source, error) in failed {
        problems.push(json!({ "source": source.name, "problem": problem(&error) }));
        out::say(&format!("{}:", source.name));
        code = Failure::from(error).report(false);
    }
    if args.json {
        let rows: Vec<Value> = synced.iter().map(synced_row).collect();
        out::json(&json!({
            "version": 1, "dry_run": args.dry_run, "synced": rows, "failed": problems,
        }));
    }
    Ok(code)
}

fn problem(error: &Error) -> String {
    match error {
        Error::Secrets(found) => found
            .iter()
            .map(|it| format!("{}:{}: {}", it.path.display(), it.line, it.what))
            .collect::<Vec<_>>()
            .join("\n"),
        error => error.to_string(),
    }
}

fn say(source: &Linked, remote: &Remote) {
    out::say(&format!("{}: asking {}", source.name, escaped(&remote.to_string())));
}

fn show_synced(done: &Synced, dry: bool) {
    let (came, went) =
        if dry { ("would come in", "would go out") } else { ("came in", "went out") };
    for (word, changes) in [(came, &done.incoming), (went, &done.outgoing)] {
        for change in changes {
            let short = &change.commit.as_str()[..12];
            out::data(&format!("  {word} {} {short} {}", done.source, escaped(&change.subject)));
        }
    }
    for path in &done.unsettled {
        out::say(&format!("  not committed, stays here: {}", escaped(path)));
    }
    let (incoming, outgoing) = (done.incoming.len(), done.outgoing.len());
    out::say(&format!("{}: {incoming} {came}, {outgoing} {went}", done.source));
}

fn synced_row(done: &Synced) -> Value {
    let list = |changes: &[ringfence_library::Change]| -> Vec<Value> {
        changes
            .iter()
            .map(|it| json!({ "commit": it.commit.as_str(), "subject": it.subject }))
            .collect()
    };
    json!({
        "source": done.source, "remote": done.remote.to_string(),
        "incoming": list(&done.incoming), "outgoing": list(&done.outgoing),
        "unsettled": done.unsettled,
    })
}

fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}
