use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ringfence_identity::Signer;
use ringfence_record::{Event, MachineLog, Recorder, RunId, read_run};
use ringfence_state::State;
use tokio::sync::Notify;

use super::{Channel, Desk, MOST_EACH, MOST_PENDING, Parts};
use crate::bound::tests::question;
use crate::{
    Answer, Approver as _, Boxed, Error, OnTimeout, Question, Questions, Said, Ticket, Verdict,
};

pub(crate) struct Home {
    folder: tempfile::TempDir,
    run: RunId,
    pub(crate) recorder: Recorder,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let machine = Signer::machine(folder.path()).unwrap();
        let log = MachineLog::open(folder.path(), machine).unwrap();
        let run = RunId::fresh();
        let signer = Signer::machine(folder.path()).unwrap();
        let recorder = Recorder::create(folder.path(), &run, signer, &log).unwrap();
        Self { folder, run, recorder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn desk(&self, timeout: Duration, channels: Vec<Arc<dyn Channel>>) -> Arc<Desk> {
        let desk = Desk::open(Parts {
            state: State::open(self.path(), None).unwrap(),
            home: self.path().to_owned(),
            run: self.run.to_string(),
            project: "/p".into(),
            recorder: self.recorder.clone(),
            timeout,
            on_timeout: OnTimeout::Abort,
            channels,
        });
        Arc::new(desk.await.unwrap())
    }

    async fn questions(&self) -> Questions {
        let state = State::open(self.path(), None).unwrap();
        Questions::open(&state, self.path()).await.unwrap()
    }

    /// `asked`, or how it was answered, in order.
    pub(crate) async fn told(&self) -> Vec<String> {
        let _ = self
            .recorder
            .commit(Event::SandboxStarted { principal: "end".into(), mode: None })
            .await;
        let entries = read_run(self.path(), &self.run).unwrap();
        entries
            .filter_map(|entry| match entry.unwrap().event {
                Event::ApprovalAsked { .. } => Some("asked".into()),
                Event::ApprovalAnswered { answer, channel, .. } => {
                    Some(format!("{answer} {channel}"))
                }
                Event::ApprovalUnheard { reason, .. } => Some(reason),
                _ => None,
            })
            .collect()
    }
}

/// Long enough for any machine, far from a test's patience.
const LONG: Duration = Duration::from_secs(60);

fn ask(desk: &Arc<Desk>, question: Question) -> tokio::task::JoinHandle<Said> {
    let desk = Arc::clone(desk);
    tokio::spawn(async move { desk.ask(question).await })
}

/// The first question that waits.
async fn waiting(questions: &Questions) -> Ticket {
    loop {
        if let Some(kept) = questions.list(false).await.unwrap().pop() {
            return kept.ticket;
        }
        tokio::task::yield_now().await;
    }
}

fn answer(verdict: Verdict) -> Answer {
    Answer { verdict, by: "somebody".into(), channel: "command", reason: None }
}

#[tokio::test]
async fn a_yes_elsewhere_wakes_the_call_and_is_for_this_question_alone() {
    let home = Home::new();
    let desk = home.desk(LONG, Vec::new()).await;
    let call = ask(&desk, question());
    let questions = home.questions().await;
    let ticket = waiting(&questions).await;
    let answered = Instant::now();
    questions.answer(&ticket.id, &ticket.digest, &answer(Verdict::Approve)).await.unwrap();
    let Said::Approved(approved) = call.await.unwrap() else { panic!("it was approved") };
    assert!(answered.elapsed() < Duration::from_millis(1500), "not by the slow look");
    let other = Question { arguments: r#"{"amount":100.0}"#.into(), ..question() };
    assert!(approved.spend(&other).is_err(), "another call than the one that was asked about");
    assert_eq!(home.told().await, ["asked", "approved command"]);

    let call = ask(&desk, question());
    let second = waiting(&questions).await;
    assert_ne!(second.digest, ticket.digest, "the same call once more is another question");
    let replayed = questions.answer(&second.id, &ticket.digest, &answer(Verdict::Approve)).await;
    assert!(matches!(replayed, Err(Error::OtherDigest { .. })));
    questions.answer(&second.id, &second.digest, &answer(Verdict::Deny)).await.unwrap();
    assert!(matches!(call.await.unwrap(), Said::Denied { by, .. } if by == "somebody"));
}

#[tokio::test]
async fn nobody_in_time_is_what_the_manifest_says_and_no_answer_counts_any_more() {
    let home = Home::new();
    let desk = home.desk(Duration::from_millis(300), Vec::new()).await;
    let call = ask(&desk, question());
    let questions = home.questions().await;
    let ticket = waiting(&questions).await;
    let Said::TimedOut { id, then } = call.await.unwrap() else { panic!("nobody answered") };
    assert_eq!((id, then), (ticket.id.clone(), OnTimeout::Abort));
    assert!(questions.answer(&ticket.id, &ticket.digest, &answer(Verdict::Approve)).await.is_err());
    assert_eq!(home.told().await, ["asked", "timed_out none"]);
}

#[tokio::test]
async fn who_waits_no_more_takes_the_question_back() {
    let home = Home::new();
    let desk = home.desk(LONG, Vec::new()).await;
    let call = ask(&desk, question());
    let questions = home.questions().await;
    let ticket = waiting(&questions).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    while !questions.list(false).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let late = questions.answer(&ticket.id, &ticket.digest, &answer(Verdict::Approve)).await;
    assert!(late.unwrap_err().to_string().contains("withdrawn already"));
    assert_eq!(home.told().await, ["asked", "withdrawn none"]);
    let left = ask(&desk, question());
    waiting(&questions).await;
    desk.close().await.unwrap();
    assert!(questions.list(false).await.unwrap().is_empty(), "the end of the run takes all back");
    let both = ["asked", "withdrawn none", "asked", "withdrawn none"];
    assert_eq!(home.told().await, both, "in the record too, while it can be written");
    assert!(matches!(left.await.unwrap(), Said::Unasked { .. }));
    assert!(
        matches!(desk.ask(question()).await, Said::Unasked { reason } if reason.contains("ends"))
    );
    assert_eq!(home.told().await, both, "and nothing is asked or answered after it");
}

#[tokio::test]
async fn whenever_it_is_dropped_what_was_asked_is_answered_once() {
    let home = Home::new();
    let says = Told { answer: Some(Verdict::Approve), gone: Arc::default() };
    let desk = home.desk(LONG, vec![Arc::new(says)]).await;
    let mut ended = 0;
    for polls in 1.. {
        // Dropped after so many polls, wherever it is then.
        let mut asking = desk.ask(question());
        let mut left = polls;
        let done = std::future::poll_fn(|context| {
            left -= 1;
            match asking.as_mut().poll(context) {
                Poll::Ready(said) => Poll::Ready(Some(said)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        let done = done.await;
        drop(asking);
        let told = home.told().await;
        let asked = told.iter().filter(|word| *word == "asked").count();
        assert_eq!(told.len(), 2 * asked, "after {polls} polls: {told:?}");
        ended += usize::from(matches!(done, Some(Said::Approved(_))));
        if ended == 3 {
            let withdrawn = told.iter().filter(|word| *word == "withdrawn none").count();
            let approved = told.iter().filter(|word| *word == "approved terminal").count();
            assert!(withdrawn > 1 && approved >= 3, "control, of {polls}: {told:?}");
            return;
        }
    }
}

#[tokio::test]
async fn too_many_at_once_and_too_much_to_read_are_refused_at_once() {
    let home = Home::new();
    let desk = home.desk(LONG, Vec::new()).await;
    let calls: Vec<_> = (0..MOST_PENDING).map(|_| ask(&desk, question())).collect();
    let questions = home.questions().await;
    while questions.list(false).await.unwrap().len() < MOST_PENDING {
        tokio::task::yield_now().await;
    }
    assert!(matches!(desk.ask(question()).await, Said::Unasked { .. }), "one too many");
    for call in calls {
        call.abort();
        let _ = call.await;
    }
    let long = Question { arguments: "x".repeat((1 << 20) + 1), ..question() };
    assert!(matches!(desk.ask(long).await, Said::Unasked { reason } if reason.contains("longer")));
    let beside = Question { other_params: "x".repeat(1 << 20), ..question() };
    assert!(
        matches!(desk.ask(beside).await, Said::Unasked { reason } if reason.contains("longer"))
    );
}

#[tokio::test]
async fn one_client_cannot_take_the_places_of_the_others() {
    let home = Home::new();
    let desk = home.desk(LONG, Vec::new()).await;
    let of = |caller: &str| Question { caller: caller.into(), ..question() };
    let mut calls: Vec<_> = (0..MOST_EACH).map(|_| ask(&desk, of("client:anna"))).collect();
    let questions = home.questions().await;
    let wait = async |number: usize| {
        while questions.list(false).await.unwrap().len() != number {
            tokio::task::yield_now().await;
        }
    };
    wait(MOST_EACH).await;
    let said = desk.ask(of("client:anna")).await;
    assert!(matches!(said, Said::Unasked { reason } if reason.contains("of this client")));
    // Others have places, and she has one again when one of hers is over.
    calls.push(ask(&desk, of("client:bert")));
    wait(MOST_EACH + 1).await;
    let over = calls.remove(0);
    over.abort();
    let _ = over.await;
    wait(MOST_EACH).await;
    calls.push(ask(&desk, of("client:anna")));
    wait(MOST_EACH + 1).await;
    for call in calls {
        call.abort();
        let _ = call.await;
    }
    assert!(desk.pending.is_empty(), "nothing is kept of those that are gone");
}

/// Answers what it is told to, when it is told to, and says when it was let go.
struct Told {
    answer: Option<Verdict>,
    gone: Arc<Notify>,
}

impl Channel for Told {
    fn ask<'a>(&'a self, _: &'a Ticket) -> Boxed<'a, Option<Answer>> {
        struct Gone(Arc<Notify>);
        impl Drop for Gone {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let gone = Gone(Arc::clone(&self.gone));
        Box::pin(async move {
            let _gone = gone;
            match self.answer {
                Some(verdict) => Some(Answer { channel: "terminal", ..answer(verdict) }),
                None => std::future::pending().await,
            }
        })
    }
}

#[tokio::test]
async fn a_channel_answers_and_the_others_let_go() {
    let home = Home::new();
    let gone = Arc::new(Notify::new());
    let waits = Told { answer: None, gone: Arc::clone(&gone) };
    let says = Told { answer: Some(Verdict::Approve), gone: Arc::default() };
    let desk = home.desk(LONG, vec![Arc::new(waits), Arc::new(says)]).await;
    assert!(matches!(desk.ask(question()).await, Said::Approved(_)));
    gone.notified().await;
    assert_eq!(home.told().await, ["asked", "approved terminal"]);
}

#[tokio::test]
async fn a_database_that_goes_away_approves_nothing() {
    let home = Home::new();
    let says = Told { answer: Some(Verdict::Approve), gone: Arc::default() };
    let desk = home.desk(LONG, vec![Arc::new(says)]).await;
    assert!(matches!(desk.ask(question()).await, Said::Approved(_)), "control");
    std::fs::remove_file(home.path().join("state.db")).unwrap();
    assert!(matches!(desk.ask(question()).await, Said::Unasked { .. }));
}
