use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use ringfence_state::State;

use super::{Answer, Questions, Standing};
use crate::bound::tests::question;
use crate::{Error, Question, Ticket, Verdict};

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    home
}

async fn questions(home: &tempfile::TempDir) -> Questions {
    let state = State::open(home.path(), None).unwrap();
    Questions::open(&state, home.path()).await.unwrap()
}

fn ticket() -> Ticket {
    Ticket::new(&question(), "run", "/p", Duration::from_secs(300)).unwrap()
}

fn yes(by: &str) -> Answer {
    Answer { verdict: Verdict::Approve, by: by.into(), channel: "command", reason: None }
}

#[tokio::test]
async fn of_two_answers_the_first_counts_and_it_is_used_once() {
    let home = home();
    let (here, there) = (questions(&home).await, questions(&home).await);
    let ticket = ticket();
    here.put(&ticket, 300_000).await.unwrap();
    assert!(!here.take(&ticket).await.unwrap(), "nobody has said yes");
    there.answer(&ticket.id, &ticket.digest, &yes("one")).await.unwrap();
    let no = Answer { verdict: Verdict::Deny, ..yes("two") };
    let late = here.answer(&ticket.id, &ticket.digest, &no).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        format!(
            "question {} is approved (by one, command) already: this answer does not count",
            ticket.id
        )
    );
    let (first, second) = tokio::join!(here.take(&ticket), there.take(&ticket));
    assert!(first.unwrap() ^ second.unwrap(), "a yes is taken once");
    assert_eq!(here.get(&ticket.id).await.unwrap().standing, Standing::Used);
    assert!(here.answer(&ticket.id, &ticket.digest, &yes("again")).await.is_err());
}

#[tokio::test]
async fn many_at_once_leave_one_answer() {
    let home = home();
    let all = questions(&home).await;
    let ticket = ticket();
    all.put(&ticket, 300_000).await.unwrap();
    let mut answers = tokio::task::JoinSet::new();
    for number in 0..12 {
        let (all, ticket) = (all.clone(), ticket.clone());
        answers.spawn(async move {
            let verdict = if number % 2 == 0 { Verdict::Approve } else { Verdict::Deny };
            let answer = Answer { verdict, ..yes(&number.to_string()) };
            all.answer(&ticket.id, &ticket.digest, &answer).await.is_ok()
        });
    }
    let counted = answers.join_all().await.into_iter().filter(|ok| *ok).count();
    assert_eq!(counted, 1);
}

#[tokio::test]
async fn an_answer_is_for_what_was_looked_at_and_not_after_its_time() {
    let home = home();
    let all = questions(&home).await;
    let (good, late, ended) = (ticket(), ticket(), ticket());
    all.put(&good, 300_000).await.unwrap();
    all.put(&late, -1).await.unwrap();
    all.put(&ended, 300_000).await.unwrap();
    assert!(matches!(
        all.answer(&good.id, &late.digest, &yes("x")).await,
        Err(Error::OtherDigest { .. })
    ));
    assert!(matches!(all.answer(&late.id, &late.digest, &yes("x")).await, Err(Error::Expired(_))));
    assert!(all.end(&ended, Standing::TimedOut).await.unwrap());
    assert!(!all.end(&ended, Standing::Withdrawn).await.unwrap(), "it has ended");
    let gone = all.answer(&ended.id, &ended.digest, &yes("x")).await.unwrap_err();
    assert!(gone.to_string().contains("timed out already"), "{gone}");
    assert!(matches!(all.answer("nobody", &good.digest, &yes("x")).await, Err(Error::Unknown(_))));
    // A row whose digest is another than the one that was asked gives no yes.
    all.answer(&good.id, &good.digest, &yes("x")).await.unwrap();
    let other = Ticket { digest: late.digest.clone(), ..good.clone() };
    assert!(!all.take(&other).await.unwrap());
    assert!(all.take(&good).await.unwrap(), "control");
}

#[tokio::test]
async fn what_somebody_else_writes_into_a_question_that_waits_gets_no_yes() {
    let home = home();
    let all = questions(&home).await;
    for (column, text) in [
        ("arguments", r#"{"amount":1}"#),
        ("other_params", r#"{"_meta":{}}"#),
        ("ticket", "of another"),
        ("nothing", ""),
    ] {
        let (asked, other) = (ticket(), ticket());
        all.put(&asked, 300_000).await.unwrap();
        let bare = Ticket { arguments: String::new(), digest: asked.digest.clone(), ..other };
        let text =
            if column == "ticket" { serde_json::to_string(&bare).unwrap() } else { text.into() };
        let mut tx = all.db.write().await.unwrap();
        let set = match column {
            "arguments" => "UPDATE approval_questions SET arguments = $1 WHERE id = $2",
            "other_params" => "UPDATE approval_questions SET other_params = $1 WHERE id = $2",
            "ticket" => "UPDATE approval_questions SET ticket = $1 WHERE id = $2",
            _ => "UPDATE approval_questions SET reason = $1 WHERE id = $2",
        };
        tx.execute(set, &[text.into(), asked.id.as_str().into()]).await.unwrap();
        tx.commit().await.unwrap();
        let answered = all.answer(&asked.id, &asked.digest, &yes("x")).await;
        if column == "nothing" {
            answered.unwrap();
        } else {
            assert!(matches!(answered, Err(Error::Unreadable(_))), "{column}: {answered:?}");
            assert!(!all.take(&asked).await.unwrap(), "{column}");
        }
    }
}

#[tokio::test]
async fn what_an_error_says_of_the_database_is_escaped() {
    let home = home();
    let all = questions(&home).await;
    let asked = ticket();
    all.put(&asked, 300_000).await.unwrap();
    all.answer(&asked.id, &asked.digest, &yes("\x1b[2J\u{202e}")).await.unwrap();
    let late = all.answer(&asked.id, &asked.digest, &yes("x")).await.unwrap_err().to_string();
    assert!(late.contains("(by \\u{1b}[2J\\u{202e}, command)"), "{late:?}");
}

#[tokio::test]
async fn the_list_is_of_those_that_wait_and_settled_ones_keep_little() {
    let home = home();
    let state = State::open(home.path(), None).unwrap();
    assert!(Questions::existing(&state, home.path()).await.unwrap().is_none());
    let all = questions(&home).await;
    let (arguments, other_params) = ("x".repeat(9000), "é".repeat(9000));
    let long = Question { arguments, other_params, ..question() };
    let long = Ticket::new(&long, "run", "/p", Duration::from_secs(300)).unwrap();
    let other = Ticket { run: "other".into(), ..ticket() };
    for ticket in [&long, &other, &ticket()] {
        all.put(ticket, 300_000).await.unwrap();
    }
    let waiting = all.list(false).await.unwrap();
    assert_eq!(waiting.len(), 3);
    let found = waiting.iter().find(|kept| kept.ticket.id == long.id).unwrap();
    assert_eq!((&found.ticket, found.characters), (&long, 9000));
    all.end_all("run").await.unwrap();
    let waiting = all.list(false).await.unwrap();
    assert_eq!(waiting.iter().map(|kept| &kept.ticket.run).collect::<Vec<_>>(), ["other"]);
    let ended = all.get(&long.id).await.unwrap();
    assert_eq!((ended.ticket.arguments.len(), ended.characters), (4096, 9000));
    assert_eq!(ended.ticket.other_params, "é".repeat(4096));
    assert_eq!(all.list(true).await.unwrap().len(), 3);
}
