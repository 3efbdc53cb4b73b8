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
