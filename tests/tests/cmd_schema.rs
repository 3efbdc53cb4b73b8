//! `ringfence schema`

use ringfence_tests::{Project, Who};

#[test]
fn it_is_json_schema_of_every_table() {
    let project = Project::new(Who::Itself);
    let schema = project.ringfence(&["schema"]).ok().json();
    assert!(schema["$schema"].is_string(), "{schema}");
    for table in [
        "agent",
        "sandbox",
        "limits",
        "servers",
        "skills",
        "instructions",
        "approvals",
        "spending",
        "policy",
    ] {
        assert!(schema["properties"][table].is_object(), "{table} is missing");
    }
    assert_eq!(schema["additionalProperties"], false, "the manifest is strict");
    assert!(schema.to_string().contains("enforced"), "labels are in the schema");
}

#[test]
fn schema_snapshot() {
    let project = Project::new(Who::Itself);
    insta::assert_snapshot!("schema", project.ringfence(&["schema"]).ok().stdout);
}

#[test]
fn a_full_disk_is_said_and_a_closed_pipe_is_not() {
    let project = Project::new(Who::Itself);
    let program = project.program().display().to_string();
    let full = project.shell(&["sh", "-c", "exec \"$0\" schema > /dev/full", &program]);
    assert_eq!(full.status, 255, "{}", full.stderr);
    assert!(full.stderr.contains("No space left"), "{}", full.stderr);
    project.shell(&["sh", "-c", "\"$0\" schema > /dev/null", &program]).ok().done();
    let pipe = "exec 3>&1; ( \"$0\" schema; echo $? >&3 ) | head -c 1 > /dev/null";
    let closed = project.shell(&["sh", "-c", pipe, &program]).ok();
    assert_eq!(closed.stdout.trim(), "0", "{}", closed.stderr);
}
