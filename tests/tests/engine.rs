//! The engine that other cases stand on: a real one, in a network of the test's own.

use ringfence_tests::{Engine, TestNet, Who};
use serde_json::json;

/// Mounts and cgroups of engines on this machine.
fn world() -> (Vec<String>, Vec<String>) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is there");
    let mounts = mounts.lines().filter(|line| line.contains("rf-engine-"));
    let mounts = mounts.map(str::to_owned).collect();
    let groups = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let groups = groups.flat_map(|entry| std::fs::read_dir(entry.path()).into_iter().flatten());
    let names = groups.flatten().map(|entry| entry.path().display().to_string());
    let mut names: Vec<_> = names.filter(|name| name.contains("rf-engine-")).collect();
    names.sort();
    (mounts, names)
}

#[test]
fn an_engine_runs_is_killed_runs_again_and_leaves_nothing() {
    if !Who::suite_is_root() {
        panic!("an engine is root's to start: run the suite as root, or leave this test out");
    }
    let before = world();
    {
        let zone = [("allowed.example.com", json!([TestNet::PUBLIC]))];
        let net = TestNet::new(Who::Itself, &zone);
        let mut engine = Engine::start(&net);
        let out = engine.docker(&["run", "--rm", Engine::BUSYBOX, "echo", "it runs"]);
        assert_eq!(out, "it runs\n");
        // The control of every case about networks: an ordinary container reaches the world.
        let fetch = "wget -q -O - http://allowed.example.com/";
        let out = engine.docker(&["run", "--rm", Engine::BUSYBOX, "sh", "-c", fetch]);
        assert!(out.contains("host"), "{out}");
        net.saw("dns", "allowed.example.com");
        let python = ["run", "--rm", Engine::AGENT, "/usr/bin/python3", "-c", "print(6 * 7)"];
        assert_eq!(engine.docker(&python), "42\n");
        engine.kill();
        engine.up();
        let out = engine.docker(&["run", "--rm", Engine::BUSYBOX, "echo", "again"]);
        assert_eq!(out, "again\n");
        assert!(engine.left().is_empty());
    }
    assert_eq!(world(), before);
}
