//! The sandboxes on which a case runs, and the table of which cases ran where.

use std::fs;

use crate::house::repository;
use crate::{Engine, Project, TestNet, Who, each_user};

/// A kind of sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// `--sandbox native`
    Native,
    /// `--sandbox docker`
    Docker,
    /// `--sandbox lockdown`
    Lockdown,
}

impl Wall {
    /// As the program calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
            Self::Lockdown => "lockdown",
        }
    }

    /// Whether it needs an engine.
    #[must_use]
    pub fn is_container(self) -> bool {
        self != Self::Native
    }

    /// Puts every run of a project behind it. Call it before the manifest is written; what it gives
    /// back must outlive the runs.
    #[must_use]
    pub fn around(self, project: &mut Project, net: &TestNet) -> Option<Engine> {
        net.host(project);
        project.behind(self);
        if !self.is_container() {
            return None;
        }
        let engine = Engine::start(net);
        project.env("DOCKER_HOST", &engine.host());
        Some(engine)
    }
}

/// Runs a case of an attack on each kind of sandbox, as each user. `rows` are those of the table of
/// attacks that it covers: that it held is noted, for the table at the end of the suite.
///
/// An engine can be started by root alone: without it the native sandbox is the only one.
///
/// # Panics
/// When the case does.
#[expect(clippy::print_stderr, reason = "a failed case says where it ran")]
pub fn each_wall(rows: &[u8], case: impl Fn(Who, Wall)) {
    let walls = match Who::suite_is_root() {
        true => &[Wall::Native, Wall::Docker, Wall::Lockdown][..],
        false => &[Wall::Native][..],
    };
    for wall in walls {
        eprintln!("-- sandbox {}", wall.name());
        each_user(|who| case(who, *wall));
        held(rows, *wall);
    }
}

/// Notes that a case of these rows held on a sandbox.
///
/// # Panics
/// When it cannot be noted.
pub fn held(rows: &[u8], wall: Wall) {
    let test = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let folder = repository().join("target/matrix");
    fs::create_dir_all(&folder).expect("target can be written");
    let lines: String =
        rows.iter().map(|row| format!("{row}\t{}\t{test}\n", wall.name())).collect();
    let file = folder.join(format!("{}.{}.tsv", test.replace("::", "."), wall.name()));
    fs::write(file, lines).expect("target can be written");
}
