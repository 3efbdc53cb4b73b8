use std::convert::Infallible;

use proptest::prelude::{any, prop_assert_eq, proptest};

use crate::{SecretName, Template};

#[test]
fn references_are_found_once_and_rendered() {
    let template = Template::parse("Bearer ${A}:${B_2}:${A} costs $$5").expect("valid");
    let names: Vec<String> = template.references().into_iter().map(String::from).collect();
    assert_eq!(names, ["A", "B_2"]);
    let text = template
        .render(|name: &SecretName| Ok::<_, Infallible>(format!("<{name}>${{A}}")))
        .expect("infallible");
    assert_eq!(text, "Bearer <A>${A}:<B_2>${A}:<A>${A} costs $5");
}

#[test]
fn a_failed_lookup_is_passed_on() {
    let template = Template::parse("${A}").expect("valid");
    assert_eq!(template.render(|_: &SecretName| Err::<String, _>("no")), Err("no"));
}

#[test]
fn any_other_dollar_is_refused() {
    for text in ["$A", "$", "a$", "${", "${A", "${}", "${A B}", "${A:-d}", "${1A}", "$(id)", "$$$"]
    {
        assert!(Template::parse(text).is_err(), "{text}");
    }
    assert!(Template::parse("$$$$").is_ok());
}

proptest! {
    #[test]
    fn escaped_text_renders_to_itself(text in any::<String>()) {
        let template = Template::parse(&text.replace('$', "$$")).expect("escaped");
        prop_assert_eq!(template.render(|_: &SecretName| Ok::<String, Infallible>(String::new())), Ok(text));
    }
}
