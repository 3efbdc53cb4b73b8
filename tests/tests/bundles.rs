//! Manifests that many cases share.

use ringfence_tests::Project;

/// The smallest bundle that may run.
pub(crate) const SMALL: &str = "version = 1\n\n[agent]\nname = \"case\"\n";

/// One stdio server that shows what it was sent; two of its three tools may be called.
pub(crate) const MIRROR: &str = r#"version = 1

[agent]
name = "case"

[servers.mirror]
type = "stdio"
command = "/usr/bin/python3"
args = ["mirror.py"]
tools = ["raw", "environment"]
"#;

/// One stdio server that offers what `offer.json` says.
pub(crate) const OFFERS: &str = r#"version = 1

[agent]
name = "case"

[servers.offers]
type = "stdio"
command = "/usr/bin/python3"
args = ["offers.py"]
"#;

/// A project with [`OFFERS`], or another manifest, whose server offers this, trusted with its tools
/// pinned.
pub(crate) fn pinned(
    who: ringfence_tests::Who,
    manifest: &str,
    offer: &serde_json::Value,
) -> Project {
    let project = Project::new(who);
    project.python();
    project.manifest(manifest);
    project.file("offer.json", offer.to_string());
    project.lock();
    project.trust();
    project.lock_tools().done();
    project.trust();
    project
}

/// [`SMALL`], and these hosts for the agent.
pub(crate) fn hosts(list: &[&str]) -> String {
    format!("{SMALL}\n[sandbox.network]\nallowed_hosts = {list:?}\n")
}

/// [`SMALL`], and one HTTP server with the tool `echo`.
pub(crate) fn upstream(url: &str) -> String {
    format!("{SMALL}\n[servers.up]\ntype = \"http\"\nurl = \"{url}\"\ntools = [\"echo\"]\n")
}

/// [`SMALL`], and these scopes for files.
pub(crate) fn files(scopes: &str) -> String {
    format!("{SMALL}\n[policy.filesystem]\n{scopes}\n")
}

/// Everything below a folder as text, some files left out.
pub(crate) fn all_text(project: &Project, of: &std::path::Path, without: &str) -> String {
    let files = project.picture(of);
    let some = files.iter().filter(|(path, _)| without.is_empty() || !path.ends_with(without));
    some.map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect::<Vec<_>>().join("\n")
}

/// A bundle with a version, so that it can be shared, and with every kind that lies in the project.
pub(crate) const SHARED: &str = r#"version = 1

[agent]
name = "case"
version = "1.2.0"

[skills.s]
path = "./skills/s"
[instructions.team]
path = "./instructions/team.md"
[extensions.lint]
path = "./extensions/lint.ts"
target = "pi"
[workflows.triage]
path = "./workflows/triage"
[settings.claude-code]
model = "opus"
[hooks.fmt]
event = "post_tool_use"
command = "cargo fmt"
[servers.local]
type = "stdio"
command = "/usr/bin/python3"
args = ["tools/server.py"]
"#;

/// [`SHARED`], with its files, locked.
pub(crate) fn shared(project: &Project) {
    project.file(".ringfence/skills/s/SKILL.md", "# s\n");
    let script = project.file(".ringfence/skills/s/scripts/run.sh", "#!/bin/sh\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(script, mode).expect("our own file");
    project.file(".ringfence/instructions/team.md", "Be kind.\n");
    project.file(".ringfence/extensions/lint.ts", "export {}\n");
    project.file(".ringfence/workflows/triage/a.js", "1\n");
    project.file("tools/server.py", "print()\n");
    project.manifest(SHARED);
    project.lock();
}

/// Shares it: the archive's path, and the signer's DID.
pub(crate) fn share(project: &Project, to: &str) -> (std::path::PathBuf, String) {
    let file = project.home().join(to);
    let output = project.ringfence(&["share", "-o", &file.display().to_string(), "--json"]).ok();
    (file, output.json()["did"].as_str().expect("a did").to_owned())
}

/// Gives bytes to a user as a file in the home.
pub(crate) fn give(project: &Project, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = project.home().join(name);
    std::fs::write(&path, bytes).expect("our own file");
    project.who().own(&path);
    path
}
