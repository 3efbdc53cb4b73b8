//! The questions of every run, in the shared state database.

use std::path::{Path, PathBuf};

use ringfence_state::{Db, Row, Schema, State};
use serde::Serialize;

use crate::{Error, Ticket, Verdict, poke};

const SCHEMA: Schema = Schema {
    room: "approval",
    steps: &[
        "CREATE TABLE approval_questions (
            id TEXT PRIMARY KEY,
            run TEXT NOT NULL,
            standing TEXT NOT NULL,
            digest TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            expires_ms BIGINT NOT NULL,
            ticket TEXT NOT NULL,
            arguments TEXT NOT NULL,
            characters BIGINT NOT NULL,
            answered_by TEXT,
            channel TEXT,
            reason TEXT,
            answered_ms BIGINT
        )",
        "CREATE INDEX approval_questions_run ON approval_questions (run, standing)",
        "ALTER TABLE approval_questions ADD COLUMN other_params TEXT NOT NULL DEFAULT ''",
    ],
};

/// Milliseconds that a question is kept after it expired: 30 days.
const KEPT_MS: i64 = 30 * 86_400 * 1000;

/// How a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It waits for an answer.
    Pending,
    /// Somebody said yes; its run has not taken the yes yet.
    Approved,
    /// Somebody said yes, and the call went on by it.
    Used,
    /// Somebody said no.
    Denied,
    /// Nobody answered in time.
    TimedOut,
    /// The call, or its run, ended before.
    Withdrawn,
}

impl Standing {
    const ALL: [Self; 6] =
        [Self::Pending, Self::Approved, Self::Used, Self::Denied, Self::TimedOut, Self::Withdrawn];

    /// As it is stored and printed.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Used => "used",
            Self::Denied => "denied",
            Self::TimedOut => "timed_out",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Yes or no.
    pub verdict: Verdict,
    /// Who: a user of this machine, or an approver's key.
    pub by: String,
    /// How: `terminal`, `command`, `webhook`.
    pub channel: &'static str,
    /// In their words.
    pub reason: Option<String>,
}

/// A question as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The question. Once it is settled, its arguments and its other parameters may be the first 4,096
    /// characters only.
    #[serde(flatten)]
    pub ticket: Ticket,
    /// How it stands.
    pub standing: Standing,
    /// Characters that its arguments had.
    pub characters: u64,
    /// Who answered.
    pub by: Option<String>,
    /// How.
    pub channel: Option<String>,
    /// In their words.
    pub reason: Option<String>,
}

/// The questions, for those who answer them.
#[derive(Clone)]
pub struct Questions {
    db: Db,
    home: PathBuf,
}

/// The columns of a row, in the order that [`kept`] reads.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT standing, ticket, arguments, characters, answered_by, channel, reason, \
             other_params FROM approval_questions ",
            $rest
        )
    };
}

impl Questions {
    /// Those of this machine's database, which is made when it is missing.
    ///
    /// # Errors
    /// [`Error::State`].
    pub async fn open(state: &State, home: &Path) -> Result<Self, Error> {
        Ok(Self { db: state.db(&SCHEMA).await?, home: home.to_owned() })
    }

    /// Those of this machine's database, if there is one.
    ///
    /// # Errors
    /// [`Error::State`].
    pub async fn existing(state: &State, home: &Path) -> Result<Option<Self>, Error> {
        let db = state.existing(&SCHEMA).await?;
        Ok(db.map(|db| Self { db, home: home.to_owned() }))
    }

    /// The questions that wait, the oldest first, or also the last 1,000 settled ones.
    ///
    /// # Errors
    /// [`Error::State`].
    pub async fn list(&self, all: bool) -> Result<Vec<Kept>, Error> {
        let mut tx = self.db.read().await?;
        let rows = if all {
            tx.query(select!("ORDER BY created_ms DESC, id LIMIT 1000"), &[]).await?
        } else {
            let waiting = select!(
                "WHERE standing = 'pending' AND expires_ms > $1 ORDER BY created_ms DESC, id LIMIT 1000"
            );
            tx.query(waiting, &[now_ms().into()]).await?
        };
        tx.rollback().await?;
        let mut kept = rows.iter().map(kept).collect::<Result<Vec<_>, _>>()?;
        kept.reverse();
        Ok(kept)
    }

    /// One. While it waits, its digest is over what it says, so that whoever looks at it and says yes
    /// to the digest says yes to what they saw, whoever else writes into the database.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Unreadable`], [`Error::State`].
    pub async fn get(&self, id: &str) -> Result<Kept, Error> {
        let mut tx = self.db.read().await?;
        let rows = tx.query(select!("WHERE id = $1"), &[id.into()]).await?;
        tx.rollback().await?;
        let row = rows.first().ok_or_else(|| Error::Unknown(shown(id)))?;
        let kept = kept(row)?;
        if kept.ticket.id != id || kept.standing == Standing::Pending && !kept.ticket.is_whole() {
            return Err(Error::Unreadable(format!("question {}", shown(id))));
        }
        Ok(kept)
    }

