//! The books of one transaction: of everybody whose calls are in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_state::{Db, Tx};

use super::Account;
use crate::books::{Kind, Scopes};
use crate::store::Book;
use crate::{Error, Usd};

/// By whose they are.
pub(super) struct Shelf(BTreeMap<String, Book>);

impl Shelf {
    /// Locks them, in the order that every process locks them in, so that none waits for one that waits
    /// for it.
    pub(super) async fn open<'a>(
        db: &Db,
        tx: &mut Tx,
        accounts: impl Iterator<Item = &'a Arc<Account>>,
    ) -> Result<Self, Error> {
        let mut whose: Vec<&String> =
            accounts.flat_map(|account| [&account.who, &account.counted.0]).collect();
        whose.sort_unstable();
        whose.dedup();
        let mut books = BTreeMap::new();
        for who in whose {
            books.insert(who.clone(), Book::open(db, tx, who).await?);
        }
        Ok(Self(books))
    }

    /// The book that an account's days and months are in.
    pub(super) fn of(&self, account: &Account) -> Option<&Book> {
        self.0.get(&account.who)
    }

    /// The sums that a call of this day counts in. `None` when the account's books are not here.
    pub(super) async fn read(
        &mut self,
        db: &Db,
        tx: &mut Tx,
        account: &Account,
        day: &str,
    ) -> Result<Option<Scopes>, Error> {
        let (run_s, run) = &account.counted;
        let keys = Book::keys(run, day);
        let Some(book) = self.0.get_mut(&account.who) else { return Ok(None) };
        book.read(db, tx, &keys).await?;
        let mut scopes = book.scopes(&keys);
        if *run_s != account.who {
            let Some(book) = self.0.get_mut(run_s) else { return Ok(None) };
            book.read(db, tx, &keys).await?;
            scopes[0] = book.scopes(&keys)[0];
        }
        Ok(Some(scopes))
    }

    /// Puts changed sums back, which were read before.
    pub(super) fn put(&mut self, account: &Account, day: &str, scopes: Scopes) {
        let keys = Book::keys(&account.counted.1, day);
        for (key, scope) in keys.into_iter().zip(scopes) {
            let who = if key.0 == Kind::Run { &account.counted.0 } else { &account.who };
            let cap: Option<Usd> = account.caps.of(key.0).map(|cap| cap.amount);
            if let Some(book) = self.0.get_mut(who) {
                book.put(key, scope, cap);
            }
        }
    }

    /// Writes what has changed.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), Error> {
        for book in self.0.values() {
            book.write(tx).await?;
        }
        Ok(())
    }
}
