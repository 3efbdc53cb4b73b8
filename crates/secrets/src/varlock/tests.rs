use proptest::prelude::{any, prop_assert, proptest};

use super::inert::items;
use super::reply::values;

#[test]
fn what_describes_is_inert() {
    let text = "# @defaultSensitive=true @defaultRequired=infer\n# @currentEnv=$APP_ENV\n# ---\n\n\
                # our flag, see https://example.com/a@b or ask me@example.com (please)\n\
                # @type=enum(dev, prod)\nAPP_ENV=dev # @required\nexport PORT=8080\n\
                # @type=string(startsWith=sk-) @sensitive\nKEY=\nBARE\n\
                URL=\"http://localhost:${PORT}\"\nB=concat(\"a\", $PORT)\nQ='plain text' # note\n";
    let items = items(text).unwrap();
    let seen: Vec<_> = items.iter().map(|i| (i.name.as_str(), i.line, i.composed)).collect();
    assert_eq!(
        seen,
        [
            ("APP_ENV", 7, false),
            ("PORT", 8, false),
            ("KEY", 10, false),
            ("BARE", 11, false),
            ("URL", 12, true),
            ("B", 13, true),
            ("Q", 14, false),
        ]
    );
}

#[test]
fn what_could_execute_is_refused_with_its_line() {
    for bad in [
        "A=exec('id')",
        "A=exec ('id')",
        "A=exec(`id`)",
        "A=$(id)",
        "A=\"x$(id)y\"",
        "A=`id`",
        "A='`id`'",
        "A=concat(\"a\", exec(\"id\"))",
        "A=concat(\n  exec(\"id\"))",
        "A=op(\"op://v/i/f\")",
        "A=varlock(local:abc)",
        "A=newThing(1)",
        "A=\"first\nB=$(id)\"",
        "A='''x",
        "A=\"\"\"x",
        "A=\"a\\\"b\"",
        "A=x # @import(../other)",
        "# @import(../other)",
        "# @plugin(@varlock/1password-plugin)",
        "# @initOp(token=$T)",
        "# @setValuesBulk(exec(\"id\"))",
        "# @type=enum(exec(\"id\"))",
        "# @type=enum(\n# exec(\"id\"))",
        "# @default=`id`",
        "#@plugin(x)",
        "# (@plugin(x))",
        "!A=x",
        "A B=x",
    ] {
        let text = format!("# a comment\n{bad}\n");
        let (line, why) = items(&text).expect_err(bad);
        assert!((2..=3).contains(&line), "{bad}: line {line}: {why}");
    }
}

#[test]
fn an_answer_is_read_strictly_and_never_quoted() {
    let json = br#"{"config":{"A":{"value":"one","isSensitive":true},"B":{"isSensitive":true},
        "C":{"value":8080},"D":{"value":true},"E":{"value":""},"F":{"value":"wrong"}},
        "errors":{"configItems":{"F":"F is wrong"}}}"#;
    let values = values(json).unwrap();
    let text = |name: &str| match &values[name] {
        None => "none".to_owned(),
        Some(Ok(secret)) => secret.expose().to_owned(),
        Some(Err(why)) => format!("failed: {why}"),
    };
    assert_eq!(text("A"), "one");
    assert_eq!(text("B"), "none");
    assert_eq!(text("C"), "8080");
    assert_eq!(text("D"), "true");
    assert_eq!(text("E"), "none");
    assert!(text("F").starts_with("failed: ") && !text("F").contains("wrong\""));
    for bad in [
        &b"hunter2"[..],
        br#"{"config":{"A":{"value":["hunter2"]}}}"#,
        br#"{"config":{},"errors":{"root":["hunter2"]}}"#,
        br#"{"hunter2":1}"#,
    ] {
        let why = super::reply::values(bad).expect_err("refused");
        assert!(!why.contains("hunter2"), "{why}");
    }
}

proptest! {
    #[test]
    fn any_text_is_judged(text in any::<String>(), lines in "[A-C#]=?[\"'$`(){}\\\\ #@=\nexc,é]{0,60}") {
        for text in [text, lines] {
            if items(&text).is_ok() {
                // Nothing that varlock would execute is ever inert, however it is wrapped.
                let comment = |line: &str| line.trim_start().starts_with('#');
                let executes = |line: &str| line.contains("$(") || line.contains("exec(");
                prop_assert!(!text.lines().any(|line| !comment(line) && executes(line)));
            }
        }
    }
}
