use std::fs;

use crate::{Content, Kind, Objects, Snapshot};

#[test]
fn what_lies_beside_has_the_digests_of_the_lock() {
    let project = tempfile::tempdir().expect("a temporary folder");
    let folder = project.path().join(".ringfence");
    fs::create_dir_all(folder.join("skills/s/deep")).expect("our own folder");
    fs::write(folder.join("skills/s/SKILL.md"), "# s\n").expect("our own file");
    fs::write(folder.join("skills/s/deep/x"), "x").expect("our own file");
    fs::write(folder.join("team.md"), "Be kind.\n").expect("our own file");
    fs::write(project.path().join("server.py"), "print()\n").expect("our own file");
    fs::write(
        folder.join("ringfence.toml"),
        "version = 1\n[skills.s]\npath = \"./skills/s\"\n[instructions.team]\npath = \"./team.md\"\n\
         [servers.a]\ntype = \"stdio\"\ncommand = \"python3\"\nargs = [\"server.py\"]\n",
    )
    .expect("our own file");
    let snapshot = Snapshot::read(project.path()).expect("a bundle");
    let lock = crate::Lock::compute(&snapshot, &Objects::of(project.path()), &Default::default())
        .expect("a lock");
    let found = snapshot.beside().expect("readable");
    assert_eq!(found.len(), 3);
    for it in &found {
        assert_eq!(Some(it.content.digest(it.kind)), lock.digest(it.kind, &it.name), "{}", it.name);
    }
    let skill = found.iter().find(|it| it.kind == Kind::Skill).expect("the skill");
    assert_eq!(skill.path, ".ringfence/skills/s");
    let Content::Tree(files) = &skill.content else { panic!("a skill is a folder") };
    assert_eq!(files.keys().collect::<Vec<_>>(), ["SKILL.md", "deep/x"]);
}

#[test]
fn without_the_overlay_the_manifest_stands_alone() {
    let project = tempfile::tempdir().expect("a temporary folder");
    let folder = project.path().join(".ringfence");
    fs::create_dir_all(&folder).expect("our own folder");
    fs::write(folder.join("ringfence.toml"), "version = 1\n[agent]\nname = \"a\"\n")
        .expect("our own file");
    fs::write(folder.join("ringfence.local.toml"), "[agent]\nname = \"mine\"\n")
        .expect("our own file");
    let both = Snapshot::read(project.path()).expect("a bundle");
    assert_eq!(both.manifest.agent.as_ref().map(|agent| agent.name.as_str()), Some("mine"));
    let alone = both.without_overlay().expect("a bundle");
    assert_eq!(alone.manifest.agent.as_ref().map(|agent| agent.name.as_str()), Some("a"));
    assert_eq!(alone.local_bytes, None);
}