    /// Answers a question that waits: the first answer counts, and no later one. `digest` is what
    /// the person looked at.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::OtherDigest`], [`Error::Expired`], [`Error::Settled`],
    /// [`Error::State`].
    pub async fn answer(&self, id: &str, digest: &str, answer: &Answer) -> Result<Kept, Error> {
        let found = self.get(id).await?;
        if found.ticket.digest != digest {
            let digest = shown(&found.ticket.digest);
            return Err(Error::OtherDigest { id: shown(id), digest });
        }
        let standing = match answer.verdict {
            Verdict::Approve => Standing::Approved,
            Verdict::Deny => Standing::Denied,
        };
        let now = now_ms();
        let mut tx = self.db.write().await?;
        let changed = tx
            .execute(
                "UPDATE approval_questions SET standing = $1, answered_by = $2, channel = $3, \
                 reason = $4, answered_ms = $5 \
                 WHERE id = $6 AND digest = $7 AND standing = 'pending' AND expires_ms > $8",
                &[
                    standing.word().into(),
                    answer.by.as_str().into(),
                    answer.channel.into(),
                    answer.reason.as_deref().into(),
                    now.into(),
                    id.into(),
                    digest.into(),
                    now.into(),
                ],
            )
            .await?;
        tx.commit().await?;
        let now = self.get(id).await?;
        if changed == 1 {
            poke::wake(&self.home, &now.ticket.run);
            return Ok(now);
        }
        Err(match now.standing {
            Standing::Pending => Error::Expired(shown(id)),
            other => Error::Settled { id: shown(id), standing: words(other, &now) },
        })
    }

    /// Keeps a new question, and lets go of old ones.
    pub(crate) async fn put(&self, ticket: &Ticket, lasts_ms: i64) -> Result<(), Error> {
        let empty = String::new;
        let bare = Ticket { arguments: empty(), other_params: empty(), ..ticket.clone() };
        // A ticket is text and numbers.
        let text = serde_json::to_string(&bare).unwrap_or_default();
        let characters = i64::try_from(ticket.arguments.chars().count()).unwrap_or(i64::MAX);
        let now = now_ms();
        let mut tx = self.db.write().await?;
        tx.execute(
            "DELETE FROM approval_questions WHERE expires_ms < $1",
            &[(now - KEPT_MS).into()],
        )
        .await?;
        // An agent that is refused at once may ask without end.
        tx.execute(
            "DELETE FROM approval_questions WHERE run = $1 AND standing NOT IN ('pending', 'approved') \
             AND id NOT IN (SELECT id FROM approval_questions WHERE run = $2 ORDER BY created_ms DESC LIMIT 1000)",
            &[ticket.run.as_str().into(), ticket.run.as_str().into()],
        )
        .await?;
        tx.execute(
            "INSERT INTO approval_questions (id, run, standing, digest, created_ms, expires_ms, \
             ticket, arguments, characters, other_params) \
             VALUES ($1, $2, 'pending', $3, $4, $5, $6, $7, $8, $9)",
            &[
                ticket.id.as_str().into(),
                ticket.run.as_str().into(),
                ticket.digest.as_str().into(),
                now.into(),
                now.saturating_add(lasts_ms).into(),
                text.into(),
                ticket.arguments.as_str().into(),
                characters.into(),
                ticket.other_params.as_str().into(),
            ],
        )
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Uses up a yes: true once, and never again.
    pub(crate) async fn take(&self, ticket: &Ticket) -> Result<bool, Error> {
        self.settle(ticket, Standing::Approved, Standing::Used).await
    }

    /// Ends a question that waits; false when it does not any more.
    pub(crate) async fn end(&self, ticket: &Ticket, how: Standing) -> Result<bool, Error> {
        self.settle(ticket, Standing::Pending, how).await
    }

    /// Ends all that a run left.
    pub(crate) async fn end_all(&self, run: &str) -> Result<(), Error> {
        let mut tx = self.db.write().await?;
        tx.execute(
            "UPDATE approval_questions SET standing = 'withdrawn', \
             arguments = substr(arguments, 1, 4096), other_params = substr(other_params, 1, 4096) \
             WHERE run = $1 AND standing IN ('pending', 'approved')",
            &[run.into()],
        )
        .await?;
        Ok(tx.commit().await?)
    }

    async fn settle(&self, ticket: &Ticket, from: Standing, to: Standing) -> Result<bool, Error> {
        let mut tx = self.db.write().await?;
        let changed = tx
            .execute(
                "UPDATE approval_questions SET standing = $1, \
                 arguments = substr(arguments, 1, 4096), \
                 other_params = substr(other_params, 1, 4096) WHERE id = $2 AND digest = $3 AND standing = $4",
                &[
                    to.word().into(),
                    ticket.id.as_str().into(),
                    ticket.digest.as_str().into(),
                    from.word().into(),
                ],
            )
            .await?;
        tx.commit().await?;
        Ok(changed == 1)
    }
}

/// In words, with who and how.
fn words(standing: Standing, kept: &Kept) -> String {
    let word = standing.word().replace('_', " ");
    match (&kept.by, &kept.channel) {
        (Some(by), Some(channel)) => format!("{word} (by {}, {})", shown(by), shown(channel)),
        _ => word,
    }
}

fn shown(id: &str) -> String {
    ringfence_bundle::shown(id, 80)
}

fn kept(row: &Row) -> Result<Kept, Error> {
    let text = |column| row.maybe_text(column).map(|text| text.map(str::to_owned));
    let word = row.text(0)?;
    let damaged = |what: &str| Error::Unreadable(what.to_owned());
    let standing = Standing::ALL.into_iter().find(|standing| standing.word() == word);
    let standing = standing.ok_or_else(|| damaged("how a question stands"))?;
    let mut ticket: Ticket =
        serde_json::from_str(row.text(1)?).map_err(|_| damaged("a question"))?;
    ticket.arguments = row.text(2)?.to_owned();
    ticket.other_params = row.text(7)?.to_owned();
    Ok(Kept {
        ticket,
        standing,
        characters: u64::try_from(row.int(3)?).unwrap_or(0),
        by: text(4)?,
        channel: text(5)?,
        reason: text(6)?,
    })
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests;
